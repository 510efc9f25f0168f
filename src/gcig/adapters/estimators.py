"""Estimators of this package, which know their columns, groups and training baselines."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from gcig._validation import InputError
from gcig.adapters.base import DifferentiableModel, Floats, call_with_groups, class_codes
from gcig.adapters.explainers import Rows
from gcig.adapters.modules import Scored


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
