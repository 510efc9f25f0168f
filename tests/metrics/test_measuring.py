"""One measuring core: any task, any model, any partitioning."""

import math

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression

import gcig
from gcig._arguments import InputError
from gcig._progress import announcing
from gcig.auditing import AuditResult
from gcig.cli import main
from gcig.metrics import Measure
from gcig.metrics.measure import MEASURES, load_measures

N = 900
RNG = np.random.default_rng(0)
SEX = RNG.choice(["f", "m"], N)
RACE = RNG.choice(["a", "b", "c"], N)
X = RNG.normal(size=(N, 4))
X[:, 0] += SEX == "m"
SCORE = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * (SEX == "m") + 0.5 * RNG.normal(size=N)
LABELS = {"binary": (SCORE > 0).astype(int), "classes": np.digitize(SCORE, [-0.5, 1]), "number": SCORE}
KEYS = np.arange(N) * 7 + 3


def model_of(task: str, kind: str):
    if kind == "linear":
        model = LinearRegression() if task == "number" else LogisticRegression()
    else:
        model = (HistGradientBoostingRegressor if task == "number" else HistGradientBoostingClassifier)(
            max_iter=10
        )
    return model.fit(X, LABELS[task])


def agree(one: gcig.Evaluation, other: gcig.Evaluation) -> None:
    assert list(one.values()) == list(other.values())
    np.testing.assert_allclose(
        list(one.values().values()), list(other.values().values()), rtol=1e-7, atol=1e-9
    )
    for name, columns in one.columns.items():
        assert columns == pytest.approx(other.columns[name], rel=1e-6, abs=1e-9)
    assert one.sample == other.sample


@pytest.mark.parametrize("kind", ["linear", "trees"])
@pytest.mark.parametrize("task", ["binary", "classes", "number"])
def test_every_task_and_model_has_the_figures_that_are_concluded_from(task, kind) -> None:
    found = gcig.evaluate(model_of(task, kind), X, LABELS[task], sensitive_features=SEX)
    assert found.task == task
    assert found.reason_gap_low < found.reason_gap < found.reason_gap_high
    assert found.reason_gap > found.reason_gap_chance
    assert found.reason_gap_p < 0.01
    assert found.reason_gap == pytest.approx(
        math.hypot(found.reason_gap_common, found.reason_gap_varying), abs=0.02
    )
    if kind == "linear":
        assert found.reason_gap_varying == pytest.approx(0, abs=1e-3)
        assert found.gcig > found.gcig_chance
        assert sum(found.gcig_columns.values()) == pytest.approx(found.gcig)
    else:
        assert math.isnan(found.gcig)
        assert "no gradients" in found.undefined["gcig"]
    squares = [value**2 for value in found.reason_gap_common_columns.values()]
    assert sum(squares) == pytest.approx(found.reason_gap_common**2, rel=0.3)
    assert found.outcome_gap_low <= found.outcome_gap <= found.outcome_gap_high
    assert found["reason_gap"] == found.frame.loc["reason_gap", "value"]
    assert gcig.Evaluation.from_json(found.to_json()) == found
    for text in (str(found), found._repr_html_()):
        assert "reason" in text.lower()


def test_coins_have_no_reason_gap() -> None:
    model, gaps = model_of("binary", "trees"), []
    for seed in range(8):
        coin = np.random.default_rng(100 + seed).choice(["u", "v"], N)
        found = gcig.evaluate(
            model, X, LABELS["binary"], sensitive_features=coin, measures=["reason_gap", "reason_gap_varying"]
        )
        gaps.append(found)
    assert np.mean([each.reason_gap for each in gaps]) < 0.06
    assert sum(each.reason_gap_low > 0 for each in gaps) <= 1
    assert min(each.reason_gap_p for each in gaps) > 0.01


