"""Procedural fairness: GCIG of a module in every variant, from one pass of attributions.

The pass goes over chunks of rows, so that memory does not grow with rows x columns x groups.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gcig.adapters import Explainer
from gcig.core.definition import Definition
from gcig.core.disparity import (
    column_disparity,
    defined_rows,
    disparity,
    effective_columns,
    normalise,
    sum_blocks,
)
from gcig.core.numerics import vector_norm
from gcig.metrics.confusion import Codes, Floats, quotient

__all__ = ["Disparities", "Explained", "measure"]

CHUNK_BYTES = 32 * 2**20
PROBE_ROWS = 128
NORMS = ("l1", "l2")


@dataclass(frozen=True, eq=False)
class Explained:
    """What is explained: a score of encoded rows, against baselines.

    Attributes
    ----------
    explainer : what gives the attributions.
    inputs : (n, p) encoded rows.
    labels : (n,) 0 or 1.
    baselines : (2, groups, p); NaN for a cell that has none.
    origin, n_columns : the original column of each one that attributions are given for, and how many
        original ones there are.
    weights : (n,) of the rows, or None.
    sampled : (n,) which rows are explained, or None for all.
    """

    explainer: Explainer
    inputs: NDArray[np.floating[Any]]
    labels: Codes
    baselines: NDArray[np.floating[Any]]
    origin: NDArray[np.int64]
    n_columns: int
    weights: Floats | None = None
    sampled: NDArray[np.bool_] | None = None

    @property
    def explainable(self) -> NDArray[np.bool_]:
        """(2,) whether every group has a baseline for the label."""
        return np.asarray(np.isfinite(self.baselines).all(axis=(1, 2)))

    @property
    def widths(self) -> dict[str, int]:
        """Number of columns of each kind; "original" is left out where it is the same as "raw"."""
        if np.array_equal(self.origin, np.arange(self.n_columns)):
            return {"raw": self.n_columns}
        return {"raw": len(self.origin), "original": self.n_columns}

    def by_column(self, values: Tensor) -> dict[str, Tensor]:
        """Attributions (..., p) on the columns of each kind: blocks are summed for the original ones."""
        if "original" not in self.widths:
            return {"raw": values}
        return {"raw": values, "original": sum_blocks(values, torch.tensor(self.origin), self.n_columns)}


@dataclass(frozen=True, eq=False)
class Disparities:
    """What one pass of attributions gives.

    Attributes
    ----------
    rows : per (columns, norm), the disparity V of every row; NaN where a baseline is missing.
    defined : per columns, which rows were explained and have attributions that do not vanish.
    columns : per columns, the mean contribution of each column over the defined rows.
    completeness : mean absolute residual over mean absolute score difference.
    effective_columns : exp of the entropy of the mean absolute normalised attribution (encoded columns).
    definition : the definition with "auto" replaced by what was used.
    """

    rows: dict[tuple[str, str], Floats]
    defined: dict[str, NDArray[np.bool_]]
    columns: dict[str, Floats]
    completeness: float
    effective_columns: float
    definition: Definition


@dataclass(frozen=True, eq=False)
class _Chunk:
    """What some rows of one label give; ``columns`` and ``shares`` are weighted sums over defined rows."""

    index: NDArray[np.int64]
    rows: Mapping[tuple[str, str], Tensor]
    norms: Mapping[str, Tensor]
    defined: Mapping[str, Tensor]
    columns: Mapping[str, Tensor]
    shares: Tensor
    residual: float
    difference: float


def measure(explained: Explained, definition: Definition) -> Disparities:
    """Explain every row against the baselines of its label, and compare the groups.

    Whether a row is defined depends on the median over all rows, which is known at the end. A chunk whose
    own median judged one of its rows differently is then taken again; that is rare.
    """
    definition = _resolve(explained, definition)
    chunks = [_explain(explained, definition, index) for index in _indices(explained)]
    masks = _judge(chunks)
    chunks = [
        chunk
        if all(torch.equal(chunk.defined[kind], mask[kind]) for kind in mask)
        else _explain(explained, definition, chunk.index, mask)
        for chunk, mask in zip(chunks, masks, strict=True)
    ]
    return _gather(explained, definition, chunks)


def _resolve(explained: Explained, definition: Definition) -> Definition:
    """The definition with one rule and number of steps for all rows in place of "auto"."""
    known = np.flatnonzero(explained.explainable[explained.labels])
    if not len(known):
        return definition
    sample = known[:: max(1, len(known) // PROBE_ROWS)]
    return explained.explainer.resolve(
        explained.inputs[sample], explained.labels[sample], explained.baselines, definition
    )


def _indices(explained: Explained) -> Iterator[NDArray[np.int64]]:
    """Rows of one label at a time, so many that their attributions stay under ``CHUNK_BYTES``."""
    _, n_groups, p = explained.baselines.shape
    size = max(1, CHUNK_BYTES // (n_groups * p * explained.inputs.itemsize))
    for label in np.flatnonzero(explained.explainable):
        chosen = True if explained.sampled is None else explained.sampled
        rows = np.flatnonzero((explained.labels == label) & chosen)
        yield from (rows[start : start + size] for start in range(0, len(rows), size))


def _explain(
    explained: Explained,
    definition: Definition,
    index: NDArray[np.int64],
    defined: Mapping[str, Tensor] | None = None,
) -> _Chunk:
    """Attributions of some rows of one label, reduced to what is kept of them.

    ``defined`` says which rows are, per columns; by default the chunk's own median does.
    """
    eps = definition.eps
    baselines = explained.baselines[explained.labels[index[0]]]
    found = explained.explainer.attribute(explained.inputs[index], baselines, definition)
    kinds = explained.by_column(found.values)
    norms = {kind: vector_norm(values, "l1").cpu() for kind, values in kinds.items()}
    masks = {kind: defined_rows(norm) for kind, norm in norms.items()} if defined is None else defined
    weights = torch.ones(len(index)) if explained.weights is None else torch.tensor(explained.weights[index])
    weights = weights.to(found.values)

    def total(values: Tensor, kind: str) -> Tensor:
        return ((weights * masks[kind].to(weights)) @ values).double().cpu()

    return _Chunk(
        index=index,
        rows={
            (kind, norm): disparity(values, norm=norm, eps=eps).cpu()
            for kind, values in kinds.items()
            for norm in NORMS
        },
        norms=norms,
        defined=masks,
        columns={
            kind: total(column_disparity(values, norm=definition.norm, eps=eps), kind)
            for kind, values in kinds.items()
        },
        shares=total(normalise(found.values).abs().mean(0), "raw"),
        residual=float(found.residual.double().sum()),
        difference=float(found.values.sum(-1).abs().double().sum()),
    )


def _judge(chunks: Sequence[_Chunk]) -> list[dict[str, Tensor]]:
    """Which rows of each chunk are defined, by the median over all chunks."""
    if not chunks:
        return []
    sizes = [len(chunk.index) for chunk in chunks]
    masks = {
        kind: defined_rows(torch.cat([chunk.norms[kind] for chunk in chunks], dim=1)).split(sizes)
        for kind in chunks[0].norms
    }
    return [{kind: mask[i] for kind, mask in masks.items()} for i in range(len(chunks))]


def _gather(explained: Explained, definition: Definition, chunks: Sequence[_Chunk]) -> Disparities:
    """Put the chunks together, in the order of the rows; rows without baselines stay NaN."""
    n, widths = len(explained.inputs), explained.widths
    rows = {(kind, norm): np.full(n, np.nan) for kind in widths for norm in NORMS}
    everything = np.ones(n, dtype=np.bool_) if explained.sampled is None else explained.sampled
    defined = {kind: everything.copy() for kind in widths}
    columns = {kind: np.zeros(width) for kind, width in widths.items()}
    weight = dict.fromkeys(widths, 0.0)
    shares = torch.zeros(widths["raw"], dtype=torch.float64)
    for chunk in chunks:
        shares += chunk.shares
        for variant, values in chunk.rows.items():
            rows[variant][chunk.index] = values.double().numpy()
        for kind, mask in chunk.defined.items():
            defined[kind][chunk.index] = mask.numpy()
            columns[kind] += chunk.columns[kind].numpy()
            of_rows = mask.double() if explained.weights is None else explained.weights[chunk.index][mask]
            weight[kind] += float(of_rows.sum())
    difference = sum(chunk.difference for chunk in chunks)
    found = Disparities(
        rows=rows,
        defined=defined,
        columns={kind: quotient(columns[kind], np.asarray(weight[kind])) for kind in widths},
        completeness=sum(chunk.residual for chunk in chunks) / difference if difference > 0 else math.nan,
        effective_columns=effective_columns(shares) if weight["raw"] > 0 else math.nan,
        definition=definition,
    )
    return found if "original" in widths else _same_columns(found)


def _same_columns(found: Disparities) -> Disparities:
    """Original columns that are the encoded ones."""
    return replace(
        found,
        rows=found.rows | {("original", norm): found.rows["raw", norm] for norm in NORMS},
        defined=found.defined | {"original": found.defined["raw"]},
        columns=found.columns | {"original": found.columns["raw"]},
    )
