from dataclasses import replace

from gcig.records.base import Interval
from gcig.records.trade_off import TradeOffPoint, TradeOffRecord
from gcig.report.trade_off_page import describe_step, trade_off_page
from support.fold_results import evaluation


def point(number, auc, gcig, gap, *, changed=0.0, limit=0.03):
    return TradeOffPoint(
        number=number,
        weights={"gcig": 0.1 * number, "outcome": 0.05 * number},
        evaluation=evaluation(auc, gcig, gap),
        gap=gap,
        gap_limit=gap + limit,
        gcig_limit=gcig + 0.01,
        auc_lost=Interval(0.9 - auc, 0.9 - auc - 0.002, 0.9 - auc + 0.002),
        gained=changed,
        lost=0.0,
    )


RECORD = TradeOffRecord(
    points=(
        point(0, 0.9, 0.2, 0.15),
        point(1, 0.898, 0.1, 0.12, changed=0.014),
        point(2, 0.897, 0.11, 0.13, changed=0.02),  # model 1 is better in everything
        point(3, 0.89, 0.05, 0.06, changed=0.05),
    ),
    changes=((0, 0.014, 0.02, 0.05), (0.014, 0, 0.01, 0.04), (0.02, 0.01, 0, 0.04), (0.05, 0.04, 0.04, 0)),
    n_rows=2000,
    fair_limit=0.05,
    about={"subtitle": "<b>loans</b>", "data": "loans.csv"},
)


def test_the_front_leaves_out_what_another_model_beats():
    assert [each.number for each in RECORD.front] == [0, 1, 3]


def test_the_best_model_is_chosen_by_confidence_limits():
    assert RECORD.best(max_eo_gap=0.16).number == 1
    assert RECORD.best(max_eo_gap=0.13).number == 3  # model 1 has 0.12, but not with confidence
    assert RECORD.best(max_gcig=0.05) is None
    assert RECORD.nearest(max_gcig=0.05).number == 3
    assert TradeOffRecord.from_json(RECORD.to_json()) == RECORD


def test_a_step_is_stated_in_decisions():
    text = describe_step(RECORD, RECORD.points[0], RECORD.points[1])
    assert text == (
        "This lowers GCIG from 0.200 to 0.100 and the EO gap from 0.150 to 0.120. It costs 0.0020 of AUC, "
        "and of 1,000 people the decision changes for 14."
    )


def test_the_page_has_a_point_to_click_for_every_model():
    page = trade_off_page(RECORD, title="Loans", folder="family")
    for number in range(4):
        assert f'href="#model-{number}"' in page
        assert f'<article id="model-{number}"' in page
        assert f"gcig predict family/models/{number} NEW.csv" in page
    assert "&lt;b&gt;loans&lt;/b&gt;" in page
    assert "Reasons can depend 4.0 times less on the group for 0.010 of AUC" in page
    assert "and the EO gap can fall from 0.150 to 0.060 for 0.010 of AUC." in page
    assert "upper confidence limit of about 0.050" in page.replace("\n", " ")


def test_the_headline_claims_no_gain_that_is_not_there():
    points = (point(0, 0.9, 0.2, 0.0152), point(1, 0.89, 0.1, 0.0151))
    page = trade_off_page(replace(RECORD, points=points, changes=((0, 0), (0, 0))), title="Loans")
    assert "Reasons can depend 2.0 times less on the group for 0.010 of AUC." in page
    assert "can fall" not in page
    free = (point(0, 0.9, 0.2, 0.3), point(1, 0.9, 0.1, 0.4))
    page = trade_off_page(replace(RECORD, points=free, changes=((0, 0), (0, 0))), title="Loans")
    assert "Reasons can depend 2.0 times less on the group at no cost in AUC." in page
    assert "AUC stays the same, and of 1,000 people" in page
