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
from gcig._validation import InputError
from gcig.adapters import adapt

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


def test_a_function_is_tried_to_find_the_columns_of_the_table() -> None:
    encode = adapt(make_module(), TABLE, preprocess=lambda table: ENCODER.transform(table))
    assert encode.original_names == ("pay", "age", "job")
    assert encode.origin.tolist() == [2, 2, 2, 0, 1]
    mixed = adapt(make_module(1), TABLE, preprocess=lambda table: table[["pay"]] + table[["age"]].to_numpy())
    assert mixed.original_names == ("pay",)  # as the function names it
    noise = np.random.default_rng(0)
    random = adapt(make_module(1), TABLE, preprocess=lambda table: noise.normal(size=(len(table), 1)))
    assert random.original_names == ("x0",)


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
    options = {"n_bootstrap": 20, "n_shuffles": 5, "preprocess": ENCODER}
    found = gcig.audit(make_module(), TABLE, Y, sensitive_features=SEX, **options).record
    assert {column.column for column in found.procedural.columns} == {"pay", "age", "job"}
    assert found.subject.n_columns == 3


def test_messages_name_the_column_and_the_remedy() -> None:
    module = make_module(3)
    with pytest.raises(InputError, match=r"X has columns that are not numeric: 'job', .*preprocess="):
        adapt(module, TABLE)
    holes = TABLE[["pay", "age"]].assign(extra=1.0)
    holes.loc[3, "age"] = np.nan
    with pytest.raises(InputError, match="missing or infinite values in 'age'"):
        adapt(module, holes)
    with pytest.raises(InputError, match=r"does not take rows of 2 numbers: .*preprocess="):
        adapt(module, TABLE[["pay", "age"]])
    exported = torch.export.export(module, (torch.zeros(5, 3),)).module()  # for exactly five rows
    with pytest.raises(InputError, match=r"does not take rows of 3 numbers: .*dynamic_shapes="):
        adapt(exported, TABLE[["pay", "age"]].assign(extra=1.0))
    with pytest.raises(InputError, match="preprocess returned 3 rows for 300 rows"):
        adapt(module, TABLE, preprocess=lambda table: table[:3])
    with pytest.raises(InputError, match="preprocess is for torch modules, but the model is a function"):
        adapt(lambda rows: rows, TABLE, preprocess=ENCODER)
