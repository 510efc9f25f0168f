import math

import numpy as np
import pytest
from sklearn.exceptions import UndefinedMetricWarning

from gcig._arguments import InputError
from gcig.metrics import predictions as outcome

Y = [1, 1, 0, 0, 1, 1, 0, 0]
D = [1, 1, 1, 0, 1, 0, 0, 0]
SEX = ["f"] * 4 + ["m"] * 4


def test_gap_is_the_sum_or_the_larger_difference() -> None:
    assert outcome.delta_tpr(Y, D, sensitive_features=SEX) == 0.5
    assert outcome.delta_fpr(Y, D, sensitive_features=SEX) == 0.5
    assert outcome.equalized_odds_gap(Y, D, sensitive_features=SEX) == 1.0
    assert outcome.equalized_odds_gap(Y, D, sensitive_features=SEX, agg="worst") == 0.5


@pytest.mark.parametrize(
    "name",
    [
        "delta_fpr",
        "delta_tpr",
        "demographic_parity_difference",
        "eo_noise_floor",
        "equalized_odds_gap",
        "group_rates",
        "selection_rate_ratio",
    ],
)
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y_pred": D[:-1]}, "y_true has 8 rows, y_pred has 7"),
        ({"sensitive_features": SEX[:-1]}, "y_true has 8 rows, sensitive_features has 7"),
        ({"y_true": None}, "requires y_true to be passed"),
        ({"y_pred": [*D[:-1], 2]}, r"y_pred holds 1 labels that were not in y_true \(2\); known are 0, 1"),
        ({"y_pred": [*D[:-1], None]}, "y_pred contains NaN or None in 1 of 8 rows"),
    ],
)
def test_errors_name_the_arguments(name, changed, message) -> None:
    arguments = {"y_true": Y, "y_pred": D, "sensitive_features": SEX} | changed
    with pytest.raises(InputError, match=message):
        getattr(outcome, name)(**arguments)


def test_three_groups_use_the_extremes() -> None:
    y = [1] * 12 + [0] * 3
    d = [1] * 4 + [1, 1, 0, 0] + [1, 0, 0, 0] + [0] * 3
    groups = ["a"] * 4 + ["b"] * 4 + ["c"] * 4 + ["a", "b", "c"]
    assert outcome.delta_tpr(y, d, sensitive_features=groups) == 0.75
    assert outcome.equalized_odds_gap(y, d, sensitive_features=groups) == 0.75


def test_integer_weights_are_repeated_rows() -> None:
    rng = np.random.default_rng(0)
    y, d, g = rng.integers(0, 2, (3, 200))
    w = rng.integers(1, 4, 200)
    repeated = [np.repeat(v, w) for v in (y, d, g)]
    for name in ("equalized_odds_gap", "demographic_parity_difference", "selection_rate_ratio"):
        metric = getattr(outcome, name)
        expected = metric(repeated[0], repeated[1], sensitive_features=repeated[2])
        assert metric(y, d, sensitive_features=g, sample_weight=w) == pytest.approx(expected)


def test_weights_of_one_size_leave_the_noise_floor_alone() -> None:
    rng = np.random.default_rng(0)
    y, d, g = rng.integers(0, 2, (3, 80))
    plain = outcome.eo_noise_floor(y, d, sensitive_features=g)
    assert outcome.eo_noise_floor(
        y, d, sensitive_features=g, sample_weight=np.full(80, 7.0)
    ) == pytest.approx(plain)
    uneven = np.where(np.arange(80) % 2, 1.0, 0.05)
    assert outcome.eo_noise_floor(y, d, sensitive_features=g, sample_weight=uneven) > plain


def test_noise_floor_matches_simulated_fair_models() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 0, 1, 1], [38, 22, 100, 40])
    g = np.repeat([0, 1, 0, 1], [38, 22, 100, 40])
    d = np.concatenate([np.arange(60) % 2, (np.arange(140) % 25 < 22).astype(int)])
    rates = d[y == 0].mean(), d[y == 1].mean()
    gaps = [
        outcome.equalized_odds_gap(y, (rng.random(200) < np.take(rates, y)).astype(int), sensitive_features=g)
        for _ in range(500)
    ]
    error = np.std(gaps) / math.sqrt(len(gaps))
    assert outcome.eo_noise_floor(y, d, sensitive_features=g) == pytest.approx(np.mean(gaps), abs=4 * error)
    assert outcome.eo_noise_floor(y, d, sensitive_features=g, agg="worst") < np.mean(gaps)


