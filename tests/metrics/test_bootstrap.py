import numpy as np
import pytest

from gcig.metrics import bootstrap
from gcig.metrics.bootstrap import percentile_interval, resampled_sums


def test_sums_are_those_of_a_plain_loop() -> None:
    values = np.random.default_rng(3).random((50, 3))
    fast = resampled_sums(values, 20, np.random.default_rng(0))
    rows = np.random.default_rng(0).integers(0, 50, size=(20, 50), dtype=np.int32)
    plain = np.array([values[drawn].sum(axis=0) for drawn in rows])
    np.testing.assert_allclose(fast, plain, rtol=1e-12)


def test_chunks_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).random((40, 2))
    whole = resampled_sums(values, 10, np.random.default_rng(0))
    monkeypatch.setattr(bootstrap, "CHUNK_ENTRIES", 120)
    np.testing.assert_array_equal(resampled_sums(values, 10, np.random.default_rng(0)), whole)


def test_spread_of_the_mean_is_its_standard_error() -> None:
    values = np.random.default_rng(3).normal(size=(400, 1))
    means = resampled_sums(values, 4000, np.random.default_rng(0))[:, 0] / 400
    assert means.std() == pytest.approx(values.std() / 20, rel=0.05)


def test_interval_leaves_out_nan_draws() -> None:
    assert percentile_interval(np.array([np.nan, 1.0, 1.0])) == (1.0, 1.0)
    assert np.isnan(percentile_interval(np.array([np.nan]))).all()
