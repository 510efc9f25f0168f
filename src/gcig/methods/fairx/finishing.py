"""Finishing: the upper layers are trained on all rows at once, so that decisions meet a bound on their gap.

The decision rates of a mini-batch are mostly noise, and training on them swings around equal rates. The rates
of all rows have little noise. The layers from the second linear one on have few parameters, so they hardly
overfit these rates, and a step needs only the outputs of the layers below, which are computed once. The
objective is the student's own, without its terms on reasons.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from gcig.core.modules import evaluating, logits
from gcig.losses.objective import Objective
from gcig.losses.outcome import OUTCOME_LOSSES
from gcig.losses.terms import AttributeTerm, MiniBatch, OutcomeTerm

_N_STEPS, _LEARNING_RATE = 200, 0.004  # with a learning rate that falls to zero, the rates settle
# The width of smoothed decisions, in logits, and the difference of rates below which the loss is quadratic:
# smaller than in mini-batches, whose rates are noisy.
_TEMPERATURE, _SMOOTHNESS = 0.15, 0.02
# The weight of the term on the protected attribute: with less, a gap is closed by means of the attribute.
_ATTRIBUTE_WEIGHT = 4.0
_EFFECT_SHARE = 0.95  # of the teacher's attribute effect, since the search refuses networks that exceed it


def upper_layers(network: nn.Module, inputs: Tensor) -> tuple[nn.Module, Tensor] | None:
    """Return the layers that are trained, which end in the logit, and their inputs for these rows.

    They are the layers of an `nn.Sequential` from its second linear one on, or else the linear layer whose
    output is the logit. None if there is no such layer, or if it is not trained.

    >>> network = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 2), nn.SiLU(), nn.Linear(2, 1))
    >>> upper, features = upper_layers(network, torch.zeros(5, 3))
    >>> upper[0] is network[2], len(upper), features.shape
    (True, 3, torch.Size([5, 4]))
    """
    with torch.no_grad(), evaluating(network):
        for split in (_from_second_linear, _output):
            found = split(network, inputs)
            if found is not None and all(parameter.requires_grad for parameter in found[0].parameters()):
                return found
    return None


def _from_second_linear(network: nn.Module, inputs: Tensor) -> tuple[nn.Module, Tensor] | None:
    if not isinstance(network, nn.Sequential) or type(network).forward is not nn.Sequential.forward:
        return None
    layers = list(network)
    linear = [place for place, layer in enumerate(layers) if isinstance(layer, nn.Linear)]
    if len(linear) < 2:
        return None
    lower, upper = (nn.Sequential(*part) for part in (layers[: linear[1]], layers[linear[1] :]))
    if not {*lower.parameters()}.isdisjoint(upper.parameters()):  # a layer is used twice
        return None
    return upper, lower(inputs)


def _output(network: nn.Module, inputs: Tensor) -> tuple[nn.Module, Tensor] | None:
    linear = [each for each in network.modules() if isinstance(each, nn.Linear) and each.out_features == 1]
    if not linear:
        return None
    layer, passed = linear[-1], []
    handle = layer.register_forward_hook(lambda _, given, output: passed.append((given[0], output)))
    try:
        found = logits(network, inputs)
    finally:
        handle.remove()
    if len(passed) != 1:
        return None
    features, output = passed[0]
    is_last = features.dim() == 2 and torch.equal(output.flatten(), found)
    return (layer, features) if is_last else None


def for_all_rows(objective: Objective, effect: float = math.nan) -> Objective:
    """Return the objective for a batch of all rows: its terms compare decisions rather than smoothed ones.

    `effect` is the attribute effect of the teacher, as it is measured for the search; NaN if it is not known.
    """
    terms = objective.terms
    outcome, attribute = terms.get("outcome"), terms.get("attribute")
    if type(outcome) is OutcomeTerm and type(outcome.loss) in OUTCOME_LOSSES.values():
        loss = type(outcome.loss)(
            outcome.loss.n_groups,
            cut=outcome.loss.cut,
            temperature=_TEMPERATURE,
            of_decisions=True,
            smoothness=_SMOOTHNESS,
            validate=False,
        )
        objective = objective.with_term("outcome", OutcomeTerm(loss))
    if type(attribute) is AttributeTerm:
        most = None if math.isnan(effect) else _EFFECT_SHARE * effect
        objective = objective.with_term("attribute", AttributeTerm(attribute.cut, _TEMPERATURE, True, most))
    return objective


def train_upper_layers(batch: MiniBatch, objective: Objective, weights: Mapping[str, float]) -> None:
    """Minimise an objective over the upper layers of the batch's network, in place."""
    found = upper_layers(batch.module, batch.inputs)
    if found is None:
        raise ValueError("the network has no upper layers that can be trained alone")
    upper, features = found
    if type(objective.terms.get("attribute")) is AttributeTerm:
        weights = {**weights, "attribute": _ATTRIBUTE_WEIGHT}
    parameters = list(upper.parameters())
    optimizer = torch.optim.Adam(parameters, lr=_LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, _N_STEPS)
    with evaluating(batch.module):
        for _ in range(_N_STEPS):
            current = replace(batch, known={})
            current.logits = logits(upper, features)  # the layers below do not change
            total = objective(current, weights)["total"]
            gradients = torch.autograd.grad(total, parameters, allow_unused=True)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
            schedule.step()
    optimizer.zero_grad()
