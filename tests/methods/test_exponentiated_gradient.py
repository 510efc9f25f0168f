import numpy as np
import pytest
import torch
from fairlearn.metrics import equalized_odds_difference
from scipy.special import expit
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from torch import nn

import gcig
from example_tables import QUICK_BIASED, gaps, make_biased, make_biased_task
from gcig._arguments import InputError
from gcig.methods.exponentiated_gradient import (
    ExponentiatedGradientClassifier,
    ExponentiatedGradientRegressor,
    worst_loss,
)
from gcig.methods.networks import MixtureOfOutputs
from gcig.methods.unconstrained import UnconstrainedClassifier, UnconstrainedRegressor
from support.games import make_data

SHORT = {**QUICK_BIASED, "max_iter": 8}


@pytest.fixture(scope="module")
def biased():
    return make_biased()


@pytest.fixture(scope="module")
def model(biased):
    return ExponentiatedGradientClassifier(**SHORT).fit(biased.X, biased.y, **biased.by)


def test_the_gap_falls_on_new_rows_and_ranking_stays(model, biased):
    plain = UnconstrainedClassifier(**QUICK_BIASED).fit(biased.X, biased.y, **biased.by)
    test = make_biased(4000, seed=7)
    before = gaps(plain.predict(test.X), test.y, test.groups)["eo"]
    after = gaps(model.expected_predictions(test.X), test.y, test.groups)["eo"]
    assert before > 0.3
    assert after < 0.35 * before
    aucs = [roc_auc_score(test.y, each.decision_function(test.X)) for each in (plain, model)]
    assert aucs[1] > aucs[0] - 0.05


@pytest.mark.slow
def test_the_constraints_hold_on_the_rows_that_it_was_trained_on(biased):
    settings = {**SHORT, "early_stopping": False, "max_epochs": 5}
    model = ExponentiatedGradientClassifier(eps=0.02, **settings).fit(biased.X, biased.y, **biased.by)
    chances = model.expected_predictions(biased.X)
    for label in (0, 1):
        rows = biased.y == label
        for group in ("f", "m"):
            of_group = chances[rows & (biased.groups == group)].mean()
            assert abs(of_group - chances[rows].mean()) <= 2 * (0.02 + model.best_gap_) + 1e-6


@pytest.mark.slow
def test_a_looser_bound_leaves_a_larger_gap(biased):
    tight, loose = (
        ExponentiatedGradientClassifier(eps=eps, **SHORT).fit(biased.X, biased.y, **biased.by)
        for eps in (0.01, 0.1)
    )
    left = [
        gaps(each.expected_predictions(biased.X), biased.y, biased.groups)["eo"] for each in (tight, loose)
    ]
    assert left[0] < 0.15 < left[1]


def test_the_logit_is_the_weighted_sum_of_the_predictors_logits(model, biased):
    rows = torch.from_numpy(model.encode(biased.X))
    mixture = model.explained_score
    assert isinstance(mixture, MixtureOfOutputs)
    assert len(mixture.networks) >= 2
    assert float(mixture.weights.sum()) == pytest.approx(1)
    with torch.no_grad():
        each = np.stack([network(rows).numpy() for network in mixture.networks], axis=1)
    weights = mixture.weights.numpy()
    np.testing.assert_allclose(model.decision_function(biased.X), each @ weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        model.predict_proba(biased.X)[:, 1], expit(model.decision_function(biased.X)), rtol=1e-6
    )
    np.testing.assert_allclose(model.expected_predictions(biased.X), (each > 0) @ weights, atol=1e-6)


def test_gcig_explains_the_mixture(model, biased):
    few, labels = biased.X[:20], biased.y[:20]
    found = model.explain(few, labels)
    rows = torch.from_numpy(model.encode(few))
    baselines = torch.from_numpy(model.baselines_)[torch.from_numpy(labels)]
    with torch.no_grad():
        expected = [model.module_(rows) - model.module_(baselines[:, group]) for group in range(2)]
    np.testing.assert_allclose(found.attributions.sum(2), torch.stack(expected), atol=1e-2)


def test_draws_follow_the_mixture_need_no_groups_and_can_be_repeated(model, biased):
    drawn = model.predict(biased.X)
    np.testing.assert_array_equal(model.predict(biased.X, **biased.by), drawn)
    np.testing.assert_array_equal(model.predict(biased.X[::-1]), drawn[::-1])
    chances = model.expected_predictions(biased.X)
    mean = np.mean([model.predict(biased.X, random_state=seed) for seed in range(200)], axis=0)
    assert (np.abs(mean - chances) <= 5 * np.sqrt(chances * (1 - chances) / 200) + 1e-6).all()
    certain = (chances == 0) | (chances == 1)
    assert 0.4 < certain.mean() < 1
    np.testing.assert_array_equal(drawn[certain], chances[certain])


