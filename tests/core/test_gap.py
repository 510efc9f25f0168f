"""The reason gap against brute force: its exact split, additive models, and freedom from noise."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gcig.core.attribution import ATTRIBUTIONS, IntegratedGradients, Score, resolve_attribution
from gcig.core.gap import centre_cells, reason_gap, signed_root, squared_gap
from gcig.core.penalties import gaps_by_kind
from gcig.core.references import REFERENCES, Members
from gcig.core.task import TASKS
from support.problems import Formula, make_problem

EVERY_TASK = pytest.mark.parametrize("key", list(TASKS))
EVERY_KIND = pytest.mark.parametrize("kind", list(REFERENCES))


def by_hand(a, codes, cells, w, people):
    """Squared gap and squared varying part, person by person and pair by pair."""
    a, codes, cells, w, people = (np.asarray(each, dtype=float) for each in (a, codes, cells, w, people))

    def product(i, values, g, h):
        total = mass = 0.0
        for r in np.flatnonzero(codes == g):
            for s in np.flatnonzero(codes == h):
                if r != s:
                    total += w[r] * w[s] * values[r, i] @ values[s, i]
                    mass += w[r] * w[s]
        return total / mass

    def gap(values, i):
        pairs = list(combinations(np.unique(codes), 2))
        return np.mean(
            [
                product(i, values, g, g) + product(i, values, h, h) - 2 * product(i, values, g, h)
                for g, h in pairs
            ]
        )

    rest, freedom = a.copy(), 0.0
    for cell in np.unique(cells):
        own = cells == cell
        if people[own].sum():
            rest[:, own] -= np.average(a[:, own], axis=1, weights=people[own])[:, None]
            freedom += people[own].sum() - (people[own] ** 2).sum() / people[own].sum()
    n = range(len(people))
    whole = sum(people[i] * gap(a, i) for i in n) / people.sum()
    return whole, sum(people[i] * gap(rest, i) for i in n) / freedom


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gap_is_that_of_brute_force(groups, weighted):
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(11, 7, 3, generator=generator, dtype=torch.float64)
    codes, cells = torch.arange(11) % groups, torch.arange(7) % 2
    w = 1 + torch.arange(11.0).double() % 3 if weighted else torch.ones(11).double()
    people = torch.arange(7.0).double() if weighted else torch.ones(7).double()
    member = (codes == torch.arange(groups).unsqueeze(1)) * w
    found = reason_gap(a, member, cells, people=people)
    assert [each.item() for each in found] == pytest.approx(by_hand(a, codes, cells, w, people))


@given(
    groups=st.integers(2, 5),
    people=st.integers(4, 12),
    columns=st.integers(1, 4),
    seed=st.integers(0, 2**31),
)
def test_the_split_is_exact(groups, people, columns, seed):
    """Common is the projection of each group's deviation on the cells, varying the rest of it."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(groups, people, columns, generator=generator, dtype=torch.float64)
    cells = torch.arange(people) % 2
    gap, varying = reason_gap(a, torch.eye(groups).double(), cells, sampled=False)
    d = (a - a.mean(0)).numpy()
    common = np.stack([d[:, cells.numpy() == cell].mean(1) for cell in (0, 1)])[cells].swapaxes(0, 1)
    scale = 2 / (groups - 1) / people
    parts = [scale * (part**2).sum() for part in (d, common, d - common)]
    assert parts[0] == pytest.approx(parts[1] + parts[2])
    freedom = (people - 2) / people  # varying is unbiased in people
    assert [gap.item(), varying.item() * freedom] == pytest.approx([parts[0], parts[2]])


def test_centring_leaves_nothing_that_people_of_a_cell_share():
    a, cells = torch.randn(5, 6, 2).double(), torch.tensor([0, 3, 3, 0, 0, 1])
    weights = torch.tensor([1.0, 2, 1, 0, 3, 1]).double()
    rest, freedom = centre_cells(a, cells, weights)
    for cell in (0, 1, 3):
        own = cells == cell
        torch.testing.assert_close((rest * weights[:, None])[:, own].sum(1), torch.zeros(5, 2).double())
    assert float(freedom) == pytest.approx(8 - (10 / 4 + 5 / 3 + 1))


