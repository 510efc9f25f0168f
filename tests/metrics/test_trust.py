"""The numbers that say whether GCIG can be trusted, by hand and for every kind of model."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import gcig
from gcig.auditing import audit
from gcig.core.columns import protected_attributes
from gcig.metrics import evaluate
from gcig.metrics.reasons import combine_labels
from gcig.metrics.trust import (
    attribute_effect,
    exchange_attributes,
    exchange_columns,
    faithfulness,
    members_interval,
    permutation_importance,
    reference_offset,
    threshold_logit,
)


def test_reference_offset_by_hand() -> None:
    scores, cells = torch.tensor([0.0, 2.0, 4.0, 6.0]), torch.tensor([0, 0, 1, 1])
    found = reference_offset(torch.tensor([2.0, 5.5]), scores, cells)
    assert found == pytest.approx((1 + 0.5) / 2 / np.std(scores.numpy()))
    alone = reference_offset(torch.tensor([2.0, 5.5]), scores[:3], cells[:3])  # the second cell has one row
    assert alone == pytest.approx((1 + 1.5) / 2 / np.std([0.0, 2.0, 4.0]))
    # A row of weight 3 counts as three rows in the standard deviation; cells without rows are left out.
    weighted = reference_offset(
        torch.tensor([2.0, 9.0]), scores[:2], torch.tensor([0, 0]), torch.tensor([1.0, 3.0])
    )
    assert weighted == pytest.approx(1 / np.std([0.0, 2.0, 2.0, 2.0]))
    assert math.isnan(reference_offset(torch.ones(1), torch.ones(4), torch.zeros(4, dtype=torch.int64)))


@pytest.mark.parametrize("error", [math.nan, 0.3])
def test_interval_of_members_covers_rows_and_members(error: float) -> None:
    total = np.random.default_rng(0).random((30, 2, 2))
    sums = SimpleNamespace(
        total=total,
        combine=lambda each: combine_labels(each, "sum"),
        blocks=SimpleNamespace(n_blocks=30),
        standard_error=error,
    )
    of_labels = total.sum(axis=0)
    value = (of_labels[:, 0] / of_labels[:, 1]).sum()
    counts = np.random.default_rng(1).multinomial(30, np.full(30, 1 / 30), size=50)
    drawn = np.einsum("db,blk->dlk", counts, total)
    spread = (drawn[..., 0] / drawn[..., 1]).sum(axis=1).std()
    reach = 1.959964 * math.hypot(spread, 0.0 if math.isnan(error) else error)
    found = members_interval(sums, 50, np.random.default_rng(1))
    assert (found.value, found.low, found.high) == pytest.approx((value, value - reach, value + reach))
    for n_bootstrap in (0, 1):
        alone = members_interval(sums, n_bootstrap, np.random.default_rng(1))
        assert alone.value == pytest.approx(value)
        assert math.isnan(alone.low)
    assert math.isfinite(members_interval(sums, 2, np.random.default_rng(1)).low)
    sums.total = total * [-1.0, 1.0]  # noise around no disparity
    below = members_interval(sums, 50, np.random.default_rng(1))
    assert (below.value, below.low) == (0, 0)
    assert members_interval(sums, 0, np.random.default_rng(1)).value == 0
    sums.total = total * np.nan
    assert math.isnan(members_interval(sums, 50, np.random.default_rng(1)).value)


@pytest.mark.parametrize(
    ("threshold", "cut"),
    [(0.5, 0.0), (0.8, math.log(4)), (0.0, math.nan), (1.0, math.nan), (math.nan, math.nan)],
)
def test_the_cut_is_the_logit_of_the_threshold(threshold: float, cut: float) -> None:
    model = SimpleNamespace(adapted=SimpleNamespace(probabilistic=True))
    assert threshold_logit(model, threshold) == pytest.approx(cut, nan_ok=True)
    model.adapted.probabilistic = False
    assert threshold_logit(model, threshold) == 0


def test_permutation_importance_by_hand() -> None:
    rows = torch.tensor([[0.0, 1.0, 5.0], [1.0, 0.0, 7.0], [0.0, 1.0, 9.0]])
    weights, order = torch.tensor([2.0, -1.0, 0.5]), torch.tensor([1, 2, 0])
    found = permutation_importance(lambda x: x @ weights, rows, torch.tensor([0, 0, 1]), order)
    # The block changes by +3, -3 and 0; the number by 1, 1 and -2.
    torch.testing.assert_close(found, torch.tensor([2.0, 4 / 3]))


@pytest.mark.parametrize(("n_rows", "sizes"), [(3, [12]), (2**21, [2**22] * 2), (2**21 + 1, [2**21 + 1] * 4)])
def test_columns_are_permuted_together_if_their_rows_fit_into_memory(n_rows: int, sizes: list[int]) -> None:
    rows, seen = torch.empty(1, 1).expand(n_rows, 1), []

    def score(points: torch.Tensor) -> torch.Tensor:
        seen.append(len(points))
        return torch.zeros(1).expand(len(points))

    order = torch.zeros(1, dtype=torch.int64).expand(n_rows)
    found = permutation_importance(score, rows, torch.tensor([3]), order)
    assert seen == [n_rows, *sizes]
    assert found.tolist() == [0.0] * 4


def test_faithfulness_is_a_rank_correlation() -> None:
    shares = torch.tensor([0.1, 0.2, 0.3, 0.4])
    assert faithfulness(shares, shares.square()) == pytest.approx(1)
    assert faithfulness(shares, -shares) == pytest.approx(-1)
    assert math.isnan(faithfulness(shares[:2], shares[:2]))
    assert math.isnan(faithfulness(shares, torch.ones(4)))


def test_exchanged_columns_are_those_of_another_group() -> None:
    groups = torch.tensor([0, 1, 2] * 10)
    rows = torch.stack([groups.double(), torch.arange(30).double()], dim=1)
    exchanged = exchange_columns(rows, groups, rows, groups, torch.tensor([0]))
    assert (exchanged[:, 0] != rows[:, 0]).all()
    assert torch.equal(exchanged[:, 1], rows[:, 1])
    alone = exchange_columns(rows, torch.zeros(30), rows, torch.zeros(30), torch.tensor([0]))
    assert torch.equal(alone, rows)


def test_attribute_effect_is_a_share_of_decisions() -> None:
    before, after = torch.tensor([0.2, -0.2, 1.0]), [torch.tensor([-0.1, 0.3, 2.0])]
    assert attribute_effect(before, after, cut=0.0) == pytest.approx(2 / 3)
    assert attribute_effect(before, after, cut=1.5) == pytest.approx(1 / 3)
    assert attribute_effect(before, after, 0.0, torch.tensor([1.0, 0.0, 3.0])) == pytest.approx(0.25)
    assert attribute_effect(torch.tensor([0.5, 0.2]), [torch.tensor([0.2, 0.5])], cut=0.5) == 1.0
    more = [*after, torch.tensor([0.1, -0.1, -1.0])]
    assert attribute_effect(before, more, cut=0.0) == 1.0


def test_each_crossed_attribute_is_exchanged_alone_and_with_the_others() -> None:
    """A score of the exclusive or of two attributes: one exchange changes every decision, both none."""
    sex, race = torch.arange(80) % 2, torch.arange(80) // 2 % 2
    groups, rows = 2 * sex + race, torch.stack([sex, race, torch.arange(80) // 4 % 5], dim=1).double()
    attributes = protected_attributes(rows, groups, torch.arange(3))
    of_sex, of_race, of_both = exchange_attributes(rows, groups, rows, groups, attributes)
    assert len(exchange_attributes(rows, groups, rows, groups, attributes[:1])) == 1
    assert torch.equal(of_sex[:, 0], 1 - rows[:, 0])
    assert torch.equal(of_sex[:, 1], rows[:, 1])
    assert torch.equal(of_race[:, 1], 1 - rows[:, 1])
    assert (of_both[:, :2] != rows[:, :2]).any(dim=1).all()
    assert torch.equal(of_both[:, 2], rows[:, 2])

    def score(points):
        return (points[:, 0] - points[:, 1]).abs() - 0.5

    versions = [score(each) for each in (of_sex, of_race, of_both)]
    assert attribute_effect(score(rows), versions[:1], cut=0.0) == 1.0
    assert attribute_effect(score(rows), versions, cut=0.0) == 1.0


def test_attribute_effect_of_crossed_attributes_in_an_evaluation() -> None:
    rng = np.random.default_rng(0)
    sex, race = rng.integers(0, 2, 600), rng.integers(0, 3, 600)
    X = pd.DataFrame({"pay": rng.normal(size=600), "sex": sex * 1.0, "race": race * 1.0})
    y = (X["pay"] + 0.5 * sex > 0.2).astype(int)
    model = LogisticRegression().fit(X, y)
    both = pd.DataFrame({"sex": sex, "race": race})
    crossed = gcig.evaluate(model, X, y, sensitive_features=both, n_bootstrap=0).attribute_effect
    alone = gcig.evaluate(model, X, y, sensitive_features=sex, n_bootstrap=0).attribute_effect
    flipped = model.predict(X) != model.predict(X.assign(sex=1.0 - sex))
    assert alone == pytest.approx(flipped.mean())
    assert crossed >= alone > 0


@pytest.fixture(scope="module")
def table():
    """Decisions that depend on the sex, which is a column, with four numbers and a category."""
    rng = np.random.default_rng(0)
    n = 500
    sex = rng.choice(["f", "m"], n)
    frame = pd.DataFrame({f"x{i}": rng.normal(size=n) for i in range(4)})
    frame = frame.assign(sex=sex, job=rng.choice(["a", "b", "c"], n))
    score = 2 * frame["x0"] + frame["x1"] + 0.5 * frame["x2"] + 1.5 * (sex == "m") - 0.75
    return frame, (score + rng.normal(size=n) > 0).astype(int), sex


def pipeline(frame, y):
    encoder = make_column_transformer((OneHotEncoder(), ["sex", "job"]), remainder="passthrough")
    return make_pipeline(encoder, LogisticRegression()).fit(frame, y)


@pytest.mark.filterwarnings("ignore:X has columns that reveal")
@pytest.mark.parametrize("kind", ["pipeline", "function", "estimator"])
def test_of_every_kind_of_model(table, kind) -> None:
    frame, y, sex = table
    model = pipeline(frame, y)
    if kind == "estimator":
        plain = gcig.methods.METHODS["unconstrained"].estimator(max_epochs=30, random_state=0)
        model = plain.fit(frame, y, sensitive_features=sex)
    elif kind == "function":
        fitted = model
        model = lambda rows: fitted.predict_proba(rows)[:, 1]  # noqa: E731
    found = evaluate(model, frame, y, sensitive_features=sex, n_bootstrap=20)
    assert found.reference_offset < 0.2
    assert found.faithfulness > 0.7
    assert 0.1 < found.attribute_effect < 0.5
    assert found.gcig_members > 0.05
    assert found.undefined == {}
    exchanged = frame.assign(sex=np.where(sex == "f", "m", "f"))
    if kind == "pipeline":
        changed = np.mean(model.predict(frame) != model.predict(exchanged))
        assert found.attribute_effect == pytest.approx(changed)
        text = str(found)
        assert "Attribute effect: " in text
        assert "Bad news" in text
        result = audit(model, frame, y, sensitive_features=sex, n_bootstrap=20, n_shuffles=5)
        assert result.record.procedural.attribute_effect.value == found.attribute_effect
        assert "* Faithfulness: " in str(result)
        assert "Can GCIG be relied on?" in result.to_markdown()


def test_undefined_numbers_have_a_reason(table) -> None:
    frame, y, sex = table
    numbers = frame[["x0", "x1", "x2", "x3"]]
    found = evaluate(LogisticRegression().fit(numbers, y), numbers, y, sensitive_features=sex, n_bootstrap=0)
    assert math.isnan(found.attribute_effect)
    assert found.undefined == {"attribute_effect": "Not measured: the group is not among the inputs."}
    assert "Not measured: the group is not among the inputs." in str(found)
    two = numbers[["x0", "x1"]]
    found = evaluate(LogisticRegression().fit(two, y), two, y, sensitive_features=sex, n_bootstrap=0)
    assert "fewer than three" in found.undefined["faithfulness"]


def test_scores_that_are_no_probabilities_are_cut_at_zero(table) -> None:
    frame, y, sex = table
    numbers = frame[["x0", "x1", "x2"]].assign(male=(sex == "m").astype(float))
    model = RidgeClassifier().fit(numbers, y)
    found = evaluate(model, numbers, y, sensitive_features=sex, n_bootstrap=0)
    changed = np.mean(model.predict(numbers) != model.predict(numbers.assign(male=1 - numbers["male"])))
    assert found.attribute_effect == pytest.approx(changed)


def test_rows_of_very_many_columns_are_not_permuted() -> None:
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(60, 600)), rng.choice(["f", "m"], 60)
    y = (X[:, 0] > 0).astype(int)
    model = LogisticRegression().fit(X, y)
    found = evaluate(model, X, y, sensitive_features=sex, min_cell=2, n_bootstrap=5, robustness=True)
    assert "more than 500 columns" in found.undefined["faithfulness"]
    figures = {figure.reference: figure.gcig.value for figure in found.robustness.figures}
    assert [kind for kind, value in figures.items() if math.isnan(value)] == ["Shapley values"]
