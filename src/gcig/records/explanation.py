"""The record of single rows explained relative to every group: what a page shows of one person."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gcig.records.base import Record
from gcig.records.formatting import counted, number, signed

EXPLANATION_SCHEMA = 1
HIDDEN = "not shown"


@dataclass(frozen=True, eq=False)
class ColumnReason(Record):
    """The part of one column in the score of a row; its numbers are NaN for a column that is not shown."""

    column: str
    value: str  # the entry of the row as text; "not shown" for a protected column
    attributions: Mapping[str, float]  # group -> how far the column moves the logit from its reference
    difference: float  # the largest minus the smallest attribution, in logits
    share: float  # the column's share of the disparity of the row; NaN if there is none

    @property
    def hidden(self) -> bool:
        """True for a protected column that is not shown."""
        return self.value == HIDDEN and math.isnan(self.difference)


@dataclass(frozen=True, eq=False)
class RowExplanation(Record):
    """A row, its decision, and its reasons under every group's reference."""

    row: str  # identifier of the row, or its position; empty for a neighbour, who stays anonymous
    position: int  # in the explained table, from 0; -1 for a neighbour
    score: float  # probability of the positive class, or score
    logit: float  # the explained score
    decision: str  # the class that the model decides for
    favourable: bool | None  # whether that is the favourable class; None for a number
    margin: float  # logit minus the logit of the threshold; NaN if the model has its own decision rule
    label: str  # the class whose references were used
    label_source: str  # "given" or "predicted"
    group: str | None  # None if it is not shown
    # group -> logit at its reference, the start of the attributions; parts of columns that are not shown are
    # added to it
    references: Mapping[str, float]
    disparity: float  # between the normalised attributions of the groups; NaN if they vanish
    columns: tuple[ColumnReason, ...]  # by decreasing difference
    role: str = ""  # for a neighbour, its decision and group in words
    distance: float = math.nan  # for a neighbour, the mean difference per column, from 0 (alike) to 1
    neighbours: "tuple[RowExplanation, ...]" = ()  # the nearest person of every group and decision

    @property
    def shown(self) -> tuple[ColumnReason, ...]:
        """Columns other than the hidden ones."""
        return tuple(each for each in self.columns if not each.hidden)

    @property
    def hidden(self) -> tuple[str, ...]:
        """Names of the protected columns whose entries and attributions are not shown."""
        return tuple(each.column for each in self.columns if each.hidden)

    @property
    def deciding(self) -> tuple[ColumnReason, ...]:
        """Columns whose difference between the references is at least the margin of the decision."""
        reach = abs(self.margin)
        return tuple(reason for reason in self.columns if reason.difference >= reach)

    def bars(self, n: int) -> tuple[list[str], dict[str, list[float]]]:
        """Return the bars of a waterfall: their names, and group -> attributions.

        They are the n columns with the largest attributions, and the sum of the others if there are any.
        """

        def size(reason: ColumnReason) -> float:
            return max(map(abs, reason.attributions.values()), default=0.0)

        order = sorted(self.shown, key=size, reverse=True)
        drawn, rest = order[:n], order[n:]
        names = [f"{each.column} = {each.value}" if each.value else each.column for each in drawn]
        values = {group: [each.attributions[group] for each in drawn] for group in self.references}
        if rest:
            names.append(counted(len(rest), "other column"))
            for group, own in values.items():
                own.append(sum(each.attributions[group] for each in rest))
        return names, values

    def describe(self) -> list[str]:
        """Say what was decided, where the reasons differ most, and how much that matters."""
        kind = "favourable" if self.favourable else "unfavourable"
        lines = [f"The decision is {self.decision!r}, the {kind} one; the score is {number(self.score)}."]
        if self.favourable is None:
            lines = [f"The prediction is {self.decision}."]
        if not self.shown or len(self.references) < 2:
            return lines
        first, which = self.shown[0], " shown here" if self.hidden else ""
        if first.difference < 0.005:
            return [
                *lines,
                f"The reasons hardly depend on the group: no column{which} differs by 0.01 logits.",
            ]
        low, high = (pick(first.attributions, key=first.attributions.__getitem__) for pick in (min, max))
        lines.append(
            f"The reasons differ most in {first.column!r}: it adds {signed(first.attributions[high])} logits "
            f"compared with group {high!r}, and {signed(first.attributions[low])} compared with {low!r}."
        )
        if math.isnan(self.margin):
            return lines
        if self.deciding:
            *others, last = (repr(reason.column) for reason in self.deciding[:3])
            columns = f"each of {', '.join(others)} and {last}" if others else f"{last} alone"
            lines.append(
                f"The decision is {number(abs(self.margin), 2)} logits from the threshold, and the "
                f"difference in {columns} is at least as large."
            )
        else:
            lines.append(
                f"The decision is {number(abs(self.margin), 2)} logits from the threshold: no single "
                f"column{which} differs by as much."
            )
        return lines


@dataclass(frozen=True, eq=False)
class ExplanationRecord(Record):
    """Explained rows of one model."""

    model_name: str
    model_kind: str
    explanation: str
    reference: str  # in words, the rows that the groups' references were estimated on
    groups: tuple[str, ...]  # the compared groups
    positive: str
    negative: str
    favourable: str  # the class that is favourable for a person
    probabilistic: bool  # whether scores are probabilities
    threshold: float  # probability from which a row is decided positive; NaN if the model has its own rule
    definition: Mapping[str, Any]  # the choices behind the disparity
    rows: tuple[RowExplanation, ...]
    hidden: tuple[str, ...] = ()  # columns that are not shown, because they reveal the group
    suppressed: tuple[str, ...] = ()  # groups with too few rows to be compared or to have neighbours
    min_cell: int = 0  # the smallest number of rows of a cell that is shown
    versions: Mapping[str, str] = field(default_factory=dict)
    created: str = ""
    schema: int = EXPLANATION_SCHEMA
