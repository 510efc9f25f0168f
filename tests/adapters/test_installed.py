"""Models of libraries that may or may not be installed."""

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from gcig._arguments import InputError
from gcig.adapters import OnnxClassifier, adapt
from gcig.auditing import audit_file, open_model
from gcig.methods.unconstrained import UnconstrainedClassifier

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame(RNG.normal(size=(200, 4)), columns=list("abcd")).astype("float32")
Y = (ROWS["a"] + ROWS["b"] * ROWS["c"] > 0).astype(int)


class TestLightGBM:
    lightgbm = pytest.importorskip("lightgbm")

    def fitted(self, rows):
        return self.lightgbm.LGBMClassifier(n_estimators=20, verbose=-1, n_jobs=1).fit(rows, Y)

    def test_native_booster(self) -> None:
        model = self.fitted(ROWS)
        adapted = adapt(model.booster_, ROWS)
        np.testing.assert_allclose(adapted.scores(ROWS), model.predict_proba(ROWS)[:, 1])

    def test_lightgbm_categories_keep_their_type(self) -> None:
        rows = ROWS.assign(e=pd.Categorical(RNG.choice(["x", "y", "z"], 200)))
        adapted = adapt(self.fitted(rows), rows)
        entries = adapted.encoding.entries(adapted.encode(rows))
        assert adapted.encoding.decode(entries)["e"].dtype == rows["e"].dtype
        assert np.isfinite(adapted.outputs(adapted.encode(rows))).all()


def with_categories():
    """Rows with a category as text and a name that LightGBM changes, and labels that depend on it."""
    rows = (
        ROWS[["a", "b"]]
        .rename(columns={"b": "b in €"})
        .assign(job=np.random.default_rng(1).choice(["x", "y", "z"], 200))
    )
    return rows, ((rows["a"] > 0) & (rows["job"] != "z")).astype(int)


class TestNativeFiles:
    """Native files of boosted trees with categories give the probabilities of the model that wrote them."""

    @pytest.fixture(params=["m.ubj", "m.json", "m.txt", "m.cbm", "cat.json"])
    def stored(self, request, tmp_path):
        rows, labels = with_categories()
        typed = rows.assign(job=rows["job"].astype("category"))
        path = tmp_path / request.param
        if request.param in ("m.ubj", "m.json"):
            xgboost = pytest.importorskip("xgboost")
            model = xgboost.XGBClassifier(n_estimators=8, enable_categorical=True, n_jobs=1)
            model.fit(typed, labels).save_model(path)
        elif request.param == "m.txt":
            lightgbm = pytest.importorskip("lightgbm")
            model = lightgbm.LGBMClassifier(n_estimators=8, verbose=-1, n_jobs=1).fit(typed, labels)
            model.booster_.save_model(path)
        else:
            catboost = pytest.importorskip("catboost")
            model = catboost.CatBoostClassifier(
                iterations=8, cat_features=["job"], verbose=0, thread_count=1, allow_writing_files=False
            )
            model.fit(rows, labels)
            model.save_model(str(path), format=path.suffix[1:])
            typed = rows
        return path, rows, model.predict_proba(typed)[:, 1]

    def test_a_file_is_audited_without_naming_its_columns(self, stored, tmp_path) -> None:
        path, rows, expected = stored
        if path.suffix == ".json":
            pytest.skip("the same model as in the binary format")
        sex = np.where(np.arange(200) % 2, "f", "m")
        table = rows.assign(y=(expected > 0.5).astype(int), sex=sex, note="free text")
        table.to_csv(tmp_path / "rows.csv", index=False)
        found = audit_file(
            path,
            tmp_path / "rows.csv",
            target="y",
            sensitive="sex",
            n_bootstrap=5,
        ).record
        assert found.subject.model_name == path.name
        assert found.subject.n_columns == 3
        assert found.evaluation.accuracy == 1.0

    def test_missing_columns_are_named(self, stored) -> None:
        path, rows, _ = stored
        with pytest.raises(InputError, match="- job"):
            adapt(open_model(path), rows[["a", "b in €"]]).scores(rows[["a", "b in €"]])

    def test_a_damaged_file_is_an_error(self, stored) -> None:
        path = stored[0]
        path.write_bytes(path.read_bytes()[:80])
        with pytest.raises(InputError, match="could not be opened as a model of"):
            open_model(path)


