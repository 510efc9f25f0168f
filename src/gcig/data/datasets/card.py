"""The card of a dataset: its declaration, and counts from its table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from textwrap import fill
from typing import TYPE_CHECKING, Any

from gcig.data.datasets.dataset import group_names, input_columns, labels
from gcig.data.datasets.spec import DatasetSpec, ProtectedAttribute
from gcig.records.audit import SMALLEST_CELL

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class GroupFacts:
    """Size and base rate of one group; the rate of a suppressed (too small) group is None."""

    group: str
    rows: int
    base_rate: float | None


@dataclass(frozen=True)
class DatasetCard:
    """The facts to know before using a dataset, as text, as HTML and as a dictionary.

    Attributes
    ----------
    spec
        The declaration.
    inputs
        Names of the columns to predict from.
    rows, base_rate
        Number of rows, and the share of rows with label 1.
    groups
        Name of a protected attribute -> facts about its groups, the largest first.
    """

    spec: DatasetSpec
    inputs: tuple[str, ...]
    rows: int
    base_rate: float
    groups: dict[str, tuple[GroupFacts, ...]]

    @classmethod
    def from_frame(cls, spec: DatasetSpec, frame: pd.DataFrame) -> DatasetCard:
        """Build the card of a table that passed ``check_frame``."""
        y = labels(spec, frame)
        return cls(
            spec=spec,
            inputs=tuple(input_columns(spec, frame)),
            rows=len(frame),
            base_rate=float(y.mean()),
            groups={each.name: group_facts(y, group_names(each, frame)) for each in spec.protected},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the card as plain values for JSON."""
        counted = {
            "rows": self.rows,
            "columns": len(self.inputs),
            "inputs": list(self.inputs),
            "base_rate": self.base_rate,
            "protected": {
                attribute.name: {
                    "description": attribute.description,
                    "columns": list(attribute.columns),
                    "groups": [vars(facts) for facts in self.groups[attribute.name]],
                }
                for attribute in self.spec.protected
            },
        }
        return {**self.spec.to_dict(), **counted}

    def __str__(self) -> str:
        spec = self.spec
        lines = [f"{spec.title} ({spec.name})", ""]
        for heading, words in self._facts():
            lines.append(
                fill(words, 100, initial_indent=f"{heading:<10}", subsequent_indent=" " * 10, **_WHOLE_WORDS)
            )
        for attribute in spec.protected:
            lines += ["", fill(_title(attribute, spec), 100, subsequent_indent="  ")]
            lines += format_groups(self.groups[attribute.name])
        for heading, notes in (("Traps", spec.traps), ("Known harms", spec.harms)):
            lines += ["", heading] if notes else []
            lines += [fill(note, 100, initial_indent="- ", subsequent_indent="  ") for note in notes]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        spec = self.spec
        facts = "".join(f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in self._facts())
        parts = [f"<h3>{escape(spec.title)} ({escape(spec.name)})</h3><table>{facts}</table>"]
        for attribute in spec.protected:
            rows = "".join(
                f"<tr><td>{escape(each.group)}</td><td>{each.rows:,}</td><td>{escape(_rate(each))}</td></tr>"
                for each in self.groups[attribute.name]
            )
            head = "<tr><th>group</th><th>rows</th><th>label 1</th></tr>"
            parts.append(f"<h4>{escape(_title(attribute, spec))}</h4><table>{head}{rows}</table>")
        for heading, notes in (("Traps", spec.traps), ("Known harms", spec.harms)):
            if notes:
                items = "".join(f"<li>{escape(note)}</li>" for note in notes)
                parts.append(f"<h4>{heading}</h4><ul>{items}</ul>")
        return "".join(parts)

    def _facts(self) -> list[tuple[str, str]]:
        spec = self.spec
        facts = [
            ("rows", f"{self.rows:,}"),
            ("inputs", f"{len(self.inputs)}: {', '.join(self.inputs)}"),
            ("target", f"{spec.target}; 1 means {spec.positive_means} ({self.base_rate:.1%} of the rows)"),
            ("source", spec.source),
            ("licence", spec.licence),
            ("citation", spec.citation),
        ]
        return facts + [("sha256", f"{digest} {file}") for file, digest in spec.sha256.items()]


def group_facts(y: pd.Series[int], groups: pd.Series[str]) -> tuple[GroupFacts, ...]:
    """Return size and base rate of every group, the largest first."""
    table = y.groupby(groups).agg(["size", "mean"]).sort_values("size", ascending=False, kind="stable")
    return tuple(
        GroupFacts(str(group), int(size), float(mean) if size >= SMALLEST_CELL else None)
        for group, size, mean in table.itertuples()
    )


def format_groups(groups: Sequence[GroupFacts]) -> list[str]:
    """Return one aligned line of text per group.

    Examples
    --------
    >>> format_groups([GroupFacts("male", 690, 0.723)])
    ['  male      690 rows   72.3% with label 1']
    """
    width = max(len(each.group) for each in groups)
    return [f"  {each.group:<{width}}  {each.rows:>7,} rows  {_rate(each)}" for each in groups]


# Keep hashes, DOIs and column names unbroken.
_WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def _title(attribute: ProtectedAttribute, spec: DatasetSpec) -> str:
    default = ", the default" if attribute.name == spec.default else ""
    described = f": {attribute.description}" if attribute.description else ""
    return f"Protected attribute {attribute.name}{default} (from {', '.join(attribute.columns)}){described}"


def _rate(facts: GroupFacts) -> str:
    if facts.base_rate is None:
        return f"rate suppressed: fewer than {SMALLEST_CELL} rows"
    return f"{facts.base_rate:>6.1%} with label 1"
