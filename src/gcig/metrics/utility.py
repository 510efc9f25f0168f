"""Utility: additive sums of decisions and losses by outcome cell and group, and the task's own measures of
them.

Sums of several parts of a table are added. An outcome cell is a label; for numbers a quantile bin of the
label.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, softmax
from torch import Tensor

from gcig._arrays import Codes, Floats, Rows
from gcig.core.task import Task
from gcig.metrics.measure import measure

if TYPE_CHECKING:
    from gcig.metrics.samples import Sample

MAIN = {"binary": "auc", "classes": "accuracy", "number": "r2"}  # what a budget costs is said in this measure
_CHANCE = {"auc": 0.55, "r2": 0.01}  # a model below it knows next to nothing
_CLASSES = ("binary", "classes")
_MARGIN = 1e-12  # distance of a threshold from 0 and 1
_F1_TOLERANCE = 0.01  # smaller differences of F1 are treated as noise


def quotient(numerator: Floats, denominator: Floats) -> Floats:
    """Divide elementwise; 0/0 is NaN, without a warning."""
    out = np.full(np.broadcast(numerator, denominator).shape, np.nan)
    np.divide(numerator, denominator, out=out, where=denominator > 0)
    return out


def sum_rows(places: NDArray[np.int64], values: Floats, size: int) -> Floats:
    """Add up the rows of values (n, columns) by place, (size, columns)."""
    return np.stack([np.bincount(places, column, minlength=size) for column in values.T], axis=1)


def layout(task: Task) -> dict[str, slice]:
    """Return where the sums of each quantity stand in the last dimension."""
    width = task.n_outputs
    sizes = {"mass": 1, "decided": width}
    if task.key == "number":
        sizes |= {"label": 1, "label_square": 1, "absolute_error": 1, "squared_error": 1}
    else:
        sizes |= {"score": width, "loss": 1}
    ends = np.cumsum(list(sizes.values())).tolist()
    return {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}


def outcome_cells(task: Task, labels: NDArray[Any]) -> tuple[Codes, int, float]:
    """Return the outcome cell of each label, the number of cells, and the weight of a cell in the gap."""
    cells, count, weight = task.outcome_cells(torch.from_numpy(np.asarray(labels)), "equalized_odds")
    return cells.numpy(), count, weight


def one_hot(task: Task, decisions: Floats) -> Floats:
    """Return decisions (n, width): the probability of 1, one column per class, or numbers."""
    if task.key != "classes":
        return np.asarray(decisions, dtype=np.float64).reshape(-1, 1)
    return np.asarray(np.eye(task.n_outputs)[np.asarray(decisions, dtype=np.int64)])


def _row_quantities(task: Task, scores: Floats, decided: Floats, labels: NDArray[Any]) -> Floats:
    """Return the quantities of each row that are summed, (n, columns) as in `layout`."""
    parts = [np.ones((len(labels), 1)), decided]
    if task.key == "number":
        error = decided[:, 0] - labels
        parts += [each[:, None] for each in (labels, labels**2, abs(error), error**2)]
    else:
        codes, eps = np.asarray(labels, dtype=np.int64), np.finfo(np.float64).eps
        own = scores[np.arange(len(codes)), codes % scores.shape[1]]
        own = np.where(codes == 1, own, 1 - own) if task.key == "binary" else own
        parts += [scores, -np.log(np.clip(own, eps, 1 - eps))[:, None]]
    return np.concatenate(parts, axis=1)


def count_rows(
    task: Task,
    scores: Floats | None,
    decided: Floats,
    labels: NDArray[Any],
    groups: Codes,
    n_groups: int,
    weights: Floats | None = None,
    blocks: tuple[NDArray[np.int64], int] | None = None,
) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Return sums (blocks, cells, groups, columns), and rows and squared weights (cells, groups).

    ``scores`` and ``decided`` are (n, width): probabilities and decisions, or predicted numbers; ``scores``
    is None for a model without probabilities.
    """
    cells, n_cells, _ = outcome_cells(task, labels)
    place, size = np.asarray(cells, dtype=np.int64) * n_groups + groups, n_cells * n_groups
    w = np.ones(len(labels)) if weights is None else weights
    known = np.full(decided.shape, 0.5) if scores is None else scores
    block, n_blocks = (np.zeros(len(labels), dtype=np.int64), 1) if blocks is None else blocks
    sums = sum_rows(
        block * size + place, _row_quantities(task, known, decided, labels) * w[:, None], n_blocks * size
    )
    n_rows = np.bincount(place, minlength=size).reshape(n_cells, n_groups)
    squares = np.bincount(place, w**2, minlength=size).reshape(n_cells, n_groups)
    return sums.reshape(n_blocks, n_cells, n_groups, -1), n_rows, squares.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Counts:
    """Sums by outcome cell and group; measures are functions of them, for any leading dimensions."""

    task: Task
    sums: Floats  # (..., cells, groups, columns), columns as in `layout`
    n_rows: NDArray[np.int64]  # (cells, groups), regardless of weight
    squares: Floats  # (cells, groups): sums of squared weights
    cell_weight: float = 1.0  # of a cell in the outcome gap
    min_cell: int = 1
    probabilistic: bool = True
    favourable: tuple[int, ...] = (1,)  # the favourable classes; of numbers (1,) if high ones are
    cell_names: tuple[str, ...] = ()
    group_names: tuple[str, ...] = ()

    def of(self, name: str) -> Floats:
        """Return the sums of one quantity, (..., cells, groups, width)."""
        return self.sums[..., layout(self.task)[name]]

    @property
    def mass(self) -> Floats:
        """The weight of each cell and group, (..., cells, groups)."""
        return self.of("mass")[..., 0]

    def mean(self, name: str) -> Floats:
        """Return the mean of a quantity over all rows, (...,)."""
        return quotient(self.of(name).sum(axis=(-3, -2, -1)), self.mass.sum(axis=(-2, -1)))

    def group_mean(self, name: str) -> Floats:
        """Return the mean of a quantity in each group, (..., groups, width)."""
        return quotient(self.of(name).sum(axis=-3), self.of("mass").sum(axis=-3))

    @property
    def rates(self) -> Floats:
        """Mean decisions, (..., cells, groups, width): the rate of label 1, of each class, or predictions."""
        return quotient(self.of("decided"), self.of("mass"))

    @property
    def right(self) -> Floats:
        """The weight of rows decided as labelled, (..., cells, groups)."""
        decided = self.of("decided")
        if self.task.key == "binary":
            wrong_of_0 = decided[..., 0, :, 0]
            return np.stack([self.mass[..., 0, :] - wrong_of_0, decided[..., 1, :, 0]], axis=-2)
        return np.asarray(np.moveaxis(np.diagonal(decided, axis1=-3, axis2=-1), -1, -2))

    @property
    def accuracy(self) -> Floats:
        """The share of rows decided as labelled, (...,)."""
        return quotient(self.right.sum(axis=(-2, -1)), self.mass.sum(axis=(-2, -1)))

    @cached_property
    def sizes(self) -> Floats:
        """Effective number of rows per cell and group: Kish's ``(sum w)^2 / sum w^2``."""
        return np.nan_to_num(
            quotient((self.mass if self.mass.ndim == 2 else self.mass[0]) ** 2, self.squares)
        )

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which cells enter gaps, (cells, groups)."""
        return np.asarray((self.n_rows >= self.min_cell) | (self.min_cell <= 1))

    @property
    def kept_groups(self) -> NDArray[np.bool_]:
        """Which groups enter gaps of rates over all rows, (groups,)."""
        return np.asarray((self.n_rows.sum(axis=0) >= self.min_cell) | (self.min_cell <= 1))

    def names_of(self, chosen: NDArray[np.bool_]) -> tuple[str, ...]:
        """Return the names of chosen cells."""
        return tuple(
            f"label {self.cell_names[cell]} in group {self.group_names[group]!r}"
            for cell, group in np.argwhere(chosen).tolist()
        )

    def with_sums(self, sums: Floats) -> "Counts":
        """Return the same with other sums, such as draws of them."""
        return replace(self, sums=sums)

    def regrouped(self, levels: Sequence[int], names: tuple[str, ...]) -> "Counts":
        """Return the counts of groups that are joined: the level of each group, or -1 to leave it out."""
        member = (np.asarray(levels)[:, None] == np.arange(len(names))).astype(np.float64)
        return replace(
            self,
            sums=np.einsum("...cgf,gl->...clf", self.sums, member),
            n_rows=(self.n_rows @ member).astype(np.int64),
            squares=self.squares @ member,
            group_names=names,
        )


def roc_auc(labels: NDArray[Any], scores: Rows, weights: Floats | None = None) -> float:
    """Return the probability that a row with label 1 scores above one with label 0, ties counted half.

    ``labels`` are 0 and 1, or the probability of label 1: the area is then the expected one. NaN if a label
    has no weight.
    """
    _, place = np.unique(scores, return_inverse=True)
    weight = np.ones(len(place)) if weights is None else weights
    negative, positive = (np.bincount(place, weight * of) for of in (1 - labels, labels))
    pairs = float(positive.sum() * negative.sum())
    return float((np.cumsum(negative) - negative / 2) @ positive) / pairs if pairs > 0 else math.nan


def area(outputs: Floats, labels: NDArray[Any], weights: Floats | None = None) -> float:
    """Return the area of outputs (n, K), of K > 1 the mean of each class against the others."""
    if outputs.shape[1] == 1:
        return roc_auc(labels, outputs[:, 0], weights)
    shares = softmax(outputs, axis=1)
    areas = [roc_auc((labels == k).astype(np.int64), shares[:, k], weights) for k in range(outputs.shape[1])]
    known = [each for each in areas if not math.isnan(each)]
    return float(np.mean(known)) if known else math.nan


_utility = partial(measure, section="utility", better="higher", high=1.0, labels="needed")


@_utility("counts", tasks=_CLASSES)
def accuracy(counts: Counts) -> Floats:
    """Accuracy: Share of rows decided as labelled."""
    return counts.accuracy


@_utility("counts", tasks=_CLASSES)
def f1(counts: Counts) -> Floats:
    """F1: F1 of the positive class, or the mean of that of each class that occurs."""
    right, labelled = counts.right.sum(axis=-1), counts.mass.sum(axis=-1)  # (..., cells)
    decided = counts.of("decided").sum(axis=(-3, -2))  # (..., width)
    if counts.task.key == "binary":
        return quotient(2 * right[..., 1], labelled[..., 1] + decided[..., 0])
    found, present = quotient(2 * right, labelled + decided), labelled > 0
    return quotient(np.where(present, np.nan_to_num(found), 0).sum(axis=-1), present.sum(axis=-1))


@_utility("counts", tasks=_CLASSES)
def balanced_accuracy(counts: Counts) -> Floats:
    """Balanced accuracy: Mean over the labels of the share decided as labelled."""
    recall = quotient(counts.right.sum(axis=-1), counts.mass.sum(axis=-1))
    if counts.task.key == "binary":  # NaN if a label has no rows
        return np.asarray(recall.mean(axis=-1))
    return quotient(np.nan_to_num(recall).sum(axis=-1), (~np.isnan(recall)).sum(axis=-1))


@_utility("scores", tasks=_CLASSES)
def auc(sample: "Sample") -> float:
    """AUC: Probability that a row with the label scores higher than one without."""
    return area(sample.outputs, sample.labels, sample.weights)


@_utility("counts", tasks=_CLASSES, better="lower", high=math.inf)
def log_loss(counts: Counts) -> Floats:
    """Log loss: Mean negative logarithm of the probability of the label."""
    return counts.mean("loss") if counts.probabilistic else np.full(counts.sums.shape[:-3], np.nan)


@_utility("counts", tasks=("number",), low=-math.inf)
def r2(counts: Counts) -> Floats:
    """R2: Share of the variance of the label that is predicted."""
    variance = counts.mean("label_square") - counts.mean("label") ** 2
    return np.asarray(1 - quotient(counts.mean("squared_error"), variance))


@_utility("counts", tasks=("number",), better="lower", high=math.inf)
def mae(counts: Counts) -> Floats:
    """MAE: Mean absolute error."""
    return counts.mean("absolute_error")


@_utility("counts", tasks=("number",), better="lower", high=math.inf)
def rmse(counts: Counts) -> Floats:
    """RMSE: Root of the mean squared error."""
    return np.asarray(np.sqrt(counts.mean("squared_error")))


def utility(task: Task, outputs: Floats, y: NDArray[Any], weights: Floats | None = None) -> dict[str, float]:
    """Return the measures of a network's outputs (n, K) for rows with labels y.

    Two classes: ``auc log_loss f1 accuracy balanced_accuracy``; several: ``accuracy auc f1 log_loss``, the
    AUC and F1 averaged over classes; numbers: ``r2 mae rmse``.
    """
    outputs = np.asarray(outputs, dtype=np.float64)
    if task.key == "binary":
        scores, decided = expit(outputs), (outputs >= task.cut).astype(np.float64)  # type: ignore[attr-defined]
    elif task.key == "number":
        scores = decided = outputs
    else:
        scores, decided = softmax(outputs, axis=1), one_hot(task, outputs.argmax(axis=1))
    sums, n_rows, squares = count_rows(task, scores, decided, y, np.zeros(len(y), dtype=np.int64), 1, weights)
    counts = Counts(task, sums.sum(axis=0), n_rows, squares)
    names = {"binary": (log_loss, f1, accuracy, balanced_accuracy), "classes": (accuracy, f1, log_loss)}
    found = {each.name: float(each.compute(counts)) for each in names.get(task.key, (r2, mae, rmse))}
    return found if task.key == "number" else found | {"auc": area(outputs, y, weights)}


def has_collapsed(measured: Mapping[str, float]) -> bool:
    """Return whether a model knows next to nothing: its AUC (of classes the mean), or R2, is that of chance.

    NaN is a collapse as well.
    """
    return any(name in measured and not measured[name] >= least for name, least in _CHANCE.items())


def best_f1_threshold(probability: Tensor, labels: Tensor) -> float:
    """Return the threshold nearest to one half whose F1 is within 0.01 of the highest.

    F1 is flat around its maximum, whose position is mostly noise on a few hundred rows. If positives are the
    majority, predicting everyone positive often has the highest F1. Therefore each class must be predicted
    for at least half as many rows as have it, if that is possible. Rows from the threshold upwards are
    predicted positive.

    >>> best_f1_threshold(torch.tensor([0.1, 0.2, 0.3, 0.9]), torch.tensor([0, 1, 1, 1]))
    0.15...
    >>> best_f1_threshold(torch.tensor([0.1, 0.2, 0.3, 0.9]), torch.tensor([1, 0, 1, 1]))  # not below 0.1
    0.25...
    """
    order = torch.argsort(probability, descending=True)
    falling = probability[order].double()
    n_positive = labels.sum()
    hits = labels[order].cumsum(0).double()
    positives = torch.arange(1, len(order) + 1, device=order.device)
    f1 = 2 * hits / (positives + n_positive)
    both = (positives >= n_positive / 2) & (len(order) - positives >= (len(order) - n_positive) / 2)
    # Adding 2 ranks thresholds that predict both classes first, since F1 is at most 1. A threshold cannot
    # separate rows of equal probability: only the last of them counts.
    below = torch.cat([falling[1:], falling.new_zeros(1)])
    last_of_ties = torch.cat([falling[1:] < falling[:-1], falling.new_ones(1, dtype=torch.bool)])
    worth = torch.where(last_of_ties, f1 + 2 * both, -1.0)
    # Between adjacent floats there is no value: the row's own probability is then the threshold.
    between = torch.where((falling + below) / 2 > below, (falling + below) / 2, falling)
    distance = torch.where(worth >= worth.max() - _F1_TOLERANCE, (between - 0.5).abs(), math.inf)
    return min(1 - _MARGIN, max(_MARGIN, float(between[int(distance.argmin())])))
