import numpy as np
import pandas as pd
import pytest

from gcig._validation import InputError
from gcig.data import encoder_sums
from gcig.data.encoder_sums import EncoderSums
from gcig.data.encoding import TableEncoder


def mixed_table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "income": 1e6 + rng.lognormal(size=n),
            "debt": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
            "owner": rng.random(n) < 0.3,
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
            "job": rng.choice(["clerk", "nurse", None], n),
            "town": rng.choice([f"town {i:03}" for i in range(120)], n),
            "constant": 7.0,
        }
    )
    frame.loc[n - 1, "job"] = "smith"  # in the last row only
    return frame


def fit_in_parts(frame, rows=37, **options):
    sums = EncoderSums(len(frame))
    for start in range(0, len(frame), rows):
        sums.add(frame.iloc[start : start + rows])
    return sums.fit(TableEncoder(**options))


@pytest.mark.parametrize("n_bins", [0, 8])
@pytest.mark.filterwarnings("ignore::gcig.InputWarning")
def test_parts_give_the_encoder_of_the_whole_table(n_bins):
    frame = mixed_table()
    whole = TableEncoder(n_bins=n_bins).fit(frame)
    parts = fit_in_parts(frame, n_bins=n_bins)
    assert parts.encoded_names_ == whole.encoded_names_
    assert parts.kinds_ == whole.kinds_
    np.testing.assert_allclose(parts.encode(frame), whole.encode(frame), rtol=1e-6, atol=1e-6)
    for one, other in zip(parts.columns_, whole.columns_, strict=True):
        if hasattr(one, "mean"):
            assert one.fill == other.fill
            assert one.mean == pytest.approx(other.mean, rel=1e-14, abs=1e-14)
            assert one.scale == pytest.approx(other.scale, rel=1e-10)
        else:
            assert one.levels == other.levels


@pytest.mark.filterwarnings("ignore::gcig.InputWarning")
def test_a_sample_gives_medians_and_bins_close_to_those_of_all_rows(monkeypatch):
    monkeypatch.setattr(encoder_sums, "_SAMPLE_ROWS", 4_000)
    frame = mixed_table(n=40_000)
    whole, parts = TableEncoder(n_bins=4).fit(frame), fit_in_parts(frame, rows=5_000, n_bins=4)
    exact, sampled = whole.columns_[1], parts.columns_[1]
    error_of_median = 1.25 / np.sqrt(4_000 * 0.8)
    assert sampled.mean == pytest.approx(exact.mean, abs=4 * 0.2 * error_of_median)  # of filled entries
    values = frame["debt"].dropna()
    assert abs((values < sampled.fill).mean() - 0.5) < 4 * 0.5 / np.sqrt(4_000 * 0.8)
    assert np.allclose(sampled.edges[1:-1], exact.edges[1:-1], atol=0.1)


def test_dates_as_text_and_free_text_are_refused(monkeypatch):
    with pytest.raises(InputError, match=r"holds dates as text.*to_datetime"):
        fit_in_parts(pd.DataFrame({"day": ["2024-01-31", "2024-02-01"]}))
    monkeypatch.setattr(encoder_sums, "_MAX_COUNTED_LEVELS", 50)
    with pytest.raises(InputError, match="more than 50 categories"):
        fit_in_parts(pd.DataFrame({"note": [f"text {i}" for i in range(100)]}))
