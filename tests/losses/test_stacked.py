"""Many networks as one model: gradients, references and parameters are those of the single networks."""

from copy import deepcopy

import pytest
import torch
from torch import nn

import gcig
from gcig.core.references import GroupBaselines, GroupMembers
from gcig.engine.optimizer import FlatAdamW, clip_norm, flat_parameters
from gcig.losses.gcig import GCIGPenalty
from gcig.losses.objective import Objective, ObjectiveGradient
from gcig.losses.stacked import StackedGradient, stacking_key
from gcig.losses.terms import (
    AttributeTerm,
    ColumnTerm,
    ConsistencyTerm,
    MiniBatch,
    OutcomeTerm,
    PredictionTerm,
    ReasonTerm,
    SelectionTerm,
)
from gcig.models.mlp import make_mlp

WEIGHTS = {
    "selection": 0.4,
    "outcome": 0.3,
    "attribute": 0.5,
    "gcig": 0.2,
    "gcig_members": 0.2,
    "gcig_each_member": 0.1,
    "consistency": 0.1,
    "column_shortfall": 0.3,
}


def make_problem(
    seed,
    *,
    columns=8,
    hidden=(7, 5),
    activation="silu",
    n_groups=2,
    of_decisions=False,
    weighted=False,
    plain=False,
):
    """Return the gradient of a random network on rows of its own; cuts and limits depend on the seed."""
    generator = torch.Generator().manual_seed(seed)
    network = make_mlp(columns, hidden, activation, generator=generator).double()
    x = torch.randn(60 + seed, columns, generator=generator, dtype=torch.float64)
    codes = torch.arange(len(x))
    y, groups = codes % 2, codes // 2 % n_groups
    targets = torch.rand(len(x), generator=generator, dtype=torch.float64) * 0.9 + 0.05
    weights = torch.rand(len(x), generator=generator, dtype=torch.float64) if weighted else None
    cut = 0.1 * seed - 0.2
    origin = torch.arange(columns) // 2
    means = GroupBaselines.from_data(x, y, groups)
    members = GroupMembers(x, y, groups, n_members=3, random_state=seed)
    by_mean, by_members = GCIGPenalty(means, origin=origin), GCIGPenalty(members, origin=origin)
    terms = {
        "prediction": PredictionTerm(),
        "selection": SelectionTerm(cut, 0.1),
        "outcome": OutcomeTerm(
            gcig.EqualizedOddsLoss(
                n_groups,
                cut=cut,
                temperature=0.3,
                momentum=0.9,
                of_decisions=of_decisions,
                smoothness=0.05,
                validate=False,
            )
        ),
        "attribute": AttributeTerm(cut, 0.3),
        "gcig": ReasonTerm(by_mean),
        "gcig_members": ReasonTerm(by_members),
        "gcig_each_member": ReasonTerm(GCIGPenalty(members, origin=origin, each_member=True)),
        "consistency": ConsistencyTerm(by_mean, by_members),
        "column_shortfall": ColumnTerm(by_mean, 3.5 + 0.1 * seed),
    }

    def make_batch(rows):
        rows = rows % len(x)
        copies = -x[rows[:6]]
        n = len(rows)
        return MiniBatch(
            network,
            torch.cat([x[rows], copies]),
            y[rows],
            groups[rows],
            torch.cat([targets[rows], targets[rows[:6]]]),
            None if weights is None else torch.cat([weights[rows], weights[rows[:6]]]),
            pairs=torch.stack([torch.arange(6), torch.arange(6) + n]),
            n_explained=n // 2,
        )

    objective = Objective({"prediction": PredictionTerm()} if plain else terms)
    return objective, network, make_batch, len(x)


