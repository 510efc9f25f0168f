import numpy as np
import pytest

from gcig.metrics.sample import EncodedRows, Reservoir


def rows(start: int, stop: int, weighted: bool = False) -> EncodedRows:
    positions = np.arange(start, stop)
    codes = positions % 2
    return EncodedRows(
        positions[:, None] * 1.0, codes, codes, positions, positions * 1.0 if weighted else None
    )


def test_few_rows_are_all_kept() -> None:
    reservoir = Reservoir(100, np.random.default_rng(0))
    reservoir.add(rows(0, 30))
    reservoir.add(rows(30, 50))
    assert sorted(reservoir.rows.positions) == list(range(50))
    assert reservoir.n_seen == 50


def test_entries_of_a_row_stay_together() -> None:
    reservoir = Reservoir(20, np.random.default_rng(0))
    for start in range(0, 500, 50):
        reservoir.add(rows(start, start + 50, weighted=True))
    kept = reservoir.rows
    np.testing.assert_array_equal(kept.inputs[:, 0], kept.positions)
    np.testing.assert_array_equal(kept.labels, kept.positions % 2)
    np.testing.assert_array_equal(kept.weights, kept.positions)
    assert len(kept) == len(np.unique(kept.positions)) == 20


def test_every_position_is_equally_likely() -> None:
    counts = np.zeros(60)
    for seed in range(600):
        reservoir = Reservoir(15, np.random.default_rng(seed))
        for start, stop in ((0, 5), (5, 45), (45, 60)):  # a batch may be larger than the sample
            reservoir.add(rows(start, stop))
        counts[reservoir.rows.positions] += 1
    assert np.abs(counts - 150).max() < 4.5 * np.sqrt(600 * 0.25 * 0.75)


def test_no_rows() -> None:
    with pytest.raises(ValueError, match="no rows"):
        _ = Reservoir(3, np.random.default_rng(0)).rows
