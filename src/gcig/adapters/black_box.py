"""Models that are only called: estimators, boosted trees, ONNX sessions, functions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcig._validation import InputError
from gcig.adapters.base import AdaptedModel
from gcig.adapters.cells import TableCells
from gcig.adapters.explainers import Explainer
from gcig.adapters.rows import Rows, class_codes
from gcig.adapters.shapley import ShapleyExplainer, clipped_logits

__all__ = ["BlackBoxModel", "check_probabilities"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class BlackBoxModel(AdaptedModel):
    """A model of which nothing is known but what it answers; explained on the original columns.

    Attributes
    ----------
    cells : how its table is encoded.
    score : table -> (n,) probability of label 1, or any score where it is not ``probabilistic``.
    decide : table -> classes, where the model has a decision rule of its own.
    """

    cells: TableCells
    score: Callable[[Any], Floats]
    decide: Callable[[Any], Any] | None = None

    @classmethod
    def wrap(
        cls,
        model: Any,
        tables: Sequence[Any],
        score: Callable[[Any], Floats],
        *,
        kind: str,
        decide: Callable[[Any], Any] | None = None,
        classes: NDArray[Any] | None = None,
        probabilistic: bool = True,
        threshold: float = 0.5,
        categorical: Sequence[str] = (),
    ) -> "BlackBoxModel":
        """Learn the columns from the tables that the model is applied to."""
        if not tables or tables[0] is None:
            raise TypeError("X: this model does not know its columns. Pass the rows that it is applied to.")
        cells = TableCells.learn(tables, categorical)
        return cls(
            model=model,
            columns=cells.names,
            origin=np.arange(len(cells.names)),
            original_names=cells.names,
            classes=classes,
            threshold=threshold if probabilistic else np.nan,
            probabilistic=probabilistic,
            cells=cells,
            score=score,
            decide=decide,
            kind=kind,
        )

    @property
    def explainer(self) -> Explainer:
        """Shapley values of the logit."""
        return ShapleyExplainer(self.cells, self.score, self.probabilistic)

    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:  # noqa: ARG002 (no group needed)
        """Numbers, and one column for each category."""
        return self.cells.encode(X)

    def predict(self, X: Any, sensitive_features: Any = None) -> NDArray[np.int64]:
        """The model's own decisions, or whether the probability reaches the threshold."""
        if self.decide is not None:
            return class_codes(self.decide(X), self.classes)
        return (self.predict_proba(X, sensitive_features)[:, 1] >= self.threshold).astype(np.int64)

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> Rows:  # noqa: ARG002 (no group needed)
        """What the model answers."""
        positive = self.score(X)
        return np.stack([1 - positive, positive], axis=1)

    def logits(self, encoded: Rows) -> Rows:
        """The explained score of encoded rows."""
        cells = self.cells.cells(np.asarray(encoded, dtype=np.float64))
        scores = np.asarray(self.score(self.cells.decode(cells)), dtype=np.float64)
        return clipped_logits(scores) if self.probabilistic else scores


def check_probabilities(output: Any, n_rows: int, model: str) -> Floats:
    """(n,) probabilities of label 1 from an output of shape (n,), (n, 1) or (n, 2)."""
    found = np.asarray(output, dtype=np.float64)
    if found.shape == (n_rows, 2):
        found = found[:, 1]
    elif found.shape == (n_rows, 1):
        found = found[:, 0]
    if found.shape != (n_rows,):
        raise InputError(
            f"model: for {n_rows} rows the {model} gives an output of shape {found.shape}, where "
            f"probabilities of shape ({n_rows},) or ({n_rows}, 2) are needed."
        )
    outside = int(np.count_nonzero(~((found >= -1e-6) & (found <= 1 + 1e-6))))
    if outside:
        raise InputError(
            f"model: {outside} of {n_rows} outputs of the {model} are missing or outside [0, 1]; "
            "probabilities are needed. Wrap it in a function that turns its output into probabilities."
        )
    return np.clip(found, 0.0, 1.0)
