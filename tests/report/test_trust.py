import math
from dataclasses import replace

import pytest

from gcig.records import Interval
from gcig.records.trust import TRUST_NUMBERS
from gcig.report.audit_page import audit_page
from gcig.report.comparison_page import comparison_page, training_page
from gcig.report.trust import models_trust
from support.audit_records import example, robustness, undefined
from support.fold_results import evaluation, fold
from support.pages import Page, marks_of


def test_trust_numbers_are_shown_with_their_reading():
    read = Page(audit_page(example()))
    for words in ("GCIG relative to members", "0.139 to 0.163", "Reference offset", "0.160", "Faithfulness",
                  "0.930", "Attribute effect", "3.4 %", "3.1 % to 3.7 %", "GCIG on raw columns"):  # fmt: skip
        assert words in read.texts
    assert sum("Bad news" in text for text in read.texts) == 5
    assert "How is faithfulness measured?" in read.texts
    assert "In colour" not in read.text


def test_bad_news_is_marked_and_undefined_numbers_are_explained():
    record = example()
    found = replace(
        record.procedural,
        reference_offset=1.2,
        attribute_effect=Interval(math.nan),
        undefined={"attribute_effect": "The <table> has no protected column."},
    )
    read = Page(audit_page(replace(record, procedural=found)))
    assert sum("mark-concern" in (a.get("class") or "") for a in read.all("td")) == 1
    assert "In colour: bad news by itself." in read.texts
    assert "The <table> has no protected column." in read.texts


def test_trust_numbers_are_compared_with_the_plain_network():
    plain = evaluation(0.9, 0.2, members=0.15, reference_offset=0.14, faithfulness=0.95)
    fair = evaluation(0.89, 0.05, members=0.08, reference_offset=0.44, faithfulness=0.9)
    read = Page(training_page({"Plain": plain, "FairX": fair}, title="t"))
    assert "Reference offset" in read.texts
    assert "In colour: bad news by itself, or clearly worse than Plain." in read.texts
    assert sum("mark-concern" in (a.get("class") or "") for a in read.all("td")) == 1
    assert "The reference offset rises from 0.140 to 0.440" in read.text
    assert "Attribute effect" not in read.texts


def test_trust_numbers_have_a_table():
    numbers = {"reference_offset": 0.14, "faithfulness": 0.95, "attribute_effect": 0.05}
    results = [
        fold("unconstrained", 0, evaluation(0.9, 0.2, members=0.15, **numbers)),
        fold("fairx", 0, evaluation(0.9, 0.05, members=0.2, **{**numbers, "attribute_effect": 0.08})),
    ]
    read = Page(comparison_page(results, labels={"unconstrained": "Plain"}))
    assert "What GCIG alone does not show: mean ± standard deviation over folds" in read.texts
    assert "attribute effect" in read.texts
    assert "In colour: bad news by itself, or clearly worse than Plain." in read.texts
    assert sum("mark-concern" in (a.get("class") or "") for a in read.all("td")) == 2
    assert "but not relative to their members" in read.text


def test_overlapping_intervals_are_not_marked():
    plain = evaluation(members=0.1, gcig_members_low=0.0, gcig_members_high=0.2)
    fair = evaluation(members=0.15, gcig_members_low=0.1, gcig_members_high=0.2)
    assert not marks_of(models_trust({"plain": plain, "fair": fair})[0])
    certain = replace(fair, gcig_members=0.4, gcig_members_low=0.3, gcig_members_high=0.5)
    assert marks_of(models_trust({"plain": plain, "fair": certain})[0])
    results = [fold("unconstrained", 0, plain), fold("fairx", 0, fair)]
    assert "mark-concern" not in comparison_page(results).split("<main>")[1]
    equal = [fold(method, 0, evaluation(members=0.1)) for method in ("unconstrained", "hardt")]
    assert "mark-concern" not in comparison_page(equal).split("<main>")[1]


@pytest.mark.parametrize("item", TRUST_NUMBERS, ids=lambda item: item.field)
def test_equal_and_undefined_numbers_are_no_bad_news(item):
    if item.field != "gcig_members":  # training has to lower it
        assert item.describe_change(0.9, 0.9) == ""
    assert item.describe_change(math.nan, 0.9) == ""
    assert item.describe_change(0.9, math.nan) == ""
    assert not item.alarms(math.nan)
    assert "Bad news" in item.reading


def test_records_without_the_numbers_have_no_table():
    found = evaluation(columns=math.nan)
    assert models_trust({"model": found}) == []
    assert models_trust({"model": undefined().procedural}) == []


def test_the_references_have_a_section_if_the_record_has_them():
    read = Page(audit_page(example()))
    heading = "Robustness: does the conclusion depend on the reference?"
    assert heading not in read.texts
    assert "robustness=True (gcig audit --robustness) adds it" in read.text
    found = robustness(agrees=False)
    with_panel = Page(audit_page(replace(example(), robustness=found)))
    assert heading in with_panel.texts
    assert found.verdict in with_panel.texts
    assert any("callout-concern" in (a.get("class") or "") for a in with_panel.all("p"))
    for figure in found.figures:
        assert figure.description in with_panel.texts
    assert "these references reverse the order" in with_panel.text
    assert "robustness=True" not in with_panel.text
    one = Page(audit_page(replace(example(), robustness=robustness(paired=False))))
    assert "other model" not in one.texts
    assert "noise" in one.texts
    assert any("callout-good" in (a.get("class") or "") for a in one.all("p"))


def test_the_training_page_names_both_models():
    found = {"Plain": evaluation(), "FairX": evaluation(robustness=robustness())}
    read = Page(training_page(found, title="t"))
    assert robustness().verdict in read.texts
    assert any(text.startswith("FairX, mean (headline)") for text in read.texts)
    assert any(text.startswith("Plain, members") for text in read.texts)
    assert "every reference gives the same order of the two models" in read.text
