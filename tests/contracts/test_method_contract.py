"""Contract of every registered method, shipped or third-party, for every task that it is defined for."""

import copy
import inspect
import math
import pickle
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError

import gcig
from gcig._validation import InputError, InputWarning
from gcig.methods import METHODS, parameter
from gcig.methods.networks import with_affine
from gcig.methods.parameters import FRACTION
from gcig.methods.unconstrained import UnconstrainedClassifier

# --- Methods and quick settings -----------------------------------------------------------------------


class OutsideClassifier(UnconstrainedClassifier):
    """A third-party method: the unconstrained network with all logits shifted."""

    method_key = "outside"

    shift: float = parameter(default=0.1, rule=FRACTION, doc="Added to the logits.")

    def train_network(self, network, data, generator):
        network, outcome = super().train_network(network, data, generator)
        return with_affine(network, 1.0, torch.full((data.task.n_outputs,), self.shift)), outcome


TASKS_OF = {**{key: METHODS[key].tasks for key in METHODS}, "outside": ("binary", "classes")}
KEYS = [*TASKS_OF]
CASES = [(key, task) for key in KEYS for task in TASKS_OF[key]]
CHEAP = {
    "max_epochs": 3,
    "hidden_sizes": (8,),
    "batch_size": 32,
    "learning_rate": 0.02,
    "device": "cpu",
    "random_state": 0,
}
CHEAP_BY_METHOD = {
    "agarwal": {"max_iter": 2, "round_epochs": 1},
    "fairx": {"repair": "always"},
    "fairx-paper": {"lambda_ig": 0.05},
}
# What FairX warns of is tested with FairX; three epochs repair little.
pytestmark = (
    pytest.mark.filterwarnings("ignore::UserWarning:gcig.methods", "ignore:.*:gcig.InputWarning")
    if False
    else []
)


@pytest.fixture(scope="module", autouse=True)
def _outside_is_registered():
    before = dict(METHODS._entries)
    gcig.register_method("outside", OutsideClassifier, search_space={"shift": (0.0, 0.1)})
    yield
    METHODS._entries = before


@pytest.fixture(params=KEYS)
def key(request):
    return request.param


@pytest.fixture(params=CASES, ids=lambda case: "-".join(case))
def case(request):
    return request.param


def make(case, **parameters):
    key, task = case
    return METHODS[key].estimator_for(task)(**{**CHEAP, **CHEAP_BY_METHOD.get(key, {}), **parameters})


# --- A table -------------------------------------------------------------------------------------------


class Table:
    """Applications with text, numbers and missing entries; groups differ in income and approval rate."""

    def __init__(self, n=320, groups=("f", "m"), seed=0):
        rng = np.random.default_rng(seed)
        code = np.arange(n) % len(groups)
        income, debt = rng.normal(size=(2, n))
        income += 0.8 * code
        score = 2.0 * income - 1.5 * debt + rng.logistic(size=n) - 0.4
        self.X = pd.DataFrame(
            {
                "income": income,
                "debt": np.where(rng.random(n) < 0.05, np.nan, debt),
                "age": rng.integers(20, 70, n),
                "job": rng.choice(["clerk", "nurse"], n),
            }
        )
        self.y = pd.Series(np.where(score > 0, "yes", "no"), name="approved")
        self.groups = pd.Series(np.array(groups)[code], name="sex")

    @property
    def numbers(self):
        return self.X[["income", "age"]].to_numpy(float)

    def fit(self, model, **more):
        return model.fit(self.X, self.y, sensitive_features=self.groups, **more)


TABLE, NEW = Table(), Table(60, seed=1)


@cache
def _fitted(key):
    return TABLE.fit(make(key))


def fitted(key):
    """Return a copy of the shared fitted model, which a test may change."""
    return copy.deepcopy(_fitted(key))


def call(model, name, X, groups):
    """Call a prediction method with groups, which every method accepts even if it ignores them."""
    return getattr(model, name)(X, sensitive_features=groups)


def logits(model, X=NEW.X, groups=NEW.groups):
    return call(model, "decision_function", X, groups)


# --- Registry ------------------------------------------------------------------------------------------


def test_keys_are_in_the_papers_order():
    assert KEYS == [
        "unconstrained",
        "dir",
        "hardt",
        "agarwal",
        "lagrangian",
        "adversarial",
        "fairx-paper",
        "fairx",
        "outside",
    ]


def test_entry_has_key_label_and_classifier(key):
    method = METHODS[key]
    assert method.key == method.estimator.method_key == key
    assert isinstance(method.label, str)
    assert method.label
    assert is_classifier(method.estimator())


