"""Any model behind one interface: what evaluation and audits need of it, and nothing else."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gcig._validation import InputError
from gcig.adapters.explainers import Explainer, GradientExplainer
from gcig.adapters.rows import Rows, to_tensor
from gcig.core.modules import evaluating

__all__ = ["AdaptedModel", "DifferentiableModel", "Outputs"]

CHUNK_ROWS = 65_536


@dataclass(frozen=True, eq=False)
class Outputs:
    """What a model says of some rows.

    Attributes
    ----------
    scores : (m,) probabilities of label 1, or scores where the model gives no probabilities.
    decisions : (m,) 0 or 1, or the chance of 1 where the model draws its decisions.
    """

    scores: Rows
    decisions: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class AdaptedModel(ABC):
    """A model behind one interface.

    Attributes
    ----------
    model : the model itself.
    columns : names of the columns that attributions are given for.
    origin : index into ``original_names`` of the column that each of ``columns`` came from.
    original_names : names of the columns as the user gave them.
    classes : the two class labels in order (the second is the positive one), or None where not known.
    groups : names of the groups that the model was trained with, or None.
    baselines : (2, groups, p) means of the encoded training rows per label and group, or None.
    threshold : probability from which a row is predicted 1; NaN where the model decides otherwise.
    probabilistic : whether ``predict_proba`` is defined.
    kind : what it is, in words for a report.
    """

    model: Any
    columns: tuple[str, ...]
    origin: NDArray[np.int64]
    original_names: tuple[str, ...]
    classes: NDArray[Any] | None = None
    groups: tuple[str, ...] | None = None
    baselines: Rows | None = None
    threshold: float = 0.5
    probabilistic: bool = True
    kind: str = "model"

    @property
    @abstractmethod
    def explainer(self) -> Explainer:
        """What gives attributions for encoded rows."""

    @abstractmethod
    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:
        """Rows as the explainer takes them, (n, p)."""

    @abstractmethod
    def predict(self, X: Any, sensitive_features: Any = None) -> NDArray[np.int64]:
        """Predictions of the model's own decision rule, as 0 and 1: positions in ``classes``."""

    @abstractmethod
    def predict_proba(self, X: Any, sensitive_features: Any = None) -> Rows:
        """Probabilities of the two classes, (n, 2)."""

    def expected_predictions(self, X: Any, sensitive_features: Any = None) -> NDArray[np.float64]:
        """Chance with which each row is predicted 1: 0 or 1, except where the model draws its decisions."""
        return self.predict(X, sensitive_features).astype(np.float64)

    @abstractmethod
    def logits(self, encoded: Rows) -> Rows:
        """The explained score of encoded rows, (n,)."""

    def answer(
        self, X: Any, sensitive_features: Any = None, *, encoded: Rows, threshold: float | None = None
    ) -> Outputs:
        """Scores and decisions for rows that are ``encoded`` already.

        ``threshold``, a probability, takes the place of the model's own rule.
        """
        if threshold is not None and not self.probabilistic:
            name = type(self.model).__name__
            raise InputError(f"threshold is a probability, and a {name} gives none. Leave it out.")
        scores = self._scores(X, sensitive_features, encoded)
        if threshold is not None:
            return Outputs(scores, (scores >= threshold).astype(np.float64))
        return Outputs(scores, self._decisions(X, sensitive_features, encoded))

    def _scores(self, X: Any, sensitive_features: Any, encoded: Rows) -> Rows:
        return self.predict_proba(X, sensitive_features)[:, 1] if self.probabilistic else self.logits(encoded)

    def _decisions(
        self,
        X: Any,
        sensitive_features: Any,
        encoded: Rows,  # noqa: ARG002 (for models that decide on encoded rows)
    ) -> NDArray[np.float64]:
        return self.expected_predictions(X, sensitive_features)


@dataclass(frozen=True, kw_only=True, eq=False)
class DifferentiableModel(AdaptedModel):
    """A model whose score is a torch module over encoded rows, (n, p) -> (n,) logits."""

    module: nn.Module

    @property
    def explainer(self) -> Explainer:
        """Integrated gradients of the module."""
        return GradientExplainer(self.module)

    def logits(self, encoded: Rows) -> Rows:
        """Output of ``module`` for encoded rows, in evaluation mode and in chunks: (n,)."""
        chunks = (encoded[i : i + CHUNK_ROWS] for i in range(0, len(encoded), CHUNK_ROWS))
        with evaluating(self.module), torch.no_grad():
            parts = [self.module(to_tensor(chunk, self.module)) for chunk in chunks]
        return torch.cat(parts).cpu().numpy()
