import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from example_tables import make_biased, make_biased_task, task_gap
from gcig import InputError
from gcig.methods.lagrangian import (
    LagrangianClassifier,
    LagrangianRegressor,
    Multipliers,
    PrimalDual,
    pulls,
    violations,
)
from gcig.methods.registry import METHODS
from support.games import make_data, make_game

QUICK = {"max_epochs": 8, "hidden_sizes": (16,), "device": "cpu", "random_state": 0}
DATA, TEST = make_biased(), make_biased(seed=1)


def fitted(data=DATA, **parameters):
    return LagrangianClassifier(**{**QUICK, **parameters}).fit(data.X, data.y, **data.by)


# --- The two players -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_groups", [2, 3, 5])
def test_violations_compare_every_ordered_pair(n_groups):
    rates = torch.rand(2, n_groups, 3, generator=torch.Generator().manual_seed(0))
    found = violations(rates, 0.05)
    for g in range(n_groups):
        for h in range(n_groups):
            torch.testing.assert_close(found[:, g, h], rates[:, g] - rates[:, h] - 0.05)


def test_an_unknown_rate_violates_nothing():
    found = violations(torch.tensor([[[0.5], [torch.nan], [0.1]]]), 0.0)
    assert found[0, 1].eq(0).all()
    assert found[0, :, 1].eq(0).all()
    assert found[0, 0, 2] == pytest.approx(0.4)


def test_pulls_are_the_derivative_of_the_lagrangian():
    multipliers = torch.rand(2, 4, 4, 3, generator=torch.Generator().manual_seed(0))
    rates = torch.rand(2, 4, 3, requires_grad=True)
    ((multipliers * violations(rates, 0.1)).sum() / 3).backward()
    torch.testing.assert_close(pulls(multipliers), rates.grad)
    torch.testing.assert_close(pulls(multipliers).sum(1), torch.zeros(2, 3))


def settings(**parameters):
    return LagrangianClassifier(**{"damping": 0.0, "max_gap": 0.1, "memory": 1, **parameters})


def make_multipliers(data, steps=1, **parameters):
    game = make_game(PrimalDual, settings(**parameters), nn.Linear(3, 1), data, steps=steps)
    return game.multipliers, game.members


@given(st.floats(0, 20), st.floats(-1, 1), st.floats(0, 100), st.floats(0.1, 20))
def test_multipliers_stay_within_bounds(value, violation, step, largest):
    multipliers, _ = make_multipliers(make_data("binary"), max_multiplier=largest)
    multipliers.values.fill_(min(value, largest))
    multipliers.bound = 0.0
    multipliers.sums, multipliers.seen = torch.tensor([[[violation], [0.0]]] * 2), torch.ones(2, 2, 1)
    after = multipliers.ascend(step)
    assert 0 <= after.min() <= after.max() <= largest * (1 + 1e-6)
    assert after[0, 0, 1, 0] == pytest.approx(
        np.clip(min(value, largest) + step * violation, 0, largest), abs=1e-4
    )


def test_a_memory_of_one_row_is_the_last_batch():
    data = make_data("binary")
    multipliers, members = make_multipliers(data)
    assert multipliers.pulls.eq(0).all()
    for seed in range(3):
        decisions = torch.rand(64, 1, generator=torch.Generator().manual_seed(seed))
        multipliers.observe(decisions, members)
    rates = multipliers.sums / multipliers.seen
    for y in range(2):
        for g in range(2):
            expected = decisions[(data.all.labels == y) & (data.all.groups == g)].mean()
            torch.testing.assert_close(rates[y, g, 0], expected)


def test_a_cell_that_is_missing_in_a_batch_keeps_its_rate():
    data = make_data("binary")
    multipliers, members = make_multipliers(data)
    multipliers.observe(torch.ones(64, 1), members)
    in_cell = (data.all.labels == 1) & (data.all.groups == 0)
    multipliers.observe(torch.zeros(int(in_cell.sum()), 1), members[in_cell])
    assert (multipliers.sums / multipliers.seen)[..., 0].tolist() == [[1.0, 1.0], [0.0, 1.0]]


