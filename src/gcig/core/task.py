r"""Tasks: what depends on the kind of label.

A network has outputs z of shape (..., K): one logit for two classes, one number per class for several, one
prediction for a number. A task says which score of them is explained, how far predictions are from those of a
teacher, what is decided, and in which cells of the label people are compared. Labels are codes (int64) of
classes, or numbers. Everything else in this package is written once, for any task.

The score that is explained is linear in the outputs, :math:`\sum_k c_k(y) z_k` with the `contrast` c:

- two classes: the logit;
- several classes: the evidence for the row's own class against the others,
  :math:`z_y - \sum_{k \ne y} \frac{\pi_k}{1 - \pi_y} z_k`, with :math:`\pi` the frequencies of the classes.
  Adding h(x) to all outputs, or moving a class that nobody has, changes nothing; with two classes it is plus
  or minus the logit;
- a number: the prediction.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from gcig._arguments import InputError
from gcig._plugins import Registry
from gcig.core.gap import spread

REFERENCE_BINS, OUTCOME_BINS = (
    10,
    5,
)  # definitions: quantile bins of a number, for references and outcomes
KEEP_OUTCOMES = ("equalized_odds", "equal_opportunity", "demographic_parity")


class Task(ABC):
    """One kind of label; a new kind subclasses it and is registered with `gcig.register_task`."""

    key: ClassVar[str]
    n_outputs: int  # outputs of a network
    n_cells: int  # cells of the label: people are compared with references of their own cell
    outcomes: ClassVar[tuple[str, ...]]  # the outcome gaps that are defined

    @classmethod
    @abstractmethod
    def of(cls, y: Tensor, weights: Tensor | None = None, **options: Any) -> "Task":
        """Return the task of these labels, (n,): frequencies or bins are estimated from them."""

    def contrast(self, y: Tensor) -> Tensor:
        """Return the weight of each output in the explained score of rows with labels y, (n, outputs)."""
        return torch.ones(len(y), 1, device=y.device)

    def cells(self, y: Tensor) -> Tensor:
        """Return the cell of each label, int64 (n,)."""
        return y.long()

    @abstractmethod
    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss on labels of each row, (n,)."""

    @abstractmethod
    def predictions(self, outputs: Tensor) -> Tensor:
        """Return what a student learns from these outputs: probabilities, or numbers."""

    @abstractmethod
    def distance(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the divergence of each row's outputs from target `predictions`, (n,); 0 if equal."""

    @abstractmethod
    def constant(self, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the outputs (1, K) that predict the mean of the targets for everyone."""

    @abstractmethod
    def soft_decisions(self, outputs: Tensor, width: float) -> Tensor:
        """Return smooth decisions (n, d), whose means are rates; they are decisions as `width` goes to 0."""

    @abstractmethod
    def decisions(self, outputs: Tensor) -> Tensor:
        """Return decisions (n, d): 0 or 1 for each class that is told apart, or the prediction."""

    def distance_of_rates(self, difference: Tensor) -> Tensor:
        """Return how far two rates are apart, (...,), from their difference (..., d)."""
        return difference.abs().sum(-1)

    def outcome_cells(self, y: Tensor, outcome: str) -> tuple[Tensor, int, float]:
        """Return the cell of each row in an outcome gap (-1: in none), their number, and the cells' weight.

        The gap is the weighted sum over cells of the largest distance between the rates of two groups.
        """
        self.check_outcome(outcome)
        if outcome == "equalized_odds":  # of two classes: the sum over both labels
            return y.long(), self.n_cells, 2 / self.n_cells
        if outcome == "equal_opportunity":
            return y.long() - 1, 1, 1.0
        return torch.zeros_like(y, dtype=torch.long), 1, 1.0

    @abstractmethod
    def shift(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return a bias (K,) with which `outputs` decide for as many rows as the `target` outputs do."""

    def score(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the explained score (..., n) of outputs (..., n, K) of rows with labels y."""
        return (outputs * self.contrast(y).to(outputs.dtype)).sum(-1)

    def spread(self, outputs: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the spread of the explained score over people; see `gcig.core.gap.spread`."""
        return spread(outputs[:, 0], weights)

    def check_outcome(self, outcome: str) -> None:
        """Raise an `InputError` if the outcome gap is not defined for this task."""
        if outcome not in self.outcomes:
            raise InputError(
                f"is {outcome!r}, which is not defined for the task {self.key!r}. Choose one of "
                f"{', '.join(map(repr, self.outcomes))}.",
                argument="outcome",
            )


@dataclass(frozen=True)
class Binary(Task):
    """Two classes: labels 0 and 1, one logit; decisions are made at the logit `cut`."""

    key: ClassVar[str] = "binary"
    outcomes: ClassVar[tuple[str, ...]] = KEEP_OUTCOMES
    cut: float = 0.0
    n_outputs: ClassVar[int] = 1  # type: ignore[misc]
    n_cells: ClassVar[int] = 2  # type: ignore[misc]

    @classmethod
    def of(cls, y: Tensor, weights: Tensor | None = None, *, threshold: float = 0.5, **_: Any) -> "Binary":  # noqa: ARG003
        """Return the task with decisions from a probability on; nothing is estimated."""
        return cls(math.log(threshold) - math.log1p(-threshold))

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the cross-entropy."""
        return F.binary_cross_entropy_with_logits(outputs[..., 0], y.to(outputs.dtype), reduction="none")

    def predictions(self, outputs: Tensor) -> Tensor:
        """Return the probability of label 1, (n, 1)."""
        return torch.sigmoid(outputs)

    def distance(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the Kullback-Leibler divergence from the targets."""
        entropy = torch.special.entr(targets) + torch.special.entr(1 - targets)
        loss = F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
        divergence: Tensor = (loss - entropy)[..., 0]
        return divergence

    def constant(self, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the logit of the mean probability."""
        return torch.logit(_mean(targets, weights))

    def soft_decisions(self, outputs: Tensor, width: float) -> Tensor:
        """Return a sigmoid around the cut."""
        return torch.sigmoid((outputs - self.cut) / width)

    def decisions(self, outputs: Tensor) -> Tensor:
        """Return 1 from the cut on."""
        return (outputs >= self.cut).to(outputs.dtype)

    def shift(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the bias that selects as many rows; 0 if the target selects all or none."""
        count = int((target[:, 0] >= self.cut).sum())
        ranked = outputs[:, 0].sort(descending=True).values
        if not 0 < count < len(ranked):
            return outputs.new_zeros(1)
        return (self.cut - (ranked[count - 1] + ranked[count]) / 2).reshape(1)


@dataclass(frozen=True)
class Classes(Task):
    """Several classes with their frequencies: labels are codes, one output per class."""

    key: ClassVar[str] = "classes"
    outcomes: ClassVar[tuple[str, ...]] = ("equalized_odds", "demographic_parity")
    shares: tuple[float, ...]

    @classmethod
    def of(
        cls, y: Tensor, weights: Tensor | None = None, *, n_classes: int | None = None, **_: Any
    ) -> "Classes":
        """Return the task with the frequencies of the classes."""
        w = torch.ones(len(y), dtype=torch.float64, device=y.device) if weights is None else weights.double()
        counts = torch.bincount(y.long(), w, minlength=n_classes or 0)
        return cls(tuple((counts / counts.sum()).tolist()))

    @property
    def n_outputs(self) -> int:  # type: ignore[override]
        """One output per class."""
        return len(self.shares)

    @property
    def n_cells(self) -> int:  # type: ignore[override]
        """One cell per class."""
        return len(self.shares)

    def _contrasts(self, device: torch.device) -> Tensor:
        share = torch.tensor(self.shares, dtype=torch.float64, device=device)
        own = torch.eye(len(share), dtype=torch.float64, device=device)
        return own - (1 - own) * share / (1 - share).clamp_min(1e-12).unsqueeze(1)

    def contrast(self, y: Tensor) -> Tensor:
        """Return 1 for the row's own class, and minus the conditional frequencies of the others."""
        return self._contrasts(y.device)[y.long()]

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the cross-entropy."""
        return F.cross_entropy(outputs, y.long(), reduction="none")

    def predictions(self, outputs: Tensor) -> Tensor:
        """Return the probabilities of the classes."""
        return outputs.softmax(-1)

    def distance(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the Kullback-Leibler divergence from the targets."""
        return (targets.xlogy(targets) - targets * outputs.log_softmax(-1)).sum(-1)

    def constant(self, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the logarithms of the mean probabilities."""
        return _mean(targets, weights).clamp_min(1e-12).log()

    def soft_decisions(self, outputs: Tensor, width: float) -> Tensor:
        """Return a sharpened softmax."""
        return (outputs / width).softmax(-1)

    def decisions(self, outputs: Tensor) -> Tensor:
        """Return the most probable class, one-hot."""
        return F.one_hot(outputs.argmax(-1), self.n_outputs).to(outputs.dtype)

    def distance_of_rates(self, difference: Tensor) -> Tensor:
        """Return the total variation; with two classes the absolute difference of one rate."""
        return difference.abs().sum(-1) / 2

    def spread(self, outputs: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the root mean square, by frequency, of the spreads of each class's evidence over people."""
        contrasts = self._contrasts(outputs.device).to(outputs.dtype)
        each = spread(outputs @ contrasts.T, weights)
        return (outputs.new_tensor(self.shares) @ each.square()).sqrt()

    def shift(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return biases with which the classes are decided for about as often.

        Damped fixed-point steps on the logarithms of the shares; the classes that nobody gets stay. The
        numbers are a solver's, whose best step is returned: they affect how close it comes, not where to.
        """
        if self.n_outputs == 2:
            difference = (each[:, 1:] - each[:, :1] for each in (outputs, target))
            return Binary().shift(*difference) * outputs.new_tensor([-0.5, 0.5])
        aim = self.decisions(target).mean(0)
        bias, step = outputs.new_zeros(self.n_outputs), 1.0
        best, least = bias, math.inf
        for _ in range(60):
            share = self.decisions(outputs + bias).mean(0)
            off = float((share - aim).abs().sum())
            if off < least:
                best, least = bias, off
            else:
                step *= 0.7
            move = ((aim + 1e-3) / (share + 1e-3)).log() * (aim > 0)
            bias = best + step * move if off > least else bias + step * move
        return best - best.mean()


@dataclass(frozen=True)
class Number(Task):
    """A number, with bins of its quantiles in the reference rows; people are compared in ten of them."""

    key: ClassVar[str] = "number"
    outcomes: ClassVar[tuple[str, ...]] = ("equalized_odds", "demographic_parity")
    n_outputs: ClassVar[int] = 1  # type: ignore[misc]
    edges: tuple[float, ...]  # between the cells
    centres: tuple[float, ...]  # the mean label of each cell
    outcome_edges: tuple[float, ...]
    scale: float  # the standard deviation of the labels

    @classmethod
    def of(cls, y: Tensor, weights: Tensor | None = None, **_: Any) -> "Number":
        """Return the task with quantile bins of the labels."""
        y = y.double()
        w = torch.ones_like(y) if weights is None else weights.double()
        y, w = y[w > 0], w[w > 0]
        edges = _quantile_edges(y, w, REFERENCE_BINS)
        codes = torch.bucketize(y, edges)
        mass = torch.bincount(codes, w, minlength=len(edges) + 1)
        centres = torch.bincount(codes, w * y, minlength=len(edges) + 1) / mass.clamp_min(1e-300)
        mean = (w * y).sum() / w.sum()
        scale = float(((w * (y - mean).square()).sum() / w.sum()).sqrt())
        outcome_edges = _quantile_edges(y, w, OUTCOME_BINS)
        return cls(
            tuple(edges.tolist()), tuple(centres.tolist()), tuple(outcome_edges.tolist()), scale or 1.0
        )

    @property
    def n_cells(self) -> int:  # type: ignore[override]
        """The number of bins; equal labels share one, so there may be fewer than ten."""
        return len(self.centres)

    def cells(self, y: Tensor) -> Tensor:
        """Return the bin of each label."""
        return torch.bucketize(y.double(), y.new_tensor(self.edges, dtype=torch.float64))

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the squared error."""
        return (outputs[..., 0] - y.to(outputs.dtype)).square()

    def predictions(self, outputs: Tensor) -> Tensor:
        """Return the outputs."""
        return outputs

    def distance(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the squared difference."""
        return (outputs - targets).square()[..., 0]

    def constant(self, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean."""
        return _mean(targets, weights)

    def soft_decisions(self, outputs: Tensor, width: float) -> Tensor:  # noqa: ARG002 (already smooth)
        """Return the predictions in standard deviations of the label."""
        return outputs / self.scale

    def decisions(self, outputs: Tensor) -> Tensor:
        """Return the predictions in standard deviations of the label."""
        return outputs / self.scale

    def outcome_cells(self, y: Tensor, outcome: str) -> tuple[Tensor, int, float]:
        """Return five bins of the label, averaged; or all rows."""
        if outcome != "equalized_odds":
            return super().outcome_cells(y, outcome)
        edges = y.new_tensor(self.outcome_edges, dtype=torch.float64)
        return torch.bucketize(y.double(), edges), len(edges) + 1, 1 / (len(edges) + 1)

    def shift(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the difference of the means."""
        return (target - outputs).mean(0)


def _mean(values: Tensor, weights: Tensor | None) -> Tensor:
    """Return the weighted mean over rows, (1, K)."""
    if weights is None:
        return values.mean(0, keepdim=True)
    return (weights.to(values) @ values / weights.to(values).sum()).unsqueeze(0)


def _quantile_edges(y: Tensor, weights: Tensor, bins: int) -> Tensor:
    """Return the distinct edges of weighted quantile bins, midway between labels.

    Labels may be rounded, standardised and transformed back without leaving their bin.
    """
    order = torch.argsort(y)
    cumulative = weights[order].cumsum(0) / weights.sum()
    inner = torch.arange(1, bins, dtype=torch.float64, device=y.device) / bins
    places = torch.searchsorted(cumulative, inner - 1e-12).clamp_max(len(y) - 1)
    edges: Tensor = y[order][places].unique()
    edges = edges[edges < y.max()]
    above: Tensor = y[order][torch.searchsorted(y[order], edges, right=True)]
    return (edges + above) / 2


TASKS: Registry[type[Task]] = Registry(
    "task", {each.key: each for each in (Binary, Classes, Number)}, lambda _, task: task
)


def register_task(task: type[Task], *, overwrite: bool = False) -> None:
    """Add a kind of label.

    Parameters
    ----------
    task : class
        A subclass of `Task`; its ``key`` is its name.
    overwrite : bool
        Whether another task of this name is replaced.

    Examples
    --------
    >>> class Salary(Number):
    ...     key = "salary"
    >>> register_task(Salary, overwrite=True)
    >>> TASKS["salary"].__name__
    'Salary'
    """
    TASKS.add(task.key, task, overwrite=overwrite)


def task_of(y: Tensor, task: "str | Task" = "auto", weights: Tensor | None = None) -> Task:
    """Return the task of labels (n,): integers of two values are two classes, of more several, else numbers.

    >>> task_of(torch.tensor([0, 1, 1])).key, task_of(torch.tensor([0, 2, 1])).key
    ('binary', 'classes')
    >>> task_of(torch.tensor([0.5, 2.0, 1.0])).key
    'number'
    """
    if isinstance(task, Task):
        return task
    if task == "auto":
        whole = not y.is_floating_point() or bool((y == y.round()).all() and y.min() >= 0 and y.max() <= 1)
        task = "number" if not whole else "binary" if int(y.max()) <= 1 else "classes"
    return TASKS[task].of(y, weights)


def as_outputs(outputs: Tensor, n: int) -> Tensor:
    """Return a module's outputs as (n, K); modules with one output may give (n,).

    >>> as_outputs(torch.zeros(3), 3).shape
    torch.Size([3, 1])
    """
    if outputs.shape == (n,):
        return outputs.unsqueeze(1)
    if outputs.dim() != 2 or len(outputs) != n:
        raise ValueError(
            f"the module must give outputs of shape ({n},), ({n}, 1) or ({n}, classes), but gave "
            f"{tuple(outputs.shape)}"
        )
    return outputs
