"""Models that are only called: what they are given, what is read from their answers, and their reasons."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import gcig
from gcig._arguments import InputError
from gcig.adapters import adapt

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "age": RNG.normal(40, 10, 300),
        "job": RNG.choice(["clerk", "nurse", "smith"], 300),
        "hours": RNG.integers(10, 60, 300),
        "zone": pd.Categorical(RNG.choice(["n", "s"], 300), categories=["n", "s", "w"]),
        "owner": RNG.random(300) < 0.4,
    }
)
SEX = np.where(RNG.random(300) < 0.3 + 0.4 * (TABLE["job"] == "nurse"), "f", "m")
Y = np.where(
    TABLE["age"] / 10 + (TABLE["job"] == "smith") + TABLE["owner"] + RNG.normal(size=300) > 4.6, "yes", "no"
)
ENCODER = make_column_transformer(
    (OneHotEncoder(), ["job", "zone"]), (StandardScaler(), ["age", "hours"]), remainder="passthrough"
)
LINEAR = make_pipeline(ENCODER, LogisticRegression()).fit(TABLE, Y)


class TestTables:
    def test_decoding_restores_the_rows(self) -> None:
        adapted = adapt(LINEAR.predict_proba, TABLE)
        entries = adapted.encoding.entries(adapted.encode(TABLE))
        back = adapted.encoding.decode(entries)
        pd.testing.assert_frame_equal(back, TABLE.astype({"hours": float}))

    def test_arrays_stay_arrays(self) -> None:
        rows = TABLE[["age", "hours"]].to_numpy()
        seen = []

        def model(X):
            seen.append(type(X))
            return np.full(len(X), 0.3)

        adapted = adapt(model, rows)
        adapted.outputs(adapted.encode(rows))
        assert seen[-1] is np.ndarray
        assert adapted.original_names == ("x0", "x1")

    def test_categories_of_the_reference_are_known(self) -> None:
        few = TABLE[TABLE["job"] != "nurse"]
        with pytest.raises(InputError, match=r"'job' has .* new categories"):
            adapt(LINEAR.predict_proba, few).encode(TABLE)
        adapted = adapt(LINEAR.predict_proba, few, reference=TABLE)
        assert adapted.encode(TABLE).shape[0] == 300

    def test_an_identifier_is_refused(self) -> None:
        table = pd.DataFrame({"id": [f"n{i}" for i in range(1200)]})
        with pytest.raises(InputError, match="1200 categories"):
            adapt(lambda X: np.zeros(len(X)), table)

    def test_integer_categories_of_boosted_trees(self) -> None:
        table = TABLE[["hours", "age"]]
        model = HistGradientBoostingClassifier(categorical_features=["hours"], max_iter=3)
        adapted = adapt(
            model.fit(table.assign(hours=table["hours"] // 10), Y), table.assign(hours=table["hours"] // 10)
        )
        assert type(adapted.encoding.columns[0]).__name__ == "CategoryColumn"


class TestAnswers:
    @pytest.mark.parametrize(
        "answer", [lambda p: p, lambda p: p[:, None], lambda p: np.stack([1 - p, p], axis=1), list]
    )
    def test_shapes_of_probabilities(self, answer) -> None:
        chance = RNG.random(300)
        adapted = adapt(lambda X: answer(chance[: len(X)]), TABLE)
        np.testing.assert_allclose(adapted.scores(TABLE), chance)
        np.testing.assert_array_equal(
            adapted.predict(TABLE, encoded=adapted.encode(TABLE)).decisions, chance >= 0.5
        )

    def test_score_and_decision_take_one_call(self) -> None:
        seen = []

        def model(table):
            seen.append(len(table))
            return np.full(len(table), 0.6)

        adapted = adapt(model, TABLE)
        outputs = adapted.predict(TABLE, encoded=adapted.encode(TABLE))
        assert seen == [len(TABLE)]
        assert outputs.decisions.all()

    def test_other_outputs_are_refused(self) -> None:
        with pytest.raises(InputError, match=r"shape \(300, 3\)"):
            adapt(lambda X: np.zeros((len(X), 3)), TABLE).scores(TABLE)
        with pytest.raises(InputError, match=r"300 of 300 outputs .* outside \[0, 1\]"):
            adapt(lambda X: np.full(len(X), 7.0), TABLE).scores(TABLE)

    def test_classes_and_decisions_of_a_classifier(self) -> None:
        model = make_pipeline(ENCODER, RandomForestClassifier(10, random_state=0)).fit(TABLE, Y)
        adapted = adapt(model, TABLE)
        assert adapted.kind == "scikit-learn pipeline with classifier"
        assert list(adapted.classes) == ["no", "yes"]
        np.testing.assert_array_equal(
            adapted.predict(TABLE, encoded=adapted.encode(TABLE)).decisions, model.predict(TABLE) == "yes"
        )
        np.testing.assert_allclose(adapted.scores(TABLE), model.predict_proba(TABLE)[:, 1])

    def test_a_search_is_its_best_model(self) -> None:
        rows = TABLE[["age", "hours"]]
        search = GridSearchCV(LogisticRegression(), {"C": [1.0, 2.0]}, cv=2).fit(rows, Y)
        assert adapt(search).explanation == "integrated gradients"


def test_a_model_that_fails_is_named_with_the_columns_to_look_at() -> None:
    def fails(table):
        raise KeyError(table["age"].iloc[0])

    table = TABLE.assign(hours=TABLE["hours"].where(TABLE["hours"] > 20))
    message = r"the function failed on these rows \(KeyError\)\. Columns with missing entries: 'hours'\."
    with pytest.raises(InputError, match=message):
        gcig.evaluate(fails, table, Y, sensitive_features=SEX)
    with pytest.raises(InputError, match=r"outputs of the function are missing\. Columns .*: 'hours'\."):
        gcig.evaluate(lambda rows: rows["hours"] / 100, table, Y, sensitive_features=SEX)
    with pytest.raises(InputError, match=r"outside \[0, 1\].*If they are logits, export .* a sigmoid"):
        gcig.evaluate(lambda rows: rows["hours"] / 10, TABLE, Y, sensitive_features=SEX)


def test_black_boxes_take_sparse_rows() -> None:
    rows = sparse.csr_matrix(TABLE[["age", "hours"]].to_numpy(float))
    model = DecisionTreeClassifier(max_depth=2, random_state=0).fit(rows, Y)
    found = gcig.evaluate(model, rows, Y, sensitive_features=SEX, n_bootstrap=0)
    dense = gcig.evaluate(model, rows.toarray(), Y, sensitive_features=SEX, n_bootstrap=0)
    assert (found.gcig, found.auc) == (dense.gcig, dense.auc)
