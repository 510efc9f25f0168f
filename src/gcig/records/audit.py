"""The record of one audit: what was measured, how certain it is, and what it means.

Rates and counts of suppressed groups and cells (fewer than ``min_cell`` rows) are not in the record at all,
so no report can publish them. Figures have the names and the values that they have in `Evaluation`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gcig.records.base import UNDEFINED, Interval, Record
from gcig.records.explanation import RowExplanation
from gcig.records.trust import Robustness

SMALLEST_CELL = 11  # rows: the default of min_cell; the mean of fewer is close to one person's record
AUDIT_SCHEMA = 4
MATERIAL = 0.05  # a GCIG beyond chance that counts as material; a smaller difference of reasons is small


@dataclass(frozen=True, eq=False)
class Subject(Record):
    """The subject of an audit: model, data and definition.

    Attributes
    ----------
    model_name, model_kind : the model's class or file name; a phrase such as "torch module".
    model_sha256, data_sha256 : of the files or of the values; None if there is nothing to hash.
    explanation : "integrated gradients" or "Shapley values".
    reference : in words, the rows that the groups' references were estimated on.
    n_rows, n_columns : size of the audited table, without the rows of suppressed groups.
    sensitive : names of the protected attributes; several are crossed.
    positive : what label 1 means (the positive class).
    favourable : the class that is favourable for a person.
    threshold : probability from which a row is predicted 1; NaN if the model has its own decision rule.
    definition : the choices behind GCIG.
    versions : software and version, such as ``{"gcig": "0.1.0"}``.
    created : ISO date and time in UTC.
    rows_sent : rows that a remote model was asked for; None for other models.
    """

    model_name: str
    model_kind: str
    model_sha256: str | None
    data_sha256: str | None
    explanation: str
    reference: str
    n_rows: int
    n_columns: int
    sensitive: tuple[str, ...]
    positive: str
    favourable: str
    threshold: float
    definition: Mapping[str, Any]
    versions: Mapping[str, str]
    created: str
    rows_sent: int | None = None


@dataclass(frozen=True, eq=False)
class GroupAudit(Record):
    """Rates of one group, with intervals.

    ``n_rows`` is None for a suppressed group, whose other fields are undefined or empty. A rate over fewer
    than ``min_cell`` rows is undefined.

    Attributes
    ----------
    base_rate, selection_rate, tpr, fpr, ppv : as in ``GroupRates``.
    favourable_rate : share of favourable decisions; the selection rate if the positive class is favourable.
    calibration : mean predicted probability minus the base rate.
    auc : AUC over the group's rows.
    roc : (false positive rate, true positive rate) points from (0, 0) to (1, 1), at most 101.
    gcig : GCIG over the group's rows.
    """

    group: str
    n_rows: int | None
    base_rate: Interval
    selection_rate: Interval
    favourable_rate: Interval
    tpr: Interval
    fpr: Interval
    ppv: Interval
    calibration: Interval
    auc: Interval
    gcig: Interval
    roc: tuple[tuple[float, ...], ...] = ()


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
    n_rows: int | None
    gcig: Interval


@dataclass(frozen=True, eq=False)
class PairAudit(Record):
    """Mean disparity between the references of two groups."""

    first: str
    second: str
    gcig: Interval


@dataclass(frozen=True, eq=False)
class ColumnAudit(Record):
    """The contribution of one column to the disparity.

    Attributes
    ----------
    column : name of the column, one of the columns of the definition.
    share : its share of the disparity; the shares add up to 1.
    contribution : contribution to GCIG; the contributions add up to it.
    profile : group -> mean normalised attribution of the column under that group's reference.
    towards : the group under whose reference the column speaks most for the favourable class.
    difference : the largest minus the smallest value of ``profile``.
    quantiles : 5 %, 25 %, 50 %, 75 % and 95 % quantile, over rows, of the difference of the normalised
        attributions. Of two groups it is that under the second reference minus that under the first, in the
        direction of the favourable class; of more groups, the largest minus the smallest.
    """

    column: str
    share: float
    contribution: Interval
    profile: Mapping[str, float]
    towards: str
    difference: float
    quantiles: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class RowAudit(Record):
    """A row with a large disparity: its position and, with ``include_rows=True``, its explanation.

    Attributes
    ----------
    position : position in the audited table, from 0.
    disparity : disparity of the row.
    explanation : entries, decision and reasons; None unless ``include_rows`` was set.
    """

    position: int
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
    """GCIG, its uncertainty, and where it comes from.

    Attributes
    ----------
    gcig : GCIG by the definition; the interval resamples rows with the references fixed.
    gcig_resampled : the same with the references estimated again in every draw.
    noise_floor : mean, 2.5 % and 97.5 % quantile of GCIG with group labels shuffled within each label.
    excess : GCIG minus the mean of the noise floor: the part that chance does not explain.
    p_value : share of shuffles with a GCIG as large.
    evidence : "disparity", "none" or "not enough".
    undefined_rows, completeness, effective_columns, gcig_l2, gcig_encoded, gcig_raw : as in `Evaluation`.
    gcig_members : GCIG relative to members of the cells, averaged; the interval resamples rows.
    members_noise, reference_offset, faithfulness : as in `Evaluation`.
    attribute_effect : as in `Evaluation`, with Wilson's interval.
    undefined : figure -> why it is undefined.
    standard_error : of GCIG due to sampled permutations (Shapley values only; otherwise NaN).
    clipped : share of probabilities clipped before taking logits (Shapley values only; otherwise NaN).
    compared_groups : groups whose references were compared; GCIG is undefined for fewer than two.
    n_shuffles, shuffled_rows : how often the groups were shuffled, and the rows explained for each shuffle.
    sampled_rows : the number of explained rows if they are a random sample; None if all were explained.
    histogram_edges, histogram_counts : the distribution of the disparity over rows, per group.
    """

    gcig: Interval
    gcig_resampled: Interval
    noise_floor: Interval
    excess: Interval
    p_value: float
    evidence: str
    undefined_rows: int
    completeness: float
    effective_columns: float
    gcig_l2: float = math.nan
    gcig_encoded: float = math.nan
    gcig_raw: float = math.nan
    gcig_members: Interval = UNDEFINED
    members_noise: float = math.nan
    reference_offset: float = math.nan
    faithfulness: float = math.nan
    attribute_effect: Interval = UNDEFINED
    undefined: Mapping[str, str] = field(default_factory=dict)
    standard_error: float = math.nan
    clipped: float = math.nan
    compared_groups: tuple[str, ...] = ()
    n_shuffles: int = 0
    shuffled_rows: int = 0
    sampled_rows: int | None = None
    histogram_edges: tuple[float, ...] = ()
    histogram_counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    labels: tuple[LabelAudit, ...] = ()
    pairs: tuple[PairAudit, ...] = ()
    columns: tuple[ColumnAudit, ...] = ()
    rows: tuple[RowAudit, ...] = ()
    stability: tuple[StabilityCheck, ...] = ()

    @property
    def comparable(self) -> float | None:
        """GCIG with references from the audited rows, to compare with the noise floor; None if it is `gcig`.

        The two differ if the model brings references of its own.
        """
        here = self.excess.value + self.noise_floor.value
        return here if math.isfinite(here) and abs(here - self.gcig.value) > 1e-9 else None

    @property
    def interval(self) -> Interval:
        """GCIG with the one interval that pages show and gates test: rows and references are uncertain.

        There is none if the references could not be estimated again.
        """
        own, wide = self.gcig, self.gcig_resampled
        if math.isnan(wide.low + wide.high):
            return Interval(own.value)
        return Interval(own.value, min(own.low, wide.low), max(own.high, wide.high))


@dataclass(frozen=True, eq=False)
class Verdict(Record):
    """The conclusion of an audit.

    Attributes
    ----------
    status : "clear", "concern" or "inconclusive": the more serious of ``reasons`` and ``decisions``.
    headline : one sentence.
    findings : sentences, the most important first.
    cautions : what a reader must know before relying on the findings.
    reasons : the status of the question whether the model's reasons depend on the group.
    decisions : the status of the question whether its decisions do.
    members : the status of the question of ``reasons`` if rows are compared with members of the groups.
    """

    status: str
    headline: str
    findings: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    reasons: str = "inconclusive"
    decisions: str = "inconclusive"
    members: str = "inconclusive"


@dataclass(frozen=True, eq=False)
class FigureChange(Record):
    """One figure before and after.

    Attributes
    ----------
    figure, name : field of the audit, and its displayed name.
    before, after : the figure with its 95 % interval.
    difference : after minus before, with a 95 % interval.
    p_value : probability of a difference as large if nothing changed, corrected for several figures (Holm).
    verdict : "better", "worse" or "chance"; "unknown" if it cannot be judged.
    """

    figure: str
    name: str
    before: Interval
    after: Interval
    difference: Interval
    p_value: float
    verdict: str


@dataclass(frozen=True, eq=False)
class AuditChange(Record):
    """The changes since an earlier audit.

    Attributes
    ----------
    created : when the earlier audit was made.
    headline : one sentence.
    status_before, status_after : the statuses of the two verdicts.
    figures : one line per figure.
    notes : what differs in the setting of the two audits, and what cannot be compared for that reason.
    """

    created: str
    headline: str
    status_before: str
    status_after: str
    figures: tuple[FigureChange, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class AuditRecord(Record):
    """Everything found by one audit.

    Attributes
    ----------
    min_cell, suppressed_cells : gaps leave out the rates of cells with fewer than ``min_cell`` rows; the
        names of these cells.
    proxy_columns : columns of the table that determine the group.
    robustness : GCIG under several references; None unless it was asked for.
    change : the changes since an earlier audit; None unless it was given.
    """

    subject: Subject
    verdict: Verdict
    outcome: OutcomeAudit
    groups: tuple[GroupAudit, ...]
    procedural: GcigAudit
    min_cell: int = SMALLEST_CELL
    suppressed_cells: tuple[str, ...] = ()
    proxy_columns: tuple[str, ...] = ()
    robustness: Robustness | None = None
    change: AuditChange | None = None
    schema: int = AUDIT_SCHEMA

    @property
    def group_names(self) -> list[str]:
        """Names of all groups, in the order that gives each its colour and mark on a page."""
        return [group.group for group in self.groups]
