"""Methods whose decisions are drawn: the chance of each row, and draws that can be repeated."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import Tensor, nn

from gcig.methods.prepared import TrainingData
from gcig.methods.row_draws import row_uniforms
from gcig.methods.unconstrained import UnconstrainedClassifier

__all__ = ["RandomisedClassifier"]


class RandomisedClassifier(UnconstrainedClassifier):
    """A classifier that predicts the second class of a row with some probability.

    Decisions are drawn from the content of a row and a seed: a fitted model gives a row the same decision
    alone, in any table, and after it was saved and loaded. The chance itself is `expected_predictions`.

    Attributes
    ----------
    draw_seed_ : int
        Of the draws; from ``random_state`` when the model was fitted.
    threshold_ : float
        NaN: decisions are not made by one threshold on the probability.
    """

    predicts_by_network: ClassVar[bool] = False

    draw_seed_: int

    def expected_predictions(self, X: Any, *, sensitive_features: Any = None) -> NDArray[np.float64]:
        """The probability with which each row is predicted to be of the second class, shape (n,).

        Rates computed from it (its mean over the rows of a group and label) are the expected rates.
        """
        encoded = self.encode(X, sensitive_features=sensitive_features)
        return self.expected_from_encoded(encoded, sensitive_features=sensitive_features)

    def predict(self, X: Any, *, sensitive_features: Any = None, random_state: Any = None) -> NDArray[Any]:
        """The class of each row, drawn with the probability of `expected_predictions`.

        Parameters
        ----------
        X : table of shape (n, columns)
        sensitive_features : array, Series or DataFrame with n rows
            Where the method needs the groups of new rows.
        random_state : int, RandomState or None
            Another seed for the draws; None is the model's own.
        """
        encoded = self.encode(X, sensitive_features=sensitive_features)
        chances = self.expected_from_encoded(encoded, sensitive_features=sensitive_features)
        seed = self.draw_seed_
        if random_state is not None:
            seed = int(check_random_state(random_state).randint(2**31 - 1))
        positive = row_uniforms(encoded, seed)[:, 0] < chances
        return self.classes_[positive.astype(np.int64)]

    @abstractmethod
    def expected_from_encoded(
        self, encoded: NDArray[np.float32], *, sensitive_features: Any = None
    ) -> NDArray[np.float64]:
        """Return the probability of a positive decision for each encoded row."""

    def _train(self, network: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        super()._train(network, data, generator)
        # Drawn last, so that the network is the plain one of the same random_state.
        self.draw_seed_ = int(torch.randint(2**31 - 1, (), generator=generator))

    def _choose_threshold(self, data: TrainingData) -> float:  # noqa: ARG002 (there is none to choose)
        return math.nan

    def _labels_to_explain(self, encoded: NDArray[np.float32], y: Any) -> tuple[NDArray[np.int64], str]:
        if y is None:  # what is explained is the logit, whose sign is its prediction
            return (self._logits(encoded) >= 0).astype(np.int64), "predicted"
        return super()._labels_to_explain(encoded, y)

    def _to_document(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        document, tensors = super()._to_document()
        return {**document, "threshold": None, "draw_seed": self.draw_seed_}, tensors

    @classmethod
    def _from_document(
        cls, document: Mapping[str, Any], tensors: Mapping[str, Tensor], module: nn.Module | None
    ) -> Self:
        model = super()._from_document({**document, "threshold": math.nan}, tensors, module)
        model.draw_seed_ = int(document["draw_seed"])
        return model
