"""The objective of a student, and its mini-batches."""

import pytest
import torch

from gcig.core.attribution import IntegratedGradients, Score
from gcig.core.penalties import gaps_by_kind
from gcig.core.references import Means, Members, Rows
from gcig.core.task import TASKS
from gcig.training.batches import StudentBatches, all_outputs
from gcig.training.objective import Explaining, MiniBatch, Objective
from support.problems import Formula, make_problem

EVERY_TASK = pytest.mark.parametrize("key", list(TASKS))


class Counted(IntegratedGradients):
    calls = 0

    def attribute(self, *arguments, **options):
        type(self).calls += 1
        return super().attribute(*arguments, **options)


def make_batches(key="binary", *, weighted=False, protected=None, between=1.0, exchanged=0.25, **options):
    problem = make_problem(key, n=90, groups=3)
    problem = problem._replace(x=problem.x.float(), network=problem.network.float())
    baselines = problem.baselines(**options)
    kinds = {"means": Means(baselines.rows), "members": Members(baselines.rows, 4)}
    columns, generator = torch.eye(4), torch.Generator().manual_seed(0)
    explaining = Explaining(baselines, kinds, Counted(), columns, 10, generator)
    weights = 1 + torch.arange(90.0) % 2 if weighted else None
    rows = Rows(problem.x, problem.y, problem.groups, weights)
    batches = StudentBatches(
        problem.network,
        rows,
        problem.task,
        explaining,
        protected=protected,
        between=between,
        exchanged=exchanged,
    )
    return problem, batches


# --- the objective -------------------------------------------------------------------------------------


def make_objective():
    return Objective({"first": (lambda batch: batch.outputs.sum(), 2.0)})


def test_terms_are_replaced_added_and_left_out():
    problem, batches = make_batches()
    batch = batches(problem.network, torch.arange(20))
    weight = torch.tensor(3.0)
    objective = make_objective().with_term("second", lambda each: each.outputs.square().sum(), lambda: weight)
    values = objective(batch)
    assert list(values) == ["first", "second", "total"]
    assert values["total"].item() == pytest.approx((2 * values["first"] + 3 * values["second"]).item())
    weight.fill_(5.0)  # weights are looked up in every step
    assert objective(batch)["total"].item() == pytest.approx(
        (2 * values["first"] + 5 * values["second"]).item()
    )
    assert list(objective.without("first", "unheard of")(batch)) == ["second", "total"]
    replaced = objective.with_term("first", lambda _: torch.ones(()))
    assert list(replaced(batch)) == ["first", "second", "total"]
    assert replaced(batch)["first"].item() == 1
    assert list(make_objective().terms) == ["first"]


def test_outputs_and_attributions_are_computed_once():
    problem, batches = make_batches()
    calls = []
    network = Formula(lambda x: (calls.append(len(x)), problem.network(x))[1])
    batch = batches(network, torch.arange(20))
    Counted.calls = 0
    for _ in range(2):
        batch.gaps(torch.tensor(1.0))
        assert batch.targets.shape == batch.outputs.shape
    assert Counted.calls == 1
    assert calls.count(40) == 1


@EVERY_TASK
def test_gaps_are_those_of_the_explained_rows(key):
    problem, batches = make_batches(key, weighted=True)
    positions = torch.arange(50, 80)
    batch = batches(problem.network, positions)
    found, own = batch.gaps(torch.tensor(0.7)), positions[:10]
    cells, how = problem.task.cells(problem.y[own]), batch.explaining
    score, rows, weights = (
        Score.of(problem.network, problem.task, problem.y[own]),
        problem.x[own],
        batches.rows.weights[own],
    )

    def expected(name):
        drawn = how.kinds[name].of(cells, how.generator).flatten(0, 1)
        values = {
            name: IntegratedGradients(n_steps=2 if name == "means" else 8).attribute(score, rows, drawn)
        }
        return torch.stack(gaps_by_kind(values, how.kinds, how.baselines, cells, 0.7, weights)[name])

    torch.testing.assert_close(torch.stack(found["means"]), expected("means"), rtol=1e-4, atol=1e-5)
    again = [batches(problem.network, positions).gaps(torch.tensor(0.7))["members"] for _ in range(300)]
    one = torch.stack([torch.stack(each) for each in again]).double().detach()  # one point of each path
    other = torch.stack([expected("members") for _ in range(300)]).double()
    error = ((one.var(0) + other.var(0)) / 300).sqrt()
    assert ((one.mean(0) - other.mean(0)).abs() < 4 * error).all()
    gradients = torch.autograd.grad(
        found["members"][1], list(problem.network.parameters()), allow_unused=True
    )
    assert any(each is not None and each.any() for each in gradients)


