"""Fuzzing: hostile tables through the whole path, and random bytes in every file that is opened."""

import contextlib
import io
import json
import random
import resource
import shutil
import sys
import warnings
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gcig
from example_tables import QUICK, ROLE_FLAGS, make_raw_loans
from gcig.cli import main
from gcig.methods.registry import METHODS
from gcig.persistence import PersistenceError

OWN_ERRORS = (gcig.InputError, PersistenceError, gcig.DivergenceError)

# --- tables ------------------------------------------------------------------------------------------------

NAMES = st.one_of(
    st.sampled_from(
        ["age", "age ", "", "=1+1", "<b>", "x" * 400, "a\nb", "a,b", '"', "\u202e", "é", "é", "0", "$x^{"]
    ),
    st.text(min_size=1, max_size=8),
)
ENTRIES = [
    st.floats(allow_infinity=False, width=64),
    st.floats(-1e3, 1e3),
    st.integers(-(2**60), 2**60),
    st.booleans(),
    st.none(),
    st.sampled_from(["a", "b", "", "NA", "1", "01/02/2024", "=cmd", "\u200b", "x" * 300]),
    st.text(max_size=4),
    st.datetimes(pd.Timestamp("1990-01-01"), pd.Timestamp("2030-01-01")),
]


@st.composite
def tables(draw):
    """Return a table of 40 to 60 rows with columns of any kind, and labels and groups with all four cells."""
    n = draw(st.integers(40, 60))
    columns = {}
    for name in draw(st.lists(NAMES, min_size=1, max_size=4, unique=True)):
        kinds = draw(st.lists(st.sampled_from(ENTRIES), min_size=1, max_size=2))
        few = draw(st.lists(st.one_of(kinds), min_size=1, max_size=12))
        columns[name] = [few[i % len(few)] for i in range(n)]
    X, order = pd.DataFrame(columns), np.arange(n)
    if X.shape[1] > 1 and draw(st.integers(0, 9)) == 0:
        X.columns = [X.columns[1], *X.columns[1:]]  # the same name twice
    return X, order % 2, np.array(["f", "m"])[order // 2 % 2]


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(tables(), st.sampled_from(["unconstrained", "hardt", "fairx"]))
def test_any_table_gets_a_result_or_an_error_of_the_library(tmp_path_factory, table, key):
    X, y, groups = table
    by = {"sensitive_features": groups}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = METHODS[key].estimator(**{**QUICK, "max_epochs": 1}).fit(X, y, **by)
        except OWN_ERRORS:
            return
        expected = model.predict_proba(X, **by)
        assert np.isfinite(expected).all()
        assert set(model.predict(X, **by)) <= {0, 1}
        folder = tmp_path_factory.mktemp("fuzzed")
        model.save(folder / "m")
        loaded = gcig.load(folder / "m")
        np.testing.assert_array_equal(loaded.predict_proba(X, **by), expected)
        explanation = loaded.explain(X, y)
        assert np.isfinite(explanation.attributions).all()
        found = gcig.audit(loaded, X, y, **by, n_bootstrap=10, min_cell=1)
        page = found.to_html()
        assert page.startswith(("<!doctype html>", "<!DOCTYPE html>"))
        json.loads(found.to_json())


# --- bytes ------------------------------------------------------------------------------------------------


def damaged(content, rng):
    """Return bytes with some of them replaced, removed or repeated."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 3, 20])):
        place = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[place] = rng.randrange(256)
            case 1:
                del data[place : place + rng.randrange(1, 30)]
            case 2:
                data[place:place] = data[place : place + rng.randrange(1, 30)]
            case _:
                data[place:place] = rng.choice([b"\0", b'"', b"\n", b",", b"9" * 400, b"NaN", b"[" * 2000])
        if not data:
            data = bytearray(b"x")
    return bytes(data)


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Return a file of every kind that commands open."""
    for package in ("pyarrow", "onnx", "lightgbm", "xgboost"):
        pytest.importorskip(package)
    return make_originals(tmp_path_factory.mktemp("originals"))


def make_originals(folder):
    loans = make_raw_loans(80)
    loans.to_csv(folder / "t.csv", index=False)
    loans.to_csv(folder / "t.csv.gz", index=False)
    loans.to_parquet(folder / "t.parquet")
    loans.to_feather(folder / "t.feather")
    X = loans[["income", "job", "owner"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = METHODS["unconstrained"].estimator(**QUICK)
        model.fit(X, loans["approved"], sensitive_features=loans["sex"]).to_onnx(folder / "model.onnx")
        trees = import_module("lightgbm").LGBMClassifier(
            n_estimators=5, min_child_samples=3, verbose=-1, n_jobs=1
        )
        trees.fit(X.assign(job=X["job"].astype("category")), loans["approved"] == "yes")
        trees.booster_.save_model(folder / "model.txt")
        boosted = import_module("xgboost").XGBClassifier(n_estimators=5, enable_categorical=True, n_jobs=1)
        boosted.fit(X.assign(job=X["job"].astype("category")), loans["approved"] == "yes")
        boosted.save_model(folder / "model.ubj")
        quiet = ["--out", str(folder / "trained"), "--method", "unconstrained", "--epochs", "1", "-q"]
        with contextlib.redirect_stdout(io.StringIO()):
            main(["train", str(folder / "t.csv"), *ROLE_FLAGS, "--drop", "id,race", *quiet])
            run = ["--methods", "unconstrained", "--folds", "2", "--jobs", "1", "-q", "--out"]
            main(["compare", str(folder / "t.csv"), *ROLE_FLAGS, "--drop", "id,race", *run, f"{folder}/run"])
            family = ["--epochs", "1", "-q", "--out", str(folder / "family")]
            main(["tradeoff", str(folder / "t.csv"), *ROLE_FLAGS, "--drop", "id,race", *family])
    _, audit = run_command("audit", folder / "trained", folder / "t.csv", *ROLE_FLAGS, "-q", "--json")
    (folder / "audit.json").write_text(audit)
    (folder / "options.toml").write_text('target = "approved"\npositive = "yes"\nsensitive = "sex"\n')
    return folder


def run_command(*words):
    """Return the exit code and what was printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = main([str(word) for word in words])
    return code, out.getvalue() + err.getvalue()


def peak_megabytes():
    """Return the most memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# A hook of the interpreter stays for good, so there is one, which reports to the list that is set.
_CODE = ("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect")
_ran = None


def _watch(event, _):
    if _ran is not None and event in _CODE:
        _ran.append(event)


@contextlib.contextmanager
def no_code():
    """Record every unpickled class, process and connection."""
    global _ran
    _ran = found = []
    try:
        yield found
    finally:
        _ran = None


sys.addaudithook(_watch)


FILES = [
    "t.csv",
    "t.csv.gz",
    "t.parquet",
    "t.feather",
    "model.onnx",
    "model.txt",
    "model.ubj",
    "options.toml",
]
FILES += ["audit.json", "trained/model.json", "trained/tensors-*.safetensors"]
DRAWN = ["run/manifest.json", "run/trials/*.json", "trained/report.json", "family/tradeoff.json"]


def check_damaged(originals, folder, name, seed):
    """Damage one file of a copy, use it, and check that only the library's own errors come out.

    Seed 0 changes nothing, and everything works.
    """
    rng = random.Random(seed)
    copy = folder / f"{seed}"
    shutil.copytree(originals, copy)
    path = next(copy.glob(name))
    if seed:
        path.write_bytes(damaged(path.read_bytes(), rng))
    table = path if name.startswith("t.") else copy / "t.csv"
    commands = [["predict", copy / "trained", table], ["audit", copy / "trained", table, *ROLE_FLAGS, "-q"]]
    if name in ("model.onnx", "model.txt", "model.ubj"):
        commands = [["audit", path, copy / "t.csv", *ROLE_FLAGS, "--drop", "id,race", "-q"]]
    if name == "audit.json":
        commands = [["audit", copy / "trained", copy / "t.csv", *ROLE_FLAGS, "--against", path, "-q"]]
    if name == "options.toml":
        commands = [["audit", copy / "trained", copy / "t.csv", "--config", path, "-q"]]
    if name in DRAWN:
        commands = [["report", copy / name.partition("/")[0]]]
    before = peak_megabytes()
    for command in commands:
        with no_code() as ran:
            code, printed = run_command(*command)
        assert code in ((0, 1, 2, 3) if seed else (0, 1, 3)), (seed, command[0], printed[-400:])
        assert "Traceback" not in printed
        # Another process opens files of boosted trees first.
        trees = name in ("model.txt", "model.ubj")
        assert set(ran) <= ({"subprocess.Popen"} if trees else set()), (seed, command[0])
    assert peak_megabytes() - before < 500, (seed, commands[0][0])
    shutil.rmtree(copy)


@pytest.mark.parametrize("name", [*FILES, *DRAWN])
def test_damaged_files_give_errors_of_the_library(originals, tmp_path, name):
    for seed in range(3):
        check_damaged(originals, tmp_path, name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FILES, *DRAWN])
def test_many_damaged_files_give_errors_of_the_library(originals, tmp_path, name):
    for seed in range(100, 140):
        check_damaged(originals, tmp_path, name, seed)
