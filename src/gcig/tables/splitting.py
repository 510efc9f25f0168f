"""Splits of the rows of a table, stratified by label and group.

Within each (label, group) cell the rows are shuffled and distributed: every part gets its share of every cell
to within one row. All index arrays are sorted, and the same ``random_state`` gives the same split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gcig._arguments import InputError, warn_input
from gcig._arrays import Positions
from gcig.tables.check import CheckedTable
from gcig.tables.frames import check_lengths

_STRATA = 5  # quantile bins of a number, by which rows are held out


def split_table(
    y: Any,
    groups: Any = None,
    *,
    fractions: Sequence[float] = (0.6, 0.2, 0.2),
    random_state: int | np.random.Generator | None = 0,
    strict: bool = True,
) -> list[Positions]:
    """Split the rows into parts of the given fractions; a part of fraction 0 is empty.

    The share of each cell is rounded up or down, and no other part is empty. A cell that is too small for
    that is an error, or with ``strict=False`` it is in the first part.

    >>> [len(part) for part in split_table([0, 1] * 50, ["a"] * 40 + ["b"] * 60)]
    [60, 20, 20]
    """
    cells = _cells(y, groups)
    shares = np.asarray(fractions, dtype=np.float64)
    if not np.isclose(shares.sum(), 1) or (shares < 0).any() or shares[0] <= 0:
        raise InputError(
            f"must be at least 0, the first above 0, and add up to 1; got {tuple(fractions)}.",
            argument="fractions",
        )
    wanted = shares > 0
    if strict:
        _reject_small(cells, int(wanted.sum()), f"{wanted.sum()} parts")
    parts: list[list[Positions]] = [[] for _ in shares]
    owed = np.zeros_like(shares)  # rows that rounding has withheld from each part; the next cells compensate
    for rows in _shuffled(cells, random_state):
        exact = shares * len(rows)
        counts = np.floor(exact + 1e-9).astype(np.int64)
        cut = exact - counts  # only a share that was rounded down may be rounded up
        most_owed = np.argsort(-np.where(cut > 1e-9, cut + owed, -np.inf), kind="stable")
        counts[most_owed[: len(rows) - counts.sum()]] += 1
        small = len(rows) < wanted.sum()
        counts = np.append(len(rows), 0 * counts[1:]) if small else _none_empty(counts, wanted)
        owed += exact - counts
        for part, own in zip(parts, np.split(rows, np.cumsum(counts)[:-1]), strict=True):
            part.append(own)
    return [np.sort(np.concatenate(part)) for part in parts]


def hold_out(
    y: Any,
    groups: Any = None,
    *,
    fraction: float,
    random_state: int | np.random.Generator | None = 0,
    strict: bool = True,
) -> tuple[Positions, Positions]:
    """Split the rows into (rest, held_out), where ``held_out`` has the given fraction of the rows.

    A cell of one row cannot be in both parts: an error, or with ``strict=False`` it stays in the rest.
    """
    if not 0 < fraction < 1:
        raise InputError(f"must be between 0 and 1, got {fraction}.", argument="fraction")
    shares = (1 - fraction, fraction)
    rest, held_out = split_table(y, groups, fractions=shares, random_state=random_state, strict=strict)
    return rest, held_out


def hold_out_rows(table: CheckedTable, fraction: float | None, random_state: int) -> Positions:
    """Return the rows of a checked table that are held out in training; none, with a warning, of few rows.

    Numbers are stratified by quantile bins.
    """
    strata = table.labels.codes
    if fraction is None:
        return np.empty(0, dtype=np.int64)
    if not table.labels.classes:
        edges = np.quantile(strata, np.linspace(0, 1, _STRATA + 1)[1:-1])
        strata = np.searchsorted(edges, strata)
    _, rows = hold_out(strata, table.groups.codes, fraction=fraction, random_state=random_state, strict=False)
    if len(rows) and (not table.labels.classes or len(np.unique(strata[rows])) > 1):
        return rows
    warn_input(
        f"{len(strata)} rows are too few to hold out rows of every label (validation_fraction={fraction}): "
        "the network is trained on all rows to the last epoch, and is not validated. Provide more rows or a "
        "larger validation_fraction."
    )
    return rows[:0]


def k_folds(
    y: Any, groups: Any = None, *, n_splits: int = 5, random_state: int | np.random.Generator | None = 0
) -> list[tuple[Positions, Positions]]:
    """Return pairs (training, test) that test every row once.

    The sizes of the test folds differ by at most one row, and so do the counts of every cell. Each cell needs
    at least ``n_splits`` rows.
    """
    cells = _cells(y, groups)
    if n_splits < 2:
        raise InputError(f"must be at least 2, got {n_splits}.", argument="n_splits")
    _reject_small(cells, n_splits, f"{n_splits} folds")
    # Rows are assigned to folds in turn across all cells, so that the sizes of folds differ by at most one.
    order = np.concatenate(_shuffled(cells, random_state))
    fold = np.empty(len(order), dtype=np.int64)
    fold[order] = np.arange(len(order)) % n_splits
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(n_splits)]


def _cells(y: Any, groups: Any) -> dict[str, Positions]:
    """Return the rows of each (label, group) cell that occurs, by a name for messages."""
    n_rows = check_lengths(y=y, groups=groups)
    codes, labels = _factorised(y, "y")
    names = [f"label {value!s}" for value in labels]
    if groups is not None:
        of_group, values = _factorised(groups, "groups")
        codes = np.where((codes < 0) | (of_group < 0), -1, codes * len(values) + of_group)
        names = [f"{name}, group {value!s}" for name in names for value in values]
    if n_rows == 0 or (codes < 0).any():
        raise InputError(
            "A split needs at least one row, and a label and a group for each row (no NaN or None)."
        )
    order, sizes = np.argsort(codes, kind="stable"), np.bincount(codes, minlength=len(names))
    rows = np.split(order, np.cumsum(sizes)[:-1])
    return {name: own for name, own in zip(names, rows, strict=True) if len(own)}


def _factorised(values: Any, name: str) -> tuple[NDArray[np.int64], list[Any]]:
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"must have one value per row, got an array of shape {array.shape}.", argument=name)
    codes, levels = pd.factorize(array, sort=True)
    return codes.astype(np.int64), list(levels)


def _shuffled(cells: dict[str, Positions], random_state: int | np.random.Generator | None) -> list[Positions]:
    rng = np.random.default_rng(random_state)
    return [rng.permutation(rows) for rows in cells.values()]


def _none_empty(counts: NDArray[np.int64], wanted: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return counts with at least one row for each part that is wanted, taken from the largest."""
    counts = counts.copy()
    for part in np.flatnonzero(wanted & (counts == 0)):
        counts[np.argmax(counts)] -= 1
        counts[part] += 1
    return counts


def _reject_small(cells: dict[str, Positions], minimum: int, what: str) -> None:
    if small := [f"({name}): {len(rows)}" for name, rows in cells.items() if len(rows) < minimum]:
        more = f" and {len(small) - 10} more" if len(small) > 10 else ""
        raise InputError(
            f"Too few rows for {what}, which need {minimum} in each cell: {', '.join(small[:10])}{more}. "
            "Merge small groups, drop them, or request fewer parts."
        )
