"""Contract of every registered method, shipped or third-party, for every task that it is defined for."""

import copy
import inspect
import math
import pickle
from contextlib import nullcontext
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score

import gcig
from gcig._arguments import InputError, InputWarning
from gcig.methods import METHODS, parameter
from gcig.methods.parameters import FRACTION
from gcig.methods.registry import TASKS, methods_for
from gcig.methods.unconstrained import UnconstrainedClassifier
from gcig.models.mlp import with_affine

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
# What FairX says of a student is tested with FairX; three epochs repair little. The paper's quadrature does
# not see the kinks of its activation.
_WARNINGS = (
    *(f"gcig.methods.fairx.warnings.{kind}Warning" for kind in ("Bound", "Collapse", "Reasons", "Threshold")),
    "gcig.core.modules.KinkWarning",
)
pytestmark = [pytest.mark.filterwarnings(f"ignore::{each}") for each in _WARNINGS]


@pytest.fixture(scope="module", autouse=True)
def _outside_is_registered():
    before = dict(METHODS.data)
    gcig.register_method("outside", OutsideClassifier, search_space={"shift": (0.0, 0.1)})
    yield
    METHODS.data = before


@pytest.fixture(params=KEYS)
def key(request):
    return request.param


@pytest.fixture(params=CASES, ids=lambda case: "-".join(case))
def case(request):
    return request.param


def make(case, **parameters):
    key, task = case
    return METHODS[key].estimator_for(task)(**{**CHEAP, **CHEAP_BY_METHOD.get(key, {}), **parameters})


# --- Tables --------------------------------------------------------------------------------------------


class Table:
    """Applications with text, numbers and missing entries; groups differ in income and in the label."""

    def __init__(self, task, n=320, groups=("f", "m"), seed=0):
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
        labels = {
            "binary": lambda: np.where(score > 0, "yes", "no"),
            "classes": lambda: np.array(["low", "mid", "top"])[(score > -1).astype(int) + (score > 1)],
            "number": lambda: 30_000 + 5_000 * score,
        }
        self.y = pd.Series(labels[task](), name="label")
        self.groups = pd.Series(np.array(groups)[code], name="sex")

    @property
    def numbers(self):
        return self.X[["income", "age"]].to_numpy(float)

    def fit(self, model, **more):
        return model.fit(self.X, self.y, sensitive_features=self.groups, **more)


TABLES = {task: Table(task) for task in TASKS}
NEWS = {task: Table(task, 60, seed=1) for task in TASKS}
NEW = NEWS["binary"]  # the rows of all of them are the same


@cache
def _fitted(case):
    return TABLES[case[1]].fit(make(case))


def fitted(case):
    """Return a copy of the shared fitted model, which a test may change."""
    return copy.deepcopy(_fitted(case))


def call(model, name, X=NEW.X, groups=NEW.groups):
    """Call a prediction method with groups, which every method accepts even if it ignores them."""
    return getattr(model, name)(X, sensitive_features=groups)


def outputs(model, X=NEW.X, groups=NEW.groups):
    """Return logits or predictions."""
    return call(model, "predict" if is_regressor(model) else "decision_function", X, groups)


def names_of_predictions(model):
    classifies = ("predict_proba", "decision_function") if is_classifier(model) else ()
    return ("predict", "encode", *classifies)


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


def test_every_task_has_the_methods_that_are_defined_for_it():
    assert set(methods_for("binary")) == set(KEYS)
    assert set(methods_for("classes")) == set(KEYS) - {"hardt", "agarwal", "fairx-paper"}
    assert set(methods_for("number")) == set(KEYS) - {"hardt", "fairx-paper", "outside"}


def test_an_entry_has_a_key_a_label_and_estimators_that_know_their_tasks(key):
    method = METHODS[key]
    assert isinstance(method.label, str)
    assert method.label
    assert method.estimator is method.estimator_for("binary")
    known = {task for each in map(method.estimator_for, method.tasks) for task in each.tasks}
    assert set(method.tasks) == known
    for task in method.tasks:
        estimator = method.estimator_for(task)
        assert estimator.method_key == key
        assert is_regressor(estimator()) == (task == "number")
        assert is_classifier(estimator()) == (task != "number")


def test_what_a_method_cannot_do_is_an_error_that_names_those_that_can(key):
    for task in set(TASKS) - set(METHODS[key].tasks):
        with pytest.raises(InputError) as error:
            METHODS[key].estimator_for(task)
        assert all(each in str(error.value) for each in methods_for(task))
    with pytest.raises(InputError, match=r"'ranking'.*binary, classes, number"):
        METHODS[key].estimator_for("ranking")


