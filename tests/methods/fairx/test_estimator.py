"""FairX under a budget, for two classes, several classes and numbers."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

import gcig
from gcig.methods.fairx.warnings import NothingToRepairWarning

FAST = {"max_epochs": 12, "hidden_sizes": (16,), "device": "cpu", "random_state": 0, "repair": "always"}


def make_table(n=1200, task="binary", shift=1.0, groups=2, seed=0):
    """Five numbers and a category; one number differs between groups, and counts for the label."""
    rng = np.random.default_rng(seed)
    group = rng.integers(groups, size=n)
    X = pd.DataFrame(rng.normal(size=(n, 5)), columns=list("abcde"))
    X["a"] += shift * group
    X["job"] = rng.choice(["clerk", "nurse"], n)
    score = X["a"] - X["b"] + 0.5 * X["c"] + 0.5 * (X["job"] == "nurse") + rng.logistic(size=n)
    y = np.asarray(score)
    if task == "binary":
        y = np.where(y > np.median(y), "yes", "no")
    elif task == "classes":
        y = np.digitize(y, np.quantile(y, [0.3, 0.7]))
    return X, y, group.astype(str)


def fit(task="binary", table=None, estimator=None, weight=None, **parameters):
    X, y, groups = make_table(task=task) if table is None else table
    estimator = estimator or (gcig.FairXRegressor if task == "number" else gcig.FairXClassifier)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator(**{**FAST, **parameters}).fit(X, y, sensitive_features=groups, sample_weight=weight)


@pytest.fixture(scope="module", params=["binary", "classes", "number"])
def fitted(request):
    return request.param, fit(request.param, budget=0.1)


def test_reasons_get_fairer_at_a_small_cost(fitted):
    task, model = fitted
    utility = {"binary": "auc", "classes": "accuracy", "number": "r2"}[task]
    assert model.validation_["gcig"] < model.plain_["gcig"]
    if task != "number":  # too few held-out rows in ten bins
        assert model.validation_["reason_gap"] < 0.85 * model.plain_["reason_gap"]
    assert model.validation_[utility] > model.plain_[utility] - 0.12
    assert model.validation_["reason_size"] < 1.25 * model.plain_["reason_size"]
    assert model.validation_["columns"] > 0.6 * model.plain_["columns"]
    assert model.repaired_
    assert not model.collapsed_


def test_predictions_have_the_shapes_of_the_task(fitted):
    task, model = fitted
    X, y, _ = make_table(task=task)
    if task == "number":
        assert model.predict(X).shape == y.shape
        assert np.corrcoef(model.predict(X), y)[0, 1] > 0.5
        return
    k = len(model.classes_)
    assert model.predict_proba(X).shape == (len(X), k)
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)
    assert model.decision_function(X).shape == ((len(X),) if k == 2 else (len(X), k))
    assert set(model.predict(X)) <= set(model.classes_)


def test_explanations_are_complete(fitted):
    task, model = fitted
    X, y, _ = make_table(task=task)
    found = model.explain(X[:20], y[:20])
    assert found.attributions.shape == (2, 20, 6)
    assert found.completeness.max() < 0.02 * np.abs(found.attributions).sum(2).mean()


def test_the_share_of_decisions_is_the_plain_networks():
    model = fit()
    X, y, groups = make_table()
    plain = fit(budget=0)
    assert abs((model.predict(X) == "yes").mean() - (plain.predict(X) == "yes").mean()) < 0.03
    assert set(y) == set(model.classes_)
    assert len(groups) == len(X)


def test_a_budget_of_zero_is_the_plain_network():
    model = fit(budget=0)
    assert not model.repaired_
    assert model.budget_used_ == 0
    assert model.validation_ == model.plain_


def test_a_larger_budget_gives_fairer_reasons():
    gaps = [fit(budget=budget).validation_["gcig"] for budget in (0.005, 0.05, 0.5)]
    assert gaps[0] > gaps[1] > gaps[2]


def test_the_budget_used_is_measured_on_held_out_rows():
    model = fit(budget=0.05)
    low, high = model.budget_used_interval_
    assert 0 < low < model.budget_used_ < high
    assert model.history_["moved"].iloc[-1] == pytest.approx(0.05, rel=0.6)


def test_nothing_is_repaired_if_nothing_differs():
    X, y, _ = make_table(1500, shift=0.0)
    coins = np.random.default_rng(5).choice(["a", "b"], len(X))
    with pytest.warns(NothingToRepairWarning) as caught:
        model = gcig.FairXClassifier(**{**FAST, "repair": "auto"}).fit(X, y, sensitive_features=coins)
    assert not model.repaired_
    assert model.check_.nothing
    assert caught[0].message.check is model.check_
    assert model.check_.reasons.detectable > 0


def test_what_depends_on_the_group_is_repaired_by_default():
    model = fit(repair="auto")
    assert model.check_.reasons.found
    assert model.repaired_


def test_a_bound_on_the_gap_is_stated_with_confidence():
    X, y, groups = make_table(3000, shift=2.0)
    model = fit(table=(X, y, groups), max_gap=0.4, max_epochs=20)
    bound = model.bounds_["max_gap"]
    assert bound.value < model.plain_["outcome_gap"]
    assert bound.limit > bound.value
    assert bound.status in ("met", "not met", "cannot be shown with this many rows")


def test_a_bound_that_no_rows_can_show_is_warned_of_before_training():
    X, y, groups = make_table(300)
    with pytest.warns(gcig.BoundWarning) as caught:
        gcig.FairXClassifier(**FAST, max_gap=0.01).fit(X, y, sensitive_features=groups)
    first = next(each.message for each in caught if each.category is gcig.BoundWarning)
    assert not first.bound.can_be_shown


def test_a_bound_on_the_reason_gap_is_reported():
    model = fit(max_reason_gap=0.2, table=make_table(2000))
    assert set(model.bounds_) == {"max_reason_gap"}


@pytest.mark.parametrize(
    ("parameters", "argument"),
    [
        ({"max_gap": 0.1, "early_stopping": False}, "max_gap"),
        ({"max_reason_gap": 0.1, "budget": 0}, "max_reason_gap"),
    ],
)
def test_bounds_need_held_out_rows_and_a_budget(parameters, argument):
    with pytest.raises(gcig.InputError) as raised:
        gcig.FairXClassifier(**parameters).fit(*make_table()[:2], sensitive_features=make_table()[2])
    assert raised.value.argument == argument


def test_legitimate_columns_do_not_count():
    """Groups differ in one column alone: if it is legitimate, reasons do not depend on the group."""
    table = make_table(1500, shift=1.5)
    assert fit(table=table, repair="auto", budget=0.001).check_.reasons.found
    model = fit(table=table, repair="auto", legitimate=["a"])
    assert not model.check_.reasons.found
    assert "reasons" not in model.history_


def test_an_unknown_legitimate_column_is_an_error():
    X, y, groups = make_table()
    with pytest.raises(gcig.InputError) as raised:
        gcig.FairXClassifier(**FAST, legitimate="salary").fit(X, y, sensitive_features=groups)
    assert raised.value.argument == "legitimate"


def test_an_outcome_that_the_task_does_not_define_is_an_error():
    with pytest.raises(gcig.InputError) as raised:
        fit("classes", outcome="equal_opportunity")
    assert raised.value.argument == "outcome"


@pytest.mark.parametrize("task", ["binary", "classes", "number"])
def test_trees_are_distilled(task):
    X, y, groups = make_table(task=task)
    numbers = X.drop(columns="job")
    trees = (HistGradientBoostingRegressor if task == "number" else HistGradientBoostingClassifier)(
        max_iter=15
    )
    model = fit(task, (numbers, y, groups), teacher=trees.fit(numbers, y))
    if task == "number":
        assert np.corrcoef(model.predict(numbers), trees.predict(numbers))[0, 1] > 0.85
    else:
        assert (model.predict(numbers) == trees.predict(numbers)).mean() > 0.65
    assert clone(model).teacher is trees


def test_a_given_network_is_the_plain_network():
    X, y, groups = make_table()
    numbers = X[list("abcde")].to_numpy(np.float32)
    plain = fit(table=(numbers, y, groups), preprocessing="none", budget=0)
    network = torch.nn.Sequential(plain.module_, torch.nn.Identity())
    before = [each.clone() for each in network.parameters()]
    model = gcig.FairXClassifier.from_module(network, **{**FAST, "max_epochs": 6})
    model.fit(numbers, y, sensitive_features=groups)
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))
    assert model.given_["auc"] == model.plain_["auc"]
    assert (model.changes_["before"] == pd.Series(model.given_)[model.changes_.index]).mean() > 0.9
    assert model.validation_["gcig"] < model.given_["gcig"]


def test_an_untrained_network_is_trained_first():
    X, y, groups = make_table()
    numbers = X[list("abcde")].to_numpy(np.float32)
    network = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.SiLU(), torch.nn.Linear(8, 1))
    model = fit(table=(numbers, y, groups), module=network, preprocessing="none")
    assert model.given_ == {}
    assert model.plain_["auc"] > 0.7
    assert model.repaired_


def test_warm_start_continues_from_the_network():
    X, y, groups = make_table()
    model = fit(warm_start=True)
    first = model.validation_["gcig"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, sensitive_features=groups)
    assert model.plain_["gcig"] == pytest.approx(first, rel=0.3)


def test_terms_can_be_replaced_and_added():
    class Changed(gcig.FairXClassifier):
        def build_objective(self, objective):
            objective = objective.without("outcome", "selection")
            return objective.with_term("size", lambda batch: batch.outputs.square().mean(), 0.01)

    X, y, groups = make_table()
    model = fit(table=(X, y, groups), estimator=Changed, max_epochs=2)
    assert "size" in model.history_
    assert "outcome" not in model.history_


def test_an_attribution_of_ones_own_is_trained_on():
    class Gradients:
        complete = False

        def attribute(self, score, rows, references, *, create_graph=False):
            from gcig.core.attribution import gradients

            return (rows - references) * gradients(score, rows.unsqueeze(0), create_graph=create_graph)

    model = fit(attribution=Gradients(), max_epochs=2)
    assert "standards" not in model.history_
    assert model.repaired_


def test_a_table_that_says_nothing_about_the_label_is_not_repaired():
    X, _, groups = make_table(3000)
    y = np.random.default_rng(1).integers(2, size=len(X))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = gcig.FairXClassifier(**FAST).fit(X, y, sensitive_features=groups)
    assert model.collapsed_
    assert not model.repaired_
    assert gcig.CollapseWarning in [each.category for each in caught]


def test_fits_are_repeatable_to_the_bit():
    first, second = fit(max_epochs=3), fit(max_epochs=3)
    X, _, _ = make_table()
    np.testing.assert_array_equal(first.decision_function(X), second.decision_function(X))


def test_many_groups_and_small_cells():
    X, y, groups = make_table(1200, groups=8)
    groups[np.flatnonzero(groups == "7")[12:]] = "0"
    model = fit(table=(X, y, groups), max_epochs=3)
    assert model.baselines_.shape[:2] == (2, 8)
    assert np.isfinite(model.validation_["outcome_gap"])


def test_a_label_that_a_group_lacks_is_a_warning():
    X, y, groups = make_table()
    groups[(groups == "1") & (y == "yes")] = "0"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = gcig.FairXClassifier(**{**FAST, "max_epochs": 2}).fit(X, y, sensitive_features=groups)
    assert any("No rows in" in str(each.message) for each in caught)
    assert model.predict(X).shape == (len(X),)


def test_sample_weights_of_zero_leave_rows_out():
    X, y, groups = make_table()
    weight = (np.arange(len(X)) < 500).astype(float)
    left = fit(table=(X, y, groups), weight=weight, max_epochs=2)
    right = fit(table=(X[:500], y[:500], groups[:500]), max_epochs=2)
    np.testing.assert_allclose(left.decision_function(X), right.decision_function(X), atol=1e-4)


def test_every_row_alike_is_warned_of():
    X, y, groups = make_table()
    rare = np.where(np.arange(len(y)) % 12 == 0, y, "no")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = gcig.FairXClassifier(**{**FAST, "threshold": 0.95}).fit(X, rare, sensitive_features=groups)
    if model.decides_alike_ and not model.collapsed_:
        found = [each.message for each in caught if each.category is gcig.ThresholdWarning]
        assert found[0].threshold == pytest.approx(0.95)
        assert found[0].suggested < 0.95
