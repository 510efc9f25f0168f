"""Which original column each transformed one came from."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, PolynomialFeatures, StandardScaler

import gcig
from gcig.adapters import adapt
from gcig.adapters.origin import categorical_columns, column_origin
from gcig.methods.unconstrained import UnconstrainedClassifier

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "age": np.where(RNG.random(120) < 0.1, np.nan, RNG.normal(40, 9, 120)),
        "job": RNG.choice(["a", "b", "c", "d"], 120, p=[0.5, 0.3, 0.15, 0.05]),
        "sex": RNG.choice(["f", "m"], 120),
        "hours": RNG.normal(size=120),
    }
)
Y = (TABLE["hours"] + (TABLE["job"] == "a") > 0.5).astype(int)
NUMBERS = make_pipeline(SimpleImputer(), StandardScaler())


@pytest.mark.parametrize(
    ("transformer", "expected"),
    [
        (
            make_column_transformer((OneHotEncoder(), ["job", "sex"]), (NUMBERS, ["hours", "age"])),
            [1] * 4 + [2] * 2 + [3, 0],
        ),
        (make_column_transformer((OneHotEncoder(drop="if_binary"), ["sex", "job"])), [2] + [1] * 4),
        (make_column_transformer((OneHotEncoder(drop="first"), [1, 2]), remainder="drop"), [1] * 3 + [2]),
        (make_column_transformer((OneHotEncoder(min_frequency=0.2), ["job"])), [1] * 3),
        (make_column_transformer((NUMBERS, ["age"]), ("passthrough", ["hours"])), [0, 3]),
        (make_column_transformer((MinMaxScaler(), make_column_selector(dtype_include=float))), [0, 3]),
        (
            make_column_transformer(
                (MinMaxScaler(), slice(3, 4)), (OneHotEncoder(), [False, False, True, False])
            ),
            [3, 2, 2],
        ),
    ],
)
def test_origin(transformer, expected: list[int]) -> None:
    transformed = transformer.fit_transform(TABLE)
    origin = column_origin(transformer, 4)
    assert origin.tolist() == expected
    assert transformed.shape[1] == len(expected)


@pytest.mark.parametrize(
    "transformer",
    [
        PCA(1),
        PolynomialFeatures(),
        SimpleImputer(add_indicator=True),
        make_pipeline(SimpleImputer(), SelectKBest(k=1)),
        make_column_transformer((make_pipeline(SimpleImputer(), PCA(1)), ["age", "hours"])),
    ],
)
def test_mixed_columns_have_no_origin(transformer) -> None:
    rows = TABLE[["age", "hours"]].fillna(1.0)
    assert column_origin(transformer.fit(rows, Y), 2) is None


def test_a_pipeline_with_a_gcig_estimator_uses_its_gradients_and_baselines() -> None:
    encoder = make_column_transformer((OneHotEncoder(), ["job", "sex"]), (NUMBERS, ["hours", "age"]))
    model = Pipeline([("encode", encoder), ("own", UnconstrainedClassifier(max_epochs=20, random_state=0))])
    groups = RNG.choice(["f", "m"], len(TABLE))
    model.fit(TABLE, Y, own__sensitive_features=groups)
    adapted = adapt(model, TABLE)
    assert adapted.kind == "scikit-learn pipeline with a gcig estimator"
    assert adapted.explanation == "integrated gradients"
    assert adapted.original_names == ("age", "job", "sex", "hours")
    assert adapted.origin.tolist() == [1] * 4 + [2] * 2 + [3, 0]
    assert adapted.groups == ("f", "m")
    encoded = adapted.encode(TABLE)
    cell = ((Y == 1) & (groups == "m")).to_numpy()
    np.testing.assert_allclose(adapted.baselines[1, 1], encoded[cell].mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(adapted.outputs(encoded), model.decision_function(TABLE), rtol=1e-5)
    np.testing.assert_array_equal(
        adapted.predict(TABLE, encoded=adapted.encode(TABLE)).decisions, model.predict(TABLE)
    )


def test_a_linear_pipeline_is_explained_exactly() -> None:
    encoder = make_column_transformer((OneHotEncoder(), ["job", "sex"]), (NUMBERS, ["hours", "age"]))
    model = make_pipeline(encoder, LogisticRegression()).fit(TABLE, Y)
    adapted = adapt(model, TABLE)
    encoded = adapted.encode(TABLE)
    assert adapted.kind == "scikit-learn pipeline with a linear classifier"
    assert adapted.original_names == ("age", "job", "sex", "hours")
    assert len(adapted.columns) == encoded.shape[1] == 8
    np.testing.assert_allclose(adapted.outputs(encoded), model.decision_function(TABLE))
    np.testing.assert_allclose(adapted.scores(TABLE), model.predict_proba(TABLE)[:, 1])
    np.testing.assert_array_equal(
        adapted.predict(TABLE, encoded=adapted.encode(TABLE)).decisions, model.predict(TABLE)
    )


def test_without_probabilities() -> None:
    model = make_pipeline(StandardScaler(), RidgeClassifier()).fit(TABLE[["hours"]], Y)
    adapted = adapt(model, TABLE[["hours"]])
    assert not adapted.probabilistic
    assert np.isnan(adapted.threshold)


def test_a_pipeline_that_mixes_columns_is_explained_by_shapley_values() -> None:
    rows = TABLE[["age", "hours"]].fillna(1.0)
    assert (
        adapt(make_pipeline(PCA(1), LogisticRegression()).fit(rows, Y), rows).explanation == "Shapley values"
    )


def test_columns_that_the_model_treats_as_categories() -> None:
    encoder = make_column_transformer(
        (NUMBERS, ["age"]),
        (make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder()), ["sex", "job"]),
    )
    assert categorical_columns(make_pipeline(encoder, LogisticRegression()).fit(TABLE, Y)) == [2, 1]
    assert categorical_columns(LogisticRegression()) == []


@pytest.mark.parametrize("rows", [TABLE[["hours", "job"]], TABLE[["hours"]], TABLE[["hours"]].to_numpy()])
def test_a_pipeline_of_one_step_is_that_step(rows) -> None:
    groups = RNG.choice(["f", "m"], len(TABLE))
    model = Pipeline([("own", UnconstrainedClassifier(max_epochs=2, random_state=0))])
    model.fit(rows, Y, own__sensitive_features=groups)
    assert adapt(model, rows).model is model.steps[0][1]
    assert gcig.metrics.gcig_score(model, rows, Y, sensitive_features=groups) == gcig.metrics.gcig_score(
        model.steps[0][1], rows, Y, sensitive_features=groups
    )


def test_a_search_over_an_estimator_of_this_package_has_its_gradients() -> None:
    search = GridSearchCV(UnconstrainedClassifier(max_epochs=2, random_state=0), {"max_epochs": [2]}, cv=2)
    search.fit(TABLE, Y, sensitive_features=pd.Series(RNG.choice(["f", "m"], len(TABLE))))
    assert adapt(search).model is search.best_estimator_
