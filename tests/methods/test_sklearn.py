import inspect
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import _num_samples, check_is_fitted
from torch import nn

from example_tables import QUICK, make_loans
from gcig.methods.fairx.estimator import FairXClassifier, FairXRegressor
from gcig.methods.unconstrained import UnconstrainedClassifier, UnconstrainedRegressor
from gcig.metrics import equalized_odds_gap, equalized_odds_scorer, gcig_score, gcig_scorer

pytestmark = [  # students of few epochs
    pytest.mark.filterwarnings(f"ignore::gcig.methods.fairx.warnings.{kind}Warning")
    for kind in ("Bound", "Collapse", "Reasons", "Threshold")
]
LOANS = make_loans()
METHODS = [FairXClassifier, UnconstrainedClassifier]

# --- scikit-learn's own checks -----------------------------------------------------------------------


def made_up_groups(model, X, y, sample_weight):
    """Two groups that both have rows of every class: every other row of each."""
    rows = pd.DataFrame({"label": "none", "counts": True}, index=range(_num_samples(X)))
    if y is not None and is_classifier(model):
        rows["label"] = [str(value) for value in np.asarray(y, dtype=object).ravel()]
    if sample_weight is not None:
        rows["counts"] = np.asarray(sample_weight, dtype=float) > 0
    return (rows.groupby(["label", "counts"]).cumcount() % 2).to_numpy()


class WithGroups:
    def fit(self, X, y, *, sensitive_features=None, sample_weight=None):
        if sensitive_features is None:
            sensitive_features = made_up_groups(self, X, y, sample_weight)
        return super().fit(X, y, sensitive_features=sensitive_features, sample_weight=sample_weight)


class FairXClassifierWithGroups(WithGroups, FairXClassifier):
    pass


class FairXRegressorWithGroups(WithGroups, FairXRegressor):
    pass


class PlainClassifierWithGroups(WithGroups, UnconstrainedClassifier):
    pass


class PlainRegressorWithGroups(WithGroups, UnconstrainedRegressor):
    pass


_WEIGHTS = (
    "a row of weight two is not two rows: mini-batches and the held-out part are drawn by row, and the "
    "encoder and the baselines count each row once"
)
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": _WEIGHTS,
    "check_sample_weight_equivalence_on_sparse_data": _WEIGHTS,
    "check_methods_subset_invariance": (
        "scores are single precision, and a matrix product of one row may round its last digit differently "
        "from one of many"
    ),
}

_SUPPORTED = inspect.signature(parametrize_with_checks).parameters
_NOT_STRICT = {"xfail_strict": False} if "xfail_strict" in _SUPPORTED else {}  # of newer versions


CHECKS = {"legacy": True, "expected_failed_checks": lambda _: EXPECTED_FAILURES, **_NOT_STRICT}


@pytest.mark.filterwarnings("ignore::UserWarning")  # about small cells: most tables of the checks are noise
@parametrize_with_checks(
    [kind(random_state=0, device="cpu") for kind in (PlainClassifierWithGroups, PlainRegressorWithGroups)],
    **CHECKS,
)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # about collapse, too
@parametrize_with_checks(
    [
        kind(random_state=0, device="cpu", repair="always", max_epochs=20)
        for kind in (FairXClassifierWithGroups, FairXRegressorWithGroups)
    ],
    **CHECKS,
)
def test_checks_of_scikit_learn_on_fairx(estimator, check):
    check(estimator)


# --- Parameters --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_every_parameter_has_a_default_and_can_be_set(method):
    model = method()
    for name, value in model.get_params().items():
        model.set_params(**{name: value})
    assert is_classifier(model)
    assert set(model.get_params()) == set(inspect.signature(method).parameters)


@pytest.mark.parametrize("method", METHODS)
def test_a_clone_has_the_parameters_and_nothing_learned(method):
    model = method(**QUICK, class_weight={0: 1.0, 1: 2.0}).fit(LOANS.X, LOANS.y, **LOANS.groups)
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        check_is_fitted(twin)
    twin.fit(LOANS.X, LOANS.y, **LOANS.groups)
    assert np.array_equal(twin.decision_function(LOANS.X), model.decision_function(LOANS.X))


def test_a_users_network_is_cloned():
    network = nn.Linear(7, 1)
    twin = clone(FairXClassifier(module=network))
    assert twin.module is not network
    assert torch.equal(twin.module.weight, network.weight)


@pytest.mark.parametrize("method", METHODS)
def test_a_fitted_model_can_be_pickled(method):
    model = method(**QUICK).fit(LOANS.X, LOANS.y, **LOANS.groups)
    twin = pickle.loads(pickle.dumps(model))
    assert np.array_equal(twin.predict_proba(LOANS.X), model.predict_proba(LOANS.X))
    assert twin.explain(LOANS.X.iloc[:2]).groups == ("female", "male")


def test_the_repr_shows_changed_parameters():
    assert repr(FairXClassifier(budget=0.07)) == "FairXClassifier(budget=0.07)"
    assert "FairXClassifier" in FairXClassifier()._repr_html_()


def test_missing_values_are_allowed_if_they_are_imputed():
    assert FairXClassifier().__sklearn_tags__().input_tags.allow_nan
    assert not FairXClassifier(preprocessing="none").__sklearn_tags__().input_tags.allow_nan


# --- Metadata routing --------------------------------------------------------------------------------


@pytest.fixture
def routing():
    with config_context(enable_metadata_routing=True):
        yield


def requesting(**parameters):
    return FairXClassifier(**{**QUICK, "repair": "always", **parameters})


