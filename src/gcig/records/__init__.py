"""Frozen records of results in plain Python values, and their conversion to and from JSON."""

from gcig.records.audit import AuditRecord
from gcig.records.base import Interval, Record
from gcig.records.evaluation import Evaluation, FoldResult, GroupRates
from gcig.records.explanation import ExplanationRecord
from gcig.records.trade_off import Bound
from gcig.records.trust import Robustness, RobustnessFigure

__all__ = [
    "AuditRecord",
    "Bound",
    "Evaluation",
    "ExplanationRecord",
    "FoldResult",
    "GroupRates",
    "Interval",
    "Record",
    "Robustness",
    "RobustnessFigure",
]
