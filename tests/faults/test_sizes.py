"""Fault 39: names, tables and files that are much larger than any honest one."""

import json
import os
import resource
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gcig
from example_tables import QUICK, ROLE_FLAGS, make_loans, make_raw_loans
from gcig.methods.registry import METHODS
from gcig.persistence import PersistenceError, load_folder
from gcig.report.displays.base import literal
from support.model_mutations import write_mutation

LOANS = make_loans(120)
LONG = "x" * 64_000


def test_fault_39_a_column_name_of_64_000_characters(shell, tmp_path):
    with pytest.raises(gcig.InputError, match=r"a name of 64,000 characters.*at most 500 are allowed"):
        METHODS["unconstrained"].estimator(**QUICK).fit(
            LOANS.X.rename(columns={"age": LONG}), LOANS.y, **LOANS.groups
        )
    make_raw_loans(60).rename(columns={"job": LONG}).to_csv(tmp_path / "t.csv", index=False)
    code, _, err = shell("train", tmp_path / "t.csv", *ROLE_FLAGS, "--out", tmp_path / "m")
    assert code == 2
    assert len(err) < 1000


def test_fault_39_a_group_of_64_000_characters():
    with pytest.raises(gcig.InputError, match="a name of 64,000 characters"):
        gcig.metrics.equalized_odds_gap(LOANS.y, LOANS.y, sensitive_features=LOANS.sex.replace("male", LONG))


def test_fault_39_long_texts_are_cut_in_linear_time():
    began = time.perf_counter()
    shown = literal(LONG * 20)
    assert time.perf_counter() - began < 1
    assert "…" in shown
    assert len(shown) < 100


@pytest.mark.slow
def test_fault_39_a_page_of_many_columns():
    """Time and size of a page grow in proportion to its columns."""
    seconds = []
    for count in (300, 1200):
        rng = np.random.default_rng(0)
        X = pd.DataFrame(rng.normal(size=(200, count)), columns=[f"c{i}" for i in range(count)])
        y, groups = (X["c0"] > 0).astype(int), np.array(["f", "m"])[np.arange(200) % 2]
        model = METHODS["unconstrained"].estimator(**{**QUICK, "max_epochs": 1})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y, sensitive_features=groups)
            found = gcig.audit(model, X, y, sensitive_features=groups, n_bootstrap=10)
        began = time.perf_counter()
        found.to_html()
        seconds.append(time.perf_counter() - began)
    assert seconds[1] < 12 * seconds[0] + 1


def test_fault_39_a_document_of_sixty_megabytes(tmp_path):
    METHODS["unconstrained"].estimator(**QUICK).fit(LOANS.X, LOANS.y, **LOANS.groups).save(tmp_path / "m")
    document, tensors = load_folder(tmp_path / "m")
    with pytest.raises(PersistenceError, match=r"model\.json would have .* bytes; at most"):
        write_mutation(tmp_path / "m", {**document, "more": ["x" * 1000] * 60_000}, tensors)
    (tmp_path / "m" / "model.json").write_text(json.dumps({"more": ["x" * 1000] * 60_000}))
    tracemalloc.start()
    try:
        with pytest.raises(PersistenceError, match="at most 16777216 are read"):
            gcig.load(tmp_path / "m")
        assert tracemalloc.get_traced_memory()[1] < 50 * 2**20
    finally:
        tracemalloc.stop()


def test_fault_39_a_sparse_file_next_to_a_model_is_not_read(tmp_path):
    model = METHODS["unconstrained"].estimator(**QUICK).fit(LOANS.X, LOANS.y, **LOANS.groups)
    model.save(tmp_path / "m")
    with open(tmp_path / "m" / "huge", "wb") as file:
        file.truncate(200 * 2**30)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gcig.audit(tmp_path / "m", LOANS.X, LOANS.y, **LOANS.groups, n_bootstrap=10)
    assert time.perf_counter() - began < 60


def test_fault_39_an_onnx_file_that_expands(tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    make, kinds = onnx.helper, onnx.TensorProto
    size = make.make_tensor("size", kinds.INT64, [1], [2_000_000_000])  # 8 GB
    nodes = [
        make.make_node("Constant", [], ["size"], value=size),
        make.make_node("ConstantOfShape", ["size"], ["big"]),
        make.make_node("ReduceSum", ["big"], ["sum"], keepdims=0),
        make.make_node("Add", ["x", "sum"], ["probabilities"]),
    ]
    ends = [make.make_tensor_value_info(name, kinds.FLOAT, [None, 1]) for name in ("x", "probabilities")]
    graph = make.make_graph(nodes, "bomb", ends[:1], ends[1:])
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 13)], ir_version=8)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    assert path.stat().st_size < 300
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(gcig.InputError, match=r"the ONNX model (fails|cannot be read)"):
        gcig.audit(path, LOANS.X[["income"]], LOANS.y, **LOANS.groups)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 5 * 2**20  # in KiB
    with open(path, "r+b") as file:
        file.truncate(200 * 2**30)
    with pytest.raises(gcig.InputError, match="an ONNX model has at most 2 GiB"):
        gcig.audit(path, LOANS.X[["income"]], LOANS.y, **LOANS.groups)


@pytest.mark.parametrize("endless", ["/dev/zero", "pipe"])
@pytest.mark.parametrize("command", ["audit", "predict", "train"])
def test_fault_39_a_device_or_a_pipe_that_never_ends_is_not_read(
    shell, model, loans_csv, tmp_path, command, endless
):
    path = Path(endless) if endless.startswith("/") else tmp_path / endless
    if not path.exists():
        os.mkfifo(path)
    words = {
        "audit": (path, loans_csv, *ROLE_FLAGS),
        "predict": (model, path),
        "train": (path, *ROLE_FLAGS, "--out", tmp_path / "m"),
    }[command]
    code, _, err = shell(command, *words)
    assert code == 2
    assert "is a pipe or a device, not a" in err


def test_fault_39_a_configuration_file_of_nested_lists(shell, model, loans_csv, tmp_path):
    (tmp_path / "options.toml").write_text("drop = " + "[" * 100_000 + "]" * 100_000)
    code, _, err = shell("audit", model, loans_csv, "--config", tmp_path / "options.toml")
    assert code == 2
    assert "nests lists or tables too deeply" in err