class TestSkops:
    skops = pytest.importorskip("skops.io")

    def test_a_model_of_known_types_opens(self, tmp_path) -> None:
        model = LogisticRegression().fit(ROWS, Y)
        self.skops.dump(model, tmp_path / "m.skops")
        opened = open_model(tmp_path / "m.skops")
        np.testing.assert_array_equal(opened.predict_proba(ROWS), model.predict_proba(ROWS))

    def test_types_that_run_no_code_need_no_trust(self, tmp_path) -> None:
        own = UnconstrainedClassifier(max_epochs=1, random_state=0)
        own.fit(ROWS, Y, sensitive_features=ROWS["d"] > 0)
        for model in (make_pipeline(SimpleImputer(), LogisticRegression()).fit(ROWS, Y), own):
            self.skops.dump(model, tmp_path / "m.skops")
            assert self.skops.get_untrusted_types(file=tmp_path / "m.skops")
            opened = open_model(tmp_path / "m.skops")
            np.testing.assert_array_equal(opened.predict_proba(ROWS), model.predict_proba(ROWS))

    def test_unknown_types_are_named_and_need_trust(self, tmp_path) -> None:
        model = DecisionTreeClassifier(max_depth=2).fit(ROWS, Y)
        self.skops.dump(model, tmp_path / "m.skops")
        with pytest.raises(InputError, match=r"trust_pickle must be set .*sklearn.tree._tree.Tree"):
            open_model(tmp_path / "m.skops")
        opened = open_model(tmp_path / "m.skops", trust_pickle=True)
        np.testing.assert_array_equal(opened.predict(ROWS), model.predict(ROWS))

    def test_a_file_of_another_kind_is_an_error(self, tmp_path) -> None:
        (tmp_path / "m.skops").write_bytes(b"PK nothing")
        with pytest.raises(InputError, match="could not be opened as a skops file"):
            open_model(tmp_path / "m.skops")


class TestOnnx:
    onnxruntime = pytest.importorskip("onnxruntime")

    @pytest.fixture
    def content(self) -> bytes:
        skl2onnx = pytest.importorskip("skl2onnx")
        model = LogisticRegression().fit(ROWS.to_numpy(), Y)
        kind = [("rows", skl2onnx.common.data_types.FloatTensorType([None, 4]))]
        return skl2onnx.convert_sklearn(
            model, initial_types=kind, options={"zipmap": False}
        ).SerializeToString()

    def test_probabilities(self, content: bytes) -> None:
        expected = LogisticRegression().fit(ROWS.to_numpy(), Y).predict_proba(ROWS.to_numpy())
        adapted = adapt(OnnxClassifier(content), ROWS)
        assert adapted.kind == "ONNX model"
        np.testing.assert_allclose(adapted.scores(ROWS), expected[:, 1], atol=1e-5)

    def test_labels_of_the_model_are_its_decisions(self, content: bytes) -> None:
        session = OnnxClassifier(content)
        assert session.classes.tolist() == [0, 1]
        expected = LogisticRegression().fit(ROWS.to_numpy(), Y).predict(ROWS.to_numpy())
        adapted = adapt(session, ROWS)
        outputs = adapted.predict(ROWS, encoded=adapted.encode(ROWS))
        np.testing.assert_array_equal(outputs.decisions, expected)

    def test_threshold_classes_and_text_of_an_exported_model(self, tmp_path) -> None:
        pytest.importorskip("onnx")
        rows = ROWS.assign(town=RNG.choice(["x", "y", None], len(ROWS)))
        labels, groups = np.where(Y == 1, "yes", "no"), RNG.choice(["f", "m"], len(ROWS))
        model = UnconstrainedClassifier(max_epochs=20, threshold=0.3, random_state=0)
        model.fit(rows, labels, sensitive_features=groups)
        model.to_onnx(tmp_path / "model.onnx")
        adapted = adapt(OnnxClassifier((tmp_path / "model.onnx").read_bytes()), rows)
        assert adapted.threshold == model.threshold_
        assert adapted.classes.tolist() == ["no", "yes"]
        np.testing.assert_array_equal(
            adapted.predict(rows, encoded=adapted.encode(rows)).decisions, model.predict(rows) == "yes"
        )
        np.testing.assert_allclose(adapted.scores(rows), model.predict_proba(rows)[:, 1], atol=1e-6)

    def test_damaged_content(self) -> None:
        with pytest.raises(InputError, match="cannot be read"):
            OnnxClassifier(b"not a model")

    def test_missing_columns_are_named(self) -> None:
        skl2onnx = pytest.importorskip("skl2onnx")
        from sklearn.compose import make_column_transformer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        model = make_pipeline(make_column_transformer((StandardScaler(), ["a", "b"])), LogisticRegression())
        kinds = [(name, skl2onnx.common.data_types.FloatTensorType([None, 1])) for name in "ab"]
        named = skl2onnx.convert_sklearn(model.fit(ROWS[["a", "b"]], Y), initial_types=kinds)
        session = OnnxClassifier(named.SerializeToString())
        assert session.feature_names_in_ == ("a", "b")
        expected = model.predict_proba(ROWS[["a", "b"]])[:, 1]
        np.testing.assert_allclose(adapt(session, ROWS).scores(ROWS), expected, atol=1e-5)
        with pytest.raises(InputError, match="lacks columns that the ONNX model takes: 'b'"):
            session(ROWS[["a"]])
        with pytest.raises(InputError, match="Column 'b' of X holds text, but the ONNX model takes numbers"):
            session(ROWS[["a"]].assign(b="x"))

    def test_another_number_of_columns_is_named(self, content: bytes) -> None:
        with pytest.raises(InputError, match=r"X has 2 columns \('a', 'b'\), but .* takes 4"):
            OnnxClassifier(content)(ROWS[["a", "b"]])
        with pytest.raises(InputError, match="Column 'c' of X holds text"):
            OnnxClassifier(content)(ROWS.assign(c="x"))