@settings(max_examples=12, deadline=None)
@given(
    cuts=st.lists(st.integers(1, N - 1), max_size=3),
    order=st.randoms(use_true_random=False),
    task=st.sampled_from(["binary", "classes", "number"]),
    as_bytes=st.booleans(),
)
def test_any_partitioning_gives_the_same_figures(cuts, order, task, as_bytes) -> None:
    y = LABELS[task]
    weights = np.random.default_rng(1).integers(1, 4, N)
    plan = gcig.prepare(
        model_of(task, "linear"),
        reference=(X, y, SEX),
        reference_keys=KEYS,
        n_bootstrap=50,
    )
    rows = list(range(N))
    order.shuffle(rows)
    parts = [
        plan.measure(X[own], y[own], SEX[own], keys=KEYS[own], sample_weight=weights[own])
        for own in np.split(np.array(rows), sorted(set(cuts)))
    ]
    if as_bytes:
        parts = [plan.read(part.to_bytes()) for part in parts]
    whole = plan.measure(X, y, SEX, keys=KEYS, sample_weight=weights)
    agree(sum(parts).result(), whole.result())
    assert whole.n_rows == N


def test_a_plan_with_the_measured_rows_as_reference_is_an_evaluation() -> None:
    y = LABELS["binary"]
    model = model_of("binary", "trees")
    plan = gcig.prepare(model, reference=(X, y, SEX), reference_keys=np.arange(N))
    found = plan.measure(X, y, SEX).result()
    direct = gcig.evaluate(model, X, y, sensitive_features=SEX)
    assert found.reason_gap == pytest.approx(direct.reason_gap)
    assert found.eo_gap == direct.eo_gap


def test_parts_of_other_plans_and_foreign_bytes_are_refused() -> None:
    y = LABELS["binary"]
    model = model_of("binary", "linear")
    one = gcig.prepare(model, reference=(X, y, SEX))
    other = gcig.prepare(model, reference=(X, y, SEX), random_state=1)
    first, second = one.measure(X, y, SEX), other.measure(X, y, SEX)
    with pytest.raises(InputError, match="different plans"):
        first + second
    with pytest.raises(InputError, match="another plan"):
        one.read(second.to_bytes())
    with pytest.raises(InputError, match="no part"):
        one.read(b"PK\x03\x04 nothing")
    with pytest.raises(InputError, match="reference"):
        gcig.prepare(model)
    with pytest.raises(InputError, match="keys"):
        one.measure(X, y, SEX, keys=KEYS[:3])


def test_several_attributes_stand_side_by_side() -> None:
    groups = pd.DataFrame({"sex": SEX, "race": RACE})
    y, model = LABELS["binary"], model_of("binary", "linear")
    found = gcig.evaluate(model, X, y, sensitive_features=groups)
    sex = found.by_attribute["sex"]
    alone = gcig.evaluate(model, X, y, sensitive_features=SEX)
    assert found.groups[0].group == "sex=f & race=a"
    assert sex.eo_gap == alone.eo_gap
    assert sex.reason_gap == pytest.approx(alone.reason_gap, abs=0.15)
    assert found.by_attribute["race"].reason_gap_p > 0.01
    assert found.reason_gap_worst > found.reason_gap
    assert {name.split(" & ")[0] for name in found.worst_pair} == {"sex=f", "sex=m"}
    assert gcig.Evaluation.from_json(found.to_json()) == found


def test_two_models_are_compared_by_the_paired_difference() -> None:
    y = LABELS["binary"]
    trees = gcig.evaluate(model_of("binary", "trees"), X, y, sensitive_features=SEX)
    linear = gcig.evaluate(model_of("binary", "linear"), X, y, sensitive_features=SEX, attribution="shapley")
    found = trees.difference(linear)
    assert found.reason_gap == pytest.approx(trees.reason_gap - linear.reason_gap)
    assert found.auc == pytest.approx(trees.auc - linear.auc)
    assert found.reason_gap_low < found.reason_gap < found.reason_gap_high
    widths = [each.reason_gap_high - each.reason_gap_low for each in (found, trees, linear)]
    assert widths[0] < math.hypot(*widths[1:])
    itself = trees.difference(trees)
    assert (itself.reason_gap_low, itself.reason_gap_high) == (0, 0)
    with pytest.raises(InputError, match="explained in another way"):
        trees.difference(gcig.evaluate(model_of("binary", "linear"), X, y, sensitive_features=SEX))
    assert "reason_gap" in str(found)


