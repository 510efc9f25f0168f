"""Sums over explained rows: the standard error of sampled parts, and sums of nothing."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gcig.adapters import Reasons
from gcig.core.definition import Definition
from gcig.metrics.reason_sums import ReasonSums, combine_labels, label_means
from gcig.metrics.reasons import RowReasons
from gcig.metrics.sample import EncodedRows


def empty_sums(**definition: str) -> ReasonSums:
    comparison = SimpleNamespace(
        baselines=np.zeros((2, 2, 3)),
        columns=("a", "b", "c"),
        compared_columns=SimpleNamespace(names=("a", "b", "c")),
        definition=Definition(**definition),
        encodes=True,
    )
    return ReasonSums(comparison, n_rows=4, n_groups=2, rng=np.random.default_rng(0))


def test_standard_error_is_that_of_the_jackknife() -> None:
    sums = empty_sums(label_weights="equal")
    assert math.isnan(sums.standard_error)
    without = np.array([[0.2, 0.5], [0.4, 0.1], [0.6, 0.3]])  # the label means without each of three parts
    weights = np.array([4.0, 2.0])
    sums._jackknife = np.stack([without * weights, np.tile(weights, (3, 1))], axis=-1)
    values = without.mean(axis=1)
    assert sums.standard_error == pytest.approx(math.sqrt(2 / 3 * ((values - values.mean()) ** 2).sum()))


def test_sums_of_nothing_are_undefined() -> None:
    sums = empty_sums()
    for name in ("gcig", "noise", "completeness", "effective_columns"):
        assert math.isnan(getattr(sums, name)), name
    assert math.isnan(sums.variant("encoded", "l1"))
    assert (sums.undefined_rows, sums.n_explained, sums.clipped) == (0, 0, 0.0)


def test_an_estimate_below_zero_counts_as_zero() -> None:
    sums = empty_sums()
    sums.total[0] = [[-0.3, 1.0], [0.1, 1.0]]
    assert sums.gcig == 0
    sums.total[1] = [[0.4, 1.0], [0.0, 0.0]]
    assert sums.gcig == pytest.approx(0.2 / 3)


def test_a_label_without_rows_has_no_mean() -> None:
    sums = np.array([[[3.0, 2.0], [0.0, 0.0]]])
    np.testing.assert_array_equal(label_means(sums), [[1.5, np.nan]])
    assert combine_labels(sums, "empirical").tolist() == [1.5]
    assert np.isnan(combine_labels(sums, "equal")).all()


# --- sums of explained rows, against loops over the rows ------------------------------------------------

RNG = np.random.default_rng(0)
LABELS, GROUPS = np.array([0, 1, 0, 1, 1, 0, 0]), np.array([0, 0, 1, 2, 1, 1, 0])
WEIGHTS = np.array([1.0, 2.0, 0.5, 3.0, 1.0, 4.0, 2.0])
DEFINED = np.array([True, True, False, True, True, True, True])
VALUES = {
    name: RNG.random(shape)
    for name, shape in {
        "disparity": 7,
        "contribution": (7, 3),
        "normalised": (2, 7, 3),
        "shares": (7, 3),
        "original_shares": (7, 3),
        "pairs": (7, 2, 2),
        "leave_one_out": (4, 7),
        "noise": 7,
        "l2": 7,
        "values": (2, 7, 3),
        "residual": (2, 7),
    }.items()
}
VALUES["values"] -= 0.5  # attributions have both signs
L2_DEFINED = np.array([True, False, True, True, True, True, True])


def summed(label_weights: str = "equal") -> ReasonSums:
    comparison = empty_sums(label_weights=label_weights).comparison
    sums = ReasonSums(comparison, n_rows=7, n_groups=3, rng=np.random.default_rng(0))
    for label, clipped in ((0, 0.25), (1, 0.5)):
        own = np.flatnonzero(label == LABELS)
        rows = EncodedRows(np.zeros((len(own), 3)), LABELS[own], GROUPS[own], own, WEIGHTS[own])
        values = {name: np.moveaxis(each, each.shape.index(7), 0)[own] for name, each in VALUES.items()}
        values = {name: np.moveaxis(each, 0, VALUES[name].shape.index(7)) for name, each in values.items()}
        values["disparity"] = np.where(DEFINED[own], values["disparity"], np.nan)
        reasons = Reasons(torch.tensor(values["values"]), torch.tensor(values["residual"]), clipped=clipped)
        found = RowReasons(
            **{
                name: values[name] for name in ("values", "disparity", "contribution", "normalised", "shares")
            },
            **{name: values[name] for name in ("original_shares", "pairs", "leave_one_out")},
            noise=np.where(DEFINED[own], values["noise"], np.nan),
            defined=DEFINED[own],
            variants={("original", "l2"): (np.where(L2_DEFINED[own], values["l2"], np.nan), L2_DEFINED[own])},
            reasons=reasons,
        )
        sums.add(rows, found, label)
    return sums


def mean_of(values: np.ndarray, chosen: np.ndarray = DEFINED) -> float:
    """The mean of the two labels' weighted means."""
    parts = [chosen & (label == LABELS) for label in (0, 1)]
    return float(np.mean([np.average(values[part], weights=WEIGHTS[part]) for part in parts]))


