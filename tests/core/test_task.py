"""Tasks: what all of them promise, and what two classes, several classes and numbers have in common."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gcig
from gcig._arguments import InputError
from gcig.core.attribution import IntegratedGradients, Score
from gcig.core.gap import reason_gap, spread
from gcig.core.outcome import outcome_gap
from gcig.core.task import TASKS, Binary, Classes, Number, Task, as_outputs, register_task, task_of
from support.problems import make_problem

EVERY_TASK = pytest.mark.parametrize("key", list(TASKS))


def outputs_of(problem):
    with torch.no_grad():
        return as_outputs(problem.network(problem.x), len(problem.x))


def as_classes(logits, labels):
    """The same two classes with one output each."""
    return Classes.of(labels), torch.cat([-0.3 * logits, 0.7 * logits], dim=1)


# --- every task ----------------------------------------------------------------------------------------


@EVERY_TASK
def test_shapes_fit_together(key):
    problem, n = make_problem(key), 48
    task, outputs = problem.task, outputs_of(problem)
    assert task.key == key
    assert outputs.shape == task.contrast(problem.y).shape == (n, task.n_outputs)
    cells = task.cells(problem.y)
    assert cells.dtype == torch.int64
    assert 0 <= int(cells.min()) <= int(cells.max()) == task.n_cells - 1
    assert task.loss(outputs, problem.y).shape == task.score(outputs, problem.y).shape == (n,)
    assert task.decisions(outputs).shape == task.soft_decisions(outputs, 0.3).shape
    for outcome in task.outcomes:
        of, count, weight = task.outcome_cells(problem.y, outcome)
        assert -1 <= int(of.min()) <= int(of.max()) < count
        assert weight > 0


@EVERY_TASK
def test_the_distance_is_zero_to_itself_and_least_there(key):
    problem = make_problem(key)
    task, outputs = problem.task, outputs_of(problem)
    targets = task.predictions(outputs)
    torch.testing.assert_close(task.distance(outputs, targets), torch.zeros(48).double(), atol=1e-12, rtol=0)
    other = outputs + torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0)).double()
    assert (task.distance(other, targets) > 0).all()
    free = outputs.clone().requires_grad_()
    (slope,) = torch.autograd.grad(task.distance(free, targets).sum(), free)
    torch.testing.assert_close(slope, torch.zeros_like(slope), atol=1e-12, rtol=0)


@EVERY_TASK
@pytest.mark.parametrize("weighted", [False, True])
def test_the_constant_prediction_is_the_nearest_one(key, weighted):
    problem = make_problem(key)
    task, targets = problem.task, problem.task.predictions(outputs_of(problem))
    weights = torch.arange(48.0).double() % 3 if weighted else None
    constant = task.constant(targets, weights).clone().requires_grad_()
    distance = task.distance(constant.expand(48, -1), targets)
    (slope,) = torch.autograd.grad((distance if weights is None else weights * distance).sum(), constant)
    torch.testing.assert_close(slope, torch.zeros_like(slope), atol=1e-9, rtol=0)


@EVERY_TASK
def test_soft_decisions_become_decisions(key):
    problem = make_problem(key)
    outputs = outputs_of(problem)
    soft = problem.task.soft_decisions(outputs, 1e-9)
    torch.testing.assert_close(soft, problem.task.decisions(outputs))


@EVERY_TASK
def test_a_bias_changes_no_attribution(key):
    problem = make_problem(key)
    references = problem.baselines().of(problem.y)
    before = IntegratedGradients().attribute(problem.score, problem.x, references)
    with torch.no_grad():
        problem.network.last.bias += torch.randn(problem.task.n_outputs)
    torch.testing.assert_close(IntegratedGradients().attribute(problem.score, problem.x, references), before)


@EVERY_TASK
def test_the_default_dtype_of_the_process_changes_nothing(key):
    problem = make_problem(key)
    outputs = outputs_of(problem).float()
    found = []
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            found.append((problem.task.score(outputs, problem.y), problem.task.spread(outputs)))
        finally:
            torch.set_default_dtype(torch.float32)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@EVERY_TASK
@given(counts=st.lists(st.integers(0, 4), min_size=30, max_size=30), seed=st.integers(0, 99))
def test_weights_are_repeated_rows(key, counts, seed):
    problem = make_problem(key, n=30, seed=seed)
    repeats = torch.tensor(counts)
    if len(problem.y[repeats > 0].unique()) < 3:
        return
    weighted = type(problem.task).of(problem.y, repeats.double())
    repeated = type(problem.task).of(problem.y.repeat_interleave(repeats))
    for name, value in vars(repeated).items():
        assert getattr(weighted, name) == pytest.approx(value, rel=1e-9), name


def test_weights_of_a_spread_are_repeated_rows_but_for_pairs_of_copies():
    scores, counts = torch.randn(20, dtype=torch.float64), torch.arange(20) % 4
    repeated, n = scores.repeat_interleave(counts), int(counts.sum())
    pairs = (1 - 1 / n) / (1 - (counts.double() / n).square().sum())
    assert float(spread(scores, counts.double())) == pytest.approx(float(spread(repeated) * pairs))
    both = torch.stack([scores, scores.exp()], dim=1)
    alone = [spread(column, counts.double()) for column in both.T]
    torch.testing.assert_close(spread(both, counts.double()), torch.stack(alone))


def test_the_spread_is_the_mean_difference_of_two_people():
    scores = torch.randn(500, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    difference = (scores.unsqueeze(1) - scores).abs().sum() / (500 * 499)
    assert float(spread(scores)) == pytest.approx(float(difference) * torch.pi**0.5 / 2)
    assert float(spread(scores)) == pytest.approx(float(scores.std()), rel=0.05)
    scores[0] = 50  # tails count less than in a standard deviation
    assert float(spread(scores)) < 0.6 * float(scores.std())


@EVERY_TASK
def test_a_shift_keeps_how_often_is_decided_for_each(key):
    problem = make_problem(key, n=600)
    task, teacher = problem.task, outputs_of(problem)
    student = (
        0.6 * teacher + 0.4 * torch.randn(teacher.shape, generator=torch.Generator().manual_seed(1)) + 0.5
    )
    moved = student + task.shift(student, teacher)
    wanted, before, after = (task.decisions(each).mean(0) for each in (teacher, student, moved))
    tolerance = {"binary": 1e-12, "classes": 0.01, "number": 1e-12}[key]
    assert (after - wanted).abs().max() <= tolerance < (before - wanted).abs().max()


# --- two classes ---------------------------------------------------------------------------------------


def test_two_classes_are_the_same_as_one_logit():
    problem = make_problem(n=300)
    logits, y, groups = outputs_of(problem), problem.y, problem.groups
    classes, outputs = as_classes(logits, y)
    sign = 2.0 * y - 1
    torch.testing.assert_close(classes.score(outputs, y), sign * problem.task.score(logits, y))
    torch.testing.assert_close(classes.spread(outputs), problem.task.spread(logits))
    teacher = 1.5 * logits - 0.2
    _, targets = as_classes(teacher, y)
    torch.testing.assert_close(
        classes.distance(outputs, classes.predictions(targets)),
        problem.task.distance(logits, problem.task.predictions(teacher)),
    )
    torch.testing.assert_close(classes.loss(outputs, y), problem.task.loss(logits, y))
    for outcome in classes.outcomes:
        found, expected = (
            float(outcome_gap(task, task.decisions(each), y, groups, 2, outcome))
            for task, each in ((classes, outputs), (problem.task, logits))
        )
        assert found == pytest.approx(expected, abs=1e-12)
    bias, shift = classes.shift(outputs, targets), problem.task.shift(logits, teacher)
    assert float(bias[1] - bias[0]) == pytest.approx(float(shift), abs=1e-9)


def test_two_classes_have_the_gap_of_one_logit():
    problem = make_problem()
    classes = Classes.of(problem.y)

    class TwoOutputs(torch.nn.Module):
        def forward(self, x):
            logit = problem.network(x).unsqueeze(1)
            return torch.cat([-0.3 * logit, 0.7 * logit], dim=1)

    references, cells = problem.baselines().of(problem.y), problem.task.cells(problem.y)
    gaps = []
    for score in (problem.score, Score.of(TwoOutputs(), classes, problem.y)):
        values = IntegratedGradients(n_steps=12).attribute(score, problem.x, references)
        gaps.append(reason_gap(values, torch.eye(2).double(), cells, sampled=False))
    assert float(gaps[0][0]) == pytest.approx(float(gaps[1][0]))
    assert float(gaps[0][1]) == pytest.approx(float(gaps[1][1]))


# --- several classes -----------------------------------------------------------------------------------


def test_what_is_added_to_all_outputs_and_classes_that_nobody_has_change_no_score():
    y = torch.tensor([0, 2, 2, 3, 0, 3])
    task = Classes.of(y, n_classes=5)
    outputs = torch.randn(6, 5, dtype=torch.float64)
    moved = outputs + torch.randn(6, 1) * 10
    moved[:, [1, 4]] += torch.randn(6, 2) * 10
    torch.testing.assert_close(task.score(moved, y), task.score(outputs, y))
    torch.testing.assert_close(task.spread(moved), task.spread(moved + 3))
    own, others = outputs[1, 2], (2 * outputs[1, 0] + 2 * outputs[1, 3]) / 4
    assert float(task.score(outputs, y)[1]) == pytest.approx(float(own - others))


# --- numbers -------------------------------------------------------------------------------------------


def test_bins_of_a_number():
    task = Number.of(torch.arange(100.0))
    assert task.n_cells == 10
    assert task.centres == pytest.approx([10 * k + 4.5 for k in range(10)])
    assert torch.bincount(task.cells(torch.arange(100.0))).tolist() == [10] * 10
    assert task.outcome_cells(torch.arange(100.0), "equalized_odds")[1:] == (5, 1 / 5)
    assert task.scale == pytest.approx(float(torch.arange(100.0).double().std(correction=0)))


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, 7.5]), min_size=2, max_size=40))
def test_equal_labels_share_a_bin_and_no_bin_is_empty(labels):
    y = torch.tensor(labels)
    task = Number.of(y)
    cells = task.cells(y)
    assert set(cells.tolist()) == set(range(task.n_cells))
    for cell, centre in enumerate(task.centres):
        assert centre == pytest.approx(float(y[cells == cell].mean()))
    assert (cells[y.argsort()].diff() >= 0).all()


# --- the registry --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "key"),
    [
        ([0, 1, 1], "binary"),
        ([0.0, 1.0], "binary"),
        ([True, False], "binary"),
        ([0, 2, 1], "classes"),
        ([0.0, 2.0, 1.0], "number"),
        ([0.25, 1.0], "number"),
        ([-1.0, 1.0], "number"),
    ],
)
def test_tasks_are_recognised(labels, key):
    assert task_of(torch.tensor(labels)).key == key


def test_a_task_of_ones_own_and_unknown_ones(monkeypatch):
    class Careful(Binary):
        key = "careful"

    monkeypatch.setattr(TASKS, "data", dict(TASKS.data))
    register_task(Careful)
    assert isinstance(task_of(torch.tensor([0, 1]), "careful"), Careful)
    with pytest.raises(ValueError, match="already registered"):
        gcig.register_task(Careful)
    assert isinstance(task_of(torch.tensor([0.5]), own := Binary()), Task)
    assert task_of(torch.tensor([0.5]), own) is own
    with pytest.raises(KeyError, match=r"no task 'ranks'.*binary"):
        task_of(torch.tensor([0, 1]), "ranks")


def test_outcomes_that_are_not_defined_are_refused():
    with pytest.raises(InputError, match="equal_opportunity") as caught:
        Number.of(torch.arange(5.0)).check_outcome("equal_opportunity")
    assert caught.value.argument == "outcome"


@pytest.mark.parametrize("shape", [(4, 1, 1), (3, 2), ()])
def test_outputs_of_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match=r"\(4, 1\) or \(4, classes\)"):
        as_outputs(torch.zeros(shape), 4)
