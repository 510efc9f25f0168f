"""What a model predicts: one of two classes, one of several, or a number; and its explained outputs."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from torch import nn

import gcig
from gcig.adapters import AdaptedModel, OnnxClassifier, adapt
from gcig.adapters.estimators import DifferentiablePipeline, LinearModel
from gcig.auditing import open_model

RNG = np.random.default_rng(0)
N = 240
TABLE = pd.DataFrame(RNG.normal(size=(N, 3)), columns=["pay", "age", "debt"])
MIXED = TABLE.assign(job=RNG.choice(["clerk", "nurse"], N))
PAY = 100 + 20 * TABLE["pay"] - 5 * TABLE["age"] + RNG.normal(size=N)
CLASSES = np.array(["high", "low", "mid"])[(PAY > 90).astype(int) + (PAY > 110)]
ENCODER = make_column_transformer((OneHotEncoder(), ["job"]), (StandardScaler(), ["pay", "age", "debt"]))


def check(adapted: AdaptedModel, table, task: str, expected, decisions) -> np.ndarray:
    """Check task, scores and decisions, and return the explained outputs."""
    assert adapted.task == task
    encoded = adapted.encode(table)
    found = adapted.predict(table, encoded=encoded)
    np.testing.assert_allclose(found.scores, expected, rtol=1e-4, atol=1e-5)
    if task == "number":
        np.testing.assert_allclose(found.decisions, decisions, rtol=1e-4)
    else:
        known = np.arange(expected.shape[1]) if adapted.classes is None else adapted.classes
        np.testing.assert_array_equal(known[found.codes], np.ravel(decisions))
    outputs = adapted.outputs(encoded)
    assert outputs.shape == expected.shape
    return outputs


def check_log_probabilities(outputs, probabilities) -> None:
    np.testing.assert_allclose(outputs, np.log(np.clip(probabilities, 0.001, 0.999)), rtol=1e-4, atol=1e-4)


class TestScikitLearn:
    def test_linear_classifiers_of_several_classes_give_one_logit_per_class(self) -> None:
        model = LogisticRegression().fit(TABLE, CLASSES)
        adapted = adapt(model)
        assert isinstance(adapted, LinearModel)
        outputs = check(adapted, TABLE, "classes", model.predict_proba(TABLE), model.predict(TABLE))
        np.testing.assert_allclose(outputs, model.decision_function(TABLE))
        assert adapted.classes.tolist() == ["high", "low", "mid"]

    def test_classifiers_without_probabilities_give_their_scores(self) -> None:
        model = RidgeClassifier().fit(TABLE, CLASSES)
        scores = model.decision_function(TABLE)
        assert not adapt(model).probabilistic
        check(adapt(model), TABLE, "classes", scores, model.predict(TABLE))
        pairs = SVC(kernel="linear").fit(TABLE, CLASSES)  # whose coefficients are those of pairs of classes
        adapted = adapt(pairs, TABLE)
        assert adapted.explanation == "Shapley values"
        check(adapted, TABLE, "classes", pairs.decision_function(TABLE), pairs.predict(TABLE))

    def test_other_classifiers_give_clipped_log_probabilities(self) -> None:
        model = make_pipeline(ENCODER, RandomForestClassifier(10, max_depth=3, random_state=0))
        model.fit(MIXED, CLASSES)
        expected = model.predict_proba(MIXED)
        outputs = check(adapt(model, MIXED), MIXED, "classes", expected, model.predict(MIXED))
        check_log_probabilities(outputs, expected)

    def test_a_pipeline_keeps_the_task_of_its_last_step(self) -> None:
        model = make_pipeline(ENCODER, LinearRegression()).fit(MIXED, PAY)
        adapted = adapt(model, MIXED)
        assert isinstance(adapted, DifferentiablePipeline)
        assert adapted.kind == "scikit-learn pipeline with a linear regression"
        check(adapted, MIXED, "number", model.predict(MIXED), model.predict(MIXED))
        of_classes = make_pipeline(ENCODER, LogisticRegression()).fit(MIXED, CLASSES)
        adapted = adapt(of_classes, MIXED)
        check(adapted, MIXED, "classes", of_classes.predict_proba(MIXED), of_classes.predict(MIXED))


class TestBoosters:
    """The estimators of XGBoost, LightGBM and CatBoost, and their native files."""

    def models(self, kind: str, path):
        """Return a classifier of three classes and a regressor, and the names of their files."""
        quiet = {"n_estimators": 5, "n_jobs": 1}
        if kind == "xgboost":
            library = pytest.importorskip("xgboost")
            models = library.XGBClassifier(**quiet), library.XGBRegressor(**quiet)
            names = "c.ubj", "r.json"
        elif kind == "lightgbm":
            library = pytest.importorskip("lightgbm")
            models = library.LGBMClassifier(**quiet, verbose=-1), library.LGBMRegressor(**quiet, verbose=-1)
            names = "c.txt", "r.txt"
        else:
            library = pytest.importorskip("catboost")
            quiet = {"iterations": 5, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
            models = library.CatBoostClassifier(**quiet), library.CatBoostRegressor(**quiet)
            names = "c.cbm", "r.cbm"
        of_classes, of_numbers = models
        of_classes.fit(TABLE, CLASSES if kind != "xgboost" else np.unique(CLASSES, return_inverse=True)[1])
        of_numbers.fit(TABLE, PAY)
        for model, name in zip(models, names, strict=True):
            getattr(model, "booster_", model).save_model(str(path / name))
        return (of_classes, path / names[0]), (of_numbers, path / names[1])

    @pytest.mark.parametrize("kind", ["xgboost", "lightgbm", "catboost"])
    def test_classes_and_numbers(self, kind, tmp_path) -> None:
        (classifier, of_classes), (regressor, of_numbers) = self.models(kind, tmp_path)
        expected = classifier.predict_proba(TABLE)
        outputs = check(adapt(classifier, TABLE), TABLE, "classes", expected, classifier.predict(TABLE))
        check_log_probabilities(outputs, expected)
        opened = adapt(open_model(of_classes), TABLE)
        codes = expected.argmax(axis=1)
        decisions = codes if opened.classes is None else opened.classes[codes]
        check_log_probabilities(check(opened, TABLE, "classes", expected, decisions), expected)
        numbers = regressor.predict(TABLE)
        assert adapt(regressor, TABLE).kind == "gradient boosted trees"
        for model in (regressor, open_model(of_numbers)):
            found = check(adapt(model, TABLE), TABLE, "number", numbers, numbers)
            np.testing.assert_allclose(found, numbers, rtol=1e-5)

    def test_boosters_that_predict_classes_instead_of_probabilities(self) -> None:
        xgboost = pytest.importorskip("xgboost")
        rows = xgboost.DMatrix(TABLE, np.unique(CLASSES, return_inverse=True)[1])
        options = {"num_class": 3, "nthread": 1}
        hard, soft = (
            xgboost.train({**options, "objective": f"multi:{name}"}, rows, 5)
            for name in ("softmax", "softprob")
        )
        expected = soft.predict(rows)
        check(adapt(hard, TABLE), TABLE, "classes", expected, expected.argmax(axis=1))

    def test_a_regression_on_labels_is_audited_if_its_task_is_named(self) -> None:
        xgboost = pytest.importorskip("xgboost")
        labels = (PAY > 100).astype(int)
        booster = xgboost.train({"nthread": 1, "max_depth": 1}, xgboost.DMatrix(TABLE, labels), 3)
        assert adapt(booster, TABLE).task == "number"
        assert adapt(booster, TABLE, task="binary").scores(TABLE).max() <= 1


class TestTorch:
    def test_one_logit_per_class(self) -> None:
        module = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 3))
        with torch.no_grad():
            logits = module(torch.tensor(TABLE.to_numpy(np.float32)))
        expected = logits.softmax(1).numpy()
        outputs = check(adapt(module, TABLE), TABLE, "classes", expected, expected.argmax(axis=1))
        np.testing.assert_allclose(outputs, logits.numpy(), rtol=1e-5)
        two = adapt(nn.Linear(3, 2), TABLE, task="classes")
        assert two.outputs(two.encode(TABLE)).shape == (N, 2)
        with pytest.raises(gcig.InputError, match="task is 'classes', but the module gives one"):
            adapt(nn.Linear(3, 1), TABLE, task="classes")
        with pytest.raises(gcig.InputError, match=r"gave \(2, 3\)"):
            adapt(module, TABLE, task="number")

    @pytest.mark.parametrize("last", [nn.Identity(), nn.Flatten(0)])
    def test_numbers(self, last) -> None:
        module = nn.Sequential(nn.Linear(3, 1), last)
        adapted = adapt(module, TABLE, task="number")
        with torch.no_grad():
            expected = module(torch.tensor(TABLE.to_numpy(np.float32))).flatten().numpy()
        np.testing.assert_allclose(check(adapted, TABLE, "number", expected, expected), expected)
        assert not adapted.probabilistic


class TestOnnx:
    def export(self, model, **options) -> OnnxClassifier:
        skl2onnx = pytest.importorskip("skl2onnx")
        kind = [("rows", skl2onnx.common.data_types.FloatTensorType([None, 3]))]
        exported = skl2onnx.convert_sklearn(model, initial_types=kind, **options)
        return OnnxClassifier(exported.SerializeToString())

    @pytest.mark.parametrize("zipmap", [False, True])
    def test_several_outputs(self, zipmap) -> None:
        pytest.importorskip("onnx")
        rows = TABLE.to_numpy(np.float32)
        model = LogisticRegression().fit(rows, CLASSES)
        adapted = adapt(self.export(model, options={"zipmap": zipmap}), TABLE)
        assert adapted.classes.tolist() == ["high", "low", "mid"]
        expected = model.predict_proba(rows)
        outputs = check(adapted, TABLE, "classes", expected, model.predict(rows))
        check_log_probabilities(outputs, expected)

    def test_numbers(self) -> None:
        rows = TABLE.to_numpy(np.float32)
        model = LinearRegression().fit(rows, PAY)
        adapted = adapt(self.export(model), TABLE, task="number")
        check(adapted, TABLE, "number", model.predict(rows), model.predict(rows))


class TestFunctions:
    def test_classes_and_numbers_are_named(self) -> None:
        model = LogisticRegression().fit(TABLE, CLASSES)
        expected = model.predict_proba(TABLE)
        adapted = adapt(lambda rows: model.predict_proba(rows), TABLE, task="classes")
        check_log_probabilities(check(adapted, TABLE, "classes", expected, expected.argmax(axis=1)), expected)
        numbers = adapt(lambda rows: rows[["pay"]] * 100, TABLE, task="number")
        check(numbers, TABLE, "number", TABLE["pay"] * 100, TABLE["pay"] * 100)

    def test_wrong_answers(self) -> None:
        def fails(answer, task):
            return adapt(lambda rows: answer(len(rows)), TABLE, task=task).scores(TABLE)

        with pytest.raises(gcig.InputError, match=r"shape \(240, 3\).*task='classes'"):
            fails(lambda n: np.zeros((n, 3)), None)
        with pytest.raises(gcig.InputError, match=r"but probabilities of shape \(240, classes\) are needed"):
            fails(lambda n: np.zeros(n), "classes")
        with pytest.raises(gcig.InputError, match=r"but numbers of shape \(240,\) are needed"):
            fails(lambda n: np.zeros((n, 2)), "number")
        with pytest.raises(gcig.InputError, match=r"240 of 240 outputs .* outside \[0, 1\]"):
            fails(lambda n: np.full((n, 3), 2.0), "classes")
        with pytest.raises(gcig.InputError, match=r"1 of 240 outputs .* are missing"):
            fails(lambda n: np.r_[np.nan, np.zeros(n - 1)], "number")


def test_a_task_that_the_model_contradicts_is_an_error() -> None:
    with pytest.raises(gcig.InputError, match="task is 'number', but that of this Log"):
        adapt(LogisticRegression().fit(TABLE, CLASSES), task="number")
    adapted = adapt(LinearRegression().fit(TABLE, PAY))
    with pytest.raises(gcig.InputError, match="threshold is for models of two classes"):
        adapted.predict(TABLE, encoded=adapted.encode(TABLE), threshold=0.5)
