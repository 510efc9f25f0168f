"""Audits: evaluations with provenance, over files larger than memory, compared with limits."""

from gcig.auditing.audits import audit, audit_file
from gcig.auditing.explanations import ExplainResult
from gcig.auditing.result import AuditResult
from gcig.auditing.subject import open_model
from gcig.records.limits import CheckResult

__all__ = ["AuditResult", "CheckResult", "ExplainResult", "audit", "audit_file", "open_model"]
