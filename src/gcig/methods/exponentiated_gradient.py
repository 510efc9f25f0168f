"""Equalized odds by reductions: a randomised mixture of networks, each trained on reweighted rows.

Agarwal, Beygelzimer, Dudik, Langford and Wallach (2018), "A reductions approach to fair classification",
https://arxiv.org/abs/1803.02453; the saddle point is found by Fairlearn's `ExponentiatedGradient`.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, ClassVar, Self

import numpy as np
import torch
from fairlearn.reductions import ExponentiatedGradient
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from gcig._validation import InputError
from gcig.core.batch import GroupedBatch
from gcig.core.modules import evaluating, logits
from gcig.methods.document import architecture_of, restore_network
from gcig.methods.mixture import MixtureOfLogits
from gcig.methods.prepared import TrainingData
from gcig.methods.randomised import RandomisedClassifier
from gcig.methods.weighted_moments import WeightedEqualizedOdds, WeightedErrorRate
from gcig.methods.weighted_training import train_weighted
from gcig.training.loop import Loop
from gcig.training.runtime import resolve_batch_size

__all__ = ["ExponentiatedGradientClassifier"]

_ROWS_AT_ONCE = 65_536
_ROUND_STEPS = 150  # mini-batches of a round at least
_NEGLIGIBLE = 1e-6  # the weight under which a predictor is left out of the mixture

Fit = Callable[[Tensor, Tensor], nn.Module]


class ExponentiatedGradientClassifier(RandomisedClassifier):
    """A mixture of networks with equal true and false positive rates, by the reductions approach.

    The constraints become costs of single rows: each round trains a network on relabelled, reweighted rows,
    and the result is the mixture that has the least error within the constraints on the training part. For
    every row one of the networks is drawn, and decides. `predict` does so in a way that can be repeated,
    `expected_predictions` gives the probabilities; both need no groups. Logit and probabilities are those of
    the weighted mean of the networks' logits, which is also what GCIG explains.

    Every round starts from the plainly trained network and trains for a few epochs: from scratch a round
    costs ten times as much. ``sample_weight`` counts in the error and in the rates that are made equal.

    Parameters
    ----------
    eps : float
        How far the rates of a group may be from the rates of all; also the inverse of the largest multiplier.
    max_iter : int
        Iterations of exponentiated gradient, each of which trains about four networks; it stops when the
        duality gap is small, after six iterations at the earliest.
    round_epochs : int or "auto"
        Epochs that each network is trained for, from the plain one; ``"auto"`` is three, and more where
        these have fewer than 150 mini-batches. A round that is too short cannot go past the constraint, and
        then no mixture meets it.
    others
        Those of `gcig.methods.unconstrained.UnconstrainedClassifier`, without ``threshold``.

    Attributes
    ----------
    module_ : MixtureOfLogits
        The networks with a positive weight, and their weights.
    n_rounds_ : int
        How many networks were trained.
    best_gap_ : float
        The duality gap that was reached.

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

    module_: MixtureOfLogits
    n_rounds_: int
    best_gap_: float

    def __init__(
        self,
        *,
        eps: float = 0.01,
        max_iter: int = 20,
        round_epochs: int | str = "auto",
        module: nn.Module | None = None,
        preprocessing: str = "table",
        hidden_sizes: Sequence[int] = (64, 32),
        activation: str = "silu",
        dropout: float = 0.0,
        max_epochs: int = 40,
        batch_size: int | str = "auto",
        learning_rate: float | str = "auto",
        weight_decay: float = 1e-4,
        clip_norm: float = 5.0,
        early_stopping: bool = True,
        patience: int = 20,
        validation_fraction: float = 0.15,
        class_weight: Any = None,
        warm_start: bool = False,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            module=module,
            preprocessing=preprocessing,
            hidden_sizes=hidden_sizes,
            activation=activation,
            dropout=dropout,
            max_epochs=max_epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            clip_norm=clip_norm,
            early_stopping=early_stopping,
            patience=patience,
            validation_fraction=validation_fraction,
            class_weight=class_weight,
            warm_start=warm_start,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )
        self.eps = eps
        self.max_iter = max_iter
        self.round_epochs = round_epochs

    def expected_from_encoded(
        self,
        encoded: NDArray[np.float32],
        *,
        sensitive_features: Any = None,  # noqa: ARG002 (one interface)
    ) -> NDArray[np.float64]:
        """Return the weight of the predictors that decide for the second class, for each encoded row."""
        parts = torch.from_numpy(encoded).split(_ROWS_AT_ONCE)
        with evaluating(self.module_), torch.no_grad():
            decisions = torch.cat([self.module_.each(part) > 0 for part in parts]).double()
        return np.asarray((decisions @ self.module_.weights.double()).clamp(max=1.0).numpy())

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not 0 < self.eps < 1:
            raise InputError(f"eps must lie between 0 and 1, not {self.eps!r}.")
        if not (isinstance(self.max_iter, int) and self.max_iter >= 1):
            raise InputError(f"max_iter must be a positive integer, not {self.max_iter!r}.")
        if self.round_epochs != "auto" and not (
            isinstance(self.round_epochs, int) and self.round_epochs >= 1
        ):
            raise InputError(f"round_epochs must be a positive integer or 'auto', not {self.round_epochs!r}.")

    def _make_network(self, n_inputs: int, generator: torch.Generator) -> nn.Module:
        return MixtureOfLogits([super()._make_network(n_inputs, generator)], [1.0])

    def _train(self, network: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        assert isinstance(network, MixtureOfLogits)
        plain = network.networks[int(network.weights.argmax())]
        super()._train(plain, data, generator)
        oracle = self._make_oracle(plain, data.training, generator)
        reduction = _reduce(oracle, data.training, data.weights, self.eps, self.max_iter)
        weights = reduction.weights_.sort_index().to_numpy()
        kept = np.flatnonzero(weights > _NEGLIGIBLE)
        network.replace([reduction.predictors_[index].network_ for index in kept], weights[kept].tolist())
        self.n_rounds_ = int(reduction.n_oracle_calls_)
        self.best_gap_ = float(reduction.best_gap_)

    def _make_oracle(self, plain: nn.Module, rows: GroupedBatch, generator: torch.Generator) -> "_Oracle":
        batch_size = resolve_batch_size(self.batch_size, len(rows))
        epochs = _resolve_round_epochs(self.round_epochs, math.ceil(len(rows) / batch_size))

        def fit(labels: Tensor, costs: Tensor) -> nn.Module:
            network = deepcopy(plain)
            train_weighted(
                network,
                rows.inputs,
                labels,
                costs,
                loop=Loop(epochs, batch_size),
                learning_rate=self._rate(batch_size),
                weight_decay=self.weight_decay,
                largest_norm=self.clip_norm,
                generator=generator,
            )
            return network

        return _Oracle(fit, rows.inputs)

    def _to_document(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        document, tensors = super()._to_document()
        document["mixture"] = {
            "networks": [architecture_of(network) for network in self.module_.networks],
            "n_rounds": self.n_rounds_,
            "best_gap": self.best_gap_,
        }
        return document, tensors

    @classmethod
    def _from_document(
        cls, document: Mapping[str, Any], tensors: Mapping[str, Tensor], module: nn.Module | None
    ) -> Self:
        stored = document["mixture"]
        networks = [
            restore_network(architecture, _state_of(tensors, index), module)
            for index, architecture in enumerate(stored["networks"])
        ]
        mixture = MixtureOfLogits(networks, [1.0] * len(networks))  # its weights are among the tensors
        model = super()._from_document(document, tensors, mixture)
        model.module = module
        model.n_rounds_, model.best_gap_ = int(stored["n_rounds"]), float(stored["best_gap"])
        return model


class _Oracle(BaseEstimator):
    """What Fairlearn trains in each round: a network on rows that are encoded once, named by their number."""

    def __init__(self, fit_network: Fit, inputs: Tensor) -> None:
        self.fit_network = fit_network
        self.inputs = inputs

    def __sklearn_clone__(self) -> "_Oracle":
        return _Oracle(self.fit_network, self.inputs)  # shared: a deep copy would copy all rows

    def fit(self, X: NDArray[np.int64], y: Any, sample_weight: Any) -> "_Oracle":  # noqa: ARG002 (all rows)
        labels, costs = (torch.tensor(np.asarray(values)) for values in (y, sample_weight))
        self.network_ = self.fit_network(labels.to(self.inputs.device), costs.to(self.inputs))
        with evaluating(self.network_), torch.no_grad():
            self.decisions_ = (logits(self.network_, self.inputs) > 0).long().cpu().numpy()
        return self

    def predict(self, X: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.decisions_[X[:, 0]]


def _resolve_round_epochs(round_epochs: int | str, batches: int) -> int:
    """Epochs of a round, for this many mini-batches an epoch."""
    return max(3, math.ceil(_ROUND_STEPS / batches)) if round_epochs == "auto" else int(round_epochs)


def _reduce(
    oracle: _Oracle, rows: GroupedBatch, weights: Tensor | None, eps: float, max_iter: int
) -> ExponentiatedGradient:
    """Fairlearn's search for the saddle point; it sees rows as their numbers."""
    labels, groups = rows.labels.cpu().numpy(), rows.groups.cpu().numpy()
    counts = np.ones(len(rows)) if weights is None else weights.double().cpu().numpy()
    reduction = ExponentiatedGradient(
        oracle,
        WeightedEqualizedOdds(counts, difference_bound=eps),
        objective=WeightedErrorRate(counts),
        eps=eps,
        max_iter=max_iter,
    )
    with warnings.catch_warnings():
        # Fairlearn 0.15 uses pandas in ways that pandas 3 announces the end of.
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"fairlearn\.")
        return reduction.fit(np.arange(len(rows))[:, None], labels, sensitive_features=groups)


def _state_of(tensors: Mapping[str, Tensor], index: int) -> dict[str, Tensor]:
    """The weights of one network of a stored mixture."""
    prefix = f"network.networks.{index}."
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
