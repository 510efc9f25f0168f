import math

from gcig.metrics.utility import MAIN
from gcig.report.summaries import MethodSummary, describe_trade_off, main_measure
from support.fold_results import evaluation


def model(name, auc=0.9, gcig=0.2, eo_gap=0.2, floor=0.01, columns=8.0, *, members=None, **more):
    found = evaluation(auc, gcig, eo_gap, floor=floor, columns=columns, members=members, **more)
    return MethodSummary.of(name, name, found)


def test_cautions_name_every_number_that_got_worse():
    trust = {"members": 0.1, "reference_offset": 0.1, "faithfulness": 0.9, "attribute_effect": 0.05}
    worse = {"members": 0.2, "reference_offset": 0.3, "faithfulness": 0.7, "attribute_effect": 0.1}
    plain = model("P", **trust)
    fair = model("F", gcig=0.1, columns=3.0, **worse)
    found = describe_trade_off(plain, fair)[2]
    assert [caution.split(" (")[0].split(" rises")[0].split(" falls")[0] for caution in found] == [
        "Relative to members, GCIG does not fall",
        "The reference offset",
        "Faithfulness",
        "The effective number of columns halved or doubled",
        "The attribute effect",
    ]
    assert not describe_trade_off(plain, model("F", gcig=0.1, **{**trust, "members": 0.09}))[2]


def test_cautions_on_noise_columns_and_collapse():
    plain = model("P", floor=0.1)
    _, _, cautions = describe_trade_off(plain, model("F", gcig=0.1, floor=0.1, columns=3.0))
    assert any("0.100 on average" in caution for caution in cautions)
    assert any("halved" in caution for caution in cautions)
    assert not describe_trade_off(plain, model("F", gcig=0.1, floor=0.001))[2]
    assert (
        "has collapsed" in describe_trade_off(plain, model("F", 0.5, 0.0, 0.0, 0.0, 1.0, collapsed=True))[0]
    )


def test_headlines_are_about_the_reason_gap():
    plain, fair = (
        MethodSummary.of(name, name, evaluation(gcig=gap)) for name, gap in (("P", 0.2), ("F", 0.05))
    )
    headline, findings, _ = describe_trade_off(plain, fair)
    assert headline == "F makes the reasons depend 4.0 times less on the group, at no cost in auc."
    assert "reason gap falls from 0.200 to 0.050." in findings
    uncertain = MethodSummary.of("F", "F", evaluation(0.8, 0.195))
    assert describe_trade_off(plain, uncertain)[0].startswith("It is not certain")
    by_chance = MethodSummary.of("F", "F", evaluation(gcig=0.005))  # its interval holds 0: no ratio
    assert "depend less on the group" in describe_trade_off(plain, by_chance)[0]
    undefined = MethodSummary.of("F", "F", evaluation(gcig=math.nan))
    assert "undefined" in describe_trade_off(plain, undefined)[0]


def test_explanations_that_grow_are_named():
    plain = MethodSummary.of("P", "P", evaluation(gcig=0.2, reason_size=1.0))
    fair = MethodSummary.of("F", "F", evaluation(gcig=0.1, reason_size=1.5))
    assert any("explanations grew and cancel" in each for each in describe_trade_off(plain, fair)[2])


def test_the_main_measures_are_those_of_the_metrics():
    assert {task: main_measure(task) for task in MAIN} == MAIN
