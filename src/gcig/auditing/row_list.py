"""Single rows of an audit: the distribution of the disparity, the most affected rows and their neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gcig._validation import check_features
from gcig.adapters import Outputs
from gcig.auditing.sources import Batch, Source, take_rows
from gcig.auditing.subject import Options
from gcig.metrics.rates import Codes, Floats
from gcig.metrics.reasons import Comparison, RowReasons
from gcig.metrics.row_reasons import RowDescriber, find_neighbours, known_protected, revealing_columns
from gcig.metrics.sample import EncodedRows
from gcig.records.audit import RowAudit
from gcig.records.explanation import RowExplanation

NEIGHBOUR_ROWS = 5000  # people that are searched for neighbours: a sample of the table
_N_BINS = 24
_TOP_ROWS = 20
_DESCRIBED_ROWS = 50  # with include_rows
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
# Differences of normalised attributions are at most 2. Bins are finer near 0, where most differences are.
_EDGES = 2.0 * np.linspace(-1, 1, 401) ** 3


@dataclass(frozen=True, eq=False)
class ListedRow:
    """A row and its attributions, ``values`` (groups, columns)."""

    position: int
    disparity: float
    label: int
    group: int
    values: Floats


class RowList:
    """Histograms of the disparity per group and of the differences per column, and the most affected rows.

    The rows of ``probe`` determine the bins of the disparity; the last bin is open. The differences are those
    of normalised attributions.
    """

    def __init__(self, comparison: Comparison, probe: EncodedRows, n_groups: int, options: Options) -> None:
        self.comparison, self.options = comparison, options
        spread = [found.disparity for _, found, _ in comparison.explain_all(probe) if found is not None]
        top = float(np.quantile(np.concatenate(spread), 0.995)) if spread else 0.0
        self.edges = np.linspace(0, top if top > 0 else 1.0, _N_BINS + 1)
        self.histogram = np.zeros((n_groups, _N_BINS), dtype=np.int64)
        self.differences = np.zeros((len(comparison.columns), len(_EDGES) - 1), dtype=np.int64)
        self._n_top = _DESCRIBED_ROWS if options.include_rows else _TOP_ROWS
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
            apart = (1 if self.options.favourable else -1) * (normalised[1] - normalised[0])
        else:
            apart = np.ptp(normalised, axis=0)
        bins = np.clip(np.searchsorted(_EDGES, apart, side="right") - 1, 0, len(_EDGES) - 2)
        size = self.differences.shape[1]
        flat = np.arange(apart.shape[1]) * size + bins
        self.differences += np.bincount(flat.ravel(), minlength=self.differences.size).reshape(-1, size)

    def quantiles(self) -> list[tuple[float, ...]]:
        """Return quantiles of each column's difference over the rows; none for fewer than ``min_cell`` rows.

        A quantile between two rows is their mean, so changing the sign mirrors all quantiles.
        """
        total = self.differences.sum(axis=1, keepdims=True)
        if not len(total) or int(total[0, 0]) < self.options.min_cell:
            return [()] * len(total)
        reached = np.cumsum(self.differences, axis=1) / total
        middles = (_EDGES[:-1] + _EDGES[1:]) / 2
        below, above = (
            np.stack([(reached < share + slack).sum(axis=1) for share in _QUANTILES], axis=1)
            for slack in (-1e-12, 1e-12)
        )
        both = (middles[below] + middles[np.minimum(above, len(middles) - 1)]) / 2
        return [tuple(of_column) for of_column in both.tolist()]

    def counts(self, names: tuple[str, ...], n_rows: Codes) -> dict[str, tuple[int, ...]]:
        """Return the histogram of each group; bins and groups with fewer than ``min_cell`` rows are empty."""
        min_cell = self.options.min_cell
        return {
            name: tuple(np.where(self.histogram[g] >= min_cell, self.histogram[g], 0).tolist())
            for g, name in enumerate(names)
            if n_rows[g] >= min_cell
        }

    def listed(self, others: EncodedRows) -> list[ListedRow]:
        """Return the rows by decreasing disparity; if rows are described, also the first of ``others``."""
        if not self.options.include_rows:
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
    """Return some of the explained rows as separate objects."""
    return [
        ListedRow(
            int(rows.positions[i]),
            float(found.disparity[i]),
            label,
            int(rows.groups[i]),
            found.values[:, i],
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
    options: Options,
    *,
    cell_sizes: Codes,
    people: Sequence[int],
    compared: tuple[int, ...],
) -> tuple[RowAudit, ...]:
    """Describe rows by decreasing disparity; rows of suppressed cells are left out.

    ``cell_sizes`` (groups, 2) counts the audited rows. Neighbours are searched among the rows at the
    positions ``people`` that belong to ``compared`` groups.
    """
    shown = [row for row in listed if cell_sizes[row.group, row.label] >= options.min_cell]
    if not shown:
        return ()
    by_position = {row.position: row for row in shown}
    adapted, places = describer.comparison.adapted, sorted(by_position)
    hidden: set[str] = set()
    if not options.include_protected:
        hidden = {*source.attributes, *known_protected(adapted.model)}
        first = next(source.batches())
        hidden |= revealing_columns(first.table, first.groups)
    describer = replace(describer, hidden=frozenset(hidden))
    rows, part = [by_position[place] for place in places], take_rows(source, places)
    table = check_features(part.table) if getattr(part.table, "ndim", 2) == 2 else None
    described = describer.describe(
        EncodedRows(part.inputs, part.labels, part.groups, np.array(places), None),
        part.predict(adapted, options.threshold),
        names=part.identifiers or [str(place) for place in places],
        table=table,
        label_source="given",
        group_names=[source.group_names[row.group] if options.include_protected else None for row in rows],
        values=np.stack([row.values for row in rows], axis=1),
    )
    if table is not None and len(people):
        described = add_neighbours(
            described,
            table,
            take_rows(source, people),
            describer,
            group_names=source.group_names,
            compared=compared,
            threshold=options.threshold,
            min_cell=options.min_cell,
        )
    found = dict(zip(places, described, strict=True))
    return tuple(RowAudit(row.position, row.disparity, found[row.position]) for row in shown)


def add_neighbours(
    described: tuple[RowExplanation, ...],
    table: pd.DataFrame,
    people: Batch,
    describer: RowDescriber,
    *,
    group_names: Sequence[str],
    compared: tuple[int, ...],
    threshold: float | None,
    min_cell: int,
) -> tuple[RowExplanation, ...]:
    """Return the rows with the people nearest to each, one per compared group and decision.

    Neighbours are shown only if at least ``min_cell`` people share their group and decision.
    """
    groups, others = people.groups, check_features(people.table)
    outputs = people.predict(describer.comparison.adapted, threshold)
    accepted = ((outputs.decisions >= 0.5) == describer.favourable).astype(np.int64)
    large = {
        (group, decision)
        for group in compared
        for decision in (0, 1)
        if np.count_nonzero((groups == group) & (accepted == decision)) >= min_cell
    }
    found = find_neighbours(table[list(others.columns)], others, groups, accepted, compared)
    nearest = [
        [(place, distance) for cell, (place, distance) in of_row.items() if cell in large] for of_row in found
    ]
    places = np.unique([place for of_row in nearest for place, _ in of_row]).astype(np.int64)
    if not len(places):
        return described
    names = [group_names[group] for group in groups[places].tolist()]
    words = ("unfavourable", "favourable")
    near = describer.describe(
        people.rows[places],
        Outputs(outputs.scores[places], outputs.decisions[places]),
        names=[""] * len(places),
        table=others.iloc[places],
        label_source="given",
        group_names=names,
        roles=[
            f"nearest {words[decision]} decision in group {name!r}"
            for name, decision in zip(names, accepted[places].tolist(), strict=True)
        ],
    )
    by_place = dict(zip(places.tolist(), near, strict=True))
    return tuple(
        replace(row, neighbours=tuple(replace(by_place[place], distance=d) for place, d in of_row))
        for row, of_row in zip(described, nearest, strict=True)
    )
