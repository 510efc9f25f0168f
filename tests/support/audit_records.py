"""Audit records written by hand: a realistic one, and one with hostile names."""

from dataclasses import replace

from gcig.records import AuditRecord
from gcig.records.audit import Subject
from support.fold_results import evaluation

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "=cmd|' /C calc'!A0",
    "$\\frac{1}{0}$ & {{ 7*7 }} {% raw %}",
    "\u202eevil\u2066 ق\u0639\u0631\u0628\u064a",
    "a name that is very long indeed, much longer than any room that a chart has for the name of a column",
)


def subject(**changes):
    return replace(
        Subject(
            model_name="loans",
            model_kind="scikit-learn classifier",
            model_sha256="a" * 64,
            data_sha256="b" * 64,
            explanation="integrated_gradients",
            reference="other audited rows",
            n_rows=150,
            n_columns=2,
            sensitive=("sex",),
            task="binary",
            classes=("no", "yes"),
            favourable=("yes",),
            threshold=0.5,
            definition={"norm": "l1", "columns": "original"},
            versions={"gcig": "0"},
            created="2025-03-01T12:00:00+00:00",
        ),
        **changes,
    )


def record(*figures, created="2025-03-01T12:00:00+00:00", sha="a", **more):
    """Return the audit of an evaluation as `support.fold_results.evaluation` makes it."""
    return AuditRecord(subject(created=created, model_sha256=sha * 64), evaluation(*figures, **more))


def hostile():
    """Return an audit whose groups, columns, classes and model have hostile names."""
    found = evaluation(sizes=(100, 50, 40), names=HOSTILE[:3])
    found = replace(
        found, columns={"gcig_columns": dict(zip(HOSTILE, (0.1, 0.05, 0.03, 0.02, 0.01, 0.0), strict=True))}
    )
    named = subject(
        model_name=HOSTILE[0], sensitive=HOSTILE[1:3], classes=HOSTILE[3:5], favourable=(HOSTILE[4],)
    )
    return AuditRecord(named, found)
