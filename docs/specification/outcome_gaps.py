"""Outcome gaps for two classes, several classes and numbers, in NumPy alone."""

import numpy as np


def rates_of(decided, groups):
    """Return the shares of decisions (n, K), or mean predictions (n, 1), of each group: (groups, K)."""
    return np.array([decided[groups == g].mean(0) for g in np.unique(groups)])


def largest_distance(rates):
    """Return the largest distance between two groups: total variation, or the difference of one number."""
    pairs = np.abs(rates[:, None] - rates[None]).sum(-1)
    return pairs.max() / (2 if rates.shape[1] > 1 else 1)


def outcome_gap_of_classes(labels, decisions, groups):
    """Return 2 / K times the sum over labels; for two classes the gap in TPR plus the gap in FPR."""
    classes = np.unique(labels)
    decided = (decisions[:, None] == classes).astype(float)
    cells = [labels == y for y in classes]
    gaps = [largest_distance(rates_of(decided[own], groups[own])) for own in cells]
    return 2 / len(classes) * np.sum(gaps)


def outcome_gap_of_numbers(labels, predictions, groups, edges):
    """Return the mean over five quantile bins of the label, in standard deviations of the label; `edges`
    are those of `bins_of(labels, 5)` in references.py.
    """
    bins = np.searchsorted(edges, labels)
    scaled = predictions[:, None] / labels.std()
    gaps = [largest_distance(rates_of(scaled[bins == b], groups[bins == b])) for b in np.unique(bins)]
    return np.mean(gaps)
