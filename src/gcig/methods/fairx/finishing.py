"""Finishing: the output layer is trained on all rows at once, so that decisions meet a bound on their gap.

The decision rates of a mini-batch are mostly noise, and training on them swings around equal rates. The rates
of all rows have little noise. The output layer has few parameters, so it hardly overfits them, and a step
needs only the outputs of the last hidden layer, which are computed once. The objective is the student's own,
without its terms on reasons; the layers below, from which reasons get most of their shape, stay as they are.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from gcig.core.modules import evaluating, logits
from gcig.losses.objective import Objective
from gcig.losses.outcome import OUTCOME_LOSSES
from gcig.losses.terms import MiniBatch, OutcomeTerm

_N_STEPS, _LEARNING_RATE = 300, 0.01  # with a learning rate that falls to zero, the rates settle
# The width of smoothed decisions, in logits, and the difference of rates below which the loss is quadratic:
# smaller than in mini-batches, whose rates are noisy.
_TEMPERATURE, _SMOOTHNESS = 0.15, 0.02


def output_layer(network: nn.Module, inputs: Tensor) -> tuple[nn.Linear, Tensor] | None:
    """Return the linear layer whose output is the logit, and its inputs for these rows.

    None if the network does not end in a linear layer that is trained.

    >>> network = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 1))
    >>> layer, features = output_layer(network, torch.zeros(2, 3))
    >>> layer is network[2], features.shape
    (True, torch.Size([2, 4]))
    """
    linear = [each for each in network.modules() if isinstance(each, nn.Linear) and each.out_features == 1]
    if not linear:
        return None
    layer, passed = linear[-1], []
    handle = layer.register_forward_hook(lambda _, given, output: passed.append((given[0], output)))
    try:
        with torch.no_grad(), evaluating(network):
            found = logits(network, inputs)
    finally:
        handle.remove()
    if len(passed) != 1:
        return None
    features, output = passed[0]
    is_last = features.dim() == 2 and torch.equal(output.flatten(), found)
    is_trained = all(parameter.requires_grad for parameter in layer.parameters())
    return (layer, features) if is_last and is_trained else None


def for_all_rows(objective: Objective) -> Objective:
    """Return the objective for a batch of all rows: the outcome term compares the rates of its decisions."""
    term = objective.terms.get("outcome")
    if type(term) is not OutcomeTerm or type(term.loss) not in OUTCOME_LOSSES.values():
        return objective  # the user replaced the term
    loss = type(term.loss)(
        term.loss.n_groups,
        cut=term.loss.cut,
        temperature=_TEMPERATURE,
        of_decisions=True,
        smoothness=_SMOOTHNESS,
        validate=False,
    )
    return objective.with_term("outcome", OutcomeTerm(loss))


def train_output_layer(batch: MiniBatch, objective: Objective, weights: Mapping[str, float]) -> None:
    """Minimise an objective over the output layer of the batch's network, in place."""
    found = output_layer(batch.module, batch.inputs)
    if found is None:
        raise ValueError("the network does not end in a linear layer")
    layer, features = found
    optimizer = torch.optim.Adam(layer.parameters(), lr=_LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, _N_STEPS)
    for _ in range(_N_STEPS):
        current = replace(batch, known={})
        current.logits = layer(features)[:, 0]  # the layers below do not change
        total = objective(current, weights)["total"]
        gradients = torch.autograd.grad(total, list(layer.parameters()))
        for parameter, gradient in zip(layer.parameters(), gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        schedule.step()
    optimizer.zero_grad()
