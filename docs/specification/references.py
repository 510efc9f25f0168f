"""References: the mean of each label and group; of numbers a curve for each group, in NumPy alone."""

import numpy as np


def bins_of(labels, count=10):
    """Return the edges and centres of quantile bins of numbers; an edge is midway between two labels."""
    ordered = np.sort(labels)
    shares = np.arange(1, len(labels) + 1) / len(labels)
    at = np.unique(ordered[[np.searchsorted(shares, k / count - 1e-12) for k in range(1, count)]])
    at = at[at < ordered[-1]]
    edges = np.array([(edge + ordered[ordered > edge][0]) / 2 for edge in at])
    bins = np.searchsorted(edges, labels)
    return edges, np.array([labels[bins == b].mean() for b in range(len(edges) + 1)])


def means_of_classes(x, labels, groups):
    """Return the mean row of each (label, group), (labels, groups, columns)."""
    cells = [[x[(labels == y) & (groups == g)] for g in np.unique(groups)] for y in np.unique(labels)]
    return np.array([[cell.mean(0) for cell in row] for row in cells])


def means_of_numbers(x, labels, groups):
    """Return the curve of each group, quadratic in the label, at the centres of the bins."""
    _, centres = bins_of(labels)
    found = []
    for group in np.unique(groups):
        own = groups == group
        fit = np.polynomial.polynomial.polyfit(labels[own], x[own], 2)  # (3, columns)
        at = np.clip(centres, labels[own].min(), labels[own].max())
        found.append(np.stack([at**k for k in range(3)], 1) @ fit)
    return np.stack(found, 1)  # (bins, groups, columns)