def test_drawn_decisions_are_fair_too(model):
    test = make_biased(20_000, seed=8)
    drawn = model.predict(test.X)
    worst = equalized_odds_difference(test.y, drawn, sensitive_features=test.groups)
    expected = gaps(model.expected_predictions(test.X), test.y, test.groups)["eo"]
    assert worst < expected + 0.03


def test_the_model_of_a_seed_is_one_model(model, biased):
    again = clone(model).fit(biased.X, biased.y, **biased.by)
    np.testing.assert_array_equal(again.decision_function(biased.X), model.decision_function(biased.X))
    np.testing.assert_array_equal(again.predict(biased.X), model.predict(biased.X))
    assert again.n_rounds_ == model.n_rounds_ > 8


def test_a_saved_model_decides_the_same(model, biased, tmp_path):
    model.save(tmp_path / "model")
    loaded = gcig.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.decision_function(biased.X), model.decision_function(biased.X))
    np.testing.assert_array_equal(loaded.predict(biased.X), model.predict(biased.X))
    assert loaded.get_params() == model.get_params()
    assert (loaded.n_rounds_, loaded.best_gap_) == (model.n_rounds_, model.best_gap_)


def test_networks_of_one_s_own_are_mixed_saved_and_loaded_with_their_code(biased, tmp_path):
    numbers = biased.X.drop(columns="job").to_numpy(np.float32)
    own = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    settings = {**SHORT, "module": own, "preprocessing": "none", "max_iter": 6}
    model = ExponentiatedGradientClassifier(**settings).fit(numbers, biased.y, **biased.by)
    model.save(tmp_path / "model")
    with pytest.raises(InputError, match="module is missing"):
        gcig.load(tmp_path / "model")
    loaded = gcig.load(tmp_path / "model", module=own)
    assert loaded.module is own
    np.testing.assert_array_equal(loaded.decision_function(numbers), model.decision_function(numbers))
    assert not torch.equal(loaded.module_.networks[0][0].weight, own[0].weight)


@pytest.mark.slow
def test_three_groups_and_named_classes():
    biased = make_biased(1500, groups=("a", "b", "c"))
    named = np.where(biased.y == 1, "yes", "no")
    plain = UnconstrainedClassifier(**QUICK_BIASED).fit(biased.X, named, **biased.by)
    model = ExponentiatedGradientClassifier(**SHORT).fit(biased.X, named, **biased.by)
    before = gaps((plain.predict(biased.X) == "yes").astype(float), biased.y, biased.groups)["eo"]
    assert gaps(model.expected_predictions(biased.X), biased.y, biased.groups)["eo"] < 0.5 * before
    assert set(model.predict(biased.X)) == {"no", "yes"}


@pytest.mark.slow
def test_sample_weight_decides_which_rates_are_made_equal(biased):
    # Among rows of one job the bias is the other way round; these count for nearly nothing.
    swapped = np.where(biased.X["job"] == "nurse", np.where(biased.groups == "f", "m", "f"), biased.groups)
    weights = np.where(biased.X["job"] == "nurse", 0.01, 1.0)
    clerks = (biased.X["job"] == "clerk").to_numpy()

    def gap_of_clerks(**given):
        model = ExponentiatedGradientClassifier(**SHORT)
        model.fit(biased.X, biased.y, sensitive_features=swapped, **given)
        return gaps(model.expected_predictions(biased.X)[clerks], biased.y[clerks], swapped[clerks])["eo"]

    assert gap_of_clerks(sample_weight=weights) < 0.5 * gap_of_clerks()


def test_warm_start_continues_from_the_heaviest_network(biased):
    settings = {**QUICK_BIASED, "max_iter": 2, "round_epochs": 1, "warm_start": True}
    model = ExponentiatedGradientClassifier(**settings).fit(biased.X, biased.y, **biased.by)
    before = model.module_
    model.set_params(max_epochs=1).fit(biased.X, biased.y, **biased.by)
    assert model.module_ is not before
    assert roc_auc_score(biased.y, model.decision_function(biased.X)) > 0.75


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"eps": 0.0}, "eps must be a number from 1e-6 to less than 1, not 0.0"),
        ({"eps": 1e-30}, "eps must be a number from 1e-6"),  # its inverse is the largest multiplier
        ({"max_iter": 0}, "max_iter must be a positive integer"),
        ({"round_epochs": 1.5}, r"round_epochs must be a positive integer below 2\*\*31 or 'auto'"),
    ],
)
def test_parameters_are_checked(parameters, message):
    biased = make_biased(60)
    with pytest.raises(InputError, match=message):
        ExponentiatedGradientClassifier(**{**QUICK_BIASED, **parameters}).fit(biased.X, biased.y, **biased.by)


