import re
from dataclasses import replace

import pytest

from gcig.auditing import AuditResult
from gcig.records import AuditRecord, Interval
from gcig.records.audit import Verdict
from gcig.report import charts
from gcig.report.audit_page import audit_page
from support.audit_records import HOSTILE, example, explained, hostile, undefined
from support.pages import Page


def limited(record, **limits):
    return audit_page(record, check=AuditResult(record).check(**limits))


@pytest.fixture(scope="module")
def read():
    return Page(limited(example(), max_gcig=0.05, max_eo_gap=0.1))


def test_the_verdict_comes_first_then_the_figures_then_the_sections(read):
    tags = [tag for tag, _ in read.tags]
    assert read.text.index("by different reasons") < read.text.index("Outcome: do the decisions")
    verdict = next(i for i, (_, a) in enumerate(read.tags) if "verdict" in (a.get("class") or ""))
    assert verdict < tags.index("svg") < tags.index("table")
    headings = [
        t
        for t in read.texts
        if t.split(":")[0] in ("Outcome", "Reasons", "Trust", "Columns", "Stability", "Rows")
    ]
    order = [h.split(":")[0] for h in headings if ":" in h and "?" in h]
    assert order == ["Outcome", "Reasons", "Trust", "Columns", "Stability", "Rows"]


def test_the_foot_names_the_model_and_the_data(read):
    for words in (
        "9f2c" * 16,
        "07ab" * 16,
        "norm = l1",
        "gcig 0.1.0",
        "Shapley values",
        "2025-06-01T09:30:00+00:00",
    ):
        assert words in read.text


def test_every_number_of_the_record_is_shown(read):
    for words in ("0.164", "0.158 to 0.170", "0.012", "0.152", "0.138", "0.310", "0.907", "6.4", "0.031"[:4]):
        assert words in read.text
    assert "the limit is 0.100" in read.text
    assert "limit 0.050" in read.text


def test_every_column_is_in_the_table(read):
    for column in example().procedural.columns:
        assert column.column in read.texts


def test_numbers_are_explained(read):
    for question in (
        "What is GCIG?",
        "What is the noise floor?",
        "What is the EO gap?",
        "How are columns ranked?",
    ):
        assert question in read.texts
    assert len(read.all("details")) >= 8


def test_ids_are_unique(read):
    assert len(read.ids) == len(set(read.ids))


def test_rows_have_reasons_only_if_the_record_has_them(read):
    assert len([a for a in read.all("article")]) == 8
    assert "row-37" in read.ids
    plain = Page(audit_page(example(include_rows=False)))
    assert not plain.all("article")
    assert "37" in plain.texts
    assert ">50K" in read.texts
    assert "id 3" in read.texts
    assert "include_rows=True" in plain.text
    assert "treat it as personal data" in read.text
    assert "treat it as personal data" not in plain.text


def test_the_page_says_which_rows_can_be_chosen():
    text = Page(audit_page(example())).text
    assert "Choose one of 8 of the 45,222 audited rows" in text
    assert "These are the most affected rows; gcig explain shows any other row (--id or --row)." in text
    record = example()
    many = replace(record, procedural=replace(record.procedural, rows=record.procedural.rows * 7))
    more = Page(audit_page(many)).text
    assert "the most affected rows, which come first, and an even sample of the others" in more
    few = replace(record, subject=replace(record.subject, n_rows=8))
    assert "Choose any audited row, the most affected first" in Page(audit_page(few)).text


def test_other_models_are_compared():
    other = example(name="fair-model")
    other = replace(other, procedural=replace(other.procedural, gcig=Interval(0.03)))
    read = Page(audit_page(example(), [other, example()]))
    assert "Comparison: how do other models do?" in read.texts
    assert "fair-model" in read.texts
    assert "credit-model (2)" in read.texts
    assert "on the front" in read.texts
    assert "Comparison: how do other models do?" not in Page(audit_page(example())).texts


def test_hostile_names_are_text():
    text = audit_page(hostile(), [hostile()])
    read = Page(text)
    assert len(read.all("script")) == 1
    assert not read.all("img")
    assert "alert" not in read.raw["script"]
    assert not any(name.startswith("on") for _, attrs in read.tags for name in attrs)
    assert "<script>alert(1)</script>" in read.texts
    assert "{{ 7*7 }}" in read.text
    assert not set("\u202e\u2066") & set(text)
    assert "قعربي" in read.text or "ق" in read.text
    assert len(read.ids) == len(set(read.ids))


def test_undefined_numbers_are_named_and_small_groups_suppressed():
    read = Page(audit_page(undefined()))
    assert {"suppressed", "fewer than 11"} <= set(read.texts)
    assert "undefined" in read.texts
    assert "nan" not in {word.lower() for word in read.text.split()}
    assert "collapsed" in read.text
    assert "nothing to hash" in read.text


@pytest.mark.parametrize("groups", [("one",), tuple(f"group {i}" for i in range(20))])
def test_one_group_and_many_groups(groups):
    read = Page(audit_page(example(groups=groups)))
    assert all(group in read.text for group in groups)


def test_a_stored_record_gives_the_same_page():
    record = example()
    again = AuditRecord.from_json(record.to_json())
    assert audit_page(again) == audit_page(record)


def test_without_columns_rows_or_checks():
    record = example()
    bare = replace(
        record, procedural=replace(record.procedural, columns=(), rows=(), stability=(), labels=(), pairs=())
    )
    text = Page(audit_page(bare)).text
    assert "There are no columns to rank." in text
    assert "No rows were listed." in text
    assert "No other choices were tried." in text
    assert HOSTILE[0] not in text


