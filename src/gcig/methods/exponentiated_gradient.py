"""Equalized odds by the reductions approach: a randomised mixture of networks trained on reweighted rows.

Agarwal, Beygelzimer, Dudik, Langford and Wallach (2018), "A reductions approach to fair classification",
https://arxiv.org/abs/1803.02453; the saddle point is found by Fairlearn's `ExponentiatedGradient`.
"""

import math
import warnings
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from fairlearn.reductions import EqualizedOdds, ErrorRate, ExponentiatedGradient
from sklearn.base import BaseEstimator
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gcig._arrays import Codes, Encoded, Floats
from gcig.core.batch import GroupedBatch
from gcig.core.modules import evaluating, logits
from gcig.engine.cuda_graph import can_be_recorded, make_step
from gcig.engine.optimizer import FlatAdamW, clip_norm, flat_parameters
from gcig.methods.networks import CLIP_NORM, MixtureOfLogits
from gcig.methods.parameters import POSITIVE_INTEGER, number, optional, parameter
from gcig.methods.randomised import RandomisedClassifier
from gcig.methods.training_data import TrainingData
from gcig.training.loop import Loop, Outcome, train
from gcig.training.runtime import one_thread, resolve_batch_size

_ROWS_AT_ONCE = 65_536
_MIN_ROUND_STEPS = 150  # mini-batches per round
_NEGLIGIBLE_WEIGHT = 1e-6  # a predictor with less is left out of the mixture


