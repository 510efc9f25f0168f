"""Audit records written by hand: a realistic one, one with hostile names, one with undefined numbers."""

import math
from dataclasses import replace

from gcig.records import AuditRecord, Interval, Robustness, RobustnessFigure
from gcig.records.audit import (
    ColumnAudit,
    GcigAudit,
    GroupAudit,
    LabelAudit,
    OutcomeAudit,
    PairAudit,
    RowAudit,
    StabilityCheck,
    Subject,
    Verdict,
)
from gcig.records.explanation import ColumnReason, RowExplanation

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "=cmd|' /C calc'!A0",
    "$\\frac{1}{0}$ & {{ 7*7 }} {% raw %}",
    "\u202eevil\u2066 ق\u0639\u0631\u0628\u064a",
    "a name that is very long indeed, much longer than any room that a chart has for the name of a column",
)
NAN = Interval(math.nan)


def around(value, half=0.02):
    return Interval(value, value - half, value + half)


def robustness(*, paired=True, agrees=True):
    """Return GCIG under every reference, of two models or of one."""
    values = {
        "mean": (0.052, 0.164, "the mean of the people of each group who have the same outcome"),
        "label-free": (0.071, 0.158, "the mean of each group, whatever the outcome"),
        "medoid": (0.204, 0.231, "the member of each group who is closest to its mean"),
        "modal member": (0.198 if agrees else 0.262, 0.219, "the member with the most frequent values"),
        "members": (0.084, 0.151, "members of each group, averaged"),
        "common": (0.066, 0.092, "one reference for all groups"),
        "Shapley values": (0.061, 0.149, "the same means, with Shapley values instead of gradients"),
        "mean, l2": (0.151, 0.502, "the same means, with reasons normalised by the l2 norm"),
    }
    return Robustness(
        tuple(
            RobustnessFigure(name, around(a, 0.008), around(b, 0.012) if paired else NAN, words, noise=0.03)
            for name, (a, b, words) in values.items()
        ),
        agrees,
        "The model is the fairer one with every reference."
        if agrees
        else "The conclusion depends on the reference: with the modal member, the other model is fairer.",
    )


def explained(r, groups, columns):
    """Return the explanation of the row with number r."""
    values = {
        g: [
            math.sin(3 * r + j) * 0.8**j + 0.3 * (i - (len(groups) - 1) / 2) * 0.7**j
            for j in range(len(columns))
        ]
        for i, g in enumerate(groups)
    }
    reasons = tuple(
        ColumnReason(
            c,
            f"entry {j}",
            {g: values[g][j] for g in groups},
            max(values[g][j] for g in groups) - min(values[g][j] for g in groups),
            1 / len(columns),
        )
        for j, c in enumerate(columns)
    )
    score = 0.81 - 0.05 * r
    logit = math.log(score / (1 - score))
    return RowExplanation(
        row=f"id {r}",
        position=37 + 811 * r,
        score=score,
        logit=logit,
        decision=">50K" if score >= 0.5 else "<=50K",
        favourable=score >= 0.5,
        margin=logit,
        label=(">50K", "<=50K")[r % 2],
        label_source="given",
        group=groups[r % len(groups)],
        references={g: logit - sum(values[g]) for g in groups},
        disparity=0.92 - 0.03 * r,
        columns=reasons,
    )


