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
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import gcig
from gcig._validation import InputError
from gcig.adapters import adapt
from gcig.core.definition import Definition

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


def reasons(adapted, sex=SEX):
    """(groups, n, columns) attributions of rows with label 1 against the means of the two groups."""
    rows = adapted.encode(TABLE)
    references = np.stack([rows[(sex == g) & (Y == "yes")].mean(axis=0) for g in ("f", "m")])
    definition = adapted.explainer.resolve(
        rows[:9], np.ones(9, dtype=int), np.stack([references] * 2), Definition()
    )
    return adapted.explainer.attribute(rows[Y == "yes"][:20], references, definition)


class TestAgreement:
    def test_numbers_of_a_linear_model_agree_exactly(self) -> None:
        rows = TABLE[["age", "hours"]].assign(debt=RNG.normal(size=300))
        model = LogisticRegression().fit(rows, Y)
        exact = adapt(model)
        called = adapt(lambda table: model.predict_proba(table), rows)
        references = rows[:7].to_numpy(float)
        for adapted in (exact, called):
            np.testing.assert_allclose(
                adapted.explainer.attribute(
                    rows[20:40].to_numpy(float), references, Definition()
                ).values.numpy(),
                (rows[20:40].to_numpy(float)[None] - references[:, None]) * model.coef_[0],
                atol=1e-9,
            )

    def test_a_linear_pipeline_agrees_exactly(self) -> None:
        exact = adapt(LINEAR, TABLE)
        assert exact.explainer.name == "integrated gradients"
        from_gradients = reasons(exact).values.numpy() @ (exact.origin[:, None] == np.arange(5))
        called = adapt(LINEAR.predict_proba, TABLE)
        assert called.explainer.name == "Shapley values"
        sampled = reasons(called)
        np.testing.assert_allclose(sampled.values.numpy(), from_gradients, atol=1e-9)
        assert sampled.clipped == 0

    def test_gcig_agrees_with_gradients(self) -> None:
        options = {"sensitive_features": SEX, "definition": Definition(columns="original")}
        exact = gcig.metrics.gcig_score(LINEAR, TABLE, Y, **options)
        called = gcig.metrics.gcig_score(LINEAR.predict_proba, TABLE, (Y == "yes").astype(int), **options)
        assert called == pytest.approx(exact, rel=1e-6)


