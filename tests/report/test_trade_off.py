import math

import pytest

from gcig.report.trade_off import Scores, describe_trade_off


@pytest.mark.parametrize(
    ("plain", "fair", "words"),
    [
        ((0.9, 0.2), (0.9, 0.1), "2.0 times less on the group, at no cost in AUC."),
        ((0.9, 0.2), (0.91, 0.1), "at no cost in AUC."),
        ((0.9, 0.1), (0.9, 0.2), "does not make the reasons depend less"),
        ((0.9, math.nan), (0.9, 0.2), "GCIG is undefined"),
        ((0.9, 0.2), (0.9, 0.0), "no longer on the group"),
    ],
)
def test_headlines(plain, fair, words):
    scores = [
        Scores(name, auc, gcig, 0.2, 0.01, 8.0, False) for name, (auc, gcig) in (("P", plain), ("F", fair))
    ]
    assert words in describe_trade_off(*scores)[0]


def test_cautions_on_noise_columns_and_collapse():
    plain = Scores("P", 0.9, 0.2, 0.2, 0.1, 8.0, False)
    _, _, cautions = describe_trade_off(plain, Scores("F", 0.9, 0.1, 0.2, 0.1, 3.0, False))
    assert any("0.100 on average" in caution for caution in cautions)
    assert any("halved" in caution for caution in cautions)
    assert not describe_trade_off(plain, Scores("F", 0.9, 0.1, 0.2, 0.001, 8.0, False))[2]
    assert "has collapsed" in describe_trade_off(plain, Scores("F", 0.5, 0.0, 0.0, 0.0, 1.0, True))[0]