def test_search_space_holds_valid_parameters(key):
    method = METHODS[key]
    assert method.search_space
    for name, values in method.search_space.items():
        assert name in method.estimator().get_params()
        assert len(set(values)) == len(values) > 1
        for value in values:
            method.estimator(**{name: value}).check_parameters()


def test_grid_is_small_and_around_the_defaults(key):
    space = METHODS[key].search_space
    assert math.prod(map(len, space.values())) <= (12 if key.startswith("fairx") else 6)
    for name, values in space.items():
        default = METHODS[key].estimator().get_params()[name]
        if isinstance(default, float):
            assert min(values) <= default <= max(values)
        else:
            assert default in (*values, "auto")


# --- scikit-learn --------------------------------------------------------------------------------------


def test_parameters_have_defaults_and_can_be_read_and_set(key):
    model = METHODS[key].estimator()
    parameters = model.get_params()
    assert parameters.keys() == inspect.signature(METHODS[key].estimator).parameters.keys()
    assert {"random_state", "device", "max_epochs", "hidden_sizes"} <= parameters.keys()
    model.set_params(random_state=7, hidden_sizes=(5,))
    assert (model.random_state, model.hidden_sizes) == (7, (5,))


def test_clone_has_the_parameters_but_is_unfitted(key):
    model = fitted(key)
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        twin.predict(TABLE.X)
    assert np.array_equal(logits(TABLE.fit(twin)), logits(model))


@pytest.mark.parametrize("name", ["predict", "predict_proba", "decision_function", "encode"])
def test_unfitted_model_raises(key, name):
    with pytest.raises(NotFittedError):
        call(make(key), name, TABLE.X, TABLE.groups)


def test_fit_returns_the_model_and_leaves_arguments_unchanged(key):
    table, model = Table(), make(key, max_epochs=1)
    before = table.X.copy(), table.y.copy(), table.groups.copy()
    parameters = model.get_params()
    assert table.fit(model) is model
    assert model.get_params() == parameters
    for now, then in zip((table.X, table.y, table.groups), before, strict=True):
        assert now.equals(then)


def test_a_fitted_model_can_be_pickled(key):
    model = fitted(key)
    assert np.array_equal(logits(pickle.loads(pickle.dumps(model))), logits(model))


# --- Predictions ---------------------------------------------------------------------------------------


def test_fitted_attributes(key):
    model = fitted(key)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.groups_ == ("f", "m")
    assert model.n_features_in_ == 4
    assert model.feature_names_in_.tolist() == ["income", "debt", "age", "job"]
    assert model.baselines_.shape == (2, 2, call(model, "encode", NEW.X, NEW.groups).shape[1])
    assert np.isfinite(model.baselines_).all()


def test_shapes_and_types(key):
    model = fitted(key)
    scores = logits(model)
    chances = call(model, "predict_proba", NEW.X, NEW.groups)
    predicted = call(model, "predict", NEW.X, NEW.groups)
    encoded = call(model, "encode", NEW.X, NEW.groups)
    assert (scores.shape, chances.shape, predicted.shape, len(encoded)) == ((60,), (60, 2), (60,), 60)
    assert (scores.dtype, chances.dtype, encoded.dtype) == (np.float64, np.float64, np.float32)
    assert set(predicted) <= {"no", "yes"}
    assert np.isfinite(scores).all()


def test_probabilities_are_those_of_the_logit(key):
    model = fitted(key)
    chances = call(model, "predict_proba", NEW.X, NEW.groups)
    assert np.allclose(chances.sum(1), 1)
    assert np.allclose(chances[:, 1], 1 / (1 + np.exp(-logits(model))))


def test_decisions_follow_the_threshold_or_expected_predictions(key):
    model = fitted(key)
    positive = call(model, "predict", NEW.X, NEW.groups) == "yes"
    if np.isfinite(model.threshold_):
        chances = call(model, "predict_proba", NEW.X, NEW.groups)
        assert np.array_equal(positive, chances[:, 1] >= model.threshold_)
    else:
        chances = call(model, "expected_predictions", NEW.X, NEW.groups)
        assert ((chances >= 0) & (chances <= 1)).all()
        assert positive[chances == 1].all()
        assert not positive[chances == 0].any()
        assert np.array_equal(positive, call(model, "predict", NEW.X, NEW.groups) == "yes")


def test_score_is_the_accuracy(key):
    model, weights = fitted(key), np.arange(60.0)
    right = call(model, "predict", NEW.X, NEW.groups) == NEW.y
    assert model.score(NEW.X, NEW.y, sensitive_features=NEW.groups) == pytest.approx(right.mean())
    weighted = model.score(NEW.X, NEW.y, weights, sensitive_features=NEW.groups)
    assert weighted == pytest.approx(np.average(right, weights=weights))


