"""Training data from a file of any length, in two passes and a shuffled copy on disk.

The first pass fits the encoder and counts labels and groups. The second encodes the rows, sums the baselines,
holds out a validation set, and distributes the other rows over blocks on disk. Memory does not grow with the
file: it holds a part of the file, a block and two samples. Every row is assigned to a random block. Each
block is therefore a random sample of the table, however the file is sorted, and its mini-batches are as good
as those of the whole table.
"""

import math
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from gcig._progress import progress as report_progress
from gcig._tables import level_name
from gcig._validation import (
    Groups,
    InputError,
    Labels,
    check_cells,
    check_filled,
    check_groups,
    check_labels,
    warn_if_sensitive_in,
)
from gcig.core.batch import GroupedBatch, TrainingRows
from gcig.core.references import CellSums, cell_sums
from gcig.data.encoder_sums import EncoderSums
from gcig.data.encoding import TableEncoder
from gcig.data.entries import column_kind, unify_types
from gcig.data.passthrough import PassThrough
from gcig.data.reading import TableFile
from gcig.data.roles import Roles, check_positive, target_codes
from gcig.methods.training_data import TrainingData, class_factors

BLOCK_BYTES = 32 * 2**20
_MAX_BLOCKS = 400  # each has two files open while rows are written, and systems often allow 1,024
EPOCH_ROWS = 2**18  # an epoch ends here even if the table has more rows; 40 of them are ten million rows
_ROWS_AT_ONCE = 65_536
_VALIDATION_BYTES = 32 * 2**20
_CHECKED_ROWS = 16_384  # sample in which columns that reveal the group are searched
_KEPT_PER_CELL = 64  # smallest number of rows per cell in the sample, for references of rare cells


@dataclass(frozen=True, eq=False)
class TrainingFile:
    """The rows of a Parquet or Feather file that a model is trained on: all but the sorted ``skipped``."""

    file: TableFile
    roles: Roles
    skipped: NDArray[np.int64]
    progress: bool = False

    @property
    def n_rows(self) -> int:
        """Number of rows to train on."""
        return self.file.n_rows - len(self.skipped)

    def parts(self, task: str) -> Iterator[pd.DataFrame]:
        """Yield the rows in order, in tables of bounded size."""
        start = 0
        with report_progress(self.file.n_rows, task, shown=self.progress) as advance:
            for frame in self.file.batches(self.roles.columns, decimal=".", rows=_ROWS_AT_ONCE):
                stop = start + len(frame)
                first, last = np.searchsorted(self.skipped, [start, stop])
                kept = np.ones(len(frame), dtype=bool)
                kept[self.skipped[first:last] - start] = False
                part = frame if kept.all() else frame[kept]
                yield unify_types(part, {name: column_kind(part[name]) for name in part.columns})
                advance(len(frame))
                start = stop


@dataclass(frozen=True, eq=False)
class FileSummary:
    """Summary of a file: the fitted encoder, the classes, the groups, and the number of rows of each cell."""

    encoder: TableEncoder | PassThrough
    classes: tuple[Any, Any]
    groups: tuple[str, ...]
    counts: NDArray[np.int64]  # (2, groups)


def summarise(rows: TrainingFile, encoder: TableEncoder | PassThrough, *, fitted: bool) -> FileSummary:
    """Read the file once: fit the encoder, unless it is fitted, and count labels and groups."""
    roles = rows.roles
    inputs, keys = list(roles.inputs), [roles.target, *roles.sensitive]
    sums = EncoderSums(rows.n_rows)
    rng, sample = np.random.default_rng(0), []
    found: dict[tuple[Any, ...], int] = {}
    for part in rows.parts("Reading the file"):
        check_filled(part, keys)
        if isinstance(encoder, TableEncoder) and not fitted:
            sums.add(part[inputs])
        elif not found and not fitted:
            encoder.fit(part[inputs])
        sample.append(part[rng.random(len(part)) < _CHECKED_ROWS / rows.n_rows])
        for key, count in part.groupby(keys, observed=True, sort=False).size().items():
            cell = key if isinstance(key, tuple) else (key,)
            found[cell] = found.get(cell, 0) + int(count)
    if isinstance(encoder, TableEncoder) and not fitted:
        sums.fit(encoder)
    distinct = pd.DataFrame(list(found), columns=keys)
    classes = find_classes(distinct[roles.target], roles.positive)
    groups = check_groups(roles.protected(distinct), n_rows=len(distinct))
    labels = target_codes(distinct[roles.target], classes, roles.positive)
    counts = np.zeros((2, len(groups.names)), dtype=np.int64)
    np.add.at(counts, (labels, groups.codes), list(found.values()))
    _check_counts(counts, classes, groups)
    checked = pd.concat(sample)
    of_sample = check_groups(roles.protected(checked), n_rows=len(checked), names=groups.names)
    warn_if_sensitive_in(checked[inputs], of_sample)
    return FileSummary(encoder, classes, groups.names, counts)


