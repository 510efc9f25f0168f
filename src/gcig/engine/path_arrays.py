"""The arrays of a secant pass: the memory layout of path nodes and segments, and conversions between them.

*Nodes* are the rows of one matrix per layer, in this order: the interior nodes of the paths (K - 1, groups,
n), the (groups, labels) cells where paths start, the n rows where they end, and the plain rows, which are
predicted but not explained. The nodes on paths are therefore a prefix, the ends of paths and plain rows a
suffix, and so are all rows, in their original order. *Segments* have the shape (K, groups, n, units).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from gcig.core.layered import Buffers
from gcig.engine.comparison import ComparisonArrays
from gcig.engine.cuda_graph import in_parallel
from gcig.engine.scratch import Scratch
from gcig.engine.secants import SecantBuffers

# A product that sums over many rows but has few results keeps a GPU busy only if it is done in pieces.
_MANY_ROWS, _PIECES = 4096, 64
_FEW_TERMS = 6  # up to this number, additions one by one are faster than a sum over an outer dimension


class PathShape(NamedTuple):
    """The sizes that determine all arrays."""

    n_rows: int
    n_plain: int
    n_labels: int
    n_groups: int
    n_segments: int
    sizes: tuple[int, ...]  # columns, then the units of each hidden layer
    curved: tuple[bool, ...]  # whether the activation of each hidden layer has a second derivative
    sharpness: tuple[float, ...]  # of the secants of each hidden layer
    apart: bool = False  # whether gradients have arrays of their own, so that branches can use both at once

    @property
    def n_interior(self) -> int:
        """Number of nodes between the ends of paths."""
        return (self.n_segments - 1) * self.n_groups * self.n_rows

    @property
    def n_cells(self) -> int:
        """Number of nodes where paths start."""
        return self.n_groups * self.n_labels

    @property
    def n_path_nodes(self) -> int:
        """Number of nodes on paths."""
        return self.n_interior + self.n_cells + self.n_rows

    @property
    def n_nodes(self) -> int:
        """Number of all nodes."""
        return self.n_path_nodes + self.n_plain


class PathArrays:
    """All arrays of a pass over some rows and their paths, with the views that the pass uses.

    Creating a view takes as long as adding two small arrays, so all views are created once. Names that begin
    with `flat_` are matrices that share the memory of the array of that name. The caller fills in `inputs`,
    shape (n + plain, columns): the explained rows, then those that are only predicted.
    """

    def __init__(self, shape: PathShape, scratch: Scratch, like: Tensor) -> None:
        n, groups, labels, columns = shape.n_rows, shape.n_groups, shape.n_labels, shape.sizes[0]
        self.ends = scratch.array("ends", like, shape.n_cells + n + shape.n_plain, columns)
        self.cells, self.inputs = self.ends[: shape.n_cells], self.ends[shape.n_cells :]
        self.rows = self.inputs[:n]
        self._cells_by_label = self.cells.view(groups, labels, columns).transpose(0, 1)

        # The cell where each path starts: its index among the cells, and as a node of the three quantities.
        cells = torch.arange(groups, device=like.device).view(1, groups, 1) * labels
        nodes = torch.arange(3, device=like.device).view(3, 1, 1) * shape.n_nodes + shape.n_interior
        self._offsets = torch.cat([nodes + cells, cells])
        self._index = self._offsets.new_empty(4, groups, n)
        self.start_index, self.cell_index = self._index[:3].flatten(), self._index[3].flatten()

        # One if a row has a label, with the sign of a start in each of the three differences.
        self._identity = torch.eye(labels, dtype=like.dtype, device=like.device)
        self._members = like.new_empty(n, labels)
        self._members_by_label = self._members.T
        self.indicator = like.new_empty(3 * groups, labels, n)
        self._indicator_apart = self.indicator.view(3, groups, labels, n)
        self._signs = like.new_tensor([-1, -1, 1]).view(3, 1, 1, 1).expand(3, groups, 1, 1)

        self.deltas, self.attributions = (
            scratch.array(name, like, groups, n, columns) for name in ("deltas", "attributions")
        )
        self.flat_deltas, self.flat_attributions = self.deltas.flatten(0, 1), self.attributions.flatten(0, 1)
        self.comparison = ComparisonArrays(self.attributions, scratch)
        self.flat_work = self.comparison.work.flatten(0, 1)

        self.layers = [
            LayerArrays(shape, index, scratch, like, self.indicator) for index in range(len(shape.sizes) - 1)
        ]
        self.down = self.layers[0].down
        self.slope = (
            self.down[0] if shape.n_segments == 1 else scratch.array("slope", like, *self.down.shape[1:])
        )
        self.flat_slope = self.slope.flatten(0, 1)
        self.flat_slope_transposed = self.flat_slope.T

    def load(self, labels: Tensor, baselines: Tensor) -> None:
        """Copy the labels (n,) of the explained rows and the baselines (labels, groups, columns)."""

        def mark() -> None:
            torch.index_select(self._identity, 0, labels, out=self._members)
            torch.mul(self._signs, self._members_by_label, out=self._indicator_apart)

        in_parallel(
            [
                mark,
                lambda: torch.add(self._offsets, labels, out=self._index),
                lambda: self._cells_by_label.copy_(baselines),
            ]
        )

    def subtract_starts(self) -> None:
        """Compute the differences between the explained rows and the cells where their paths start."""
        torch.index_select(self.cells, 0, self.cell_index, out=self.flat_deltas)
        torch.sub(self.rows, self.deltas, out=self.deltas)


_Combination = tuple[Callable[..., Tensor], Tensor, Tensor, Tensor]


class LayerArrays:
    """The arrays of one hidden layer, and the conversions between its nodes and segments.

    A leading dimension of 3 holds pre-activations, values and slopes at nodes, and runs, rises and slope sums
    over segments. The gradient of the last one is omitted if the activation has no curvature.
    """

    def __init__(
        self, shape: PathShape, index: int, scratch: Scratch, like: Tensor, indicator: Tensor
    ) -> None:
        n, units = shape.n_rows, shape.sizes[index + 1]
        segments = (shape.n_segments, shape.n_groups, n, units)
        interior, cells = (
            slice(0, shape.n_interior),
            slice(shape.n_interior, shape.n_interior + shape.n_cells),
        )
        rows = slice(shape.n_path_nodes - n, shape.n_path_nodes)
        on_path, off_path = slice(0, shape.n_path_nodes), slice(shape.n_path_nodes, None)

        def array(name: str, *lengths: int) -> Tensor:
            return scratch.array(f"{name}{index}", like, *lengths)

        # Nodes.
        nodes = array("nodes", 3, shape.n_nodes, units)
        self.pre_activations, self.values, self.slopes = nodes.unbind(0)
        self.ends = self.pre_activations[shape.n_interior :]
        self.row_values = self.values[rows.start :]
        self.row_values_transposed = self.row_values.T
        self.slopes_on_path, self.slopes_off_path = self.slopes[on_path], self.slopes[off_path]
        self._rows = self.pre_activations[rows]
        self._interior = self.pre_activations[interior].view(-1, *segments[1:])
        self._flat_nodes = nodes.flatten(0, 1)

        # Segments. Their index comes first in memory, so the segments that start at cells are one block.
        blocks = array("differences", segments[0], 3, *segments[1:])
        differences = blocks.transpose(0, 1)
        self.differences = differences.unbind(0)
        self.secants = SecantBuffers(
            array("slope", *segments), array("divisor", *segments), like.new_full((), 2.0)
        )
        self.down, self.upper = array("down", *segments), array("upper", *segments)
        self.flat_down, self.flat_upper = self.down.flatten(0, 2), self.upper.flatten(0, 2)
        self.flat_down_transposed = self.flat_down.T
        # The gradient of `upper`; it may overwrite `down`, whose products are computed first then.
        self.d_upper = array("d_upper", *segments) if shape.apart else self.down
        self.flat_d_upper = self.d_upper.flatten(0, 2)
        # In the first layer this is the gradient of the slope averaged over the segments.
        self.d_down = array("d_down", *segments[0 if index else 1 :])
        self.flat_d_down = self.d_down.flatten(0, -2)
        self._starts = blocks[0].flatten(0, 2)
        self._joins = _joins(nodes[:, rows].unsqueeze(1), nodes[:, interior], differences)

        # Gradients of the nodes.
        pulled = 3 if shape.curved[index] else 2
        d_nodes = array("d_nodes", pulled, shape.n_nodes, units)
        self.d_pre_activations, self.d_values = d_nodes[0], d_nodes[1]
        self.d_ends = self.d_pre_activations[shape.n_interior :]
        self.d_row_values = self.d_values[rows.start :]
        self.d_pre_activations_transposed, self.d_ends_transposed = self.d_pre_activations.T, self.d_ends.T
        self.d_on_path = d_nodes[:, on_path].unbind(0)
        self.d_off_path = d_nodes[:2, off_path].unbind(0) if shape.n_plain else None
        curvatures = array("curvatures", shape.n_nodes, units) if shape.curved[index] else None
        self.curvatures_on_path = None if curvatures is None else curvatures[on_path]
        # Activations are computed before gradients, so they may use the same memory as work space.
        self.buffers = Buffers(self.values, self.slopes, curvatures, work=self.d_pre_activations)
        self.sharpness = shape.sharpness[index]
        self.scales = like.new_full((shape.n_nodes,), self.sharpness)
        self.end_scales = self.scales[shape.n_interior :]
        self._d_rows = d_nodes[:, rows]
        self._d_cells = d_nodes[:, cells].unflatten(1, (shape.n_groups, -1))
        self._d_interior = d_nodes[:, interior].view(pulled, -1, *segments[1:])
        self._d_stops = differences[:pulled, -1]
        self._d_starts = blocks[0, :pulled].flatten(0, 1)
        self._starting = indicator[: pulled * shape.n_groups]
        self._pieces = math.gcd(n, _PIECES) if like.is_cuda and n > _MANY_ROWS else 1
        self._unsigned = indicator[-shape.n_groups :]
        self._d_by_cell = array("d_cells", pulled * shape.n_groups, shape.n_labels, units)
        self._d_by_cell_apart = self._d_by_cell.view(self._d_cells.shape)
        self._d_joins = _combine(differences[:pulled, :-1], differences[:pulled, 1:], self._d_interior)

    def interpolate(self, cell_index: Tensor) -> None:
        """Interpolate the first layer's pre-activations at the interior nodes from those at the ends."""
        starts = self.ends.index_select(0, cell_index).view(self._interior.shape[1:])
        for position, interior in _positions(self._interior):
            torch.lerp(starts, self._rows, position, out=interior)

    def pull_interpolate(self) -> None:
        """Add the gradient of the interior nodes to that of the ends: the adjoint of `interpolate`."""
        for position, interior in _positions(self._d_interior[0]):
            for group in interior:
                self._d_rows[0].add_(group, alpha=position)
            self._d_cells[0].add_(torch.bmm(self._unsigned, interior), alpha=1 - position)

    def join(self, start_index: Tensor) -> tuple[Tensor, ...]:
        """Compute differences over the segments from the nodes."""
        torch.index_select(self._flat_nodes, 0, start_index, out=self._starts)
        for combine, stop, start, out in self._joins:
            combine(stop, start, out=out)
        return self.differences

    def pull_join(self) -> None:
        """Set the gradient of the nodes on paths from that of the differences: the adjoint of `join`."""
        add_up(self._d_stops, 1, out=self._d_rows)
        if self._pieces == 1:
            torch.bmm(self._starting, self._d_starts, out=self._d_by_cell)
        else:
            starting = self._starting.unflatten(2, (self._pieces, -1)).transpose(1, 2)
            torch.sum(starting @ self._d_starts.unflatten(1, (self._pieces, -1)), 1, out=self._d_by_cell)
        self._d_cells.copy_(self._d_by_cell_apart)
        for combine, stop, start, out in self._d_joins:
            combine(stop, start, out=out)


