import math

import numpy as np
import pytest

from gcig._validation import InputError
from gcig.methods.fairx.estimator import FairXClassifier
from gcig.methods.parameters import check_parameters
from gcig.methods.unconstrained import UnconstrainedClassifier

WRONG = {
    "lambda_ig": [-0.1, math.nan, math.inf, "0.3", None, True],
    "lambda_fair": [-1, math.nan],
    "outcome": ["calibration", None],
    "max_gcig": [0, -1.0, math.nan, "0.05"],
    "max_eo_gap": [0, math.nan],
    "preprocessing": ["scale", None],
    "max_epochs": [0, -3, 2.5, "auto", True],
    "batch_size": [0, 2.5, "all", None],
    "learning_rate": [0, -1, math.inf, "fast"],
    "weight_decay": [-1e-3, math.inf],
    "clip_norm": [0, -1, math.inf],
    "patience": [0, 1.5],
    "validation_fraction": [0, 1, -0.1, math.nan],
    "max_auc_drop": [-0.01, math.nan],
    "n_steps": [0, 1.5, "many"],
    "penalty_rows": [0, 1.5],
    "penalty_every": [0, 1.5, "auto"],
    "ema_rate": [-0.1, 1.1],
    "threshold": [0, 1, 1.5, "f2", None, True],
}
RIGHT = {
    "lambda_ig": [0, 0.3, np.float32(0.3), np.int64(2)],
    "max_gcig": [None, 0.05, np.float64(1e-3)],
    "max_epochs": [1, np.int64(3)],
    "batch_size": ["auto", 32, np.int32(8)],
    "learning_rate": ["auto", 1e-3, 1],
    "max_auc_drop": [0, math.inf],
    "clip_norm": [0.5, 5],
    "n_steps": ["auto", 16],
    "threshold": ["f1", 0.3, np.float32(0.3)],
    "penalty_rows": [1, 0.25],
    "ema_rate": [0, 1.0],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]])
def test_what_cannot_be_used_is_named_with_what_is_expected(name, value):
    with pytest.raises(InputError, match=rf"^{name} must be .*, not .*\.$"):
        check_parameters({name: value})


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in RIGHT for value in RIGHT[name]])
def test_what_can_be_used_is_let_pass(name, value):
    check_parameters({name: value, "something_else": object()})


@pytest.mark.parametrize("method", [FairXClassifier, UnconstrainedClassifier])
def test_all_defaults_can_be_used(method):
    check_parameters(method().get_params(deep=False))


def test_every_number_and_choice_of_fairx_is_checked():
    checked_elsewhere = {
        "module",  # tried on the encoded columns
        "hidden_sizes",  # the network's constructor names these three
        "activation",
        "dropout",
        "norm",  # gcig.Definition names these two
        "rule",
        "class_weight",  # against the classes of y
        "device",  # by torch
        "random_state",  # by scikit-learn
        "early_stopping",  # taken as true or false
        "warm_start",
        "verbose",
    }
    assert FairXClassifier().get_params(deep=False).keys() - WRONG.keys() == checked_elsewhere


@pytest.mark.parametrize("method", [FairXClassifier, UnconstrainedClassifier])
def test_parameters_are_checked_in_fit_and_not_before(method):
    model = method(max_epochs=0)
    with pytest.raises(InputError, match="max_epochs must be a positive integer, not 0"):
        model.fit([[1.0], [2.0]], [0, 1], sensitive_features=["a", "b"])


@pytest.mark.parametrize(("name", "value"), [("norm", "l3"), ("rule", "trapezoid"), ("rule", None)])
def test_the_definition_is_checked_in_fit(name, value):
    with pytest.raises(InputError, match=f"{name} must be one of"):
        FairXClassifier(**{name: value}).fit([[1.0], [2.0]], [0, 1], sensitive_features=["a", "b"])


def test_numpy_numbers_are_taken_for_steps_and_rows():
    definition = FairXClassifier(n_steps=np.int64(8), penalty_rows=np.float32(0.5)).definition_
    assert (definition.n_steps, definition.rows) == (8, 0.5)
    assert type(definition.n_steps) is int
