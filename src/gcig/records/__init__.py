"""Frozen records of results in plain Python values, and their conversion to and from JSON."""

from gcig.records.audit import (
    AuditRecord,
    ColumnAudit,
    GcigAudit,
    GroupAudit,
    Interval,
    LabelAudit,
    OutcomeAudit,
    PairAudit,
    RowAudit,
    StabilityCheck,
    Subject,
    Verdict,
)
from gcig.records.base import Record
from gcig.records.evaluation import Evaluation, GroupRates
from gcig.records.fold import FoldResult

__all__ = [
    "AuditRecord",
    "ColumnAudit",
    "Evaluation",
    "FoldResult",
    "GcigAudit",
    "GroupAudit",
    "GroupRates",
    "Interval",
    "LabelAudit",
    "OutcomeAudit",
    "PairAudit",
    "Record",
    "RowAudit",
    "StabilityCheck",
    "Subject",
    "Verdict",
]