def encode_rows(
    rows: TrainingFile,
    summary: FileSummary,
    folder: Path,
    *,
    class_weight: Any,
    validation_fraction: float | None,
    device: torch.device,
    seed: int,
) -> tuple[TrainingData, CellSums]:
    """Read the file once more: write shuffled blocks into a folder, and return data and baseline sums."""
    roles, encoder, n_groups = rows.roles, summary.encoder, len(summary.groups)
    n_columns = encoder.n_features_out_
    bytes_needed = 4 * n_columns * rows.n_rows
    _check_space(folder, bytes_needed)
    blocks = RowBlocks(
        folder,
        n_rows=rows.n_rows,
        n_columns=n_columns,
        n_groups=n_groups,
        class_weights=_mean_one(class_factors(class_weight, summary.classes, summary.counts.sum(1)), summary),
        device=device,
        random_state=seed,
    )
    share = min(validation_fraction or 0.0, _VALIDATION_BYTES / bytes_needed)
    rng = np.random.default_rng([seed, 1])
    held_out, of_cells = [], _RowsOfCells(n_groups)
    sums = CellSums(torch.zeros(2, n_groups, n_columns, dtype=torch.float64), torch.zeros(2, n_groups).long())
    with blocks:
        for part in rows.parts("Encoding the rows"):
            sensitive = roles.protected(part)
            batch = GroupedBatch(
                torch.from_numpy(encoder.encode(part[list(roles.inputs)])),
                torch.from_numpy(target_codes(part[roles.target], summary.classes, roles.positive)),
                torch.from_numpy(check_groups(sensitive, n_rows=len(part), names=summary.groups).codes),
            )
            sums += cell_sums(batch.inputs.double(), batch.labels, batch.groups, n_groups=n_groups)
            held = torch.from_numpy(rng.random(len(batch)) < share)
            held_out.append(batch[held])
            kept = batch[~held]
            of_cells.add(kept, rng.random(len(kept)))
            blocks.add(kept.inputs.numpy(), kept.labels.numpy(), kept.groups.numpy())
    validation = GroupedBatch.join(held_out).to(device)
    sample = blocks.read(0).rows
    training = GroupedBatch.join([sample, of_cells.completing(sample).to(device)])
    data = TrainingData(
        all=training,
        training=training,
        validation=validation if len(validation.labels.unique()) == 2 else None,
        weights=blocks.weights_of(training.labels),
        n_groups=n_groups,
        table=pd.DataFrame(),
        stream=blocks,
    )
    return data, sums


