"""Single rows explained: entries, decision, attributions under every group's reference, and neighbours."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from pandas.api import types as pt

from gcig._tables import level_name
from gcig._validation import check_features
from gcig.adapters import Outputs
from gcig.adapters.base import last_step
from gcig.core.columns import protected_attributes
from gcig.metrics.rates import Codes, Floats
from gcig.metrics.reasons import Comparison, compare_attributions
from gcig.metrics.sample import EncodedRows
from gcig.metrics.trust import threshold_logit
from gcig.records.explanation import HIDDEN, ColumnReason, RowExplanation


@dataclass(frozen=True, eq=False)
class RowDescriber:
    """Descriptions of explained rows in words and numbers."""

    comparison: Comparison
    groups: tuple[str, ...]  # names of the compared groups
    classes: tuple[str, str]  # names of the labels 0 and 1
    favourable: int = 1  # the label that is favourable for a person
    threshold: float = math.nan  # probability of a positive decision; NaN if the model has its own rule
    hidden: frozenset[str] = frozenset()  # columns whose entries are not shown

    def describe(
        self,
        rows: EncodedRows,
        outputs: Outputs,
        *,
        names: Sequence[str],
        table: pd.DataFrame | None,
        label_source: str,
        group_names: Sequence[str | None],
        roles: Sequence[str] = (),
        values: Floats | None = None,
    ) -> tuple[RowExplanation, ...]:
        """Explain rows and describe each.

        ``names`` identify the rows. ``table`` holds them as the user knows them; None if they are no table.
        ``group_names`` are None for rows whose group is not shown, ``roles`` describe neighbours in words,
        and ``values`` are attributions (groups, n, columns), if they are known.
        """
        n, columns = len(rows), self.comparison.columns
        values = self._explain(rows) if values is None else values
        used = self.comparison.definition
        found = compare_attributions(torch.from_numpy(values), used, self.comparison.scale[used.columns])
        disparity = np.where(found.defined.numpy(), found.disparity.numpy(), np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = found.contributions.numpy() / disparity[:, None]
        logits = np.asarray(self.comparison.adapted.logits(rows.inputs), dtype=np.float64)
        cut = threshold_logit(self.comparison, self.threshold)
        decisions = (outputs.decisions >= 0.5).astype(np.int64)
        entries = _entries(table, columns, n, self.hidden)
        return tuple(
            RowExplanation(
                row=names[i],
                position=int(rows.positions[i]) if not roles else -1,
                score=float(outputs.scores[i]),
                logit=float(logits[i]),
                decision=self.classes[decisions[i]],
                favourable=bool(decisions[i] == self.favourable),
                margin=float(logits[i]) - cut,
                label=self.classes[int(rows.labels[i])],
                label_source=label_source,
                group=group_names[i],
                references={g: float(logits[i] - values[k, i].sum()) for k, g in enumerate(self.groups)},
                disparity=float(disparity[i]),
                columns=self._reasons(values[:, i], shares[i], entries[i]),
                role=roles[i] if roles else "",
            )
            for i in range(n)
        )

    def _explain(self, rows: EncodedRows) -> Floats:
        """Return attributions (groups, n, columns); NaN for rows of a label without references."""
        values = np.full((len(self.groups), len(rows), len(self.comparison.columns)), np.nan)
        for label in np.unique(rows.labels).tolist():
            own = np.flatnonzero(rows.labels == label)
            if self.comparison.has_references(label):
                values[:, own] = self.comparison.explain(rows.inputs[own], label).values
        return values

    def _reasons(self, values: Floats, shares: Floats, entries: Sequence[str]) -> tuple[ColumnReason, ...]:
        """Return the reasons of one row from values (groups, columns), by decreasing difference."""
        spread = np.ptp(values, axis=0)
        order = np.lexsort((-np.abs(values).max(axis=0), -np.nan_to_num(spread)))
        return tuple(
            ColumnReason(
                column=self.comparison.columns[j],
                value=entries[j],
                attributions=dict(zip(self.groups, values[:, j].tolist(), strict=True)),
                difference=float(spread[j]),
                share=float(shares[j]),
            )
            for j in order.tolist()
        )


def _entries(
    table: pd.DataFrame | None, columns: Sequence[str], n: int, hidden: frozenset[str]
) -> list[list[str]]:
    """Return the entries of the rows as text, (n, columns); empty for a column that the table lacks.

    A block of dummy columns has the name of the category as its column, and no single entry.
    """
    of_column = [
        [HIDDEN] * n
        if column in hidden
        else [""] * n
        if table is None or column not in table
        else [_as_text(value) for value in table[column].tolist()]
        for column in columns
    ]
    return [list(row) for row in zip(*of_column, strict=True)] if of_column else [[] for _ in range(n)]


def _as_text(value: object) -> str:
    if value is None or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return "missing"
    if isinstance(value, float):
        return f"{value:.6g}"
    return level_name(value)


def find_neighbours(
    table: pd.DataFrame, others: pd.DataFrame, groups: Codes, accepted: Codes, compared: Sequence[int]
) -> list[dict[tuple[int, int], tuple[int, float]]]:
    """Return, per row, (group, accepted or not) -> position and distance of the nearest of the other rows.

    The distance is Gower's: per column the difference of numbers relative to their range between the 5 % and
    95 % quantiles, at most 1, and 0 or 1 for categories and missing entries; the mean over columns. Rows that
    are the same in every column are left out: one of them may be the row itself.
    """
    total = np.zeros((len(table), len(others)))
    for name in others.columns:
        mine, theirs = table[name], others[name]
        if pt.is_numeric_dtype(theirs.dtype) and not pt.is_bool_dtype(theirs.dtype):
            own, other = (np.asarray(each, dtype=np.float64) for each in (mine, theirs))
            low, high = np.nanquantile(other, [0.05, 0.95]) if np.isfinite(other).any() else (0.0, 1.0)
            apart = np.abs(own[:, None] - other[None]) / (high - low or 1.0)
            absent = np.isnan(own)[:, None], np.isnan(other)[None]
            part = np.where(absent[0] & absent[1], 0.0, np.where(absent[0] | absent[1], 1.0, apart))
        else:
            first = mine.astype(object).where(mine.notna(), None).to_numpy()
            second = theirs.astype(object).where(theirs.notna(), None).to_numpy()
            part = (first[:, None] != second[None]).astype(np.float64)
        total += np.minimum(part, 1.0)
    total /= max(1, others.shape[1])
    total[total == 0] = np.inf
    found: list[dict[tuple[int, int], tuple[int, float]]] = [{} for _ in range(len(table))]
    for group in compared:
        for decision in (1, 0):
            chosen = np.flatnonzero((groups == group) & (accepted == decision))
            if not len(chosen):
                continue
            nearest = chosen[total[:, chosen].argmin(axis=1)]
            for i, place in enumerate(nearest.tolist()):
                if np.isfinite(total[i, place]):
                    found[i][group, decision] = int(place), float(total[i, place])
    return found


def revealing_columns(table: Any, groups: Codes) -> set[str]:
    """Return the columns of a table that are the protected attribute, or one of several, or reveal it."""
    if getattr(table, "ndim", 2) != 2:
        return set()
    frame = check_features(table)
    codes = np.stack([pd.factorize(frame[name])[0] for name in frame], axis=1).astype(np.float64)
    found = protected_attributes(
        torch.from_numpy(codes), torch.from_numpy(groups.astype(np.int64)), torch.arange(codes.shape[1])
    )
    return {str(frame.columns[j]) for each in found for j in each.columns.tolist()}


def known_protected(model: Any) -> tuple[str, ...]:
    """Return the columns that a model of this package found to reveal the group in its training rows."""
    return tuple(getattr(last_step(model), "protected_columns_", ()))