def test_legitimate_columns_never_count() -> None:
    y, model = LABELS["binary"], model_of("binary", "linear")
    found = gcig.evaluate(model, X, y, sensitive_features=SEX, legitimate=["x0"])
    assert found.reason_gap < 0.1
    assert found.gcig < 0.1
    assert found.reason_gap_common_columns["x0"] < 0.1
    with pytest.raises(InputError, match="column"):
        gcig.evaluate(model, X, y, sensitive_features=SEX, legitimate=["pay"])


def test_without_outcomes_figures_are_conditioned_on_decisions_and_named_so() -> None:
    model = model_of("binary", "linear")
    found = gcig.evaluate(model, X, None, sensitive_features=SEX)
    same = gcig.evaluate(model, X, model.predict(X), sensitive_features=SEX)
    assert found.reason_gap_decisions == same.reason_gap
    assert found.gcig_decisions == same.gcig
    assert found.gcig_decisions_columns == same.gcig_columns
    assert "eo_gap" not in found
    assert "reason_gap" not in found
    assert any("Outcomes are unknown" in each for each in found.remarks)


def test_rows_without_a_group() -> None:
    y, model = LABELS["binary"], model_of("binary", "linear")
    sex = pd.Series(SEX, dtype=object).where(np.arange(N) % 10 > 0)
    with pytest.raises(InputError, match="sensitive_features"):
        gcig.evaluate(model, X, y, sensitive_features=sex)
    own = gcig.evaluate(model, X, y, sensitive_features=sex, missing_groups="own group")
    assert [each.group for each in own.groups] == ["f", "m", "missing"]
    out = gcig.evaluate(model, X, y, sensitive_features=sex, missing_groups="leave out")
    assert (out.n_rows, out.n_missing) == (810, 90)
    assert any("90 rows" in each for each in out.remarks)


@pytest.fixture
def error_rate():
    """A measure that another package registers, in one call."""
    load_measures()
    wrong = Measure(
        "error_rate",
        lambda counts: 1 - counts.accuracy,
        "counts",
        "Error rate",
        "Share of wrong decisions.",
        section="utility",
        tasks=("binary", "classes"),
        high=1.0,
    )
    gcig.register_measure(wrong, overwrite=True)
    yield wrong
    MEASURES.pop("error_rate")


def test_a_measure_from_outside_appears_everywhere(error_rate, tmp_path) -> None:
    y, model = LABELS["binary"], model_of("binary", "linear")
    found = gcig.audit(model, X, y, sensitive_features=SEX)
    assert found.error_rate == pytest.approx(1 - found.accuracy)
    assert found.error_rate_low < found.error_rate < found.error_rate_high
    assert found.evaluation["error_rate"] == found["error_rate"]
    assert "Error rate" in found.evaluation._repr_html_()
    for text in (found.to_html(), found.to_markdown(), str(found)):
        assert "Error rate" in text
    assert AuditResult.from_json(found.to_json()).error_rate == found.error_rate
    assert found.check(max_error_rate=0.001).failed
    chosen = gcig.evaluate(model, X, y, sensitive_features=SEX, measures=["error_rate"])
    assert list(chosen.values()) == ["error_rate", "error_rate_low", "error_rate_high"]
    table = pd.DataFrame(X, columns=list("abcd"))
    joblib.dump(LogisticRegression().fit(table, y), tmp_path / "model.joblib")
    table.assign(sex=SEX, y=y).to_csv(tmp_path / "t.csv", index=False)
    flags = ["--target", "y", "--sensitive", "sex", "--trust-pickle", "--quiet", "--max-error-rate", "0.001"]
    assert main(["audit", str(tmp_path / "model.joblib"), str(tmp_path / "t.csv"), *flags]) == 1


def test_measures_are_chosen_by_name() -> None:
    with pytest.raises(InputError, match="measures"):
        gcig.evaluate(
            model_of("binary", "linear"), X, LABELS["binary"], sensitive_features=SEX, measures=["unknown"]
        )
    with pytest.raises(InputError, match="not defined for the task"):
        gcig.evaluate(model_of("number", "linear"), X, SCORE, sensitive_features=SEX, measures=["auc"])


