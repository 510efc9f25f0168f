"""Fitted estimators with gradients: those of this package, linear models of scikit-learn, and pipelines.

A pipeline whose steps transform each column separately (scalers, imputers, one-hot encoders, column
transformers of these) and whose last step is a linear model or an estimator of this package is explained
by integrated gradients on the transformed columns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.pipeline import Pipeline
from torch import Tensor, nn

from gcig._arguments import InputError
from gcig._arrays import Floats, Rows
from gcig.adapters.base import (
    DifferentiableModel,
    Outputs,
    Task,
    call_with_groups,
    class_codes,
    default_names,
    is_regression,
    numeric_rows,
)
from gcig.adapters.modules import Scored
from gcig.adapters.origin import Origin, origin_of_steps
from gcig.tables.check import check_features


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GcigModel(DifferentiableModel):
    """A fitted estimator of this package."""

    kind: str = "gcig estimator"

    @staticmethod
    def fits(model: Any) -> bool:
        """Return whether the model has the interface; the attributes of an unfitted estimator may raise."""
        return any(
            hasattr(owner, "encode") and hasattr(owner, "explained_score") for owner in (model, type(model))
        )

    @classmethod
    def wrap(cls, model: Any) -> "GcigModel":
        """Read the fitted attributes."""
        if not hasattr(model, "baselines_"):
            raise InputError(f"model: this {type(model).__name__} is not fitted. Call fit(...) first.")
        score, baselines = model.explained_score, model.baselines_
        task: Task = getattr(getattr(model, "task_", None), "key", "binary")
        return cls(
            model=model,
            task=task,
            module=score if isinstance(score, nn.Module) else Scored(nn.Identity(), score),
            columns=tuple(model.encoder_.encoded_names_),
            origin=np.asarray(model.encoder_.origin_),
            original_names=tuple(model.encoder_.feature_names_in_),
            classes=np.asarray(model.classes_) if task != "number" else None,
            probabilistic=task != "number",
            groups=tuple(model.groups_),
            baselines=baselines.cpu().numpy() if isinstance(baselines, Tensor) else np.asarray(baselines),
            baseline_counts=getattr(model, "cell_sizes_", None),
            blocks=np.asarray(model.blocks_) if hasattr(model, "blocks_") else None,
            threshold=float(getattr(model, "threshold_", np.nan)),
        )

    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:
        """Return the rows as the estimator's network sees them."""
        return np.asarray(call_with_groups(self.model.encode, X, sensitive_features))

    def scores(self, X: Any, sensitive_features: Any = None, encoded: Rows | None = None) -> Rows:
        """Return the probabilities of the estimator, from encoded rows if it can use them, or its numbers."""
        if self.task == "number":
            if encoded is not None and self._reuses_encoded("outputs_from_encoded", "predict"):
                return np.asarray(self.model.outputs_from_encoded(encoded))[:, 0]
            return np.asarray(call_with_groups(self.model.predict, X, sensitive_features))
        if encoded is not None and self._reuses_encoded("proba_from_encoded", "predict_proba"):
            found = np.asarray(self.model.proba_from_encoded(encoded))
        else:
            found = np.asarray(call_with_groups(self.model.predict_proba, X, sensitive_features))
        return found[:, 1] if self.task == "binary" else found

    def decisions(self, X: Any, sensitive_features: Any, encoded: Rows, scores: Rows) -> Floats:
        """Return the decisions, or their probabilities if the estimator draws them at random."""
        if self.task != "binary":
            return super().decisions(X, sensitive_features, encoded, scores)
        if self._reuses_encoded("expected_from_encoded", "predict", "predict_proba", "expected_predictions"):
            chances = self.model.expected_from_encoded(encoded, sensitive_features=sensitive_features)
        elif hasattr(self.model, "expected_predictions"):
            chances = call_with_groups(self.model.expected_predictions, X, sensitive_features)
        else:
            chances = class_codes(call_with_groups(self.model.predict, X, sensitive_features), self.classes)
        return np.asarray(chances, dtype=np.float64)

    def _reuses_encoded(self, hook: str, *methods: str) -> bool:
        """Return whether ``hook`` exists and no subclass overrides one of ``methods`` without it."""
        bases = type(self.model).__mro__
        first = {
            name: next((i for i, base in enumerate(bases) if name in vars(base)), len(bases))
            for name in (hook, *methods)
        }
        return first[hook] < len(bases) and first[hook] <= min(first[name] for name in methods)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LinearModel(DifferentiableModel):
    """A linear classifier or regressor of scikit-learn, on numeric rows."""

    kind: str = "linear classifier"

    @staticmethod
    def fits(model: Any) -> bool:
        """Return whether the model is linear in its inputs, with one score, or one per class."""
        shape: tuple[int, ...] = getattr(getattr(model, "coef_", None), "shape", ())
        if not shape or not hasattr(model, "intercept_"):
            return False
        n_classes = len(getattr(model, "classes_", ()))
        if n_classes > 2:
            return shape[:-1] == (n_classes,) and _is_linear(model, model.decision_function)
        one = shape[:-1] in ((1,), ())
        return one and (n_classes == 2 or (is_regression(model) and _is_linear(model, model.predict)))

    @classmethod
    def wrap(cls, model: Any) -> "LinearModel":
        """Copy ``coef_`` and ``intercept_`` in double precision."""
        named = getattr(model, "feature_names_in_", None)
        names = default_names(np.shape(model.coef_)[-1]) if named is None else tuple(map(str, named))
        weights = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
        linear = nn.Linear(weights.shape[1], len(weights), dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weights))
            linear.bias.copy_(torch.from_numpy(np.ravel(model.intercept_).astype(np.float64)))
        classes, probabilistic = getattr(model, "classes_", None), hasattr(model, "predict_proba")
        task: Task = "number" if classes is None else "binary" if len(classes) == 2 else "classes"
        module = linear if task == "classes" else nn.Sequential(linear, nn.Flatten(0))
        return cls(
            model=model,
            task=task,
            module=module.requires_grad_(False).eval(),
            columns=names,
            origin=np.arange(len(names)),
            original_names=names,
            classes=None if classes is None else np.asarray(classes),
            probabilistic=probabilistic,
            threshold=0.5 if probabilistic else np.nan,
            kind="linear regression" if task == "number" else cls.kind,
        )

    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:  # noqa: ARG002 (rows are taken as given)
        """Return the numbers as they are."""
        return numeric_rows(X, torch.float64)[0]

    def scores(self, X: Any, sensitive_features: Any = None, encoded: Rows | None = None) -> Rows:
        """Return the probabilities of the classifier, or its decision function if it has none, or numbers."""
        if self.probabilistic:
            found = np.asarray(self.model.predict_proba(X))
            return found[:, 1] if self.task == "binary" else found
        return self.outputs(self.encode(X, sensitive_features) if encoded is None else encoded)

    def decisions(self, X: Any, sensitive_features: Any, encoded: Rows, scores: Rows) -> Floats:
        """Return the decisions of the classifier, or the predicted numbers."""
        if self.task == "number":
            return super().decisions(X, sensitive_features, encoded, scores)
        return class_codes(self.model.predict(X), self.classes)


