"""The reason gap, its common and its varying part, in NumPy alone."""

import numpy as np


def spread(scores):
    """Return sqrt(pi) / 2 times the mean difference of two people."""
    n, ordered = len(scores), np.sort(scores)
    return np.sqrt(np.pi) / (n * (n - 1)) * (np.arange(1 - n, n, 2) @ ordered)


def squares_of_people(table, groups):
    """Return the squared gap of each person: the mean over pairs of groups, without products of a
    reference with itself.
    """
    own = [table[groups == g] for g in np.unique(groups[groups >= 0])]
    means = [a.mean(0) for a in own]
    squares = [((a.sum(0) ** 2 - (a**2).sum(0)) / (len(a) * (len(a) - 1))).sum(-1) for a in own]
    pairs = [(g, h) for g in range(len(own)) for h in range(g)]
    found = [squares[g] + squares[h] - 2 * (means[g] * means[h]).sum(-1) for g, h in pairs]
    return np.mean(found, 0)


def squared_parts(table, groups):
    """Return the squares of gap, common and varying part of one cell, from a table (references, people,
    columns) in units of the spread.
    """
    n = table.shape[1]
    gap = squares_of_people(table, groups).mean()
    rest = table - table.mean(1, keepdims=True)  # what is not common to all people
    varying = squares_of_people(rest, groups).sum() / (n - 1)
    return np.array([gap, gap - varying, varying])


def reason_gap(tables, groups, shares):
    """Return gap, common and varying part over cells with shares of people; the roots are signed."""
    squares = np.array([squared_parts(t, g) for t, g in zip(tables, groups, strict=True)])
    total = np.array(shares) @ squares / np.sum(shares)
    return np.sign(total) * np.sqrt(np.abs(total))
