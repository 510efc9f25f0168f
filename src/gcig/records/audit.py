"""The record of one audit: an evaluation of any model, with its provenance and the change since an
earlier one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gcig.records.base import Interval, Record
from gcig.records.evaluation import Evaluation
from gcig.records.formatting import count, counted, number
from gcig.records.verdict import Verdict

SMALLEST_CELL = 11  # rows: the default of min_cell; the mean of fewer is close to one person's record
AUDIT_SCHEMA = 8


@dataclass(frozen=True, eq=False)
class Subject(Record):
    """The subject of an audit: model, data and definition."""

    model_name: str  # its class or file name
    model_kind: str  # a phrase such as "torch module"
    model_sha256: str | None  # of its file or its values; None if there is nothing to hash
    data_sha256: str | None
    explanation: str  # the attribution
    reference: str  # in words, the rows that people are compared with
    n_rows: int
    n_columns: int
    sensitive: tuple[str, ...]  # names of the protected attributes; several are crossed
    task: str  # "binary", "classes" or "number"
    classes: tuple[str, ...]  # names of the classes; of two, the second is the positive one
    favourable: tuple[str, ...]  # the favourable classes, or "high" or "low" numbers
    threshold: float  # probability from which a row is decided positive; NaN if decided by another rule
    definition: Mapping[str, Any]  # the choices behind the figures
    versions: Mapping[str, str]  # software -> version
    created: str  # ISO date and time in UTC


@dataclass(frozen=True, eq=False)
class FigureChange(Record):
    """One figure before and after."""

    figure: str
    name: str  # as displayed
    before: Interval
    after: Interval
    difference: Interval  # after minus before
    p_value: float  # of a difference as large if nothing changed, corrected for several figures (Holm)
    verdict: str  # "better", "worse" or "chance"; "unknown" if it cannot be judged


@dataclass(frozen=True, eq=False)
class AuditChange(Record):
    """The changes since an earlier audit."""

    created: str  # when the earlier audit was made
    headline: str  # one sentence
    figures: tuple[FigureChange, ...]
    notes: tuple[str, ...] = ()  # differences in the setting, and what cannot be compared because of them


@dataclass(frozen=True, eq=False)
class AuditRecord(Record):
    """Everything found by one audit; suppressed groups are in it by name only."""

    subject: Subject
    evaluation: Evaluation
    other: Evaluation | None = None  # of a second model, explained on the same people and references
    change: AuditChange | None = None  # None unless an earlier audit was given
    verdict: Verdict | None = None
    schema: int = AUDIT_SCHEMA

    @property
    def group_names(self) -> list[str]:
        """Names of all groups, in the order that gives each its colour and mark on a page."""
        return [group.group for group in self.evaluation.groups]

    @property
    def provenance(self) -> dict[str, str]:
        """The model, data and settings of the audit as name -> text, shown at the end of every report."""
        subject = self.subject
        decisions = "the model's own rule"
        if subject.task == "number":
            decisions = "the predicted number"
        elif not math.isnan(subject.threshold):
            decisions = f"a row is predicted positive from a probability of {number(subject.threshold)}"
        found = {
            "Model": f"{subject.model_name} ({subject.model_kind})",
            "Model, SHA-256": subject.model_sha256 or "nothing to hash",
            "Data, SHA-256": subject.data_sha256 or "nothing to hash",
            "Rows": f"{count(subject.n_rows)}, {counted(subject.n_columns, 'column')}",
            "Protected attributes": ", ".join(subject.sensitive),
            "Task": subject.task,
            "Positive class": subject.classes[1] if subject.task == "binary" else "",
            "Classes": ", ".join(subject.classes) if subject.task == "classes" else "",
            "Favourable": ", ".join(subject.favourable),
            "Decisions": decisions,
            "Reasons": subject.explanation,
            "References": subject.reference,
            "Definition": ", ".join(f"{name} = {value}" for name, value in subject.definition.items()),
            "Suppression": f"rates of fewer than {counted(self.evaluation.min_cell, 'row')}",
            "Versions": ", ".join(f"{name} {version}" for name, version in subject.versions.items()),
            "Created": subject.created,
            "Record": f"schema {self.schema}",
        }
        return {name: text for name, text in found.items() if text}
