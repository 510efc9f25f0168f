import re
from dataclasses import replace

import pytest

from gcig.auditing import AuditResult
from gcig.records import AuditRecord, GroupRates
from gcig.records.verdict import Verdict
from gcig.report.audit_page import audit_page
from support.audit_records import HOSTILE, hostile, record, subject
from support.fold_results import evaluation
from support.pages import Page


@pytest.fixture(scope="module")
def read():
    return Page(audit_page(record()))


def test_every_figure_has_a_line_with_its_sentence(read):
    for figure in record().evaluation.figures:
        if figure.value == figure.value:
            assert figure.title in read.texts
            assert figure.sentence in read.text
    assert "0.190 to 0.210" in read.text


def test_a_figure_from_outside_appears_without_being_named(read):
    found = evaluation(own_figure=0.123)
    page = Page(audit_page(replace(record(), evaluation=found)))
    assert "own figure" in page.texts
    assert "What own_figure is." in page.text


def test_sections_and_provenance(read):
    headings = [text.split(":")[0] for text in read.texts]
    for name in ("Reasons", "Outcomes", "Utility", "Columns"):
        assert name in headings
    for words in ("a" * 64, "norm = l1", "2025-03-01T12:00:00+00:00", "integrated_gradients"):
        assert words in read.text


def test_groups_and_columns_are_in_tables(read):
    for words in ("f", "m", "age", "job"):
        assert words in read.texts


def test_ids_are_unique(read):
    ids = [attributes["id"] for _, attributes in read.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))


def test_hostile_names_are_text():
    page = Page(audit_page(hostile()))
    assert not [tag for tag, a in page.tags if tag == "img" or (tag == "script" and a.get("src"))]
    assert any(HOSTILE[0] in text for text in page.texts)


def test_undefined_figures_fold_away_with_the_reason():
    found = evaluation(members=None)
    undefined = tuple(
        replace(each, undefined="Too few rows.") if each.value != each.value else each
        for each in found.figures
    )
    text = audit_page(replace(record(), evaluation=replace(found, figures=undefined)))
    assert "Too few rows." in text


def test_several_attributes_stand_side_by_side():
    crossed = replace(evaluation(), by_attribute={"sex": evaluation(gcig=0.1), "race": evaluation(gcig=0.05)})
    page = Page(audit_page(AuditRecord(record().subject, replace(crossed, worst_pair=("a & b", "c & d")))))
    assert "crossed" in page.texts
    assert "race" in page.texts
    assert "'a & b' and 'c & d'" in page.text


def test_other_models_are_compared():
    page = Page(audit_page(record(), [record(0.8, 0.3), record(0.95, 0.05)]))
    for words in ("loans (2)", "loans (3)", "on the front", "dominated"):
        assert any(words in text for text in page.texts)


def test_an_exceeded_limit_sets_the_status():
    found = AuditResult(record())
    failed = audit_page(found.record, check=found.check(max_reason_gap=0.1))
    assert "failed: 1 of 1 limit exceeded" in failed
    assert "is above 0.1" in failed
    passed = audit_page(found.record, check=found.check(max_reason_gap=0.5))
    assert "passed: 1 limit met" in passed


def test_a_stored_record_gives_the_same_page():
    found = record()
    assert audit_page(AuditRecord.from_json(found.to_json())) == audit_page(found)


def test_the_first_screen_answers_in_people(read):
    assert (
        "Of 100 people in \u201cm\u201d whose outcome is \u201cyes\u201d, 30 are decided \u201cno\u201d"
        in read.text
    )
    questions = [text for text in read.texts if text.endswith("?")]
    assert questions[:3] == [
        "Are people treated equally well?",
        "Is everybody judged by the same standard?",
        "Does the model decide by sex itself?",
    ]
    assert any("no legal finding" in text for text in read.texts)


def test_less_than_1200_words_before_unfolding():
    html = audit_page(record(), check=AuditResult(record()).check(max_reason_gap=0.05, max_eo_gap=0.1))
    unfolded = re.sub(r"<details.*?</details>|<style.*?</style>|<desc.*?</desc>", "", html, flags=re.DOTALL)
    assert len(re.sub(r"<[^>]*>", " ", unfolded).split()) < 600


@pytest.mark.parametrize(
    ("code", "cause", "word"),
    [
        ("different_standards", "reason_gap_varying", "No."),
        ("group_differences", "reason_gap", "No different weights were found."),
        ("no_dependence", "reason_gap", "Yes, as far as this audit can see."),
        ("uncertain", "", "Not certain."),
        ("undefined", "", "Not known."),
    ],
)
def test_the_verdict_is_in_words(code, cause, word):
    verdict = Verdict(code, "The sentence.", cause, columns={"<job>": 0.2}, detectable=0.12)
    found = Page(audit_page(replace(record(), verdict=verdict)))
    assert word in found.texts
    if code in ("different_standards", "group_differences"):
        assert "\u201c<job>\u201d" in found.text
        assert "--legitimate '<job>'" in found.text
    assert "0.12 in four of five cases" in found.text


def test_steps_name_the_files_of_the_command():
    names = {"model": "m o", "file": "t.csv", "target": "approved"}
    verdict = Verdict("different_standards", "", "reason_gap_varying", columns={"job": 0.2})
    text = Page(audit_page(replace(record(), verdict=verdict), names=names)).text
    assert "gcig train t.csv --target approved --sensitive sex --teacher 'm o' --out fair/" in text


def test_numbers_and_classes_have_a_first_screen():
    groups = tuple(
        GroupRates(name, 100, {"calibration": error, "mae": 1.0}) for name, error in (("f", -2.0), ("m", 0.1))
    )
    number = replace(record(), evaluation=replace(evaluation(), task="number", groups=groups))
    number = replace(number, subject=subject(task="number", classes=(), favourable=("high",)))
    assert "2 too low on average" in Page(audit_page(number)).text
    groups = tuple(GroupRates(name, 100, {"accuracy": rate}) for name, rate in (("f", 0.5), ("m", 0.9)))
    classes = replace(record(), evaluation=replace(evaluation(), task="classes", groups=groups))
    classes = replace(classes, subject=subject(task="classes", classes=("a", "b", "c"), favourable=()))
    assert "50 are given a wrong class" in Page(audit_page(classes)).text
