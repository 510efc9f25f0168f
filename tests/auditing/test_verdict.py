"""The verdict follows from figures with intervals alone."""

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from gcig._arguments import InputError
from gcig.auditing import AuditResult, audit
from gcig.auditing.verdict import judge, red_flags
from gcig.records import Evaluation
from gcig.records.evaluation import Figure
from gcig.records.verdict import VERDICTS, Verdict

SMALL, LARGE, WIDE = (0.01, -0.02, 0.03), (0.4, 0.35, 0.45), (0.06, -0.05, 0.15)


def found(gap, varying, *more, p=0.002, suffix="", **record):
    """Return an evaluation with these figures, each (value, low, high)."""
    figures = [
        Figure(f"reason_gap{suffix}", *gap, p=p, detectable=0.07),
        Figure(f"reason_gap_varying{suffix}", *varying),
        *more,
    ]
    columns = {f"reason_gap_{part}{suffix}_columns": {"a": 0.1, "b": 0.3} for part in ("common", "varying")}
    return Evaluation(tuple(figures), columns=columns, **record)


SHIFT = Figure("attribute_shift", 0.2, 0.15, 0.25)


@pytest.mark.parametrize(
    ("evaluation", "options", "code", "cause"),
    [
        (found(LARGE, LARGE), {}, "different_standards", "reason_gap_varying"),
        (found(LARGE, SMALL), {}, "group_differences", "reason_gap"),
        (found(SMALL, SMALL, p=0.4), {}, "no_dependence", "reason_gap"),
        (found(SMALL, SMALL, SHIFT, p=0.4), {}, "different_standards", "attribute_shift"),
        (found(LARGE, SMALL), {"legitimate": ["a"]}, "different_standards", "reason_gap"),
        (found(WIDE, SMALL, p=0.005), {"legitimate": ["a"]}, "uncertain", ""),
        (found(SMALL, SMALL, p=0.4), {"legitimate": ["a"]}, "no_dependence", "reason_gap"),
        (found(WIDE, SMALL, p=0.3), {"legitimate": ["a"]}, "uncertain", ""),
        (found(WIDE, SMALL, p=0.3), {}, "uncertain", ""),
        (found(LARGE, SMALL, p=0.03), {}, "uncertain", ""),
        (found(WIDE, SMALL, p=0.005), {}, "group_differences", "reason_gap"),
        (found(LARGE, WIDE), {}, "uncertain", ""),
        (found((0.04, 0.02, 0.08), SMALL), {}, "group_differences", "reason_gap"),
        (found((0.04, 0.02, 0.08), SMALL), {"material": 0.1}, "no_dependence", "reason_gap"),
        (found((math.nan,) * 3, (math.nan,) * 3), {}, "undefined", ""),
        (Evaluation(()), {}, "undefined", ""),
        (found(LARGE, LARGE, suffix="_decisions"), {}, "different_standards", "reason_gap_varying"),
    ],
)
def test_rule(evaluation, options, code, cause) -> None:
    verdict = judge(evaluation, **options)
    assert (verdict.code, verdict.cause) == (code, cause)
    assert verdict.code in VERDICTS
    assert verdict.sentence.endswith(".")
    assert Verdict.from_json(verdict.to_json()) == verdict


def test_evidence() -> None:
    verdict = judge(found(LARGE, SMALL, worst_pair=("x", "y")), seed=7, material=0.06)
    assert list(verdict.columns) == ["b", "a"]
    assert (verdict.detectable, verdict.seed, verdict.material) == (0.07, 7, 0.06)
    assert (verdict.n_figures, verdict.worst_pair, verdict.gap.high) == (4, ("x", "y"), 0.45)
    assert "no different weights were found" in verdict.sentence


@pytest.mark.parametrize(
    ("figures", "record", "flag"),
    [
        ((Figure("reference_offset", 0.9),), {}, "untypical_references"),
        ((Figure("faithfulness", 0.2),), {}, "unfaithful_attributions"),
        ((Figure("reason_size", 9.0), Figure("effective_columns", 4.0)), {}, "cancelling_explanations"),
        ((), {"collapsed": True}, "collapsed"),
    ],
)
def test_a_red_flag_forbids_no_dependence_and_nothing_else(figures, record, flag) -> None:
    verdict = judge(found(SMALL, SMALL, *figures, **record))
    assert (verdict.code, verdict.red_flags) == ("uncertain", (flag,))
    assert judge(found(LARGE, SMALL, *figures, **record)).code == "group_differences"


def test_explanations_that_grew_in_training_are_a_red_flag() -> None:
    before, after = {"reason_size": 1.0}, {"reason_size": 1.3}
    assert red_flags(Evaluation(()), before, after) == ("grown_explanations",)
    assert red_flags(Evaluation(()), after, before) == ()


def test_training_rows_are_a_red_flag() -> None:
    verdict = judge(found(SMALL, SMALL), on_training_rows=True)
    assert (verdict.code, verdict.red_flags) == ("uncertain", ("training_rows",))
    assert judge(found(LARGE, LARGE), on_training_rows=True).code == "different_standards"


def table(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    X = rng.normal(size=(n, 4)) + np.outer(sex == "m", [1, 0, 0, 0])
    y = (X.sum(axis=1) + rng.normal(size=n) > 0.5).astype(int)
    return X, y, sex


def test_an_audit_has_a_verdict_that_survives_json() -> None:
    X, y, sex = table()
    result = audit(LogisticRegression().fit(X, y), X, y, sensitive_features=sex, random_state=3)
    assert result.verdict.code == "group_differences"
    assert (result.verdict.seed, next(iter(result.verdict.columns))) == (3, "x0")
    assert result.verdict.detectable == result["reason_gap_detectable"] > 0
    assert AuditResult.from_json(result.to_json()).verdict == result.verdict
    assert result.verdict.sentence in str(result)
    with pytest.raises(InputError, match="material"):
        audit(LogisticRegression().fit(X, y), X, y, sensitive_features=sex, material=0)


def test_the_protected_column_itself_is_a_different_standard() -> None:
    X, y, sex = table()
    X = np.column_stack([X, sex == "m"])
    y = np.where(np.random.default_rng(1).random(len(y)) < 0.3, sex == "m", y).astype(int)
    result = audit(LogisticRegression().fit(X, y), X, y, sensitive_features=sex)
    assert (result.verdict.code, result.verdict.cause) == ("different_standards", "attribute_shift")
    assert result.attribute_shift_low > 0.1
    declared = replace(result.record, verdict=None)
    assert AuditResult(declared).verdict.code == "different_standards"
