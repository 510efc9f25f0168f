import pytest

from gcig.cli.training_report import TrainedModel, describe_cost_and_gain, judge, measures_table
from support.fold_results import evaluation


def plain(**changes):
    return evaluation(**({"auc": 0.85, "gcig": 0.2, "eo_gap": 0.4, "floor": 0.05, "columns": 9.0} | changes))


PLAIN = plain()


def describe(plain, fair):
    models = TrainedModel("unconstrained", "Plain", None, plain), TrainedModel("fairx", "FairX", None, fair)
    return "\n".join(describe_cost_and_gain(*models))


def test_cost_and_gain_in_words():
    lines = describe(PLAIN, plain(auc=0.846, gcig=0.05, eo_gap=0.3)).splitlines()
    assert (
        lines[0] == "FairX makes the reasons depend 4.0 times less on the group, at a cost of 0.004 in AUC."
    )
    assert lines[1].startswith("Reasons: the reason gap falls from 0.200 to 0.050")
    assert lines[2:5] == [
        "GCIG, the paper's formula, falls from 0.200 to 0.050.",
        "Decisions: the outcome gap falls from 0.400 to 0.300.",
        "Quality: AUC falls from 0.850 to 0.846.",
    ]
    assert "F1 is 0.700 (plain network: 0.700)." in lines


def test_a_loss_is_not_reported_as_a_gain():
    text = describe(PLAIN, plain(gcig=0.3))
    assert text.startswith("It is not certain that FairX makes the reasons depend less on the group")
    assert "rises from 0.200 to 0.300" in text


def test_noise_collapse_and_the_paper_are_reported():
    text = describe(PLAIN, plain(floor=0.2, collapsed=True, gcig_raw=0.1))
    assert "even an exactly fair model shows an outcome gap of 0.200" in text
    assert "On raw columns, as in the paper, GCIG is 0.100 (plain network: 0.200)." in text
    assert text.endswith("Do not use FairX: it has collapsed.")


def test_undefined_values_are_reported_as_such():
    fair = plain(gcig=float("nan"))
    assert "undefined" in describe(PLAIN, fair)
    assert "undefined" in measures_table({"Plain": PLAIN, "FairX": fair})


@pytest.mark.parametrize(
    ("limits", "code", "reasons"),
    [
        ({"max_gcig": None, "max_eo_gap": None}, 0, []),
        ({"max_gcig": 0.2, "max_eo_gap": 0.4}, 0, []),
        ({"max_gcig": 0.1, "max_eo_gap": 1.0}, 1, ["gcig 0.2000 is above 0.1"]),
        ({"max_gcig": 0.1, "max_eo_gap": 0.3}, 1, ["gcig 0.2000 is above", "eo gap 0.4000 is above 0.3"]),
    ],
)
def test_limits(limits, code, reasons):
    found, lines = judge(PLAIN, **limits)
    assert found == code
    assert len(lines) == len(reasons)
    assert all(line.startswith(reason) for line, reason in zip(lines, reasons, strict=True))


def test_an_undefined_value_is_inconclusive_unless_another_limit_is_exceeded():
    undefined = plain(gcig=float("nan"))
    code, reasons = judge(undefined, max_gcig=9.0, max_eo_gap=None)
    assert (code, len(reasons)) == (3, 1)
    code, reasons = judge(undefined, max_gcig=9.0, max_eo_gap=0.1)
    assert (code, len(reasons)) == (1, 2)


def test_a_collapse_fails_without_any_limit():
    code, (reason,) = judge(plain(collapsed=True), max_gcig=None, max_eo_gap=None)
    assert code == 1
    assert "collapsed" in reason


def test_a_gap_of_a_model_that_decides_everyone_alike_is_inconclusive():
    alike = plain(decided_alike=1.0, eo_gap=0.0)
    assert judge(alike, max_gcig=None, max_eo_gap=None) == (0, [])
    code, (reason,) = judge(alike, max_gcig=None, max_eo_gap=0.1)
    assert code == 3
    assert "same decision" in reason
    assert describe(PLAIN, alike).endswith("use --threshold f1.")


def test_worse_decisions_with_an_equal_ranking_come_with_a_hint():
    assert "--threshold f1" in describe(PLAIN, plain(f1=0.6))
    for other in (plain(f1=0.6, auc=0.8), plain(f1=0.6, threshold=0.3), plain(f1=0.68)):
        assert "--threshold" not in describe(PLAIN, other)


def test_used_columns_are_shown_with_their_total():
    assert "9.0 of 2" in measures_table({"Plain": PLAIN})
