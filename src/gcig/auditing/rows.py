"""Single rows: descriptions in words and numbers, and the nearest people of each group."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pandas.api import types as pt
from sklearn.utils import _safe_indexing

from gcig._arrays import Codes, Floats, Rows
from gcig.adapters import Outputs
from gcig.adapters.base import last_step
from gcig.core.attribution import Score
from gcig.core.columns import protected_attributes
from gcig.core.explained import smallest_by_group
from gcig.metrics.plan import Plan
from gcig.metrics.relative_to_means import compare_rows
from gcig.records.explanation import HIDDEN, ColumnReason, RowExplanation
from gcig.tables.check import check_features
from gcig.tables.columns import are_dates, count_days
from gcig.tables.frames import level_name

NEIGHBOUR_ROWS = 5000  # people that are searched for neighbours: a sample of the table
_MEMBERS = 128  # references of each group that a row is compared with if the model has no gradients


@dataclass(frozen=True, eq=False)
class Batch:
    """Some rows: as the model takes them (``table``, ``sensitive``), and encoded."""

    table: Any
    sensitive: Any
    inputs: Rows  # (n, p)
    labels: NDArray[Any]  # codes of classes, or numbers
    groups: Codes  # -1 if unknown
    identifiers: Sequence[str] | None = None  # names of the rows

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def frame(self) -> pd.DataFrame | None:
        """The rows as a table; None if they are something else, such as images."""
        return check_features(self.table) if getattr(self.table, "ndim", 2) == 2 else None

    def take(self, places: Codes) -> "Batch":
        """Return some of the rows."""
        return Batch(
            _taken(self.table, places),
            _taken(self.sensitive, places),
            self.inputs[places],
            self.labels[places],
            self.groups[places],
            None if self.identifiers is None else [self.identifiers[i] for i in places.tolist()],
        )


def _taken(values: Any, places: Codes) -> Any:
    """Return some rows of a table or array of any kind."""
    if values is None:
        return None
    return values.tocsr()[places] if hasattr(values, "tocsr") else _safe_indexing(values, places)


@dataclass(frozen=True, eq=False)
class GroupExplainer:
    """Attributions of single rows relative to each compared group.

    A model with gradients is explained relative to the groups' means; any other one relative to some of their
    members, over which attributions are averaged.
    """

    plan: Plan
    compared: tuple[int, ...]  # codes of the compared groups

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the definition."""
        plan = self.plan
        return plan.columns.of(plan.definition.columns if plan.means is not None else "original")

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the compared groups."""
        return tuple(self.plan.groups.names[code] for code in self.compared)

    def explain(self, inputs: Rows, labels: NDArray[Any]) -> Floats:
        """Return attributions (groups, n, columns) in units of the score; NaN without references."""
        plan, cells = self.plan, self.plan.cells(labels)
        found = np.full((len(self.compared), len(inputs), len(self.columns)), np.nan)
        for cell in np.unique(cells).tolist():
            own = np.flatnonzero(cells == cell)
            x = plan.tensor(np.asarray(inputs)[own])
            y = torch.from_numpy(np.asarray(labels)[own]).to(x.device)
            values = self._by_means(cell, x, y) if plan.means is not None else self._by_members(cell, x, y)
            found[:, own] = values
        return found

    def _by_means(self, cell: int, x: torch.Tensor, y: torch.Tensor) -> Floats:
        explainer = self.plan.means
        assert explainer is not None
        references = explainer.means[cell, list(self.compared)].unsqueeze(1).expand(-1, len(x), -1)
        values, slopes = explainer.attribute(x, y, references)
        values = explainer.on_columns(explainer.definition.columns, values, slopes, x - references)
        return values.detach().double().cpu().numpy()

    def _by_members(self, cell: int, x: torch.Tensor, y: torch.Tensor) -> Floats:
        plan, sample = self.plan, self.plan.references
        assert sample is not None
        assert sample.inputs is not None
        score = Score.of(plan.module, plan.task, y)
        rows = smallest_by_group(np.flatnonzero(plan.cells(sample.labels) == cell), sample.groups, _MEMBERS)
        matrix, parts = plan.columns.matrix, []
        for code in self.compared:
            members = plan.tensor(sample.inputs[rows[sample.groups[rows] == code]])
            starts = members.unsqueeze(1).expand(-1, len(x), -1)
            each = plan.attribution.attribute(score, x, starts)
            parts.append((each @ matrix.to(each)).mean(0).double().numpy())
        return np.stack(parts)

    def scores(self, inputs: Rows, labels: NDArray[Any]) -> Floats:
        """Return the explained score of each row, (n,)."""
        outputs = np.asarray(self.plan.adapted.outputs(inputs), dtype=np.float64).reshape(len(inputs), -1)
        y = torch.from_numpy(np.asarray(labels))
        return np.asarray(self.plan.task.score(torch.from_numpy(outputs), y).numpy())

    @property
    def cut(self) -> float:
        """The score from which a row of two classes is decided positive; NaN for another rule."""
        plan = self.plan
        if plan.task.key != "binary":
            return math.nan
        if not plan.adapted.probabilistic:
            return 0.0
        return math.log(plan.threshold) - math.log1p(-plan.threshold) if 0 < plan.threshold < 1 else math.nan

    def compare(self, values: Floats) -> tuple[Floats, Floats]:
        """Return the disparity of each row, NaN if its attributions vanish, and the share of each column."""
        spread, shares = compare_rows(torch.from_numpy(values), self.plan.definition)
        return spread.numpy(), shares.numpy()


@dataclass(frozen=True, eq=False)
class RowDescriber:
    """Descriptions of explained rows in words and numbers."""

    explainer: GroupExplainer
    classes: tuple[str, ...]  # names of the classes; none for numbers
    hidden: frozenset[str] = frozenset()  # columns whose entries and attributions are not shown
    shows_groups: bool = False  # whether the group of a row is shown; that of a neighbour always is

    def describe(
        self, batch: Batch, outputs: Outputs, *, label_source: str = "given", roles: Sequence[str] = ()
    ) -> tuple[RowExplanation, ...]:
        """Explain rows and describe each; ``roles`` describe neighbours in words."""
        explainer, columns = self.explainer, self.explainer.columns
        names = batch.identifiers or [str(place) for place in range(len(batch))]
        values = explainer.explain(batch.inputs, batch.labels)
        with np.errstate(invalid="ignore", divide="ignore"):
            spread, shares = explainer.compare(values)
        scores = explainer.scores(batch.inputs, batch.labels)
        entries = _entries(batch.frame, columns, len(batch), self.hidden)
        # The attribution of a protected column gives away its entry: it is 0 relative to the row's own group.
        # The waterfall starts after the parts of such columns, because the sum would give them away.
        protected = np.array([column in self.hidden for column in columns], dtype=bool)
        starts = scores - values[:, :, ~protected].sum(axis=2)
        values = np.where(protected, np.nan, values)
        shares = np.where(protected, np.nan, shares)
        all_names = explainer.plan.groups.names
        numbers = explainer.plan.task.key == "number"
        good: list[bool] | list[None] = [None] * len(batch) if numbers else self.is_favourable(outputs)
        return tuple(
            RowExplanation(
                row=names[i],
                position=i if not roles else -1,
                score=self._score(outputs, i),
                logit=float(scores[i]),
                decision=self._decision(outputs, i),
                favourable=good[i],
                margin=float(scores[i]) - explainer.cut,
                label=self._label(batch.labels[i]),
                label_source=label_source,
                group=all_names[group] if group >= 0 and (roles or self.shows_groups) else None,
                references={name: float(starts[k, i]) for k, name in enumerate(explainer.groups)},
                disparity=float(spread[i]),
                columns=self._reasons(values[:, i], shares[i], entries[i]),
                role=roles[i] if roles else "",
            )
            for i, group in enumerate(batch.groups.tolist())
        )

    def is_favourable(self, outputs: Outputs) -> list[bool]:
        """Return whether each decision is favourable; numbers have no decisions that are."""
        if self.explainer.plan.task.key == "number":
            return [False] * len(outputs.decisions)
        return [code in self.explainer.plan.favourable for code in outputs.codes.tolist()]

    def _score(self, outputs: Outputs, row: int) -> float:
        """Return the score of label 1, the probability of the decided class, or the number."""
        found = np.asarray(outputs.scores)[row]
        return float(found if found.ndim == 0 else found[outputs.codes[row]])

    def _decision(self, outputs: Outputs, row: int) -> str:
        if self.explainer.plan.task.key == "number":
            return f"{float(outputs.decisions[row]):.6g}"
        return self.classes[int(outputs.codes[row])]

    def _label(self, label: Any) -> str:
        numbers = self.explainer.plan.task.key == "number"
        found: str = f"{label:.6g}" if numbers else self.classes[int(label)]
        return found

    def _reasons(self, values: Floats, shares: Floats, entries: Sequence[str]) -> tuple[ColumnReason, ...]:
        """Return the reasons of one row from values (groups, columns), by decreasing difference.

        Columns without values are the last.
        """
        spread = np.ptp(values, axis=0)
        order = np.lexsort((-np.abs(values).max(axis=0), -np.nan_to_num(spread)))
        return tuple(
            ColumnReason(
                column=self.explainer.columns[j],
                value=entries[j],
                attributions=dict(zip(self.explainer.groups, values[:, j].tolist(), strict=True)),
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


def protected_columns(model: Any, batch: Batch | None, named: Iterable[str] = ()) -> frozenset[str]:
    """Return the columns that are or reveal the protected attribute, whose entries are not shown.

    These are ``named`` ones, those that a gcig model found in training, and those of the rows of a ``batch``.
    """
    found = {*named, *getattr(last_step(model), "protected_columns_", ())}
    if batch is not None and batch.frame is not None:
        found |= revealing_columns(batch.frame, batch.groups)
    return frozenset(found)


def add_neighbours(
    described: tuple[RowExplanation, ...],
    table: pd.DataFrame,
    people: Batch,
    describer: RowDescriber,
) -> tuple[RowExplanation, ...]:
    """Return the rows with the people nearest to each, one per compared group and decision.

    Neighbours are shown only if at least ``min_cell`` people share their group and decision.
    """
    explainer, groups, others = describer.explainer, people.groups, check_features(people.table)
    plan = explainer.plan
    outputs = plan.adapted.predict(
        people.table, people.sensitive, encoded=people.inputs, threshold=plan.options.threshold
    )
    accepted = np.array(describer.is_favourable(outputs), dtype=np.int64)
    large = {
        (group, decision)
        for group in explainer.compared
        for decision in (0, 1)
        if np.count_nonzero((groups == group) & (accepted == decision)) >= plan.options.min_cell
    }
    # The distance leaves out columns that are not shown: people of the row's own group would be nearer.
    alike = [name for name in others.columns if name not in describer.hidden]
    found = find_neighbours(table[alike], others[alike], groups, accepted, explainer.compared)
    nearest = [
        [(place, distance) for cell, (place, distance) in of_row.items() if cell in large] for of_row in found
    ]
    places = np.unique([place for of_row in nearest for place, _ in of_row]).astype(np.int64)
    if not len(places):
        return described
    words = ("unfavourable", "favourable")
    near = describer.describe(
        replace(people.take(places), identifiers=[""] * len(places)),
        Outputs(outputs.scores[places], outputs.decisions[places]),
        roles=[
            f"nearest {words[decision]} decision in group {plan.groups.names[group]!r}"
            for group, decision in zip(groups[places].tolist(), accepted[places].tolist(), strict=True)
        ],
    )
    by_place = dict(zip(places.tolist(), near, strict=True))
    return tuple(
        replace(row, neighbours=tuple(replace(by_place[place], distance=d) for place, d in of_row))
        for row, of_row in zip(described, nearest, strict=True)
    )
