"""Columns that attributions are compared on: a constant moved from a block to the bias changes nothing."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from torch import nn

import gcig
from gcig.adapters import adapt
from gcig.core.definition import Definition
from gcig.metrics import evaluate, gcig_score
from gcig.metrics.columns import ComparedColumns, _common_name, _frequencies


@pytest.fixture(scope="module")
def table():
    """Two numbers, and a category as three dummy columns, in a numeric table."""
    rng = np.random.default_rng(0)
    n = 600
    sex = rng.choice(["f", "m"], n)
    job = np.where(rng.random(n) < 0.3 + 0.3 * (sex == "m"), "a", rng.choice(["b", "c"], n))
    frame = pd.DataFrame({"age": rng.normal(size=n) + (sex == "m"), "pay": rng.normal(size=n)})
    for level in "abc":
        frame[f"job_{level}"] = (job == level).astype(float)
    score = frame["age"] + frame["pay"] + frame["job_a"] - 0.5
    return frame, (score + rng.normal(size=n) > 0).astype(int), sex, job


@pytest.fixture(scope="module")
def network(table) -> nn.Module:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 8), nn.SiLU(), nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 1)).double()
    return module.requires_grad_(False)


def moved(module: nn.Module, columns: slice) -> nn.Module:
    """Move a constant from the weights of one-hot columns to the bias: the same function of one-hot rows."""
    other = copy.deepcopy(module)
    constant = torch.linspace(-2, 3, 8, dtype=torch.float64)
    other[0].weight[:, columns] += constant[:, None]
    other[0].bias -= constant
    return other


@pytest.mark.parametrize("columns", ["original", "encoded", "raw"])
def test_only_raw_columns_see_a_constant_that_moves_to_the_bias(table, network, columns) -> None:
    X, y, sex, _ = table
    other = moved(network, slice(2, 5))
    rows = torch.tensor(X.to_numpy())
    assert torch.allclose(network(rows), other(rows))
    definition = Definition(columns=columns)
    before, after = (
        gcig_score(model, X, y, sensitive_features=sex, definition=definition) for model in (network, other)
    )
    if columns == "raw":
        assert abs(after - before) > 0.05 * before
    else:
        assert after == pytest.approx(before, rel=1e-8)


def test_standardised_dummy_columns_are_a_block_as_well(table, network) -> None:
    X, y, sex, _ = table
    scale = X.std()
    scaled = (X - X.mean()) / scale
    other = copy.deepcopy(network)  # the standardised columns times their scales add up to zero
    constant = torch.linspace(-2, 3, 8, dtype=torch.float64)
    other[0].weight[:, 2:] += constant[:, None] * torch.tensor(scale.to_numpy()[2:])
    rows = torch.tensor(scaled.to_numpy())
    assert torch.allclose(network(rows), other(rows))
    first, second = (
        evaluate(model, scaled, y, sensitive_features=sex, n_bootstrap=0) for model in (network, other)
    )
    assert list(first.gcig_columns) == ["age", "pay", "job"]
    for name in ("gcig", "gcig_encoded", "gcig_members", "effective_columns"):
        assert getattr(first, name) == pytest.approx(getattr(second, name), rel=1e-6), name
    assert first.gcig_raw != pytest.approx(second.gcig_raw, rel=1e-3)


def test_encoded_attributions_by_hand(table, network) -> None:
    X, y, sex, _ = table
    rows = X.to_numpy()
    labels, groups = y.to_numpy(), (sex == "m").astype(int)
    cells = [[(labels == label) & (groups == group) for group in range(2)] for label in range(2)]
    np.stack([[rows[cell].mean(axis=0) for cell in of_label] for of_label in cells])
    adapted = adapt(network, X)
    columns = ComparedColumns.find(adapted, rows, rows.mean(axis=0))
    assert columns.names == ("age", "pay", "job")
    np.testing.assert_array_equal(columns.blocks, [0, 1, 2, 2, 2])
    frequencies = columns.frequencies.numpy()
    np.testing.assert_allclose(frequencies[2:], rows[:, 2:].mean(axis=0), rtol=5e-3)
    slopes = torch.randn(7, 5, dtype=torch.float64)
    centred = columns.centre(slopes)
    assert torch.equal(centred[:, :2], slopes[:, :2])
    expected = slopes[:, 2:] - slopes[:, 2:] @ torch.tensor(frequencies[2:])[:, None]
    torch.testing.assert_close(centred[:, 2:], expected)


def test_a_linear_model_of_dummies_equals_its_pipeline(table) -> None:
    """Dummy columns in a numeric table and an encoder in a pipeline give the same GCIG."""
    X, y, sex, job = table
    of_dummies = LogisticRegression().fit(X, y)
    text = X[["age", "pay"]].assign(job=job)
    encoder = make_column_transformer((OneHotEncoder(), ["job"]), remainder="passthrough")
    pipeline = make_pipeline(encoder, LogisticRegression()).fit(text, y)
    first = evaluate(of_dummies, X, y, sensitive_features=sex, n_bootstrap=0)
    second = evaluate(pipeline, text, y, sensitive_features=sex, n_bootstrap=0)
    for name in ("gcig", "gcig_l2", "gcig_encoded", "gcig_raw", "effective_columns", "faithfulness"):
        assert getattr(first, name) == pytest.approx(getattr(second, name), rel=1e-4), name
    assert first.gcig_columns == pytest.approx(second.gcig_columns, rel=1e-3)


@pytest.mark.filterwarnings("ignore:X has columns that reveal")
def test_dummy_columns_of_compas_count_as_their_category() -> None:
    """Without encoding, dummy columns once counted as columns of their own, and GCIG was far too small."""
    data = gcig.load_dataset("compas")
    categories = list(data.X.select_dtypes(exclude="number").columns)
    dummies = pd.get_dummies(data.X, columns=categories, dtype=float)
    numbers = data.X.columns.difference(categories)
    dummies[numbers] = (dummies[numbers] - dummies[numbers].mean()) / dummies[numbers].std()
    model = gcig.methods.METHODS["unconstrained"].estimator(
        preprocessing="none", max_epochs=5, random_state=0
    )
    model.fit(dummies, data.y, sensitive_features=data.sensitive_features)
    found = evaluate(model, dummies, data.y, sensitive_features=data.sensitive_features, n_bootstrap=0)
    assert set(found.gcig_columns) == set(data.X.columns)
    # The truth: the sums over the blocks, by hand.
    names = sorted(data.X, key=len)
    of_dummy = [[n for n in names if c == n or c.startswith(f"{n}_")][-1] for c in dummies]
    origin = torch.tensor([names.index(name) for name in of_dummy])
    explained = model.explain(dummies, data.y, columns="raw")
    values = torch.zeros(2, len(dummies), len(names)).index_add_(
        -1, origin, torch.tensor(explained.attributions)
    )
    units = values / values.abs().sum(-1, keepdim=True)
    assert found.gcig == pytest.approx(float((units[0] - units[1]).norm(dim=-1).mean()), rel=1e-3)
    assert found.gcig_raw != pytest.approx(found.gcig, rel=1e-2)


@pytest.mark.parametrize(
    ("names", "shared"),
    [
        (["age"], "age"),
        (["job_a", "job_bcd", "job_ef"], "job"),
        (["race=black", "race=white"], "race"),
        (["low", "middle", "high"], "low ... high"),
    ],
)
def test_dummy_columns_have_the_name_that_they_share(names: list[str], shared: str) -> None:
    assert _common_name(names) == shared


def test_a_category_that_no_row_has_keeps_its_frequency_among_the_references() -> None:
    inputs = np.array([[1.0, 0.0, 0.0, 7.0], [0.0, 1.0, 0.0, 8.0], [1.0, 0.0, 0.0, 9.0]])
    found, ranges = _frequencies(np.array([0, 0, 0, 1]), inputs, np.array([0.5, 0.3, 0.2, 8.0]))
    assert found == pytest.approx([0.5, 0.3, 0.2, 0.0])
    assert ranges.tolist() == [1.0] * 4
