"""Frozen records of results in plain Python values, and their conversion to and from JSON."""

from gcig.records.audit import (
    AuditRecord,
    ColumnAudit,
    GcigAudit,
    GroupAudit,
    LabelAudit,
    OutcomeAudit,
    PairAudit,
    RowAudit,
    StabilityCheck,
    Subject,
    Verdict,
)
from gcig.records.base import Interval, Record
from gcig.records.evaluation import Evaluation, FoldResult, GroupRates
from gcig.records.explanation import ColumnReason, ExplanationRecord, RowExplanation
from gcig.records.trade_off import Bound
from gcig.records.trust import Robustness, RobustnessFigure

__all__ = [
    "AuditRecord",
    "Bound",
    "ColumnAudit",
    "ColumnReason",
    "Evaluation",
    "ExplanationRecord",
    "FoldResult",
    "GcigAudit",
    "GroupAudit",
    "GroupRates",
    "Interval",
    "LabelAudit",
    "OutcomeAudit",
    "PairAudit",
    "Record",
    "Robustness",
    "RobustnessFigure",
    "RowAudit",
    "RowExplanation",
    "StabilityCheck",
    "Subject",
    "Verdict",
]