@pytest.mark.filterwarnings("ignore:the network without fairness terms was kept")  # as good a ranking
def test_it_ranks_new_rows(key):
    model = TABLE.fit(make(key, max_epochs=12))
    scores, positive = logits(model), NEW.y == "yes"
    assert (scores[positive][:, None] > scores[~positive]).mean() > 0.8


def test_one_row_is_predicted_as_in_a_batch(key):
    model = fitted(key)
    one, its_group = NEW.X.iloc[[7]], NEW.groups.iloc[[7]]
    assert logits(model, one, its_group) == pytest.approx(logits(model)[[7]], rel=1e-4, abs=1e-5)
    assert call(model, "predict", one, its_group).tolist() == [call(model, "predict", NEW.X, NEW.groups)[7]]


def test_columns_are_found_by_name(key):
    model = fitted(key)
    assert np.array_equal(logits(model, NEW.X[NEW.X.columns[::-1]]), logits(model))
    with pytest.raises(InputError, match="income"):
        logits(model, NEW.X.drop(columns="income"))


def test_new_categories_and_missing_values_are_predicted(key):
    strange = NEW.X.assign(job="baker", debt=np.nan)
    with pytest.warns(InputWarning, match="job"):
        assert np.isfinite(logits(fitted(key), strange)).all()


def test_tables_and_arrays_give_the_same_model(key):
    frame = pd.DataFrame(TABLE.numbers, columns=["income", "age"])
    named = make(key).fit(frame, TABLE.y, sensitive_features=TABLE.groups)
    bare = make(key).fit(TABLE.numbers, TABLE.y.to_numpy(), sensitive_features=TABLE.groups.to_numpy())
    assert np.array_equal(
        logits(named, frame, TABLE.groups), logits(bare, TABLE.numbers, TABLE.groups.to_numpy())
    )
    assert not hasattr(bare, "feature_names_in_")


@pytest.mark.parametrize("classes", [(0, 1), (False, True), ("bad", "good")])
def test_labels_of_any_type_give_the_same_model(key, classes):
    y = np.where(TABLE.y == "yes", classes[1], classes[0])
    model = make(key).fit(TABLE.X, y, sensitive_features=TABLE.groups)
    assert model.classes_.tolist() == list(classes)
    assert set(call(model, "predict", NEW.X, NEW.groups).tolist()) <= set(classes)
    assert np.array_equal(logits(model), logits(fitted(key)))


# --- Weights and seeds ---------------------------------------------------------------------------------


def test_sample_weights_change_the_model(key):
    heavy = np.where(TABLE.y == "yes", 4.0, 1.0)
    weighted = TABLE.fit(make(key), sample_weight=heavy)
    assert logits(weighted).mean() > logits(fitted(key)).mean() + 0.1


def test_weights_of_the_wrong_length_are_refused(key):
    with pytest.raises(InputError, match="sample_weight"):
        TABLE.fit(make(key), sample_weight=np.ones(3))


def test_seed_determines_the_model(key):
    again, other = TABLE.fit(make(key)), TABLE.fit(make(key, random_state=1))
    assert np.array_equal(logits(again), logits(fitted(key)))
    assert not np.array_equal(logits(other), logits(fitted(key)))
    assert np.array_equal(
        call(again, "predict", NEW.X, NEW.groups), call(fitted(key), "predict", NEW.X, NEW.groups)
    )


def test_global_generators_are_left_alone(key):
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002 (the test is about the global generator)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    TABLE.fit(make(key, max_epochs=1))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


# --- Groups --------------------------------------------------------------------------------------------


def test_fit_needs_groups(key):
    with pytest.raises(InputError, match="sensitive_features is missing"):
        make(key).fit(TABLE.X, TABLE.y)


def test_prediction_needs_groups_only_if_declared(key):
    model = fitted(key)
    if model.needs_groups_to_predict:
        with pytest.raises(InputError, match=r"sensitive_features is missing.*f, m"):
            model.predict(NEW.X)
    else:
        given = model.predict(NEW.X, sensitive_features=NEW.groups)
        assert np.array_equal(model.predict(NEW.X), given)


def test_unknown_groups_are_refused_if_prediction_needs_groups(key):
    model = fitted(key)
    strangers = NEW.groups.replace("f", "x")
    if model.needs_groups_to_predict:
        with pytest.raises(InputError, match=r"not in training.*'x'"):
            model.predict(NEW.X, sensitive_features=strangers)
        with pytest.raises(InputError, match="sensitive_features"):
            model.predict(NEW.X, sensitive_features=strangers.iloc[:5])
    else:
        assert np.array_equal(model.predict(NEW.X, sensitive_features=strangers), model.predict(NEW.X))


