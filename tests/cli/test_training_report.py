from dataclasses import replace

import pytest

from gcig.cli.training_report import cost_and_gain, find_failures, measures_table
from gcig.records import Evaluation

PLAIN = Evaluation(
    n_rows=100,
    threshold=0.5,
    f1=0.7,
    auc=0.85,
    accuracy=0.8,
    balanced_accuracy=0.8,
    log_loss=0.5,
    selection_rate=0.4,
    eo_gap=0.4,
    eo_worst=0.3,
    eo_noise_floor=0.05,
    eo_worst_noise_floor=0.05,
    delta_tpr=0.3,
    delta_fpr=0.1,
    demographic_parity_difference=0.2,
    selection_rate_ratio=0.7,
    collapsed=False,
    groups=(),
    gcig=0.2,
    effective_columns=9.0,
)


def test_cost_and_gain_in_words():
    fair = replace(PLAIN, auc=0.846, gcig=0.05, eo_gap=0.3)
    cost, decisions, gain, outcome = cost_and_gain(PLAIN, fair, "FairX")
    assert cost == "Cost:  AUC 0.004 lower (0.850 to 0.846)."
    assert decisions == "       F1 unchanged (0.700)."
    assert "GCIG 0.150 lower (0.200 to 0.050)" in gain
    assert "4.0 times less" in gain
    assert "EO gap 0.100 lower (0.400 to 0.300)" in outcome
    assert "somewhat less" in outcome


def test_a_loss_is_not_reported_as_a_gain():
    _, _, gain, outcome = cost_and_gain(PLAIN, replace(PLAIN, gcig=0.3), "FairX")
    assert "0.100 higher" in gain
    assert "more, not less," in gain
    assert "unchanged (0.400)" in outcome
    assert "as much" in outcome


def test_noise_and_collapse_are_reported():
    fair = replace(PLAIN, eo_noise_floor=0.2, collapsed=True)
    lines = cost_and_gain(PLAIN, fair, "FairX")
    assert "even an exactly fair model shows an EO gap of 0.200" in lines[-2]
    assert lines[-1].startswith("But FairX has collapsed")


def test_undefined_values_are_reported_as_such():
    fair = replace(PLAIN, gcig=float("nan"))
    gain = cost_and_gain(PLAIN, fair, "FairX")[2]
    assert gain == "Gain:  GCIG 0.200 to undefined."
    assert "undefined" in measures_table({"Plain": PLAIN, "FairX": fair})


@pytest.mark.parametrize(
    ("limits", "reasons"),
    [
        ({"max_gcig": None, "max_eo_gap": None}, []),
        ({"max_gcig": 0.2, "max_eo_gap": 0.4}, []),
        ({"max_gcig": 0.1, "max_eo_gap": 1.0}, ["GCIG 0.200 is above --max-gcig 0.1"]),
        ({"max_gcig": 0.1, "max_eo_gap": 0.3}, ["GCIG 0.200 is", "EO gap 0.400 is above --max-eo-gap 0.3"]),
    ],
)
def test_limits(limits, reasons):
    found = find_failures(PLAIN, **limits)
    assert len(found) == len(reasons)
    assert all(line.startswith(reason) for line, reason in zip(found, reasons, strict=True))


def test_an_undefined_value_exceeds_every_limit():
    assert find_failures(replace(PLAIN, gcig=float("nan")), max_gcig=9.0, max_eo_gap=None)


def test_worse_decisions_with_an_equal_ranking_come_with_a_hint():
    worse = replace(PLAIN, f1=0.6)
    assert "--threshold f1" in cost_and_gain(PLAIN, worse, "FairX")[1]
    for other in (replace(worse, auc=0.8), replace(worse, threshold=0.3), replace(worse, f1=0.68)):
        assert "--threshold" not in cost_and_gain(PLAIN, other, "FairX")[1]


def test_used_columns_are_shown_with_their_total():
    assert "9.0 of 3" in measures_table({"Plain": replace(PLAIN, gcig_columns={"a": 1, "b": 2, "c": 3})})
    assert "undefined" in measures_table({"Plain": replace(PLAIN, effective_columns=float("nan"))})


def test_a_collapse_is_a_failure_without_any_limit():
    failures = find_failures(replace(PLAIN, collapsed=True), max_gcig=None, max_eo_gap=None)
    assert failures == ["the model collapsed"]
