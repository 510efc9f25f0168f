"""What the methods share that bound the differences of rates between groups."""

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gcig._validation import InputError
from gcig.methods.base import NetworkClassifier
from gcig.methods.outcome_judge import all_logits, cell_members, cell_rates, excess
from gcig.methods.prepared import TrainingData
from gcig.methods.threshold import logit_of
from gcig.training.loop import Loop, Outcome
from gcig.training.runtime import resolve_batch_size

__all__ = ["OutcomeBoundedClassifier"]


class OutcomeBoundedClassifier(NetworkClassifier):
    """A network that is to meet a bound ``max_gap`` on the differences of TPR and of FPR.

    Subclasses name their parameters, among them ``max_gap``, and call `_keep` at the end of `_train`.

    Attributes
    ----------
    history_ : DataFrame
        One row an epoch: terms of the loss, validation metrics, and the differences of rates over the rows of
        `fit`.
    n_epochs_ : int
        The epoch that was kept.
    rates_ : array of shape (2, groups)
        False and true positive rates of the groups, over the rows of `fit`.
    met_ : bool
        Whether they meet the bound.
    """

    predicts_by_network: ClassVar[bool] = True

    rates_: NDArray[np.float64]
    met_: bool

    @property
    def _cut(self) -> float:
        """The logit from which a row is predicted positive, as far as it is known before training."""
        return 0.0 if self.threshold == "f1" else logit_of(float(self.threshold))

    def _shared_settings(self, n_rows: int) -> dict[str, Any]:
        """What all training takes, with ``"auto"`` resolved for this many rows."""
        batch_size = resolve_batch_size(self.batch_size, n_rows)
        return {
            "loop": Loop(self.max_epochs, batch_size, self.patience if self.early_stopping else None),
            "learning_rate": self._rate(batch_size),
            "weight_decay": self.weight_decay,
            "clip_norm": self.clip_norm,
            "max_gap": self.max_gap,
            "cut": self._cut,
            "progress": self.verbose,
        }

    def _keep(self, outcome: Outcome, network: nn.Module, data: TrainingData) -> None:
        """Record what training did, and the rates that it led to."""
        self._record(outcome)
        positive = all_logits(network, data.all.inputs) >= self._cut
        rates = cell_rates(positive.double(), cell_members(data.all, data.n_groups).double())
        self.rates_, self.met_ = rates.cpu().numpy(), excess(rates, self.max_gap) == 0

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_numbers("a number in [0, 1]", lambda value: 0 <= value <= 1, "max_gap")

    def _check_numbers(self, text: str, holds: Callable[[Any], object], *names: str) -> None:
        """Raise an error for the first of these parameters that is no such number."""
        for name in names:
            value = getattr(self, name)
            if not isinstance(value, Real) or isinstance(value, bool) or not holds(value):
                raise InputError(f"{name} must be {text}, not {value!r}.")

    def _to_document(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        document, tensors = super()._to_document()
        return {**document, "met": self.met_}, {**tensors, "rates": torch.from_numpy(self.rates_)}

    @classmethod
    def _from_document(
        cls, document: Mapping[str, Any], tensors: Mapping[str, Tensor], module: nn.Module | None
    ) -> Self:
        model = super()._from_document(document, tensors, module)
        model.rates_, model.met_ = tensors["rates"].numpy(), document["met"]
        return model
