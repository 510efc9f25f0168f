"""What a CUDA graph records must not depend on values: checked on the CPU, without a device."""

import copy

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import gcig
from gcig.core.batch import GroupedBatch, TrainingRows
from gcig.core.references import GroupBaselines, GroupMembers
from gcig.engine.cuda_graph import make_step
from gcig.engine.optimizer import flat_parameters
from gcig.losses import gcig as penalties
from gcig.losses import objective as objectives
from gcig.losses import outcome
from gcig.losses.gcig import GCIGPenalty
from gcig.losses.objective import (
    AttributeTerm,
    ColumnTerm,
    ConsistencyTerm,
    Objective,
    ObjectiveGradient,
    OutcomeTerm,
    PredictionTerm,
    ReasonTerm,
    SelectionTerm,
)
from gcig.methods.fairx.distillation import BatchSource, Teacher
from gcig.models.mlp import make_mlp

READS = ("_local_scalar_dense", "nonzero", "masked_select", "equal")


class NoValuesRead(TorchDispatchMode):
    """Fails at every operation whose result depends on a value in a way that cannot be recorded."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert name not in READS, f"{func} reads a value"
        if name == "index":
            assert all(index is None or index.dtype == torch.int64 for index in args[1]), "a mask was used"
        return func(*args, **(kwargs or {}))


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
            "attribute": AttributeTerm(),
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


@pytest.fixture
def recording(monkeypatch):
    for room in (penalties, objectives, outcome):
        monkeypatch.setattr(room, "is_recording", lambda: True)
    monkeypatch.setattr("gcig.core.references.is_recording", lambda: True)


@pytest.mark.parametrize("in_branches", [False, True])
def test_the_step_of_fairx_reads_no_value(in_branches, recording, monkeypatch):
    monkeypatch.setattr(objectives, "forks", lambda: in_branches)
    network = make_mlp(6, (8, 4), generator=torch.Generator().manual_seed(0))
    rows = torch.arange(40)
    with flat_parameters(network):
        gradient = make_gradient(network)
        assert gradient.engine is not None
        gradient.load(WEIGHTS)
        vector = torch.tensor(list(gradient.objective.active_weights(WEIGHTS).values()))
        gradient._vectors[tuple(gradient.objective.active_weights(WEIGHTS))] = vector
        gradient(rows)
        with NoValuesRead():
            gradient(rows)


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
                for room in (penalties, objectives, outcome):
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


def state_of(thing, seen=None):
    """Return all tensors that an object keeps, by where they are found."""
    seen = {} if seen is None else seen
    if id(thing) in seen:
        return {}
    seen[id(thing)] = thing
    members = dict(getattr(thing, "__dict__", {}))
    if isinstance(thing, dict):
        members.update(thing)
    elif isinstance(thing, list | tuple):
        members.update(enumerate(thing))
    found = {}
    for name, part in members.items():
        if isinstance(part, torch.Tensor):
            found[f"{type(thing).__name__}.{name}"] = part
        elif type(part).__module__.startswith(("gcig", "builtins", "torch.nn")):
            found.update(state_of(part, seen))
    return found


def test_what_a_step_keeps_stays_where_it_is():
    """A recording writes to the memory that was there when it was made."""
    network = make_mlp(6, (8, 4), generator=torch.Generator().manual_seed(0))
    with flat_parameters(network):
        gradient = make_gradient(network)
        gradient(torch.arange(40), WEIGHTS)
        before = {name: tensor.data_ptr() for name, tensor in state_of(gradient.objective).items()}
        gradient(torch.arange(40), WEIGHTS)
        after = {name: tensor.data_ptr() for name, tensor in state_of(gradient.objective).items()}
    assert len(before) > 5
    assert after == before