def example(
    groups=("Female", "Male"), columns=None, *, n_rows_listed=8, include_rows=True, name="credit-model"
):
    columns = columns or (
        "relationship", "marital-status", "hours-per-week", "capital-gain", "education-num", "occupation",
        "age", "capital-loss", "workclass", "race", "native-country", "fnlwgt", "education",
    )  # fmt: skip
    k = len(groups)
    shares = [0.4 * 0.62**j for j in range(len(columns))]
    total = sum(shares)
    audited = tuple(
        ColumnAudit(
            column=column,
            share=shares[j] / total,
            contribution=around(0.164 * shares[j] / total, 0.02 * shares[j] / total),
            profile={
                g: 0.3 * 0.8**j * (-1) ** j + 0.12 * 0.8**j * (i - (k - 1) / 2) for i, g in enumerate(groups)
            },
            towards=groups[-1] if j % 2 else groups[0],
            difference=0.12 * 0.8**j * max(k - 1, 1),
            quantiles=tuple(0.12 * 0.8**j * (-1) ** j + q * 0.8**j for q in (-0.1, -0.04, 0.0, 0.05, 0.12)),
        )
        for j, column in enumerate(columns)
    )
    edges = tuple(0.025 * b for b in range(25))
    histogram = {
        g: tuple(round(4000 / k * math.exp(-(((e - 0.12 - 0.06 * i) / 0.08) ** 2))) for e in edges[:-1])
        for i, g in enumerate(groups)
    }
    rows = tuple(
        RowAudit(
            position=37 + 811 * r,
            disparity=0.92 - 0.03 * r,
            explanation=explained(r, groups, columns) if include_rows else None,
        )
        for r in range(n_rows_listed)
    )
    return AuditRecord(
        subject=Subject(
            model_name=name,
            model_kind="scikit-learn pipeline (gradient boosted trees)",
            model_sha256="9f2c" * 16,
            data_sha256="07ab" * 16,
            explanation="Shapley values",
            reference="the audited rows themselves",
            n_rows=45222,
            n_columns=len(columns),
            sensitive=("sex",),
            positive="income over 50,000",
            favourable="income over 50,000",
            threshold=0.5,
            definition={"norm": "l1", "columns": "original", "label_weights": "empirical", "eps": 1e-12},
            versions={"gcig": "0.1.0", "python": "3.11"},
            created="2025-06-01T09:30:00+00:00",
        ),
        verdict=Verdict(
            status="concern",
            headline="The model judges women and men by different reasons, by far more than chance explains.",
            findings=(
                "GCIG is 0.164 (0.158 to 0.170), where chance alone gives 0.012.",
                "Relationship and marital status make up 62 % of the difference.",
                "Women are selected at 0.31 of the rate of men, far under four fifths.",
            ),
            cautions=(
                "The baselines were estimated on the audited rows themselves, not on the training data.",
            ),
        ),
        outcome=OutcomeAudit(
            accuracy=around(0.854, 0.004),
            balanced_accuracy=around(0.771, 0.006),
            f1=around(0.669, 0.008),
            auc=around(0.907, 0.004),
            eo_gap=around(0.138, 0.03),
            eo_worst=around(0.072, 0.02),
            eo_noise_floor=0.021,
            delta_tpr=around(0.072, 0.02),
            delta_fpr=around(0.066, 0.01),
            demographic_parity_difference=around(0.171, 0.01),
            selection_rate_ratio=around(0.31, 0.03),
            collapsed=False,
        ),
        groups=tuple(
            GroupAudit(
                group=g,
                n_rows=14695 + 15832 * i,
                base_rate=around(0.11 + 0.2 * i / max(k - 1, 1), 0.01),
                selection_rate=around(0.08 + 0.17 * i / max(k - 1, 1), 0.01),
                favourable_rate=around(0.08 + 0.17 * i / max(k - 1, 1), 0.01),
                tpr=around(0.55 + 0.07 * i / max(k - 1, 1), 0.02),
                fpr=around(0.02 + 0.066 * i / max(k - 1, 1), 0.008),
                ppv=around(0.76 - 0.02 * i, 0.02),
                calibration=around(-0.004 + 0.01 * i, 0.006),
                auc=around(0.93 - 0.03 * i / max(k - 1, 1), 0.01),
                gcig=around(0.181 - 0.025 * i / max(k - 1, 1), 0.008),
                roc=tuple((t / 20, (t / 20) ** (0.16 + 0.07 * i / max(k - 1, 1))) for t in range(21)),
            )
            for i, g in enumerate(groups)
        ),
        procedural=GcigAudit(
            gcig=Interval(0.164, 0.154, 0.176),
            gcig_fixed_references=around(0.164, 0.006),
            noise_floor=Interval(0.012, 0.006, 0.021),
            excess=around(0.152, 0.006),
            p_value=0.005,
            evidence="disparity",
            undefined_rows=3,
            completeness=0.0004,
            effective_columns=6.4,
            gcig_encoded=0.121,
            gcig_raw=0.118,
            gcig_members=around(0.151, 0.012),
            members_noise=0.008,
            reference_offset=0.16,
            faithfulness=0.93,
            attribute_effect=Interval(0.034, 0.031, 0.037),
            standard_error=0.0011,
            clipped=0.031,
            histogram_edges=edges,
            histogram_counts=histogram,
            labels=(LabelAudit("<=50K", 34014, around(0.171)), LabelAudit(">50K", 11208, around(0.143))),
            pairs=tuple(
                PairAudit(a, b, around(0.164 + 0.01 * i))
                for i, a in enumerate(groups)
                for b in groups[i + 1 :]
            ),
            columns=audited,
            rows=rows,
            stability=(
                StabilityCheck("norm", "l1", 0.164, used=True),
                StabilityCheck("norm", "l2", 0.51, used=False),
                StabilityCheck("baseline", "median", 0.171, used=False),
                StabilityCheck("baseline", "half of the rows", 0.166, used=False),
            ),
        ),
    )


def hostile():
    """Return a record in which every name taken from a user's file is an injection attempt."""
    record = example(groups=HOSTILE[:4], columns=HOSTILE, name=HOSTILE[0])
    subject = replace(
        record.subject,
        model_kind=HOSTILE[1],
        model_sha256=HOSTILE[0],
        explanation=HOSTILE[1],
        reference=HOSTILE[0],
        sensitive=HOSTILE[:2],
        positive=HOSTILE[4],
        favourable=HOSTILE[4],
        definition={HOSTILE[0]: HOSTILE[1]},
        versions={HOSTILE[1]: HOSTILE[0]},
        created=HOSTILE[0],
    )
    verdict = Verdict(HOSTILE[0], HOSTILE[0], HOSTILE, HOSTILE)
    found = record.procedural
    found = replace(
        found,
        labels=(LabelAudit(HOSTILE[0], 20, NAN), LabelAudit(HOSTILE[1], None, NAN)),
        rows=tuple(
            replace(
                row,
                explanation=replace(row.explanation, label=HOSTILE[0], row=HOSTILE[1], decision=HOSTILE[4]),
            )
            for row in found.rows
        ),
        stability=(StabilityCheck(HOSTILE[0], HOSTILE[1], math.nan, used=True),),
    )
    return replace(record, subject=subject, verdict=verdict, procedural=found)


def undefined():
    """Return a record whose numbers are all undefined, with one suppressed group."""
    record = example(groups=("only",), columns=("x",), include_rows=False)
    lost = GroupAudit("tiny", None, *[NAN] * 9)
    outcome = OutcomeAudit(NAN, NAN, NAN, NAN, NAN, NAN, math.nan, NAN, NAN, NAN, NAN, collapsed=True)
    found = GcigAudit(NAN, NAN, NAN, NAN, math.nan, "not enough", 45222, math.nan, math.nan)
    verdict = Verdict("inconclusive", "There is not enough evidence.")
    subject = replace(record.subject, model_sha256=None, data_sha256=None, threshold=math.nan, sensitive=())
    return replace(
        record, subject=subject, outcome=outcome, groups=(lost,), procedural=found, verdict=verdict
    )