class RowBlocks:
    """Encoded rows in files of an empty folder; write them with `add` in a ``with`` block, then read epochs.

    ``n_rows`` is the number of rows expected, ``class_weights`` (2,) the weight of the rows of each label,
    ``random_state`` the seed of the assignment to blocks and of their order, and ``block_bytes`` the
    approximate size of a block in memory.
    """

    def __init__(
        self,
        folder: Path,
        *,
        n_rows: int,
        n_columns: int,
        n_groups: int,
        class_weights: Tensor | None = None,
        device: torch.device | None = None,
        random_state: int = 0,
        block_bytes: int | None = None,
    ) -> None:
        count = min(_MAX_BLOCKS, math.ceil(n_rows * n_columns * 4 / (block_bytes or BLOCK_BYTES)))
        self._paths = [(folder / f"{i}.rows", folder / f"{i}.cells") for i in range(max(1, count))]
        self._n_columns, self._n_groups = n_columns, n_groups
        self._class_weights, self._device = class_weights, device or torch.device("cpu")
        self._rng = np.random.default_rng(random_state)
        self._open = ExitStack()
        self._queue: list[int] = []
        self.n_rows = 0

    def __len__(self) -> int:
        return len(self._paths)

    def __enter__(self) -> Self:
        self._files = [
            tuple(self._open.enter_context(path.open("wb")) for path in pair) for pair in self._paths
        ]
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, inputs: NDArray[np.float32], labels: NDArray[np.int64], groups: NDArray[np.int64]) -> None:
        """Assign rows to the blocks at random."""
        chosen = self._rng.integers(len(self), size=len(inputs))
        order = np.argsort(chosen, kind="stable")
        ends = np.cumsum(np.bincount(chosen, minlength=len(self)))[:-1]
        cells = (labels * self._n_groups + groups).astype(np.int32)
        for (of_rows, of_cells), rows in zip(self._files, np.split(order, ends), strict=True):
            inputs[rows].tofile(of_rows)
            cells[rows].tofile(of_cells)
        self.n_rows += len(inputs)

    def read(self, index: int) -> TrainingRows:
        """Return the rows of one block, with their labels as targets."""
        of_rows, of_cells = self._paths[index]
        inputs = torch.from_numpy(np.fromfile(of_rows, np.float32).reshape(-1, self._n_columns))
        cells = torch.from_numpy(np.fromfile(of_cells, np.int32)).long()
        labels, groups = cells.div(self._n_groups, rounding_mode="floor"), cells % self._n_groups
        rows = GroupedBatch(inputs, labels, groups).to(self._device)
        return TrainingRows(rows, rows.labels, self.weights_of(rows.labels))

    def weights_of(self, labels: Tensor) -> Tensor | None:
        """Return the weight of rows with the given labels; None if all rows have the same."""
        return None if self._class_weights is None else self._class_weights.to(labels.device)[labels]

    @property
    def rows_per_epoch(self) -> int:
        """About how many rows an epoch has; it ends with a whole block."""
        return min(EPOCH_ROWS, self.n_rows)

    def epoch(self) -> Iterator[TrainingRows]:
        """Yield blocks in random order; the next epoch continues with the blocks that this one left."""
        left = self.rows_per_epoch
        while left > 0:
            if not self._queue:
                self._queue = self._rng.permutation(len(self)).tolist()
            block = self.read(self._queue.pop())
            left -= len(block)
            if len(block):
                yield block


class _RowsOfCells:
    """A random sample of a few rows of every (label, group) cell, rare ones included."""

    def __init__(self, n_groups: int) -> None:
        self.n_groups = n_groups
        self.rows: GroupedBatch | None = None
        self.keys = np.zeros(0)

    def add(self, rows: GroupedBatch, keys: NDArray[np.float64]) -> None:
        """Keep the rows of every cell that have the smallest random keys so far."""
        if self.rows is not None:
            rows, keys = GroupedBatch.join([self.rows, rows]), np.append(self.keys, keys)
        first = self._smallest(rows, keys)
        self.rows, self.keys = rows[torch.from_numpy(first)], keys[first]

    def completing(self, sample: GroupedBatch) -> GroupedBatch:
        """Return the kept rows of cells that have too few rows in a sample."""
        assert self.rows is not None
        counts = torch.bincount(self._cells(sample).cpu(), minlength=2 * self.n_groups)
        return self.rows[counts[self._cells(self.rows)] < _KEPT_PER_CELL]

    def _cells(self, rows: GroupedBatch) -> Tensor:
        return rows.labels * self.n_groups + rows.groups

    def _smallest(self, rows: GroupedBatch, keys: NDArray[np.float64]) -> NDArray[np.int64]:
        cells = self._cells(rows).numpy()
        order = np.lexsort((keys, cells))
        rank = np.arange(len(order)) - np.searchsorted(cells[order], cells[order])
        return order[rank < _KEPT_PER_CELL]


def _mean_one(factors: NDArray[np.float64] | None, summary: FileSummary) -> Tensor | None:
    """Scale the weights of the classes to a mean of one over all rows."""
    if factors is None:
        return None
    counts = summary.counts.sum(1)
    return torch.from_numpy(factors * counts.sum() / (factors @ counts)).float()


def find_classes(values: "pd.Series[Any]", positive: str | None) -> tuple[Any, Any]:
    """Return the values of the target for labels 0 and 1."""
    classes = check_labels(values).classes
    if positive is None:
        return classes
    check_positive(positive, str(values.name), classes, None)
    return classes if level_name(classes[1]) == positive else (classes[1], classes[0])


def _check_counts(counts: NDArray[np.int64], classes: tuple[Any, Any], groups: Groups) -> None:
    """Apply `check_cells` to counts, with one or two rows for each cell."""
    labels, codes = np.nonzero(counts)
    several = counts[labels, codes] > 1
    labels, codes = np.append(labels, labels[several]), np.append(codes, codes[several])
    check_cells(Labels(labels, classes), replace(groups, codes=codes))


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"Training needs {needed / 1e9:.1f} GB for a shuffled copy of the rows, but the folder for "
            f"temporary files, {str(folder.parent)!r}, has {free / 1e9:.1f} GB free. Free some space, or "
            "name a folder on a larger disk in the environment variable TMPDIR."
        )
