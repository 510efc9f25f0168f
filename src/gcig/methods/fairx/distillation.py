"""Distillation: the teacher, and the mini-batches on which the student matches its predictions.

A network overfits the labels of a few hundred rows. It cannot overfit the teacher's probabilities in the same
way, because they can be computed at any point. The student therefore starts at the teacher's weights and is
trained on its probabilities while its reasons change. It matches them at three kinds of points:

- training rows;
- points between rows and the references of their explanations, so that references stay typical;
- rows with exchanged protected columns, so that the student does not use the protected attribute more than
  the teacher does.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor, nn

from gcig.core.batch import GroupedBatch, TrainingRows
from gcig.core.modules import evaluating, logits
from gcig.engine.cuda_graph import in_parallel
from gcig.losses.terms import MiniBatch
from gcig.metrics.ranking import roc_auc
from gcig.training.runtime import generator_on

_CHUNK_ROWS = 65_536  # rows per forward pass, which bounds the memory of predictions
_BETWEEN_SHARE = 0.35  # points between rows and references, per row of a mini-batch
_TO_MEAN_SHARE = 0.3  # the share of these points that lie towards a cell's mean; the others, towards a member
_EXCHANGED_SHARE = 0.1  # copies with exchanged protected columns, per row of a mini-batch
_DRAWN_POINTS = 4096  # points drawn at once for many mini-batches, which is much faster than a few at a time


@dataclass(frozen=True)
class Teacher:
    """A network trained without fairness terms, and its measurements on the held-out set."""

    network: nn.Module
    measured: dict[str, float]  # see `gcig.methods.fairx.selection.measure`
    comparison_rows: Tensor  # (n, ...); the rows on which students are compared with the teacher
    auc_error: float  # the standard error of the teacher's AUC

    @torch.no_grad()
    def logits(self, inputs: Tensor) -> Tensor:
        """Return the teacher's logits, computed in chunks."""
        with evaluating(self.network):
            if len(inputs) <= _CHUNK_ROWS:
                return logits(self.network, inputs)
            return torch.cat([logits(self.network, part) for part in inputs.split(_CHUNK_ROWS)])

    @cached_property
    def probabilities(self) -> Tensor:
        """The teacher's probabilities of the comparison rows."""
        return torch.sigmoid(self.logits(self.comparison_rows))

    @cached_property
    def best_auc(self) -> float:
        """The teacher's expected AUC if its probabilities are correct, which is then the highest possible."""
        return _expected_auc(self.probabilities, self.probabilities)

    @torch.no_grad()
    def auc_lost(self, student: nn.Module, auc: float) -> float:
        """Return the AUC that a student lost, the larger of two estimates.

        One takes the teacher's probabilities as the truth. The other takes the held-out labels, and subtracts
        half the standard error because it is noisy on few rows.
        """
        with evaluating(student):
            scores = logits(student, self.comparison_rows)
        by_teacher = self.best_auc - _expected_auc(scores, self.probabilities)
        by_labels = self.measured["auc"] - auc - self.auc_error / 2
        return max((lost for lost in (by_teacher, by_labels) if math.isfinite(lost)), default=0.0)


def _expected_auc(scores: Tensor, probabilities: Tensor) -> float:
    return roc_auc(probabilities.double().cpu().numpy(), scores.double().cpu().numpy())


