import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gcig._validation import InputError
from gcig.core.batch import GroupedBatch
from gcig.methods.lagrangian import (
    LagrangianClassifier,
    Multipliers,
    PrimalDualStep,
    ascend,
    pulls,
    violations,
)
from gcig.methods.outcome_bounded import cell_members
from gcig.methods.unconstrained import UnconstrainedClassifier
from tables import gaps, make_biased

QUICK = {"max_epochs": 8, "hidden_sizes": (16,), "device": "cpu", "random_state": 0}
DATA, TEST = make_biased(), make_biased(seed=1)


def fitted(data=DATA, **parameters):
    return LagrangianClassifier(**{**QUICK, **parameters}).fit(data.X, data.y, **data.by)


# --- The two players -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_groups", [2, 3, 5])
def test_violations_compare_every_ordered_pair(n_groups):
    rates = torch.rand(2, n_groups, generator=torch.Generator().manual_seed(0))
    found = violations(rates, 0.05)
    for y in range(2):
        for g in range(n_groups):
            for h in range(n_groups):
                assert found[y, g, h].item() == pytest.approx((rates[y, g] - rates[y, h]).item() - 0.05)


@given(st.floats(0, 20), st.floats(-1, 1), st.floats(0, 100), st.floats(0.1, 20))
def test_multipliers_stay_within_bounds(value, violation, step, largest):
    found = ascend(torch.tensor(min(value, largest)), torch.tensor(violation), step, largest).item()
    assert 0 <= found <= largest * (1 + 1e-6)
    if violation <= 0:
        assert found <= value + 1e-6


def test_pulls_are_the_derivative_of_the_lagrangian():
    multipliers = torch.rand(2, 4, 4, generator=torch.Generator().manual_seed(0))
    rates = torch.rand(2, 4, requires_grad=True)
    ((multipliers * violations(rates, 0.1)).sum() / 3).backward()
    torch.testing.assert_close(pulls(multipliers), rates.grad)
    torch.testing.assert_close(pulls(multipliers).sum(1), torch.zeros(2))


def settings(**parameters):
    return LagrangianClassifier(**{"damping": 0.0, "max_gap": 0.1, **parameters})


def make_rows(n=64, n_groups=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (n,), generator=generator)
    groups = torch.randint(n_groups, (n,), generator=generator)
    return GroupedBatch(torch.randn(n, 3, generator=generator), labels, groups)


def test_a_memory_of_one_row_is_the_last_batch():
    rows = make_rows()
    members = cell_members(rows, 2)
    multipliers = Multipliers(members, settings(memory=1), steps=1)
    assert multipliers.rates.isnan().all()
    assert multipliers.pulls.tolist() == [[0, 0], [0, 0]]
    for seed in range(3):
        outcomes = torch.rand(64, generator=torch.Generator().manual_seed(seed))
        multipliers.observe(outcomes, members)
    for y in range(2):
        for g in range(2):
            expected = outcomes[(rows.labels == y) & (rows.groups == g)].mean()
            torch.testing.assert_close(multipliers.rates[y, g], expected)


def test_a_cell_that_is_missing_in_a_batch_keeps_its_rate():
    rows = make_rows()
    members = cell_members(rows, 2)
    multipliers = Multipliers(members, settings(memory=1), steps=1)
    multipliers.observe(torch.ones(64), members)
    in_cell = (rows.labels == 1) & (rows.groups == 0)
    multipliers.observe(torch.zeros(int(in_cell.sum())), members[in_cell])
    assert multipliers.rates.tolist() == [[1.0, 1.0], [0.0, 1.0]]


def test_a_long_memory_averages_over_batches():
    rows = make_rows(2000)
    members = cell_members(rows, 2)
    multipliers = Multipliers(members, settings(memory=400), steps=1)
    noise = torch.rand(2000, generator=torch.Generator().manual_seed(1))
    for batch in torch.arange(2000).split(50):
        multipliers.observe((noise[batch] < 0.3).float(), members[batch])
    assert (multipliers.rates - 0.3).abs().max() < 0.08
    # The weight of what is remembered: a geometric series over the rows of a cell.
    assert multipliers.seen.max() < 400 * 1.1
    assert multipliers.seen.min() > 200


