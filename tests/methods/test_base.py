from types import SimpleNamespace

import pytest

from gcig.methods.base import _describe_divergence, _forget_fit, _restored_on_error
from gcig.training.loop import DivergenceError, Outcome


def test_an_error_restores_all_attributes():
    estimator = SimpleNamespace(alpha=1, module_="old")

    def fit():
        with _restored_on_error(estimator):
            estimator.module_, estimator.classes_ = "new", [0, 1]
            del estimator.alpha
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit()
    assert vars(estimator) == {"alpha": 1, "module_": "old"}


def test_without_an_error_changes_stay():
    estimator = SimpleNamespace(module_="old")
    with _restored_on_error(estimator):
        estimator.module_ = "new"
    assert estimator.module_ == "new"


def test_only_learned_attributes_are_removed():
    estimator = SimpleNamespace(alpha=1, _cache_=2, module_=3, n_features_in_=4)
    _forget_fit(estimator)
    assert vars(estimator) == {"alpha": 1, "_cache_": 2}


@pytest.mark.parametrize(("usable", "state"), [(True, "predicts with them"), (False, "as it was before fit")])
def test_the_error_describes_the_state_of_the_estimator(usable, state):
    cause = DivergenceError("training diverged.", Outcome((), 3))
    described = _describe_divergence(cause, usable=usable)
    assert str(described).startswith("training diverged. The estimator ")
    assert state in str(described)
    assert described.epoch == 3
    assert described.__cause__ is cause