def test_several_classes_are_fitted_or_refused_with_the_methods_that_fit_them(key):
    if "classes" in METHODS[key].tasks:
        return
    with pytest.raises(InputError, match="has 3 classes") as error:
        TABLES["classes"].fit(make((key, "binary")))
    assert error.value.argument == "y"
    assert all(each in str(error.value) for each in methods_for("classes"))


def test_an_outcome_that_a_task_does_not_define_is_refused(case):
    if "outcome" not in make(case).get_params() or case[1] == "binary":
        return
    with pytest.raises(InputError, match="equalized_odds") as error:
        TABLES[case[1]].fit(make(case, outcome="equal_opportunity"))
    assert error.value.argument == "outcome"


def test_search_space_holds_valid_parameters_around_the_defaults(case):
    key, task = case
    space, defaults = METHODS[key].search_space_for(task), type(make(case))().get_params()
    assert space
    assert math.prod(map(len, space.values())) <= 6
    for name, values in space.items():
        assert len(set(values)) == len(values) > 1
        for value in values:
            METHODS[key].estimator_for(task)(**{name: value}).check_parameters()
        if isinstance(defaults[name], float):
            assert min(values) <= defaults[name] <= max(values)
        else:
            assert defaults[name] in (*values, "auto")


# --- scikit-learn --------------------------------------------------------------------------------------


def test_parameters_have_defaults_and_can_be_read_and_set(case):
    estimator = type(make(case))
    model = estimator()
    parameters = model.get_params()
    assert parameters.keys() == inspect.signature(estimator).parameters.keys()
    assert {"random_state", "device", "max_epochs", "hidden_sizes"} <= parameters.keys()
    model.set_params(random_state=7, hidden_sizes=(5,))
    assert (model.random_state, model.hidden_sizes) == (7, (5,))


def test_clone_has_the_parameters_but_is_unfitted(case):
    model = fitted(case)
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        twin.predict(NEW.X)
    assert np.array_equal(outputs(TABLES[case[1]].fit(twin)), outputs(model))


def test_unfitted_model_raises(case):
    for name in names_of_predictions(make(case)):
        with pytest.raises(NotFittedError):
            call(make(case), name)


def test_fit_returns_the_model_and_leaves_arguments_unchanged(case):
    table, model = Table(case[1]), make(case, max_epochs=1)
    before = table.X.copy(), table.y.copy(), table.groups.copy()
    parameters = model.get_params()
    assert table.fit(model) is model
    assert model.get_params() == parameters
    for now, then in zip((table.X, table.y, table.groups), before, strict=True):
        assert now.equals(then)


def test_a_fitted_model_can_be_pickled(case):
    model = fitted(case)
    assert np.array_equal(outputs(pickle.loads(pickle.dumps(model))), outputs(model))


# --- Predictions ---------------------------------------------------------------------------------------


def test_fitted_attributes(case):
    model, task = fitted(case), case[1]
    if task != "number":
        assert model.classes_.tolist() == sorted(set(TABLES[task].y))
    assert model.task_.key == task
    assert model.groups_ == ("f", "m")
    assert model.n_features_in_ == 4
    assert model.feature_names_in_.tolist() == ["income", "debt", "age", "job"]
    assert model.baselines_.shape == (model.task_.n_cells, 2, call(model, "encode").shape[1])
    assert np.isfinite(model.baselines_).all()


def test_shapes_and_types(case):
    model, task = fitted(case), case[1]
    predicted, encoded, scores = call(model, "predict"), call(model, "encode"), outputs(model)
    assert (predicted.shape, len(encoded), encoded.dtype) == ((60,), 60, np.float32)
    assert scores.shape == ((60, 3) if task == "classes" else (60,))
    assert scores.dtype == np.float64
    assert np.isfinite(scores).all()
    if task != "number":
        assert set(predicted) <= set(model.classes_)


def test_probabilities_are_those_of_the_logits(case):
    model = fitted(case)
    if case[1] == "number":
        return
    chances, scores = call(model, "predict_proba"), outputs(model)
    assert np.allclose(chances.sum(1), 1)
    if case[1] == "binary":
        assert np.allclose(chances[:, 1], 1 / (1 + np.exp(-scores)))
    else:
        assert np.allclose(chances, np.exp(scores) / np.exp(scores).sum(1, keepdims=True))