def test_multipliers_grow_by_the_violation_until_they_are_bounded():
    rows = make_rows()
    members = cell_members(rows, 2)
    multipliers = Multipliers(
        members, settings(memory=1, dual_learning_rate=2.0, max_multiplier=1.0), steps=4
    )
    favoured = (rows.groups == 1).float()
    multipliers.observe(favoured, members)
    expected = [[0.0, 0.0], [0.5 * 0.9, 0.0]]
    assert multipliers.values[0].tolist() == pytest.approx(np.array(expected))
    for _ in range(3):
        multipliers.observe(favoured, members)
    assert multipliers.values[0].tolist() == [[0.0, 0.0], [1.0, 0.0]]
    for _ in range(50):
        multipliers.observe(torch.ones(64), members)
    assert multipliers.values.abs().max() == 0


def test_damping_adds_the_present_violation():
    rows = make_rows()
    members = cell_members(rows, 2)
    multipliers = Multipliers(
        members, settings(memory=1, damping=2.0, dual_learning_rate=1.0, max_multiplier=10.0), steps=1
    )
    multipliers.observe((rows.groups == 1).float(), members)
    assert multipliers.pulls[0].tolist() == pytest.approx([-(0.9 + 2 * 0.9), 0.9 + 2 * 0.9])


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("cut", [0.0, 0.7])
def test_the_network_descends_the_lagrangian_of_proxy_rates(n_groups, weighted, cut):
    rows = make_rows(n_groups=n_groups)
    weight = torch.rand(64, generator=torch.Generator().manual_seed(1)) + 0.5 if weighted else torch.ones(64)
    weight /= weight.mean()
    members = cell_members(rows, n_groups, weight)
    network = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))
    parameters = list(network.parameters())
    threshold = 1 / (1 + math.exp(-cut))
    multipliers = Multipliers(members, settings(memory=1, sharpness=3.0, threshold=threshold), steps=1)
    multipliers.values.uniform_(generator=torch.Generator().manual_seed(2))
    before = multipliers.values.clone()

    def rate(outcomes, y, g):
        cell = (rows.labels == y) & (rows.groups == g)
        return (weight * outcomes)[cell].sum() / weight[cell].sum()

    scores = network(rows.inputs)
    soft = torch.sigmoid(3.0 * (scores - cut))
    rates = torch.stack([torch.stack([rate(soft, y, g) for g in range(n_groups)]) for y in range(2)])
    loss = binary_cross_entropy_with_logits(scores, rows.labels.float(), weight=weight)
    lagrangian = loss + (before * violations(rates, 0.1)).sum() / (n_groups - 1)
    expected = torch.autograd.grad(lagrangian, parameters)

    optimizer = torch.optim.SGD(parameters, lr=0.0)
    weights = weight if weighted else None
    step = PrimalDualStep(network, multipliers, optimizer, rows, members, weights, clip_norm=math.inf)
    terms = step(torch.arange(64))
    for parameter, gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    torch.testing.assert_close(terms["total"], terms["prediction"] + terms["constraint"])
    torch.testing.assert_close(terms["prediction"], loss.detach())
    # The dual player saw decisions, not probabilities.
    torch.testing.assert_close(multipliers.rates[1, 0], rate((scores >= cut).float(), 1, 0))


# --- The estimator -------------------------------------------------------------------------------------


def eo_gap(model, data=TEST):
    return gaps(model.predict(data.X).astype(float), data.y, data.groups)["eo"]


def test_it_closes_most_of_the_gap_at_little_cost():
    plain = UnconstrainedClassifier(**QUICK).fit(DATA.X, DATA.y, **DATA.by)
    model = fitted(max_epochs=16)
    assert eo_gap(model) < 0.5 * eo_gap(plain)
    auc = [roc_auc_score(TEST.y, each.decision_function(TEST.X)) for each in (plain, model)]
    assert auc[1] > auc[0] - 0.03


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


def test_three_groups():
    data, test = (make_biased(3000, seed=seed, groups=("a", "b", "c")) for seed in range(2))
    plain = UnconstrainedClassifier(**QUICK).fit(data.X, data.y, **data.by)
    model = fitted(data, max_epochs=16)
    assert model.multipliers_.shape == (2, 3, 3)
    assert model.rates_.shape == (2, 3)
    assert eo_gap(model, test) < 0.6 * eo_gap(plain, test)


WRONG = {
    "max_gap": [-0.1, 1.5, math.nan, "0.1", None],
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
