import re
from dataclasses import replace

from gcig.report.comparison_page import training_page
from gcig.report.summaries import pooled_rates
from support.fold_results import evaluation
from support.pages import Page


def test_models_are_compared_and_columns_described():
    found = {"Plain": evaluation(0.9, 0.2, 0.3), "FairX": evaluation(0.89, 0.05, 0.1)}
    read = Page(
        training_page(
            found,
            title="FairX on <loans>.csv",
            columns=[("age", "input", "number"), ("<b>", "protected", "category")],
            reasons=["GCIG 0.050 is above --max-gcig 0.01"],
            limited=True,
            notes=["A decimal comma."],
        )
    )
    for words in ("4.0 times less", "Failed", "GCIG 0.050 is above --max-gcig 0.01", "0.040 to 0.060",
                  "A decimal comma.", "<b>", "read as", "150 held-out rows"):  # fmt: skip
        assert words in read.text
    assert not read.all("b")


def test_no_model_has_the_colour_of_a_group():
    found = {"Plain": evaluation(0.9, 0.2, 0.3), "FairX": evaluation(0.89, 0.05, 0.1)}
    html = training_page(found, title="t")
    of_groups, of_models = set(), set()
    for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        marks = set(re.findall(r'class="(g\d)"', svg))
        (of_groups if "Rates of each group" in svg else of_models).update(marks)
    assert (of_groups, of_models) == ({"g0", "g1"}, {"g2", "g3"})


def test_one_model_within_its_limits():
    read = Page(training_page({"FairX": evaluation(0.89, 0.05, 0.1)}, title="t", limited=True))
    assert "Within the limits" in read.texts
    assert "FairX has a GCIG of 0.050 and an AUC of 0.890." in read.texts


def test_rates_of_the_favourable_outcome():
    found = {"FairX": evaluation(0.89, 0.05, 0.1)}
    selected = Page(training_page(found, title="t")).text
    favoured = Page(training_page(found, title="t", favours_positive=False)).text
    assert "selection rate" in selected
    assert "favourable rate" not in selected
    assert "favourable rate" in favoured
    assert "selection rate" not in favoured
    rates = {each: pooled_rates(found.values(), favours_positive=each == "selection rate")[each]["f"]
             for each in ("selection rate", "favourable rate")}  # fmt: skip
    first, second = rates.values()
    assert [second.value, second.low, second.high] == [1 - first.value, 1 - first.high, 1 - first.low]


def test_suppressed_cells_are_named_with_the_gaps():
    found = replace(evaluation(), min_cell=11, suppressed_cells=("positive, m",))
    text = Page(training_page({"FairX": found}, title="t")).text
    assert "fewer than 11 rows: positive, m." in text
