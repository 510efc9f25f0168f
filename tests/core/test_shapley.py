"""Shapley values against brute force over all orders, and their errors against what they say."""

import itertools
import math

import numpy as np
import pytest

from gcig.core.shapley import Levels, count_points, is_exact, shapley_values

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _same_numbers_whichever_tests_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "RNG", np.random.default_rng(1))


def interacting(points: np.ndarray) -> np.ndarray:
    """Products, a threshold and a sum over all columns."""
    return points[:, 0] * points[:, 1] + (points[:, -1] > 0.3) * points[:, 2] + np.tanh(points.sum(axis=1))


def by_all_orders(value, row: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """The definition: mean marginal contribution over all c! orders."""
    c = len(row)
    total = np.zeros(c)
    for order in itertools.permutations(range(c)):
        point = reference.copy()
        before = value(point[None])[0]
        for column in order:
            point[column] = row[column]
            after = value(point[None])[0]
            total[column] += after - before
            before = after
    return total / math.factorial(c)


def fixed(references: np.ndarray):
    """Draws that do not depend on their uniforms."""
    return lambda u: np.broadcast_to(references[:, None], (len(references), *u.shape)).copy()


@pytest.mark.parametrize("c", [1, 2, 3, 5])
def test_enumeration_is_the_definition(c: int) -> None:
    columns = max(c, 3)
    rows, references = RNG.normal(size=(4, columns)), RNG.normal(size=(2, columns))
    found = shapley_values(interacting, rows, fixed(references), n_pairs=4, random=False, rng=RNG)
    expected = [[by_all_orders(interacting, row, reference) for row in rows] for reference in references]
    np.testing.assert_allclose(found.values, expected, atol=1e-12)
    assert found.replicates is None


def test_sampling_converges_to_the_definition_within_its_standard_error() -> None:
    rows, references = RNG.normal(size=(6, 10)), RNG.normal(size=(2, 10))
    assert not is_exact(10, 40, random=False)
    exact = shapley_values(
        interacting, rows, fixed(references), n_pairs=10_000, random=False, rng=np.random.default_rng(0)
    )
    assert exact.replicates is None
    sampled = shapley_values(
        interacting, rows, fixed(references), n_pairs=40, random=False, rng=np.random.default_rng(1)
    )
    assert sampled.replicates is not None
    assert len(sampled.replicates) == 40
    standard_error = sampled.replicates.std(axis=0, ddof=1) / np.sqrt(40)
    z = (sampled.values - exact.values)[standard_error > 1e-12] / standard_error[standard_error > 1e-12]
    assert 0.6 < np.sqrt((z**2).mean()) < 1.6
    np.testing.assert_allclose(sampled.replicates.mean(axis=0), sampled.values)


def test_values_are_complete_in_every_mode() -> None:
    rows, references = RNG.normal(size=(5, 10)), RNG.normal(size=(3, 10))
    for n_pairs in (2, 10_000):
        found = shapley_values(interacting, rows, fixed(references), n_pairs=n_pairs, random=False, rng=RNG)
        change = interacting(rows)[None] - interacting(references)[:, None]
        np.testing.assert_allclose(found.values.sum(axis=2), change, atol=1e-12)
        np.testing.assert_allclose(found.change, change, atol=1e-12)


def test_antithetic_pairs_are_exact_for_interactions_of_two_columns() -> None:
    """One order and its reverse share every product in half, whatever the order."""
    rows, references = RNG.normal(size=(3, 9)), RNG.normal(size=(1, 9))
    found = shapley_values(
        lambda x: x[:, 0] * x[:, 1], rows, fixed(references), n_pairs=2, random=False, rng=RNG
    )
    a, b = rows[:, 0], rows[:, 1]
    r, s = references[0, :2]
    np.testing.assert_allclose(found.values[0, :, 0], (a - r) * (b + s) / 2, atol=1e-12)
    assert np.abs(found.values[0, :, 2:]).max() < 1e-12


@pytest.mark.parametrize("c", [3, 12])
def test_drawn_references_average_over_draws(c: int) -> None:
    """A linear score depends on the mean of the draws alone, which are spread evenly."""
    weights = RNG.normal(size=c)
    rows = RNG.normal(size=(4, c))
    chance = 0.25
    found = shapley_values(
        lambda x: x @ weights,
        rows,
        lambda u: (u < chance)[None].astype(float),
        n_pairs=16,
        random=True,
        rng=np.random.default_rng(0),
    )
    np.testing.assert_allclose(found.values[0], (rows - chance) * weights, atol=0.08 * np.abs(weights).max())


def test_controlled_draws_are_exact_for_additive_scores_and_unbiased_for_others() -> None:
    """Two columns of three levels, under two groups with other frequencies."""
    chances = np.array([[0.2, 0.5, 0.3], [0.7, 0.2, 0.1]])
    rows = RNG.integers(0, 3, size=(5, 12)).astype(float)
    effect = np.array([0.0, 2.0, -1.0])

    def draw(u: np.ndarray) -> np.ndarray:
        upper = chances.cumsum(axis=1)
        drawn = np.zeros((2, *u.shape))
        for g in range(2):
            drawn[g, ..., :2] = np.searchsorted(upper[g], u[..., :2])
        return drawn

    levels = [Levels(column, np.arange(3.0), chances) for column in (0, 1)]

    def additive(x: np.ndarray) -> np.ndarray:
        return effect[x[:, 0].astype(int)] + effect[x[:, 1].astype(int)] + x[:, 2]

    def sampled(value, seed: int, levels=levels):
        rng = np.random.default_rng(seed)
        return shapley_values(value, rows, draw, n_pairs=4, random=True, rng=rng, levels=levels)

    found = sampled(additive, 0)
    for column in (0, 1):
        expected = effect[rows[:, column].astype(int)] - (chances @ effect)[:, None]
        np.testing.assert_allclose(found.values[..., column], expected, atol=1e-12)
    np.testing.assert_allclose(found.values.sum(axis=2), found.change, atol=1e-12)

    def crossed(x: np.ndarray) -> np.ndarray:
        return additive(x) + effect[x[:, 0].astype(int)] * effect[x[:, 1].astype(int)]

    with_control = np.stack([sampled(crossed, seed).values for seed in range(200)])
    without = np.stack([sampled(crossed, seed, ()).values for seed in range(200)])
    error = np.sqrt((with_control.var(axis=0) + without.var(axis=0)) / 200)
    assert np.abs(with_control.mean(axis=0) - without.mean(axis=0)).max() < 5 * error.max()
    assert with_control.var() < without.var()


def test_calls_are_bounded_and_chunks_do_not_matter() -> None:
    rows, references = RNG.normal(size=(20, 10)), RNG.normal(size=(2, 10))
    sizes = []

    def counted(points: np.ndarray) -> np.ndarray:
        sizes.append(len(points))
        return interacting(points)

    options = {"n_pairs": 3, "random": False}
    whole = shapley_values(interacting, rows, fixed(references), rng=np.random.default_rng(0), **options)
    parts = shapley_values(
        counted, rows, fixed(references), rng=np.random.default_rng(0), max_points=50, **options
    )
    assert max(sizes) <= 50
    assert len(sizes) == 1 + 3 * 20  # a row's 38 points at a time
    np.testing.assert_allclose(parts.values, whole.values)
    assert sum(sizes) == 20 + 3 * 2 * 20 * (2 * 10 - 1)


@pytest.mark.parametrize("columns", [3, 12])
@pytest.mark.parametrize("random", [False, True])
def test_rows_are_counted_as_they_are_explained(columns: int, random: bool) -> None:
    """The counts add up to the rows, for enumerated and for sampled coalitions."""
    rows, counted = np.random.default_rng(0).normal(size=(40, columns)), []
    shapley_values(
        lambda x: x.sum(axis=1),
        rows,
        lambda u: np.zeros((2, *u.shape)),
        n_pairs=4,
        random=random,
        rng=np.random.default_rng(0),
        max_points=500,
        advance=counted.append,
    )
    assert sum(counted) == pytest.approx(40)
    assert len(counted) > 1


def test_groups_share_orders_and_draws() -> None:
    """Equal references get equal values to the last bit, so that no noise passes for disparity."""
    rows, reference = RNG.normal(size=(5, 12)), RNG.normal(size=12)
    found = shapley_values(
        interacting, rows, fixed(np.stack([reference, reference])), n_pairs=2, random=False, rng=RNG
    )
    np.testing.assert_array_equal(found.values[0], found.values[1])


def test_nothing_to_explain_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        shapley_values(
            interacting, np.empty((0, 3)), fixed(np.zeros((1, 3))), n_pairs=1, random=False, rng=RNG
        )


@pytest.mark.parametrize(
    ("c", "n_pairs", "random"), [(3, 4, False), (3, 40, True), (3, 400, True), (12, 5, False), (12, 5, True)]
)
def test_the_number_of_points_is_that_of_the_evaluations(c: int, n_pairs: int, random: bool) -> None:
    seen = 0

    def counting(points: np.ndarray) -> np.ndarray:
        nonlocal seen
        seen += len(points)
        return points.sum(axis=1)

    rows, references = RNG.normal(size=(5, c)), RNG.normal(size=(1, c))
    rng = np.random.default_rng(0)
    shapley_values(counting, rows, fixed(references), n_pairs=n_pairs, random=random, rng=rng)
    # The rows themselves are evaluated once more, whatever the number of references.
    assert seen == pytest.approx(5 * count_points(c, n_pairs, random=random), rel=0.15)


def test_enumeration_of_random_references_draws_as_often_as_sampling_would_evaluate() -> None:
    assert count_points(3, 400, random=True) == 400 * 5 // 8 * 8  # 250 draws of 8 coalitions


def test_enumeration_is_chosen_up_to_the_cost_of_sampling() -> None:
    assert is_exact(8, 1, random=False)  # 256 points are always affordable
    assert not is_exact(9, 1, random=False)
    assert is_exact(10, 54, random=False)  # 54 * 19 = 1026 points, against 1024
    assert not is_exact(10, 53, random=False)
