import pytest

from gcig.cli.training_report import TrainedModel, describe_cost_and_gain, judge_model, measures_table
from support.fold_results import evaluation


def plain(**changes):
    return evaluation(**({"auc": 0.85, "gcig": 0.2, "eo_gap": 0.4, "floor": 0.05, "columns": 9.0} | changes))


PLAIN = plain()


def describe(plain, fair):
    models = TrainedModel("unconstrained", "Plain", None, plain), TrainedModel("fairx", "FairX", None, fair)
    return "\n".join(describe_cost_and_gain(*models))


def test_cost_and_gain_in_words():
    lines = describe(PLAIN, plain(auc=0.846, gcig=0.05, eo_gap=0.3)).splitlines()
    assert "4.0 times less on the group, at a cost of 0.004 in auc." in lines[0]
    assert lines[1:5] == [
        "auc falls from 0.850 to 0.846.",
        "outcome gap falls from 0.400 to 0.300.",
        "reason gap falls from 0.200 to 0.050.",
        "gcig falls from 0.200 to 0.050.",
    ]


def test_a_loss_is_not_reported_as_a_gain():
    text = describe(PLAIN, plain(gcig=0.3))
    assert text.startswith("It is not certain that FairX makes the reasons depend less on the group")
    assert "rises from 0.200 to 0.300" in text


def test_noise_and_collapse_are_reported():
    text = describe(PLAIN, plain(floor=0.2, collapsed=True))
    assert "even an exactly fair model shows an outcome gap of 0.200" in text
    assert text.endswith("Do not use FairX: it has collapsed.")


def test_undefined_values_are_reported_as_such():
    fair = plain(gcig=float("nan"))
    assert "undefined" in describe(PLAIN, fair)
    assert "undefined" in measures_table({"Plain": PLAIN, "FairX": fair})


def judge(evaluation, **limits):
    outcome = judge_model(evaluation, limits, ("yes",), 0, "TEST.csv")
    return outcome.code, list(outcome.check.problems)


@pytest.mark.parametrize(
    ("limits", "code", "problems"),
    [
        ({}, 0, 0),
        ({"max_gcig": 0.2, "max_eo_gap": 0.4}, 0, 0),
        ({"max_gcig": 0.1, "max_eo_gap": 1.0}, 1, 1),
        ({"max_gcig": 0.1, "max_eo_gap": 0.3}, 1, 2),
        ({"min_auc": 0.9}, 1, 1),
    ],
)
def test_limits(limits, code, problems):
    found, lines = judge(PLAIN, **limits)
    assert (found, len(lines)) == (code, problems)


def test_an_undefined_value_is_inconclusive_unless_another_limit_is_exceeded():
    undefined = plain(gcig=float("nan"))
    code, reasons = judge(undefined, max_gcig=9.0)
    assert (code, len(reasons)) == (3, 1)
    code, reasons = judge(undefined, max_gcig=9.0, max_eo_gap=0.1)
    assert (code, len(reasons)) == (1, 2)


def test_a_collapse_fails_without_any_limit():
    code, (reason,) = judge(plain(collapsed=True))
    assert code == 1
    assert "collapsed" in reason


def test_a_gap_of_a_model_that_decides_everyone_alike_is_inconclusive():
    alike = plain(decided_alike=1.0, eo_gap=0.0)
    assert judge(alike) == (0, [])
    code, (reason,) = judge(alike, max_eo_gap=0.1)
    assert code == 3
    assert "same decision" in reason
    assert describe(PLAIN, alike).endswith("use --threshold f1.")
