"""Models of libraries that may or may not be installed."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from gcig._validation import InputError
from gcig.adapters import OnnxClassifier, adapt
from gcig.core.definition import Definition
from gcig.methods.onnx_export import export_onnx
from gcig.methods.unconstrained import UnconstrainedClassifier

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame(RNG.normal(size=(200, 4)), columns=list("abcd")).astype("float32")
Y = (ROWS["a"] + ROWS["b"] * ROWS["c"] > 0).astype(int)


def check_reasons(adapted, rows) -> None:
    """Shapley values that are complete and see the columns that matter."""
    encoded = adapted.encode(rows)
    found = adapted.explainer.attribute(encoded[:30], encoded[:2].mean(axis=0, keepdims=True), Definition())
    size = found.values.abs().mean(dim=(0, 1)).numpy()
    assert float(found.residual.max()) < 1e-9
    assert size[:3].min() > size[3]


class TestLightGBM:
    lightgbm = pytest.importorskip("lightgbm")

    def fitted(self, rows):
        return self.lightgbm.LGBMClassifier(n_estimators=20, verbose=-1, n_jobs=1).fit(rows, Y)

    def test_classifier(self) -> None:
        model = self.fitted(ROWS)
        adapted = adapt(model, ROWS)
        assert adapted.kind == "gradient boosted trees"
        np.testing.assert_allclose(adapted.predict_proba(ROWS), model.predict_proba(ROWS))
        check_reasons(adapted, ROWS)

    def test_native_booster(self) -> None:
        model = self.fitted(ROWS)
        adapted = adapt(model.booster_, ROWS)
        np.testing.assert_allclose(adapted.predict_proba(ROWS)[:, 1], model.predict_proba(ROWS)[:, 1])

    def test_lightgbm_categories_keep_their_type(self) -> None:
        rows = ROWS.assign(e=pd.Categorical(RNG.choice(["x", "y", "z"], 200)))
        adapted = adapt(self.fitted(rows), rows)
        entries = adapted.encoding.entries(adapted.encode(rows))
        assert adapted.encoding.decode(entries)["e"].dtype == rows["e"].dtype
        assert np.isfinite(adapted.logits(adapted.encode(rows))).all()


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
        np.testing.assert_allclose(adapted.predict_proba(ROWS), expected, atol=1e-5)

    def test_labels_of_the_model_are_its_decisions(self, content: bytes) -> None:
        session = OnnxClassifier(content)
        assert session.classes.tolist() == [0, 1]
        expected = LogisticRegression().fit(ROWS.to_numpy(), Y).predict(ROWS.to_numpy())
        np.testing.assert_array_equal(adapt(session, ROWS).predict(ROWS), expected)

    def test_threshold_classes_and_text_of_an_exported_model(self, tmp_path) -> None:
        pytest.importorskip("onnx")
        rows = ROWS.assign(town=RNG.choice(["x", "y", None], len(ROWS)))
        labels, groups = np.where(Y == 1, "yes", "no"), RNG.choice(["f", "m"], len(ROWS))
        model = UnconstrainedClassifier(max_epochs=20, threshold=0.3, random_state=0)
        model.fit(rows, labels, sensitive_features=groups)
        export_onnx(model, tmp_path / "model.onnx")
        adapted = adapt(OnnxClassifier((tmp_path / "model.onnx").read_bytes()), rows)
        assert adapted.threshold == model.threshold_
        assert adapted.classes.tolist() == ["no", "yes"]
        np.testing.assert_array_equal(adapted.predict(rows), model.predict(rows) == "yes")
        np.testing.assert_allclose(adapted.predict_proba(rows), model.predict_proba(rows), atol=1e-6)

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
        expected = model.predict_proba(ROWS[["a", "b"]])[:, 1]
        np.testing.assert_allclose(adapt(session, ROWS).predict_proba(ROWS)[:, 1], expected, atol=1e-5)
        with pytest.raises(InputError, match="lacks columns that the ONNX model takes: b"):
            session(ROWS[["a"]])
