"""Audits: every figure of `evaluate` under the same name, limits, provenance, changes, formats."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import gcig
from example_tables import make_numeric_loans
from gcig._arguments import InputError
from gcig.auditing import AuditResult
from gcig.auditing.audit_change import compare_audits
from gcig.records.limits import LimitCheck
from gcig.report.audit_change import history_page
from support.audit_records import hostile, record, subject
from support.audits import audit_loans, example_audit


def test_figures_are_those_of_evaluate() -> None:
    table = make_numeric_loans()
    X, y = table[["income", "debt", "age", "noise"]], table["approved"]
    model = LogisticRegression().fit(X, y)
    found = gcig.audit(model, X, y, sensitive_features=table["sex"])
    direct = gcig.evaluate(model, X, y, sensitive_features=table["sex"])
    assert found.evaluation.values() == pytest.approx(direct.values(), nan_ok=True)
    assert (found.gcig, found["reason_gap_low"]) == (direct.gcig, direct.reason_gap_low)
    assert found.gcig_columns == direct.gcig_columns
    assert found.provenance["Data, SHA-256"] == audit_loans(table).provenance["Data, SHA-256"]
    assert "income" in str(list(found.gcig_columns))


@pytest.mark.parametrize("task", ["classes", "number"])
def test_other_tasks_have_pages_and_cards(task, tmp_path) -> None:
    table = make_numeric_loans()
    X = table[["income", "debt", "age", "noise"]]
    y = table["income"] + table["debt"] * 0.5
    y = pd.qcut(y, 3, labels=["low", "middle", "high"]).astype(str) if task == "classes" else y
    model = (LogisticRegression(max_iter=500) if task == "classes" else LinearRegression()).fit(X, y)
    found = gcig.audit(model, X, y, sensitive_features=table["sex"])
    assert found.record.subject.task == task
    assert found.check(max_reason_gap=9).passed
    page = found.to_html(tmp_path / "page.html")
    assert page == (tmp_path / "page.html").read_text()
    for words in ("Reason gap", "Outcome gap", "Definition"):
        assert words in page
    assert "## Fairness audit" in found.to_markdown()


def test_json_gives_the_record_back(tmp_path) -> None:
    found = example_audit()
    path = tmp_path / "audit.json"
    found.to_json(path)
    for source in (path, path.read_text()):
        assert AuditResult.from_json(source).record == found.record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.pop("subject"), "not the JSON of an audit"),
        (lambda data: data.update(schema=3), "schema 3"),
        (lambda data: data["evaluation"].update(n_rows="many"), "n_rows"),
        (lambda data: data["evaluation"].pop("figures"), "missing"),
    ],
)
def test_other_json_is_refused(change, message: str) -> None:
    data = example_audit().to_dict()
    change(data)
    with pytest.raises(InputError, match=message):
        AuditResult.from_json(json.dumps(data))


def test_small_groups_are_in_the_record_by_name_only() -> None:
    table = make_numeric_loans()
    sex = table["sex"].where(np.arange(len(table)) >= 5, "x")
    found = audit_loans(table.assign(sex=sex))
    small = found.groups[-1]
    assert (small.group, small.n_rows) == ("x", None)
    assert all(math.isnan(value) for value in small.values.values())
    assert "x" not in found.compared_groups
    assert "label 0 in group 'x'" in found.suppressed_cells
    assert "suppressed" in found.to_html()
    assert "suppressed" in found.to_markdown()


@pytest.mark.parametrize(
    ("limits", "passed"),
    [
        ({"max_reason_gap": 0.25}, True),
        ({"max_reason_gap": 0.1}, False),
        ({"min_auc": 0.8, "max_eo_gap": 0.2}, True),
        ({"min_auc": 0.95}, False),
        ({"max_gcig": None, "max_eo_gap": 0.3}, True),
    ],
)
def test_limits(limits: dict, passed: bool) -> None:
    check = AuditResult(record()).check(**limits)
    assert check.passed is passed is bool(check)
    assert check.failed is not passed


def test_the_reason_names_figure_value_and_limit() -> None:
    check = AuditResult(record()).check(max_reason_gap=0.1, conservative=True)
    assert str(check) == "failed: reason gap (upper limit of its interval) 0.2100 is above 0.1"
    floor = AuditResult(record(0.9, 0.2, 0.03, floor=0.02)).check(max_eo_gap=0.01)
    assert "chance alone gives" in str(floor)


def test_undefined_figures_are_inconclusive() -> None:
    found = AuditResult(record(0.9, math.nan))
    assert found.check(max_reason_gap=0.1).inconclusive
    assert found.check(max_reason_gap=0.1, max_eo_gap=0.01).failed
    alike = AuditResult(replace(record(), evaluation=replace(record().evaluation, decided_alike=1.0)))
    assert alike.check(max_eo_gap=0.5).inconclusive
    assert LimitCheck("auc", 0.8, 0.9, smallest=True).exceeded


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({}, "needs a limit"),
        ({"max_unknown": 0.1}, "was not measured"),
        ({"at_most": 0.1}, "max_<measure>"),
        ({"max_gcig": "0.1"}, "must be a number"),
    ],
)
def test_a_check_needs_a_sound_limit(limits, words) -> None:
    with pytest.raises(InputError, match=words):
        AuditResult(record()).check(**limits)


def test_the_same_audit_has_not_changed() -> None:
    change = compare_audits(record(), record())
    assert {each.verdict for each in change.figures} <= {"chance", "unknown"}
    assert "Nothing changed" in change.headline
    assert "The model is the same" in change.notes[0]


def test_changes_beyond_chance_have_a_direction() -> None:
    change = compare_audits(record(0.9, 0.2), record(0.9, 0.05, sha="c"))
    verdicts = {each.figure: each.verdict for each in change.figures}
    assert verdicts["reason_gap"] == verdicts["gcig"] == "better"
    assert "a different one" in change.notes[0]
    back = compare_audits(record(0.9, 0.05), record(0.9, 0.2))
    assert {each.figure for each in back.figures if each.verdict == "worse"} >= {"reason_gap", "gcig"}


def test_reasons_are_compared_only_by_the_same_definition() -> None:
    other = record()
    other = replace(other, evaluation=replace(other.evaluation, definition={"columns": "raw"}))
    change = compare_audits(record(), other)
    assert "reason_gap" not in {each.figure for each in change.figures}
    assert any("definition" in note for note in change.notes)
    groups = replace(other, evaluation=replace(record().evaluation, groups=record().evaluation.groups[:1]))
    assert "eo_gap" not in {each.figure for each in compare_audits(record(), groups).figures}


def test_an_audit_says_what_changed_since_the_last(tmp_path) -> None:
    before = example_audit()
    before.to_json(tmp_path / "last.json")
    after = audit_loans(make_numeric_loans(), against=tmp_path / "last.json")
    assert after.record.change is not None
    assert "since the last audit" in str(after)
    assert "Change: every figure then and now" in after.to_html()
    with pytest.raises(InputError, match="no such file"):
        audit_loans(make_numeric_loans(), against="absent.json")


def test_the_history_of_several_audits() -> None:
    records = [record(0.9, 0.2, created=f"2025-0{month}-01T00:00:00+00:00") for month in (1, 2, 3)]
    changes = [compare_audits(*pair) for pair in itertools.pairwise(records)]
    page = history_page(records, changes)
    assert page.count("<svg") >= 3
    assert "3 audits" in page


def test_a_second_model_is_compared_by_the_paired_difference() -> None:
    table = make_numeric_loans()
    X, y = table[["income", "debt", "age", "noise"]], table["approved"]
    other = LogisticRegression(C=1e-3).fit(X, y)
    found = audit_loans(table, other=other)
    assert found.record.subject.explanation == "shapley"
    assert found.difference.reason_gap == pytest.approx(found.reason_gap - found.record.other.reason_gap)
    assert "other model" in found.to_html()
    assert "other model" in str(found)
    assert audit_loans(table).difference is None


def test_robustness_adds_the_reason_gap_by_other_attributions() -> None:
    found = audit_loans(make_numeric_loans(), robustness=True)
    assert found.reason_gap_shapley == pytest.approx(found.reason_gap, abs=1e-5)  # a linear model
    assert found.reason_gap_means > 0


def test_hostile_names_are_text() -> None:
    for text in (AuditResult(hostile()).to_html(), AuditResult(hostile()).to_markdown()):
        assert "<script>alert" not in text
        assert "<img src=x" not in text.replace("\\<", "")
        assert "\u202e" not in text
    assert subject().task == "binary"
