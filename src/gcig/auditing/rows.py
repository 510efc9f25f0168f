"""Single rows: descriptions, the most affected rows of an audit, and the nearest people of each group."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from pandas.api import types as pt

from gcig._arrays import Codes, Floats
from gcig._tables import level_name
from gcig._validation import check_features
from gcig.adapters import Outputs
from gcig.adapters.base import last_step
from gcig.auditing.sources import Batch, Source, take_rows
from gcig.auditing.subject import Options
from gcig.core.columns import protected_attributes
from gcig.data.dates import are_dates, count_days
from gcig.metrics.reasons import Comparison, RowReasons, compare_attributions
from gcig.metrics.sample import EncodedRows
from gcig.metrics.trust import threshold_logit
from gcig.records.audit import LISTED_ROWS, RowAudit
from gcig.records.explanation import HIDDEN, ColumnReason, RowExplanation

NEIGHBOUR_ROWS = 5000  # people that are searched for neighbours: a sample of the table
_N_BINS = 24
_TOP_ROWS = 20  # without include_rows
# Attributions of the described rows, and again of their neighbours: a page of about 3 MB.
_MAX_ATTRIBUTIONS = 25_000
_LEAST_ROWS = 10  # rows that are described even if they have more attributions than that
_ROW_OVERHEAD = 20  # attributions that take as much space as the other parts of a row: sentences and axes
_EVEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: its multiples modulo 2^64 are evenly spread
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
# Differences of normalised attributions are at most 2. Bins are finer near 0, where most differences are.
_EDGES = 2.0 * np.linspace(-1, 1, 401) ** 3


@dataclass(frozen=True, eq=False)
class RowDescriber:
    """Descriptions of explained rows in words and numbers."""

    comparison: Comparison
    names: tuple[str, ...]  # names of all groups
    classes: tuple[str, str]  # names of the labels 0 and 1
    favourable: int = 1  # the label that is favourable for a person
    threshold: float = math.nan  # probability of a positive decision; NaN if the model has its own rule
    hidden: frozenset[str] = frozenset()  # columns whose entries and attributions are not shown
    shows_groups: bool = False  # whether the group of a row is shown; that of a neighbour always is

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the compared groups."""
        return tuple(self.names[g] for g in self.comparison.compared)

    def describe(
        self,
        batch: Batch,
        outputs: Outputs,
        *,
        label_source: str = "given",
        roles: Sequence[str] = (),
        values: Floats | None = None,
    ) -> tuple[RowExplanation, ...]:
        """Explain rows and describe each.

        ``roles`` describe neighbours in words, and ``values`` are attributions (groups, n, columns), if they
        are known.
        """
        rows, columns = batch.rows, self.comparison.columns
        names = batch.identifiers or [str(place) for place in rows.positions.tolist()]
        values = self._explain(rows) if values is None else values
        used = self.comparison.definition
        found = compare_attributions(torch.from_numpy(values), used, self.comparison.scale[used.columns])
        disparity = np.where(found.defined.numpy(), found.disparity.numpy(), np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = found.contributions.numpy() / disparity[:, None]
        logits = np.asarray(self.comparison.adapted.logits(rows.inputs), dtype=np.float64)
        cut = threshold_logit(self.comparison, self.threshold)
        decisions = outputs.codes
        entries = _entries(batch.frame, columns, len(rows), self.hidden)
        # The attribution of a protected column gives away its entry: it is 0 relative to the row's own group.
        # The waterfall starts after the parts of such columns, because the sum would give them away.
        protected = np.array([column in self.hidden for column in columns], dtype=bool)
        starts = logits - values[:, :, ~protected].sum(axis=2)
        values = np.where(protected, np.nan, values)
        shares = np.where(protected, np.nan, shares)
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
                group=self.names[group] if group >= 0 and (roles or self.shows_groups) else None,
                references={name: float(starts[k, i]) for k, name in enumerate(self.groups)},
                disparity=float(disparity[i]),
                columns=self._reasons(values[:, i], shares[i], entries[i]),
                role=roles[i] if roles else "",
            )
            for i, group in enumerate(rows.groups.tolist())
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
        """Return the reasons of one row from values (groups, columns), by decreasing difference.

        Columns without values are the last.
        """
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

    def texts(column: str) -> list[str]:
        if column in hidden or table is None or column not in table:
            return [HIDDEN if column in hidden else ""] * n
        return [_as_text(value) for value in table[column].tolist()]

    return [list(row) for row in zip(*map(texts, columns), strict=True)] if columns else [[]] * n


def _as_text(value: object) -> str:
    if value is None or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return "missing"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, pd.Timestamp) and value == value.normalize():
        return f"{value:%Y-%m-%d}"
    return level_name(value)