class BatchSource:
    """Mini-batches of training rows; with a teacher, also synthetic points and the teacher's probabilities.

    `n_explained` rows of each mini-batch are explained. A teacher needs `means`, the mean of every cell,
    shape (2, groups, ...). `protected` holds the positions of the encoded columns that carry the protected
    attribute.
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
        self.protected = protected
        self._drawn: _Points | None = None
        self._n_used = 0  # number of drawn points that mini-batches have used
        self._pairs: dict[tuple[int, int], Tensor] = {}
        self._ahead: dict[int, _Points] = {}
        if teacher is not None:
            device = data.rows.inputs.device
            self.generator = generator_on(device, generator or torch.default_generator)
            self._cells = _CellIndex(data.rows, n_groups)
            self.data = replace(data, targets=torch.sigmoid(teacher.logits(data.rows.inputs)))
            self._exchange_columns()

    def __call__(self, rows: Tensor, n_copies: int | None = None) -> MiniBatch:
        """Return the mini-batch of the rows at these positions, taken modulo the number of rows.

        `n_copies` of the rows, by default a tenth, get a copy with exchanged protected columns.
        """
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
        if self.teacher is None:
            return batch
        n_copies = math.ceil(_EXCHANGED_SHARE * len(rows)) if n_copies is None else n_copies
        return self._with_synthetic_points(batch, rows, n_copies)

    def _with_synthetic_points(self, batch: MiniBatch, rows: Tensor, n_copies: int) -> MiniBatch:
        """Append points between rows and references, then copies with exchanged columns, to a mini-batch."""
        n = len(rows)
        tasks = [partial(self._take_between, math.ceil(_BETWEEN_SHARE * n))]
        if self.protected is not None:
            tasks.append(partial(self._exchange, batch, rows[:n_copies]))
        between, *exchanged = points = in_parallel(tasks)
        for copies in exchanged:
            batch.pairs = self._pair(len(copies.inputs), n + len(between.inputs), rows.device)
        batch.inputs = torch.cat([batch.inputs, *(each.inputs for each in points)])
        batch.targets = torch.cat([batch.targets, *(each.targets for each in points)])
        weights = [batch.weights, *(each.weights for each in points)]
        present = [each for each in weights if each is not None]
        batch.weights = torch.cat(present) if present else None
        return batch

    def _pair(self, count: int, start: int, device: torch.device) -> Tensor:
        """Return the positions of the first rows and of their copies, which begin at `start`."""
        if (count, start) not in self._pairs:
            positions = torch.arange(count, device=device)
            self._pairs[count, start] = torch.stack([positions, positions + start])
        return self._pairs[count, start]

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        """The generator of synthetic points."""
        return () if self.teacher is None else (self.generator,)

    def _take_between(self, count: int) -> "_Points":
        """Return the next points between rows and references, and draw more if they run out.

        On a GPU, each mini-batch draws the points for the next one of the same size instead, so that all
        mini-batches consist of the same operations; see `draw_ahead`.
        """
        if self.data.rows.inputs.is_cuda:
            if count not in self._ahead:
                self._ahead[count] = self._draw_between(count)
            return self._ahead[count]
        if self._drawn is None or len(self._drawn.inputs) < self._n_used + count:
            self._drawn, self._n_used = self._draw_between(max(count, _DRAWN_POINTS)), 0
        self._n_used += count
        return self._drawn[self._n_used - count : self._n_used]

    def draw_ahead(self, n_rows: int) -> None:
        """Draw the points for the next mini-batch of this size while the current one is computed."""
        count = math.ceil(_BETWEEN_SHARE * n_rows)
        if count in self._ahead:
            self._ahead[count].copy_(self._draw_between(count))

    def _draw_between(self, count: int) -> "_Points":
        """Draw points between random rows and references with the same label: cell members or cell means."""
        assert self.teacher is not None
        assert self.means is not None
        data, weights, generator = self.data.rows, self.data.weights, self.generator
        rows = torch.randint(len(data), (count,), generator=generator, device=generator.device)
        inputs, labels = data.inputs.index_select(0, rows), data.labels.index_select(0, rows)
        groups = torch.randint(self.n_groups, (count,), generator=generator, device=generator.device)
        ends = data.inputs.index_select(0, self._cells.draw(labels, groups, self.generator))
        drawn = torch.rand(2, count, generator=generator, device=generator.device, dtype=torch.float32)
        share, to_mean = drawn.to(inputs)
        shape = (-1, *[1] * (inputs.dim() - 1))
        ends = torch.where((to_mean < _TO_MEAN_SHARE).view(shape), self.means[labels, groups], ends)
        points = torch.lerp(inputs, ends, share.view(shape))
        targets = torch.sigmoid(self.teacher.logits(points))
        return _Points(points, targets, None if weights is None else weights[rows])

    def _exchange_columns(self) -> None:
        """Draw protected columns from another group for every row, and compute the teacher's predictions."""
        if self.protected is None or self.teacher is None:
            return
        rows, generator = self.data.rows, self.generator
        shift = torch.randint(1, self.n_groups, (len(rows),), generator=generator, device=generator.device)
        others = self._cells.draw(rows.labels, (rows.groups + shift) % self.n_groups, generator)
        self._other_values = self.data.rows.inputs[:, self.protected].index_select(0, others)
        parts = torch.arange(len(rows), device=rows.labels.device).split(_CHUNK_ROWS)
        scores = [self.teacher.logits(self._copy(rows.inputs.index_select(0, part), part)) for part in parts]
        self._other_targets = torch.sigmoid(torch.cat(scores))

    def _copy(self, inputs: Tensor, rows: Tensor) -> Tensor:
        """Return copies of the inputs of `rows` with their exchanged protected columns."""
        copies = inputs.clone()
        assert self.protected is not None
        return copies.index_copy_(1, self.protected, self._other_values.index_select(0, rows))

    def _exchange(self, batch: MiniBatch, rows: Tensor) -> "_Points":
        """Return copies of the first rows of a mini-batch with exchanged protected columns."""
        copies = self._copy(batch.inputs[: len(rows)], rows)
        weights = None if batch.weights is None else batch.weights[: len(rows)]
        return _Points(copies, self._other_targets.index_select(0, rows), weights)


@dataclass(frozen=True)
class _Points:
    """Synthetic points."""

    inputs: Tensor
    targets: Tensor  # the teacher's probabilities
    weights: Tensor | None  # the weights of the rows that the points were made from

    def copy_(self, other: "_Points") -> None:
        """Overwrite the points in place."""
        for own, new in ((self.inputs, other.inputs), (self.targets, other.targets)):
            own.copy_(new)
        if self.weights is not None and other.weights is not None:
            self.weights.copy_(other.weights)

    def __getitem__(self, part: slice) -> "_Points":
        weights = None if self.weights is None else self.weights[part]
        return _Points(self.inputs[part], self.targets[part], weights)


class _CellIndex:
    """The row positions of every (label, group) cell, for random draws."""

    def __init__(self, rows: GroupedBatch, n_groups: int) -> None:
        cells = rows.labels * n_groups + rows.groups
        self.n_groups, self.order = n_groups, torch.argsort(cells, stable=True)
        self.counts = torch.bincount(cells, minlength=2 * n_groups)
        self.first = self.counts.cumsum(0) - self.counts

    def draw(self, labels: Tensor, groups: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one row position per pair of label and group."""
        cells = labels * self.n_groups + groups
        share = torch.rand(len(cells), generator=generator, dtype=torch.float64, device=generator.device)
        return self.order[self.first[cells] + (share * self.counts[cells]).long()]
