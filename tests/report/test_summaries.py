import math

import pytest

from gcig.report.summaries import MethodSummary, describe_trade_off
from support.fold_results import evaluation


def model(name, auc=0.9, gcig=0.2, eo_gap=0.2, floor=0.01, columns=8.0, *, members=None, **more):
    found = evaluation(auc, gcig, eo_gap, floor=floor, columns=columns, members=members, **more)
    return MethodSummary.of(name, found)


@pytest.mark.parametrize(
    ("plain", "fair", "words"),
    [
        ((0.9, 0.2), (0.9, 0.1), "2.0 times less on the group, at no cost in AUC."),
        (
            (0.9, 0.2),
            (0.9, 0.199),
            "hardly changes how much the reasons depend on the group, at no cost in AUC.",
        ),
        ((0.9, 0.2), (0.91, 0.1), "at no cost in AUC."),
        ((0.9, 0.1), (0.9, 0.2), "does not make the reasons depend less"),
        ((0.9, math.nan), (0.9, 0.2), "GCIG is undefined"),
        ((0.9, 0.2), (0.9, 0.0), "no longer on the group"),
    ],
)
def test_headlines(plain, fair, words):
    scores = [model(name, auc, gcig) for name, (auc, gcig) in (("P", plain), ("F", fair))]
    assert words in describe_trade_off(*scores)[0]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ((0.2, 0.1), "4.0 times less on the group (2.0 times relative to members), at no cost in AUC."),
        ((0.1, 0.2), "relative to the groups' means, but not relative to their members, at no cost in AUC."),
        ((0.2, math.nan), "4.0 times less on the group, at no cost in AUC."),
        ((0.2, 0.0), "4.0 times less on the group, at no cost in AUC."),
    ],
)
def test_headlines_with_members(members, words):
    plain, fair = (
        model(name, gcig=gcig, members=value)
        for name, gcig, value in zip("PF", (0.2, 0.05), members, strict=True)
    )
    assert words in describe_trade_off(plain, fair)[0]


def test_an_uncertain_change_relative_to_members_is_no_claim():
    numbers = {"members": 0.0, "gcig_members_low": 0.0, "gcig_members_high": 0.16}
    plain = model("P", **numbers)
    numbers = {"members": 0.06, "gcig_members_low": 0.02, "gcig_members_high": 0.1}
    headline, _, cautions = describe_trade_off(plain, model("F", gcig=0.1, **numbers))
    assert headline.endswith("at no cost in AUC; relative to their members, the change is not certain.")
    assert len(cautions) == 1
    assert "uncertain (0.000 to 0.160 before, 0.020 to 0.100 after)" in cautions[0]


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