class Trained:
    """A network in training, alone or as part of a stack."""

    def __init__(self, problem, rate):
        objective, self.network, make_batch, n_rows = problem
        self.flat = flat_parameters(self.network)
        self.parameters = self.flat.__enter__()
        self.gradient = ObjectiveGradient(objective, self.network, make_batch, n_rows)
        self.optimizer = FlatAdamW(self.parameters, learning_rate=rate, weight_decay=1e-2)

    def load(self, step):
        self.gradient.load({name: weight * (1 + step) / 5 for name, weight in WEIGHTS.items()})

    def update(self):
        clip_norm(self.parameters, 0.5)
        self.optimizer.step()


def rows_of(step, seed, n=24):
    return torch.arange(n) * 3 + 5 * step + seed


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"activation": "relu"},
        {"activation": "relu", "hidden": (6, 5, 4)},  # paths of two segments
        {"n_groups": 3},
        {"of_decisions": True},
        {"weighted": True},
        {"plain": True},
    ],
    ids=str,
)
def test_a_stack_trains_each_network_as_it_trains_alone(options):
    """Weights, learning rates and rows differ; what a step keeps (references, averages, counts) is kept."""
    rates = (1e-2, 3e-3, 1e-3)
    alone, stacked = (
        [Trained(make_problem(seed, **options), rate) for seed, rate in enumerate(rates)] for _ in range(2)
    )
    keys = {stacking_key(each.gradient, each.parameters) for each in stacked}
    assert len(keys) == 1
    assert None not in keys
    together = StackedGradient([each.gradient for each in stacked], [each.parameters[0] for each in stacked])
    for step in range(6):
        rows = [rows_of(step, seed, 24 - step % 2) for seed in range(3)]
        for seed, each in enumerate(alone):
            each.load(step)
            each.terms = each.gradient(rows[seed])
        for each in stacked:
            each.load(step)
        together.load()
        terms = together(torch.stack(rows))
        for seed, (one, other) in enumerate(zip(alone, stacked, strict=True)):
            expected = one.parameters[0].grad
            torch.testing.assert_close(other.parameters[0].grad, expected, rtol=0, atol=1e-10)
            assert terms.keys() == one.terms.keys()
            for name, value in one.terms.items():
                torch.testing.assert_close(terms[name][seed], value, rtol=1e-10, atol=1e-12)
            one.update()
            other.update()
            torch.testing.assert_close(other.parameters[0], one.parameters[0], rtol=0, atol=1e-9)
    for one, other in zip(alone, stacked, strict=True):
        for mine, theirs in zip(
            one.gradient.objective.penalties(), other.gradient.objective.penalties(), strict=True
        ):
            torch.testing.assert_close(theirs.references.values, mine.references.values, rtol=0, atol=1e-12)
            assert theirs.n_undefined == mine.n_undefined


def key_of(problem):
    trained = Trained(problem, 1e-3)
    return stacking_key(trained.gradient, trained.parameters)


def test_networks_that_compute_something_else_are_not_stacked_with_others():
    usual = key_of(make_problem(0))
    assert usual == key_of(make_problem(1))
    for options in ({"activation": "relu"}, {"columns": 6}, {"plain": True}):
        assert key_of(make_problem(0, **options)) not in (usual, None)


def test_unknown_terms_networks_and_penalties_are_not_stacked():
    objective, network, make_batch, n_rows = make_problem(0)
    with_term = objective.with_term("logit_size", lambda batch: batch.logits.square().mean(), 0.1)
    assert key_of((with_term, network, make_batch, n_rows)) is None
    with_dropout = nn.Sequential(nn.Linear(8, 4), nn.Dropout(0.5), nn.SiLU(), nn.Linear(4, 1)).double()

    def make_other(rows):
        batch = make_batch(rows)
        batch.module = with_dropout
        return batch

    assert key_of((Objective({"prediction": PredictionTerm()}), with_dropout, make_other, n_rows)) is None

    class Squared(GCIGPenalty):
        def compare(self, attributions):
            return super().compare(attributions).square()

    other = deepcopy(objective).with_term(
        "gcig", ReasonTerm(Squared(objective.terms["gcig"].penalty.references))
    )
    assert key_of((other, *make_problem(0)[1:])) is None
