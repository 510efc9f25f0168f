import math
import re
from dataclasses import replace

import pytest

from gcig.records.evaluation import UNRANKED_NOTE
from gcig.report.comparison_page import comparison_page, methods_table
from gcig.report.summaries import pooled_rates, summarise
from gcig.report.tables import entry_text
from support.audit_records import HOSTILE
from support.fold_results import comparison, evaluation, fold
from support.pages import Page, marks_of

LABELS = {"unconstrained": "Plain", "fairx": "FairX", "adversarial": "Adversarial", "hardt": "Hardt"}


@pytest.fixture(scope="module")
def read():
    return Page(comparison_page(comparison(), labels=LABELS, foot={"Versions": "gcig 0.1.0"}))


def test_the_answers_come_first(read):
    assert "4.2 times less on the group, at a cost of 0.010 in auc." in read.text
    assert read.text.index("4.2 times less") < read.text.index("Mean ± standard deviation over folds")
    assert read.text.index("What do fairer decisions cost?") < read.text.index("All methods")


def test_every_measure_has_a_line(read):
    for figure in evaluation().figures:
        if figure.value == figure.value:
            assert figure.sentence in read.texts


def test_the_table_has_means_marks_and_failures():
    table = methods_table(summarise(comparison(), LABELS)["loans"])
    assert [row[0] for row in table.rows] == ["Plain", "FairX", "Adversarial", "Hardt"]
    auc, reasons, gap = (table.header.index(name) for name in ("auc", "reason gap", "outcome gap"))
    assert entry_text(table.rows[0][auc]) == "0.910 ± 0.014"
    assert entry_text(table.rows[1][gap]) == "0.100 ± 0.000 (chance 0.020)"
    assert marks_of(table)[0, auc] == "best"
    assert marks_of(table)[1, reasons] == "best"  # the collapsed one is lower, and does not count
    assert marks_of(table)[3, gap] == "best"
    assert [entry_text(row[-1]) for row in table.rows] == [
        "on the front",
        "on the front",
        "collapsed in 1 of 2 folds",
        "1 of 2 folds failed; no rank in reasons",
    ]
    assert marks_of(table)[2, len(table.header) - 1] == "concern"


def test_failures_are_listed_and_escaped(read):
    assert "ValueError: <b>no</b>" in read.texts
    assert not read.all("b")


def test_groups_are_pooled_over_folds(read):
    assert "200" in read.texts  # rows of the first group in both folds
    evaluations = [fold.evaluation for fold in comparison()[:2]]
    assert pooled_rates(evaluations)["true positive rate"]["f"].value == pytest.approx(0.8)


def test_each_table_has_its_answers():
    results = comparison() + [fold(m, 0, evaluation(), dataset="other") for m in ("unconstrained", "fairx")]
    read = Page(comparison_page(results, labels=LABELS))
    assert "loans: What do fairer reasons cost?" in read.texts
    assert "other: What do fairer reasons cost?" in read.texts


def test_without_the_two_methods_the_lowest_reason_gap_is_named():
    results = [fold("a", 0, evaluation(gcig=0.3)), fold("b", 0, evaluation(gcig=0.1))]
    assert "b has the lowest reason gap (0.100)." in Page(comparison_page(results)).texts


def test_post_processing_is_listed_without_a_rank_in_reasons():
    results = [fold("dir", 0, evaluation(gcig=0.3)), fold("hardt", 0, evaluation(auc=0.95, gcig=0.1))]
    read = Page(comparison_page(results, labels=LABELS))
    assert "dir has the lowest reason gap (0.300)." in read.texts
    table = methods_table(summarise(results, LABELS)["loans"])
    reasons, front = table.header.index("reason gap"), len(table.header) - 1
    assert entry_text(table.rows[1][reasons]) == "0.100"
    assert [row for row, column in marks_of(table) if column == reasons] == [0]
    assert [entry_text(row[front]) for row in table.rows] == ["on the front", "no rank in reasons"]
    assert UNRANKED_NOTE in table.notes
    assert read.text.count("Hardt: outcome gap") == 1  # the chart of reasons leaves it out
    assert "Hardt: reason gap" not in read.text


def test_no_results_give_a_page():
    assert "Comparison of methods" in Page(comparison_page([])).texts
    failed = Page(comparison_page([fold("fairx", 0, None, error="boom")]))
    assert "boom" in failed.texts


def test_hostile_names_are_text():
    results = [fold(name, 0, evaluation(names=HOSTILE[:2]), dataset=HOSTILE[0]) for name in HOSTILE]
    read = Page(comparison_page(results, title=HOSTILE[0], foot={HOSTILE[0]: HOSTILE[1]}))
    assert not read.all("script")
    assert not read.all("img")


def test_small_groups_are_suppressed():
    results = [fold("fairx", i, evaluation(sizes=(100, 5))) for i in range(2)]
    text = Page(comparison_page(results)).text
    assert re.search(r"suppressed\s*fewer than 11", text)
    pooled = pooled_rates([result.evaluation for result in results])
    assert math.isnan(pooled["selection rate"]["m"].value)
    many = pooled_rates([evaluation(sizes=(100, 20))])
    assert not math.isnan(many["selection rate"]["m"].value)
    assert math.isnan(many["true positive rate"]["m"].value)  # eight rows have label 1


def test_suppressed_cells_are_named_with_the_gaps():
    found = replace(evaluation(), min_cell=11, suppressed_cells=("positive, m",))
    text = Page(comparison_page([fold("fairx", 0, found)])).text
    assert "fewer than 11 rows in a fold: positive, m." in text


def test_methods_that_were_left_out_are_said():
    assert "Hardt" in Page(comparison_page(comparison()[:2], left_out="Left out: Hardt.")).text
