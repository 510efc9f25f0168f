"""Torch modules with preprocessing of their own, and messages that name the column and the remedy."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

import gcig
from gcig._arguments import InputError
from gcig.adapters import adapt
from gcig.auditing.subject import hash_model
from support.networks import image_problem, token_problem

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"pay": RNG.normal(size=300), "age": RNG.normal(size=300)})
TABLE["job"] = RNG.choice(["a", "b", "c"], 300)
SEX = np.where(RNG.random(300) < 0.5, "f", "m")
Y = (TABLE["pay"] + (TABLE["job"] == "a") + 0.5 * (SEX == "m") > 0.6).astype(int)
ENCODER = make_column_transformer((OneHotEncoder(), ["job"]), (StandardScaler(), ["pay", "age"]))
ROWS = np.asarray(ENCODER.fit_transform(TABLE), dtype=np.float32)


def make_module(n_inputs: int = 5) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(n_inputs, 4), nn.SiLU(), nn.Linear(4, 1))


def test_a_transformer_maps_attributions_to_the_columns_of_the_table() -> None:
    module = make_module()
    adapted = adapt(module, TABLE, preprocess=ENCODER)
    assert adapted.original_names == ("pay", "age", "job")
    assert adapted.origin.tolist() == [2, 2, 2, 0, 1]
    np.testing.assert_allclose(adapted.encode(TABLE), ROWS, rtol=1e-6)
    found = gcig.evaluate(module, TABLE, Y, sensitive_features=SEX, preprocess=ENCODER, n_bootstrap=0)
    plain = gcig.evaluate(module, ROWS, Y, sensitive_features=SEX, n_bootstrap=0)
    assert set(found.gcig_columns) == {"pay", "age", "job"}
    assert found.gcig == pytest.approx(plain.gcig)  # the dummy columns of an array are recognised as one
    assert found.auc == plain.auc


def test_the_columns_that_a_function_encodes_are_named_by_their_origin() -> None:
    named = {"origin": [2, 2, 2, 0, 1], "original_names": TABLE.columns.tolist()}
    adapted = adapt(make_module(), TABLE, preprocess=lambda table: ENCODER.transform(table), **named)
    assert adapted.original_names == ("pay", "age", "job")
    found = gcig.evaluate(adapted, TABLE, Y, sensitive_features=SEX, n_bootstrap=0)
    by_encoder = adapt(make_module(), TABLE, preprocess=ENCODER)
    expected = gcig.evaluate(by_encoder, TABLE, Y, sensitive_features=SEX, n_bootstrap=0)
    assert found.gcig_columns == pytest.approx(expected.gcig_columns)
    other = adapt(make_module(1), TABLE, preprocess=lambda table: table[["pay"]] + table[["age"]].to_numpy())
    assert other.original_names == ("pay",)  # as the function names it


def test_a_function_gives_the_columns_that_it_returns() -> None:
    module = make_module(2)
    adapted = adapt(module, TABLE, preprocess=lambda table: table[["pay", "age"]] * 2)
    assert adapted.columns == ("pay", "age")
    expected = torch.sigmoid(module(torch.tensor(TABLE[["pay", "age"]].to_numpy(np.float32) * 2)))
    np.testing.assert_allclose(adapted.scores(TABLE), expected.detach()[:, 0], atol=1e-6)
    of_tensors = adapt(module, TABLE, preprocess=lambda t: torch.tensor(t[["pay", "age"]].to_numpy() * 2))
    np.testing.assert_allclose(of_tensors.scores(TABLE), adapted.scores(TABLE), atol=1e-6)


def test_outputs_that_mix_columns_are_columns_of_their_own() -> None:
    mixed = PCA(2).fit(TABLE[["pay", "age"]])
    adapted = adapt(make_module(2), TABLE[["pay", "age"]], preprocess=mixed)
    assert adapted.original_names == ("x0", "x1")


def test_an_audit_preprocesses_the_table(tmp_path) -> None:
    options = {"n_bootstrap": 20, "preprocess": ENCODER}
    found = gcig.audit(make_module(), TABLE, Y, sensitive_features=SEX, **options).record
    assert set(found.evaluation.gcig_columns) == {"pay", "age", "job"}
    assert found.subject.n_columns == 3


def test_messages_name_the_column_and_the_remedy() -> None:
    module = make_module(3)
    with pytest.raises(InputError, match=r"X has columns that are not numeric: 'job', .*preprocess="):
        adapt(module, TABLE)
    holes = TABLE[["pay", "age"]].assign(extra=1.0)
    holes.loc[3, "age"] = np.nan
    with pytest.raises(InputError, match="missing or infinite values in 'age'"):
        adapt(module, holes)
    with pytest.raises(InputError, match=r"does not take rows of 2 numbers .*preprocess="):
        adapt(module, TABLE[["pay", "age"]])
    exported = torch.export.export(module, (torch.zeros(5, 3),)).module()  # for exactly five rows
    with pytest.raises(InputError, match=r"does not take rows of 3 numbers .*dynamic_shapes="):
        adapt(exported, TABLE[["pay", "age"]].assign(extra=1.0))
    with pytest.raises(InputError, match="preprocess returned 3 rows for 300 rows"):
        adapt(module, TABLE, preprocess=lambda table: table[:3])
    with pytest.raises(InputError, match="preprocess returned columns that are not numeric: 'job'"):
        adapt(module, TABLE, preprocess=lambda table: table[["job"]])
    with pytest.raises(InputError, match="preprocess returned missing or infinite values in 'pay'"):
        adapt(module, TABLE, preprocess=lambda table: table[["pay"]] * np.nan)
    with pytest.raises(InputError, match="preprocess is for torch modules, but the model is a function"):
        adapt(lambda rows: rows, TABLE, preprocess=ENCODER)


@pytest.mark.parametrize("kind", ["tokens", "patches"])
def test_groups_of_inputs_are_measured_as_the_penalty_measures_them(kind) -> None:
    module, x, y, groups = token_problem(64) if kind == "tokens" else image_problem(64)
    origin = torch.arange(5).unsqueeze(1)
    if kind == "patches":
        side = torch.arange(6) // 3
        origin = 2 * side.unsqueeze(1) + side
    exact = {"rule": "gauss_legendre", "n_steps": 4, "label_weights": "empirical"}
    baselines = gcig.GroupBaselines.from_data(x, y, groups)
    with torch.no_grad():
        penalty = float(gcig.GCIGPenalty(baselines, origin=origin, **exact)(module, x, y))
        each = [
            float(gcig.GCIGPenalty(baselines, origin=origin, **exact)(module, x[[i]], y[[i]]))
            for i in range(2)
        ]
    names = [f"{kind} {i}" for i in range(int(origin.max()) + 1)]
    rows = x.numpy()
    adapted = gcig.adapt(module, rows, origin=origin.numpy(), original_names=names)
    options = {"sensitive_features": groups.numpy(), "definition": gcig.Definition(**exact), "min_cell": 2}
    found = gcig.evaluate(adapted, rows, y.numpy(), n_bootstrap=0, **options)
    audited = gcig.audit(adapted, rows, y.numpy(), n_bootstrap=20, **options).record
    del options["sensitive_features"]
    reference = (rows, y.numpy(), groups.numpy())
    explained = gcig.explain(adapted, rows[:2], y[:2].numpy(), reference=reference, **options).record
    score = gcig.metrics.gcig_score(
        adapted, rows, y.numpy(), sensitive_features=groups.numpy(), definition=gcig.Definition(**exact)
    )
    assert found.gcig == pytest.approx(penalty, rel=1e-9)
    assert audited.evaluation.gcig == pytest.approx(penalty, rel=1e-9)
    assert score == pytest.approx(penalty, rel=1e-9)
    assert [row.disparity for row in explained.rows] == pytest.approx(each, rel=1e-9)
    assert set(found.gcig_columns) == set(audited.evaluation.gcig_columns) == set(names)
    assert {reason.column for reason in explained.rows[0].columns} <= set(names)
    assert audited.subject.model_name == explained.model_name == type(module).__name__
    assert audited.subject.model_sha256 == hash_model(module)
    assert gcig.adapt(module, rows, origin=origin).original_names[:2] == ("x0", "x1")


def test_groups_of_two_valued_inputs_are_not_merged() -> None:
    adapted = adapt(make_module(), ROWS, origin=torch.tensor([0, 1, 2, 3, 3]))
    found = gcig.evaluate(adapted, ROWS, Y, sensitive_features=SEX, n_bootstrap=0)
    assert list(found.gcig_columns) == ["x0", "x1", "x2", "x3"]


def test_options_of_groups_of_inputs_are_checked() -> None:
    module = make_module()
    with pytest.raises(ValueError, match=r"origin must have the shape of a row, \(5,\)"):
        adapt(module, ROWS, origin=np.arange(4))
    for names in (["a", "b"], ["a", "a", "b"], "abc"):
        with pytest.raises(InputError, match="original_names must be 3 different names"):
            adapt(module, ROWS, origin=[0, 0, 0, 1, 2], original_names=names)
    with pytest.raises(InputError, match="origin is for torch modules, but the model is a function"):
        adapt(lambda rows: rows[:, 0], ROWS, origin=np.arange(5))
    with pytest.raises(InputError, match="model is adapted already"):
        gcig.evaluate(adapt(module, ROWS), ROWS, Y, sensitive_features=SEX, preprocess=ENCODER)
