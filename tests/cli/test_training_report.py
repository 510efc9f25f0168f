from dataclasses import replace

import pytest

from gcig.cli.training_report import TrainedModel, describe_cost_and_gain, judge, measures_table
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


def describe(plain, fair):
    models = TrainedModel("unconstrained", "Plain", None, plain), TrainedModel("fairx", "FairX", None, fair)
    return "\n".join(describe_cost_and_gain(*models))


def test_cost_and_gain_in_words():
    lines = describe(PLAIN, replace(PLAIN, auc=0.846, gcig=0.05, eo_gap=0.3)).splitlines()
    assert lines == [
        "FairX makes the reasons depend 4.0 times less on the group, at a cost of 0.004 in AUC.",
        "Reasons: GCIG falls from 0.200 to 0.050.",
        "Decisions: the EO gap falls from 0.400 to 0.300.",
        "Ranking: AUC falls from 0.850 to 0.846.",
        "F1 is 0.700 (plain network: 0.700).",
    ]


def test_a_loss_is_not_reported_as_a_gain():
    text = describe(PLAIN, replace(PLAIN, gcig=0.3))
    assert text.startswith("FairX does not make the reasons depend less on the group")
    assert "GCIG rises from 0.200 to 0.300" in text


def test_noise_collapse_and_the_paper_are_reported():
    text = describe(PLAIN, replace(PLAIN, eo_noise_floor=0.2, collapsed=True, gcig_raw=0.1))
    assert "even an exactly fair model shows an EO gap of 0.200" in text
    assert "On raw columns, as in the paper, GCIG is 0.100 (plain network: undefined)." in text
    assert text.endswith("Do not use FairX: it has collapsed.")


def test_undefined_values_are_reported_as_such():
    fair = replace(PLAIN, gcig=float("nan"))
    assert "GCIG is 0.200 before and undefined after" in describe(PLAIN, fair)
    assert "undefined" in measures_table({"Plain": PLAIN, "FairX": fair})


@pytest.mark.parametrize(
    ("limits", "code", "reasons"),
    [
        ({"max_gcig": None, "max_eo_gap": None}, 0, []),
        ({"max_gcig": 0.2, "max_eo_gap": 0.4}, 0, []),
        ({"max_gcig": 0.1, "max_eo_gap": 1.0}, 1, ["GCIG 0.2000 is above 0.1"]),
        (
            {"max_gcig": 0.1, "max_eo_gap": 0.3},
            1,
            ["GCIG 0.2000 is above", "equalized odds gap 0.4000 is above 0.3"],
        ),
    ],
)
def test_limits(limits, code, reasons):
    found, lines = judge(PLAIN, **limits)
    assert found == code
    assert len(lines) == len(reasons)
    assert all(line.startswith(reason) for line, reason in zip(lines, reasons, strict=True))


def test_an_undefined_value_is_inconclusive_unless_another_limit_is_exceeded():
    undefined = replace(PLAIN, gcig=float("nan"))
    code, reasons = judge(undefined, max_gcig=9.0, max_eo_gap=None)
    assert (code, len(reasons)) == (3, 1)
    code, reasons = judge(undefined, max_gcig=9.0, max_eo_gap=0.1)
    assert (code, len(reasons)) == (1, 2)


def test_a_collapse_fails_without_any_limit():
    collapsed = replace(PLAIN, collapsed=True)
    code, (reason,) = judge(collapsed, max_gcig=None, max_eo_gap=None)
    assert code == 1
    assert reason == "the model collapsed: it ranks rows hardly better than chance"


def test_a_gap_of_a_model_that_decides_everyone_alike_is_inconclusive():
    alike = replace(PLAIN, selection_rate=1.0, eo_gap=0.0)
    assert judge(alike, max_gcig=None, max_eo_gap=None) == (0, [])
    code, (reason,) = judge(alike, max_gcig=None, max_eo_gap=0.1)
    assert code == 3
    assert "same decision" in reason
    assert describe(PLAIN, alike).endswith("use --threshold f1.")


def test_worse_decisions_with_an_equal_ranking_come_with_a_hint():
    worse = replace(PLAIN, f1=0.6)
    assert "--threshold f1" in describe(PLAIN, worse)
    for other in (replace(worse, auc=0.8), replace(worse, threshold=0.3), replace(worse, f1=0.68)):
        assert "--threshold" not in describe(PLAIN, other)


def test_used_columns_are_shown_with_their_total():
    assert "9.0 of 3" in measures_table({"Plain": replace(PLAIN, gcig_columns={"a": 1, "b": 2, "c": 3})})
    assert "undefined" in measures_table({"Plain": replace(PLAIN, effective_columns=float("nan"))})
