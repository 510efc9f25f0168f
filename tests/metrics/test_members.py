"""GCIG relative to members: closed forms, freedom from bias, and the noise that is reported."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from gcig.adapters import GradientExplainer, adapt
from gcig.core.definition import Definition
from gcig.core.gcig import column_disparity, independent_squares
from gcig.metrics import evaluate, evaluation, gcig_score
from gcig.metrics.members import MemberComparison, MemberPool
from gcig.metrics.reasons import Comparison
from gcig.metrics.sample import EncodedRows, RandomStreams, Sample
from gcig.metrics.trust import sum_members

WEIGHTS = np.array([1.0, 0.7, -0.5])


def linear() -> nn.Module:
    module = nn.Linear(3, 1, dtype=torch.float64)
    with torch.no_grad():
        module.weight.copy_(torch.tensor(WEIGHTS)[None])
        module.bias.zero_()
    return module


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 6), nn.SiLU(), nn.Linear(6, 6), nn.SiLU(), nn.Linear(6, 1)).double()


def draw(n: int, seed: int, shift: float = 0.0):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    X = rng.normal(size=(n, 3)) + np.outer(sex == "m", [shift, 0, 0])
    return X, (X @ WEIGHTS + rng.normal(size=n) > 0).astype(int), sex


def estimate(model, rows, reference, seed: int) -> tuple[float, float, float]:
    """Return the estimate before it is cut at zero, its standard error and the noise."""
    adapted = adapt(model, rows[0])
    sample = Sample.check(adapted, *rows, reference, None, 2)
    streams = RandomStreams.spawn(seed)
    sums, drawn = evaluation._sum_sample(sample, Definition(), streams)
    pool = evaluation._member_pool(sample, streams)
    found = sum_members(sums.comparison, drawn, pool, streams)
    return float(found.combine(found.total.sum(axis=0))), found.standard_error, found.noise


def test_linear_attributions_relative_to_members_are_those_relative_to_their_mean() -> None:
    rng = np.random.default_rng(0)
    rows, members = rng.normal(size=(5, 3)), rng.normal(size=(2, 7, 3))
    explainer = GradientExplainer(nn.Sequential(linear(), nn.Flatten(0)))
    found = explainer.attribute_members(rows, members, seed=0)
    expected = explainer.attribute(rows, members.mean(axis=1), Definition())
    torch.testing.assert_close(found.values, expected.values)


def test_attributions_of_a_network_are_averaged_over_members() -> None:
    rng = np.random.default_rng(0)
    rows, members = rng.normal(size=(5, 3)), rng.normal(size=(2, 4, 3))
    explainer = GradientExplainer(nn.Sequential(*network(), nn.Flatten(0)))
    definition = Definition(rule="secant", n_steps=1)
    each = [explainer.attribute(rows, members[:, i], definition).values for i in range(4)]
    found = explainer.attribute_members(rows, members, seed=0)
    torch.testing.assert_close(found.values, torch.stack(each).mean(0))
    # With every average gradient replaced by 1, the attribution is the difference itself.
    ones = explainer.attribute_members(rows, members, seed=0, centre=torch.ones_like).values
    torch.testing.assert_close(ones, torch.tensor(rows - members.mean(axis=1, keepdims=True)))


def test_independent_squares_by_hand() -> None:
    first = torch.tensor([[[1.0, 1.0]], [[3.0, -1.0]]], dtype=torch.float64)
    second = torch.tensor([[[2.0, 0.0]], [[1.0, -1.0]]], dtype=torch.float64)
    # Units (1/2, 1/2), (3/4, -1/4) and (1, 0), (1/2, -1/2): differences (-1/4, 3/4) and (1/2, 1/2).
    torch.testing.assert_close(
        independent_squares(first, second), torch.tensor([[-0.125, 0.375]], dtype=torch.float64)
    )
    same = independent_squares(first, first)
    torch.testing.assert_close(same, column_disparity(first).square())


@pytest.mark.parametrize("make", [linear, network])
def test_no_disparity_gives_zero_on_average(make) -> None:
    """Both groups have the same distribution: the naive distance is far above zero, the estimate is not."""
    model, rows = make(), draw(60, 1)
    found = np.array([estimate(model, rows, draw(400, 1000 + seed), seed) for seed in range(30)])
    values, errors, noise = found.T
    assert abs(values.mean()) < 3 * values.std() / math.sqrt(len(values))
    assert errors.mean() == pytest.approx(values.std(), rel=0.5)
    X, y, sex = rows
    naive = np.mean(
        [gcig_score(model, X, y, sensitive_features=sex, reference=draw(400, 1000 + s)) for s in range(5)]
    )
    assert min(naive, noise.mean()) > 2 * abs(values.mean())


def test_estimate_is_close_to_the_truth_of_a_linear_model() -> None:
    model, rows = linear(), draw(150, 1, shift=1.0)
    X, y, sex = rows
    truth = gcig_score(model, X, y, sensitive_features=sex, reference=draw(100_000, 2, shift=1.0))
    values = [estimate(model, rows, draw(600, 100 + seed, shift=1.0), seed)[0] for seed in range(20)]
    assert np.mean(values) == pytest.approx(truth, abs=0.03)


def test_interval_and_definition() -> None:
    X, y, sex = draw(500, 3, shift=1.0)
    model = LogisticRegression().fit(X, y)
    found = evaluate(model, X, y, sensitive_features=sex)
    assert found.gcig_members_low < found.gcig_members < found.gcig_members_high
    assert found.gcig_members == pytest.approx(found.gcig, abs=0.15)
    assert found.members_noise > 0
    members = Definition(reference="members")
    score = gcig_score(model, X, y, sensitive_features=sex, definition=members)
    same = evaluate(model, X, y, sensitive_features=sex, definition=members)
    assert same.gcig == score == pytest.approx(same.gcig_members)
    assert (same.gcig_low, same.gcig_high) == (same.gcig_members_low, same.gcig_members_high)
    assert sum(same.gcig_columns.values()) == pytest.approx(same.gcig)
    assert same.definition["reference"] == "members"


def test_members_are_those_of_the_reference() -> None:
    X, y, sex = draw(300, 4, shift=1.0)
    model = LogisticRegression().fit(X, y)
    shifted = (X + [5.0, 0, 0] * (sex == "m")[:, None], y, sex)
    plain = evaluate(model, X, y, sensitive_features=sex, n_bootstrap=0)
    other = evaluate(model, X, y, sensitive_features=sex, reference=shifted, n_bootstrap=0)
    assert other.gcig_members > plain.gcig_members + 0.1


def test_a_cell_with_one_member_is_undefined_with_a_reason() -> None:
    X, y, sex = draw(200, 5)
    few = np.flatnonzero((sex == "f") & (y == 1))[1:]
    rows = np.setdiff1d(np.arange(200), few)
    model = LogisticRegression().fit(X, y)
    found = evaluate(model, X[rows], y[rows], sensitive_features=sex[rows], min_cell=1, n_bootstrap=0)
    assert math.isnan(found.gcig_members)
    assert "fewer than two rows" in found.undefined["gcig_members"]
    assert not math.isnan(found.gcig)


def test_two_members_of_a_cell_are_enough() -> None:
    X, y, sex = draw(200, 5)
    few = np.flatnonzero((sex == "f") & (y == 1))[2:]
    rows = np.setdiff1d(np.arange(200), few)
    model = LogisticRegression().fit(X, y)
    found = evaluate(model, X[rows], y[rows], sensitive_features=sex[rows], min_cell=1, n_bootstrap=0)
    assert math.isfinite(found.gcig_members)


def test_the_pool_does_not_depend_on_batches() -> None:
    rng = np.random.default_rng(0)
    rows = EncodedRows(
        rng.normal(size=(300, 2)), rng.integers(0, 2, 300), rng.integers(0, 2, 300), np.arange(300), None
    )
    whole, parts = (MemberPool(2, np.random.default_rng(1)) for _ in range(2))
    whole.add(rows)
    for start in range(0, 300, 70):
        parts.add(rows[np.arange(start, min(300, start + 70))])
    np.testing.assert_array_equal(whole.counts, parts.counts)
    np.testing.assert_array_equal(whole.members(1, 0), parts.members(1, 0))
    first, second = whole.draw(0, (0, 1), 8, np.random.default_rng(2))
    assert first.shape == (2, 8, 1, 2)
    halves = [{tuple(row) for row in half.reshape(-1, 2)} for half in (first, second)]
    assert not halves[0] & halves[1]


def test_strata_divide_each_half_of_the_members() -> None:
    """Ten members per cell and five strata: each stratum of a half has one member, which is drawn."""
    positions = np.arange(40)
    rows = EncodedRows(positions[:, None] * 1.0, positions % 2, positions // 2 % 2, positions, None)
    pool = MemberPool(2, np.random.default_rng(0))
    pool.add(rows)
    found = pool.draw(1, (0, 1), 5, np.random.default_rng(1))
    assert found.shape == (2, 2, 5, 1, 1)
    for group in (0, 1):
        np.testing.assert_array_equal(found[:, group].ravel(), pool.members(1, group).ravel())
    assert pool.draw(0, (0,), 4, np.random.default_rng(1)).shape == (2, 1, 4, 1, 1)
    assert pool.draw(0, (0,), 1, np.random.default_rng(1)).shape == (2, 1, 1, 1, 1)


def test_a_stratum_with_as_many_members_as_are_drawn_gives_each_once() -> None:
    """Thirty-two members per cell: sixteen per half, two per stratum, and sixteen are drawn."""
    positions = np.arange(128)
    pool = MemberPool(2, np.random.default_rng(0))
    pool.add(EncodedRows(positions[:, None] * 1.0, positions % 2, positions // 2 % 2, positions, None))
    found = pool.draw(1, (0, 1), 16, np.random.default_rng(1))
    assert found.shape == (2, 2, 8, 2, 1)
    for group in (0, 1):
        assert sorted(found[:, group].ravel()) == sorted(pool.members(1, group).ravel())


def test_the_pool_is_bounded() -> None:
    pool, zeros = MemberPool(1, np.random.default_rng(0)), np.zeros(2100, dtype=np.int64)
    pool.add(EncodedRows(np.zeros((2100, 1)), zeros, zeros, np.arange(2100), None))
    assert len(pool.members(0, 0)) == 2048
    assert pool.counts.tolist() == [[2100], [0]]


def test_modules_without_a_fast_path_have_a_smaller_budget() -> None:
    class Other(nn.Module):
        def forward(self, rows):
            return rows.sum(1).tanh()

    fast = GradientExplainer(nn.Sequential(linear(), nn.Flatten(0))).budget
    slow = GradientExplainer(Other()).budget
    assert slow == replace(fast, member_rows=250, members=16)


def units_of(values: np.ndarray, norm: int = 1) -> np.ndarray:
    return values / np.linalg.norm(values, norm, axis=-1, keepdims=True)


def signed_root(square: float) -> float:
    return math.copysign(math.sqrt(abs(square)), square)


@pytest.mark.parametrize(("n_groups", "n_strata", "n_used"), [(2, 8, 8), (3, 8, 3), (2, 2, 2)])
def test_reasons_relative_to_members_by_hand(
    n_groups: int, n_strata: int, n_used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A linear model has the attributions of the members' mean: each row, stratum and pair in a loop."""
    monkeypatch.setattr("gcig.metrics.members.N_STRATA", n_strata)
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(120, 3)), np.arange(120) % n_groups
    X[:, 0] += groups
    y = (X @ WEIGHTS + rng.normal(size=120) > 0).astype(int)
    adapted = adapt(nn.Sequential(linear(), nn.Flatten(0)), X)
    sample = Sample.check(adapted, X, y, groups, None, None)
    compared = tuple(range(n_groups))
    pool = MemberPool(n_groups, np.random.default_rng(1))
    pool.add(sample.rows)
    plain = Comparison.prepare(adapted, sample.baselines, Definition(), sample.rows, 100, compared=compared)
    relative = MemberComparison.of(plain, pool, np.random.default_rng(2))
    rows = sample.rows[y == 1][:4].inputs
    found = relative.explain(rows, 1)
    drawn = pool.draw(1, compared, adapted.explainer.budget.members, np.random.default_rng(2))
    k = drawn.shape[2]
    assert k == n_used
    # (halves, groups, strata, rows, columns): the mean of the members of a stratum is its reference.
    strata = WEIGHTS * (rows - drawn.mean(axis=3)[..., None, :])

    def contributions(halves: np.ndarray, norm: int, row: int) -> np.ndarray:
        units = (units_of(half[:, row], norm) for half in halves)
        one, other = (unit - unit.mean(axis=0) for unit in units)
        squares = 2 / (n_groups - 1) * (one * other).sum(axis=0)
        return squares / math.sqrt(abs(squares.sum()))

    first, second = strata.mean(axis=2)
    for row in range(4):
        parts, without = {}, {}
        for norm in (1, 2):
            whole = contributions(strata.mean(axis=2), norm, row)
            without[norm] = [
                contributions(np.delete(strata, each, axis=2).mean(axis=2), norm, row) for each in range(k)
            ]
            parts[norm] = k * whole - (k - 1) * np.mean(without[norm], axis=0)
        np.testing.assert_allclose(found.contribution[row], parts[1], rtol=1e-6)
        assert found.disparity[row] == pytest.approx(parts[1].sum())
        np.testing.assert_allclose(found.leave_one_out[:, row], np.sum(without[1], axis=1), rtol=1e-6)
        other_norm, defined = found.variants["original", "l2"]
        assert other_norm[row] == pytest.approx(parts[2].sum())
        assert defined[row]
        assert found.defined[row]
        halves = units_of(first[:, row]), units_of(second[:, row])
        assert found.noise[row] == pytest.approx(np.linalg.norm(halves[0] - halves[1], axis=1).mean())
        for g in range(n_groups):
            for h in range(n_groups):
                square = (halves[0][g] - halves[0][h]) @ (halves[1][g] - halves[1][h])
                assert found.pairs[row, g, h] == pytest.approx(signed_root(square))
        mean = (first[:, row] + second[:, row]) / 2
        np.testing.assert_allclose(found.values[:, row], mean)
        np.testing.assert_allclose(found.normalised[:, row], units_of(mean))
        np.testing.assert_allclose(found.shares[row], np.abs(units_of(mean)).mean(axis=0))
        np.testing.assert_allclose(found.original_shares[row], found.shares[row])
    assert found.reasons.residual.numpy() == pytest.approx(np.zeros(4), abs=1e-12)
    assert relative.max_chunk == 32
