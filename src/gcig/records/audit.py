"""The record of one audit: what was measured, how certain it is, and what it means.

Rates and counts of suppressed groups and cells (fewer than ``min_cell`` rows) are not in the record at all,
so no report can publish them. Figures have the names and the values that they have in `Evaluation`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gcig.records.base import UNDEFINED, Interval, Record, flatten
from gcig.records.explanation import RowExplanation
from gcig.records.formatting import count, counted, number
from gcig.records.trust import TRUST_NUMBERS, Robustness

SMALLEST_CELL = 11  # rows: the default of min_cell; the mean of fewer is close to one person's record
LISTED_ROWS = 50  # described rows that are listed as the most affected ones
AUDIT_SCHEMA = 6
MATERIAL = 0.05  # a GCIG beyond chance that counts as material; a smaller difference of reasons is small


@dataclass(frozen=True, eq=False)
class Subject(Record):
    """The subject of an audit: model, data and definition."""

    model_name: str  # its class or file name
    model_kind: str  # a phrase such as "torch module"
    model_sha256: str | None  # of its file or its values; None if there is nothing to hash
    data_sha256: str | None
    explanation: str  # "integrated gradients" or "Shapley values"
    reference: str  # in words, the rows that the groups' references were estimated on
    n_rows: int  # without the rows of suppressed groups
    n_columns: int
    sensitive: tuple[str, ...]  # names of the protected attributes; several are crossed
    positive: str  # what label 1 means (the positive class)
    favourable: str  # the class that is favourable for a person
    threshold: float  # probability from which a row is predicted 1; NaN if decided by another rule
    definition: Mapping[str, Any]  # the choices behind GCIG
    versions: Mapping[str, str]  # software -> version
    created: str  # ISO date and time in UTC


@dataclass(frozen=True, eq=False)
class GroupAudit(Record):
    """Rates of one group, with intervals.

    ``n_rows`` is None for a suppressed group, whose other fields are undefined or empty. A rate over fewer
    than ``min_cell`` rows is undefined.
    """

    group: str
    n_rows: int | None = None
    base_rate: Interval = UNDEFINED
    selection_rate: Interval = UNDEFINED
    favourable_rate: Interval = UNDEFINED  # share of favourable decisions
    tpr: Interval = UNDEFINED
    fpr: Interval = UNDEFINED
    ppv: Interval = UNDEFINED
    calibration: Interval = UNDEFINED  # mean predicted probability minus the base rate
    auc: Interval = UNDEFINED
    gcig: Interval = UNDEFINED
    roc: tuple[tuple[float, ...], ...] = ()  # at most 101 points (FPR, TPR) from (0, 0) to (1, 1)


@dataclass(frozen=True, eq=False)
class OutcomeAudit(Record):
    """Utility and outcome fairness over all rows; the fields are those of `Evaluation`, with intervals.

    ``selection_rate_ratio`` is the lowest over the highest rate of favourable decisions.
    """

    accuracy: Interval
    balanced_accuracy: Interval
    f1: Interval
    auc: Interval
    eo_gap: Interval
    eo_worst: Interval
    eo_noise_floor: float
    delta_tpr: Interval
    delta_fpr: Interval
    demographic_parity_difference: Interval
    selection_rate_ratio: Interval
    collapsed: bool
    decides_alike: bool = False


@dataclass(frozen=True, eq=False)
class LabelAudit(Record):
    """GCIG over the rows of one label."""

    label: str
    n_rows: int | None = None
    gcig: Interval = UNDEFINED


@dataclass(frozen=True, eq=False)
class PairAudit(Record):
    """Mean disparity between the references of two groups."""

    first: str
    second: str
    gcig: Interval


@dataclass(frozen=True, eq=False)
class ColumnAudit(Record):
    """The contribution of one column to the disparity."""

    column: str  # one of the columns of the definition
    share: float  # of the disparity; the shares of all columns add up to 1
    contribution: Interval  # to GCIG; the contributions of all columns add up to it
    profile: Mapping[str, float]  # group -> mean normalised attribution under its reference
    towards: str  # the group relative to which the column adds most to the favourable class
    difference: float  # the largest minus the smallest value of the profile
    # 5 %, 25 %, 50 %, 75 % and 95 % quantile over rows of the difference of the normalised attributions: for
    # two groups, those under the second reference minus those under the first, in the direction of the
    # favourable class; for more groups, the largest minus the smallest.
    quantiles: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class RowAudit(Record):
    """A row with a large disparity: its position and, with ``include_rows=True``, its explanation."""

    position: int  # in the audited table, from 0
    disparity: float
    explanation: RowExplanation | None = None


@dataclass(frozen=True, eq=False)
class StabilityCheck(Record):
    """GCIG with one choice changed: ``aspect`` is "norm", "steps", "baseline", "columns", ..."""

    aspect: str
    setting: str
    gcig: float
    used: bool


@dataclass(frozen=True, eq=False)
class GcigAudit(Record):
    """GCIG, its uncertainty, and where it comes from; fields without a comment are those of `Evaluation`."""

    # By the definition, with the one interval that pages show and gates test: rows and references are
    # uncertain. There is no interval if the references could not be estimated again.
    gcig: Interval = UNDEFINED
    gcig_fixed_references: Interval = UNDEFINED  # the same, if the references were known: a narrower interval
    # Mean, 2.5 % and 97.5 % quantile of GCIG with groups shuffled within each label.
    noise_floor: Interval = UNDEFINED
    excess: Interval = UNDEFINED  # GCIG minus the mean of the noise floor: what chance does not explain
    p_value: float = math.nan  # share of shuffles with a GCIG as large
    evidence: str = "not enough"  # or "disparity" or "none"
    undefined_rows: int = 0
    completeness: float = math.nan
    effective_columns: float = math.nan
    gcig_l2: float = math.nan
    gcig_encoded: float = math.nan
    gcig_raw: float = math.nan
    gcig_members: Interval = UNDEFINED
    members_noise: float = math.nan
    reference_offset: float = math.nan
    faithfulness: float = math.nan
    attribute_effect: Interval = UNDEFINED  # with Wilson's interval
    undefined: Mapping[str, str] = field(default_factory=dict)  # figure -> why it is undefined
    standard_error: float = math.nan  # of GCIG, due to sampled permutations; NaN for integrated gradients
    clipped: float = math.nan  # share of probabilities clipped before the logit; NaN for integrated gradients
    compared_groups: tuple[str, ...] = ()  # GCIG is undefined for fewer than two
    n_shuffles: int = 0
    shuffled_rows: int = 0  # rows explained for each shuffle
    sampled_rows: int | None = None  # explained rows if they are a random sample; None if all were explained
    histogram_edges: tuple[float, ...] = ()  # of the disparity over rows
    histogram_counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # group -> rows per bin
    labels: tuple[LabelAudit, ...] = ()
    pairs: tuple[PairAudit, ...] = ()
    columns: tuple[ColumnAudit, ...] = ()
    rows: tuple[RowAudit, ...] = ()
    stability: tuple[StabilityCheck, ...] = ()

    @property
    def trust_values(self) -> dict[str, float]:
        """Field -> value of the numbers that say whether GCIG can be relied on."""
        values = flatten(self)
        return {item.field: values[item.field] for item in TRUST_NUMBERS}

    @property
    def comparable(self) -> float | None:
        """GCIG with references from the audited rows, to compare with the noise floor; None if it is `gcig`.

        The two differ if the model has references of its own.
        """
        here = self.excess.value + self.noise_floor.value
        return here if math.isfinite(here) and abs(here - self.gcig.value) > 1e-9 else None


@dataclass(frozen=True, eq=False)
class Verdict(Record):
    """The conclusion of an audit."""

    status: str  # "clear", "concern" or "inconclusive": the more serious of `reasons` and `decisions`
    headline: str  # one sentence
    findings: tuple[str, ...] = ()  # sentences, the most important first
    cautions: tuple[str, ...] = ()  # what a reader must know before relying on the findings
    reasons: str = "inconclusive"  # whether the model's reasons depend on the group
    decisions: str = "inconclusive"  # whether its decisions do
    members: str = "inconclusive"  # as `reasons`, if rows are compared with members of the groups


@dataclass(frozen=True, eq=False)
class FigureChange(Record):
    """One figure before and after."""

    figure: str  # field of the audit
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
    status_before: str
    status_after: str
    figures: tuple[FigureChange, ...]
    notes: tuple[str, ...] = ()  # differences in the setting, and what cannot be compared because of them


@dataclass(frozen=True, eq=False)
class AuditRecord(Record):
    """Everything found by one audit."""

    subject: Subject
    verdict: Verdict
    outcome: OutcomeAudit
    groups: tuple[GroupAudit, ...]
    procedural: GcigAudit
    min_cell: int = SMALLEST_CELL  # gaps leave out the rates of cells with fewer rows
    suppressed_cells: tuple[str, ...] = ()  # the names of these cells
    proxy_columns: tuple[str, ...] = ()  # columns of the table that determine the group
    robustness: Robustness | None = None  # None unless it was requested
    change: AuditChange | None = None  # None unless an earlier audit was given
    schema: int = AUDIT_SCHEMA

    @property
    def describes_people(self) -> bool:
        """True if the reasons for single rows are included."""
        return any(row.explanation is not None for row in self.procedural.rows)

    @property
    def by_chance(self) -> dict[str, float]:
        """Expected GCIG and EO gap of a model without any disparity on these rows; NaN if not known.

        GCIG is not known if the model has references of its own: the noise floor has other references.
        """
        known = self.procedural.comparable is None
        floor = self.procedural.noise_floor.value if known else math.nan
        return {"gcig": floor, "eo_gap": self.outcome.eo_noise_floor}

    @property
    def group_names(self) -> list[str]:
        """Names of all groups, in the order that gives each its colour and mark on a page."""
        return [group.group for group in self.groups]

    @property
    def provenance(self) -> dict[str, str]:
        """The model, data and settings of the audit as name -> text, shown at the end of every report."""
        subject = self.subject
        own_rule = math.isnan(subject.threshold)
        return {
            "Model": f"{subject.model_name} ({subject.model_kind})",
            "Model, SHA-256": subject.model_sha256 or "nothing to hash",
            "Data, SHA-256": subject.data_sha256 or "nothing to hash",
            "Rows": f"{count(subject.n_rows)}, {counted(subject.n_columns, 'column')}",
            "Protected attributes": ", ".join(subject.sensitive),
            "Positive class": subject.positive,
            "Favourable class": subject.favourable,
            "Decisions": "the model's own rule"
            if own_rule
            else f"a row is predicted positive from a probability of {number(subject.threshold)}",
            "Reasons": subject.explanation,
            "References": subject.reference,
            "Definition of GCIG": ", ".join(
                f"{name} = {value}" for name, value in subject.definition.items()
            ),
            "Suppression": f"rates of fewer than {counted(self.min_cell, 'row')}",
            "Versions": ", ".join(f"{name} {version}" for name, version in subject.versions.items()),
            "Created": subject.created,
            "Record": f"schema {self.schema}",
        }
