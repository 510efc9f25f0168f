"""Training rows on disk: a shuffled copy of an encoded table in blocks, one of which is in memory at a time.

Every row is assigned to a random block. Each block is therefore a random sample of the table, however the
file is sorted, and its mini-batches are as good as those of the whole table.
"""

import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gcig.core.batch import GroupedBatch, TrainingRows

BLOCK_BYTES = 32 * 2**20
_MAX_BLOCKS = 400  # each has two files open while rows are written, and systems often allow 1,024
EPOCH_ROWS = 2**18  # an epoch ends here even if the table has more rows; 40 of them are ten million rows


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
