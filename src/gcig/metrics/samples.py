"""Samples of rows: those with the smallest hashed keys, whatever part of the table they come from.

Merging the samples of two parts keeps the smallest keys, so any partitioning of a table gives the same
sample. Sums are kept by block: rows are assigned to blocks by their hashed keys. Blocks are resampled for
intervals (which has the variance of resampling rows, up to a share of 1 / blocks), and a tenth of them is
left out in turn for the comparison of two models.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gcig._arguments import InputError
from gcig._arrays import Floats, Rows
from gcig.core.explained import hashed_keys

N_PARTS = 10  # blocks are joined into tenths that are left out in turn


def count_blocks(numbers_per_block: int) -> int:
    """Return the number of blocks for sums of this many numbers: fewer if they are large."""
    return 256 if numbers_per_block <= 20_000 else 32


def blocks_of(keys: NDArray[np.uint64], n_blocks: int) -> NDArray[np.int64]:
    """Return the block of each hashed key, from its upper eight bits."""
    return ((keys >> np.uint64(56)) % np.uint64(n_blocks)).astype(np.int64)


def resample(sums: Floats, n_draws: int, seed: int) -> Floats:
    """Return sums of blocks that are drawn with replacement, (draws, ...), from sums (blocks, ...)."""
    n_blocks = len(sums)
    rng = np.random.default_rng([seed, n_blocks])
    drawn = rng.multinomial(n_blocks, np.full(n_blocks, 1 / n_blocks), size=n_draws).astype(np.float64)
    return np.asarray((drawn @ sums.reshape(n_blocks, -1)).reshape(n_draws, *sums.shape[1:]))


def leave_out(sums: Floats) -> Floats:
    """Return the sums (parts, ...) without each tenth of the blocks."""
    part = np.arange(len(sums)) % N_PARTS
    return np.stack([sums[part != own].sum(axis=0) for own in range(N_PARTS)])


def row_keys(keys: Any, n_rows: int, seed: int) -> NDArray[np.uint64]:
    """Return a pseudo-random number per row that depends on its key and the seed alone.

    Keys are integers, or anything that pandas can hash; without keys the position of a row is its key.
    """
    if keys is None:
        numbers = np.arange(n_rows, dtype=np.int64)
    else:
        values = np.asarray(keys)
        if values.shape != (n_rows,):
            raise InputError(
                f"has shape {values.shape}, but one key per row is needed: ({n_rows},).", argument="keys"
            )
        if values.dtype.kind in "iu":
            numbers = values.astype(np.int64)
        else:
            texts = values.astype(str).astype(object)
            numbers = pd.util.hash_array(texts, categorize=False).astype(np.int64)
    return hashed_keys(numbers, seed)


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows in the order of their hashed keys."""

    keys: NDArray[np.uint64]
    labels: NDArray[Any]  # codes of classes, or numbers
    groups: NDArray[np.int64]
    weights: Floats
    outputs: Floats  # (n, K): logits, or predicted numbers
    decisions: Floats  # (n,)
    inputs: Rows | None = None  # (n, p) encoded rows

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, rows: Any) -> "Sample":
        parts: dict[str, Any] = {
            name: None if each is None else each[rows] for name, each in vars(self).items()
        }
        return Sample(**parts)

    def join(self, other: "Sample") -> "Sample":
        """Return the rows of both, in the order of their keys."""
        parts: dict[str, Any] = {}
        for name, each in vars(self).items():
            parts[name] = None if each is None else np.concatenate([each, getattr(other, name)])
        joined = Sample(**parts)
        return joined[np.lexsort((joined.groups, joined.labels, joined.keys))]

    def smallest(self, limit: int) -> "Sample":
        """Return the rows with the smallest keys."""
        if len(self) <= limit:
            return self[np.argsort(self.keys, kind="stable")]
        few = np.argpartition(self.keys, limit - 1)[:limit]
        return self[few[np.argsort(self.keys[few], kind="stable")]]

    def smallest_by_cell(self, cells: NDArray[np.int64], n_groups: int, limit: int) -> "Sample":
        """Return the rows with the smallest keys of each cell and group."""
        order = np.argsort(self.keys, kind="stable")
        places = (cells * n_groups + self.groups)[order]
        by_place = np.argsort(places, kind="stable")
        sizes = np.bincount(places, minlength=1)
        rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        chosen = np.sort(by_place[rank < limit])
        return self[order[chosen]]

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Return the arrays, with names that begin with the prefix."""
        return {f"{prefix}.{name}": each for name, each in vars(self).items() if each is not None}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], prefix: str) -> "Sample":
        """Return the sample that `to_arrays` was called on."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: arrays.get(f"{prefix}.{name}") for name in names})  # type: ignore[arg-type]
