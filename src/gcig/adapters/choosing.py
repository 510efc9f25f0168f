"""Which adapter a model needs."""

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import nn

from gcig._validation import check_features
from gcig.adapters.base import AdaptedModel
from gcig.adapters.black_box import BlackBoxModel, check_probabilities
from gcig.adapters.linear import LinearModel
from gcig.adapters.network import TorchModel
from gcig.adapters.onnx import OnnxClassifier
from gcig.adapters.own import GcigModel
from gcig.adapters.pipeline import DifferentiablePipeline, categorical_columns
from gcig.core.modules import Score

__all__ = ["adapt"]

Answer = Callable[[Any], NDArray[np.float64]]
_BOOSTED = ("HistGradientBoosting", "GradientBoosting", "LGBM", "XGB", "CatBoost")


def adapt(model: Any, X: Any = None, *, score: Score | None = None, reference: Any = None) -> AdaptedModel:
    """What ``evaluate``, ``gcig_score`` and ``audit`` do with a model.

    Models with gradients are explained by integrated gradients: estimators of this package, torch modules,
    linear classifiers of scikit-learn, and pipelines that encode columns one by one and end in an estimator
    of this package or a linear classifier. All others are explained by Shapley values of the logit on the
    columns as they are.

    Parameters
    ----------
    model : a fitted estimator of this package; a torch module over float rows that gives one logit per row; a
        fitted scikit-learn classifier or pipeline of two classes; boosted trees of LightGBM or XGBoost; an
        `OnnxClassifier`; or a function from rows to probabilities, (n,) or (n, 2).
    X : the rows that the model is applied to, for their columns; linear classifiers and estimators of this
        package know them.
    score : for a torch module with another output: a function from its output to one logit per row.
    reference : further rows, whose categories are to be known as well.

    Examples
    --------
    >>> adapted = adapt(nn.Linear(3, 1), np.zeros((2, 3), dtype="float32"))
    >>> adapted.columns, adapted.predict_proba(np.zeros((4, 3))).shape
    (('x0', 'x1', 'x2'), (4, 2))
    >>> adapt(lambda rows: rows[:, 0], np.array([[0.2, 5], [0.7, 1]])).explainer.name
    'Shapley values'
    """
    if GcigModel.fits(model):
        return GcigModel.wrap(model)
    if isinstance(model, nn.Module):
        return TorchModel.wrap(model, X, score)
    model = getattr(model, "best_estimator_", model)  # of a search over parameters
    if LinearModel.fits(model):
        return LinearModel.wrap(model)
    if (pipeline := DifferentiablePipeline.of(model, X)) is not None:
        return pipeline
    tables = [X] if reference is None else [X, reference]
    if hasattr(model, "predict_proba") or hasattr(model, "decision_function"):
        return _adapt_classifier(model, tables)
    if (answer := _booster(model)) is not None:
        return BlackBoxModel.wrap(model, tables, answer, kind="gradient boosted trees")
    if isinstance(model, OnnxClassifier):
        return _adapt_onnx(model, tables)
    if callable(model):
        return BlackBoxModel.wrap(model, tables, _checked(model, "function"), kind="function")
    raise TypeError(
        f"model: a {type(model).__name__} gives no probabilities. Accepted are fitted estimators of gcig, "
        "torch modules that give one logit per row, classifiers of two classes with predict_proba or "
        "decision_function, ONNX models, and functions from rows to probabilities."
    )


def _adapt_classifier(model: Any, tables: Sequence[Any]) -> AdaptedModel:
    """A classifier with scikit-learn's interface."""
    name = type(model).__name__
    classes = getattr(model, "classes_", None)
    if classes is None and isinstance(model, BaseEstimator):
        raise TypeError(f"model: this {name} is not fitted. Call fit(X, y) first.")
    if classes is not None and len(classes) != 2:
        raise TypeError(f"model: this {name} has {len(classes)} classes, and two are needed.")
    probabilistic = hasattr(model, "predict_proba")
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    boosted = type(last).__name__.startswith(_BOOSTED)
    kind = "gradient boosted trees" if boosted else "scikit-learn classifier"
    if hasattr(model, "steps"):
        kind = f"scikit-learn pipeline with {kind.removeprefix('scikit-learn ')}"
    answer = _checked(model.predict_proba, name) if probabilistic else _scores(model.decision_function)
    return BlackBoxModel.wrap(
        model,
        tables,
        answer,
        kind=kind,
        decide=model.predict,
        classes=None if classes is None else np.asarray(classes),
        probabilistic=probabilistic,
        categorical=_names(tables, categorical_columns(model)),
    )


def _adapt_onnx(model: OnnxClassifier, tables: Sequence[Any]) -> AdaptedModel:
    """An ONNX session, with its own labels and threshold where its file has them."""
    return BlackBoxModel.wrap(
        model,
        tables,
        _checked(model, "ONNX model"),
        kind="ONNX model",
        decide=model.decide if model.decides else None,
        classes=model.classes,
        threshold=0.5 if math.isnan(model.threshold) else model.threshold,
    )


def _names(tables: Sequence[Any], positions: Sequence[int]) -> list[str]:
    if not positions or tables[0] is None:
        return []
    columns = check_features(tables[0]).columns
    return [str(columns[position]) for position in positions]


def _checked(method: Callable[[Any], Any], name: str) -> Answer:
    return lambda X: check_probabilities(method(X), len(X), name)


def _scores(method: Callable[[Any], Any]) -> Answer:
    return lambda X: np.asarray(method(X), dtype=np.float64)


def _booster(model: Any) -> Answer | None:
    """The native model of LightGBM or XGBoost, whose prediction for two classes is a probability."""
    home, name = type(model).__module__.partition(".")[0], type(model).__name__
    if name != "Booster":
        return None
    if home == "lightgbm":
        return _checked(model.predict, "booster")
    if home == "xgboost":
        xgboost = import_module("xgboost")
        return _checked(lambda X: model.predict(xgboost.DMatrix(X)), "booster")
    return None
