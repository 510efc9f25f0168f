"""What a CUDA graph records must not depend on values: checked on the CPU, without a device."""

import copy
import warnings

import numpy as np
import pytest
import torch
from gcig.engine.cuda_graph import make_step
from gcig.engine.optimizer import flat_parameters
from gcig.losses import gcig as penalties
from gcig.losses import objective as objectives
from gcig.losses import outcome
from gcig.losses import terms as losses_terms
from gcig.losses.gcig import GCIGPenalty
from gcig.losses.objective import Objective, ObjectiveGradient
from gcig.losses.terms import (
    AttributeTerm,
    ColumnTerm,
    ConsistencyTerm,
    OutcomeTerm,
    PredictionTerm,
    ReasonTerm,
    SelectionTerm,
)
from gcig.methods.fairx.distillation import BatchSource, Teacher
from torch import nn

import gcig
from gcig.benchmark.trials import common_parameters
from gcig.core.batch import GroupedBatch, TrainingRows
from gcig.core.references import GroupBaselines, GroupMembers
from gcig.methods import METHODS
from gcig.models.mlp import make_mlp
from support.replay import ExecutedStep, ReplayedStep, emulated_device
from tables import QUICK, make_loans

SLOW = pytest.mark.slow


def make_gradient(network):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(200, 6, generator=generator)
    groups = torch.randint(2, (200,), generator=generator)
    inputs[:, 5] = groups
    labels = torch.randint(2, (200,), generator=generator)
    data = TrainingRows(GroupedBatch(inputs, labels, groups), labels.float())
    means = GroupBaselines.from_data(inputs, labels, groups)
    members = GroupMembers(inputs, labels, groups, n_members=2)
    origin = torch.tensor([0, 0, 1, 2, 3, 4])
    of_mean, of_members = GCIGPenalty(means, origin=origin), GCIGPenalty(members, origin=origin)
    outcome_loss = gcig.EqualizedOddsLoss(2, cut=0.1, temperature=0.3, momentum=0.9, smoothness=0.05)
    objective = Objective(
        {
            "prediction": PredictionTerm(),
            "selection": SelectionTerm(0.1, 0.3),
            "outcome": OutcomeTerm(outcome_loss),
            "attribute": AttributeTerm(0.1, 0.3),
            "gcig": ReasonTerm(of_mean),
            "gcig_members": ReasonTerm(of_members),
            "gcig_each_member": ReasonTerm(GCIGPenalty(members, origin=origin, each_member=True)),
            "consistency": ConsistencyTerm(of_mean, of_members),
            "column_shortfall": ColumnTerm(of_mean, 4.5),
        }
    )
    teacher = Teacher(copy.deepcopy(network).eval(), {}, inputs[:8], 0.01)
    source = BatchSource(
        network,
        data,
        2,
        n_explained=16,
        teacher=teacher,
        means=means.values.clone(),
        protected=torch.tensor([5]),
        generator=torch.Generator().manual_seed(1),
    )
    return ObjectiveGradient(objective, network, source, len(data))


WEIGHTS = {
    "selection": 0.2,
    "outcome": 0.5,
    "attribute": 1.0,
    "gcig": 0.3,
    "gcig_members": 0.3,
    "gcig_each_member": 0.1,
    "consistency": 0.2,
    "column_shortfall": 0.4,
}


@pytest.mark.parametrize(
    "name",
    [
        "lagrangian",
        "adversarial",
        "fairx-paper",
        "fairx",  # its teacher is trained as an unconstrained network
        pytest.param("agarwal", marks=SLOW),
    ],
)
def test_a_recording_that_is_repeated_trains_as_python_does(name, monkeypatch):
    """Numbers that change must be tensors, tensors must stay where they are, and no value may be read."""
    monkeypatch.setattr("gcig.methods.fairx.training._MIN_EPOCH_ROWS", 1)  # more epochs, and shorter ones
    loans, scores = make_loans(), []
    options = common_parameters(name, {**QUICK, "batch_size": 128, "max_epochs": 10})
    for steps in (ExecutedStep, ReplayedStep):
        with emulated_device(steps), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = METHODS[name].estimator(**options).fit(loans.X, loans.y, **loans.groups)
        scores.append(model.decision_function(loans.X))
    assert ReplayedStep.n_repeated >= 8
    np.testing.assert_array_equal(*scores)


