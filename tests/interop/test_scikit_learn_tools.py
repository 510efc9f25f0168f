"""scikit-learn's tools around our estimators and scorers, beyond the single pipeline and search."""

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import gcig
from example_tables import QUICK, QUICK_CREDIT, fitted_credit, load_credit, make_loans
from gcig.methods.threshold_optimizer import ThresholdOptimizerClassifier
from gcig.methods.unconstrained import UnconstrainedClassifier
from gcig.metrics import equalized_odds_gap, equalized_odds_scorer, gcig_score, gcig_scorer

# Three epochs on half the rows do not learn much.
pytestmark = [
    pytest.mark.filterwarnings("ignore::gcig.methods.fairx.warnings.BoundWarning"),
    pytest.mark.filterwarnings("ignore::gcig.methods.fairx.warnings.CollapseWarning"),
    pytest.mark.filterwarnings("ignore::gcig.methods.fairx.warnings.NothingToRepairWarning"),
    pytest.mark.filterwarnings("ignore::gcig.methods.fairx.warnings.ThresholdWarning"),
]


@pytest.fixture
def routing():
    with config_context(enable_metadata_routing=True):
        yield


@pytest.fixture(scope="module")
def credit():
    X, y, sex = load_credit()
    return X.drop(columns=X.columns[X.isna().any()]), y, sex


def requesting(**parameters):
    return gcig.FairXClassifier(**{**QUICK_CREDIT, **parameters})


def encoding():
    """Numbers scaled and categories one-hot by scikit-learn, as a table of numbers with names."""
    text = make_column_selector(dtype_exclude=["number", "bool"])
    transformer = make_column_transformer(
        (OneHotEncoder(sparse_output=False, handle_unknown="ignore"), text),
        (StandardScaler(), make_column_selector(dtype_include=["number", "bool"])),
    )
    return transformer.set_output(transform="pandas")


@pytest.mark.usefixtures("routing")
def test_cross_validation_of_a_pipeline_with_an_encoder_of_its_own(credit):
    X, y, sex = credit
    X = X[["credit_amount", "credit_history", "age"]]
    pipeline = make_pipeline(encoding(), requesting(preprocessing="none"))
    found = cross_validate(
        pipeline,
        X,
        y,
        params={"sensitive_features": sex},
        scoring={"auc": "roc_auc", "eo_gap": equalized_odds_scorer(), "gcig": gcig_scorer()},
        cv=2,
        return_estimator=True,
        return_indices=True,
    )
    assert (found["test_auc"] > 0.5).all()
    for fold, fitted in enumerate(found["estimator"]):
        rows = found["indices"]["test"][fold]
        part = {"sensitive_features": sex.iloc[rows]}
        gap = equalized_odds_gap(y.iloc[rows], fitted.predict(X.iloc[rows]), **part)
        assert found["test_eo_gap"][fold] == pytest.approx(-gap)
        assert found["test_gcig"][fold] == pytest.approx(
            -gcig_score(fitted, X.iloc[rows], y.iloc[rows], **part)
        )


@pytest.mark.usefixtures("routing")
def test_a_search_that_refits_by_a_rule_of_the_users(credit):
    X, y, sex = credit

    def fairest_that_predicts(results):
        good = results["mean_test_auc"] >= results["mean_test_auc"].max() - 0.2
        return int(np.flatnonzero(good)[results["mean_test_gcig"][good].argmax()])

    search = RandomizedSearchCV(
        requesting(),
        {"budget": [0.0, 0.5]},
        n_iter=2,
        scoring={"auc": "roc_auc", "gcig": gcig_scorer()},
        refit=fairest_that_predicts,
        cv=2,
        random_state=0,
    )
    search.fit(X, y, sensitive_features=sex)
    found = pd.DataFrame(search.cv_results_)
    assert search.best_index_ == fairest_that_predicts(search.cv_results_)
    assert found["mean_test_gcig"][search.best_index_] > found["mean_test_gcig"].min()
    assert search.best_estimator_.budget == search.best_params_["budget"]


@pytest.mark.usefixtures("routing")
def test_a_pipeline_of_one_step_is_measured_like_its_estimator(credit):
    X, y, groups = credit
    pipeline = make_pipeline(requesting())
    pipeline.fit(X, y, sensitive_features=groups)
    alone = pipeline[-1]
    found = gcig.evaluate(pipeline, X, y, sensitive_features=groups, n_bootstrap=0)
    expected = gcig.evaluate(alone, X, y, sensitive_features=groups, n_bootstrap=0)
    assert found.gcig == expected.gcig
    scorer = gcig_scorer()
    assert scorer(pipeline, X, y, sensitive_features=groups) == scorer(alone, X, y, sensitive_features=groups)


