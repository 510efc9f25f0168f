"""Estimators of this package."""

from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from gcig._validation import InputError
from gcig.adapters.base import DifferentiableModel
from gcig.adapters.network import Scored
from gcig.adapters.rows import Rows, call_with_groups, class_codes

__all__ = ["GcigModel"]


@dataclass(frozen=True, kw_only=True, eq=False)
class GcigModel(DifferentiableModel):
    """An estimator of this package: it knows its columns, groups and training baselines."""

    kind: str = "gcig estimator"

    @staticmethod
    def fits(model: Any) -> bool:
        """Whether the model has the interface; on an unfitted estimator the attributes may raise."""
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
            threshold=float(getattr(model, "threshold_", np.nan)),
        )

    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:
        """What the estimator's network sees."""
        return np.asarray(call_with_groups(self.model.encode, X, sensitive_features))

    def _knowing(self, encoded: Rows) -> Self:
        """With a copy of the estimator that gives these rows when it is to encode."""
        model = copy(self.model)
        model.encode = lambda X, *, sensitive_features=None: encoded  # noqa: ARG005 (one table)
        return replace(self, model=model)

    def predict(self, X: Any, sensitive_features: Any = None) -> NDArray[np.int64]:
        """Decisions of the estimator, with the groups where it takes them."""
        return class_codes(call_with_groups(self.model.predict, X, sensitive_features), self.classes)

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> Rows:
        """Probabilities of the estimator."""
        return np.asarray(call_with_groups(self.model.predict_proba, X, sensitive_features))

    def expected_predictions(self, X: Any, sensitive_features: Any = None) -> NDArray[np.float64]:
        """The chances of an estimator that draws its decisions; else the decisions."""
        if not hasattr(self.model, "expected_predictions"):
            return super().expected_predictions(X, sensitive_features)
        chances = call_with_groups(self.model.expected_predictions, X, sensitive_features)
        return np.asarray(chances, dtype=np.float64)
