"""Audits: measuring on sources larger than memory, comparison with chance, verdict and limits."""

from gcig.auditing.file_audit import audit_file
from gcig.auditing.result import AuditResult, CheckResult
from gcig.auditing.row_explanation import ExplainResult
from gcig.auditing.subject import open_model
from gcig.auditing.table_audit import audit

__all__ = ["AuditResult", "CheckResult", "ExplainResult", "audit", "audit_file", "open_model"]
