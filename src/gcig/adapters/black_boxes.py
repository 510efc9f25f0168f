"""Black boxes: classifiers, regressors, boosted trees, ONNX sessions and functions."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from gcig._arrays import Floats, Rows
from gcig.adapters.base import (
    AdaptedModel,
    Task,
    call_model,
    check_answers,
    class_codes,
    is_regression,
    last_step,
)
from gcig.adapters.boosters import booster_categories, booster_columns, native_booster
from gcig.adapters.entries import TableEncoding
from gcig.adapters.onnx import OnnxClassifier
from gcig.adapters.origin import categorical_columns
from gcig.adapters.tensors import clipped_logits, clipped_logs
from gcig.tables.check import check_features, match_columns
from gcig.tables.names import rename_as

ScoreTable = Callable[[Any], Floats]
_BOOSTED = "gradient boosted trees"
_BOOSTED_TREES = ("HistGradientBoosting", "GradientBoosting", "LGBM", "XGB", "CatBoost")  # name prefixes


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BlackBoxModel(AdaptedModel):
    """A model that can only be called; it is explained on the original columns."""

    encoding: TableEncoding
    score: ScoreTable  # of a table: probabilities, or any scores if not `probabilistic`
    decide: Callable[[Any], Any] | None = None  # table -> classes, if the model has its own decision rule

    @property
    def input_origin(self) -> NDArray[np.int64]:
        """The column of the table that each encoded column came from."""
        return np.repeat(self.origin, [column.width for column in self.encoding.columns])

    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:  # noqa: ARG002 (no group needed)
        """Return numbers as they are and one column per category."""
        return self.encoding.encode(X)

    def scores(self, X: Any, sensitive_features: Any = None, encoded: Rows | None = None) -> Rows:
        """Return the model's probabilities, or its scores if it has none."""
        if self.probabilistic:
            return self.score(X)
        return self.outputs(self.encode(X, sensitive_features) if encoded is None else encoded)

    def decisions(self, X: Any, sensitive_features: Any, encoded: Rows, scores: Rows) -> Floats:
        """Return the model's own decisions, or else those that follow from its scores."""
        if self.decide is None:
            return super().decisions(X, sensitive_features, encoded, scores)
        return class_codes(call_model(self.decide, X, type(self.model).__name__), self.classes)

    def outputs(self, encoded: Rows) -> Rows:
        """Return the explained outputs of encoded rows."""
        return self._outputs(self.encoding.entries(np.asarray(encoded, dtype=np.float64)))

    def _outputs(self, entries: Floats) -> Floats:
        scores = np.asarray(self.score(self.encoding.decode(entries)), dtype=np.float64)
        if not self.probabilistic:
            return scores
        return clipped_logits(scores) if self.task == "binary" else clipped_logs(scores)


def adapt_black_box(model: Any, tables: Sequence[Any], task: Task | None = None) -> BlackBoxModel:
    """Wrap a model that can be called; ``tables`` are the rows that it is applied to.

    ``task`` is needed if the model does not record what it predicts, and it does not choose between two
    classes.
    """
    booster = native_booster(model)
    if tables[0] is not None and (known := booster_columns(model)) is not None:
        frame = check_features(tables[0])  # the errors of the libraries name no column
        match_columns(frame if booster is None else rename_as(frame, known), known)
    if hasattr(model, "predict_proba") or hasattr(model, "decision_function"):
        return _adapt_classifier(model, tables)
    if is_regression(model):
        kind, categorical = _describe(model, "regressor"), categorical_columns(model)
        answers = _answers_of(model.predict, type(model).__name__, "number")
        return _wrap(model, tables, answers, "number", kind=kind, categorical=categorical)
    if booster is not None:
        predict, own = booster
        answers = _answers_of(predict, "booster", task or own)
        options: dict[str, Any] = {"kind": _BOOSTED, "categorical": booster_categories(model)}
        return _wrap(model, tables, answers, task or own, **options)
    if isinstance(model, OnnxClassifier):
        if tables[0] is not None:
            model.check(tables[0])
        task = task or model.task
        return _wrap(
            model,
            tables,
            _answers_of(model, "ONNX model", task),
            task,
            kind="ONNX model",
            decide=model.decide if model.decides and task != "number" else None,
            classes=model.classes,
            threshold=0.5 if math.isnan(model.threshold) else model.threshold,
        )
    if callable(model):
        task = task or "binary"
        return _wrap(model, tables, _answers_of(model, "function", task), task, kind="function")
    raise TypeError(
        f"model: a {type(model).__name__} gives no probabilities. Accepted are fitted estimators of gcig, "
        "torch modules, classifiers with predict_proba or decision_function, regressors, ONNX models, and "
        "functions from rows to probabilities."
    )


def _adapt_classifier(model: Any, tables: Sequence[Any]) -> BlackBoxModel:
    name = type(model).__name__
    classes = getattr(model, "classes_", None)
    if classes is None and isinstance(model, BaseEstimator):
        raise TypeError(f"model: this {name} is not fitted. Call fit(X, y) first.")
    if classes is not None and len(classes) < 2:
        raise TypeError(f"model: this {name} was trained on a single class. Train it on rows of two or more.")
    task: Task = "binary" if classes is None or len(classes) == 2 else "classes"
    probabilistic = hasattr(model, "predict_proba")
    return _wrap(
        model,
        tables,
        _answers_of(model.predict_proba, name, task)
        if probabilistic
        else lambda X: np.asarray(model.decision_function(X), dtype=np.float64),
        task,
        kind=_describe(model, "classifier"),
        decide=model.predict,
        classes=None if classes is None else np.asarray(classes),
        probabilistic=probabilistic,
        threshold=0.5 if probabilistic else np.nan,
        categorical=categorical_columns(model),
    )


def _describe(model: Any, kind: str) -> str:
    last = last_step(model)
    boosted = type(last).__name__.startswith(_BOOSTED_TREES)
    if last is not model:
        return f"scikit-learn pipeline with {_BOOSTED if boosted else kind}"
    return _BOOSTED if boosted else f"scikit-learn {kind}"


def _wrap(model: Any, tables: Sequence[Any], score: ScoreTable, task: Task, **fields: Any) -> BlackBoxModel:
    """Learn the columns from the tables that the model is applied to."""
    if not tables or tables[0] is None:
        raise TypeError("X: this model does not know its columns. Pass the rows that it is applied to.")
    encoding = TableEncoding.learn(tables, fields.pop("categorical", ()))
    if task == "number":
        fields |= {"probabilistic": False, "threshold": np.nan, "classes": None}
    return BlackBoxModel(
        model=model,
        task=task,
        columns=encoding.names,
        origin=np.arange(len(encoding.names)),
        original_names=encoding.names,
        encoding=encoding,
        score=score,
        **fields,
    )


def _answers_of(method: Callable[[Any], Any], name: str, task: Task) -> ScoreTable:
    return lambda X: check_answers(call_model(method, X, name), X, name, task)
