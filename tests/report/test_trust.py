import math

import pytest

from gcig.records.trust import TRUST_NUMBERS
from gcig.report.comparison_page import comparison_page, training_page
from support.fold_results import evaluation, fold
from support.pages import Page


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


@pytest.mark.parametrize("item", TRUST_NUMBERS, ids=lambda item: item.field)
def test_equal_and_undefined_numbers_are_no_bad_news(item):
    if item.field != "gcig_members":  # training has to lower it
        assert item.describe_change(0.9, 0.9) == ""
    assert item.describe_change(math.nan, 0.9) == ""
    assert item.describe_change(0.9, math.nan) == ""
    assert not item.alarms(math.nan)
    assert "Bad news" in item.reading
