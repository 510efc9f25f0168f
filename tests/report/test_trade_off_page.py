from dataclasses import replace

from gcig.records.base import Interval
from gcig.records.trade_off import TradeOffPoint, TradeOffRecord
from gcig.report.trade_off_page import trade_off_page
from support.fold_results import evaluation
from support.pages import Page


def point(number, auc, reasons, gap, changed=0.0):
    limits = {"reason_gap_high": reasons + 0.01, "outcome_gap_high": gap + 0.03}
    return TradeOffPoint(
        number=number,
        budget=0.01 * number,
        max_gap=float("nan"),
        evaluation=evaluation(auc, reasons, gap, **limits),
        lost=Interval(0.9 - auc, 0.9 - auc - 0.002, 0.9 - auc + 0.002),
        changed=changed,
    )


RECORD = TradeOffRecord(
    points=(
        point(0, 0.9, 0.2, 0.15),
        point(1, 0.898, 0.1, 0.12, changed=0.014),
        point(2, 0.897, 0.11, 0.13, changed=0.02),  # model 1 is better in everything
        point(3, 0.89, 0.05, 0.06, changed=0.05),
        point(4, 0.88, 0.04, 0.4, changed=0.05),  # buys reasons with outcomes
    ),
    utility="auc",
    n_rows=2000,
    about={"subtitle": "<b>loans</b>", "data": "loans.csv"},
)


def test_the_front_leaves_out_what_another_model_beats():
    assert [each.number for each in RECORD.front()] == [0, 1, 3, 4]
    assert [each.number for each in RECORD.front("outcome_gap")] == [0, 1, 3]


def test_each_price_holds_the_other_gap():
    assert RECORD.priced("reason_gap", "outcome_gap").number == 3  # not 4, which is unfairer in outcomes
    assert RECORD.priced("outcome_gap", "reason_gap").number == 3
    worse = replace(RECORD, points=(RECORD.points[0], point(1, 0.89, 0.3, 0.3)))
    assert worse.priced("reason_gap", "outcome_gap") is None


def test_the_best_model_is_chosen_by_confidence_limits():
    assert RECORD.best({"outcome_gap": 0.16}).number == 1
    assert RECORD.best({"outcome_gap": 0.13}).number == 3  # model 1 has 0.12, but not with confidence
    assert RECORD.best({"reason_gap": 0.03}) is None
    assert RECORD.nearest({"reason_gap": 0.03}).number == 4
    assert TradeOffRecord.from_json(RECORD.to_json()) == RECORD


def test_the_page_says_both_prices_and_has_every_model():
    page = trade_off_page(RECORD, title="Loans", folder="family")
    read = Page(page)
    assert "&lt;b&gt;loans&lt;/b&gt;" in page
    assert "gcig predict family/models/3 NEW.csv" in read.texts
    for number in range(5):
        assert f"model-{number}" in read.ids
    assert "from 0.200 to 0.050 for 0.010 of" in read.text
    assert "from 0.150 to 0.060 for 0.010 of" in read.text


def test_no_gain_is_said_to_be_none():
    points = (point(0, 0.9, 0.2, 0.15), point(1, 0.89, 0.25, 0.16))
    text = Page(trade_off_page(replace(RECORD, points=points), title="Loans")).text
    assert "No model lowers it" in text
