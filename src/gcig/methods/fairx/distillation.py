"""Distillation: a teacher whose predictions the student keeps, and the points at which it keeps them.

Labels of a few hundred rows are noise to a network that sees them often enough; the teacher's probabilities
are not, and they can be computed for any point. So the student starts at the teacher's weights, is trained
on its probabilities, and changes its reasons. It learns them at the training rows, at points between rows
and the references that explanations start from, which keeps references typical, and at rows whose protected
columns were exchanged, which keeps the protected attribute from being used more than the teacher uses it.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from gcig.core.batch import GroupedBatch, TrainingRows
from gcig.core.modules import evaluating, logits
from gcig.losses.objective import MiniBatch
from gcig.metrics.ranking import roc_auc

__all__ = ["BatchSource", "Teacher"]

_CHUNK_ROWS = 65_536
_BETWEEN_SHARE = 0.5  # synthetic points between rows and references, per row of a mini-batch
_TO_MEAN_SHARE = 0.3  # of those, towards the mean of a cell; the others towards a member
_EXCHANGED_SHARE = 0.1  # copies with exchanged protected columns, per row of a mini-batch


@dataclass(frozen=True)
class Teacher:
    """A plainly trained network, and its measurements on the held-out set.

    Attributes
    ----------
    network : nn.Module
    measured : dict
        See `gcig.methods.fairx.selection.measure`.
    witnesses : Tensor of shape (n, ...)
        Rows on which students are compared with it.
    error : float
        The standard error of its AUC.
    """

    network: nn.Module
    measured: dict[str, float]
    witnesses: Tensor
    error: float

    @torch.no_grad()
    def logits(self, inputs: Tensor) -> Tensor:
        """Return its logits, computed in chunks."""
        with evaluating(self.network):
            return torch.cat([logits(self.network, part) for part in inputs.split(_CHUNK_ROWS)])

    @cached_property
    def expected(self) -> Tensor:
        """Its probabilities of the witnesses."""
        return torch.sigmoid(self.logits(self.witnesses))

    @cached_property
    def best_auc(self) -> float:
        """The AUC of its own scores if its probabilities are correct: no scores have a higher one."""
        return _expected_auc(self.expected, self.expected)

    @torch.no_grad()
    def auc_lost(self, student: nn.Module, auc: float) -> float:
        """Return the AUC that a student lost: by the teacher's probabilities, or by labels if that is more.

        A quarter of the AUC's standard error is subtracted from the loss by labels, which is noisy on few
        rows.
        """
        with evaluating(student):
            scores = logits(student, self.witnesses)
        by_teacher = self.best_auc - _expected_auc(scores, self.expected)
        by_labels = self.measured["auc"] - auc - self.error / 4
        return max((lost for lost in (by_teacher, by_labels) if math.isfinite(lost)), default=0.0)


def _expected_auc(scores: Tensor, probabilities: Tensor) -> float:
    return roc_auc(probabilities.double().cpu().numpy(), scores.double().cpu().numpy())


class BatchSource:
    """Mini-batches of training rows, with a teacher's probabilities at synthetic points if there is one.

    Parameters
    ----------
    network : nn.Module
        The network in training.
    data : TrainingRows
    n_groups : int
    n_explained : int
        The rows of each mini-batch whose attributions are compared.
    teacher : Teacher, optional
    means : Tensor of shape (2, groups, ...), optional
        The mean of every cell; needed with a teacher.
    protected : Tensor, optional
        Positions of the encoded columns that carry the protected attribute.
    generator : torch.Generator, optional
    """

    def __init__(
        self,
        network: nn.Module,
        data: TrainingRows,
        n_groups: int,
        *,
        n_explained: int = 0,
        teacher: Teacher | None = None,
        means: Tensor | None = None,
        protected: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self.network, self.data, self.n_groups = network, data, n_groups
        self.n_explained, self.teacher, self.means = n_explained, teacher, means
        self.protected, self.generator = protected, generator
        if teacher is not None:
            self._cells = _CellIndex(data.rows, n_groups)
            self._logits = teacher.logits(data.rows.inputs)

    def __call__(self, rows: Tensor) -> MiniBatch:
        """Return the mini-batch of rows at some positions; positions past the last row start again."""
        rows = rows % len(self.data)
        data = self.data.rows
        batch = MiniBatch(
            self.network,
            data.inputs.index_select(0, rows),
            data.labels.index_select(0, rows),
            data.groups.index_select(0, rows),
            self.data.targets.index_select(0, rows).to(data.inputs.dtype),
            None if self.data.weights is None else self.data.weights.index_select(0, rows),
            n_explained=min(self.n_explained, len(rows)),
        )
        return batch if self.teacher is None else self._with_synthetic_points(batch, rows)

    def _with_synthetic_points(self, batch: MiniBatch, rows: Tensor) -> MiniBatch:
        assert self.teacher is not None
        n = len(rows)
        # From the end of the batch: its first rows are those that are explained.
        between = self._between(batch, slice(n - math.ceil(_BETWEEN_SHARE * n), n))
        parts, origins = [between], [rows[n - len(between) :]]
        if self.protected is not None:
            count = math.ceil(_EXCHANGED_SHARE * n)
            parts.append(self._exchanged(batch, count))
            origins.append(rows[:count])
            first = torch.arange(count, device=rows.device)
            batch.pairs = torch.stack([first, first + n + len(between)])
        points = torch.cat(parts)
        scores = self.teacher.logits(points)
        batch.inputs = torch.cat([batch.inputs, points])
        batch.targets = torch.cat([batch.targets, torch.sigmoid(scores)])
        if self.data.weights is not None and batch.weights is not None:
            batch.weights = torch.cat([batch.weights, self.data.weights[torch.cat(origins)]])
        if batch.pairs is not None:
            count = batch.pairs.shape[1]
            batch.pair_limits = (self._logits[rows[:count]] - scores[len(between) :]).abs()
        return batch

    def _between(self, batch: MiniBatch, part: slice) -> Tensor:
        """Return points between rows and references of their labels: members, or means of cells."""
        inputs, labels = batch.inputs[part], batch.labels[part]
        assert self.means is not None
        groups = torch.randint(self.n_groups, (len(inputs),), generator=self.generator).to(labels.device)
        ends = self.data.rows.inputs.index_select(0, self._cells.draw(labels, groups, self.generator))
        share, to_mean = torch.rand(2, len(inputs), generator=self.generator).to(inputs)
        shape = (-1, *[1] * (inputs.dim() - 1))
        ends = torch.where((to_mean < _TO_MEAN_SHARE).view(shape), self.means[labels, groups], ends)
        return torch.lerp(inputs, ends, share.view(shape))

    def _exchanged(self, batch: MiniBatch, count: int) -> Tensor:
        """Return copies of the first rows whose protected columns are those of a member of another group."""
        assert self.protected is not None
        labels, groups = batch.labels[:count], batch.groups[:count]
        shift = torch.randint(1, self.n_groups, (count,), generator=self.generator).to(labels.device)
        others = self._cells.draw(labels, (groups + shift) % self.n_groups, self.generator)
        copies = batch.inputs[:count].clone()
        copies[:, self.protected] = self.data.rows.inputs[others][:, self.protected]
        return copies


class _CellIndex:
    """Positions of the rows of every (label, group) cell, to draw from."""

    def __init__(self, rows: GroupedBatch, n_groups: int) -> None:
        cells = rows.labels * n_groups + rows.groups
        self.n_groups, self.order = n_groups, torch.argsort(cells, stable=True)
        self.counts = torch.bincount(cells, minlength=2 * n_groups)
        self.first = self.counts.cumsum(0) - self.counts

    def draw(self, labels: Tensor, groups: Tensor, generator: torch.Generator | None) -> Tensor:
        """Draw one position per pair of label and group."""
        cells = labels * self.n_groups + groups
        share = torch.rand(len(cells), generator=generator, dtype=torch.float64).to(cells.device)
        return self.order[self.first[cells] + (share * self.counts[cells]).long()]
