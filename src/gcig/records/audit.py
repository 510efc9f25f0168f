"""The record of one audit: what was measured, how sure it is, and what it means.

Rates and counts of a group under ``SMALLEST_CELL`` rows are left out of the record altogether, so that no
writer of it can publish them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gcig.records.base import Record

__all__ = [
    "SMALLEST_CELL",
    "AuditRecord",
    "ColumnAudit",
    "GcigAudit",
    "GroupAudit",
    "Interval",
    "LabelAudit",
    "OutcomeAudit",
    "PairAudit",
    "RowAudit",
    "StabilityCheck",
    "Subject",
    "Verdict",
]

SMALLEST_CELL = 11  # rows; the mean of fewer is close to a person's record
AUDIT_SCHEMA = 1


@dataclass(frozen=True, eq=False)
class Interval(Record):
    """An estimate and the ends of its 95 % interval; NaN where it is not defined."""

    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True, eq=False)
class Subject(Record):
    """What was audited.

    Attributes
    ----------
    model_name, model_kind : the model's class or file name; a phrase such as "torch module".
    model_sha256, data_sha256 : of the files or of the values; None where there is nothing to hash.
    explanation : "integrated gradients" or "Shapley values".
    reference : in words, which rows the groups' baselines were estimated on.
    n_rows, n_columns : size of the audited table.
    sensitive : names of the protected attributes; crossed where there are several.
    positive : what label 1 means (the positive class).
    threshold : probability from which a row is predicted 1; NaN where the model decides otherwise.
    definition : the choices behind GCIG.
    versions : software and version, such as ``{"gcig": "0.1.0"}``.
    created : ISO date and time in UTC.
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
    threshold: float
    definition: Mapping[str, Any]
    versions: Mapping[str, str]
    created: str


@dataclass(frozen=True, eq=False)
class GroupAudit(Record):
    """Rates of one group, with intervals.

    ``n_rows`` is None where the group is too small to publish; all else is then undefined or empty. A rate
    over fewer than ``SMALLEST_CELL`` rows is undefined.

    Attributes
    ----------
    base_rate, selection_rate, tpr, fpr, ppv : as in ``GroupRates``.
    calibration : mean predicted probability less the base rate.
    auc : ranking inside the group.
    roc : (false positive rate, true positive rate) points from (0, 0) to (1, 1), at most 101.
    gcig : GCIG over the group's rows.
    """

    group: str
    n_rows: int | None
    base_rate: Interval
    selection_rate: Interval
    tpr: Interval
    fpr: Interval
    ppv: Interval
    calibration: Interval
    auc: Interval
    gcig: Interval
    roc: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, eq=False)
class OutcomeAudit(Record):
    """Utility and outcome fairness over all rows.

    ``eo_noise_floor`` is the gap that an exactly fair model with the same rates and cell sizes shows on
    average. ``four_fifths`` is the smallest over the largest selection rate.
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
    four_fifths: Interval
    collapsed: bool


@dataclass(frozen=True, eq=False)
class LabelAudit(Record):
    """GCIG over the rows of one label."""

    label: str
    n_rows: int | None
    gcig: Interval


@dataclass(frozen=True, eq=False)
class PairAudit(Record):
    """Disparity between two groups' baselines alone."""

    first: str
    second: str
    gcig: Interval


@dataclass(frozen=True, eq=False)
class ColumnAudit(Record):
    """What one column adds to the disparity.

    Attributes
    ----------
    column : name of the original column.
    share : its part of the disparity; the shares add up to 1.
    contribution : mean contribution to GCIG, with an interval.
    profile : group -> mean normalised attribution of the column when the reference is that group's.
    towards : the group under whose reference the column speaks most for the positive class.
    difference : the largest less the smallest value of ``profile``.
    """

    column: str
    share: float
    contribution: Interval
    profile: Mapping[str, float]
    towards: str
    difference: float


@dataclass(frozen=True, eq=False)
class RowAudit(Record):
    """A row with a large disparity: its position, and with ``include_rows=True`` its reasons.

    Attributes
    ----------
    position : place in the audited table, counted from 0.
    disparity : V of the row.
    label, group, score : None (NaN) unless rows were asked for.
    reasons : group -> column -> attribution under that group's reference; empty unless asked for.
    """

    position: int
    disparity: float
    label: str | None = None
    group: str | None = None
    score: float = math.nan
    reasons: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class StabilityCheck(Record):
    """GCIG with one choice changed: ``aspect`` is "norm", "steps", "baseline", "columns", ..."""

    aspect: str
    setting: str
    gcig: float
    used: bool


@dataclass(frozen=True, eq=False)
class GcigAudit(Record):
    """GCIG, how sure it is, and what is behind it.

    Attributes
    ----------
    gcig : the mean disparity; the interval resamples rows with the baselines fixed.
    gcig_resampled : the same with the baselines estimated again in every draw.
    noise_floor : its mean when group labels are shuffled inside each label, and the 2.5 % and 97.5 %
        quantiles.
    excess : gcig less the noise floor's mean; what counts.
    p_value : share of shuffles with a GCIG as large.
    evidence : "disparity", "none" or "not enough".
    undefined_rows : rows whose attributions vanish; left out.
    completeness : relative residual of the attributions' sums.
    standard_error : of GCIG from sampling permutations (Shapley values only; else NaN).
    clipped : share of probabilities that were clipped before taking logits (Shapley values only; else NaN).
    effective_columns : exp of the entropy of the mean absolute normalised attribution.
    histogram_edges, histogram_counts : the distribution of V over rows; counts of each group.
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
    standard_error: float = math.nan
    clipped: float = math.nan
    histogram_edges: tuple[float, ...] = ()
    histogram_counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    labels: tuple[LabelAudit, ...] = ()
    pairs: tuple[PairAudit, ...] = ()
    columns: tuple[ColumnAudit, ...] = ()
    rows: tuple[RowAudit, ...] = ()
    stability: tuple[StabilityCheck, ...] = ()


@dataclass(frozen=True, eq=False)
class Verdict(Record):
    """The audit in words.

    Attributes
    ----------
    status : "clear", "concern" or "inconclusive".
    headline : one sentence.
    findings : a sentence each, the most important first.
    cautions : what the reader must know before relying on them.
    """

    status: str
    headline: str
    findings: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class AuditRecord(Record):
    """Everything that one audit found."""

    subject: Subject
    verdict: Verdict
    outcome: OutcomeAudit
    groups: tuple[GroupAudit, ...]
    procedural: GcigAudit
    schema: int = AUDIT_SCHEMA