# --- additive models -----------------------------------------------------------------------------------

ADDITIVE = {
    "linear": lambda x: x @ torch.tensor([1.0, -0.5, 2.0, 0.3]).double(),
    "curved": lambda x: x[:, 0].exp() + x[:, 1].sin() * 3 + x[:, 2] ** 3,
}


def outputs_of(task, formula):
    """A module with an additive score for every label: each output is another multiple of it."""
    if task.n_outputs == 1:
        return Formula(formula)
    return Formula(lambda x: formula(x).unsqueeze(1) * torch.tensor([0.0, 1.0, -2.0]).double())


@pytest.mark.parametrize("formula", ADDITIVE)
@EVERY_KIND
@EVERY_TASK
@pytest.mark.parametrize("options", [{}, {"legitimate": torch.tensor([True, False, False, True])}])
def test_an_additive_model_has_a_gap_and_nothing_that_varies(key, kind, formula, options):
    problem = make_problem(key, n=90, groups=3)
    baselines = problem.baselines(**options)
    for how in (IntegratedGradients("gauss_legendre", 24), *map(resolve_attribution, ATTRIBUTIONS)):
        if how.complete and (formula == "linear" or getattr(how, "n_steps", 2) > 2):
            gap, varying = gaps_of(problem, baselines, kind, outputs_of(problem.task, ADDITIVE[formula]), how)
            assert abs(gap) > 1e-3
            assert varying == pytest.approx(0, abs=1e-9)


def gaps_of(problem, baselines, kind, network, how, seed=1):
    references = REFERENCES[kind](baselines.rows)
    cells = problem.task.cells(problem.y)
    drawn = references.of(cells, torch.Generator().manual_seed(seed))
    values = how.attribute(Score.of(network, problem.task, problem.y), problem.x, drawn.flatten(0, 1))
    found = gaps_by_kind({kind: values}, {kind: references}, baselines, cells, 1.0)[kind]
    return [each.item() for each in found]


@EVERY_KIND
@EVERY_TASK
def test_an_interaction_varies(key, kind):
    problem = make_problem(key, n=90)
    module = outputs_of(problem.task, lambda x: x[:, 0] * x[:, 1] * 2 + x[:, 1])
    how = IntegratedGradients()
    found = [gaps_of(problem, problem.baselines(), kind, module, how, seed) for seed in range(100)]
    assert np.mean(found, axis=0)[1] > 0.01


@EVERY_KIND
@EVERY_TASK
def test_of_a_model_that_uses_legitimate_columns_alone_the_gap_is_zero(key, kind):
    problem = make_problem(key, n=90, groups=3)
    baselines = problem.baselines(legitimate=torch.tensor([True, True, False, False]))
    module = outputs_of(problem.task, lambda x: x[:, 0] * x[:, 1] * 2 + x[:, 1].exp())
    for name in ATTRIBUTIONS:
        found = gaps_of(problem, baselines, kind, module, resolve_attribution(name))
        assert found == pytest.approx([0, 0], abs=1e-10)


# --- noise ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(2, 2), (3, 40), (5, 6, 9)])
@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_the_estimate_is_unbiased_for_any_cell_sizes(sizes, shift):
    """References are a sample: the mean over samples is the population's gap, 0 if the groups are alike."""
    generator, groups, count = torch.Generator().manual_seed(0), len(sizes), 4000
    codes = torch.repeat_interleave(torch.arange(groups), torch.tensor(sizes))
    centres = shift * torch.arange(groups).double()
    slopes = torch.tensor(
        [[1.0, 2.0], [0.5, 0.0], [1.0, -1.0]]
    ).double()  # (people, columns): common and varying
    refs = (
        torch.randn(count, len(codes), 2, generator=generator, dtype=torch.float64) + centres[codes][:, None]
    )
    a = -refs.unsqueeze(2) * slopes  # (count, references, people, columns)
    member = (codes == torch.arange(groups).unsqueeze(1)).double()
    cells = torch.zeros(3).long()
    found = torch.stack([torch.stack(reason_gap(each, member, cells)) for each in a])
    population = -centres[:, None, None] * slopes
    expected = torch.stack(reason_gap(population, torch.eye(groups).double(), cells, sampled=False))
    error = found.std(0) / count**0.5
    assert ((found.mean(0) - expected).abs() < 4 * error).all()
    assert shift or (found < 0).any(0).all()


