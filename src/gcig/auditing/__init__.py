"""Audits of models that anybody trained: what is measured, how sure it is, and the verdict in words."""

from gcig.auditing.checking import CheckResult
from gcig.auditing.file_audit import audit_file
from gcig.auditing.opening import open_model
from gcig.auditing.result import AuditResult
from gcig.auditing.table_audit import audit

__all__ = ["AuditResult", "CheckResult", "audit", "audit_file", "open_model"]