def test_decisions_follow_the_probabilities_or_expected_predictions(case):
    model, task = fitted(case), case[1]
    predicted = call(model, "predict")
    if task == "number":
        return
    if task == "classes":
        assert np.array_equal(predicted, model.classes_[call(model, "predict_proba").argmax(1)])
    elif np.isfinite(model.threshold_):
        assert np.array_equal(predicted == "yes", call(model, "predict_proba")[:, 1] >= model.threshold_)
    else:
        chances = call(model, "expected_predictions")
        assert ((chances >= 0) & (chances <= 1)).all()
        assert (predicted == "yes")[chances == 1].all()
        assert not (predicted == "yes")[chances == 0].any()
        assert np.array_equal(predicted, call(model, "predict"))


def test_score_is_the_accuracy_or_r2(case):
    model, y, weights = fitted(case), NEWS[case[1]].y, np.arange(60.0)
    predicted, measure = call(model, "predict"), r2_score if case[1] == "number" else accuracy_score
    by = {"sensitive_features": NEW.groups}
    assert model.score(NEW.X, y, **by) == pytest.approx(measure(y, predicted))
    assert model.score(NEW.X, y, weights, **by) == pytest.approx(measure(y, predicted, sample_weight=weights))


def test_it_predicts_new_rows(case):
    task = case[1]
    model = TABLES[task].fit(make(case, max_epochs=12))
    if task == "binary":
        assert roc_auc_score(NEWS[task].y, outputs(model)) > 0.8
    else:
        least = {"classes": 0.45, "number": 0.4}[task]
        assert model.score(NEW.X, NEWS[task].y, sensitive_features=NEW.groups) > least


def test_one_row_is_predicted_as_in_a_batch(case):
    model = fitted(case)
    one, its_group = NEW.X.iloc[[7]], NEW.groups.iloc[[7]]
    assert outputs(model, one, its_group) == pytest.approx(outputs(model)[[7]], rel=1e-4, abs=1e-5)


def test_columns_are_found_by_name(case):
    model = fitted(case)
    assert np.array_equal(outputs(model, NEW.X[NEW.X.columns[::-1]]), outputs(model))
    with pytest.raises(InputError, match="income"):
        outputs(model, NEW.X.drop(columns="income"))


def test_new_categories_and_missing_values_are_predicted(case):
    strange = NEW.X.assign(job="baker", debt=np.nan)
    with pytest.warns(InputWarning, match="job"):
        assert np.isfinite(outputs(fitted(case), strange)).all()


def test_tables_and_arrays_give_the_same_model(case):
    table = TABLES[case[1]]
    frame = pd.DataFrame(table.numbers, columns=["income", "age"])
    named = make(case).fit(frame, table.y, sensitive_features=table.groups)
    bare = make(case).fit(table.numbers, table.y.to_numpy(), sensitive_features=table.groups.to_numpy())
    assert np.array_equal(
        outputs(named, frame, table.groups), outputs(bare, table.numbers, table.groups.to_numpy())
    )
    assert not hasattr(bare, "feature_names_in_")


@pytest.mark.parametrize("classes", [(0, 1), (False, True), ("bad", "good")])
def test_labels_of_any_type_give_the_same_model(key, classes):
    table, case = TABLES["binary"], (key, "binary")
    y = np.where(table.y == "yes", classes[1], classes[0])
    model = make(case).fit(table.X, y, sensitive_features=table.groups)
    assert model.classes_.tolist() == list(classes)
    assert set(call(model, "predict").tolist()) <= set(classes)
    assert np.array_equal(outputs(model), outputs(fitted(case)))


# --- Weights and seeds ---------------------------------------------------------------------------------


def test_sample_weights_change_the_model(case):
    table = TABLES[case[1]]
    high = table.y > np.median(table.y) if case[1] == "number" else table.y == table.y.max()
    weighted = table.fit(make(case), sample_weight=np.where(high, 4.0, 1.0))
    before = fitted(case)
    if case[1] == "classes":
        means = [call(model, "predict_proba")[:, -1].mean() for model in (before, weighted)]
    else:
        means = [outputs(model).mean() for model in (before, weighted)]
    assert means[1] > means[0]


def test_weights_of_the_wrong_length_are_refused(case):
    with pytest.raises(InputError, match="sample_weight"):
        TABLES[case[1]].fit(make(case), sample_weight=np.ones(3))


def test_seed_determines_the_model(case):
    again, other = (TABLES[case[1]].fit(make(case, random_state=seed)) for seed in (0, 1))
    assert np.array_equal(outputs(again), outputs(fitted(case)))
    assert not np.array_equal(outputs(other), outputs(fitted(case)))
    assert np.array_equal(call(again, "predict"), call(fitted(case), "predict"))


