"""Black boxes: classifiers, boosted trees, ONNX sessions and functions that can only be called."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from gcig._arrays import Floats, Rows
from gcig._tables import rename_as
from gcig._validation import check_features, match_columns
from gcig.adapters.base import AdaptedModel, call_model, check_probabilities, class_codes, last_step
from gcig.adapters.boosters import booster_categories, booster_columns, booster_prediction
from gcig.adapters.entries import TableEncoding
from gcig.adapters.explainers import SHAPLEY_BUDGET, Explainer, ShapleyExplainer, clipped_logits
from gcig.adapters.onnx import OnnxClassifier
from gcig.adapters.origin import categorical_columns

ScoreTable = Callable[[Any], Floats]
_BOOSTED_TREES = ("HistGradientBoosting", "GradientBoosting", "LGBM", "XGB", "CatBoost")  # name prefixes


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BlackBoxModel(AdaptedModel):
    """A model that can only be called; it is explained on the original columns."""

    encoding: TableEncoding
    score: ScoreTable  # of a table: probabilities of label 1, or any score if not `probabilistic`
    decide: Callable[[Any], Any] | None = None  # table -> classes, if the model has its own decision rule

    @classmethod
    def wrap(
        cls,
        model: Any,
        tables: Sequence[Any],
        score: ScoreTable,
        *,
        categorical: Sequence[int] = (),
        **fields: Any,
    ) -> "BlackBoxModel":
        """Learn the columns from the tables that the model is applied to."""
        if not tables or tables[0] is None:
            raise TypeError("X: this model does not know its columns. Pass the rows that it is applied to.")
        encoding = TableEncoding.learn(tables, categorical)
        return cls(
            model=model,
            columns=encoding.names,
            origin=np.arange(len(encoding.names)),
            original_names=encoding.names,
            encoding=encoding,
            score=score,
            **fields,
        )

    @property
    def input_origin(self) -> NDArray[np.int64]:
        """The column of the table that each encoded column came from."""
        return np.repeat(self.origin, [column.width for column in self.encoding.columns])

    @property
    def explainer(self) -> Explainer:
        """Shapley values of the logit."""
        return ShapleyExplainer(self.encoding, self.score, self.probabilistic)

    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:  # noqa: ARG002 (no group needed)
        """Return numbers as they are and one column per category."""
        return self.encoding.encode(X)

    def scores(self, X: Any, sensitive_features: Any = None, encoded: Rows | None = None) -> Rows:
        """Return the model's probabilities, or its scores if it has none."""
        if self.probabilistic:
            return self.score(X)
        return self.logits(self.encode(X, sensitive_features) if encoded is None else encoded)

    def decisions(self, X: Any, sensitive_features: Any, encoded: Rows, scores: Rows) -> Floats:
        """Return the model's own decisions, or else whether the probability reaches the threshold."""
        if self.decide is None:
            return super().decisions(X, sensitive_features, encoded, scores)
        return class_codes(call_model(self.decide, X, type(self.model).__name__), self.classes)

    def logits(self, encoded: Rows) -> Rows:
        """Return the explained score of encoded rows."""
        return self._logits(self.encoding.entries(np.asarray(encoded, dtype=np.float64)))

    def _logits(self, entries: Floats) -> Floats:
        scores = np.asarray(self.score(self.encoding.decode(entries)), dtype=np.float64)
        return clipped_logits(scores) if self.probabilistic else scores

    def reference_logits(self, references: Rows) -> Rows:
        """Return the mean score over rows drawn at each reference: categories by their frequencies."""
        size = SHAPLEY_BUDGET.reference_draws, len(self.encoding.columns)
        uniforms = np.random.default_rng(0).random(size)
        entries = self.encoding.draw(np.asarray(references, dtype=np.float64), uniforms)
        scores = self._logits(entries.reshape(-1, entries.shape[-1]))
        return np.asarray(scores.reshape(len(references), -1).mean(axis=1))


def adapt_black_box(model: Any, tables: Sequence[Any]) -> BlackBoxModel:
    """Wrap a model that gives probabilities or scores; ``tables`` are the rows that it is applied to."""
    predict = booster_prediction(model)
    if tables[0] is not None and (known := booster_columns(model)) is not None:
        frame = check_features(tables[0])  # the errors of the libraries name no column
        match_columns(frame if predict is None else rename_as(frame, known), known)
    if hasattr(model, "predict_proba") or hasattr(model, "decision_function"):
        return _adapt_classifier(model, tables)
    if predict is not None:
        return BlackBoxModel.wrap(
            model,
            tables,
            _probabilities_of(predict, "booster"),
            kind="gradient boosted trees",
            categorical=booster_categories(model),
        )
    if isinstance(model, OnnxClassifier):
        if tables[0] is not None:
            model.check(tables[0])
        return BlackBoxModel.wrap(
            model,
            tables,
            _probabilities_of(model, "ONNX model"),
            kind="ONNX model",
            decide=model.decide if model.decides else None,
            classes=model.classes,
            threshold=0.5 if math.isnan(model.threshold) else model.threshold,
        )
    if callable(model):
        return BlackBoxModel.wrap(model, tables, _probabilities_of(model, "function"), kind="function")
    raise TypeError(
        f"model: a {type(model).__name__} gives no probabilities. Accepted are fitted estimators of gcig, "
        "torch modules that give one logit per row, classifiers of two classes with predict_proba or "
        "decision_function, ONNX models, and functions from rows to probabilities."
    )


def _adapt_classifier(model: Any, tables: Sequence[Any]) -> BlackBoxModel:
    name = type(model).__name__
    classes = getattr(model, "classes_", None)
    if classes is None and isinstance(model, BaseEstimator):
        raise TypeError(f"model: this {name} is not fitted. Call fit(X, y) first.")
    if classes is not None and len(classes) != 2:
        raise TypeError(
            f"model: this {name} has {len(classes)} classes, but only models with two are supported."
        )
    probabilistic = hasattr(model, "predict_proba")
    last = last_step(model)
    boosted = type(last).__name__.startswith(_BOOSTED_TREES)
    kind = "gradient boosted trees" if boosted else "classifier"
    if last is not model:
        kind = f"scikit-learn pipeline with {kind}"
    elif not boosted:
        kind = f"scikit-learn {kind}"
    return BlackBoxModel.wrap(
        model,
        tables,
        _probabilities_of(model.predict_proba, name)
        if probabilistic
        else lambda X: np.asarray(model.decision_function(X), dtype=np.float64),
        kind=kind,
        decide=model.predict,
        classes=None if classes is None else np.asarray(classes),
        probabilistic=probabilistic,
        threshold=0.5 if probabilistic else np.nan,
        categorical=categorical_columns(model),
    )


def _probabilities_of(method: Callable[[Any], Any], name: str) -> ScoreTable:
    return lambda X: check_probabilities(call_model(method, X, name), X, name)
