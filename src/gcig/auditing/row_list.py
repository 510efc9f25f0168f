"""Single rows of an audit: the distribution of the disparity, and the rows where it is largest, described."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gcig._validation import check_features
from gcig.auditing.neighbours import Neighbourhood
from gcig.auditing.sources import Source, take_rows
from gcig.metrics.rates import Codes, Floats
from gcig.metrics.reasons import Comparison, RowReasons
from gcig.metrics.row_reasons import RowDescriber, known_protected, revealing_columns
from gcig.metrics.sample import EncodedRows
from gcig.records.audit import RowAudit

_N_BINS = 24
_TOP_ROWS = 20
_DESCRIBED_ROWS = 50  # with include_rows
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
# Differences of normalised attributions are at most 2. Bins are finer near 0, where most differences are.
_EDGES = 2.0 * np.linspace(-1, 1, 401) ** 3


@dataclass(frozen=True, eq=False)
class ListedRow:
    """A row and its reasons: ``values`` (groups, columns) are attributions, ``inputs`` (p,) is encoded."""

    position: int
    disparity: float
    label: int
    group: int
    values: Floats
    inputs: Floats


class RowList:
    """Histogram of the disparity per group, differences per column, and the rows with the largest disparity.

    Parameters
    ----------
    comparison : how rows are explained and compared.
    probe : rows that determine the bins of the histogram.
    n_groups : the number of groups of the rows, compared or not.
    include_rows : whether rows are described, rather than only located.
    favourable : the label that is favourable for a person.

    Attributes
    ----------
    edges : (bins + 1,) edges of the histogram; the last bin is open.
    histogram : (groups, bins) counts of rows.
    differences : (columns, bins) counts of the differences of normalised attributions.
    """

    def __init__(
        self,
        comparison: Comparison,
        probe: EncodedRows,
        *,
        n_groups: int,
        include_rows: bool,
        favourable: int = 1,
    ) -> None:
        self.comparison, self.include_rows = comparison, include_rows
        self.sign = 1 if favourable else -1
        spread = [found.disparity for _, found, _ in comparison.explain_all(probe) if found is not None]
        top = float(np.quantile(np.concatenate(spread), 0.995)) if spread else 0.0
        self.edges = np.linspace(0, top if top > 0 else 1.0, _N_BINS + 1)
        self.histogram = np.zeros((n_groups, _N_BINS), dtype=np.int64)
        self.differences = np.zeros((len(comparison.columns), len(_EDGES) - 1), dtype=np.int64)
        self._n_top = _DESCRIBED_ROWS if include_rows else _TOP_ROWS
        self._top: list[ListedRow] = []

    def add(self, rows: EncodedRows, found: RowReasons | None, label: int) -> None:
        """Add explained rows of one label."""
        if found is None:
            return
        bins = np.searchsorted(self.edges, np.where(found.defined, found.disparity, 0.0), side="right") - 1
        flat = rows.groups * _N_BINS + np.clip(bins, 0, _N_BINS - 1)
        counted = np.bincount(flat[found.defined], minlength=self.histogram.size)
        self.histogram += counted.reshape(self.histogram.shape)
        self._add_differences(found.normalised[:, found.defined])
        few = np.flatnonzero(found.defined)
        if len(few) > self._n_top:
            few = few[np.argpartition(-found.disparity[few], self._n_top - 1)[: self._n_top]]
        self._top = _sorted([*self._top, *_listed(rows, found, label, few)])[: self._n_top]

    def _add_differences(self, normalised: Floats) -> None:
        """Count differences between the groups, from normalised attributions (groups, m, columns)."""
        if len(normalised) == 2:
            apart = self.sign * (normalised[1] - normalised[0])
        else:
            apart = np.ptp(normalised, axis=0)
        bins = np.clip(np.searchsorted(_EDGES, apart, side="right") - 1, 0, len(_EDGES) - 2)
        size = self.differences.shape[1]
        flat = np.arange(apart.shape[1]) * size + bins
        self.differences += np.bincount(flat.ravel(), minlength=self.differences.size).reshape(-1, size)

    def quantiles(self, min_cell: int) -> list[tuple[float, ...]]:
        """Return quantiles of the difference of each column over rows; empty for fewer than ``min_cell``.

        A quantile that falls between two rows is the mean of both, so turning the sign mirrors all of them.
        """
        total = self.differences.sum(axis=1, keepdims=True)
        if not len(total) or int(total[0, 0]) < min_cell:
            return [()] * len(total)
        reached = np.cumsum(self.differences, axis=1) / total
        middles = (_EDGES[:-1] + _EDGES[1:]) / 2
        below, above = (
            np.stack([(reached < share + slack).sum(axis=1) for share in _QUANTILES], axis=1)
            for slack in (-1e-12, 1e-12)
        )
        both = (middles[below] + middles[np.minimum(above, len(middles) - 1)]) / 2
        return [tuple(of_column) for of_column in both.tolist()]

    def counts(self, names: tuple[str, ...], n_rows: Codes, min_cell: int) -> dict[str, tuple[int, ...]]:
        """Return the counts of each group; a bin, or a group, under ``min_cell`` rows counts as empty."""
        return {
            name: tuple(np.where(self.histogram[g] >= min_cell, self.histogram[g], 0).tolist())
            for g, name in enumerate(names)
            if n_rows[g] >= min_cell
        }

    def listed(self, others: EncodedRows) -> list[ListedRow]:
        """Return the rows by decreasing disparity; if rows are described, some of ``others`` as well.

        ``others`` are audited rows in random order.
        """
        if not self.include_rows:
            return self._top
        explained = self.comparison.explain_all(
            others[: self.comparison.adapted.explainer.budget.described_rows]
        )
        more = [
            row
            for part, found, label in explained
            if found is not None
            for row in _listed(part, found, label, np.flatnonzero(found.defined))
        ]
        return _sorted(list({row.position: row for row in [*more, *self._top]}.values()))


def _listed(rows: EncodedRows, found: RowReasons, label: int, few: Codes) -> list[ListedRow]:
    """Return some of the explained rows one by one."""
    return [
        ListedRow(
            int(rows.positions[i]),
            float(found.disparity[i]),
            label,
            int(rows.groups[i]),
            found.values[:, i],
            np.asarray(rows.inputs[i], dtype=np.float64),
        )
        for i in few.tolist()
    ]


def _sorted(rows: list[ListedRow]) -> list[ListedRow]:
    """Sort rows by decreasing disparity; ties stay in the order of the table."""
    return sorted(rows, key=lambda row: (-row.disparity, row.position))


def describe_rows(
    listed: list[ListedRow],
    source: Source,
    describer: RowDescriber,
    *,
    cell_sizes: Codes,
    min_cell: int,
    threshold: float | None,
    include_protected: bool,
    people: Sequence[int],
    compared: tuple[int, ...],
) -> tuple[RowAudit, ...]:
    """Describe rows by decreasing disparity; rows of suppressed cells are left out.

    Parameters
    ----------
    cell_sizes : (groups, 2) number of audited rows per group and label.
    people : positions of the rows among which the nearest ones to each row are found.
    compared : positions of the groups that these come from.
    """
    shown = [row for row in listed if cell_sizes[row.group, row.label] >= min_cell]
    if not shown:
        return ()
    by_position = {row.position: row for row in shown}
    adapted, places = describer.comparison.adapted, sorted(by_position)
    hidden: set[str] = set()
    if not include_protected:
        hidden = {*source.attributes, *known_protected(adapted.model)}
        first = next(source.batches())
        hidden |= revealing_columns(first.table, first.groups)
    describer = replace(describer, hidden=frozenset(hidden))
    rows, part = [by_position[place] for place in places], take_rows(source, places)
    table = check_features(part.table) if getattr(part.table, "ndim", 2) == 2 else None
    described = describer.describe(
        EncodedRows(part.inputs, part.labels, part.groups, np.array(places), None),
        part.predict(adapted, threshold),
        names=part.identifiers or [str(place) for place in places],
        table=table,
        label_source="given",
        group_names=[source.group_names[row.group] if include_protected else None for row in rows],
        values=np.stack([row.values for row in rows], axis=1),
    )
    if table is not None and len(people):
        near = Neighbourhood(
            take_rows(source, people), source.group_names, compared, describer, threshold, min_cell
        )
        described = near.add(table, described)
    found = dict(zip(places, described, strict=True))
    return tuple(RowAudit(row.position, row.disparity, found[row.position]) for row in shown)
