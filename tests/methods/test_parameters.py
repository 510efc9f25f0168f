import inspect
import math
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from gcig import InputError
from gcig._arguments import optional
from gcig.methods import METHODS
from gcig.methods.fairx.estimator import FairXClassifier
from gcig.methods.parameters import FRACTION, POSITIVE, Parametrised, parameter
from gcig.methods.unconstrained import UnconstrainedClassifier
from gcig.training.loop import DivergenceError

HUGE = 10**400
WRONG = {
    "budget": [-0.1, math.nan, math.inf, "0.3", None, True, HUGE],
    "max_gap": [0, -1.0, math.nan, "0.05"],
    "max_reason_gap": [0, math.nan],
    "min_columns": [-0.1, 1.1],
    "legitimate": [3, [3], {"income": 1}],
    "repair": ["never", None],
    "outcome": ["calibration", None],
    "outcome_weight": [-1, math.nan],
    "standards_weight": [-1, math.nan],
    "references": ["median", None],
    "attribution": ["lime", None],
    "teacher": ["lightgbm", nn.Linear, 3],
    "module": ["resnet", nn.Linear],
    "preprocessing": ["scale", None],
    "hidden_sizes": [8, "8", (0,), (-1,), (2.5,), (True,), None, (HUGE,), [[4]], (2,) * 101, (2**15, 2**14)],
    "activation": ["swish", None, 3, ["relu"]],
    "max_epochs": [0, -3, 2.5, "auto", True, HUGE],
    "batch_size": [0, 2.5, "all", None, HUGE],
    "learning_rate": [0, -1, math.inf, 1e38, "fast", [0.1]],
    "weight_decay": [-1e-3, math.inf],
    "early_stopping": ["yes", None, 1],
    "patience": [0, 1.5],
    "validation_fraction": [0, 1, -0.1, math.nan],
    "threshold": [0, 1, 1.5, "f2", None, True],
    "class_weight": ["equal", 3, {0: 0}, {0: math.nan}, {0: "a"}, [1, 2]],
    "warm_start": [None, "no"],
    "device": ["gpu", 0, None, "cuda:x"],
    "random_state": [-1, 2**32, 1.5, "seed", HUGE, np.random.default_rng(0)],
    "verbose": [None, "yes", -1],
}
RIGHT = {
    "references": ["means", "members", "both"],
    "legitimate": [None, "income", ["income", "debt"]],
    "teacher": [None, nn.Linear(2, 1), FairXClassifier(), np.mean],
    "budget": [0, 0.3, np.float32(0.3), np.int64(2)],
    "max_gap": [None, 0.05, np.float64(1e-3)],
    "module": [None, nn.Linear(2, 1)],
    "hidden_sizes": [(), (64, 32), [8], np.array([8, 4]), (2,) * 100, (2**14, 2**14)],
    "max_epochs": [1, np.int64(3)],
    "batch_size": ["auto", 32, np.int32(8)],
    "learning_rate": ["auto", 1e-3, 1],
    "early_stopping": [True, np.bool_(False)],
    "threshold": ["f1", 0.3, np.float32(0.3)],
    "class_weight": [None, "balanced", {0: 1, 1: 2.5}, {"no": np.float32(1)}],
    "device": ["auto", "cpu", torch.device("cpu"), "cuda:0"],
    "random_state": [None, 0, np.int64(7), 2**32 - 1, np.random.RandomState(0)],
    "verbose": [True, 0, 2],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]])
def test_an_error_names_the_parameter_and_what_is_accepted(name, value):
    model = FairXClassifier(**{name: value})
    with pytest.raises(InputError, match=rf"(?s)^{name} must be .*, not .*\."):
        model.check_parameters()


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in RIGHT for value in RIGHT[name]])
def test_what_is_accepted_passes(name, value):
    FairXClassifier(**{name: value}).check_parameters()


@pytest.mark.parametrize(("key", "task"), [(key, task) for key in METHODS for task in METHODS[key].tasks])
def test_every_parameter_is_checked_and_every_default_passes(key, task):
    estimator = METHODS[key].estimator_for(task)
    assert estimator._declared.keys() == estimator().get_params(deep=False).keys()
    estimator().check_parameters()


