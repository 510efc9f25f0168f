"""Relatives from the literature, against their definitions computed literally on small data."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import gcig
from gcig.metrics import MeasureOptions
from gcig.metrics.evaluation import measure_once
from gcig.metrics.relatives import held_out_auc, member_attributions
from gcig.metrics.result import Measured

N = 500
RNG = np.random.default_rng(0)
SEX = RNG.choice(["f", "m"], N)
X = RNG.normal(size=(N, 3))
X[:, 0] += SEX == "m"
Y = (X.sum(axis=1) + RNG.normal(size=N) > 0.5).astype(int)
MODEL = LogisticRegression().fit(X, Y)


@pytest.fixture(scope="module")
def measured() -> Measured:
    options = MeasureOptions(measures="procedural", n_bootstrap=0)
    partial = measure_once(MODEL, X, Y, sensitive_features=SEX, reference=None, options=options)
    return Measured(partial, partial.plan.groups.names)


def literal(measured: Measured, cell: int) -> tuple[np.ndarray, np.ndarray]:
    """Attributions w (x - mean of people) of every reference of a label, in spreads, and their groups."""
    people, of_people, references, of_references = measured.chosen
    middle = people.inputs[of_people[cell]].mean(axis=0)
    own = of_references[cell]
    return (references.inputs[own] - middle) * MODEL.coef_[0] / measured.spread, references.groups[own]


def test_members_are_explained_relative_to_people(measured) -> None:
    for cell, block in enumerate(measured.view.compared.blocks):
        expected, _ = literal(measured, cell)
        np.testing.assert_allclose(member_attributions(block), expected, atol=1e-6)


def test_the_mean_attribution_gap_is_that_of_begley_et_al(measured) -> None:
    found = measured.partial.result().mean_attribution_gap
    total = 0.0
    for cell in range(2):
        values, groups = literal(measured, cell)
        apart = values[groups == 0].mean(axis=0) - values[groups == 1].mean(axis=0)
        total += np.abs(apart).sum() * np.mean(cell == Y)
    assert found == pytest.approx(total, rel=1e-5)


def test_equal_treatment_is_the_held_out_auc_given_the_label(measured) -> None:
    found = measured.partial.result()
    total = 0.0
    for cell in range(2):
        values, groups = literal(measured, cell)
        total += held_out_auc(values, groups) * np.mean(cell == Y)
    assert found.equal_treatment == pytest.approx(total, abs=1e-6)
    assert found.equal_treatment > found.equal_treatment_chance
    coin = np.random.default_rng(7).choice(["u", "v"], N)
    fair = gcig.evaluate(MODEL, X, Y, sensitive_features=coin, measures=["equal_treatment"])
    assert fair.equal_treatment_p > 0.05


def test_the_share_that_changes_hands_is_half_the_distance_of_normalised_explanations(measured) -> None:
    """Of a linear model the mean explanation relative to a group is w (x - mean of its members)."""
    people, of_people, references, of_references = measured.chosen
    total = 0.0
    for cell in range(2):
        own, sizes = of_references[cell], []
        x = people.inputs[of_people[cell]]
        for group in (0, 1):
            middle = references.inputs[own[references.groups[own] == group]].mean(axis=0)
            values = (x - middle) * MODEL.coef_[0]
            sizes.append(values / np.abs(values).sum(axis=1, keepdims=True))
        total += np.abs(sizes[0] - sizes[1]).sum(axis=1).mean() / 2 * np.mean(cell == Y)
    found = gcig.evaluate(MODEL, X, Y, sensitive_features=SEX, n_bootstrap=0)
    assert found.explanation_moved == pytest.approx(total, rel=1e-5)
    assert 0 < found.explanation_moved < 1


def test_calibration_is_predicted_minus_observed() -> None:
    found = gcig.evaluate(MODEL, X, Y, sensitive_features=SEX, n_bootstrap=0)
    expected = {g: (MODEL.predict_proba(X)[g == SEX, 1] - Y[g == SEX]).mean() for g in ("f", "m")}
    assert found.calibration_groups == pytest.approx(expected, abs=1e-6)
    assert found.calibration_gap == pytest.approx(abs(expected["f"] - expected["m"]), abs=1e-6)