def test_group_without_one_of_the_labels_is_refused(key):
    hopeless = TABLE.y.where(TABLE.groups == "m", "no")
    model = make(key)
    with pytest.raises(InputError, match="label 'yes', group 'f'"):
        model.fit(TABLE.X, hopeless, sensitive_features=TABLE.groups)
    with pytest.raises(NotFittedError):
        model.predict(TABLE.X)


def test_three_groups_are_fitted_or_refused(key):
    table = Table(groups=("a", "b", "c"))
    try:
        model = table.fit(make(key))
    except InputError as error:
        assert "groups" in str(error)  # noqa: PT017 (a method may fit three groups or refuse them)
        return
    assert model.groups_ == ("a", "b", "c")
    assert model.baselines_.shape[1] == 3
    found = gcig.evaluate(model, table.X, table.y, sensitive_features=table.groups, n_bootstrap=0)
    assert len(found.groups) == 3
    assert np.isfinite(found.gcig)


def test_several_sensitive_columns_are_crossed(key):
    crossed = pd.DataFrame({"sex": TABLE.groups, "old": np.arange(len(TABLE.y)) % 4 > 1})
    try:
        model = make(key, max_epochs=1).fit(TABLE.X, TABLE.y, sensitive_features=crossed)
    except InputError as error:
        assert "groups" in str(error)  # noqa: PT017 (a method may fit three groups or refuse them)
        return
    assert len(model.groups_) == 4
    assert call(model, "predict", TABLE.X, crossed).shape == (320,)


# --- Explanations --------------------------------------------------------------------------------------


def test_the_explained_score_is_the_logit_of_encoded_rows_and_differentiable(key):
    model = fitted(key)
    rows = torch.from_numpy(call(model, "encode", NEW.X, NEW.groups)).requires_grad_()
    scores = model.explained_score(rows)
    assert scores.shape == (60,)
    assert scores.detach().numpy() == pytest.approx(logits(model), rel=1e-4, abs=1e-5)
    (gradient,) = torch.autograd.grad(scores.sum(), rows, create_graph=True)
    assert gradient.abs().sum() > 0
    assert gradient.requires_grad


def test_it_can_be_evaluated(key):
    found = gcig.evaluate(fitted(key), NEW.X, NEW.y, sensitive_features=NEW.groups, n_bootstrap=0, min_cell=1)
    assert 0 < found.gcig < 2
    assert 0.5 < found.auc <= 1
    assert np.isfinite(found.eo_gap)
    assert [rates.group for rates in found.groups] == ["f", "m"]


def test_evaluation_uses_expected_decisions(key):
    model = fitted(key)
    found = gcig.evaluate(model, NEW.X, NEW.y, sensitive_features=NEW.groups, n_bootstrap=0, min_cell=1)
    if hasattr(model, "expected_predictions"):
        chances = call(model, "expected_predictions", NEW.X, NEW.groups)
    else:
        chances = (call(model, "predict", NEW.X, NEW.groups) == "yes").astype(float)
    for rates in found.groups:
        of_group = (NEW.groups == rates.group).to_numpy()
        positive = (NEW.y == "yes").to_numpy()
        assert rates.tpr == pytest.approx(chances[of_group & positive].mean())
        assert rates.fpr == pytest.approx(chances[of_group & ~positive].mean())


def test_explanations_are_complete(key):
    model = fitted(key)
    found = model.explain(NEW.X, NEW.y, sensitive_features=NEW.groups)
    assert found.attributions.shape[:2] == (2, 60)
    assert found.groups == ("f", "m")
    assert found.completeness.max() < 1e-2


# --- Saving --------------------------------------------------------------------------------------------


def test_saved_model_is_restored(key, tmp_path):
    model = fitted(key)
    model.save(tmp_path / "model")
    twin = gcig.load(tmp_path / "model")
    assert type(twin) is type(model)
    assert twin.get_params() == model.get_params()
    for name in ("predict", "predict_proba", "decision_function", "encode"):
        assert np.array_equal(call(twin, name, NEW.X, NEW.groups), call(model, name, NEW.X, NEW.groups))
    assert (twin.classes_.tolist(), twin.groups_) == (model.classes_.tolist(), model.groups_)
    assert np.array_equal(twin.baselines_, model.baselines_)
    evaluations = [
        gcig.evaluate(each, NEW.X, NEW.y, sensitive_features=NEW.groups, n_bootstrap=0, min_cell=1)
        for each in (model, twin)
    ]
    assert evaluations[0].to_dict() == evaluations[1].to_dict()


def test_loaded_model_can_be_saved_and_refitted(key, tmp_path):
    fitted(key).save(tmp_path / "model")
    twin = gcig.load(tmp_path / "model")
    twin.save(tmp_path / "again")
    assert np.array_equal(logits(gcig.load(tmp_path / "again")), logits(twin))
    assert np.array_equal(logits(TABLE.fit(twin)), logits(fitted(key)))
