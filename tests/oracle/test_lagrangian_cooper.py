"""Our primal-dual training against Cooper, an independent library, and against optima in closed form."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gcig.core.batch import GroupedBatch
from gcig.methods.lagrangian import LagrangianClassifier, Multipliers, PrimalDualStep, violations
from gcig.methods.outcome_bounded import cell_members, cell_rates

cooper = pytest.importorskip("cooper")


class Problem(cooper.ConstrainedMinimizationProblem):
    """Cross-entropy under the same constraints, in Cooper's words."""

    def __init__(self, network, rows, settings, n_groups, soft_rates):
        super().__init__()
        self.network, self.rows, self.settings, self.soft_rates = network, rows, settings, soft_rates
        self.members = cell_members(rows, n_groups)
        self.pairs = [(y, g, h) for y in range(2) for g in range(n_groups) for h in range(n_groups) if g != h]
        self.gaps = cooper.Constraint(
            constraint_type=cooper.ConstraintType.INEQUALITY,
            formulation_type=cooper.formulations.Lagrangian,
            multiplier=cooper.multipliers.DenseMultiplier(num_constraints=len(self.pairs)),
        )

    def compute_cmp_state(self):
        scores = self.network(self.rows.inputs)
        proxy = torch.sigmoid(self.settings.sharpness * scores)
        outcomes = proxy if self.soft_rates else (scores >= 0).float()
        state = cooper.ConstraintState(
            violation=self.of_pairs(proxy), strict_violation=self.of_pairs(outcomes.detach())
        )
        loss = binary_cross_entropy_with_logits(scores, self.rows.labels.float())
        return cooper.CMPState(loss=loss, observed_constraints={self.gaps: state})

    def of_pairs(self, outcomes):
        found = violations(cell_rates(outcomes, self.members), self.settings.max_gap)
        return torch.stack([found[pair] for pair in self.pairs])


def run_cooper(network, rows, settings, n_groups, n_steps, *, soft_rates):
    problem = Problem(network, rows, settings, n_groups, soft_rates)
    optimizer = cooper.optim.SimultaneousOptimizer(
        cmp=problem,
        primal_optimizers=torch.optim.SGD(network.parameters(), lr=settings.learning_rate),
        dual_optimizers=torch.optim.SGD(
            problem.dual_parameters(), lr=settings.dual_learning_rate, maximize=True
        ),
    )
    for _ in range(n_steps):
        optimizer.roll()
    values = torch.zeros(2, n_groups, n_groups)
    for pair, value in zip(problem.pairs, problem.gaps.multiplier().tolist(), strict=True):
        values[pair] = value
    return values


def run_ours(network, rows, settings, n_groups, n_steps, *, soft_rates):
    members = cell_members(rows, n_groups)
    multipliers = Multipliers(members, settings, steps=1)
    parameters = list(network.parameters())
    optimizer = torch.optim.SGD(parameters, lr=settings.learning_rate)
    step = PrimalDualStep(
        network, multipliers, optimizer, rows, members, clip_norm=math.inf, soft_rates=soft_rates
    )
    for _ in range(n_steps):
        step(torch.arange(len(rows)))
    return multipliers.values


def make_settings(**parameters):
    return LagrangianClassifier(**{"damping": 0.0, "memory": 1, "max_multiplier": 1e3, **parameters})


def make_rows(n=500, seed=0):
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randint(2, (n,), generator=generator)
    inputs = torch.randn(n, 3, generator=generator)
    inputs[:, 0] += 1.5 * groups
    labels = (inputs[:, 0] + inputs[:, 1] + torch.randn(n, generator=generator) > 0.7).long()
    return GroupedBatch(inputs, labels, groups)


def make_network(n_inputs, seed=0):
    network = nn.Sequential(nn.Linear(n_inputs, 1), nn.Flatten(0))
    generator = torch.Generator().manual_seed(seed)
    nn.init.normal_(network[0].weight, std=0.1, generator=generator)
    nn.init.zeros_(network[0].bias)
    return network


