"""Evaluation, audits of tables and files, explanations and training answer the same question alike."""

import functools

import numpy as np
import pandas as pd
import pytest
import torch
from gcig.methods.fairx.selection import HeldOut, measure
from gcig.methods.fairx.settings import FairTraining
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import gcig
from gcig.auditing import audit, audit_file
from gcig.core.batch import GroupedBatch
from gcig.metrics.ranking import roc_auc
from gcig.metrics.rates import Confusion, gap
from gcig.training.loop import Loop

QUICK = {"n_bootstrap": 30, "n_shuffles": 5}
OUTCOMES = ("accuracy", "f1", "auc", "eo_gap", "eo_worst", "delta_tpr", "selection_rate_ratio")


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Two large groups, and a small one of 25 rows in which label 1 has fewer than 11 rows."""
    rng = np.random.default_rng(0)
    n = 500
    sex = np.where(np.arange(n) < 25, "x", rng.choice(["f", "m"], n))
    frame = pd.DataFrame({"age": rng.normal(size=n) + (sex == "m"), "pay": rng.normal(size=n)})
    frame["job"] = rng.choice(["a", "b", "c"], n)
    score = frame["age"] + frame["pay"] + (frame["job"] == "a") - 0.5
    frame["y"] = (score + rng.normal(size=n) > 0).astype(int)
    small = np.flatnonzero((sex == "x") & (frame["y"] == 1))[4:]
    frame.loc[small, "y"] = 0
    return frame.assign(sex=sex)


def linear(frame: pd.DataFrame):
    encoder = make_column_transformer((OneHotEncoder(), ["job"]), remainder="passthrough")
    return make_pipeline(encoder, LogisticRegression()).fit(frame[["age", "pay", "job"]], frame["y"])


def network(frame: pd.DataFrame):
    model = gcig.FairXClassifier(max_epochs=8, hidden_sizes=(8,), random_state=0)
    X = frame[["age", "pay", "job"]]
    return model.fit(X, frame["y"], sensitive_features=frame["sex"])


def function(frame: pd.DataFrame):
    model = linear(frame)
    return lambda rows: model.predict_proba(rows)[:, 1]


@pytest.fixture(scope="module")
def fitted(table):
    """Fit each kind of model once."""
    return functools.cache(lambda make: make(table))


@pytest.mark.parametrize(
    ("make", "min_cell"), [(linear, 1), (linear, 11), (network, 1), (network, 11), (function, 11)]
)
def test_evaluate_and_audit_return_the_same_numbers(table, fitted, make, min_cell, tmp_path) -> None:
    model, X, sex = fitted(make), table[["age", "pay", "job"]], table["sex"]
    expected = gcig.evaluate(model, X, table["y"], sensitive_features=sex, min_cell=min_cell, n_bootstrap=30)
    table.to_csv(tmp_path / "rows.csv", index=False)
    of_file = audit_file(
        model,
        tmp_path / "rows.csv",
        target="y",
        sensitive="sex",
        min_cell=min_cell,
        rows_at_once=200,
        in_memory_rows=0,
        **QUICK,
    )
    of_table = audit(model, X, table["y"], sensitive_features=sex, min_cell=min_cell, **QUICK)
    sampled = 1e-3 if make is function else 1e-5  # the permutations of a batch are drawn for that batch
    for record, close in ((of_table.record, 1e-12), (of_file.record, sampled)):
        found, outcome = record.procedural, record.outcome
        assert found.gcig.value == pytest.approx(expected.gcig, rel=close)
        for name in (
            *("gcig_l2", "gcig_encoded", "gcig_raw", "effective_columns", "undefined_rows"),
            *("members_noise", "reference_offset", "faithfulness"),
        ):
            value = pytest.approx(getattr(expected, name), rel=close, nan_ok=True)
            assert getattr(found, name) == value, name
        for name in ("gcig_members", "attribute_effect"):
            value = pytest.approx(getattr(expected, name), rel=close, nan_ok=True)
            assert getattr(found, name).value == value, name
        limits = found.gcig_members.low, found.gcig_members.high
        assert limits == pytest.approx((expected.gcig_members_low, expected.gcig_members_high), rel=close)
        assert found.undefined == expected.undefined
        columns = {column.column: column.contribution.value for column in found.columns}
        assert columns == pytest.approx(dict(expected.gcig_columns), rel=close)
        assert sum(columns.values()) == pytest.approx(found.gcig.value)
        assert found.compared_groups == expected.compared_groups
        assert record.suppressed_cells == expected.suppressed_cells
        assert outcome.eo_noise_floor == pytest.approx(expected.eo_noise_floor)
        for name in OUTCOMES:
            assert getattr(outcome, name).value == pytest.approx(getattr(expected, name)), name
    fixed = of_table.record.procedural.gcig_fixed_references
    low, high = fixed.low, fixed.high
    assert (low, high) == pytest.approx((expected.gcig_low, expected.gcig_high), rel=1e-9)
    assert of_table.record.subject.definition == expected.definition


def test_suppression_is_a_visible_setting(table, fitted) -> None:
    model, X, sex = fitted(linear), table[["age", "pay", "job"]], table["sex"]
    hidden = gcig.evaluate(model, X, table["y"], sensitive_features=sex, n_bootstrap=0)
    everything = gcig.evaluate(model, X, table["y"], sensitive_features=sex, n_bootstrap=0, min_cell=1)
    assert hidden.suppressed_cells == ("label 1 in group 'x'",)
    assert "label 1 in group 'x'" in str(hidden)
    assert "label 1 in group" in hidden._repr_html_()
    assert hidden.compared_groups == ("f", "m")
    assert everything.suppressed_cells == ()
    assert everything.compared_groups == ("f", "m", "x")
    assert hidden.eo_gap != everything.eo_gap
    assert hidden.gcig != everything.gcig


def test_explanations_and_the_parts_for_training_agree(table, fitted) -> None:
    model, X, sex = fitted(network), table[["age", "pay", "job"]], table["sex"]
    expected = gcig.evaluate(model, X, table["y"], sensitive_features=sex, min_cell=1, n_bootstrap=0)
    explained = model.explain(X, table["y"], columns="original")
    assert np.nanmean(explained.disparity) == pytest.approx(expected.gcig, rel=1e-4)
    scores = model.predict_proba(X)[:, 1]
    codes = pd.factorize(sex, sort=True)[0]
    labels = table["y"].to_numpy()
    assert roc_auc(labels, scores) == expected.auc
    counts = Confusion.count(labels, model.predict(X), codes, 3)
    assert gap(counts.rates).sum() == pytest.approx(expected.eo_gap)


def test_explanations_merge_dummy_columns_as_evaluations_do(table) -> None:
    """Blocks are those of the training rows: a single row could not show them."""
    dummies = pd.get_dummies(table["job"], prefix="job").astype(float)
    X = pd.concat([table[["age", "pay"]], dummies], axis=1)
    model = gcig.FairXClassifier(preprocessing="none", max_epochs=5, hidden_sizes=(8,), random_state=0)
    model.fit(X, table["y"], sensitive_features=table["sex"])
    expected = gcig.evaluate(model, X, table["y"], sensitive_features=table["sex"], min_cell=1, n_bootstrap=0)
    explained = model.explain(X, table["y"])
    assert explained.columns == ("age", "pay", "job") == tuple(expected.gcig_columns)
    assert np.nanmean(explained.disparity) == pytest.approx(expected.gcig, rel=1e-4)
    raw = model.explain(X, table["y"], columns="raw")
    np.testing.assert_allclose(explained.attributions[..., 2], raw.attributions[..., 2:].sum(-1), atol=1e-5)
    alone = model.explain(X[:1], table["y"][:1])
    assert alone.columns == explained.columns
    np.testing.assert_allclose(alone.attributions[:, 0], explained.attributions[:, 0], atol=1e-4)


def test_checkpoint_selection_measures_what_evaluate_measures(table, fitted) -> None:
    model, table = fitted(network), table[table["sex"] != "x"]
    X, y, sex = (table[each][::2] for each in (["age", "pay", "job"], "y", "sex"))
    held = tuple(table[each][1::2] for each in (["age", "pay", "job"], "y", "sex"))
    codes = pd.Series(pd.factorize(table["sex"], sort=True)[0])

    def batch(rows, labels, groups):
        inputs = torch.from_numpy(model.encode(rows))
        return GroupedBatch(inputs, torch.tensor(labels.to_numpy()), torch.tensor(groups.to_numpy()))

    training = batch(X, y, codes[::2])
    held_out = HeldOut(
        batch(held[0], held[1], codes[1::2]),
        training,
        FairTraining(Loop(max_epochs=1, batch_size=32)),
        2,
        torch.from_numpy(model.blocks_),
        [],
    )
    found = measure(model.module_, held_out)
    expected = gcig.evaluate(
        model,
        held[0],
        held[1],
        sensitive_features=held[2],
        reference=(X, y, sex),
        min_cell=1,
        n_bootstrap=0,
    )
    for ours, theirs in (("auc", "auc"), ("log_loss", "log_loss"), ("gcig", "gcig")):
        assert found[ours] == pytest.approx(getattr(expected, theirs), rel=2e-3), ours
    assert found["columns"] == pytest.approx(expected.effective_columns, rel=2e-3)
    assert found["reference_offset"] == pytest.approx(expected.reference_offset, rel=1e-3)
    assert found["outcome_gap"] == pytest.approx(expected.eo_gap, rel=1e-4)
    # Selection does not remove what the choice of members adds by chance; the noise bounds it.
    assert abs(found["gcig_members"] - expected.gcig_members) < expected.members_noise + 0.02
