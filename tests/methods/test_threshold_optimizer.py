import numpy as np
import pandas as pd
import pytest
import torch
from fairlearn.postprocessing import ThresholdOptimizer
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import accuracy_score

import gcig
from example_tables import QUICK_BIASED, gaps, make_biased
from gcig._arguments import InputError, InputWarning
from gcig.methods.threshold_optimizer import ThresholdOptimizerClassifier, ThresholdRule, equalize_odds
from gcig.methods.unconstrained import UnconstrainedClassifier


class Given(BaseEstimator):
    """Fairlearn's view of scores that are there already."""

    def fit(self, X, y):  # noqa: ARG002 (a sign of being an estimator)
        return self

    def __sklearn_is_fitted__(self):
        return True

    def decision_function(self, X):
        return X[:, 0]


def make_scores(n_groups=2, n=900, seed=0):
    rng = np.random.default_rng(seed)
    groups = rng.integers(n_groups, size=n)
    labels = (rng.random(n) < 0.3 + 0.3 * groups / n_groups).astype(np.int64)
    noise = 0.6 + 0.6 * groups / n_groups
    scores = 1 / (1 + np.exp(-(2 * labels - 1 + groups / n_groups + noise * rng.normal(size=n))))
    return scores, labels, groups


def chances_of(rules, scores, groups):
    return np.array([rules[group](np.array([score]))[0] for score, group in zip(scores, groups, strict=True)])


# --- the rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_groups", [2, 3, 5])
@pytest.mark.parametrize("objective", ["accuracy_score", "balanced_accuracy_score"])
def test_rules_decide_as_fairlearn_does(n_groups, objective):
    scores, labels, groups = make_scores(n_groups)
    new, _, new_groups = make_scores(n_groups, n=400, seed=1)
    rules = equalize_odds(scores, labels, groups, objective=objective)
    optimizer = ThresholdOptimizer(
        estimator=Given(),
        constraints="equalized_odds",
        objective=objective,
        prefit=True,
        predict_method="decision_function",
    )
    optimizer.fit(scores[:, None], labels, sensitive_features=groups)
    expected = optimizer._pmf_predict(new[:, None], sensitive_features=new_groups)[:, 1]
    np.testing.assert_allclose(chances_of(rules, new, new_groups), expected, atol=1e-12)


@pytest.mark.parametrize("n_groups", [2, 3, 5])
def test_expected_rates_are_equal_by_definition(n_groups):
    scores, labels, groups = make_scores(n_groups)
    assert gaps((scores > 0.5).astype(float), labels, groups)["eo"] > 0.2
    chances = chances_of(equalize_odds(scores, labels, groups), scores, groups)
    assert gaps(chances, labels, groups)["eo"] < 1e-9
    assert ((chances >= 0) & (chances <= 1)).all()


def test_no_pair_of_single_thresholds_with_nearly_equal_odds_is_more_accurate():
    scores, labels, groups = make_scores(n=200)
    best = chances_of(equalize_odds(scores, labels, groups), scores, groups)
    accuracy = np.where(labels == 1, best, 1 - best).mean()
    grid = np.quantile(scores, np.linspace(0, 1, 41))
    for first in grid:
        for second in grid:
            decided = (scores > np.where(groups == 0, first, second)).astype(float)
            if gaps(decided, labels, groups)["eo"] < 0.01:
                assert (decided == labels).mean() <= accuracy + 0.01


def test_scores_in_float32_are_taken():
    scores, labels, groups = make_scores()
    rules = equalize_odds(scores.astype(np.float32), labels, groups)
    chances = chances_of(rules, scores.astype(np.float32).astype(float), groups)
    assert gaps(chances, labels, groups)["eo"] < 1e-9


def test_a_rule_by_hand():
    rule = ThresholdRule(p_ignore=0.5, constant=0.2, p0=0.25, threshold0=-np.inf, p1=0.75, threshold1=0.6)
    np.testing.assert_allclose(rule(np.array([0.6, 0.7])), [0.1 + 0.125, 0.1 + 0.5])


# --- the classifier -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def biased():
    return make_biased()


@pytest.fixture(scope="module")
def model(biased):
    return ThresholdOptimizerClassifier(**QUICK_BIASED).fit(biased.X, biased.y, **biased.by)