class TestTables:
    def test_decoding_restores_the_rows(self) -> None:
        adapted = adapt(LINEAR.predict_proba, TABLE)
        entries = adapted.encoding.entries(adapted.encode(TABLE))
        back = adapted.encoding.decode(entries)
        pd.testing.assert_frame_equal(back, TABLE.astype({"hours": float}))

    def test_missing_entries_are_restored_and_drawn_at_their_rate(self) -> None:
        table = TABLE.copy()
        table.loc[:99, "age"] = np.nan
        table.loc[:149, "job"] = None
        encoding = adapt(lambda X: np.full(len(X), 0.5), table).encoding
        encoded = encoding.encode(table)
        back = encoding.decode(encoding.entries(encoded))
        np.testing.assert_array_equal(back["age"].isna(), table["age"].isna())
        np.testing.assert_array_equal(back["job"].isna(), table["job"].isna())
        uniforms = (np.arange(1000)[:, None] + 0.5) / 1000 * np.ones(5)
        drawn = encoding.draw(encoded.mean(axis=0)[None], uniforms)[0]
        assert np.isnan(drawn[:, 0]).mean() == pytest.approx(1 / 3, abs=0.002)
        assert np.nanmean(drawn[:, 0]) == pytest.approx(table["age"].mean())
        names = encoding.decode(drawn)["job"]
        assert names.isna().mean() == pytest.approx(0.5, abs=0.002)
        expected = table["job"].value_counts(normalize=True, dropna=False)["nurse"]
        assert (names == "nurse").mean() == pytest.approx(expected, abs=0.003)

    def test_arrays_stay_arrays(self) -> None:
        rows = TABLE[["age", "hours"]].to_numpy()
        seen = []

        def model(X):
            seen.append(type(X))
            return np.full(len(X), 0.3)

        adapted = adapt(model, rows)
        adapted.logits(adapted.encode(rows))
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

    def test_numbers_that_a_pipeline_encodes_as_categories(self) -> None:
        table = TABLE.assign(code=RNG.integers(0, 3, 300))
        encoder = make_column_transformer((OneHotEncoder(), ["code", "job"]), remainder="drop")
        model = make_pipeline(encoder, DecisionTreeClassifier(max_depth=3)).fit(table, Y)
        adapted = adapt(model, table)
        assert [type(column).__name__ for column in adapted.encoding.columns] == [
            "NumberColumn",
            "CategoryColumn",
            "NumberColumn",
            "CategoryColumn",
            "CategoryColumn",
            "CategoryColumn",
        ]
        assert np.isfinite(reasons_of(adapted, table)).all()  # a mean code would be unknown to the encoder

    def test_integer_categories_of_boosted_trees(self) -> None:
        table = TABLE[["hours", "age"]]
        model = HistGradientBoostingClassifier(categorical_features=["hours"], max_iter=3)
        adapted = adapt(
            model.fit(table.assign(hours=table["hours"] // 10), Y), table.assign(hours=table["hours"] // 10)
        )
        assert type(adapted.encoding.columns[0]).__name__ == "CategoryColumn"


def reasons_of(adapted, table):
    rows = adapted.encode(table)
    return adapted.explainer.attribute(
        rows[:5], rows[:2].mean(axis=0, keepdims=True), Definition()
    ).values.numpy()


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

    def test_a_margin_is_explained_without_clipping(self) -> None:
        rows = TABLE[["age", "hours"]]
        model = SVC().fit(rows, Y)
        adapted = adapt(model, rows)
        assert not adapted.probabilistic
        np.testing.assert_allclose(adapted.logits(adapted.encode(rows)), model.decision_function(rows))
        found = adapted.explainer.attribute(rows[:3].to_numpy(float), rows[5:7].to_numpy(float), Definition())
        assert np.isnan(found.clipped)

    def test_clipped_probabilities_are_counted(self) -> None:
        adapted = adapt(lambda X: (X["age"] > 40).astype(float), TABLE)
        found = reasons(adapted)
        assert found.clipped == 1.0
        assert float(found.values.abs().max()) <= 2 * np.log(999) + 1e-9

    def test_rows_without_any_attribution_are_exactly_zero(self) -> None:
        """A step function does not move between a row and a reference on the same side of the step."""
        adapted = adapt(lambda X: 0.1 + 0.37 * (X["age"] > 40), TABLE)
        rows = adapted.encode(TABLE.assign(age=[20.0, 60.0] * 150))
        found = adapted.explainer.attribute(rows[:10], rows[:1], Definition(n_steps=3))
        assert (found.values[0, ::2] == 0).all()
        assert (found.values[0, 1::2, 0] > 0).all()

    def test_a_search_is_its_best_model(self) -> None:
        rows = TABLE[["age", "hours"]]
        search = GridSearchCV(LogisticRegression(), {"C": [1.0, 2.0]}, cv=2).fit(rows, Y)
        assert adapt(search).explainer.name == "integrated gradients"

    def test_errors_of_sampling_are_reported(self) -> None:
        model = make_pipeline(ENCODER, DecisionTreeClassifier(max_depth=6)).fit(TABLE, Y)
        found = reasons(adapt(model, TABLE))
        assert found.replicates is not None
        assert float(found.residual.max()) < 1e-9


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


def test_evaluation_takes_a_sample_of_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    many = pd.concat([TABLE] * 4, ignore_index=True)
    labels, sex = np.tile(Y, 4), np.tile(SEX, 4)
    model = make_pipeline(ENCODER, DecisionTreeClassifier(max_depth=3, random_state=0)).fit(TABLE, Y)
    found = gcig.evaluate(model, many, labels, sensitive_features=sex, n_bootstrap=10)
    assert found.n_rows == 1200
    assert found.gcig == found.gcig_raw
    assert found.undefined_rows < 200  # rows outside the sample of 1,000 are not called undefined
    whole = gcig.evaluate(model, TABLE, Y, sensitive_features=SEX, n_bootstrap=10)
    assert found.gcig == pytest.approx(whole.gcig, rel=0.1)
