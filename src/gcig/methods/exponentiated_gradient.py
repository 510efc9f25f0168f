"""The reductions approach: a mixture of networks trained on reweighted rows.

Two classes get equal odds (Agarwal et al. 2018, "A reductions approach to fair classification",
https://arxiv.org/abs/1803.02453), a number a bound on the loss of every group (Agarwal, Dudik and Wu 2019,
"Fair regression", https://arxiv.org/abs/1905.12843), by Fairlearn's `ExponentiatedGradient`.
"""

import math
import warnings
from copy import deepcopy
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from fairlearn.reductions import BoundedGroupLoss, EqualizedOdds, ExponentiatedGradient, SquareLoss
from sklearn.base import BaseEstimator
from torch import nn

from gcig._arguments import number, optional
from gcig._arrays import Codes, Encoded, Floats
from gcig.core.outcome import cell_rates
from gcig.methods.base import train_plainly
from gcig.methods.networks import MixtureOfOutputs
from gcig.methods.parameters import POSITIVE_INTEGER, Parametrised, parameter
from gcig.methods.randomised import RandomisedClassifier
from gcig.methods.training_data import TrainingData, resample
from gcig.methods.unconstrained import UnconstrainedRegressor
from gcig.training.batches import all_outputs
from gcig.training.loop import Loop, Outcome
from gcig.training.runtime import resolve_batch_size

_MIN_ROUND_STEPS = 150  # mini-batches per round
_EPS = number("a number from 1e-6 to less than 1", lambda value: 1e-6 <= value < 1)
_NEGLIGIBLE_WEIGHT = 1e-6  # a network with less is left out of the mixture


class _Rounds(BaseEstimator):
    """The estimator that Fairlearn trains in each round: a network on rows given by their numbers."""

    def __init__(self, start: nn.Module, data: TrainingData, model: Any, generator: torch.Generator) -> None:
        self.start, self.data, self.model, self.generator = start, data, model, generator

    def __sklearn_clone__(self) -> "_Rounds":
        return _Rounds(**self.get_params(deep=False))  # shared: a deep copy would copy all rows

    def fit(self, X: Codes, y: Any, sample_weight: Any) -> "_Rounds":  # noqa: ARG002 (all rows)
        rows, self.network_ = self.data.training, deepcopy(self.start)
        labels, weights = torch.tensor(np.asarray(y)), torch.tensor(np.asarray(sample_weight))
        costs = replace(rows, labels=labels.to(rows.labels), weights=weights.to(rows.inputs))
        data, loop = replace(self.data, training=costs, validation=None), self.model.round_loop(len(rows))
        train_plainly(self.network_, data, self.model, self.generator, loop=loop, stage="round")
        outputs = all_outputs(self.network_, rows.inputs)[:, 0].double()
        self.predictions_ = (
            (outputs if self.data.task.key == "number" else (outputs >= 0).long()).cpu().numpy()
        )
        return self

    def predict(self, X: Codes) -> Floats:
        return self.predictions_[X[:, 0]]