def test_a_long_memory_averages_over_batches():
    multipliers, members = make_multipliers(make_data("binary", 2000), memory=400)
    noise = torch.rand(2000, 1, generator=torch.Generator().manual_seed(1))
    for batch in torch.arange(2000).split(50):
        multipliers.observe((noise[batch] < 0.3).float(), members[batch])
    assert (multipliers.sums / multipliers.seen - 0.3).abs().max() < 0.08
    # The weight of what is remembered: a geometric series over the rows of a cell.
    assert 200 < multipliers.seen.min() < multipliers.seen.max() < 400 * 1.1


def test_multipliers_grow_by_the_violation_until_they_are_bounded():
    data = make_data("binary")
    multipliers, members = make_multipliers(data, 4, dual_learning_rate=2.0, max_multiplier=1.0)
    favoured = (data.all.groups == 1).float().unsqueeze(1)
    multipliers.observe(favoured, members)
    assert multipliers.values[0, ..., 0].tolist() == pytest.approx(np.array([[0.0, 0.0], [0.5 * 0.9, 0.0]]))
    for _ in range(3):
        multipliers.observe(favoured, members)
    assert multipliers.values[0, ..., 0].tolist() == [[0.0, 0.0], [1.0, 0.0]]
    for _ in range(50):
        multipliers.observe(torch.ones(64, 1), members)
    assert multipliers.values.abs().max() == 0


def test_damping_adds_the_present_violation():
    data = make_data("binary")
    multipliers, members = make_multipliers(data, damping=2.0, dual_learning_rate=1.0, max_multiplier=10.0)
    multipliers.observe((data.all.groups == 1).float().unsqueeze(1), members)
    assert multipliers.pulls[0, :, 0].tolist() == pytest.approx([-(0.9 + 2 * 0.9), 0.9 + 2 * 0.9])


