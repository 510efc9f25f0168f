"""Frozen records of results in plain Python values, and their conversion to and from JSON."""

from gcig.records.audit import AuditRecord as AuditRecord
from gcig.records.base import Interval as Interval
from gcig.records.base import Record as Record
from gcig.records.evaluation import Evaluation as Evaluation
from gcig.records.evaluation import FoldResult as FoldResult
from gcig.records.evaluation import GroupRates as GroupRates
from gcig.records.explanation import ExplanationRecord as ExplanationRecord
from gcig.records.trade_off import Bound as Bound
