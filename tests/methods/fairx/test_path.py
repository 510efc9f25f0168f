"""Families over budgets."""

import warnings

import numpy as np
import pytest

import gcig
from methods.fairx.test_estimator import FAST, make_table

QUICK = {**FAST, "max_epochs": 4}


pytestmark = pytest.mark.filterwarnings("ignore::gcig.methods.fairx.warnings.BoundWarning")


@pytest.fixture(scope="module")
def family():
    X, y, groups = make_table()
    return gcig.FairXClassifier(**QUICK).path(X, y, sensitive_features=groups, budgets=[0.3, 0.03])


def test_models_are_ordered_by_budget_from_the_plain_network(family):
    assert family.frame["budget"].tolist() == [0.0, 0.03, 0.3]
    assert family.frame["gcig"].is_monotonic_decreasing
    assert not family.models[0].repaired_


def test_every_model_is_fitted(family):
    X, _, _ = make_table()
    for model in family.models:
        assert model.predict(X).shape == (len(X),)
    assert np.ptp([model.decision_function(X)[0] for model in family.models]) > 0


def test_a_model_is_selected_by_bounds(family):
    gap = family.frame["outcome_gap"].max()
    assert family.select(max_gap=1.01 * gap) in family.models
    with pytest.raises(gcig.InputError):
        family.select(max_gap=1e-9)
    with pytest.raises(gcig.InputError):
        family.select()


def test_the_page_and_the_record(family, tmp_path):
    family.save(tmp_path)
    assert (tmp_path / "tradeoff.html").read_text().startswith("<!DOCTYPE html>")
    assert gcig.load(tmp_path / "models" / "1").budget == 0.03
    assert len(family.record.points) == 3


def test_numbers_have_a_frame():
    X, y, groups = make_table(task="number")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        family = gcig.FairXRegressor(**QUICK).path(X, y, sensitive_features=groups, budgets=[0.1])
    assert family.frame["r2"].notna().all()


def test_gaps_can_be_bounded():
    X, y, groups = make_table()
    family = gcig.FairXClassifier(**QUICK).path(X, y, sensitive_features=groups, max_gaps=[0.3])
    assert family.frame["max_gap"].tolist()[1] == 0.3