def add_up(terms: Tensor, dim: int, out: Tensor) -> Tensor:
    """Sum over a dimension: `torch.sum`, but much faster on CPU for a few entries."""
    if not 2 <= terms.shape[dim] <= _FEW_TERMS:
        return torch.sum(terms, dim, out=out)
    first, second, *others = terms.unbind(dim)
    torch.add(first, second, out=out)
    for other in others:
        out.add_(other)
    return out


def _positions(interior: Tensor) -> list[tuple[float, Tensor]]:
    """Return the interior nodes (K - 1, ...) with their positions on the path."""
    return [((k + 1) / (len(interior) + 1), nodes) for k, nodes in enumerate(interior)]


def _combine(stop: Tensor, start: Tensor, out: Tensor) -> list[_Combination]:
    """Return the operations that form differences of two quantities, and the sum of the third (slopes)."""
    if not out.numel():
        return []
    last = [(torch.add, stop[2], start[2], out[2])] if len(out) == 3 else []
    return [(torch.sub, stop[:2], start[:2], out[:2]), *last]


def _joins(rows: Tensor, interior: Tensor, segments: Tensor) -> list[_Combination]:
    """Return the operations that turn nodes into segments whose first entries already hold the starts."""
    first, last, count = segments[:, 0], segments[:, -1], segments.shape[1]
    if count == 1:
        return _combine(rows, first, first)
    inner = interior.view(3, count - 1, *first.shape[1:])
    return [
        *_combine(inner[:, 0], first, first),
        *_combine(inner[:, 1:], inner[:, :-1], segments[:, 1:-1]),
        *_combine(rows, inner[:, -1], last),
    ]