def test_global_generators_are_left_alone(case):
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002 (the test is about the global generator)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    TABLES[case[1]].fit(make(case, max_epochs=1))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


# --- Groups --------------------------------------------------------------------------------------------


def test_fit_needs_groups(case):
    with pytest.raises(InputError, match="sensitive_features is missing"):
        make(case).fit(TABLES[case[1]].X, TABLES[case[1]].y)


def test_prediction_needs_groups_only_if_declared(case):
    model = fitted(case)
    strangers = NEW.groups.replace("f", "x")
    if model.needs_groups_to_predict:
        with pytest.raises(InputError, match=r"sensitive_features is missing.*f, m"):
            model.predict(NEW.X)
        with pytest.raises(InputError, match=r"not in training.*'x'"):
            model.predict(NEW.X, sensitive_features=strangers)
        with pytest.raises(InputError, match="sensitive_features"):
            model.predict(NEW.X, sensitive_features=NEW.groups.iloc[:5])
    else:
        assert np.array_equal(model.predict(NEW.X), call(model, "predict"))
        assert np.array_equal(model.predict(NEW.X, sensitive_features=strangers), model.predict(NEW.X))


def test_groups_that_share_no_label_are_refused(key):
    table, model = TABLES["binary"], make((key, "binary"))
    hopeless = table.groups.map({"f": "no", "m": "yes"})
    with pytest.raises(InputError, match="No label occurs in two groups"):
        model.fit(table.X, hopeless, sensitive_features=table.groups)
    with pytest.raises(NotFittedError):
        model.predict(table.X)


def test_a_group_without_one_of_the_labels_is_warned_of(key):
    table = TABLES["binary"]
    partly = table.y.where(table.groups == "m", "no")
    model = make((key, "binary"))
    refused = pytest.raises(InputError, match="Group 'f'") if key == "hardt" else nullcontext()
    with pytest.warns(InputWarning, match="label 'yes', group 'f'"), refused:
        model.fit(table.X, partly, sensitive_features=table.groups)
    assert hasattr(model, "module_") == (key != "hardt")


def test_three_groups(case):
    table = Table(case[1], groups=("a", "b", "c"))
    model = table.fit(make(case))
    assert model.groups_ == ("a", "b", "c")
    assert model.baselines_.shape[1] == 3
    assert np.isfinite(outputs(model, table.X, table.groups)).all()


def test_several_sensitive_columns_are_crossed(case):
    table = TABLES[case[1]]
    crossed = pd.DataFrame({"sex": table.groups, "old": np.arange(len(table.y)) % 4 > 1})
    model = make(case, max_epochs=1).fit(table.X, table.y, sensitive_features=crossed)
    assert len(model.groups_) == 4
    assert call(model, "predict", table.X, crossed).shape == (320,)


# --- Explanations --------------------------------------------------------------------------------------


def test_the_explained_outputs_are_those_of_encoded_rows_and_differentiable(case):
    model = fitted(case)
    rows = torch.from_numpy(call(model, "encode")).requires_grad_()
    scores = model.explained_score(rows)
    assert scores.detach().numpy() == pytest.approx(outputs(model), rel=1e-4, abs=1e-4)
    (gradient,) = torch.autograd.grad(scores[..., -1].sum(), rows, create_graph=True)
    assert gradient.abs().sum() > 0
    assert gradient.requires_grad


def test_explanations_are_complete(case):
    model = fitted(case)
    explained = model.explain(NEW.X, NEWS[case[1]].y, sensitive_features=NEW.groups)
    assert explained.attributions.shape[:2] == (2, 60)
    assert explained.groups == ("f", "m")
    assert explained.completeness.max() < 1e-2 * max(1.0, np.nanmax(np.abs(explained.attributions)))


# --- Saving --------------------------------------------------------------------------------------------


def test_saved_model_is_restored_and_can_be_refitted(case, tmp_path):
    model = fitted(case)
    model.save(tmp_path / "model")
    twin = gcig.load(tmp_path / "model")
    assert type(twin) is type(model)
    assert twin.get_params() == model.get_params()
    for name in names_of_predictions(model):
        assert np.array_equal(call(twin, name), call(model, name))
    assert (twin.task_, twin.groups_) == (model.task_, model.groups_)
    twin.save(tmp_path / "again")
    assert np.array_equal(outputs(gcig.load(tmp_path / "again")), outputs(twin))
    assert np.array_equal(outputs(TABLES[case[1]].fit(twin)), outputs(model))