class Reduction(Parametrised):
    """The parameters of the reductions approach, and the search for the mixture."""

    method_key: ClassVar[str] = "agarwal"
    fitted_attributes: ClassVar[tuple[str, ...]] = ("n_rounds_", "best_gap_")
    n_rounds_: int
    best_gap_: float

    eps: float = parameter(
        default=0.01,
        rule=_EPS,
        doc="How far rates may be from those of all rows; also the inverse of the largest multiplier.",
    )
    max_iter: int = parameter(
        default=20,
        rule=POSITIVE_INTEGER,
        doc="""Iterations of exponentiated gradient, each of which trains about four networks. It stops when
        the duality gap is small, after six iterations at the earliest.""",
    )
    round_epochs: int | str = parameter(
        default="auto",
        rule=optional(POSITIVE_INTEGER, "auto"),
        doc="""Epochs for which each network is trained, starting from the unconstrained one; ``"auto"`` is
        three, or more if three have fewer than 150 mini-batches (from scratch, a round would cost ten times
        as much). If a round is too short to overshoot the constraint, no mixture meets it.""",
    )

    def round_loop(self: Any, n_rows: int) -> Loop:
        """Return how long each network is trained on this many rows."""
        batch_size = resolve_batch_size(self.batch_size, n_rows)
        auto = max(3, math.ceil(_MIN_ROUND_STEPS / math.ceil(n_rows / batch_size)))
        return Loop(auto if self.round_epochs == "auto" else int(self.round_epochs), batch_size)

    def train_network(
        self, network: nn.Module, data: TrainingData, generator: torch.Generator
    ) -> tuple[nn.Module, Outcome]:
        """Train the unconstrained network, and from it the best mixture within the constraints."""
        start, outcome = super().train_network(network, data, generator)
        rows = resample(data.training)
        labels, groups = rows.labels.cpu().numpy(), rows.groups.cpu().numpy()
        constraint: Any = EqualizedOdds(difference_bound=self.eps)
        if data.task.key == "number":
            loss = data.task.loss(all_outputs(start, rows.inputs), rows.labels)
            square = SquareLoss(float(labels.min()), float(labels.max()))
            constraint = BoundedGroupLoss(square, upper_bound=float(loss.mean()))
        rounds = _Rounds(start, replace(data, training=rows), self, generator)
        search = ExponentiatedGradient(rounds, constraint, eps=self.eps, max_iter=self.max_iter)
        with warnings.catch_warnings():
            # Fairlearn 0.15 uses pandas in ways that pandas 3 deprecates.
            warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"fairlearn\.")
            search.fit(np.arange(len(rows))[:, None], labels, sensitive_features=groups)
        self.n_rounds_, self.best_gap_ = int(search.n_oracle_calls_), float(search.best_gap_)
        # If the costs of all rows have one sign, Fairlearn predicts one class itself, without a network.
        trained = [k for k, each in search.predictors_.items() if isinstance(each, _Rounds)]
        weights = search.weights_[trained][search.weights_[trained] > _NEGLIGIBLE_WEIGHT]
        networks = [search.predictors_[k].network_ for k in weights.index]
        mixture = MixtureOfOutputs(networks or [start], weights.tolist() or [1.0]).to(rows.inputs.device)
        if data.task.key == "number" and worst_loss(mixture, data) > worst_loss(start, data):
            mixture = MixtureOfOutputs([start], [1.0]).to(rows.inputs.device)  # no gain on new rows
        return mixture, outcome


def worst_loss(network: nn.Module, data: TrainingData) -> float:
    """Return the mean loss of the group with the largest one, on the rows that a model is measured on."""
    rows = data.held_out
    losses = data.task.loss(all_outputs(network, rows.inputs), rows.labels).unsqueeze(1)
    everyone = torch.zeros_like(rows.groups)
    return float(cell_rates(losses, everyone, rows.groups, 1, data.n_groups, rows.weights)[0].max())


class ExponentiatedGradientClassifier(Reduction, RandomisedClassifier):
    """A mixture of networks with equal true and false positive rates, for two classes.

    Each round trains a network on relabelled, reweighted rows (repeated in proportion to ``sample_weight``).
    For every row one network of the mixture is drawn to decide: `predict` draws reproducibly,
    `expected_predictions` returns the probabilities. What is explained is the weighted mean of the logits.

    Attributes
    ----------
    module_ : MixtureOfOutputs
        The networks with a positive weight, and the weights.
    n_rounds_, best_gap_ : int, float
        Number of networks that were trained, and duality gap at the end.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german")
    >>> model = ExponentiatedGradientClassifier(max_epochs=3, max_iter=3, round_epochs=1, random_state=0)
    >>> model = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> model.expected_predictions(data.X).shape
    (1000,)
    """

    def expected_from_encoded(self, encoded: Encoded, *, sensitive_features: Any = None) -> Floats:  # noqa: ARG002 (one interface)
        """Return the weight of the networks that decide for the second class, for each encoded row."""
        mixture: Any = self.module_
        outputs = [all_outputs(network, torch.from_numpy(encoded)) for network in mixture.networks]
        decisions = self.task_.decisions(torch.cat(outputs, dim=1)).double()
        return np.asarray((decisions @ mixture.weights.double()).clamp(max=1.0).numpy())


class ExponentiatedGradientRegressor(Reduction, UnconstrainedRegressor):
    """A mixture of networks under a bound on the mean squared error of every group, for a number.

    The bound is the plain network's error on all rows. As it can seldom be met, `eps` says what it may cost.
    The prediction is the mean of the networks' predictions, whose error in every group is at most that of a
    network drawn for each row. If the worst group gains nothing on held-out rows, the plain network is kept.
    Everything else is as in `ExponentiatedGradientClassifier`.
    """

    eps: float = parameter(
        default=0.5,
        rule=_EPS,
        doc="""The inverse of the largest multiplier: the worst group's error above the bound counts up to so
        often (by default twice) as much as the error of all rows.""",
    )
