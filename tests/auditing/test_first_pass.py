import numpy as np
import pytest

from gcig.auditing import first_pass
from gcig.auditing.first_pass import BaselineSums
from gcig.metrics.sample import EncodedRows

RNG = np.random.default_rng(0)
N = 400
ROWS = RNG.normal(size=(N, 3))
LABELS, GROUPS = RNG.integers(0, 2, N), RNG.integers(0, 3, N)


def encoded(rows: np.ndarray, labels: np.ndarray, groups: np.ndarray) -> EncodedRows:
    return EncodedRows(rows, labels, groups, np.arange(len(rows)))


def summed(parts: int = 1) -> BaselineSums:
    sums = BaselineSums(3, np.random.default_rng(1))
    for part in np.array_split(np.arange(N), parts):
        sums.add(encoded(ROWS[part], LABELS[part], GROUPS[part]))
    return sums


def cell_means() -> np.ndarray:
    return np.array([[ROWS[(y == LABELS) & (g == GROUPS)].mean(axis=0) for g in range(3)] for y in range(2)])


@pytest.fixture(params=[4096, 40], ids=["a block a row", "few blocks"])
def blocks(request, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(first_pass, "_LABEL_BLOCKS", request.param)
    monkeypatch.setattr(first_pass, "_CELL_BLOCKS", request.param)
    return request.param


@pytest.mark.parametrize("parts", [1, 7])
def test_means_are_those_of_the_cells(parts: int, blocks: int) -> None:
    sums = summed(parts)
    np.testing.assert_allclose(sums.means, cell_means())
    assert sums.counts.sum() == N


def test_a_cell_without_rows_has_no_mean() -> None:
    sums = BaselineSums(2, np.random.default_rng(0))
    sums.add(encoded(ROWS[:4], np.zeros(4, dtype=int), np.zeros(4, dtype=int)))
    for means in (sums.means, sums.shuffle(1)[0], sums.resample(1)[0]):
        assert np.isnan(means[1]).all()
        assert np.isnan(means[0, 1]).all()
        assert np.isfinite(means[0, 0]).all()


def test_shuffles_of_few_rows_keep_the_rows_of_a_label_and_the_sizes_of_groups() -> None:
    sums = summed(3)
    total = (sums.shuffle(20) * sums.counts[None, :, :, None]).sum(axis=2)
    expected = [ROWS[y == LABELS].sum(axis=0) for y in range(2)]
    np.testing.assert_allclose(total, np.broadcast_to(expected, total.shape), atol=1e-9)


def test_shuffled_means_scatter_as_means_of_rows_drawn_without_replacement(blocks: int) -> None:
    sums = summed()
    shuffled = sums.shuffle(2000)
    for label in range(2):
        own = ROWS[label == LABELS]
        for group in range(3):
            n, size = len(own), sums.counts[label, group]
            spread = own.std(axis=0, ddof=1) * np.sqrt((1 - size / n) / size)
            found = shuffled[:, label, group]
            # The spread of few random blocks is itself random.
            np.testing.assert_allclose(found.std(axis=0), spread, rtol=0.1 if blocks > N else 0.45)
            np.testing.assert_allclose(found.mean(axis=0), own.mean(axis=0), atol=5 * spread.max() / 44)


def test_order_does_not_matter_to_the_spread(blocks: int) -> None:
    """A file that is sorted by group is shuffled as well as any other."""
    order = np.argsort(GROUPS, kind="stable")
    sums = BaselineSums(3, np.random.default_rng(1))
    for part in np.array_split(order, 9):
        sums.add(encoded(ROWS[part], LABELS[part], GROUPS[part]))
    np.testing.assert_allclose(
        sums.shuffle(2000).std(axis=0), summed().shuffle(2000).std(axis=0), rtol=0.15 if blocks > N else 0.8
    )


def test_a_tiny_group_among_blocks_has_the_variance_of_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_pass, "_LABEL_BLOCKS", 50)
    rows = RNG.normal(size=(20_000, 200))
    groups = (np.arange(20_000) < 40).astype(int)  # a tenth of a block
    sums = BaselineSums(2, np.random.default_rng(0))
    sums.add(encoded(rows, np.zeros(20_000, dtype=int), groups))
    found = sums.shuffle(300)[:, 0]
    assert found[:, 1].std(axis=0).mean() == pytest.approx(1 / np.sqrt(40), rel=0.1)
    assert found[:, 0].std(axis=0).mean() < 0.001  # all others, whose mean hardly moves


def test_resampled_means_have_the_standard_error_of_a_mean(blocks: int) -> None:
    found = summed().resample(3000)
    own = ROWS[(LABELS == 1) & (GROUPS == 2)]
    expected = own.std(axis=0) / np.sqrt(len(own))
    np.testing.assert_allclose(found[:, 1, 2].std(axis=0), expected, rtol=0.12 if blocks > N else 0.4)
    np.testing.assert_allclose(found.mean(axis=0), cell_means(), atol=0.05)