def test_suppressed_cells_and_proxies_are_named():
    record = replace(
        example(), min_cell=20, suppressed_cells=(">50K, Male",), proxy_columns=("relationship",)
    )
    text = Page(audit_page(record)).text
    assert "1 cell suppressed" in text
    assert "fewer than 20 rows: >50K, Male." in text
    assert "can use them in its place: relationship." in text


def test_the_gauge_marks_the_value_that_is_comparable_with_chance():
    record = example()
    found = record.procedural
    own = replace(found, gcig=Interval(0.05), excess=Interval(found.gcig.value - found.noise_floor.value))
    plain = Page(audit_page(record))
    assert "The hollow one" not in plain.text
    assert "GCIG to compare with chance" not in plain.texts
    read = Page(audit_page(replace(record, procedural=own)))
    assert "The hollow one has references from the audited rows" in read.text
    assert f"references from the audited rows; GCIG is then {found.gcig.value:.3f}" in read.text
    assert "references from the model's training rows" in read.text
    assert "GCIG to compare with chance" in read.texts
    assert "GCIG to compare with chance minus the noise floor: the part due to the model" in read.texts


def test_a_limit_that_chance_alone_exceeds_says_so():
    record = example()
    floor = record.procedural.noise_floor.value
    assert floor < record.procedural.gcig.value
    why = f"(as is the {floor:.4f} that chance alone gives on these rows: use more rows)"
    assert why in Page(limited(record, max_gcig=floor / 2)).text
    assert "use more rows" not in Page(limited(record, max_gcig=floor * 1.01)).text
    assert why in str(AuditResult(record).check(max_gcig=floor / 2))
    assert "chance" not in str(AuditResult(record).check(max_gcig=floor * 1.01))


def test_the_noise_floor_is_drawn_only_where_it_is_comparable():
    record = example()
    own = replace(record.procedural, excess=Interval(0.05, 0.03, 0.07))
    assert "The dashed line is the noise floor" in Page(audit_page(record)).text
    assert "The dashed line is the noise floor" not in Page(audit_page(replace(record, procedural=own))).text


def test_a_group_has_one_colour_and_mark_on_the_whole_page():
    """Also if the first group is suppressed, so that some charts lack it."""
    record = example(groups=("few", "Female", "Male"))
    found = record.procedural
    groups = tuple(replace(g, n_rows=None) if g.group == "few" else g for g in record.groups)
    counts = {g: c for g, c in found.histogram_counts.items() if g != "few"}
    two = ("Female", "Male")
    rows = tuple(
        replace(row, explanation=explained(i, two, ("age", "race"))) for i, row in enumerate(found.rows)
    )
    found = replace(found, histogram_counts=counts, compared_groups=two, rows=rows)
    text = audit_page(replace(record, groups=groups, procedural=found))
    for chart in re.findall(r"<svg.*?</svg>", text, flags=re.S):
        title = re.search("<title>(.*?)</title>", chart)[1]
        if title.startswith("Reasons compared with"):
            colour = {"Female": "g1", "Male": "g2"}[title.split()[-1]]
            assert set(re.findall(r'class="(g\d)"', chart)) == {colour}
        elif title == "Disparity of the rows of each group":
            assert set(re.findall(r'class="(g\d)"', chart)) == {"g1", "g2"}


def test_small_groups_do_not_flatten_the_histograms_of_the_others():
    counts = {"large": (100, 200, 300, 200), "small": (0, 20, 0, 0)}
    chart = charts.disparity_histogram((0.0, 0.1, 0.2, 0.3, 0.4), counts)
    heights = [float(h) for h in re.findall(r'<rect[^>]* height="([\d.]+)"', chart)]
    assert max(heights[:4]) == max(heights[4:]) == 58.0
    assert "highest bar: 38 %" in chart


def test_an_exceeded_limit_sets_the_status():
    clear = replace(example(), verdict=Verdict("clear", "No material dependence was found."))
    text = Page(limited(clear, max_gcig=0.1)).text
    assert "Failed" in text
    assert "GCIG 0.1640 is above 0.1." in text
    assert "No disparity found" not in text
    within = Page(limited(clear, max_gcig=0.17)).text
    assert "Failed" not in within
    assert "Failed" in Page(limited(clear, max_gcig=0.17, conservative=True)).text


def test_the_page_of_a_failed_check_says_why_although_no_limit_is_exceeded():
    record = example()
    collapsed = replace(record, outcome=replace(record.outcome, collapsed=True))
    text = Page(limited(collapsed, max_gcig=1.0)).text
    assert "Failed" in text
    assert "The model collapsed: it ranks rows hardly better than chance." in text
    alike = replace(record, outcome=replace(record.outcome, decides_alike=True))
    text = Page(limited(alike, max_eo_gap=1.0)).text
    assert "Limits inconclusive" in text
    assert "Everyone gets the same decision at this threshold" in text


def test_one_interval_of_gcig_is_shown_the_one_that_limits_are_compared_with():
    record = example()
    assert record.procedural.gcig.high == pytest.approx(0.176)
    text = Page(audit_page(record)).text
    assert "0.154 to 0.176" in text
    assert "0.158 to 0.170" not in text.replace("GCIG is 0.164 (0.158 to 0.170), where", "")


def test_words_follow_the_favourable_class():
    record = example()
    bad = replace(record, subject=replace(record.subject, favourable="no default", positive="default"))
    text = Page(audit_page(bad)).text
    assert "favourable outcome: no default (the score is the probability of default)" in text
    assert "favourable rate" in text