def find_neighbours(
    table: pd.DataFrame, others: pd.DataFrame, groups: Codes, accepted: Codes, compared: Sequence[int]
) -> list[dict[tuple[int, int], tuple[int, float]]]:
    """Return, per row, (group, accepted or not) -> position and distance of the nearest of the other rows.

    The distance is Gower's: per column the difference of numbers or dates relative to their range between
    the 5 % and 95 % quantiles, at most 1, and 0 or 1 for categories and missing entries; the mean over
    columns. Rows that are the same in every column are left out: one of them may be the row itself.
    """
    total = np.zeros((len(table), len(others)))
    for name in others.columns:
        mine, theirs = table[name], others[name]
        if _are_dates(theirs):
            mine, theirs = (pd.Series(count_days(each)[0]) for each in (mine, theirs))
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


def _are_dates(column: "pd.Series[Any]") -> bool:
    """Return whether a column holds dates, also as text."""
    if pt.is_numeric_dtype(column.dtype):
        return False
    return pt.is_datetime64_any_dtype(column.dtype) or are_dates(map(str, column.dropna().unique()))


def revealing_columns(frame: pd.DataFrame, groups: Codes) -> set[str]:
    """Return the columns of a table that are the protected attribute, or one of several, or reveal it."""
    codes = np.stack([pd.factorize(frame[name])[0] for name in frame], axis=1).astype(np.float64)
    found = protected_attributes(
        torch.from_numpy(codes), torch.from_numpy(groups.astype(np.int64)), torch.arange(codes.shape[1])
    )
    return {str(frame.columns[j]) for each in found for j in each.columns.tolist()}


def protected_columns(model: Any, source: Source | None, named: Iterable[str] = ()) -> frozenset[str]:
    """Return the columns that are or reveal the protected attribute, whose entries are not shown.

    These are ``named`` ones, those that a gcig model found in training, and those of the rows of ``source``.
    """
    found = {*named, *getattr(last_step(model), "protected_columns_", ())}
    if source is not None:
        first, found = next(source.batches()), found | set(source.attributes)
        if first.frame is not None:
            found |= revealing_columns(first.frame, first.rows.groups)
    return frozenset(found)


@dataclass(frozen=True, eq=False)
class ListedRow:
    """A row and its attributions, ``values`` (groups, columns)."""

    position: int
    disparity: float
    label: int
    group: int
    values: Floats


class RowList:
    """Histograms of the disparity per group and of the differences per column, and the rows to be listed.

    The rows of ``probe`` determine the bins of the disparity; the last bin is open. The differences are those
    of normalised attributions. The listed rows are the most affected ones and, if rows are described, an even
    sample of the others, as many as fit on a page.
    """

    def __init__(self, comparison: Comparison, probe: EncodedRows, n_groups: int, options: Options) -> None:
        self.comparison, self.options = comparison, options
        spread = [found.disparity for _, found, _ in comparison.explain_all(probe) if found is not None]
        top = float(np.quantile(np.concatenate(spread), 0.995)) if spread else 0.0
        self.edges = np.linspace(0, top if top > 0 else 1.0, _N_BINS + 1)
        self.histogram = np.zeros((n_groups, _N_BINS), dtype=np.int64)
        self.differences = np.zeros((len(comparison.columns), len(_EDGES) - 1), dtype=np.int64)
        self._n_top = LISTED_ROWS if options.include_rows else _TOP_ROWS
        most = max_described(len(comparison.columns), len(comparison.compared))
        self._n_others = max(0, most - self._n_top) if options.include_rows else 0
        self._top: list[ListedRow] = []
        self._others: list[ListedRow] = []

    def add(self, rows: EncodedRows, found: RowReasons | None, label: int) -> None:
        """Add explained rows of one label."""
        if found is None:
            return
        bins = np.searchsorted(self.edges, np.where(found.defined, found.disparity, 0.0), side="right") - 1
        flat = rows.groups * _N_BINS + np.clip(bins, 0, _N_BINS - 1)
        counted = np.bincount(flat[found.defined], minlength=self.histogram.size)
        self.histogram += counted.reshape(self.histogram.shape)
        self._add_differences(found.normalised[:, found.defined])
        defined = np.flatnonzero(found.defined)
        few = _smallest(defined, -found.disparity[defined], self._n_top)
        self._top = _sorted([*self._top, *_listed(rows, found, label, few)])[: self._n_top]
        few = _smallest(defined, _spread(rows.positions[defined]), self._n_others)
        others = [*self._others, *_listed(rows, found, label, few)]
        places = np.array([row.position for row in others], dtype=np.int64)
        self._others = [others[i] for i in _smallest(np.arange(len(others)), _spread(places), self._n_others)]

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

    def listed(self) -> list[ListedRow]:
        """Return the rows by decreasing disparity."""
        return _sorted(list({row.position: row for row in [*self._others, *self._top]}.values()))