@pytest.mark.usefixtures("routing")
def test_a_search_inside_a_pipeline_and_over_its_parameters(credit):
    X, y, sex = credit
    pipeline = make_pipeline(encoding(), requesting(preprocessing="none", max_epochs=2))
    search = GridSearchCV(
        pipeline, {"fairxclassifier__hidden_sizes": [(4,), (8,)]}, scoring=equalized_odds_scorer(), cv=2
    )
    search.fit(X, y, sensitive_features=sex)
    width = search.best_params_["fairxclassifier__hidden_sizes"]
    assert search.best_estimator_[-1].module_.hidden_sizes == width
    assert len(set(search.best_estimator_[-1].groups_)) == 2


@pytest.mark.usefixtures("routing")
def test_a_method_that_predicts_by_group_gets_the_groups_of_scored_rows(credit):
    X, y, sex = credit
    model = ThresholdOptimizerClassifier(**QUICK_CREDIT)
    scores = cross_validate(model, X, y, params={"sensitive_features": sex}, cv=2)["test_score"]
    assert ((scores > 0.5) & (scores < 1)).all()


@pytest.mark.usefixtures("routing")
def test_our_scorers_on_models_that_are_not_ours(credit):
    X, y, sex = credit
    pipeline = make_pipeline(encoding(), LogisticRegression(max_iter=500))
    scoring = {"eo_gap": equalized_odds_scorer(), "gcig": gcig_scorer()}
    found = cross_validate(pipeline, X, y, params={"sensitive_features": sex}, scoring=scoring, cv=2)
    assert (found["test_gcig"] < 0).all()
    assert (found["test_eo_gap"] <= 0).all()


def test_calibration_and_voting_around_fitted_models(credit):
    X, y, sex = load_credit()
    model = fitted_credit()
    calibrated = CalibratedClassifierCV(FrozenEstimator(model)).fit(X, y)
    order = np.argsort(model.decision_function(X))
    assert (np.diff(calibrated.predict_proba(X)[order, 1]) >= -1e-9).all()
    assert equalized_odds_gap(y, calibrated.predict(X), sensitive_features=sex) >= 0


@pytest.mark.usefixtures("routing")
def test_a_vote_of_our_estimators(credit):
    X, y, sex = credit
    plain = UnconstrainedClassifier(**QUICK_CREDIT)
    vote = VotingClassifier([("fair", requesting()), ("plain", plain)], voting="soft")
    vote.fit(X, y, sensitive_features=sex)
    means = np.mean([each.predict_proba(X) for each in vote.estimators_], axis=0)
    assert np.allclose(vote.predict_proba(X), means)


@pytest.mark.parametrize("compress", [0, 3])
def test_joblib_keeps_a_fitted_model(tmp_path, compress):
    X, *_ = load_credit()
    model = fitted_credit()
    joblib.dump(model, tmp_path / "model.joblib", compress=compress)
    twin = joblib.load(tmp_path / "model.joblib")
    assert np.array_equal(twin.predict_proba(X), model.predict_proba(X))
    assert np.array_equal(twin.explain(X[:5]).attributions, model.explain(X[:5]).attributions)
    assert twin.get_params() == model.get_params()


@pytest.mark.usefixtures("routing")
def test_clones_keep_what_they_request_and_their_network():
    import torch

    model = requesting(module=torch.nn.Linear(5, 1), class_weight="balanced")
    twin = clone(model)
    assert twin.get_metadata_routing().fit.requests == model.get_metadata_routing().fit.requests
    assert twin.module is not model.module
    assert torch.equal(twin.module.weight, model.module.weight)


def test_memory_of_joblib_returns_the_stored_fit(tmp_path, credit):
    X, y, sex = credit
    calls = []

    def fit(seed):
        calls.append(seed)
        model = UnconstrainedClassifier(**QUICK_CREDIT | {"random_state": seed})
        return model.fit(X, y, sensitive_features=sex)

    cached = joblib.Memory(tmp_path, verbose=0).cache(fit)
    first, second = cached(1), cached(1)
    assert calls == [1]
    assert np.array_equal(first.predict_proba(X), second.predict_proba(X))


def test_tables_as_output_of_transformers_do_not_change_a_fit():
    loans = make_loans(120)
    plain = UnconstrainedClassifier(**QUICK).fit(loans.X, loans.y, **loans.groups)
    with config_context(transform_output="pandas"):
        again = UnconstrainedClassifier(**QUICK).fit(loans.X, loans.y, **loans.groups)
        assert np.array_equal(again.predict_proba(loans.X), plain.predict_proba(loans.X))
