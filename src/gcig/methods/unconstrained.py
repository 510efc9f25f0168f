"""The unconstrained method: the network trained on labels alone, the point of comparison."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gcig.core.task import as_outputs
from gcig.methods.base import NetworkClassifier, NetworkEstimator, NetworkRegressor
from gcig.methods.training_data import TrainingData
from gcig.metrics.utility import utility
from gcig.training.batches import all_outputs
from gcig.training.loop import DivergenceError, Loop, Outcome, Validation, raise_if_diverged, train
from gcig.training.runtime import CLIP_NORM, descend, flattened, one_thread


def train_plainly(
    network: nn.Module,
    data: TrainingData,
    estimator: NetworkEstimator,
    generator: torch.Generator,
    *,
    targets: Tensor | None = None,
    loop: Loop | None = None,
    stage: str = "",
) -> Outcome:
    """Train a network in place on labels, or on a teacher's predictions, with early stopping.

    ``targets`` (n, K) are predictions for the training rows; ``loop`` replaces the estimator's length of
    training.
    """
    rows, task, device = data.training, data.task, data.training.inputs.device
    loop = loop or estimator.resolve_loop(len(rows))
    rate = estimator.resolve_learning_rate(loop.batch_size)
    network.train()
    with one_thread(device), flattened(network) as flat:
        optimizer = torch.optim.AdamW([flat], lr=rate, weight_decay=estimator.weight_decay, fused=True)

        def step(positions: Tensor) -> dict[str, Tensor]:
            outputs = as_outputs(network(rows.inputs[positions]), len(positions))
            if targets is None:
                each = task.loss(outputs, rows.labels[positions])
            else:
                each = task.distance(outputs, targets[positions])
            loss = (each if rows.weights is None else each * rows.weights[positions]).mean()
            descend(flat, optimizer, loss, CLIP_NORM)
            return {"prediction": loss.detach(), "total": loss.detach()}

        try:
            outcome = train(
                step,
                network,
                optimizer,
                n_rows=len(rows),
                loop=loop,
                generator=generator,
                device=device,
                validate=None if data.validation is None else lambda _: validate_network(network, data),
                progress=bool(estimator.verbose),
                stage=stage,
            )
        except DivergenceError as error:
            error.network = network
            raise
    network.eval()
    return outcome


def validate_network(network: nn.Module, data: TrainingData) -> Validation:
    """Return the mean loss on the held-out rows, as the criterion, and the task's measures of utility."""
    rows, task = data.held_out, data.task
    weights = None if rows.weights is None else rows.weights.double().cpu().numpy()
    outputs = all_outputs(network, rows.inputs)
    raise_if_diverged(outputs)
    loss = task.loss(outputs, rows.labels)
    mean = float(loss.mean() if rows.weights is None else (loss * rows.weights).sum() / rows.weights.sum())
    measured = utility(task, outputs.double().cpu().numpy(), rows.labels.cpu().numpy(), weights)
    return Validation(mean, {f"val_{name}": value for name, value in measured.items()})


class Plain:
    """Trains with the loss on labels and nothing else."""

    method_key: ClassVar[str] = "unconstrained"
    predicts_by_network: ClassVar[bool] = True

    def train_network(
        self: Any, network: nn.Module, data: TrainingData, generator: torch.Generator
    ) -> tuple[nn.Module, Outcome]:
        """Train on labels."""
        return network, train_plainly(network, data, self, generator)


class UnconstrainedClassifier(Plain, NetworkClassifier):
    """A network trained with cross-entropy and nothing else.

    `fit` still needs groups, for the baselines that reasons are measured with.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german")
    >>> model = UnconstrainedClassifier(max_epochs=3, random_state=0)
    >>> model.fit(data.X, data.y, sensitive_features=data.sensitive_features).groups_
    ('female', 'male')
    """


class UnconstrainedRegressor(Plain, NetworkRegressor):
    """A network trained with squared errors and nothing else.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german")
    >>> model = UnconstrainedRegressor(max_epochs=3, random_state=0)
    >>> amount = data.X["credit_amount"]
    >>> X = data.X.drop(columns="credit_amount")
    >>> model.fit(X, amount, sensitive_features=data.sensitive_features).predict(X).shape
    (1000,)
    """