def _is_linear(model: Any, method: Callable[[Any], Any]) -> bool:
    """Return whether a method of a model gives a linear function of rows with the model's coefficients."""
    weights = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    rows = np.random.default_rng(0).normal(size=(4, weights.shape[1]))
    named = getattr(model, "feature_names_in_", None)
    found = np.asarray(method(rows if named is None else pd.DataFrame(rows, columns=named)))
    return np.allclose(found.reshape(4, -1), rows @ weights.T + model.intercept_)


# What a pipeline has in common with its last step.
_OF_LAST_STEP = (
    *("task", "classes", "groups", "baselines", "baseline_counts", "blocks", "probabilistic", "threshold"),
)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DifferentiablePipeline(DifferentiableModel):
    """A pipeline that encodes each column separately and ends in a linear classifier or a gcig estimator.

    ``last`` is the adapted last step; it takes the output of the steps before it.
    """

    last: DifferentiableModel

    @classmethod
    def of(cls, model: Any, X: Any) -> "DifferentiablePipeline | None":
        """Adapt a pipeline of this kind, naming its columns as it or ``X`` does; None for other models."""
        if not isinstance(model, Pipeline):
            return None
        step = model.steps[-1][1]
        kind = next((each for each in (GcigModel, LinearModel) if each.fits(step)), None)
        if kind is None:
            return None
        origin = origin_of_steps([step for _, step in model.steps[:-1]], int(model.n_features_in_))
        last: DifferentiableModel = kind.wrap(step)
        if origin is None or len(origin) != len(last.original_names):
            return None
        named = getattr(model, "feature_names_in_", None)
        if named is None:
            named = default_names(model.n_features_in_) if X is None else check_features(X).columns
        names = tuple(map(str, named))
        encodes_again = len(last.columns) != len(origin)  # the last step has an encoder of its own
        return cls(
            model=model,
            last=last,
            module=last.module,
            columns=last.columns if encodes_again else _encoded_names(model, names, origin),
            origin=origin[last.origin],
            original_names=names,
            kind=f"scikit-learn pipeline with a {last.kind}",
            **{name: getattr(last, name) for name in _OF_LAST_STEP},
        )

    def _transform(self, X: Any) -> Any:
        """Return the rows as the last step takes them."""
        transformed = self.model[:-1].transform(X)
        return transformed.toarray() if hasattr(transformed, "toarray") else transformed

    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:
        """Return the rows as the last step encodes them."""
        return self.last.encode(self._transform(X), sensitive_features)

    def scores(self, X: Any, sensitive_features: Any = None, encoded: Rows | None = None) -> Rows:
        """Return the probabilities of the last step, or its scores if it has none."""
        return self.last.scores(self._transform(X), sensitive_features, encoded)

    def predict(
        self, X: Any, sensitive_features: Any = None, *, encoded: Rows, threshold: float | None = None
    ) -> Outputs:
        """Return scores and decisions of the last step; the steps before it are applied once."""
        return self.last.predict(self._transform(X), sensitive_features, encoded=encoded, threshold=threshold)


def _encoded_names(model: Pipeline, names: tuple[str, ...], origin: Origin) -> tuple[str, ...]:
    try:
        return tuple(map(str, model[:-1].get_feature_names_out()))
    except (AttributeError, ValueError):  # some step does not name its outputs
        return tuple(f"{names[j]} ({i})" for i, j in enumerate(origin.tolist()))
