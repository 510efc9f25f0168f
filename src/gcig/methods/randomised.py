"""Randomised classifiers of two classes: decisions are drawn, reproducibly, with a known probability."""

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import Tensor, nn

from gcig._arrays import Encoded, Floats
from gcig.core.task import Binary, Task
from gcig.methods.training_data import TrainingData
from gcig.methods.unconstrained import UnconstrainedClassifier
from gcig.training.loop import Outcome

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def row_uniforms(rows: NDArray[np.floating], seed: int, n_draws: int = 1) -> Floats:
    """Draw numbers in (0, 1), of shape (n, n_draws), from the content of each row and a seed.

    A row gets the same numbers alone, in any table and after a restart. They are the finaliser of SplitMix64
    (Steele, Lea and Flood 2014) over the bits of the values.

    >>> rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> bool((row_uniforms(rows, 0)[::-1] == row_uniforms(rows[::-1], 0)).all())
    True
    """
    values = np.ascontiguousarray(rows, dtype=np.float64) + 0.0  # turns -0.0 into 0.0, whose bits differ
    keys = _mix(np.full(len(values), seed % 2**64, dtype=np.uint64))
    for column in values.view(np.uint64).T:
        keys = _mix(keys ^ column)
    counters = _GOLDEN * np.arange(1, n_draws + 1, dtype=np.uint64)
    draws = _mix(keys[:, None] + counters)
    return ((draws >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def _mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Map 64-bit numbers one to one; every output bit depends on every input bit."""
    numbers = numbers + _GOLDEN
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _SECOND
    return numbers ^ (numbers >> np.uint64(31))


class RandomisedClassifier(UnconstrainedClassifier, without=("threshold",)):
    """A classifier that predicts the second of two classes with some probability.

    Decisions are drawn from the content of a row and a seed, so a fitted model gives a row the same decision
    alone, in any table, and after saving and loading. `expected_predictions` returns the probability itself.

    Attributes
    ----------
    draw_seed_ : int
        Seed of the draws, set by ``random_state`` in `fit`.
    threshold_ : float
        NaN: decisions are not made by one threshold on the probability.
    """

    tasks: ClassVar[tuple[str, ...]] = ("binary",)
    predicts_by_network: ClassVar[bool] = False
    fitted_attributes: ClassVar[tuple[str, ...]] = ("draw_seed_",)
    draw_seed_: int

    def expected_predictions(self, X: Any, *, sensitive_features: Any = None) -> Floats:
        """Return the probability with which each row is predicted to be of the second class, shape (n,).

        Rates computed from it (its mean over the rows of a group and label) are the expected rates.
        """
        encoded = self.encode(X, sensitive_features=sensitive_features)
        return self.expected_from_encoded(encoded, sensitive_features=sensitive_features)

    def predict(self, X: Any, *, sensitive_features: Any = None, random_state: Any = None) -> NDArray[Any]:
        """Draw the class of each row with the probability of `expected_predictions`.

        Parameters
        ----------
        X : table of shape (n, columns)
        sensitive_features : array, Series or DataFrame with n rows
            Required if the method needs the groups of new rows.
        random_state : int, RandomState or None
            Another seed for the draws; None uses `draw_seed_`.
        """
        encoded = self.encode(X, sensitive_features=sensitive_features)
        probability = self.expected_from_encoded(encoded, sensitive_features=sensitive_features)
        seed = self.draw_seed_
        if random_state is not None:
            seed = int(check_random_state(random_state).randint(2**31 - 1))
        positive = row_uniforms(encoded, seed)[:, 0] < probability
        return self.classes_[positive.astype(np.int64)]

    @abstractmethod
    def expected_from_encoded(self, encoded: Encoded, *, sensitive_features: Any = None) -> Floats:
        """Return the probability of a positive decision for each encoded row."""

    def train_network(
        self, network: nn.Module, data: TrainingData, generator: torch.Generator
    ) -> tuple[nn.Module, Outcome]:
        """Train the unconstrained network and draw the seed of decisions."""
        network, outcome = super().train_network(network, data, generator)
        # Drawn last: the network equals the unconstrained one of the same random_state.
        self.draw_seed_ = int(torch.randint(2**31 - 1, (), generator=generator))
        return network, outcome

    def check_learned(self) -> None:
        """Raise a `ValueError` unless the seed of the draws is an integer."""
        super().check_learned()
        if type(self.draw_seed_) is not int:
            raise ValueError("the seed of the draws is not an integer")

    def _make_task(self, labels: Tensor, weights: Tensor | None, n_classes: int) -> Task:  # noqa: ARG002
        return Binary()

    def _choose_threshold(self, data: TrainingData) -> float:  # noqa: ARG002 (there is none to choose)
        return math.nan

    def _labels_to_explain(self, encoded: Encoded, y: Any) -> tuple[NDArray[Any], str]:
        if y is None:  # the explained logit predicts by its sign
            return (self.outputs_from_encoded(encoded)[:, 0] >= 0).astype(np.int64), "predicted"
        return super()._labels_to_explain(encoded, y)
