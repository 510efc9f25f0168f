"""Fitted estimators with gradients: those of this package, linear classifiers of scikit-learn, and pipelines.

A pipeline whose steps transform each column separately (scalers, imputers, one-hot encoders, column
transformers of these) and whose last step is a linear classifier or an estimator of this package is explained
by integrated gradients on the transformed columns.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from torch import Tensor, nn

from gcig._arrays import Floats, Rows
from gcig._validation import InputError, check_features
from gcig.adapters.base import (
    DifferentiableModel,
    Outputs,
    call_with_groups,
    class_codes,
    default_names,
    numeric_rows,
)
from gcig.adapters.modules import Scored
from gcig.adapters.origin import Origin, origin_of_steps


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
        return cls(
            model=model,
            module=score if isinstance(score, nn.Module) else Scored(nn.Identity(), score),
            columns=tuple(model.encoder_.encoded_names_),
            origin=np.asarray(model.encoder_.origin_),
            original_names=tuple(model.encoder_.feature_names_in_),
            classes=np.asarray(model.classes_),
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
        """Return the probabilities of the estimator, from encoded rows if it can use them."""
        if encoded is not None and self._reuses_encoded("proba_from_encoded", "predict_proba"):
            return np.asarray(self.model.proba_from_encoded(encoded))[:, 1]
        return np.asarray(call_with_groups(self.model.predict_proba, X, sensitive_features))[:, 1]

    def decisions(self, X: Any, sensitive_features: Any, encoded: Rows, scores: Rows) -> Floats:  # noqa: ARG002 (it has its own rule)
        """Return the decisions, or their probabilities if the estimator draws them at random."""
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
    """A linear classifier of scikit-learn with two classes, on numeric rows."""

    kind: str = "linear classifier"

    @staticmethod
    def fits(model: Any) -> bool:
        """Return whether the model is linear in its inputs and has one score."""
        shape: tuple[int, ...] = getattr(getattr(model, "coef_", None), "shape", ())
        binary = len(getattr(model, "classes_", ())) == 2
        return binary and shape[:-1] in ((1,), ()) and len(shape) > 0 and hasattr(model, "intercept_")

    @classmethod
    def wrap(cls, model: Any) -> "LinearModel":
        """Copy ``coef_`` and ``intercept_`` in double precision."""
        named = getattr(model, "feature_names_in_", None)
        names = default_names(np.shape(model.coef_)[-1]) if named is None else tuple(map(str, named))
        weights = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
        linear = nn.Linear(weights.shape[1], 1, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weights))
            linear.bias.fill_(float(np.ravel(model.intercept_)[0]))
        return cls(
            model=model,
            module=nn.Sequential(linear, nn.Flatten(0)).requires_grad_(False).eval(),
            columns=names,
            origin=np.arange(len(names)),
            original_names=names,
            classes=np.asarray(model.classes_),
            probabilistic=hasattr(model, "predict_proba"),
            threshold=0.5 if hasattr(model, "predict_proba") else np.nan,
        )

    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:  # noqa: ARG002 (rows are taken as given)
        """Return the numbers as they are."""
        return numeric_rows(X, torch.float64)[0]

    def scores(self, X: Any, sensitive_features: Any = None, encoded: Rows | None = None) -> Rows:
        """Return the probabilities of the classifier, or its decision function if it has none."""
        if self.probabilistic:
            return np.asarray(self.model.predict_proba(X))[:, 1]
        return self.logits(self.encode(X, sensitive_features) if encoded is None else encoded)

    def decisions(self, X: Any, *_: Any) -> Floats:
        """Return the decisions of the classifier."""
        return class_codes(self.model.predict(X), self.classes)


# What a pipeline has in common with its last step.
_OF_LAST_STEP = (
    *("classes", "groups", "baselines", "baseline_counts", "blocks", "probabilistic", "threshold"),
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