def test_scores_and_auc_are_the_plain_network_s(model, biased):
    plain = UnconstrainedClassifier(**QUICK_BIASED).fit(biased.X, biased.y, **biased.by)
    np.testing.assert_array_equal(model.predict_proba(biased.X), plain.predict_proba(biased.X))
    np.testing.assert_array_equal(model.decision_function(biased.X), plain.decision_function(biased.X))
    for name, weight in plain.explained_score.state_dict().items():
        assert torch.equal(model.explained_score.state_dict()[name], weight)
    assert np.isnan(model.threshold_)


def test_expected_odds_are_equal_on_training_rows_and_nearly_so_on_new_ones(model, biased):
    chances = model.expected_predictions(biased.X, **biased.by)
    assert gaps(chances, biased.y, biased.groups)["eo"] < 1e-6
    test = make_biased(4000, seed=7)
    before = gaps((model.predict_proba(test.X)[:, 1] >= 0.5).astype(float), test.y, test.groups)["eo"]
    after = gaps(model.expected_predictions(test.X, **test.by), test.y, test.groups)["eo"]
    assert before > 0.3
    assert after < 0.3 * before


def test_draws_follow_the_expected_rates(model, biased):
    drawn = np.mean([model.predict(biased.X, **biased.by, random_state=seed) for seed in range(300)], axis=0)
    chances = model.expected_predictions(biased.X, **biased.by)
    assert np.mean((chances > 0.01) & (chances < 0.99)) > 0.05  # there is something to draw
    error = np.sqrt(chances * (1 - chances) / 300)
    assert (np.abs(drawn - chances) <= 5 * error + 1e-9).all()
    assert abs(drawn.mean() - chances.mean()) < 0.005


def test_draws_are_the_same_again_alone_and_in_any_order(model, biased):
    drawn = model.predict(biased.X, **biased.by)
    np.testing.assert_array_equal(model.predict(biased.X, **biased.by), drawn)
    order = np.random.default_rng(0).permutation(len(drawn))
    again = model.predict(biased.X.iloc[order], sensitive_features=biased.groups[order])
    np.testing.assert_array_equal(again, drawn[order])
    for i in range(10):
        assert model.predict(biased.X.iloc[[i]], sensitive_features=biased.groups[[i]])[0] == drawn[i]
    other = model.predict(biased.X, **biased.by, random_state=1)
    assert 0 < np.mean(other != drawn) < 0.5
    np.testing.assert_array_equal(model.predict(biased.X, **biased.by, random_state=1), other)


def test_the_model_of_a_seed_is_one_model(model, biased):
    again = clone(model).fit(biased.X, biased.y, **biased.by)
    assert again.rules_ == model.rules_
    np.testing.assert_array_equal(again.predict(biased.X, **biased.by), model.predict(biased.X, **biased.by))


def test_a_saved_model_decides_the_same(model, biased, tmp_path):
    model.save(tmp_path / "model")
    loaded = gcig.load(tmp_path / "model")
    assert loaded.rules_ == model.rules_
    assert loaded.groups_ == ("f", "m")
    np.testing.assert_array_equal(loaded.predict(biased.X, **biased.by), model.predict(biased.X, **biased.by))
    assert loaded.get_params() == model.get_params()
    assert np.isnan(loaded.threshold_)


def test_infinite_thresholds_are_saved(model, biased, tmp_path):
    odd = clone(model).fit(biased.X, biased.y, **biased.by)
    odd.rules_ = tuple(ThresholdRule(0.0, 0.0, 0.5, np.inf, 0.5, -np.inf) for _ in odd.rules_)
    odd.save(tmp_path / "model")
    chances = gcig.load(tmp_path / "model").expected_predictions(biased.X, **biased.by)
    np.testing.assert_array_equal(chances, 0.5)


@pytest.mark.parametrize("name", ["predict", "expected_predictions"])
def test_the_groups_of_new_rows_are_required(model, biased, name):
    call = getattr(model, name)
    with pytest.raises(InputError, match="each group has its own thresholds"):
        call(biased.X)
    with pytest.raises(InputError, match="not in training: 'x'"):
        call(biased.X[:2], sensitive_features=["f", "x"])
    shuffled = pd.Series(biased.groups).sample(frac=1, random_state=0)
    with pytest.raises(InputError, match="indexes of X and sensitive_features disagree"):
        call(biased.X, sensitive_features=shuffled)


