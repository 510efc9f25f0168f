"""The parameters that all methods share, and the network and the loop that follow from them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from gcig.methods.networks import copy_checked
from gcig.methods.parameters import (
    BOOLEAN,
    CLASS_WEIGHT,
    DEVICE,
    INSIDE,
    LAYER_SIZES,
    MODULE,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_INTEGER,
    RANDOM_STATE,
    VERBOSE,
    Parametrised,
    one_of,
    optional,
    parameter,
)
from gcig.models.mlp import ACTIVATIONS, make_mlp
from gcig.training.loop import Loop
from gcig.training.runtime import resolve_batch_size, resolve_learning_rate

__all__ = ["CLIP_NORM", "NetworkParameters"]

CLIP_NORM = 5.0  # largest norm of a gradient; ordinary steps stay below it, so it only stops outliers


class NetworkParameters(Parametrised):
    """The parameters of the network and of its training."""

    module: nn.Module | None = parameter(
        default=None,
        rule=MODULE,
        doc="""A network of your own, (n, p) -> (n,) logits, trained from its present weights. It is copied;
        None builds a multi-layer perceptron.""",
    )
    preprocessing: str = parameter(
        default="table",
        rule=one_of("table", "binned", "none"),
        doc="""``"table"`` encodes the columns (numbers standardised, categories one-hot). ``"binned"`` also
        encodes each number in 24 bins, with which a network follows thresholds as trees do. ``"none"``
        takes the columns as numbers.""",
    )
    hidden_sizes: Sequence[int] = parameter(
        default=(64, 32),
        rule=LAYER_SIZES,
        doc="Widths of the hidden layers if no `module` is given; ``()`` gives a linear model.",
    )
    activation: str = parameter(
        default="silu", rule=one_of(*ACTIVATIONS), doc="Activation if no `module` is given."
    )
    max_epochs: int = parameter(default=40, rule=POSITIVE_INTEGER, doc="Largest number of epochs.")
    batch_size: int | str = parameter(
        default="auto",
        rule=optional(POSITIVE_INTEGER, "auto"),
        doc='Rows per mini-batch; ``"auto"`` is 64 for small tables and up to 512 for large ones.',
    )
    learning_rate: float | str = parameter(
        default="auto",
        rule=optional(POSITIVE, "auto"),
        doc="""Initial learning rate of AdamW, lowered along a cosine. ``"auto"`` grows with the mini-batch
        and is higher for narrow networks.""",
    )
    weight_decay: float = parameter(default=1e-4, rule=NON_NEGATIVE, doc="Weight decay of AdamW.")
    early_stopping: bool = parameter(
        default=True,
        rule=BOOLEAN,
        doc="""Whether to hold out a part of the training data, which decides the epoch that is kept and when
        to stop. If False, the network is trained on all rows and the last epoch is kept.""",
    )
    patience: int = parameter(
        default=20, rule=POSITIVE_INTEGER, doc="Epochs without improvement before training stops early."
    )
    validation_fraction: float = parameter(
        default=0.15, rule=INSIDE, doc="Share of the training data that is held out."
    )
    threshold: float | str = parameter(
        default=0.5,
        rule=optional(INSIDE, "f1"),
        doc="""The probability from which a row is predicted positive; ``"f1"`` chooses it for F1 on the
        held-out set (or on the training data if nothing is held out).""",
    )
    class_weight: Any = parameter(
        default=None, rule=CLASS_WEIGHT, doc="Weights of the classes in the cross-entropy."
    )
    warm_start: bool = parameter(
        default=False, rule=BOOLEAN, doc="Whether another `fit` continues from the present network."
    )
    device: str = parameter(
        default="auto", rule=DEVICE, doc='``"auto"`` is a CUDA device if there is one, else the CPU.'
    )
    random_state: Any = parameter(
        default=None, rule=RANDOM_STATE, doc="Seed; an integer makes `fit` reproducible to the last bit."
    )
    verbose: bool | int = parameter(default=False, rule=VERBOSE, doc="Whether to show progress.")

    @property
    def holds_out(self) -> bool:
        """True if `fit` holds out a part of the training data."""
        return bool(self.early_stopping)

    def resolve_loop(self, n_rows: int) -> Loop:
        """Return how long and in what mini-batches to train on this many rows."""
        batch_size = resolve_batch_size(self.batch_size, n_rows)
        return Loop(self.max_epochs, batch_size, self.patience if self.holds_out else None)

    def resolve_learning_rate(self, batch_size: int) -> float:
        """Return the initial learning rate, which depends on the mini-batch and the network if ``"auto"``."""
        if self.module is not None:
            return resolve_learning_rate(self.learning_rate, batch_size)
        return resolve_learning_rate(self.learning_rate, batch_size, max(self.hidden_sizes, default=1))

    def make_network(self, n_inputs: int, generator: torch.Generator) -> nn.Module:
        """Return an untrained network, or a copy of `module`."""
        if self.module is None:
            return make_mlp(n_inputs, self.hidden_sizes, self.activation, generator=generator)
        return copy_checked(self.module, n_inputs)
