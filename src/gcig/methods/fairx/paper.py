"""FairX as published: Algorithm 1 of the paper without changes.

The loss is the cross-entropy on labels, plus lambda_ig times the GCIG of the mini-batch, plus lambda_fair
times the outcome gap. GCIG uses l1-normalised attributions of the encoded columns, a right Riemann sum, and
moving-average baselines that are updated before the loss. Weights are constant and the optimizer is Adam;
there is no teacher, weight decay, gradient clipping, learning-rate schedule or held-out set.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from gcig.core.batch import TrainingRows
from gcig.core.references import GroupBaselines
from gcig.engine.cuda_graph import can_be_recorded, make_step
from gcig.losses.gcig import GCIGPenalty
from gcig.losses.objective import Objective
from gcig.losses.outcome import OUTCOME_LOSSES
from gcig.losses.terms import MiniBatch, OutcomeTerm, PredictionTerm, ReasonTerm, Term
from gcig.methods.fairx.settings import FairTraining
from gcig.methods.fairx.training import Customise, TrainedNetwork
from gcig.training.loop import train
from gcig.training.runtime import one_thread


def train_as_published(
    network: nn.Module,
    data: TrainingRows,
    settings: FairTraining,
    *,
    generator: torch.Generator,
    n_groups: int,
    customise: Customise,
) -> TrainedNetwork:
    """Train a network in place with Algorithm 1, for all epochs."""
    rows, device = data.rows, data.rows.inputs.device
    baselines = GroupBaselines.from_data(
        rows.inputs, rows.labels, rows.groups, n_groups=n_groups, rate=settings.ema_rate
    )
    terms: dict[str, Term] = {"prediction": PredictionTerm()}
    if settings.constrains:
        terms["outcome"] = OutcomeTerm(OUTCOME_LOSSES[settings.outcome](n_groups))
    if settings.explains:
        penalty = GCIGPenalty(baselines, norm=settings.norm, rule=settings.rule, n_steps=settings.n_steps)
        terms["gcig"] = ReasonTerm(penalty)
    objective = customise(Objective(terms))
    weights = {"gcig": settings.lambda_ig, "outcome": settings.lambda_fair}
    recorded = can_be_recorded(network) and objective.can_be_recorded
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate, capturable=recorded)
    vector = rows.inputs.new_tensor(list(objective.active_weights(weights).values()))

    def step(positions: Tensor) -> dict[str, Tensor]:
        batch = MiniBatch(
            network,
            rows.inputs[positions],
            rows.labels[positions],
            rows.groups[positions],
            data.targets[positions].to(rows.inputs.dtype),
            None if data.weights is None else data.weights[positions],
            n_explained=len(positions),
        )
        baselines.update(batch.inputs, batch.labels, batch.groups)
        found = objective(batch, weights, vector)
        optimizer.zero_grad()
        found["total"].backward()
        optimizer.step()
        return {name: value.detach() for name, value in found.items()}

    network.train()
    with one_thread(device):
        outcome = train(
            make_step(step, lambda: None, recorded=recorded),
            network,
            optimizer,
            n_rows=len(data),
            loop=replace(settings.loop, schedule="constant", patience=None),
            generator=generator,
            device=device,
            progress=settings.progress,
        )
    ema_baselines = baselines.values.clone() if settings.explains else None
    return TrainedNetwork(outcome, ema_baselines, weights, braked=False)