def test_sums_are_means_of_the_defined_rows() -> None:
    sums, weights = summed(), WEIGHTS * DEFINED
    assert sums.gcig == pytest.approx(mean_of(VALUES["disparity"]))
    assert sums.variant("original", "l2") == pytest.approx(mean_of(VALUES["l2"], L2_DEFINED))
    assert sums.variant("original", "l1") == sums.gcig
    assert math.isnan(sums.variant("raw", "l1"))
    assert sums.noise == pytest.approx(mean_of(VALUES["noise"]))
    assert (sums.undefined_rows, sums.n_explained) == (1, 7)
    assert sums.clipped == pytest.approx(4 * 0.25 + 3 * 0.5)
    differences = np.abs(VALUES["values"].sum(axis=2))
    assert sums.completeness == pytest.approx(VALUES["residual"].sum() / differences.sum())
    shares = weights @ VALUES["shares"] / (weights @ VALUES["shares"]).sum()
    assert sums.effective_columns == pytest.approx(math.exp(-(shares * np.log(shares)).sum()))
    np.testing.assert_allclose(sums.original_shares, weights @ VALUES["original_shares"])
    for label in (0, 1):
        own = weights * (label == LABELS)
        np.testing.assert_allclose(sums.profile[label], np.einsum("n,gnc->gc", own, VALUES["normalised"]))
    values = np.array([mean_of(each) for each in VALUES["leave_one_out"]])
    assert sums.standard_error == pytest.approx(math.sqrt(3 / 4 * ((values - values.mean()) ** 2).sum()))


def test_sums_by_group_column_and_pair() -> None:
    sums = summed("empirical")
    for group in range(3):
        own = DEFINED & (group == GROUPS)
        expected = np.average(VALUES["disparity"][own], weights=WEIGHTS[own])
        assert sums.combine(sums.by_group.sum(axis=0))[group] == pytest.approx(expected)
    weights = WEIGHTS * DEFINED / (WEIGHTS @ DEFINED)
    np.testing.assert_allclose(sums.combine(sums.by_column.sum(axis=0)), weights @ VALUES["contribution"])
    pairs = np.einsum("n,ngh->gh", weights, VALUES["pairs"])
    np.testing.assert_allclose(sums.combine(sums.by_pair.sum(axis=0)), pairs)
    np.testing.assert_allclose(sums.total.sum(axis=(0, 1)), sums.by_group.sum(axis=(0, 1, 2)))
    assert sums.total.shape[0] == 7  # every row is its own block
    assert ((sums.total[..., 1] > 0).sum(axis=(0, 1)), (sums.total[..., 1] > 0).sum()) == (6, 6)


def test_rows_that_cannot_be_explained_make_the_figures_undefined() -> None:
    sums = ReasonSums(empty_sums().comparison, n_rows=2, n_groups=2, rng=np.random.default_rng(0))
    rows = EncodedRows(np.zeros((2, 3)), np.ones(2, dtype=int), np.array([0, 1]), np.arange(2), None)
    sums.add(rows, None, 1)
    assert math.isnan(sums.gcig)
    assert math.isnan(sums.variant("original", "l2"))
    assert np.isnan(sums._columns[:, 1]).all()
    assert np.isnan(sums._pairs[:, 1]).all()
    assert not sums._columns[:, 0].any()
    assert sums.n_explained == sums.undefined_rows == 0
