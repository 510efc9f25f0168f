"""References: means, curves and members against brute force, and what all kinds promise."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gcig
from gcig._arguments import InputError
from gcig.core.gap import reason_gap
from gcig.core.references import (
    REFERENCES,
    GroupBaselines,
    Means,
    Members,
    ReferenceRows,
    legitimate_columns,
    reference_kinds,
    register_references,
)
from gcig.core.task import TASKS, Binary
from support.problems import make_problem

EVERY_KIND = pytest.mark.parametrize("kind", list(REFERENCES))
EVERY_TASK = pytest.mark.parametrize("key", list(TASKS))
ONE_CELL = torch.zeros(1, dtype=torch.long)


def rows_of(problem, **options):
    return problem.baselines(**options).rows


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def positions(x, references):
    """Return the position of each reference among the rows; -1 if it is none of them."""
    same = (references.unsqueeze(-2) == x).all(-1)
    return torch.where(same.any(-1), same.int().argmax(-1), -1)


# --- every kind ----------------------------------------------------------------------------------------


@EVERY_KIND
@EVERY_TASK
@pytest.mark.parametrize("shape", [(4,), (2, 2), (1, 2, 2)])
def test_rows_of_a_cell_have_the_same_references_of_any_shape(kind, key, shape):
    problem = make_problem(key, groups=3)
    problem = problem._replace(x=problem.x.view(-1, *shape))
    cells = problem.task.cells(problem.y)
    found = REFERENCES[kind](rows_of(problem)).of(cells, seeded())
    assert found.shape[1:] == (3, 48, *shape)
    assert found.dtype == problem.x.dtype
    assert not found.requires_grad
    for cell in cells.unique():
        own = found[:, :, cells == cell]
        assert torch.equal(own, own[:, :, :1].expand_as(own))


@EVERY_KIND
@EVERY_TASK
def test_groups_agree_in_legitimate_columns_alone(kind, key):
    problem = make_problem(key, groups=3)
    legitimate = torch.tensor([True, False, True, False])
    found = REFERENCES[kind](rows_of(problem, legitimate=legitimate)).of(
        problem.task.cells(problem.y), seeded()
    )
    apart = (found - found[:, :1]).abs().amax((0, 1, 2))
    assert (apart[legitimate] == 0).all()
    assert (apart[~legitimate] > 0.1).all()


@EVERY_KIND
@EVERY_TASK
def test_rows_without_weight_do_not_exist(kind, key):
    problem = make_problem(key, n=90)
    weights = torch.ones(90).double()
    weights[::4] = 0
    kept, cells = weights > 0, torch.arange(problem.task.n_cells)
    few = problem._replace(x=problem.x[kept], y=problem.y[kept], groups=problem.groups[kept])
    found = REFERENCES[kind](rows_of(problem, sample_weight=weights)).of(cells, seeded())
    expected = REFERENCES[kind](rows_of(few)).of(cells, seeded())
    torch.testing.assert_close(found, expected)


# --- means ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["binary", "classes"])
@given(counts=st.lists(st.integers(0, 3), min_size=48, max_size=48))
def test_means_by_brute_force_with_weights(key, counts):
    problem, w = make_problem(key, groups=3), torch.tensor(counts)
    baselines = problem.baselines(sample_weight=w.double(), min_cell=3)
    for cell in range(problem.task.n_cells):
        for group in range(3):
            own = (problem.y == cell) & (problem.groups == group) & (w > 0)
            assert baselines.counts[cell, group] == own.sum()
            assert baselines.defined[cell, group] == (own.sum() >= 3)
            if own.any():
                expected = problem.x[own].repeat_interleave(w[own], 0).mean(0)
                torch.testing.assert_close(baselines.values[cell, group], expected)
    assert baselines.all_defined == bool(baselines.defined.all())


@pytest.mark.parametrize("weighted", [False, True])
def test_curves_are_those_of_numpy(weighted):
    problem = make_problem("number", n=300, groups=3)
    far = (problem.groups == 2) & (problem.y > problem.y.median())  # a group with a range of its own
    problem = problem._replace(x=problem.x[~far], y=problem.y[~far], groups=problem.groups[~far])
    weights = torch.arange(len(problem.y)).double() % 3 + 1 if weighted else None
    task = type(problem.task).of(problem.y, weights)
    found = problem.baselines(task=task, sample_weight=weights).values
    assert max(task.centres) > problem.y[problem.groups == 2].max()
    for group in range(3):
        own = (problem.groups == group).numpy()
        x, y = problem.x.numpy()[own], problem.y.numpy()[own]
        root = None if weights is None else np.sqrt(weights.numpy()[own])
        at = np.clip(task.centres, y.min(), y.max())
        for column in range(4):
            expected = np.polyval(np.polyfit(y, x[:, column], 2, w=root), at)
            np.testing.assert_allclose(found[:, group, column], expected, rtol=1e-8, atol=1e-9)


def test_curves_of_groups_with_few_labels_go_through_their_means():
    y = torch.tensor([0.0, 0.0, 10.0, 10.0, *torch.arange(20.0), 4.0])
    groups = torch.tensor([0] * 4 + [1] * 20 + [2])
    x = torch.randn(25, 2)
    values = Means(GroupBaselines.from_data(x, y, groups).rows).values
    assert values.isfinite().all()
    torch.testing.assert_close(values[:, 2], x[24].expand(len(values), 2), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(values[0, 0], x[:2].mean(0), atol=0.5, rtol=1)  # the lowest bin is near 0


def test_a_number_has_references_in_bins_where_a_group_has_nobody():
    y = torch.arange(100.0)
    groups = (y >= 50).long()
    baselines = GroupBaselines.from_data(torch.stack([y, -y], 1), y, groups)
    assert baselines.all_defined
    assert (baselines.counts == 0).any()
    members = Members(baselines.rows).of(torch.arange(10), seeded())
    assert (members[:, 0, :, 0] < 50).all()
    assert (members[:, 1, :, 0] >= 50).all()


# --- members -------------------------------------------------------------------------------------------


@EVERY_TASK
@given(seed=st.integers(0, 2**31), n_draws=st.integers(2, 12))
def test_members_are_different_people_of_the_cell(key, seed, n_draws):
    problem = make_problem(key, n=240, groups=3)
    cells = torch.arange(problem.task.n_cells)
    found = Members(rows_of(problem), n_draws).of(cells, seeded(seed))
    places = positions(problem.x, found)  # (draws, groups, cells)
    assert (places >= 0).all()
    counts = problem.baselines().counts
    for group in range(3):
        assert (problem.groups[places[:, group]] == group).all()
        for cell in cells:
            own = places[:, group, cell]
            if key == "number" and counts[cell, group] < 5:
                assert (problem.task.cells(problem.y[own]) - cell).abs().max() <= 2
                continue
            assert (problem.task.cells(problem.y[own]) == cell).all()
            assert len(own.unique()) == min(n_draws, int(counts[cell, group]))


def test_every_member_is_drawn_as_often_as_its_weight_says():
    n, weights = 30, 1 + torch.arange(30.0).double() % 5
    x, groups = torch.arange(2.0 * n).view(n, 2), torch.arange(n) % 2
    rows = ReferenceRows(x, torch.zeros(n).long(), groups, Binary(), 2, weights)
    members, generator = Members(rows, 3), seeded()
    drawn = torch.cat(
        [positions(x, members.of(ONE_CELL, generator)).flatten(1).T for _ in range(3000)], dim=1
    )
    each = members.one_each(torch.zeros(9000).long(), torch.zeros(9000).long(), generator)
    for group, places in ((0, drawn[0]), (1, drawn[1]), (0, positions(x, each))):
        share = torch.bincount(places, minlength=n) / len(places)
        expected = torch.where(groups == group, weights, 0.0)
        torch.testing.assert_close(share.double(), expected / expected.sum(), atol=0.01, rtol=0)


@pytest.mark.parametrize("n_draws", [2, 4])
def test_any_two_members_are_drawn_together_equally_often_in_a_sorted_table(n_draws):
    """Otherwise products of two draws are biased: members with neighbouring rows are alike."""
    x = torch.arange(16.0).unsqueeze(1)
    rows = ReferenceRows(x, torch.zeros(16).long(), torch.arange(16) // 8, Binary(), 2)
    members, generator, alike, count = Members(rows, n_draws), seeded(), 0, 4000
    for _ in range(count):
        drawn = members.of(ONE_CELL, generator)[:, 0, 0, 0]
        alike += ((drawn.unsqueeze(1) // 4) == (drawn // 4)).float().triu(1).sum()
    pairs = n_draws * (n_draws - 1) / 2
    assert float(alike) / count / pairs == pytest.approx(3 / 7, abs=0.08)


@pytest.mark.parametrize("order", ["as it comes", "sorted"])
def test_the_gap_of_draws_has_the_expectation_of_all_pairs(order):
    x = torch.randn(200, 2, dtype=torch.float64, generator=seeded())
    x = x if order == "as it comes" else x[x[:, 0].argsort()]
    groups = torch.arange(200) % 2
    x[groups == 1] += 0.4
    rows = ReferenceRows(x, torch.zeros(200).long(), groups, Binary(), 2)
    members, generator, pair = Members(rows, 4), seeded(), torch.eye(2).double().repeat(1, 4)
    draws = [-members.of(ONE_CELL, generator).flatten(0, 1) for _ in range(2000)]
    found = torch.stack([reason_gap(each, pair, ONE_CELL, draws=4)[0] for each in draws])
    everybody = torch.stack([groups == 0, groups == 1]).double()
    expected = float(reason_gap(-x.unsqueeze(1), everybody, ONE_CELL)[0])
    assert float(found.mean()) == pytest.approx(expected, abs=4 * float(found.std()) / 2000**0.5)


def test_draws_follow_the_generator():
    members, cells = Members(rows_of(make_problem())), torch.tensor([0, 1, 1])
    assert torch.equal(members.of(cells, seeded(3)), members.of(cells, seeded(3)))
    assert not torch.equal(members.of(cells, seeded(3)), members.of(cells, seeded(4)))


# --- baselines for own loops ---------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["binary", "classes"])
def test_moving_averages_follow_mini_batches(key):
    problem = make_problem(key)
    baselines = problem.baselines(rate=0.25)
    before = baselines.values.clone()
    own = (problem.y == 1) & (problem.groups == 0)
    baselines.update(problem.x[own] + 1, problem.y[own], problem.groups[own])
    expected = before.clone()
    expected[1, 0] = 0.75 * before[1, 0] + 0.25 * (problem.x[own] + 1).mean(0)
    torch.testing.assert_close(baselines.values, expected)
    torch.testing.assert_close(baselines.of(problem.y), expected[problem.y].transpose(0, 1))


def test_moving_averages_stay_equal_in_legitimate_columns():
    problem = make_problem(groups=3)
    baselines = problem.baselines(legitimate=torch.tensor([True, False, False, False]), rate=1.0)
    baselines.update(problem.x[:20] + 3, problem.y[:20], problem.groups[:20])
    for label in (0, 1):
        pooled = (problem.x[:20] + 3)[problem.y[:20] == label, 0].mean()
        torch.testing.assert_close(baselines.values[label, :, 0], pooled.expand(3))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copies_are_independent(duplicate):
    problem = make_problem()
    baselines = problem.baselines()
    twin = duplicate(baselines)
    twin.update(problem.x[:9], problem.y[:9], problem.groups[:9])
    assert not torch.equal(twin.values, baselines.values)
    assert not list(baselines.parameters())


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"x": torch.ones(4, 2).long()}, "x"),
        ({"y": torch.zeros(3).long()}, "y"),
        ({"groups": torch.zeros(4, 1).long()}, "groups"),
        ({"groups": torch.tensor([0.0, 1, 0, 1])}, "groups"),
        ({"groups": torch.tensor([-1, 1, 0, 1])}, "groups"),
        ({"groups": torch.zeros(4).long()}, "n_groups"),
        ({"n_groups": 1}, "n_groups"),
        ({"y": torch.tensor([-1, 1, -1, 1])}, "y"),
        ({"y": torch.tensor([0, 2, 0, 1]), "task": "binary"}, "y"),
        ({"sample_weight": torch.ones(3)}, "sample_weight"),
        ({"min_cell": 0}, "min_cell"),
        ({"rate": 0.0}, "rate"),
    ],
)
def test_errors_name_the_argument(change, name):
    rows = {"x": torch.ones(4, 2), "y": torch.tensor([0, 1, 0, 1]), "groups": torch.tensor([0, 0, 1, 1])}
    with pytest.raises(ValueError, match=rf"^{name}\b"):
        GroupBaselines.from_data(**{**rows, **change})


def test_a_kind_of_ones_own(monkeypatch):
    class Origin:
        sampled = False

        def __init__(self, rows):
            self.rows = rows

        def of(self, cells, generator=None):  # noqa: ARG002 (of the protocol)
            return torch.zeros(1, self.rows.n_groups, len(cells), *self.rows.inputs.shape[1:])

    monkeypatch.setattr(REFERENCES, "data", dict(REFERENCES.data))
    register_references("origin", Origin)
    problem = make_problem()
    penalty = gcig.ReasonGapPenalty(problem.baselines(), references="origin")
    assert penalty(problem.network, problem.x, problem.y).item() == 0
    assert reference_kinds("origin") == ("origin",)
    assert reference_kinds("both") == ("means", "members")
    with pytest.raises(ValueError, match="already registered"):
        gcig.register_references("means", Origin)


def test_unknown_legitimate_columns_are_named():
    assert legitimate_columns("b", ["a", "b"]) == [1]
    assert legitimate_columns(None, ["a"]) == []
    with pytest.raises(InputError, match="'c'") as caught:
        legitimate_columns(["a", "c"], ["a", "b"])
    assert caught.value.argument == "legitimate"