class ExponentiatedGradientClassifier(RandomisedClassifier):
    """A mixture of networks with equal true and false positive rates, by the reductions approach.

    The constraints become costs of single rows: each round trains a network on relabelled, reweighted rows,
    and the result is the mixture with the least error within the constraints on the training rows. For every
    row one of the networks is drawn to decide. `predict` draws reproducibly, `expected_predictions` returns
    the probabilities; neither needs groups. The logit and the probabilities are those of the weighted mean of
    the networks' logits, which is also what GCIG explains.

    Every round starts from the unconstrained network and trains for a few epochs: from scratch a round costs
    ten times as much. ``sample_weight`` counts in the error and in the rates that are made equal.

    Attributes
    ----------
    module_ : MixtureOfLogits
        The networks with a positive weight, and the weights.
    n_rounds_ : int
        Number of networks that were trained.
    best_gap_ : float
        Duality gap at the end.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german")
    >>> model = ExponentiatedGradientClassifier(max_epochs=3, max_iter=3, round_epochs=1, random_state=0)
    >>> model = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> model.expected_predictions(data.X).shape
    (1000,)
    """

    method_key: ClassVar[str] = "agarwal"

    fitted_attributes: ClassVar[tuple[str, ...]] = ("n_rounds_", "best_gap_")

    eps: float = parameter(
        default=0.01,
        rule=number("a number from 1e-6 to less than 1", lambda value: 1e-6 <= value < 1),
        doc="""How far the rates of a group may be from the rates of all rows; also the inverse of the largest
        multiplier.""",
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
        three, or more if three have fewer than 150 mini-batches. If a round is too short to overshoot the
        constraint, no mixture meets it.""",
    )

    def expected_from_encoded(self, encoded: Encoded, *, sensitive_features: Any = None) -> Floats:  # noqa: ARG002 (one interface)
        """Return the weight of the networks that decide for the second class, for each encoded row."""
        mixture = self.module_
        assert isinstance(mixture, MixtureOfLogits)
        parts = torch.from_numpy(encoded).split(_ROWS_AT_ONCE)
        with evaluating(mixture), torch.no_grad():
            decisions = torch.cat([mixture.each(part) > 0 for part in parts]).double()
        return np.asarray((decisions @ mixture.weights.double()).clamp(max=1.0).numpy())

    def make_network(self, n_inputs: int, generator: torch.Generator) -> nn.Module:
        """Return a mixture of one untrained network."""
        return MixtureOfLogits([super().make_network(n_inputs, generator)], [1.0])

    def train_network(self, network: nn.Module, data: TrainingData, generator: torch.Generator) -> Outcome:
        """Train the unconstrained network, and replace it by the mixture of the rounds."""
        assert isinstance(network, MixtureOfLogits)
        unconstrained = network.networks[int(network.weights.argmax())]
        outcome = super().train_network(unconstrained, data, generator)
        oracle = self._make_oracle(unconstrained, data.training, generator)
        reduction = _reduce(oracle, data.training, data.weights, self.eps, self.max_iter)
        weights = reduction.weights_.sort_index().to_numpy()
        kept = np.flatnonzero(weights > _NEGLIGIBLE_WEIGHT)
        network.replace([reduction.predictors_[index].network_ for index in kept], weights[kept].tolist())
        self.n_rounds_ = int(reduction.n_oracle_calls_)
        self.best_gap_ = float(reduction.best_gap_)
        return outcome

    def _make_oracle(self, start: nn.Module, rows: GroupedBatch, generator: torch.Generator) -> "_Oracle":
        batch_size = resolve_batch_size(self.batch_size, len(rows))
        epochs = _resolve_round_epochs(self.round_epochs, math.ceil(len(rows) / batch_size))
        train_round = partial(
            train_weighted,
            loop=Loop(epochs, batch_size),
            learning_rate=self.resolve_learning_rate(batch_size),
            weight_decay=self.weight_decay,
            generator=generator,
        )
        return _Oracle(start, rows.inputs, train_round)


class _Oracle(BaseEstimator):
    """The estimator that Fairlearn trains in each round: a network on rows given by their numbers."""

    def __init__(self, start: nn.Module, inputs: Tensor, train_round: Callable[..., Outcome]) -> None:
        self.start, self.inputs, self.train_round = start, inputs, train_round

    def __sklearn_clone__(self) -> "_Oracle":
        return _Oracle(self.start, self.inputs, self.train_round)  # shared: a deep copy would copy all rows

    def fit(self, X: Codes, y: Any, sample_weight: Any) -> "_Oracle":  # noqa: ARG002 (all rows)
        labels, costs = (torch.tensor(np.asarray(values)) for values in (y, sample_weight))
        self.network_ = deepcopy(self.start)
        device = self.inputs.device
        self.train_round(self.network_, self.inputs, labels.to(device), costs.to(self.inputs))
        with evaluating(self.network_), torch.no_grad():
            self.decisions_ = (logits(self.network_, self.inputs) > 0).long().cpu().numpy()
        return self

    def predict(self, X: Codes) -> Codes:
        return self.decisions_[X[:, 0]]


def _resolve_round_epochs(round_epochs: int | str, batches: int) -> int:
    """Return the epochs of a round for this many mini-batches per epoch."""
    return max(3, math.ceil(_MIN_ROUND_STEPS / batches)) if round_epochs == "auto" else int(round_epochs)


def _reduce(
    oracle: _Oracle, rows: GroupedBatch, weights: Tensor | None, eps: float, max_iter: int
) -> ExponentiatedGradient:
    """Search for the saddle point with Fairlearn, which sees rows as their numbers."""
    labels, groups = rows.labels.cpu().numpy(), rows.groups.cpu().numpy()
    counts = np.ones(len(rows)) if weights is None else weights.double().cpu().numpy()
    bound, error = WeightedEqualizedOdds(counts, difference_bound=eps), WeightedErrorRate(counts)
    reduction = ExponentiatedGradient(oracle, bound, objective=error, eps=eps, max_iter=max_iter)
    with warnings.catch_warnings():
        # Fairlearn 0.15 uses pandas in ways that pandas 3 deprecates.
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"fairlearn\.")
        return reduction.fit(np.arange(len(rows))[:, None], labels, sensitive_features=groups)


def train_weighted(
    network: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    weights: Tensor,
    *,
    loop: Loop,
    learning_rate: float,
    weight_decay: float,
    generator: torch.Generator,
) -> Outcome:
    """Train a network in place with weighted cross-entropy, to the last epoch."""
    targets, weights = labels.to(inputs.dtype), weights.to(inputs.dtype)
    device = inputs.device
    network.train()
    with one_thread(device), flat_parameters(network) as parameters:
        optimizer = FlatAdamW(parameters, learning_rate=learning_rate, weight_decay=weight_decay)

        def step(rows: Tensor) -> dict[str, Tensor]:
            scores = logits(network, inputs.index_select(0, rows))
            loss = binary_cross_entropy_with_logits(scores, targets[rows], weight=weights[rows])
            optimizer.zero_grad()
            loss.backward()
            clip_norm(parameters, CLIP_NORM)
            optimizer.step()
            return {"total": loss.detach()}

        return train(
            make_step(step, optimizer.load_rate, recorded=can_be_recorded(network)),
            network,
            optimizer,
            n_rows=len(inputs),
            loop=loop,
            generator=generator,
            device=device,
        )


class WeightedErrorRate(ErrorRate):
    """The share of wrong decisions, weighted by row."""

    def __init__(self, weights: Floats) -> None:
        super().__init__()
        self.weights = weights / weights.mean()

    def load_data(self, X: Any, y: Any, *, sensitive_features: Any) -> None:
        """Keep the labels."""
        super().load_data(X, y, sensitive_features=sensitive_features)
        self.labels = np.asarray(y)

    def gamma(self, predictor: Callable[[Any], Any]) -> "pd.Series[float]":
        """Return the error of a predictor."""
        wrong = np.abs(self.labels - np.asarray(predictor(self.X)))
        return pd.Series(float((self.weights * wrong).mean()), index=self.index)

    def signed_weights(self, lambda_vec: Any = None) -> "pd.Series[float]":  # noqa: ARG002 (the objective's own)
        """Return how much a positive decision lowers the error, per row."""
        return pd.Series(self.weights * (2 * self.labels - 1), index=self.tags.index)


class WeightedEqualizedOdds(EqualizedOdds):
    """A bound on the differences of a group's weighted rates from those of all rows with the same label."""

    prob_event: "pd.Series[float]"
    prob_group_event: "pd.Series[float]"

    def __init__(self, weights: Floats, *, difference_bound: float) -> None:
        super().__init__(difference_bound=difference_bound)
        self.weights = weights / weights.mean()

    def load_data(self, X: Any, y: Any, *, sensitive_features: Any, control_features: Any = None) -> None:
        """Load the data and replace counted shares by weighted ones.

        ``U`` has a column for each sign, label and group; with ``utilities`` of 0 and 1 the violations of a
        predictor are ``-U.T @ decisions / n``.
        """
        super().load_data(X, y, sensitive_features=sensitive_features, control_features=control_features)
        weights = pd.Series(self.weights, index=self.tags.index)
        events, groups = (self.tags[name] for name in self.prob_group_event.index.names)
        self.prob_event = weights.groupby(events).sum() / len(weights)
        self.prob_group_event = weights.groupby([events, groups]).sum() / len(weights)
        for event, group in self.prob_group_event.index:
            of_label = events == event
            of_cell = of_label & (groups == group)
            excess = of_label / self.prob_event[event] - of_cell / self.prob_group_event[event, group]
            self.U["+", event, group] = weights * excess
            self.U["-", event, group] = -weights * excess
