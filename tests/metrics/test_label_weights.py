import numpy as np
import pytest

from gcig.metrics.label_weights import combine_labels, label_means, label_sums, mean_interval

V = np.array([1.0, 2.0, 3.0, 10.0, 99.0])
Y = np.array([0, 0, 0, 1, 1])
DEFINED = np.array([True, True, True, True, False])


@pytest.mark.parametrize(("how", "expected"), [("empirical", 4.0), ("equal", 6.0), ("sum", 12.0)])
def test_labels_are_put_together(how: str, expected: float) -> None:
    assert combine_labels(label_sums(V, Y, DEFINED).sum(axis=0), how) == expected


def test_weights() -> None:
    sums = label_sums(V, Y, DEFINED, np.array([1.0, 0.0, 3.0, 2.0, 7.0])).sum(axis=0)
    np.testing.assert_allclose(label_means(sums), [2.5, 10.0])
    assert combine_labels(sums, "empirical") == 5.0


def test_a_missing_value_touches_its_label_only() -> None:
    sums = label_sums(np.where(Y == 1, np.nan, V), Y, np.ones(5, dtype=bool)).sum(axis=0)
    np.testing.assert_array_equal(label_means(sums), [2.0, np.nan])
    assert np.isnan(combine_labels(sums, "empirical"))


def test_no_defined_row_is_nan_not_zero() -> None:
    sums = label_sums(V, Y, np.zeros(5, dtype=bool)).sum(axis=0)
    assert all(np.isnan(combine_labels(sums, how)) for how in ("empirical", "equal", "sum"))


@pytest.mark.parametrize("how", ["empirical", "equal"])
def test_interval_matches_a_plain_loop(how: str) -> None:
    rng = np.random.default_rng(0)
    values, labels, defined = rng.random(300), rng.integers(0, 2, 300), rng.random(300) < 0.9
    draws = []
    for rows in np.random.default_rng(5).integers(0, 300, size=(400, 300), dtype=np.int32):
        v, y, d = values[rows], labels[rows], defined[rows]
        means = [v[d & (y == label)].mean() for label in (0, 1)]
        draws.append(v[d].mean() if how == "empirical" else np.mean(means))
    found = mean_interval(label_sums(values, labels, defined), how, 400, np.random.default_rng(5))
    assert found == pytest.approx(np.quantile(draws, [0.025, 0.975]))


def test_no_draws_no_interval() -> None:
    assert np.isnan(mean_interval(label_sums(V, Y, DEFINED), "empirical", 0, np.random.default_rng(0))).all()
