import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.tree import DecisionTreeClassifier

from gcig._arguments import InputError
from gcig.core.definition import Definition
from gcig.metrics import equalized_odds_gap, equalized_odds_scorer, gcig_score, gcig_scorer

RNG = np.random.default_rng(0)
SEX = pd.Series(RNG.choice(["f", "m"], 300), index=np.arange(1000, 1300), name="sex")
X = pd.DataFrame(RNG.normal(size=(300, 3)), columns=list("abc"), index=SEX.index)
X["a"] += SEX == "m"
Y = (X.sum(axis=1) + RNG.normal(size=300) > 0.5).astype(int)
FOLDS = KFold(3)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def expected_scores() -> tuple[list[float], list[float]]:
    gaps, gcigs = [], []
    for train, test in FOLDS.split(X):
        model = LogisticRegression().fit(X.iloc[train], Y.iloc[train])
        rows, labels, groups = X.iloc[test], Y.iloc[test], SEX.iloc[test]
        gaps.append(-equalized_odds_gap(labels, model.predict(rows), sensitive_features=groups))
        gcigs.append(-gcig_score(model, rows, labels, sensitive_features=groups))
    return gaps, gcigs


def test_cross_validate_routes_the_groups(routing: None) -> None:
    scoring = {"eo": equalized_odds_scorer(), "gcig": gcig_scorer(), "auc": "roc_auc"}
    found = cross_validate(
        LogisticRegression(), X, Y, cv=FOLDS, scoring=scoring, params={"sensitive_features": SEX}
    )
    gaps, gcigs = expected_scores()
    np.testing.assert_allclose(found["test_eo"], gaps)
    np.testing.assert_allclose(found["test_gcig"], gcigs)
    assert (found["test_auc"] > 0.5).all()


def test_grid_search_routes_the_groups(routing: None) -> None:
    search = GridSearchCV(LogisticRegression(), {"C": [0.01, 1.0]}, cv=FOLDS, scoring=gcig_scorer())
    search.fit(X, Y, sensitive_features=SEX)
    scores = search.cv_results_["mean_test_score"]
    assert scores[1] == pytest.approx(np.mean(expected_scores()[1]))
    assert search.best_params_["C"] == [0.01, 1.0][int(np.argmax(scores))]


@pytest.mark.parametrize("with_routing", [False, True])
def test_carried_groups_need_no_routing(with_routing: bool) -> None:
    shuffled = SEX.sample(frac=1, random_state=0)
    scoring = {
        "eo": equalized_odds_scorer(sensitive_features=shuffled),
        "gcig": gcig_scorer(sensitive_features=shuffled.to_frame()),
    }
    with sklearn.config_context(enable_metadata_routing=with_routing):
        found = cross_validate(LogisticRegression(), X, Y, cv=FOLDS, scoring=scoring)
    gaps, gcigs = expected_scores()
    np.testing.assert_allclose(found["test_eo"], gaps)
    np.testing.assert_allclose(found["test_gcig"], gcigs)


def test_equalized_odds_takes_any_classifier_and_aggregate() -> None:
    model = DecisionTreeClassifier(max_depth=2).fit(X, Y)
    worst = equalized_odds_scorer(agg="worst")(model, X, Y, sensitive_features=SEX)
    assert worst == -equalized_odds_gap(Y, model.predict(X), sensitive_features=SEX, agg="worst")


def test_definition_is_used() -> None:
    model = LogisticRegression().fit(X, Y)
    definition = Definition(norm="l2")
    found = gcig_scorer(definition=definition)(model, X, Y, sensitive_features=SEX)
    assert found == -gcig_score(model, X, Y, sensitive_features=SEX, definition=definition)


def test_unknown_groups_are_an_error() -> None:
    model = LogisticRegression().fit(X, Y)
    with pytest.raises(InputError, match=r"gcig_scorer.*enable_metadata_routing"):
        gcig_scorer()(model, X, Y)
    with pytest.raises(InputError, match="index"):
        gcig_scorer(sensitive_features=SEX)(model, X.reset_index(drop=True), Y)
    with pytest.raises(InputError, match="index"):
        gcig_scorer(sensitive_features=SEX)(model, X.to_numpy(), Y)
    for known in (SEX[:-1], pd.concat([SEX, SEX[:1]])):  # a row is unknown, and another is known twice
        with pytest.raises(InputError, match="index of sensitive_features, without repetition"):
            gcig_scorer(sensitive_features=known)(model, X, Y)
