"""Whether reasons can be trusted: functions of tensors, which training and measuring share."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor

from gcig.core.columns import AttributeColumns
from gcig.core.explained import hashed_keys

MAX_PERMUTED_COLUMNS = 500  # each costs a pass over the rows: images have too many
_POINTS_AT_ONCE = 2**22  # numbers of permuted rows in one call of the score
_SKETCHED_ROWS = 1024  # of a training table
_LEAST_KNOWN = 5  # rows that can be looked up, to say that rows were trained on
_MIN_COLUMNS = 3  # a rank correlation of fewer columns says nothing


def reference_offset(
    at_references: Tensor, scores: Tensor, cells: Tensor, weights: Tensor | None = None
) -> float:
    """Return how far the logits at the references (cells,) are from those of the cells that they stand for.

    It is ``|logit at the reference - mean logit of its cell|`` in standard deviations of the logit, averaged
    over the cells that have rows. From about 0.5 on, references are unlike the rows of their cells.
    ``scores``, ``cells`` and ``weights`` (n,) are the logits of rows, their cells, and how many rows each
    stands for.
    """
    counts = torch.bincount(cells, minlength=len(at_references))
    sums = torch.zeros_like(at_references).index_add_(0, cells, scores.to(at_references))
    gaps = (at_references - sums / counts.clamp_min(1)).abs()[counts > 0]
    shares = torch.ones_like(scores) if weights is None else weights
    shares = shares / shares.sum()
    spread = float((shares * (scores - (shares * scores).sum()).square()).sum().sqrt())
    return float(gaps.mean()) / spread if spread > 0 else math.nan


def permutation_importance(
    score: Callable[[Tensor], Tensor], rows: Tensor, blocks: Tensor, order: Tensor
) -> Tensor:
    """Return the mean absolute change of the logit if the columns of one block are permuted, shape (blocks,).

    ``score`` maps rows (m, columns) to logits (m,), ``blocks`` (columns,) gives the original column of each,
    and ``order`` (n,) is a permutation of the rows.
    """
    before, shuffled, found = score(rows), rows[order], []
    for some in torch.arange(int(blocks.max()) + 1).split(max(1, _POINTS_AT_ONCE // max(1, rows.numel()))):
        chosen = blocks.unsqueeze(0) == some.to(blocks.device).unsqueeze(1)
        permuted = torch.where(chosen.unsqueeze(1), shuffled, rows)
        changed = score(permuted.flatten(0, 1)).view(len(some), -1)
        found.append((changed - before).abs().mean(1))
    return torch.cat(found)


def faithfulness(shares: Tensor, importance: Tensor) -> float:
    """Return the rank correlation between the columns' shares of the attributions and their importance.

    NaN for fewer than three columns, or if one of the two is constant. Under about 0.6 the reasons that are
    compared are not what the model uses.
    """
    if len(shares) < _MIN_COLUMNS or any(bool((each == each[0]).all()) for each in (shares, importance)):
        return math.nan
    return float(spearmanr(shares.cpu().numpy(), importance.cpu().numpy()).statistic)


def exchange_columns(
    rows: Tensor, groups: Tensor, donors: Tensor, donor_groups: Tensor, columns: Tensor, seed: int = 0
) -> Tensor:
    """Return rows whose given columns are those of a random donor of another group.

    Rows without a donor of another group stay as they are.
    """
    generator = torch.Generator().manual_seed(seed)
    copies = rows.clone()
    for group in groups.unique().tolist():
        own = (groups == group).nonzero().flatten()
        others = (donor_groups != group).nonzero().flatten()
        if len(others):
            chosen = others[torch.randint(len(others), (len(own),), generator=generator).to(others.device)]
            copies[own.unsqueeze(1), columns] = donors[chosen][:, columns]
    return copies


def exchange_attributes(
    rows: Tensor, groups: Tensor, donors: Tensor, donor_groups: Tensor, attributes: Sequence[AttributeColumns]
) -> list[Tensor]:
    """Return versions of the rows with each protected attribute exchanged, and with all of them.

    The columns of one attribute are those of a random donor of another level; all of them together, those of
    a donor of another group. A single attribute gives one version.
    """
    versions = []
    for place, each in enumerate(attributes):
        own, theirs = each.levels[groups], each.levels[donor_groups]
        versions.append(exchange_columns(rows, own, donors, theirs, each.columns, seed=place))
    if len(attributes) > 1:
        columns = torch.cat([each.columns for each in attributes])
        versions.append(exchange_columns(rows, groups, donors, donor_groups, columns))
    return versions


def hash_rows(inputs: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int64]:
    """Return a number of 32 bits for each row (n, ...) with its label."""
    columns = np.concatenate([inputs.reshape(len(inputs), -1), np.asarray(labels).reshape(-1, 1)], axis=1)
    bits = (columns.astype(np.float32) + np.float32(0)).view(np.uint32).astype(np.uint64)  # no -0.0
    factors = hashed_keys(np.arange(bits.shape[1]), 0) | np.uint64(1)
    with np.errstate(over="ignore"):
        mixed = (bits * factors).sum(axis=1, dtype=np.uint64)
    return (hashed_keys(mixed.astype(np.int64), 1) >> np.uint64(32)).astype(np.int64)


def sketch_rows(inputs: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int64]:
    """Return the smallest hashes of rows, by which the rows are recognised later."""
    return np.unique(hash_rows(inputs, labels))[:_SKETCHED_ROWS]


def share_in_sketch(sketch: NDArray[np.int64], inputs: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return the share of rows that were sketched; NaN if too few can be looked up."""
    hashes = hash_rows(inputs, labels)
    if len(sketch) == _SKETCHED_ROWS:
        hashes = hashes[hashes <= sketch[-1]]
    return float(np.isin(hashes, sketch).mean()) if len(hashes) >= _LEAST_KNOWN else math.nan