@pytest.mark.parametrize("soft_rates", [False, True])
def test_every_step_is_coopers(soft_rates):
    rows = make_rows()
    settings = make_settings(learning_rate=0.5, dual_learning_rate=0.2, max_gap=0.05, sharpness=3.0)
    for n_steps in (1, 5, 40):
        ours, theirs = make_network(3), make_network(3)
        values = run_ours(ours, rows, settings, 2, n_steps, soft_rates=soft_rates)
        expected = run_cooper(theirs, rows, settings, 2, n_steps, soft_rates=soft_rates)
        torch.testing.assert_close(values, expected, rtol=1e-4, atol=1e-5)
        for parameter, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(parameter, other, rtol=1e-4, atol=1e-5)
    assert values.max() > 0


# Two groups, of which a model sees nothing but the group: its probabilities p_0 and p_1 are free, and the
# soft true and false positive rates are both p_g. The best p under p_1 - p_0 <= max_gap is found on a line.

SIZES, BASE_RATES = (300, 200), (0.2, 0.7)


def two_numbers():
    counts = [(round(n * rate), n - round(n * rate)) for n, rate in zip(SIZES, BASE_RATES, strict=True)]
    labels = torch.cat([torch.tensor([1] * positive + [0] * negative) for positive, negative in counts])
    groups = torch.repeat_interleave(torch.arange(2), torch.tensor(SIZES))
    return GroupedBatch(nn.functional.one_hot(groups).float(), labels, groups)


def slope(p, g):
    """Derivative of the mean cross-entropy by the probability of group g."""
    return SIZES[g] / sum(SIZES) * (p - BASE_RATES[g]) / (p * (1 - p))


def optimum(max_gap):
    lower = brentq(lambda p: slope(p, 0) + slope(p + max_gap, 1), 1e-6, 1 - max_gap - 1e-6)
    return lower, lower + max_gap


def solve(run, max_gap, n_steps, **parameters):
    settings = make_settings(max_gap=max_gap, sharpness=1.0, **parameters)
    network = make_network(2)
    multipliers = run(network, two_numbers(), settings, 2, n_steps, soft_rates=True)
    return torch.sigmoid(network(torch.eye(2))).tolist(), multipliers


def test_equal_rates_are_the_base_rate_of_all():
    # The optimum in closed form: with p_0 = p_1 cross-entropy is least at the share of positives.
    assert optimum(0.0) == pytest.approx((0.4, 0.4))


@pytest.mark.parametrize("max_gap", [0.0, 0.1, 0.3])
def test_both_reach_the_known_optimum(max_gap):
    expected = optimum(max_gap)
    for run in (run_ours, run_cooper):
        found, multipliers = solve(run, max_gap, 600, learning_rate=1.0, dual_learning_rate=0.05)
        assert found == pytest.approx(expected, abs=1e-5)
        # The multipliers are the price of the bound: what cross-entropy would gain without it.
        net = multipliers[:, 1, 0] - multipliers[:, 0, 1]
        assert net.sum().item() == pytest.approx(-slope(expected[1], 1), abs=1e-4)


def test_a_bound_that_does_not_bind_costs_nothing():
    found, multipliers = solve(run_ours, 0.6, 1000, learning_rate=1.0, dual_learning_rate=0.05)
    assert found == pytest.approx(BASE_RATES, abs=1e-3)
    assert multipliers.abs().max() == 0


def test_damping_ends_the_circling_and_leaves_the_optimum_where_it_is():
    quick = {"learning_rate": 1.0, "dual_learning_rate": 1.0}
    circling, settled = (solve(run_ours, 0.1, 400, damping=damping, **quick)[0] for damping in (0.0, 2.0))
    assert settled == pytest.approx(optimum(0.1), abs=1e-5)
    assert np.abs(np.subtract(circling, optimum(0.1))).max() > 0.01
