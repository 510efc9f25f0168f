"""The table of attributions: figures against brute force, chance, intervals, and who is chosen."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch.func import jacrev, vmap

from gcig.core.attribution import IntegratedGradients, Score
from gcig.core.explained import (
    LEAST_PEOPLE,
    LEAST_REFERENCES,
    Block,
    ExplainedTable,
    ReasonFigures,
    choose,
    explain_table,
    hashed_keys,
)
from gcig.core.gcig import column_matrix
from gcig.core.task import TASKS
from support.problems import make_problem

EVERY_TASK = pytest.mark.parametrize("key", list(TASKS))
ORIGIN = torch.tensor([0, 1, 1, 2])


def make_table(problem, *, keys=None, people=30, references=60, seed=0, **options):
    """The table of a problem's rows, of which some are explained relative to others."""
    n, task = len(problem.x), problem.task
    keys = np.arange(n) if keys is None else keys
    chosen, others = choose(
        task.cells(problem.y).numpy(), problem.groups.numpy(), hashed_keys(keys, seed), people, references
    )
    return explain_table(
        lambda y: Score.of(problem.network, task, y),
        IntegratedGradients(),
        task,
        (problem.x, problem.y),
        problem.x,
        chosen,
        others,
        **{"spread": 2.0, "columns": column_matrix(ORIGIN).double(), **options},
    )


