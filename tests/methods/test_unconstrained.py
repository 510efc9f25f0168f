import numpy as np
import pytest
from loans import QUICK, make_loans
from sklearn.metrics import roc_auc_score

from gcig._validation import InputError
from gcig.methods.fairx import FairXClassifier
from gcig.methods.registry import METHODS
from gcig.methods.unconstrained import UnconstrainedClassifier
from gcig.training import DivergenceError

LOANS, TEST = make_loans(), make_loans(seed=1)


def fitted(**parameters):
    return UnconstrainedClassifier(**{**QUICK, **parameters}).fit(LOANS.X, LOANS.y, **LOANS.groups)


def test_it_learns():
    model = fitted(max_epochs=10)
    assert roc_auc_score(TEST.y, model.decision_function(TEST.X)) > 0.9
    assert model.groups_ == ("female", "male")
    assert model.baselines_.shape == (2, 2, 7)


def test_it_is_fairx_without_fairness_terms():
    plain, fairx = fitted(), FairXClassifier(**QUICK, lambda_ig=0, lambda_fair=0)
    fairx.fit(LOANS.X, LOANS.y, **LOANS.groups)
    assert np.array_equal(plain.decision_function(TEST.X), fairx.decision_function(TEST.X))


def test_its_parameters_are_those_of_fairx_with_the_same_defaults():
    plain, fairx = UnconstrainedClassifier().get_params(), FairXClassifier().get_params()
    assert plain.items() <= fairx.items()
    assert fairx.keys() - plain.keys() == {
        "lambda_ig",
        "lambda_fair",
        "outcome",
        "max_gcig",
        "max_eo_gap",
        "max_auc_drop",
        "norm",
        "rule",
        "n_steps",
        "penalty_rows",
        "penalty_every",
        "ema_rate",
    }


def test_the_groups_do_not_change_the_network():
    swapped = LOANS.sex.map({"female": "male", "male": "female"})
    other = UnconstrainedClassifier(**QUICK, early_stopping=False).fit(
        LOANS.X, LOANS.y, sensitive_features=swapped
    )
    assert np.array_equal(
        other.decision_function(TEST.X), fitted(early_stopping=False).decision_function(TEST.X)
    )


def test_history():
    model = fitted()
    assert list(model.history_.columns) == [
        "epoch",
        "prediction",
        "total",
        "val_log_loss",
        "val_auc",
        "val_eo_gap",
    ]
    assert np.array_equal(model.history_["prediction"], model.history_["total"])
    assert model.n_epochs_ in model.history_["epoch"].tolist()


def test_groups_are_asked_for():
    with pytest.raises(InputError, match="sensitive_features is missing"):
        UnconstrainedClassifier().fit(LOANS.X, LOANS.y)


def test_divergence_is_said():
    with pytest.raises(DivergenceError, match=r"diverged in epoch 1.*as it was before fit"):
        fitted(learning_rate=1e12)


def test_it_is_registered():
    assert METHODS["unconstrained"].estimator is UnconstrainedClassifier
    assert METHODS["unconstrained"].search_space.keys() <= UnconstrainedClassifier().get_params().keys()
