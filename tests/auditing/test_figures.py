import numpy as np
import pytest
import torch
from torch import nn

from gcig.adapters import adapt
from gcig.auditing.figures import NullDistribution, mean_disparities
from gcig.auditing.first_pass import BaselineSums
from gcig.core.attribution import IntegratedGradients, Score
from gcig.core.definition import Definition
from gcig.core.gcig import disparity
from gcig.metrics.reasons import Comparison
from gcig.metrics.sample import EncodedRows

RNG = np.random.default_rng(0)
torch.manual_seed(0)
MODULE = nn.Sequential(nn.Linear(3, 5), nn.SiLU(), nn.Linear(5, 1)).double()


def comparison(baselines: np.ndarray) -> Comparison:
    adapted = adapt(MODULE, np.zeros((2, 3)))
    rows = encoded(RNG.normal(size=(10, 3)), np.zeros(10, dtype=int))
    groups = tuple(range(baselines.shape[1]))
    return Comparison.prepare(adapted, baselines, Definition(), rows, 0, compared=groups)


def encoded(rows: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> EncodedRows:
    return EncodedRows(rows, labels, np.zeros(len(rows), dtype=int), np.arange(len(rows)), weights)


def test_several_sets_at_once_are_those_one_by_one() -> None:
    rows, labels = RNG.normal(size=(40, 3)), RNG.integers(0, 2, 40)
    weights = RNG.random(40)
    sets = RNG.normal(size=(5, 2, 3, 3))
    found = mean_disparities(comparison(sets[0]), encoded(rows, labels, weights), sets)
    for each, value in zip(sets, found, strict=True):
        spread = np.zeros(40)
        for label in range(2):
            own = torch.from_numpy(rows[labels == label])
            starts = torch.from_numpy(each[label])[:, None].expand(-1, len(own), -1)
            score = Score(MODULE, torch.ones(len(own), 1))
            values = IntegratedGradients(n_steps=16).attribute(score, own, starts)
            spread[labels == label] = disparity(values).detach().numpy()
        assert value == pytest.approx(np.average(spread, weights=weights), rel=1e-3)


def test_a_set_with_a_missing_baseline_is_undefined() -> None:
    sets = RNG.normal(size=(2, 2, 2, 3))
    sets[1, 0, 1] = np.nan
    found = mean_disparities(
        comparison(sets[0]), encoded(RNG.normal(size=(9, 3)), np.ones(9, dtype=int)), sets
    )
    assert np.isfinite(found[0])
    assert np.isnan(found[1])


def test_p_value_counts_the_data_among_the_shuffles() -> None:
    assert NullDistribution(1.0, np.array([0.5] * 19)).p_value == 0.05
    assert NullDistribution(0.2, np.array([0.5] * 19)).p_value == 1
    assert NullDistribution(0.5, np.array([0.5, 0.4, 0.3])).p_value == 0.5  # a tie is no evidence
    assert NullDistribution(1.0, np.array([0.5, np.nan, 0.4, 0.3])).p_value == 0.25
    assert np.isnan(NullDistribution(np.nan, np.array([0.5])).p_value)
    assert np.isnan(NullDistribution(1.0, np.empty(0)).p_value)


@pytest.mark.slow
def test_p_values_of_exchangeable_groups_are_uniform() -> None:
    """200 tables of 80 rows, whose groups mean nothing: the level of the test is what it says."""
    values = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        rows, labels = rng.normal(size=(80, 3)), rng.integers(0, 2, 80)
        sums = BaselineSums(2, rng)
        sums.add(EncodedRows(rows, labels, rng.permutation(np.arange(80) % 2), np.arange(80)))
        few = encoded(rows[:25], labels[:25])
        sets = np.concatenate([sums.means[None], sums.shuffle(19)])
        found = mean_disparities(comparison(sums.means), few, sets)
        values.append(NullDistribution(float(found[0]), found[1:]).p_value)
    observed = np.bincount(np.rint(np.array(values) * 20).astype(int), minlength=21)[1:]
    assert observed.sum() == 200
    assert ((observed - 10) ** 2 / 10).sum() < 43.8  # the 0.999 quantile of chi-square with 19 degrees