def test_missing_cell_is_nan_and_named() -> None:
    y, d = [1, 0, 1, 1], [1, 0, 1, 0]
    with pytest.warns(UndefinedMetricWarning, match="label 0 in group 'm'"):
        assert math.isnan(outcome.equalized_odds_gap(y, d, sensitive_features=["f", "f", "m", "m"]))
    with pytest.warns(UndefinedMetricWarning, match="label 0 in group 'm'"):
        assert math.isnan(
            outcome.equalized_odds_gap(y, d, sensitive_features=["f", "f", "m", "m"], agg="worst")
        )
    with pytest.warns(UndefinedMetricWarning):
        assert math.isnan(outcome.eo_noise_floor(y, d, sensitive_features=["f", "f", "m", "m"]))
    assert (
        outcome.delta_tpr(y, d, sensitive_features=["f", "f", "m", "m"]) == 0.5
    )  # needs no row with label 0


def test_nobody_selected_has_no_ratio() -> None:
    assert math.isnan(outcome.selection_rate_ratio(Y, [0] * 8, sensitive_features=SEX))
    assert outcome.demographic_parity_difference(Y, [0] * 8, sensitive_features=SEX) == 0


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="agg must be 'sum' or 'worst', received 'max'"):
        outcome.equalized_odds_gap(Y, D, sensitive_features=SEX, agg="max")  # type: ignore[arg-type]
    with pytest.raises(InputError):
        outcome.equalized_odds_gap(Y, D[:-1], sensitive_features=SEX)
    with pytest.raises(InputError):
        outcome.equalized_odds_gap(Y, [0.3] * 8, sensitive_features=SEX)


def test_group_rates() -> None:
    rates = outcome.group_rates(Y, D, sensitive_features=SEX)
    assert list(rates) == ["f", "m"]
    assert (rates["f"].n_rows, rates["f"].base_rate, rates["f"].selection_rate) == (4, 0.5, 0.75)
    assert (rates["f"].tpr, rates["f"].fpr, rates["f"].ppv) == (1.0, 0.5, pytest.approx(2 / 3))


class TestSuppression:
    """Three groups; group c has two rows of label 1, which alone would make the gap."""

    y = [1] * 30 + [0] * 30 + [1, 1] + [0] * 12
    d = [1, 0] * 30 + [0, 0] + [1, 0] * 6
    groups = ["a", "a", "b", "b"] * 15 + ["c"] * 14

    def test_gaps_leave_out_small_cells(self) -> None:
        arguments = (self.y, self.d)
        for name in ("delta_tpr", "equalized_odds_gap"):
            metric = getattr(outcome, name)
            assert metric(*arguments, sensitive_features=self.groups) == pytest.approx(0.5, abs=0.04)
            assert metric(*arguments, sensitive_features=self.groups, min_cell=11) == pytest.approx(
                0, abs=0.04
            )
        floors = [
            outcome.eo_noise_floor(*arguments, sensitive_features=self.groups, min_cell=m, agg=agg)
            for m in (1, 11)
            for agg in ("sum", "worst")
        ]
        assert floors[2] < floors[0]
        assert floors[3] < floors[1]

    def test_a_gap_that_needs_a_suppressed_cell_is_nan_and_says_why(self) -> None:
        two = np.where(np.array(self.groups) == "c", "c", "ab")
        with pytest.warns(UndefinedMetricWarning, match="Fewer than two groups.*label 1 in group 'c'"):
            assert math.isnan(outcome.equalized_odds_gap(self.y, self.d, sensitive_features=two, min_cell=11))


@pytest.mark.filterwarnings("ignore:Fewer than two groups")
@pytest.mark.parametrize("name", ["equalized_odds_gap", "eo_noise_floor", "delta_tpr", "delta_fpr"])
def test_cells_of_one_row_count_unless_more_are_asked_for(name) -> None:
    metric = getattr(outcome, name)
    rows = [0, 1, 0, 0, 1, 1], [0, 1, 1, 0, 0, 1]
    sex = ["f", "f", "m", "m", "m", "m"]
    found = metric(*rows, sensitive_features=sex)
    assert found == metric(*rows, sensitive_features=sex, min_cell=1) > 0
    assert math.isnan(metric(*rows, sensitive_features=sex, min_cell=2))


@pytest.mark.parametrize("name", ["demographic_parity_difference", "selection_rate_ratio"])
def test_groups_of_one_row_count_unless_more_are_asked_for(name) -> None:
    metric = getattr(outcome, name)
    rows, sex = ([0, 1, 0], [1, 1, 0]), ["f", "m", "m"]
    assert metric(*rows, sensitive_features=sex) == metric(*rows, sensitive_features=sex, min_cell=1) == 0.5
    assert math.isnan(metric(*rows, sensitive_features=sex, min_cell=2))
