"""Outcome gaps and losses against Fairlearn, total variation and brute force."""

from itertools import combinations

import fairlearn.metrics as fl
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gcig
from gcig.core.outcome import OUTCOME_LOSSES, cell_rates, outcome_gap
from gcig.core.task import TASKS, Binary, Classes, Number, as_outputs
from support.problems import make_problem

EVERY_TASK = pytest.mark.parametrize("key", list(TASKS))


@settings(max_examples=25)  # each example takes Fairlearn tens of milliseconds
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.booleans())
def test_gaps_of_two_classes_are_those_of_fairlearn(seed, n_groups, weighted):
    rng = np.random.default_rng(seed)
    n = 60 + 2 * n_groups
    y = np.concatenate([rng.integers(0, 2, 60), np.tile([0, 1], n_groups)])
    g = np.concatenate([rng.integers(0, n_groups, 60), np.repeat(np.arange(n_groups), 2)])
    logits, w = rng.normal(size=n), rng.random(n) + 0.1 if weighted else None
    options = {"sensitive_features": g, "sample_params": None if w is None else {"sample_weight": w}}
    rates = fl.MetricFrame(metrics=fl.true_positive_rate, y_true=y, y_pred=logits >= 0, **options)
    others = fl.MetricFrame(metrics=fl.false_positive_rate, y_true=y, y_pred=logits >= 0, **options)
    chosen = fl.MetricFrame(metrics=fl.selection_rate, y_true=y, y_pred=logits >= 0, **options)
    expected = {
        "equalized_odds": rates.difference() + others.difference(),
        "equal_opportunity": rates.difference(),
        "demographic_parity": chosen.difference(),
    }
    decisions = Binary().decisions(torch.from_numpy(logits).unsqueeze(1))
    rows = torch.from_numpy(y), torch.from_numpy(g), n_groups
    weights = None if w is None else torch.from_numpy(w)
    for outcome, value in expected.items():
        found = outcome_gap(Binary(), decisions, *rows, outcome, weights)
        assert float(found) == pytest.approx(value, abs=1e-9)


def rates_by_hand(task, decisions, y, g, outcome):
    cells, n_cells, cell_weight = task.outcome_cells(y, outcome)
    total = 0.0
    for cell in range(n_cells):
        means = [decisions[(cells == cell) & (g == h)].mean(0) for h in g[cells == cell].unique()]
        total += max((task.distance_of_rates(a - b).item() for a, b in combinations(means, 2)), default=0)
    return cell_weight * total


@EVERY_TASK
def test_any_gap_is_the_largest_distance_of_rates_by_cell(key):
    problem = make_problem(key, n=200, groups=3)
    with torch.no_grad():
        decisions = problem.task.decisions(as_outputs(problem.network(problem.x), 200))
    for outcome in problem.task.outcomes:
        found = outcome_gap(problem.task, decisions, problem.y, problem.groups, 3, outcome)
        expected = rates_by_hand(problem.task, decisions, problem.y, problem.groups, outcome)
        assert float(found) == pytest.approx(expected)


def test_known_values_of_classes_and_numbers():
    """Total variation of the confusion rows; a mean over bins of y in its standard deviations."""
    y, g = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([0, 1] * 3)
    task = Classes.of(y)
    decisions = torch.eye(3)[torch.tensor([0, 1, 1, 1, 2, 0])]
    assert float(outcome_gap(task, decisions, y, g, 2)) == pytest.approx(2 / 3 * 2)
    assert float(outcome_gap(task, decisions, y, g, 2, "demographic_parity")) == pytest.approx(1 / 3)
    y = torch.arange(100.0).repeat_interleave(2)
    task, g = Number.of(y), torch.arange(200) % 2
    decisions = task.decisions((y + 0.3 * task.scale * g).unsqueeze(1))
    assert float(outcome_gap(task, decisions, y, g, 2)) == pytest.approx(0.3, rel=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_weights_are_repeated_rows_and_empty_cells_are_left_out(weighted):
    problem = make_problem("classes", groups=3)
    counts = torch.arange(48) % 3 if weighted else torch.ones(48).long()
    kept = counts.repeat_interleave(counts) > 0
    assert kept.all()
    decisions = torch.rand(48, 3)
    cells = torch.where(problem.groups == 2, torch.where(problem.y == 0, -1, problem.y), problem.y)
    rates, present = cell_rates(decisions, cells, problem.groups, 3, 3, counts.double())
    repeat = [each.repeat_interleave(counts, 0) for each in (decisions, cells, problem.groups)]
    expected, _ = cell_rates(*repeat, 3, 3)
    torch.testing.assert_close(rates, expected)
    assert present.tolist() == [[True, True, False], [True] * 3, [True] * 3]
    assert not rates[0, 2].any()


# --- losses --------------------------------------------------------------------------------------------


@EVERY_TASK
@pytest.mark.parametrize("outcome", OUTCOME_LOSSES)
def test_losses_become_gaps_of_decisions(key, outcome):
    problem = make_problem(key, n=200)
    if outcome not in problem.task.outcomes:
        with pytest.raises(gcig.InputError, match="not defined"):
            OUTCOME_LOSSES[outcome](task=problem.task)(torch.zeros(200), problem.y, problem.groups)
        return
    outputs = problem.network(problem.x)
    loss = OUTCOME_LOSSES[outcome](task=problem.task, width=1e-9)(outputs, problem.y, problem.groups)
    decisions = problem.task.decisions(as_outputs(outputs, 200))
    expected = outcome_gap(problem.task, decisions, problem.y, problem.groups, 2, outcome)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)


@pytest.mark.parametrize("key", ["binary", "classes"])
def test_gradients(key):
    problem = make_problem(key, n=40, groups=3)
    outputs = problem.network(problem.x).detach().requires_grad_()
    weights = 1 + torch.arange(40.0).double() % 3
    loss = gcig.EqualizedOddsLoss(3)
    assert torch.autograd.gradcheck(lambda z: loss(z, problem.y, problem.groups, weights), outputs)


def test_a_mini_batch_without_the_last_class_is_on_the_same_scale():
    outputs, y, g = torch.randn(40, 3), torch.arange(40) % 2, torch.arange(40) // 2 % 2
    of_labels = Classes((0.4, 0.3, 0.3))
    expected = gcig.EqualizedOddsLoss(2, task=of_labels)(outputs, y, g)
    assert float(gcig.EqualizedOddsLoss(2)(outputs, y, g)) == pytest.approx(float(expected))


@pytest.mark.parametrize(
    ("rows", "error", "name"),
    [
        ((torch.zeros(4), torch.zeros(3).long(), torch.zeros(4).long()), ValueError, "y"),
        ((torch.zeros(4), torch.zeros(4).long(), torch.zeros(4, 1).long()), ValueError, "groups"),
        ((torch.zeros(4), torch.zeros(4).long(), torch.zeros(4)), TypeError, "groups"),
    ],
)
def test_errors_name_the_argument(rows, error, name):
    with pytest.raises(error, match=rf"^{name} must"):
        gcig.EqualizedOddsLoss()(*rows)


@pytest.mark.parametrize("option", [{"width": 0.0}, {"width": "1"}])
def test_options_out_of_range_are_refused(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        gcig.EqualizedOddsLoss(**option)