# --- mini-batches --------------------------------------------------------------------------------------


@EVERY_TASK
@pytest.mark.parametrize("between", [0.0, 0.5, 2.0])
def test_what_is_in_a_mini_batch(key, between):
    problem, batches = make_batches(
        key, weighted=True, between=between, protected=torch.tensor([0, 2]), exchanged=0.25
    )
    positions = torch.arange(30, 50)
    batch = batches(problem.network, positions)
    count = int(20 * between)
    assert isinstance(batch, MiniBatch)
    assert (batch.n, batch.n_exchanged, len(batch.inputs)) == (20, 5, 20 + count + 5)
    assert torch.equal(batch.inputs[:20], problem.x[positions])
    assert torch.equal(batch.labels, problem.y[positions])
    assert torch.equal(batch.groups, problem.groups[positions])
    assert torch.equal(batch.weights[:20], batches.rows.weights[positions])
    assert torch.equal(batch.weights[-5:], batches.rows.weights[positions[:5]])
    assert len(batch.weights) == len(batch.teacher_outputs) == len(batch.outputs) == len(batch.inputs)
    torch.testing.assert_close(batch.teacher_outputs, batch.outputs)  # the teacher itself
    assert not batch.teacher_outputs.requires_grad


def test_copies_have_the_protected_columns_of_other_rows_and_keep_the_rest():
    problem, batches = make_batches(protected=torch.tensor([0, 2]), exchanged=1.0, between=0.0)
    batch = batches(problem.network, torch.arange(40))
    copies = batch.inputs[-40:]
    assert torch.equal(copies[:, [1, 3]], problem.x[:40][:, [1, 3]])
    pairs = {tuple(each) for each in problem.x[:, [0, 2]].tolist()}
    assert {tuple(each) for each in copies[:, [0, 2]].tolist()} <= pairs  # together, from one row
    assert (copies[:, 0] != problem.x[:40, 0]).float().mean() > 0.9


@EVERY_TASK
def test_points_lie_between_a_row_and_a_reference_of_its_label(key):
    problem, batches = make_batches(key, between=10.0)
    batch = batches(problem.network, torch.arange(20))
    points = batch.inputs[20:]
    values, cells = batches.explaining.baselines.values, problem.task.cells(problem.y)
    for point in points[:60]:
        ends = torch.cat([problem.x, values.flatten(0, 1)])
        to, along = ends.unsqueeze(0) - problem.x.unsqueeze(1), point - problem.x.unsqueeze(1)
        share = (along * to).sum(-1) / to.square().sum(-1).clamp_min(1e-12)
        off = (along - share.unsqueeze(-1) * to).norm(dim=-1)
        near = (off < 1e-4) & (share > -1e-5) & (share < 1 + 1e-5)
        of_ends = torch.cat([cells, torch.arange(problem.task.n_cells).repeat_interleave(3)])
        apart = (of_ends - cells.unsqueeze(1)).abs()
        assert (near & (apart <= (9 if key == "number" else 0))).any()  # nearly empty bins borrow members


def test_undefined_cells_give_no_points():
    problem, batches = make_batches(min_cell=30)
    assert not batches.explaining.baselines.defined.any()
    batch = batches(problem.network, torch.arange(20))
    assert (batch.inputs[20:].unsqueeze(1) == problem.x).all(-1).any(1).all()


def test_draws_follow_the_generator():
    (problem, one), (_, other) = make_batches(), make_batches()
    for _ in range(2):
        first, second = (each(problem.network, torch.arange(20)).inputs for each in (one, other))
        assert torch.equal(first, second)
    assert not torch.equal(first, one(problem.network, torch.arange(20)).inputs)


def test_rows_and_outputs_of_any_number():
    problem, batches = make_batches(weighted=True)
    some = batches.rows[torch.tensor([4, 2])]
    assert len(some) == 2
    assert torch.equal(some.weights, batches.rows.weights[[4, 2]])
    assert batches.rows.to("meta").inputs.device.type == "meta"
    network = torch.nn.Sequential(torch.nn.Dropout(0.5), problem.network)
    outputs = all_outputs(network, problem.x.repeat(800, 1))
    assert outputs.shape == (72_000, 1)
    assert network[0].training
    torch.testing.assert_close(outputs[:90, 0], problem.network(problem.x).detach())