@pytest.mark.usefixtures("routing")
def test_a_pipeline_hands_the_groups_on():
    pipeline = make_pipeline(StandardScaler(), requesting(preprocessing="none"))
    pipeline.fit(LOANS.numbers, LOANS.y, sensitive_features=LOANS.sex)
    scaled = StandardScaler().fit_transform(LOANS.numbers)
    alone = FairXClassifier(**QUICK, preprocessing="none").fit(scaled, LOANS.y, **LOANS.groups)
    assert np.array_equal(pipeline.predict(LOANS.numbers), alone.predict(scaled))
    assert pipeline[-1].groups_ == ("female", "male")


def test_a_pipeline_without_routing():
    pipeline = make_pipeline(StandardScaler(), FairXClassifier(**QUICK))
    pipeline.fit(LOANS.numbers, LOANS.y, fairxclassifier__sensitive_features=LOANS.sex)
    assert pipeline.predict(LOANS.numbers).shape == (400,)


@pytest.mark.usefixtures("routing")
def test_groups_are_routed_without_a_request():
    pipeline = make_pipeline(StandardScaler(), requesting(preprocessing="none"))
    search = GridSearchCV(pipeline, {"fairxclassifier__budget": [0.0, 0.1]}, cv=2)
    search.fit(LOANS.numbers, LOANS.y, sensitive_features=LOANS.sex)
    assert (search.cv_results_["mean_test_score"] > 0.5).all()
    assert search.best_estimator_[-1].groups_ == ("female", "male")


@pytest.mark.usefixtures("routing")
def test_groups_that_are_not_wanted_are_refused():
    model = FairXClassifier(**QUICK).set_fit_request(sensitive_features=None)
    pipeline = make_pipeline(StandardScaler(), model)
    with pytest.raises(UnsetMetadataPassedError, match="sensitive_features"):
        pipeline.fit(LOANS.numbers, LOANS.y, sensitive_features=LOANS.sex)


@pytest.mark.slow
@pytest.mark.usefixtures("routing")
def test_grid_search_over_budgets_with_fairness_scorers():
    search = GridSearchCV(
        requesting(max_epochs=10),
        {"budget": [0.0, 0.2]},
        scoring={"auc": "roc_auc", "eo_gap": equalized_odds_scorer(), "gcig": gcig_scorer()},
        refit="gcig",
        cv=2,
    )
    search.fit(LOANS.X, LOANS.y, sensitive_features=LOANS.sex)
    found = pd.DataFrame(search.cv_results_)
    assert found[["mean_test_auc", "mean_test_eo_gap", "mean_test_gcig"]].notna().all(axis=None)
    assert found["mean_test_gcig"].lt(0).all()
    assert search.best_params_ == {"budget": 0.2}
    assert search.best_estimator_.groups_ == ("female", "male")
    assert search.predict(LOANS.X).shape == (400,)


@pytest.mark.usefixtures("routing")
def test_cross_validation_scores_are_those_of_the_metrics():
    result = cross_validate(
        requesting(),
        LOANS.X,
        LOANS.y,
        params={"sensitive_features": LOANS.sex},
        scoring={"eo_gap": equalized_odds_scorer(agg="worst"), "gcig": gcig_scorer()},
        cv=2,
        return_estimator=True,
        return_indices=True,
    )
    for fold, model in enumerate(result["estimator"]):
        rows = result["indices"]["test"][fold]
        X, y, sex = LOANS.X.iloc[rows], LOANS.y.iloc[rows], LOANS.sex.iloc[rows]
        gap = equalized_odds_gap(y, model.predict(X), sensitive_features=sex, agg="worst")
        assert result["test_eo_gap"][fold] == pytest.approx(-gap)
        assert result["test_gcig"][fold] == pytest.approx(-gcig_score(model, X, y, sensitive_features=sex))


@pytest.mark.slow
@pytest.mark.usefixtures("routing")
def test_weights_are_routed_beside_groups():
    model = requesting().set_fit_request(sample_weight=True)
    params = {"sensitive_features": LOANS.sex, "sample_weight": np.where(LOANS.y == 1, 3.0, 1.0)}
    weighted = cross_val_predict(model, LOANS.X, LOANS.y, params=params, cv=2)
    plain = cross_val_predict(requesting(), LOANS.X, LOANS.y, params={"sensitive_features": LOANS.sex}, cv=2)
    assert weighted.mean() > plain.mean()


def test_scorers_may_carry_the_groups_themselves():
    scorer = gcig_scorer(sensitive_features=LOANS.sex)
    model = FairXClassifier(**QUICK).fit(LOANS.X, LOANS.y, **LOANS.groups)
    half = LOANS.X.iloc[::2]
    expected = gcig_score(model, half, LOANS.y.iloc[::2], sensitive_features=LOANS.sex.iloc[::2])
    assert scorer(model, half, LOANS.y.iloc[::2]) == pytest.approx(-expected)


@pytest.mark.usefixtures("routing")
@pytest.mark.slow
def test_grid_search_in_other_processes():
    search = GridSearchCV(
        requesting(max_epochs=2), {"budget": [0.0, 0.1]}, scoring=equalized_odds_scorer(), cv=2, n_jobs=2
    )
    search.fit(LOANS.X, LOANS.y, sensitive_features=LOANS.sex)
    alone = clone(search).set_params(n_jobs=None).fit(LOANS.X, LOANS.y, sensitive_features=LOANS.sex)
    assert np.array_equal(search.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])
