"""Audits: measuring on sources larger than memory, comparison with chance, verdict and limits."""

from gcig.auditing.explain_result import ExplainResult
from gcig.auditing.file_audit import audit_file
from gcig.auditing.model_files import open_model
from gcig.auditing.result import AuditResult, CheckResult
from gcig.auditing.table_audit import audit

__all__ = ["AuditResult", "CheckResult", "ExplainResult", "audit", "audit_file", "open_model"]