def test_other_groupings_are_a_dimension():
    a, cells = torch.randn(12, 5, 3).double(), torch.zeros(5).long()
    codes = torch.stack([torch.arange(12) % 2, torch.arange(12) // 6])
    member = (codes.unsqueeze(1) == torch.arange(2).view(2, 1)).double()
    together = torch.stack(reason_gap(a, member, cells))
    apart = [torch.stack(reason_gap(a, each, cells)) for each in member]
    torch.testing.assert_close(together, torch.stack(apart, 1))


def test_the_gap_of_several_groups_is_the_mean_over_pairs():
    a, codes = torch.randn(20, 5, 3).double(), torch.arange(20) % 4
    member = (codes == torch.arange(4).unsqueeze(1)).double()
    pairs = [squared_gap(a, member[[g, h]]) for g, h in combinations(range(4), 2)]
    torch.testing.assert_close(squared_gap(a, member), torch.stack(pairs).mean(0))


@pytest.mark.parametrize("draws", [None, 5])
def test_people_are_compared_among_the_groups_that_are_defined(draws):
    a, codes = torch.randn(15, 6, 2).double(), torch.arange(15) % 3
    member = (codes == torch.arange(3).unsqueeze(1)).double()
    defined = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 1, 0], [1, 1, 0, 0, 1, 1]]).bool()
    found = squared_gap(a, member, defined=defined, draws=draws)
    for person, groups in ((0, [0, 1, 2]), (2, [0, 1]), (4, [1, 2])):
        expected = squared_gap(
            a[torch.isin(codes, torch.tensor(groups))],
            member[groups][:, torch.isin(codes, torch.tensor(groups))],
            draws=draws,
        )
        assert float(found[person]) == pytest.approx(float(expected[person]))
    cells = torch.tensor([0, 0, 1, 2, 3, 4])
    gap, _ = reason_gap(a, member, cells, defined=defined, draws=draws)
    assert float(gap) == pytest.approx(float(found[[0, 1, 2, 4]].mean()))  # one group is none to compare with


def test_draws_that_groups_share_do_not_lower_the_gap():
    """Draw j of all groups has entries in common; leaving its products out keeps the estimate unbiased."""
    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(3000, 4, 1, 1, 1, generator=generator, dtype=torch.float64)
    own = torch.randn(3000, 4, 2, 1, 1, generator=generator, dtype=torch.float64)
    a = (shared + 0.3 * own + torch.tensor([0.0, 0.5]).view(2, 1, 1)).flatten(1, 2)
    pair, cells = torch.eye(2).double().repeat(1, 4), torch.zeros(1).long()
    found = torch.stack([reason_gap(each, pair, cells, draws=4)[0] for each in a])
    assert float(found.mean()) == pytest.approx(0.25, abs=4 * float(found.std()) / 3000**0.5)
    blind = torch.stack([reason_gap(each, pair, cells)[0] for each in a])
    assert float(blind.mean()) < 0  # what it would be


def test_a_sample_of_one_draw_is_refused():
    problem = make_problem()
    kinds, values = {"members": Members(problem.baselines().rows, 1)}, {"members": torch.zeros(2, 48, 4)}
    with pytest.raises(ValueError, match=r"'members' are a sample.*two or more"):
        gaps_by_kind(values, kinds, problem.baselines(), problem.task.cells(problem.y), 1.0)


def test_roots_keep_the_sign():
    assert signed_root(torch.tensor([0.25, 0.0, -0.25])).tolist() == [0.5, 0.0, -0.5]
