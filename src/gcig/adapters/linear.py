"""Linear classifiers of scikit-learn, with their decision function as one torch ``Linear``."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gcig.adapters.base import DifferentiableModel, class_codes, default_names, numeric_rows
from gcig.adapters.explainers import Rows


def linear_module(model: Any) -> nn.Module:
    """Return the decision function (n, p) -> (n,) of a linear classifier, copied in double precision."""
    weights = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    linear = nn.Linear(weights.shape[1], 1, dtype=torch.float64)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(weights))
        linear.bias.fill_(float(np.ravel(model.intercept_)[0]))
    return nn.Sequential(linear, nn.Flatten(0)).requires_grad_(False).eval()


@dataclass(frozen=True, kw_only=True, eq=False)
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
        """Copy ``coef_`` and ``intercept_``."""
        named = getattr(model, "feature_names_in_", None)
        names = default_names(np.shape(model.coef_)[-1]) if named is None else tuple(map(str, named))
        return cls(
            model=model,
            module=linear_module(model),
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