@pytest.mark.slow
def test_the_gap_is_halved_on_nine_of_ten_seeds():
    halved = 0
    for seed in range(10):
        train, test = make_biased(seed=2 * seed), make_biased(4000, seed=2 * seed + 1)
        settings = {**QUICK_BIASED, "random_state": seed}
        plain = UnconstrainedClassifier(**settings).fit(train.X, train.y, **train.by)
        model = ExponentiatedGradientClassifier(**settings).fit(train.X, train.y, **train.by)
        before = gaps(plain.predict(test.X), test.y, test.groups)["eo"]
        halved += gaps(model.expected_predictions(test.X), test.y, test.groups)["eo"] <= 0.5 * before
    assert halved >= 9


@pytest.mark.parametrize(("n_rows", "epochs"), [(64, 150), (640, 15), (3840, 3), (512_000, 3)])
def test_rounds_are_long_enough_to_move_a_network(n_rows, epochs):
    assert ExponentiatedGradientClassifier().round_loop(n_rows).max_epochs == epochs
    assert ExponentiatedGradientClassifier(round_epochs=2).round_loop(n_rows).max_epochs == 2


# --- Numbers ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def numbers():
    return make_biased_task("number")


@pytest.fixture(scope="module")
def regressor(numbers):
    return ExponentiatedGradientRegressor(**SHORT).fit(numbers.X, numbers.y, **numbers.by)


def group_errors(model, data):
    squares = (model.predict(data.X) - data.y) ** 2
    return [squares[data.groups == group].mean() for group in ("f", "m")]


def test_the_worst_group_is_predicted_better_at_a_stated_cost(regressor, numbers):
    plain = UnconstrainedRegressor(**QUICK_BIASED).fit(numbers.X, numbers.y, **numbers.by)
    test = make_biased_task("number", 4000, seed=7)
    before, after = max(group_errors(plain, test)), max(group_errors(regressor, test))
    assert after < 0.98 * before
    assert regressor.score(test.X, test.y) > plain.score(test.X, test.y) - 0.05


def test_a_higher_price_is_paid_for_the_worst_group(regressor, numbers):
    dear = ExponentiatedGradientRegressor(**SHORT, eps=0.1).fit(numbers.X, numbers.y, **numbers.by)
    cheap = ExponentiatedGradientRegressor(**SHORT, eps=0.9).fit(numbers.X, numbers.y, **numbers.by)
    worst = [max(group_errors(model, numbers)) for model in (dear, regressor, cheap)]
    assert worst[0] < worst[1] <= worst[2] * 1.01


def test_a_number_is_the_mean_of_the_networks_predictions(regressor, numbers):
    scaled = regressor.module_
    rows = torch.from_numpy(regressor.encode(numbers.X))
    mixture = scaled.network
    assert isinstance(mixture, MixtureOfOutputs)
    with torch.no_grad():
        each = torch.stack([network(rows) for network in mixture.networks], 1)
    expected = (each @ mixture.weights) * scaled.scale + scaled.shift
    np.testing.assert_allclose(regressor.predict(numbers.X), expected, rtol=1e-5)


def test_warm_start_continues_with_a_number(numbers):
    settings = {**QUICK_BIASED, "max_iter": 2, "round_epochs": 1, "warm_start": True}
    model = ExponentiatedGradientRegressor(**settings).fit(numbers.X, numbers.y, **numbers.by)
    before = model.score(numbers.X, numbers.y)
    model.set_params(max_epochs=1).fit(numbers.X, numbers.y, **numbers.by)
    assert model.score(numbers.X, numbers.y) > before - 0.05


def test_the_worst_loss_is_that_of_the_group_with_the_largest_mean():
    data = make_data("number", 100, n_groups=3)
    squares = (data.all.inputs[:, 0] - data.all.labels).square()
    expected = max(float(squares[data.all.groups == g].mean()) for g in range(3))
    assert worst_loss(Column(), data) == pytest.approx(expected)


class Column(nn.Module):
    def forward(self, inputs):
        return inputs[:, 0]
