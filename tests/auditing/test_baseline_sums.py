import numpy as np
import pytest

from gcig.auditing import baseline_sums
from gcig.auditing.baseline_sums import BaselineSums

RNG = np.random.default_rng(0)
N = 400
ROWS = RNG.normal(size=(N, 3))
LABELS, GROUPS = RNG.integers(0, 2, N), RNG.integers(0, 3, N)


def summed(parts: int = 1, n_shuffles: int = 200, n_resamples: int = 200) -> BaselineSums:
    sums = BaselineSums(3, n_shuffles, n_resamples, np.random.default_rng(1))
    for part in np.array_split(np.arange(N), parts):
        sums.add(ROWS[part], LABELS[part], GROUPS[part])
    return sums


def means() -> np.ndarray:
    return np.array([[ROWS[(y == LABELS) & (g == GROUPS)].mean(axis=0) for g in range(3)] for y in range(2)])


@pytest.mark.parametrize("parts", [1, 7])
def test_means_are_those_of_the_cells(parts: int) -> None:
    sums = summed(parts, n_shuffles=2, n_resamples=2)
    np.testing.assert_allclose(sums.means, means())
    assert sums.counts.sum() == N


def test_a_cell_without_rows_has_no_mean() -> None:
    sums = BaselineSums(2, 1, 1, np.random.default_rng(0))
    sums.add(ROWS[:4], np.zeros(4, dtype=int), np.zeros(4, dtype=int))
    assert np.isnan(sums.means[1]).all()
    assert np.isnan(sums.means[0, 1]).all()
    assert np.isfinite(sums.means[0, 0]).all()


@pytest.mark.parametrize("parts", [1, 7])
def test_shuffles_keep_the_rows_of_a_label_and_the_sizes_of_groups(parts: int) -> None:
    sums = summed(parts)
    total = (sums.shuffled * sums.counts[None, :, :, None]).sum(axis=2)
    expected = [ROWS[y == LABELS].sum(axis=0) for y in range(2)]
    np.testing.assert_allclose(total, np.broadcast_to(expected, total.shape))


def test_shuffled_means_scatter_about_the_mean_of_the_label() -> None:
    sums = summed(n_shuffles=2000, n_resamples=1)
    for label in range(2):
        own = ROWS[label == LABELS]
        for group in range(3):
            n, size = len(own), sums.counts[label, group]
            spread = own.std(axis=0, ddof=1) * np.sqrt((1 - size / n) / size)  # drawn without replacement
            found = sums.shuffled[:, label, group]
            np.testing.assert_allclose(found.std(axis=0), spread, rtol=0.1)
            np.testing.assert_allclose(found.mean(axis=0), own.mean(axis=0), atol=5 * spread.max() / 44)


def test_resampled_means_have_the_standard_error_of_a_mean() -> None:
    sums = summed(n_shuffles=1, n_resamples=3000)
    own = ROWS[(LABELS == 1) & (GROUPS == 2)]
    expected = own.std(axis=0) / np.sqrt(len(own))
    np.testing.assert_allclose(sums.resampled[:, 1, 2].std(axis=0), expected, rtol=0.12)


def test_poisson_counts_have_mean_and_variance_one() -> None:
    counts = baseline_sums._POISSON
    assert counts.mean() == pytest.approx(1, abs=1e-3)
    assert counts.var() == pytest.approx(1, abs=5e-3)


def test_long_tables_are_shuffled_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline_sums, "_ROWS_SHUFFLED", 50)
    np.testing.assert_allclose(summed().means, means())


def test_nothing_was_added() -> None:
    with pytest.raises(ValueError, match="no rows"):
        _ = BaselineSums(2, 1, 1, np.random.default_rng(0)).means
