"""Cross-entropy with a weight for each row, and nothing else, on the one epoch loop."""

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gcig.core.modules import logits
from gcig.engine.optimizer import FlatAdamW, clip_norm, flat_parameters
from gcig.training.loop import Loop, Outcome, train
from gcig.training.runtime import one_thread

__all__ = ["train_weighted"]


def train_weighted(
    network: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    weights: Tensor,
    *,
    loop: Loop,
    learning_rate: float,
    weight_decay: float,
    largest_norm: float,
    generator: torch.Generator,
) -> Outcome:
    """Train a network in place, to the last epoch.

    Parameters
    ----------
    network : nn.Module
        Maps (n, ...) to one logit a row, on the device of the rows.
    inputs, labels, weights : tensors of shape (n, ...), (n,), (n,)
        Rows, labels of 0 and 1, and what each row counts.
    """
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
            clip_norm(parameters, largest_norm)
            optimizer.step()
            return {"total": loss.detach()}

        return train(
            step, network, optimizer, n_rows=len(inputs), loop=loop, generator=generator, device=device
        )
