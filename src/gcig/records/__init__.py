"""Frozen records of results, to and from JSON: what reports read.

They hold plain Python values only, so that a report can read them without torch, scikit-learn or pandas.
A number that is not defined is NaN in Python and ``null`` in JSON.
"""

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
