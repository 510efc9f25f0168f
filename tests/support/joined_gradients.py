"""Gradients of several processes against those of one: RANK SIZE FOLDER.

Every process computes the part of its own rows of each case, in double precision, and the first one writes
the largest differences from one process that has all rows to ``differences.json``.
"""

import json
import sys
from copy import deepcopy
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from gcig.core.processes import joined_mean, joining
from gcig.core.references import GroupBaselines, GroupMembers
from gcig.engine.optimizer import flat_parameters
from gcig.losses.gcig import GCIGPenalty
from gcig.losses.objective import Objective, ObjectiveGradient
from gcig.losses.outcome import EqualizedOddsLoss
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
from gcig.training.distributed import add_gradients, all_processes

N, EXTRA, COPIES, EXPLAINED, COLUMNS = 61, 14, 7, 23, 5
WEIGHTS = {
    "outcome": 0.1,
    "selection": 0.4,
    "attribute": 0.2,
    "gcig": 0.3,
    "gcig_members": 0.25,
    "consistency": 0.2,
}
WEIGHTS |= {"consistency": 0.2, "column_shortfall": 0.15}


class Rows:
    """One mini-batch; in a lopsided one, the first process has all rows of one cell."""

    def __init__(self, n_groups, size, *, weighted=False, lopsided=False):
        generator = torch.Generator().manual_seed(n_groups)
        self.n_groups = n_groups
        self.inputs = torch.randn(N + EXTRA, COLUMNS, generator=generator, dtype=torch.float64)
        self.labels = torch.randint(0, 2, (N,), generator=generator)
        self.groups = torch.randint(0, n_groups, (N,), generator=generator)
        if lopsided:
            rare = (self.labels == 1) & (self.groups == 1) & (torch.arange(N) % size > 0)
            self.groups[rare] = 0
            own = torch.tensor([0, 6, 12])  # rows of the first of two or of three processes
            self.labels[own] = self.groups[own] = 1
        self.targets = torch.rand(N + EXTRA, generator=generator, dtype=torch.float64)
        self.targets[-COPIES:] = self.targets[
            :COPIES
        ]  # the teacher's decisions do not depend on the attribute
        self.weights = torch.rand(N + EXTRA, generator=generator, dtype=torch.float64) if weighted else None

    def batch(self, module):
        positions = torch.arange(COPIES)
        return MiniBatch(
            module,
            self.inputs,
            self.labels,
            self.groups,
            self.targets,
            self.weights,
            pairs=torch.stack([positions, positions + N + EXTRA - COPIES]),
            n_explained=EXPLAINED,
        )

    def references(self):
        data = (self.inputs[:N], self.labels, self.groups)
        means = GroupBaselines.from_data(*data, n_groups=self.n_groups, rate=0.3)
        return means, GroupMembers(*data, n_groups=self.n_groups, n_members=3)

    def objective(self, **options):
        means, members = self.references()
        of_mean, of_members = GCIGPenalty(means, **options), GCIGPenalty(members, **options)
        return Objective(
            {
                "prediction": PredictionTerm(),
                "outcome": OutcomeTerm(EqualizedOddsLoss(self.n_groups, temperature=0.3, momentum=0.9)),
                "selection": SelectionTerm(0.0, 0.2),
                "attribute": AttributeTerm(0.1, 0.3),
                "gcig": ReasonTerm(of_mean),
                "gcig_members": ReasonTerm(of_members),
                "consistency": ConsistencyTerm(of_mean, of_members),
                "column_shortfall": ColumnTerm(of_mean, 2 * COLUMNS),
            }
        )


def network():
    return make_mlp(COLUMNS, (6, 4), generator=torch.Generator().manual_seed(0)).double()


def gradient_of(rows, objective, group, *, wants_engine):
    module = network()
    with flat_parameters(module) as (flat,):
        gradient = ObjectiveGradient(objective, module, lambda _: rows.batch(module), N)
        assert (gradient.engine is not None) == wants_engine
        with joining(group):
            terms = gradient(torch.arange(N), WEIGHTS)
        add_gradients([flat], group)
        baselines = [each.references.values.flatten() for each in objective.penalties()]
        values = torch.stack([terms[name] for name in sorted(terms)])
        return torch.cat([flat.grad.clone(), values, *baselines])


def own_loop(rows, group, **options):
    """Return the gradient of a user's own loop, in which every process has its own rows."""
    module, (means, _) = network(), rows.references()
    penalty = GCIGPenalty(means, **options)
    part = rows.batch(module).own_part(group)
    n = len(part.labels)
    with joining(group):
        entropy = torch.nn.functional.binary_cross_entropy_with_logits(
            part.row_logits, part.labels.double(), reduction="none"
        )
        loss = joined_mean(entropy) + penalty(module, part.inputs[:n], part.labels, part.groups)
    loss.backward()
    parameters = list(module.parameters())
    add_gradients(parameters, group)
    return torch.cat([*(each.grad.flatten() for each in parameters), loss.detach().view(1)])


def cases(size):
    for n_groups in (2, 3):
        for weighted in (False, True):
            rows = Rows(n_groups, size, weighted=weighted, lopsided=True)
            name = f"{n_groups} groups{', weighted' if weighted else ''}"
            yield (
                f"engine, {name}",
                lambda group, r=rows: gradient_of(r, r.objective(), group, wants_engine=True),
            )
            yield (
                f"autograd, {name}",
                lambda group, r=rows: gradient_of(
                    r, r.objective(rule="gauss_legendre", n_steps=2), group, wants_engine=False
                ),
            )
    rows = Rows(2, size)
    plain = Objective({"prediction": PredictionTerm()})
    yield "plain", lambda group: gradient_of(rows, deepcopy(plain), group, wants_engine=True)
    yield "own loop, fused", lambda group: own_loop(rows, group)
    yield "own loop, chunks", lambda group: own_loop(rows, group, fast=False, max_bytes=20_000)


def main(rank, size, folder):
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
    )
    torch.set_num_threads(1)
    differences = {}
    with all_processes() as group:
        assert (group.rank, group.size) == (rank, size)
        for name, compute in cases(size):
            found, expected = compute(group), compute(None)
            differences[name] = float((found - expected).abs().max() / expected.abs().max())
    if rank == 0:
        Path(folder, "differences.json").write_text(json.dumps(differences))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
