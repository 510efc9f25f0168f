"""Our primal-dual training against Cooper, an independent library, and against optima in closed form."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gcig.core.outcome import cell_rates
from gcig.core.references import Rows
from gcig.core.task import Binary
from gcig.methods.lagrangian import LagrangianClassifier, PrimalDual, violations
from support.games import data_of, make_game, make_rows

cooper = pytest.importorskip("cooper")


@dataclass(frozen=True)
class SoftBinary(Binary):
    """Two classes whose decisions are smooth: the multipliers ascend on the proxy rates as well."""

    sharpness: float = 1.0

    def decisions(self, outputs):
        return self.soft_decisions(outputs, 1 / self.sharpness)


class Problem(cooper.ConstrainedMinimizationProblem):
    """Cross-entropy under the same constraints, in Cooper's words."""

    def __init__(self, network, rows, settings, task):
        super().__init__()
        self.network, self.rows, self.settings, self.task = network, rows, settings, task
        self.pairs = [(y, g, 1 - g) for y in range(2) for g in range(2)]
        self.gaps = cooper.Constraint(
            constraint_type=cooper.ConstraintType.INEQUALITY,
            formulation_type=cooper.formulations.Lagrangian,
            multiplier=cooper.multipliers.DenseMultiplier(num_constraints=len(self.pairs)),
        )

    def compute_cmp_state(self):
        scores = self.network(self.rows.inputs)
        proxy = torch.sigmoid(self.settings.sharpness * scores)
        decisions = self.task.decisions(scores.detach())
        state = cooper.ConstraintState(
            violation=self.of_pairs(proxy), strict_violation=self.of_pairs(decisions)
        )
        loss = binary_cross_entropy_with_logits(scores[:, 0], self.rows.labels.float())
        return cooper.CMPState(loss=loss, observed_constraints={self.gaps: state})

    def of_pairs(self, decisions):
        rates, _ = cell_rates(decisions, self.rows.labels, self.rows.groups, 2, 2)
        found = violations(rates, self.settings.max_gap)
        return torch.stack([found[pair][0] for pair in self.pairs])


def run_cooper(network, rows, settings, task, n_steps):
    problem = Problem(network, rows, settings, task)
    optimizer = cooper.optim.SimultaneousOptimizer(
        cmp=problem,
        primal_optimizers=torch.optim.SGD(network.parameters(), lr=settings.learning_rate),
        dual_optimizers=torch.optim.SGD(
            problem.dual_parameters(), lr=settings.dual_learning_rate, maximize=True
        ),
    )
    for _ in range(n_steps):
        optimizer.roll()
    values = torch.zeros(2, 2, 2)
    for pair, value in zip(problem.pairs, problem.gaps.multiplier().tolist(), strict=True):
        values[pair] = value
    return values


def run_ours(network, rows, settings, task, n_steps):
    game = make_game(PrimalDual, settings, network, data_of(rows, task), settings.learning_rate)
    for _ in range(n_steps):
        game(torch.arange(len(rows)))
    return game.multipliers.values[..., 0]


def make_settings(**parameters):
    return LagrangianClassifier(**{"damping": 0.0, "memory": 1, "max_multiplier": 1e3, **parameters})


def make_network(n_inputs, seed=0):
    network = nn.Linear(n_inputs, 1)
    nn.init.normal_(network.weight, std=0.1, generator=torch.Generator().manual_seed(seed))
    nn.init.zeros_(network.bias)
    return network


@pytest.mark.parametrize("task", [Binary(), SoftBinary(sharpness=3.0)])
def test_every_step_is_coopers(task):
    rows, _ = make_rows("binary", 500)
    settings = make_settings(learning_rate=0.5, dual_learning_rate=0.2, max_gap=0.05, sharpness=3.0)
    for n_steps in (1, 5, 40):
        ours, theirs = make_network(3), make_network(3)
        values = run_ours(ours, rows, settings, task, n_steps)
        expected = run_cooper(theirs, rows, settings, task, n_steps)
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
    return Rows(nn.functional.one_hot(groups).float(), labels, groups)


def slope(p, g):
    """Derivative of the mean cross-entropy by the probability of group g."""
    return SIZES[g] / sum(SIZES) * (p - BASE_RATES[g]) / (p * (1 - p))


def optimum(max_gap):
    lower = brentq(lambda p: slope(p, 0) + slope(p + max_gap, 1), 1e-6, 1 - max_gap - 1e-6)
    return lower, lower + max_gap


def solve(run, max_gap, n_steps, **parameters):
    settings = make_settings(max_gap=max_gap, sharpness=1.0, **parameters)
    network = make_network(2)
    multipliers = run(network, two_numbers(), settings, SoftBinary(), n_steps)
    return torch.sigmoid(network(torch.eye(2)))[:, 0].tolist(), multipliers


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