def synthetic(rng, n_people=40, sizes=(60, 60), gap=0.0, varying=0.0):
    """A table of groups whose references differ by `gap`, and by `varying` times a trait of the person."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    references = rng.normal(size=len(groups)) + gap * groups
    others = rng.normal(size=len(groups)) + varying * groups
    people = rng.normal(size=n_people)
    first = np.tile(-references[:, None], n_people) + people
    a = np.stack([first, -others[:, None] * people], axis=-1)  # (references, people, columns)
    order = rng.permutation(len(groups))
    a, groups = torch.from_numpy(a[order]), torch.from_numpy(groups[order])
    n = len(groups)
    ones = [torch.ones(count).double() for count in (n, n_people)]
    block = Block(1.0, a, torch.arange(n), torch.arange(n_people), *ones)
    return ExplainedTable((block,), 1.0), groups


# --- what is in the table ------------------------------------------------------------------------------


@EVERY_TASK
def test_attributions_are_those_of_every_person_relative_to_every_reference(key):
    problem = make_problem(key, n=900)
    table = make_table(problem)
    assert len(table.blocks) == problem.task.n_cells
    assert sum(block.share for block in table.blocks) == pytest.approx(1)
    slope = vmap(jacrev(lambda x, c: (torch.atleast_1d(problem.network(x[None]).squeeze(0)) * c).sum()))
    nodes, weights = np.polynomial.legendre.leggauss(2)
    for cell, block in enumerate(table.blocks):
        people, references = problem.x[block.people], problem.x[block.references]
        cells = problem.task.cells(problem.y)
        assert (cells[block.people] == cell).all()
        assert (cells[block.references] == cell).all()
        assert not set(block.people.tolist()) & set(block.references.tolist())
        contrast = problem.task.contrast(problem.y[block.people]).double()
        for r in (0, len(references) - 1):
            difference, mean = people - references[r], 0
            for t, w in zip((nodes + 1) / 2, weights / 2, strict=True):
                mean = mean + w * slope(references[r] + t * difference, contrast)
            a = (difference * mean).detach()
            expected = torch.stack([a[:, 0], a[:, 1] + a[:, 2], a[:, 3]], 1) / 2.0
            torch.testing.assert_close(block.attributions[r], expected)


@EVERY_TASK
def test_figures_are_those_of_brute_force(key):
    """Person by person and pair of references by pair, with the shares of labels."""
    problem = make_problem(key, n=1500)._replace(groups=torch.arange(1500) % 3)
    table = make_table(problem, people=20, references=15)
    squares, total = np.zeros(2), 0.0
    for block in table.blocks:
        a, g = block.attributions.numpy(), problem.groups[block.references].numpy()
        parts = []
        for values, freedom in ((a, a.shape[1]), (a - a.mean(1, keepdims=True), a.shape[1] - 1)):
            products = np.einsum("ric,sic->irs", values, values)
            for i in range(a.shape[1]):
                np.fill_diagonal(products[i], 0)
            sizes = np.bincount(g, minlength=3)
            cross = np.stack(
                [[products[:, g == p][:, :, g == q].sum((1, 2)) for q in range(3)] for p in range(3)]
            )
            own = [cross[p, p] / (sizes[p] * (sizes[p] - 1)) for p in range(3)]
            pairs = [(0, 1), (0, 2), (1, 2)]
            gaps = [own[p] + own[q] - 2 * cross[p, q] / (sizes[p] * sizes[q]) for p, q in pairs]
            parts.append(np.mean(gaps, axis=0).sum() / freedom)
        squares += block.share * np.array(parts)
        total += block.share
    expected = squares / total
    assert table.squares(problem.groups, 3).tolist() == pytest.approx(expected.tolist())
    figures = table.figures(problem.groups, 3, n_permutations=9)
    signed = [
        math.copysign(abs(each) ** 0.5, each)
        for each in (expected[0], expected[0] - expected[1], expected[1])
    ]
    assert [figures.gap.value, figures.common.value, figures.varying.value] == pytest.approx(signed)
    for each in (figures.gap, figures.common, figures.varying):
        assert each.low <= each.value <= each.high
        assert each.chance < each.detectable


def test_differences_by_column_add_up_to_the_common_part():
    problem = make_problem(n=900)
    table = make_table(problem)
    means, deviations = table.by_column(problem.groups, 0, 1)
    expected = 0
    for block in table.blocks:
        g = problem.groups[block.references]
        expected = expected + block.share * (
            block.attributions[g == 1].mean(0) - block.attributions[g == 0].mean(0)
        )
    assert means.tolist() == pytest.approx(expected.mean(0).tolist() if table.blocks else [])
    assert (deviations > 0).all()
    back, _ = table.by_column(problem.groups, 1, 0)
    torch.testing.assert_close(back, -means)


def test_weights_of_people_and_references_are_repeated_rows():
    table, groups = synthetic(np.random.default_rng(0), 24, (20, 22), gap=0.5)
    (block,) = table.blocks
    people, counts = torch.arange(24) % 3, 1 + torch.arange(42) % 2
    weighted = replace(block, people_weights=people.double())
    repeated = replace(
        block,
        attributions=block.attributions.repeat_interleave(people, 1),
        people_weights=torch.ones(int(people.sum())).double(),
    )
    one, other = (replace(table, blocks=(each,)) for each in (weighted, repeated))
    gap, expected = (each.squares(groups, 2)[0].item() for each in (one, other))
    assert gap == pytest.approx(expected)
    for found, wanted in zip(one.by_column(groups, 0, 1), other.by_column(groups, 0, 1), strict=True):
        torch.testing.assert_close(found, wanted)
    heavy = replace(table, blocks=(replace(block, weights=counts.double()),))
    means, _ = heavy.by_column(groups, 0, 1)
    copies = block.attributions.repeat_interleave(counts, 0).mean(1)
    g = groups.repeat_interleave(counts)
    torch.testing.assert_close(means, copies[g == 1].mean(0) - copies[g == 0].mean(0))


def test_legitimate_columns_do_not_count():
    problem = make_problem(n=900, seed=3)
    legitimate = torch.tensor([True, False, False, False])  # the groups differ in the first column
    free, declared = (make_table(problem, legitimate=each) for each in (None, legitimate))
    before, after = (each.figures(problem.groups, 2, n_permutations=99).gap for each in (free, declared))
    assert before.p < 0.02
    assert abs(after.value) < 0.5 * before.value
    everything = make_table(problem, legitimate=torch.ones(4, dtype=torch.bool)).figures(problem.groups, 2)
    assert abs(everything.gap.value) < 1e-3  # donors are the same for all groups: no noise of their own


# --- chance and intervals ------------------------------------------------------------------------------


def test_p_values_are_uniform_if_groups_are_drawn_by_coin():
    p = []
    for seed in range(150):
        table, groups = synthetic(np.random.default_rng(seed), 20, (25, 40))
        figures = table.figures(groups, 2, n_permutations=99, seed=seed)
        p.append([figures.gap.p, figures.common.p, figures.varying.p])
    for each in np.transpose(p):
        assert kstest(each, "uniform").pvalue > 0.001
        assert np.mean(each <= 0.1) == pytest.approx(0.1, abs=0.08)


@pytest.mark.parametrize(("gap", "varying"), [(0.6, 0.0), (0.3, 0.8)])
def test_intervals_cover(gap, varying):
    """The truth is that of the population of people and references."""
    truth = {"gap": (gap**2 + varying**2) ** 0.5, "common": gap, "varying": varying}
    inside = {name: [] for name in truth}
    for seed in range(120):
        table, groups = synthetic(np.random.default_rng(seed), 60, (120, 100), gap, varying)
        figures = table.figures(groups, 2, n_permutations=9)
        for name, value in truth.items():
            figure = getattr(figures, name)
            inside[name].append(figure.low <= value + 1e-9 and value <= figure.high + 1e-9)
    assert all(np.mean(each) > 0.88 for each in inside.values()), {k: np.mean(v) for k, v in inside.items()}


def test_a_dependence_that_is_detectable_is_found_in_four_of_five_cases():
    table, groups = synthetic(np.random.default_rng(0), 40, (80, 80))
    at = table.figures(groups, 2).gap.detectable
    found = []
    for seed in range(40):
        table, groups = synthetic(np.random.default_rng(seed), 40, (80, 80), gap=at)
        found.append(table.figures(groups, 2, n_permutations=99).gap.p <= 0.05)
    assert 0.65 < np.mean(found) < 0.95


def test_another_grouping_is_another_figure_of_the_same_table():
    problem = make_problem(n=900, seed=3)
    table = make_table(problem)
    coin = torch.randint(4, (900,), generator=torch.Generator().manual_seed(0))
    both = table.squares(torch.stack([problem.groups, problem.groups]), 2)
    torch.testing.assert_close(both[0], table.squares(problem.groups, 2))
    assert table.figures(problem.groups, 2, n_permutations=99).gap.p == pytest.approx(0.01)
    assert table.figures(coin, 4, n_permutations=99).gap.p > 0.02


# --- who is chosen -------------------------------------------------------------------------------------


def test_who_is_chosen_depends_on_keys_and_seed_alone():
    problem = make_problem("classes", n=900, groups=3)
    order = torch.randperm(900, generator=torch.Generator().manual_seed(1))
    shuffled = problem._replace(x=problem.x[order], y=problem.y[order], groups=problem.groups[order])
    table, other = make_table(problem), make_table(shuffled, keys=order.numpy())
    for one, two in zip(table.blocks, other.blocks, strict=True):
        assert torch.equal(one.people, order[two.people])
        assert torch.equal(one.references, order[two.references])
    found, expected = (
        each.figures(p.groups, 3, n_permutations=29) for each, p in ((other, shuffled), (table, problem))
    )
    assert found.gap.value == pytest.approx(expected.gap.value)
    assert (found.gap.p, found.varying.p) == (expected.gap.p, expected.varying.p)
    assert not torch.equal(make_table(problem, seed=1).blocks[0].people, table.blocks[0].people)


def test_sizes_of_the_choice():
    cells, groups = np.repeat([0, 1, 2], [400, 100, 30]), np.arange(530) % 5 == 0
    people, references = choose(cells, groups.astype(int), hashed_keys(np.arange(530), 0), 60, 80)
    assert [len(each) for each in people] == [60, 25, 15]
    assert max(np.bincount(groups[references[0]])) == 80
    for own, others in zip(people, references, strict=True):
        assert not set(own) & set(others)
        assert len(set(cells[[*own, *others]])) == 1


def test_keys_are_spread_evenly():
    keys = hashed_keys(np.arange(10_000), 3).astype(float) / 2**64
    assert kstest(keys, "uniform").pvalue > 0.001
    assert len(np.unique(keys)) == 10_000
    assert abs(np.corrcoef(keys, hashed_keys(np.arange(10_000), 4).astype(float))[0, 1]) < 0.04


# --- undefined -----------------------------------------------------------------------------------------


def test_small_groups_are_left_out_and_too_few_people_are_undefined():
    sizes = (60, 60, LEAST_REFERENCES - 1)
    table, groups = synthetic(np.random.default_rng(0), 40, sizes, gap=0.5)
    two = table.squares(torch.where(groups == 2, -1, groups), 2)
    found = table.figures(groups, 3, n_permutations=9).gap.value
    assert found == pytest.approx(float(two[0].sign() * two[0].abs().sqrt()))
    alone = torch.where(groups == 0, 0, 2)
    small = table.figures(torch.where(groups == 1, -1, alone), 3)
    assert all(math.isnan(value) for value in vars(small.gap).values())
    few, groups = synthetic(np.random.default_rng(0), LEAST_PEOPLE - 1)
    assert repr(few.figures(groups, 2)) == repr(ReasonFigures())


def test_a_label_that_one_group_lacks_is_left_out():
    table, groups = synthetic(np.random.default_rng(0), gap=0.5)
    (block,) = table.blocks
    only = replace(block, share=0.5, references=block.references + len(groups))
    both, codes = replace(table, blocks=(block, only)), torch.cat([groups, torch.zeros_like(groups)])
    assert both.figures(codes, 2, n_permutations=9) == table.figures(groups, 2, n_permutations=9)
    torch.testing.assert_close(both.by_column(codes, 0, 1), table.by_column(groups, 0, 1))
