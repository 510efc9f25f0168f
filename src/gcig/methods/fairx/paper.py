"""FairX as published: Algorithm 1 of the paper without changes.

The loss is the cross-entropy on labels, plus lambda_ig times the GCIG of the mini-batch, plus lambda_fair
times the outcome gap. GCIG uses l1-normalised attributions of the encoded columns, a right Riemann sum, and
moving-average baselines that are updated before the loss. Weights are constant and the optimizer is Adam;
there is no teacher, weight decay, gradient clipping, learning-rate schedule or held-out set.
"""

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from gcig._arguments import one_of
from gcig._arrays import Encoded
from gcig.core.outcome import OUTCOME_LOSSES
from gcig.core.penalties import GCIGPenalty
from gcig.core.references import GroupBaselines
from gcig.core.task import KEEP_OUTCOMES, as_outputs
from gcig.methods.base import NetworkClassifier
from gcig.methods.fairx.warnings import warn_of_collapse
from gcig.methods.parameters import FRACTION, NON_NEGATIVE, POSITIVE_INTEGER, parameter
from gcig.methods.training_data import TrainingData
from gcig.metrics.utility import has_collapsed, utility
from gcig.models.mlp import ACTIVATIONS
from gcig.training.batches import all_outputs
from gcig.training.loop import DivergenceError, Outcome, raise_if_diverged, train
from gcig.training.runtime import one_thread


class _PublishedPenalty(GCIGPenalty):
    """The paper's term; that its gradient misses the movement of kinks belongs to the algorithm."""

    _warns: ClassVar[bool] = False


class FairXPaperClassifier(
    NetworkClassifier, without=("early_stopping", "patience", "validation_fraction", "weight_decay")
):
    """FairX as published, for two classes: Algorithm 1 with constant weights, trained on labels.

    The paper specifies neither the activation nor the number of epochs. Nothing is held out, so training does
    not stop early, and more epochs would overfit small tables. Its GCIG can fall because explanations grow
    and cancel: look at ``reason_gap`` and ``reason_size`` beside it.

    Attributes
    ----------
    ema_baselines_ : array of shape (2, groups, p)
        The moving averages of the baselines at the end of training. They are not saved.
    collapsed_ : bool
        Whether the model ranks hardly better than chance on the training rows.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german")
    >>> model = FairXPaperClassifier(lambda_ig=0.2, max_epochs=3, random_state=0)
    >>> model.fit(data.X, data.y, sensitive_features=data.sensitive_features).ema_baselines_.shape[:2]
    (2, 2)
    """

    method_key: ClassVar[str] = "fairx-paper"
    tasks: ClassVar[tuple[str, ...]] = ("binary",)
    predicts_by_network: ClassVar[bool] = True
    fitted_attributes: ClassVar[tuple[str, ...]] = ("collapsed_",)
    ema_baselines_: Encoded
    collapsed_: bool
    holds_out: ClassVar[bool] = False

    lambda_ig: float = parameter(default=0.2, rule=NON_NEGATIVE, doc="Weight of the GCIG term.")
    lambda_fair: float = parameter(default=0.05, rule=NON_NEGATIVE, doc="Weight of the outcome term.")
    outcome: str = parameter(
        default="equalized_odds",
        rule=one_of(*KEEP_OUTCOMES),
        doc="The gap of decision rates that is lowered.",
    )
    norm: str = parameter(
        default="l1", rule=one_of("l1", "l2"), doc="The norm by which attributions are divided."
    )
    n_steps: int = parameter(
        default=16, rule=POSITIVE_INTEGER, doc="Steps of the right Riemann sum, the paper's T."
    )
    ema_rate: float = parameter(
        default=0.05, rule=FRACTION, doc="The paper's gamma: the rate of the moving-average baselines."
    )
    activation: str = parameter(
        default="relu", rule=one_of(*ACTIVATIONS), doc="Activation if no `module` is given."
    )
    max_epochs: int = parameter(default=20, rule=POSITIVE_INTEGER, doc="Number of epochs.")

    def train_network(
        self, network: nn.Module, data: TrainingData, generator: torch.Generator
    ) -> tuple[nn.Module, Outcome]:
        """Train with Algorithm 1, for all epochs."""
        rows, device = data.training, data.training.inputs.device
        baselines = GroupBaselines.from_data(
            rows.inputs, rows.labels, rows.groups, task=data.task, n_groups=data.n_groups, rate=self.ema_rate
        )
        penalty = _PublishedPenalty(baselines, norm=self.norm, rule="right", n_steps=self.n_steps, rows="all")
        fairness = OUTCOME_LOSSES[self.outcome](data.n_groups, task=data.task)
        loop = replace(self.resolve_loop(len(rows)), schedule="constant", patience=None)
        rate = self.resolve_learning_rate(loop.batch_size)
        optimizer = torch.optim.Adam(network.parameters(), lr=rate, fused=True)

        def step(positions: Tensor) -> dict[str, Tensor]:
            batch = rows[positions]
            outputs = as_outputs(network(batch.inputs), len(batch))
            each = data.task.loss(outputs, batch.labels)
            terms = {"prediction": (each if batch.weights is None else each * batch.weights).mean()}
            total = terms["prediction"]
            if self.lambda_ig:
                terms["gcig"] = penalty(network, batch.inputs, batch.labels, batch.groups, batch.weights)
                total = total + self.lambda_ig * terms["gcig"]
            if self.lambda_fair:
                terms["outcome"] = fairness(outputs, batch.labels, batch.groups, batch.weights)
                total = total + self.lambda_fair * terms["outcome"]
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            return {name: value.detach() for name, value in {**terms, "total": total}.items()}

        network.train()
        try:
            with one_thread(device):
                outcome = train(
                    step,
                    network,
                    optimizer,
                    n_rows=len(rows),
                    loop=loop,
                    generator=generator,
                    device=device,
                    progress=bool(self.verbose),
                )
        except DivergenceError as error:
            error.network = network
            raise
        self.ema_baselines_ = baselines.values.cpu().numpy()
        outputs = all_outputs(network, rows.inputs).double()
        raise_if_diverged(outputs)
        measured = utility(data.task, outputs.cpu().numpy(), rows.labels.cpu().numpy())
        self.collapsed_ = has_collapsed(measured)
        if self.collapsed_:
            warn_of_collapse(data.task, measured, {})
        return network.eval(), outcome