def test_a_number_that_changes_is_repeated_as_it_was():
    for steps, expected in ((ExecutedStep, 10), (ReplayedStep, 4)):  # 0 + 1 + 2 + 3 + 4, and 0 + 4 x 1
        total, counts = torch.zeros(()), iter(range(5))
        step = steps(lambda _: {"total": total.add_(next(counts))}, lambda: None)  # noqa: B023
        for _ in range(5):
            step(torch.arange(2))
        assert float(total) == expected


def test_terms_in_branches_pull_what_they_pull_together(monkeypatch):
    found = []
    for in_branches in (False, True):
        network = make_mlp(6, (8, 4), generator=torch.Generator().manual_seed(0))
        with flat_parameters(network) as (flat,):
            gradient = make_gradient(network)
            monkeypatch.setattr(objectives, "forks", lambda value=in_branches: value)
            terms = [gradient(torch.arange(40), WEIGHTS) for _ in range(2)]
            few = gradient(torch.arange(40), {"outcome": 1.0})
            found.append((flat.grad.clone(), [*terms, few]))
    torch.testing.assert_close(found[1][0], found[0][0], rtol=1e-5, atol=1e-6)
    for one, other in zip(found[1][1], found[0][1], strict=True):
        assert one.keys() == other.keys()
        for name, value in other.items():
            torch.testing.assert_close(one[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("with_zero", [False, True], ids=["defined rows", "undefined rows"])
def test_recorded_operations_compute_the_same(with_zero, monkeypatch):
    found = []
    for recording in (False, True):
        network = make_mlp(6, (8, 4), generator=torch.Generator().manual_seed(0))
        with flat_parameters(network) as (flat,):
            gradient = make_gradient(network)
            if with_zero:  # a row that equals its references has no attributions
                means = gradient._references[0]
                rows = gradient.make_batch.data.rows
                means.rate = 0.0
                rows.inputs[3] = means.values[rows.labels[3], 0]
            with monkeypatch.context() as patch:
                for room in (objectives, penalties, losses_terms, outcome):
                    patch.setattr(room, "is_recording", lambda value=recording: value)
                terms = gradient(torch.arange(40), WEIGHTS)
            found.append((flat.grad.clone(), terms))
    torch.testing.assert_close(found[1][0], found[0][0], rtol=1e-5, atol=1e-6)
    for name, value in found[0][1].items():
        torch.testing.assert_close(found[1][1][name], value, rtol=1e-5, atol=1e-6)


def test_weights_may_be_given_or_loaded():
    found = []
    for load in (False, True):
        network = make_mlp(6, (8, 4), generator=torch.Generator().manual_seed(0))
        with flat_parameters(network) as (flat,):
            gradient = make_gradient(network)
            if load:
                assert gradient.load(WEIGHTS) == ("prediction", *WEIGHTS)
            gradient(torch.arange(40), None if load else WEIGHTS)
            found.append(flat.grad.clone())
    assert torch.equal(*found)


def test_terms_of_others_are_not_recorded():
    network = nn.Sequential(nn.Linear(6, 4), nn.SiLU(), nn.Linear(4, 1))
    with flat_parameters(network):
        gradient = make_gradient(network)
        assert not gradient.can_be_recorded  # on a CPU
        assert all(term.can_be_recorded for term in gradient.objective.terms.values())


def test_a_step_that_is_not_recorded_loads_before_it_computes():
    calls = []
    step = make_step(
        lambda rows: calls.append(len(rows)) or {}, lambda: calls.append("load"), (), recorded=False
    )
    step(torch.arange(3))
    assert calls == ["load", 3]
