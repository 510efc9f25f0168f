"""Classifiers of scikit-learn that are differentiable: linear ones, and pipelines that end in one.

A pipeline whose steps transform each column separately (scalers, imputers, one-hot encoders, column
transformers of these) and whose last step is a linear classifier or an estimator of this package is explained
by integrated gradients on the transformed columns.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from torch import nn

from gcig._validation import check_features
from gcig.adapters.base import DifferentiableModel, Outputs, class_codes, default_names, numeric_rows
from gcig.adapters.estimators import GcigModel
from gcig.adapters.explainers import Rows
from gcig.adapters.origin import Origin, origin_of_steps


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

    def decisions(self, X: Any, *_: Any) -> NDArray[np.float64]:
        """Return the decisions of the classifier."""
        return class_codes(self.model.predict(X), self.classes)


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
            classes=last.classes,
            groups=last.groups,
            baselines=last.baselines,
            blocks=last.blocks,
            probabilistic=last.probabilistic,
            threshold=last.threshold,
            kind=f"scikit-learn pipeline with a {last.kind}",
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