def test_classes_share_the_bound_on_their_total_variation():
    members = torch.ones(4, 3, 2)
    assert Multipliers(members, 1, settings(), 1).bound == 0.1
    assert Multipliers(members, 2, settings(), 1).bound == 0.1
    assert Multipliers(members, 4, settings(), 1).bound == pytest.approx(0.05)


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("task", ["binary", "classes", "number"])
def test_the_network_descends_the_lagrangian_of_proxy_rates(task, weighted, n_groups):
    weights = torch.rand(400, generator=torch.Generator().manual_seed(1)) + 0.5 if weighted else None
    data = make_data(task, 400, n_groups, weights)
    network = nn.Linear(3, data.task.n_outputs)
    game = make_game(PrimalDual, settings(sharpness=3.0), network, data)
    game.multipliers.values.uniform_(generator=torch.Generator().manual_seed(2))
    before, rows = game.multipliers.values.clone(), data.all
    weight = torch.ones(400) if weights is None else weights

    outputs = network(rows.inputs)
    soft = data.task.soft_decisions(outputs, 1 / 3.0)
    cells, n_cells, _ = data.task.outcome_cells(rows.labels, "equalized_odds")

    def mean(values, cell, group):
        own = (cells == cell) & (rows.groups == group)
        return (weight[own] @ values[own]) / weight[own].sum()

    rates = torch.stack([torch.stack([mean(soft, c, g) for g in range(n_groups)]) for c in range(n_cells)])
    # As in the outcome gap: 2 / K per class, and half a total variation per decision; a fifth per bin.
    factor = {"binary": 1.0, "classes": 2 / 3 / 2, "number": 1 / n_cells}[task]
    loss = (weight * data.task.loss(outputs, rows.labels)).mean()
    constraint = factor * (before * violations(rates, game.multipliers.bound)).sum() / (n_groups - 1)
    expected = torch.autograd.grad(loss + constraint, list(network.parameters()))

    terms = game(torch.arange(400))
    for parameter, gradient in zip(network.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    torch.testing.assert_close(terms["total"], terms["prediction"] + terms["constraint"])
    torch.testing.assert_close(terms["prediction"], loss.detach())
    # The dual player saw decisions, not probabilities.
    seen = game.multipliers.sums / game.multipliers.seen
    torch.testing.assert_close(seen[1, 0], mean(data.task.decisions(outputs).detach(), 1, 0))


def test_the_losses_are_those_of_the_task():
    for task, loss in (("classes", cross_entropy), ("number", lambda z, y: mse_loss(z[:, 0], y))):
        data = make_data(task)
        network = nn.Linear(3, data.task.n_outputs)
        expected = loss(network(data.all.inputs), data.all.labels)
        terms = make_game(PrimalDual, settings(), network, data)(torch.arange(64))
        torch.testing.assert_close(terms["prediction"], expected.detach())


# --- The estimators ------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["binary", "classes", "number"])
def test_it_closes_most_of_the_gap_at_a_stated_cost(task):
    data, test = make_biased_task(task), make_biased_task(task, seed=1)
    estimators = [METHODS[key].estimator_for(task) for key in ("unconstrained", "lagrangian")]
    plain, model = (each(**{**QUICK, "max_epochs": 24}).fit(data.X, data.y, **data.by) for each in estimators)
    assert task_gap(model, test) < 0.5 * task_gap(plain, test)
    assert model.score(test.X, test.y) > plain.score(test.X, test.y) - 0.05


@pytest.mark.parametrize("outcome", ["equal_opportunity", "demographic_parity"])
def test_the_chosen_gap_is_closed(outcome):
    plain, model = fitted(max_gap=1.0, max_epochs=16), fitted(outcome=outcome, max_epochs=16)
    assert task_gap(model, TEST, outcome) < 0.5 * task_gap(plain, TEST, outcome)
    assert model.rates_.shape == (1, 2, 1)


def test_an_outcome_that_the_task_does_not_define_is_refused():
    data = make_biased_task("number", 200)
    with pytest.raises(InputError, match="'equalized_odds', 'demographic_parity'") as error:
        LagrangianRegressor(**QUICK, outcome="equal_opportunity").fit(data.X, data.y, **data.by)
    assert error.value.argument == "outcome"


def test_a_loose_bound_is_met_and_changes_nothing():
    model = fitted(max_gap=1.0)
    assert model.met_
    assert not model.multipliers_.any()
    assert (model.history_["constraint"] == 0).all()


def test_multipliers_pull_the_favoured_group_down():
    # So small a rate leaves the network as it is, and the multipliers show which way its rates differ.
    model = fitted(early_stopping=False, dual_learning_rate=1e-4, damping=0.0)
    favoured, other = model.groups_.index("m"), model.groups_.index("f")
    assert (model.multipliers_[:, favoured, other] > 5 * model.multipliers_[:, other, favoured]).all()
    assert (model.rates_[:, favoured] > model.rates_[:, other]).all()
    assert not model.met_


def test_multipliers_are_bounded():
    assert fitted(max_gap=0.0, dual_learning_rate=100.0, max_multiplier=0.25).multipliers_.max() <= 0.25


@pytest.mark.parametrize(
    ("task", "cells", "decisions"), [("binary", 2, 1), ("classes", 3, 3), ("number", 5, 1)]
)
def test_three_groups(task, cells, decisions):
    data, test = (make_biased_task(task, 3000, seed, ("a", "b", "c")) for seed in range(2))
    estimator = METHODS["lagrangian"].estimator_for(task)
    model = estimator(**{**QUICK, "max_epochs": 2}).fit(data.X, data.y, **data.by)
    assert model.multipliers_.shape == (cells, 3, 3, decisions)
    assert model.rates_.shape == (cells, 3, decisions)
    loose, tight = (
        estimator(**{**QUICK, "max_epochs": 16}, outcome="demographic_parity", max_gap=bound)
        for bound in (1.0, 0.01)
    )
    gaps = [task_gap(each.fit(data.X, data.y, **data.by), test, each.outcome) for each in (loose, tight)]
    assert gaps[1] < 0.5 * gaps[0]


WRONG = {
    "max_gap": [-0.1, 1.5, math.nan, "0.1", None],
    "outcome": ["calibration", None],
    "dual_learning_rate": [0, -1.0, math.inf, "auto"],
    "damping": [-1.0, math.nan],
    "max_multiplier": [0, math.inf],
    "sharpness": [0, "learned"],
    "memory": [0, 2.5, True],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]])
def test_parameters_that_cannot_be_used_are_named(name, value):
    with pytest.raises(InputError, match=rf"^{name} must be .*, not .*\.$"):
        fitted(**{name: value})