def max_described(n_columns: int, n_groups: int) -> int:
    """Return the number of rows that fit on a page."""
    return max(_LEAST_ROWS, _MAX_ATTRIBUTIONS // (n_columns * n_groups + _ROW_OVERHEAD))


def _spread(positions: Codes) -> Any:
    """Return a key per position; the rows with the smallest keys are spread evenly over the table.

    >>> np.sort(np.argsort(_spread(np.arange(1000)))[:4]).tolist()
    [0, 233, 610, 843]
    """
    return positions.astype(np.uint64) * _EVEN  # modulo 2^64


def _smallest(indices: Codes, keys: Any, n: int) -> Codes:
    return indices[np.argpartition(keys, n)[:n]] if len(indices) > n else indices


def _listed(rows: EncodedRows, found: RowReasons, label: int, few: Codes) -> list[ListedRow]:
    """Return some of the explained rows as separate objects."""
    columns = rows.positions[few], found.disparity[few], rows.groups[few], found.values[:, few].swapaxes(0, 1)
    return [
        ListedRow(int(position), float(disparity), label, int(group), values)
        for position, disparity, group, values in zip(*columns, strict=True)
    ]


def _sorted(rows: list[ListedRow]) -> list[ListedRow]:
    """Sort rows by decreasing disparity; ties stay in the order of the table."""
    return sorted(rows, key=lambda row: (-row.disparity, row.position))


def audit_rows(rows: RowList, source: Source, sample: EncodedRows, cell_sizes: Codes) -> tuple[RowAudit, ...]:
    """Return the listed rows by decreasing disparity, with descriptions if these were requested.

    As many are described as fit; rows of suppressed cells are then left out. ``cell_sizes`` (groups, 2)
    counts the audited rows. The most affected rows get neighbours, which are searched in a ``sample``.
    """
    listed, comparison, options = rows.listed(), rows.comparison, rows.options
    if not options.include_rows:
        return tuple(RowAudit(row.position, row.disparity) for row in listed)
    large = [row for row in listed if cell_sizes[row.group, row.label] >= options.min_cell]
    limit = max_described(len(comparison.columns), len(comparison.compared))
    shown, others = large[:limit], large[limit:]
    if not shown:
        return ()
    by_position = {row.position: row for row in shown}
    adapted, places = comparison.adapted, sorted(by_position)
    describer = RowDescriber(
        comparison,
        names=source.group_names,
        classes=(str(source.classes[0]), str(source.classes[1])),
        favourable=options.favourable,
        threshold=options.cut(adapted),
        hidden=frozenset() if options.include_protected else protected_columns(adapted.model, source),
        shows_groups=options.include_protected,
    )
    part = take_rows(source, places)
    known = np.stack([by_position[place].values for place in places], axis=1)
    described = describer.describe(part, part.predict(adapted, options.threshold), values=known)
    found, table = dict(zip(places, described, strict=True)), part.frame
    if table is not None:
        room = max(1, limit // (2 * len(describer.groups)))  # two neighbours per group
        most = [row.position for row in shown[:room]]
        near = add_neighbours(
            tuple(found[place] for place in most),
            table.iloc[np.searchsorted(places, most)],
            take_rows(source, sample.positions[:NEIGHBOUR_ROWS].tolist()),
            describer,
            threshold=options.threshold,
            min_cell=options.min_cell,
        )
        found |= dict(zip(most, near, strict=True))
    return (
        *(RowAudit(row.position, row.disparity, found[row.position]) for row in shown),
        *(RowAudit(row.position, row.disparity) for row in others),
    )


def add_neighbours(
    described: tuple[RowExplanation, ...],
    table: pd.DataFrame,
    people: Batch,
    describer: RowDescriber,
    *,
    threshold: float | None,
    min_cell: int,
) -> tuple[RowExplanation, ...]:
    """Return the rows with the people nearest to each, one per compared group and decision.

    Neighbours are shown only if at least ``min_cell`` people share their group and decision.
    """
    comparison, groups, others = describer.comparison, people.rows.groups, check_features(people.table)
    outputs = people.predict(comparison.adapted, threshold)
    accepted = (outputs.codes == describer.favourable).astype(np.int64)
    large = {
        (group, decision)
        for group in comparison.compared
        for decision in (0, 1)
        if np.count_nonzero((groups == group) & (accepted == decision)) >= min_cell
    }
    # The distance leaves out columns that are not shown: people of the row's own group would be nearer.
    alike = [name for name in others.columns if name not in describer.hidden]
    found = find_neighbours(table[alike], others[alike], groups, accepted, comparison.compared)
    nearest = [
        [(place, distance) for cell, (place, distance) in of_row.items() if cell in large] for of_row in found
    ]
    places = np.unique([place for of_row in nearest for place, _ in of_row]).astype(np.int64)
    if not len(places):
        return described
    words = ("unfavourable", "favourable")
    near = describer.describe(
        Batch(others.iloc[places], None, people.rows[places], [""] * len(places)),
        Outputs(outputs.scores[places], outputs.decisions[places]),
        roles=[
            f"nearest {words[decision]} decision in group {describer.names[group]!r}"
            for group, decision in zip(groups[places].tolist(), accepted[places].tolist(), strict=True)
        ],
    )
    by_place = dict(zip(places.tolist(), near, strict=True))
    return tuple(
        replace(row, neighbours=tuple(replace(by_place[place], distance=d) for place, d in of_row))
        for row, of_row in zip(described, nearest, strict=True)
    )