def test_every_parameter_of_fairx_has_wrong_values():
    assert set(WRONG) == set(inspect.signature(FairXClassifier).parameters)


def test_the_largest_learning_rate_diverges_as_others_do():
    X, y = np.arange(40.0)[:, None], np.arange(40) % 2
    groups = np.array(["a", "b"])[np.arange(40) // 2 % 2]
    with pytest.raises(DivergenceError):
        UnconstrainedClassifier(learning_rate=3e36, max_epochs=2).fit(X, y, sensitive_features=groups)


def test_a_misspelt_choice_is_guessed():
    with pytest.raises(InputError, match="Did you mean 'relu'"):
        FairXClassifier(activation="ReLu").check_parameters()


def test_a_misspelt_parameter_is_guessed():
    with pytest.raises(TypeError, match="no parameter 'outcome_wait'; did you mean 'outcome_weight'"):
        FairXClassifier(outcome_wait=1.0)
    with pytest.raises(TypeError, match="positional"):
        FairXClassifier(1.0)


@pytest.mark.parametrize("method", [FairXClassifier, UnconstrainedClassifier])
def test_parameters_are_checked_in_fit_and_not_before(method):
    model = method(max_epochs=0)
    with pytest.raises(InputError, match=r"max_epochs must be a positive integer below 2\*\*31, not 0"):
        model.fit([[1.0], [2.0]], [0, 1], sensitive_features=["a", "b"])


# --- Declarations ------------------------------------------------------------------------------------


class Shrunk(Parametrised):
    """A model that is shrunk.

    Attributes
    ----------
    size_ : float
    """

    strength: float = parameter(default=0.5, rule=FRACTION, doc="How strongly.")
    limit: float | str = parameter(default="auto", rule=optional(POSITIVE, "auto"), doc="How far.")


class Rotated(Shrunk, without=("limit",)):
    """A model that is rotated."""

    angle: float = parameter(default=1.0, rule=POSITIVE, doc="How far around.")


class Plain:
    """A class without parameters."""


class RotatedTwice(Plain, Rotated):
    """A model that is rotated twice."""

    angle: float = parameter(default=2.0, rule=POSITIVE, doc="Another default.")


class OwnConstructor(Shrunk):
    def __init__(self, *, strength=0.1):
        super().__init__(strength=strength)


def test_own_parameters_come_first_and_some_are_left_out():
    assert str(inspect.signature(Rotated)) == "(*, angle: float = 1.0, strength: float = 0.5)"
    assert Rotated(strength=0.2).get_params() == {"angle": 1.0, "strength": 0.2}
    assert RotatedTwice().get_params() == {"angle": 2.0, "strength": 0.5}
    assert not hasattr(Rotated, "angle")


def test_parameters_are_documented_before_the_other_sections():
    text = inspect.getdoc(Shrunk)
    assert "strength : number in [0, 1], default 0.5\n    How strongly.\n" in text
    assert "limit : finite number > 0 or 'auto', default 'auto'\n    How far.\n" in text
    assert text.index("is shrunk") < text.index("Parameters") < text.index("Attributes")
    assert inspect.getdoc(Rotated).index("angle") < inspect.getdoc(Rotated).index("strength")


def test_a_constructor_of_its_own_is_kept():
    model = OwnConstructor()
    assert model.get_params() == {"strength": 0.1}
    OwnConstructor(strength=0.3).check_parameters()
    with pytest.raises(InputError, match="strength must be"):
        OwnConstructor(strength=3).check_parameters()


def test_scikit_learn_sees_the_parameters():
    model = Rotated(angle=3.0)
    assert repr(model) == "Rotated(angle=3.0)"
    assert clone(model).get_params() == model.get_params()
    assert pickle.loads(pickle.dumps(model)).angle == 3.0
    with pytest.raises(ValueError, match="Invalid parameter 'limit'"):
        model.set_params(limit=1)
