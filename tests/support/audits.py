"""Audits of a logistic regression on small loans, each computed in about a second and at most once."""

import functools

import pandas as pd
from sklearn.linear_model import LogisticRegression

from example_tables import make_numeric_loans
from gcig.auditing import AuditResult, audit


def audit_loans(table: pd.DataFrame, **options) -> AuditResult:
    X, y = table[["income", "debt", "age", "noise"]], table["approved"]
    return audit(LogisticRegression().fit(X, y), X, y, sensitive_features=table["sex"], **options)


@functools.cache
def example_audit(n_groups: int = 2) -> AuditResult:
    """Return an audit in which one column, income, makes the attributions differ."""
    return audit_loans(make_numeric_loans(n_groups=n_groups))