def test_one_group_alone_can_be_predicted(model, biased):
    women = biased.groups == "f"
    alone = model.predict(biased.X[women], sensitive_features=biased.groups[women])
    np.testing.assert_array_equal(alone, model.predict(biased.X, **biased.by)[women])


def test_explanations_need_no_groups(model, biased):
    found = model.explain(biased.X[:30])
    assert found.label_source == "predicted"
    np.testing.assert_array_equal(found.labels, (model.decision_function(biased.X[:30]) >= 0).astype(int))
    given = model.explain(biased.X[:30], biased.y[:30])
    np.testing.assert_array_equal(given.labels, biased.y[:30])


def test_score_is_the_accuracy_of_the_drawn_decisions(model, biased):
    expected = accuracy_score(biased.y, model.predict(biased.X, **biased.by))
    assert model.score(biased.X, biased.y, **biased.by) == expected


def test_named_classes_arrays_and_three_groups():
    biased = make_biased(900, groups=("a", "b", "c"))
    numbers = biased.X.drop(columns="job").to_numpy()
    named = np.where(biased.y == 1, "yes", "no")
    model = ThresholdOptimizerClassifier(**QUICK_BIASED).fit(numbers, named, **biased.by)
    assert len(model.rules_) == 3
    assert set(model.predict(numbers, **biased.by)) == {"no", "yes"}
    assert gaps(model.expected_predictions(numbers, **biased.by), biased.y, biased.groups)["eo"] < 1e-6


def test_sample_weight_reaches_the_network(biased):
    weights = np.where(biased.y == 1, 5.0, 1.0)
    model = ThresholdOptimizerClassifier(**QUICK_BIASED).fit(
        biased.X, biased.y, **biased.by, sample_weight=weights
    )
    plain = ThresholdOptimizerClassifier(**QUICK_BIASED).fit(biased.X, biased.y, **biased.by)
    assert model.predict_proba(biased.X)[:, 1].mean() > plain.predict_proba(biased.X)[:, 1].mean() + 0.1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"objective": "f1"}, "objective must be one of"),
        ({"grid_size": 0}, "grid_size must be an integer from 1 to 100,000, not 0"),
        ({"grid_size": 10**9}, "grid_size must be an integer from 1 to 100,000, not 1000000000"),
    ],
)
def test_parameters_are_checked(parameters, message):
    biased = make_biased(60)
    with pytest.raises(InputError, match=message):
        ThresholdOptimizerClassifier(**parameters, **QUICK_BIASED).fit(biased.X, biased.y, **biased.by)


def test_a_group_with_one_label_has_no_thresholds():
    biased = make_biased(200)
    hopeless = np.where(biased.groups == "m", biased.y, 0)
    with pytest.warns(InputWarning), pytest.raises(InputError, match="Group 'f' has rows of one label only"):
        ThresholdOptimizerClassifier(**QUICK_BIASED).fit(biased.X, hopeless, **biased.by)


class Overflowing(torch.nn.Module):
    """A network whose outputs are no numbers once it is trained, although its parameters are."""

    def __init__(self, n_inputs):
        super().__init__()
        self.linear = torch.nn.Linear(n_inputs, 1)

    def forward(self, x):
        return self.linear(x) if self.training else self.linear(x) * torch.nan


def test_scores_that_are_no_numbers_end_the_training():
    rng = np.random.default_rng(0)
    X, y, groups = rng.normal(size=(80, 3)), np.arange(80) % 2, np.arange(80) // 2 % 2
    model = ThresholdOptimizerClassifier(module=Overflowing(3), preprocessing="none", max_epochs=1)
    with pytest.raises(gcig.DivergenceError, match="scores are NaN"):
        model.fit(X, y, sensitive_features=groups)
    assert not hasattr(model, "rules_")


@pytest.mark.slow
def test_the_gap_is_halved_on_nine_of_ten_seeds():
    halved = 0
    for seed in range(10):
        train, test = make_biased(seed=2 * seed), make_biased(4000, seed=2 * seed + 1)
        model = ThresholdOptimizerClassifier(**{**QUICK_BIASED, "random_state": seed})
        model.fit(train.X, train.y, **train.by)
        before = gaps((model.decision_function(test.X) >= 0).astype(float), test.y, test.groups)["eo"]
        after = gaps(model.expected_predictions(test.X, **test.by), test.y, test.groups)["eo"]
        halved += after <= 0.5 * before
    assert halved >= 9