def test_the_favourable_outcome_is_a_set_of_classes_or_a_direction() -> None:
    options = {"measures": ["favourable_rate", "selection_rate_ratio"], "n_bootstrap": 0}
    y, model = LABELS["classes"], model_of("classes", "trees")
    two = gcig.evaluate(model, X, y, sensitive_features=SEX, favourable=[1, 2], **options)
    decided = np.isin(model.predict(X), [1, 2])
    rates = [decided[each == SEX].mean() for each in ("f", "m")]
    assert list(two.favourable_rate_groups.values()) == pytest.approx(rates)
    assert two.selection_rate_ratio == pytest.approx(min(rates) / max(rates))
    model, behind = model_of("number", "linear"), {}
    for direction in ("high", "low"):
        found = gcig.evaluate(
            model, X, SCORE, sensitive_features=SEX, favourable=direction, measures=["disadvantage"]
        )
        behind[direction] = found.disadvantage_groups
    means = [model.predict(X[each == SEX]).mean() / SCORE.std() for each in ("f", "m")]
    assert behind["high"] == pytest.approx({"f": means[1] - means[0], "m": 0}, rel=1e-2)
    assert behind["low"] == pytest.approx({"f": 0, "m": means[1] - means[0]}, rel=1e-2)


def test_without_draws_there_are_no_intervals() -> None:
    found = gcig.evaluate(
        model_of("binary", "linear"),
        X,
        LABELS["binary"],
        sensitive_features=SEX,
        n_bootstrap=0,
        measures="all",
    )
    limits = [value for name, value in found.values().items() if name.endswith(("_low", "_high"))]
    known = [value for value in limits if not math.isnan(value)]
    assert not known


def test_equalized_odds_of_several_classes() -> None:
    y = np.array([0, 1, 2] * 40)
    decided = np.where(np.arange(120) % 2, y, (y + 1) % 3)
    sex = np.where(np.arange(120) % 2, "f", "m")
    assert gcig.metrics.equalized_odds_gap(y, decided, sensitive_features=sex) == pytest.approx(2.0)
    two = np.array([0, 1] * 60)
    assert gcig.metrics.equalized_odds_gap(two, two, sensitive_features=sex[np.argsort(two)]) == 0


def test_the_scorer_of_the_reason_gap_prefers_equal_reasons() -> None:
    scorer = gcig.metrics.reason_gap_scorer()
    y = LABELS["binary"]
    blind = LogisticRegression().fit(X * [0.0, 1.0, 1.0, 1.0], y)
    plain = model_of("binary", "linear")
    assert scorer(blind, X, y, sensitive_features=SEX) > scorer(plain, X, y, sensitive_features=SEX)


def test_the_number_of_calls_is_said_before_they_are_made_and_can_be_limited():
    rng = np.random.default_rng(0)
    X, sex = pd.DataFrame(rng.normal(size=(400, 2)), columns=["a", "b"]), rng.choice(["f", "m"], 400)
    y = (X["a"] + 0.5 * (sex == "m") + rng.normal(size=400) > 0).astype(int).to_numpy()
    said: list[str] = []

    def score(rows):
        return 1 / (1 + np.exp(-np.asarray(rows, dtype=float)[:, 0]))

    with announcing(said.append):
        gcig.evaluate(score, X, y, sensitive_features=sex, n_bootstrap=0)
    assert "is called with up to" in said[0]
    with pytest.raises(gcig.InputError) as raised:
        gcig.evaluate(score, X, y, sensitive_features=sex, max_calls=10)
    assert raised.value.argument == "max_calls"


class Additive(torch.nn.Module):
    """One standard for everybody, strongly curved in the first column."""

    def forward(self, x):
        return 1.5 * torch.tanh(1.5 * x[..., 0]) + x[..., 1] + x[..., 2]


def test_a_curved_additive_module_has_no_varying_part() -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 2, 1500)
    rows = rng.normal(size=(1500, 3)).astype("float32")
    rows[:, 0] += groups
    y = (Additive()(torch.tensor(rows)).numpy() + rng.logistic(size=1500) > 0.5).astype(int)
    measures = ["reason_gap", "reason_gap_varying"]
    found = gcig.evaluate(
        gcig.adapt(Additive(), rows), rows, y, sensitive_features=groups.astype(str), measures=measures
    )
    assert found.reason_gap > 0.3
    assert abs(found.reason_gap_varying) < 0.01
