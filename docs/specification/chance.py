"""Chance and intervals of the reason gap, in NumPy alone; `squares` is `squared_parts` of reason_gap.py."""

import numpy as np

T = 2.2621571628  # the 97.5 % quantile of Student's distribution with nine degrees of freedom


def root(square):
    """Return the root of an estimated square, with its sign."""
    return np.sign(square) * np.sqrt(np.abs(square))


def by_chance(squares, table, groups, permutations):
    """Return p and the 95 % point of the gap under groups permuted within the cell."""
    found = squares(table, groups)[0]
    null = np.array([squares(table, groups[order])[0] for order in permutations])
    p = (1 + (null >= found - 1e-15).sum()) / (1 + len(null))
    return p, root(np.quantile(null, 0.95))


def interval(squares, table, groups):
    """Return limits (2, 3) of gap, common and varying part by leaving out tenths of references and people."""
    of_reference, of_person = np.arange(len(groups)) % 10, np.arange(table.shape[1]) % 10
    references = [squares(table, np.where(of_reference == k, -1, groups)) for k in range(10)]
    people = [squares(table[:, of_person != k], groups) for k in range(10)]
    variance = sum(
        0.9 * ((each - np.mean(each, 0)) ** 2).sum(0) for each in map(np.array, (references, people))
    )
    found = squares(table, groups)
    return root(np.array([found - T * np.sqrt(variance), found + T * np.sqrt(variance)]))
