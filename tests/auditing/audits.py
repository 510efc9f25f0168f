"""Records of real audits, small enough to be made in a second, for tests of what reads them."""

import functools

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from gcig.auditing import AuditResult, audit


def loans(n_rows: int = 600, n_groups: int = 2, shift: float = 1.0, seed: int = 0) -> pd.DataFrame:
    """Applicants in groups; the first group has less income, by ``shift``, whatever their label.

    ``approved`` depends on income, debt and age; ``noise`` on nothing.
    """
    rng = np.random.default_rng(seed)
    group = rng.integers(0, n_groups, n_rows)
    table = pd.DataFrame(
        {
            "income": rng.normal(size=n_rows) + shift * (group > 0),
            "debt": rng.normal(size=n_rows),
            "age": rng.normal(size=n_rows),
            "noise": rng.normal(size=n_rows),
        }
    )
    chance = 1 / (1 + np.exp(-(table["income"] - shift / 2 - table["debt"] + 0.5 * table["age"])))
    table["approved"] = np.where(rng.random(n_rows) < chance, "yes", "no")
    table["sex"] = np.array([f"group {g}" for g in range(n_groups)])[group]
    return table


def audit_loans(table: pd.DataFrame, **options) -> AuditResult:
    X, y = table[["income", "debt", "age", "noise"]], table["approved"]
    return audit(LogisticRegression().fit(X, y), X, y, sensitive_features=table["sex"], **options)


@functools.cache
def example_audit(n_groups: int = 2, *, include_rows: bool = False) -> AuditResult:
    """An audit in which one column, income, makes the reasons differ."""
    return audit_loans(loans(n_groups=n_groups), include_rows=include_rows)
