"""The outcome metrics against Fairlearn, on generated data."""

import fairlearn.metrics as fl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import precision_score

from gcig.metrics import predictions as outcome


def sample(seed: int, n_groups: int, weighted: bool):
    """Rows with every (label, group) cell present, so that both libraries define every rate."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 80))
    y = np.concatenate([rng.integers(0, 2, n), np.tile([0, 1], n_groups)])
    g = np.concatenate([rng.integers(0, n_groups, n), np.repeat(np.arange(n_groups), 2)])
    d = rng.integers(0, 2, len(y))
    return (
        y,
        d,
        np.array([f"group {k}" for k in range(n_groups)])[g],
        rng.random(len(y)) + 0.1 if weighted else None,
    )


cases = given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.booleans())


@settings(max_examples=25)  # each example takes Fairlearn tens of milliseconds
@cases
def test_differences_and_ratio(seed: int, n_groups: int, weighted: bool) -> None:
    y, d, g, w = sample(seed, n_groups, weighted)
    both = {"sensitive_features": g, "sample_weight": w}
    worst = outcome.equalized_odds_gap(y, d, agg="worst", **both)
    assert worst == pytest.approx(fl.equalized_odds_difference(y, d, agg="worst_case", **both), abs=1e-12)
    difference = outcome.demographic_parity_difference(y, d, **both)
    assert difference == pytest.approx(fl.demographic_parity_difference(y, d, **both), abs=1e-12)
    if d.any():
        ratio = outcome.selection_rate_ratio(y, d, **both)
        assert ratio == pytest.approx(fl.demographic_parity_ratio(y, d, **both), abs=1e-12)


@settings(max_examples=25)  # each example takes Fairlearn tens of milliseconds
@cases
def test_rates_by_group(seed: int, n_groups: int, weighted: bool) -> None:
    y, d, g, w = sample(seed, n_groups, weighted)
    metrics = {
        "selection_rate": fl.selection_rate,
        "tpr": fl.true_positive_rate,
        "fpr": fl.false_positive_rate,
    }
    weights = None if w is None else {name: {"sample_weight": w} for name in metrics}
    frame = fl.MetricFrame(metrics=metrics, y_true=y, y_pred=d, sensitive_features=g, sample_params=weights)
    ours = outcome.group_rates(y, d, sensitive_features=g, sample_weight=w)
    for group, rates in frame.by_group.iterrows():
        assert [getattr(ours[group], name) for name in metrics] == pytest.approx(list(rates), abs=1e-12)
        rows = g == group
        expected = precision_score(
            y[rows], d[rows], sample_weight=None if w is None else w[rows], zero_division=np.nan
        )
        assert ours[group].ppv == pytest.approx(expected, nan_ok=True)
    assert sum(np.ptp(frame.by_group[["tpr", "fpr"]].to_numpy(), axis=0)) == pytest.approx(
        outcome.equalized_odds_gap(y, d, sensitive_features=g, sample_weight=w), abs=1e-12
    )
