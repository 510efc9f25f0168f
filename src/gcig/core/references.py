r"""References: whom a person is compared with.

A row with label y is explained relative to one or more references of every group with the same label (the
same bin, if the label is a number; see `gcig.core.task`). They are fixed points: nothing is differentiated
through them.

- `Means`: :math:`E[x \mid y, g]`, the mean of the (label, group) cell. For a number it is a curve per group,
  x fitted on y and y squared, at the centre of the label's bin, clamped to the range of the group's labels.
- `Members`: people of the cell, drawn at random, the same for all rows of a label.

In `legitimate` columns all groups have the same reference: the mean, or a random member, of all rows with the
label. Differences in these columns then never count.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gcig._arguments import InputError, check_argument, is_count, is_number
from gcig._plugins import Registry
from gcig.core.task import Number, Task, task_of

_NEARLY_EMPTY, _NEIGHBOURS = (
    5,
    10,
)  # definition: a bin with few members of a group borrows the nearest people


@dataclass(frozen=True)
class Rows:
    """Rows with labels, groups and weights."""

    inputs: Tensor  # (n, ...)
    labels: Tensor  # (n,) codes of classes, or numbers
    groups: Tensor  # (n,) codes
    weights: Tensor | None = None  # (n,)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: "Tensor | slice") -> "Rows":
        weights = None if self.weights is None else self.weights[rows]
        return Rows(self.inputs[rows], self.labels[rows], self.groups[rows], weights)

    def to(self, device: torch.device | str) -> "Rows":
        """Return the rows on another device."""
        weights = None if self.weights is None else self.weights.to(device)
        return Rows(self.inputs.to(device), self.labels.to(device), self.groups.to(device), weights)


@dataclass(frozen=True)
class ReferenceRows:
    """Rows that references are made of, with cells of their labels, groups and weights."""

    inputs: Tensor  # (n, ...)
    labels: Tensor  # (n,)
    groups: Tensor  # (n,) codes
    task: Task
    n_groups: int
    weights: Tensor | None = None
    legitimate: Tensor | None = None  # (...): entries of a row in which all groups have the same references
    min_cell: int = 1

    @property
    def mass(self) -> Tensor:
        """The weight of each row, float64."""
        if self.weights is None:
            return torch.ones(len(self.labels), dtype=torch.float64, device=self.inputs.device)
        return self.weights.double()

    @property
    def places(self) -> Tensor:
        """The number of each row's (cell, group)."""
        return self.task.cells(self.labels) * self.n_groups + self.groups

    @property
    def counts(self) -> Tensor:
        """The number of rows of each (cell, group), with weights above zero."""
        shape = (self.task.n_cells, self.n_groups)
        return torch.bincount(self.places[self.mass > 0], minlength=shape[0] * shape[1]).view(shape)

    @property
    def defined(self) -> Tensor:
        """Which (cell, group) has a reference: at least `min_cell` rows; for numbers, of the whole group."""
        counts = self.counts
        if isinstance(self.task, Number):
            counts = counts.sum(0, keepdim=True).expand_as(counts)
        return counts >= max(1, self.min_cell)


class References(Protocol):
    """References of one kind; a new kind is registered with `gcig.register_references`."""

    sampled: bool  # whether they are a sample of the group, whose noise an estimate has to leave out

    def of(self, cells: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return references (draws, groups, n, ...) of rows whose labels are in these cells, (n,)."""
        ...


class Means:
    """The mean of every (cell, group)."""

    sampled = False

    def __init__(self, rows: ReferenceRows) -> None:
        inputs = rows.inputs.flatten(1).double()
        fit = _curves if isinstance(rows.task, Number) else _cell_means
        values = fit(rows, inputs)
        if rows.legitimate is not None:
            pooled = fit(_pooled(rows), inputs)
            values = torch.where(rows.legitimate.flatten(), pooled, values)
        shape = (rows.task.n_cells, rows.n_groups, *rows.inputs.shape[1:])
        self.values = values.to(rows.inputs.dtype).view(shape)  # (cells, groups, ...)

    def of(self, cells: Tensor, generator: torch.Generator | None = None) -> Tensor:  # noqa: ARG002
        """Return the mean of each group, (1, groups, n, ...)."""
        return self.values.index_select(0, cells).transpose(0, 1).unsqueeze(0)


def _pooled(rows: ReferenceRows) -> ReferenceRows:
    """Return the same rows in one group."""
    return ReferenceRows(rows.inputs, rows.labels, torch.zeros_like(rows.groups), rows.task, 1, rows.weights)


def _cell_means(rows: ReferenceRows, inputs: Tensor) -> Tensor:
    """Return the weighted mean of each cell, (cells, groups, columns); 0 for an empty one."""
    places, size = rows.places, rows.task.n_cells * rows.n_groups
    mass = torch.bincount(places, rows.mass, minlength=size).clamp_min(1e-300)
    sums = inputs.new_zeros(size, inputs.shape[1]).index_add_(0, places, inputs * rows.mass.unsqueeze(1))
    means: Tensor = (sums / mass.unsqueeze(1)).unflatten(0, (rows.task.n_cells, rows.n_groups))
    return means


def _curves(rows: ReferenceRows, inputs: Tensor) -> Tensor:
    """Return each group's weighted quadratic fit on y, at the centres of the cells: (cells, groups, columns).

    In float64: the driver that tolerates groups with few distinct labels drops columns in float32.
    """

    def powers(y: Tensor) -> Tensor:
        return torch.stack([y**k for k in range(3)], 1)

    y, root = rows.labels.double(), rows.mass.sqrt().unsqueeze(1)
    middle, scale = y.mean(), y.std().clamp_min(1e-12)
    y = (y - middle) / scale
    centres = (torch.tensor(rows.task.centres, dtype=torch.float64, device=y.device) - middle) / scale  # type: ignore[attr-defined]
    values = inputs.new_zeros(len(centres), rows.n_groups, inputs.shape[1])
    for group in range(rows.n_groups):
        own = (rows.groups == group) & (rows.mass > 0)
        if own.any():
            left, right = powers(y[own]) * root[own], inputs[own] * root[own]
            fit = torch.linalg.lstsq(left.cpu(), right.cpu(), driver="gelsd").solution.to(y.device)
            values[:, group] = powers(centres.clamp(y[own].min(), y[own].max())) @ fit
    return values


class Members:
    """Random members of every (cell, group), the same for all rows of a cell; drawn anew in every call.

    Draws of one call are different people if there are enough, and any two people can be drawn together:
    products of two draws are then unbiased. In legitimate columns one draw is the same for all groups.
    """

    sampled = True

    def __init__(self, rows: ReferenceRows, n_draws: int = 8) -> None:
        self.rows, self.n_draws = rows, n_draws
        self._own = _Ranges.of(rows)
        self._pooled = None if rows.legitimate is None else _Ranges.of(_pooled(rows))

    def of(self, cells: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return members, (draws, groups, n, ...)."""
        members = self._take(self._own, generator)
        if self._pooled is not None and self.rows.legitimate is not None:
            members = torch.where(self.rows.legitimate, self._take(self._pooled, generator), members)
        return members.index_select(2, cells)

    def one_each(self, cells: Tensor, groups: Tensor, generator: torch.Generator) -> Tensor:
        """Return one member of each (cell, group), (n, ...), drawn independently."""
        return self.rows.inputs.index_select(0, self._own.draw_each(cells, groups, generator))

    def _take(self, ranges: "_Ranges", generator: torch.Generator | None) -> Tensor:
        """Draw (draws, groups, cells, ...)."""
        positions = ranges.draw(self.n_draws, generator)
        members = self.rows.inputs.index_select(0, positions.flatten())
        return members.view(*positions.shape, *self.rows.inputs.shape[1:])


@dataclass(frozen=True)
class _Ranges:
    """The rows by group and cell, and which of them, and of their cumulative weights, are each cell's."""

    order: Tensor  # (n,) positions of rows
    cumulative: Tensor  # (n + 1,) weights, float64, from 0
    low: Tensor  # (groups, cells): places in `order`
    high: Tensor

    @classmethod
    def of(cls, rows: ReferenceRows) -> "_Ranges":
        cells, n_cells = rows.task.cells(rows.labels), rows.task.n_cells
        places = rows.groups * n_cells + cells
        order = (rows.mass > 0).nonzero().flatten()
        # In random order within a cell: draws from different parts of a sorted table would have something
        # in common, and their products would be biased.
        shuffle = torch.randperm(len(order), generator=torch.Generator().manual_seed(0))
        order = order[shuffle.to(order.device)]
        order = order[torch.argsort(places[order], stable=True)]
        counts = torch.bincount(places[order], minlength=rows.n_groups * n_cells).view(rows.n_groups, n_cells)
        low = (counts.flatten().cumsum(0) - counts.flatten()).view_as(counts)
        high = low + counts
        if isinstance(rows.task, Number):  # a nearly empty bin takes people of the next ones
            first, last = low[:, :1], high[:, -1:]
            few, middle = counts < _NEARLY_EMPTY, (low + high) // 2
            begin = torch.minimum((middle - _NEIGHBOURS // 2).clamp_min(0), (last - _NEIGHBOURS).clamp_min(0))
            begin = torch.maximum(begin, first)
            low, high = (
                torch.where(few, begin, low),
                torch.where(few, torch.minimum(begin + _NEIGHBOURS, last), high),
            )
        mass = rows.mass[order]
        return cls(order, torch.cat([mass.new_zeros(1), mass.cumsum(0)]), low, high)

    def draw(self, n_draws: int, generator: torch.Generator | None) -> Tensor:
        """Return positions of rows, (draws, groups, cells): one from each of `n_draws` strata of each cell.

        The strata are turned by a random amount, so that any two members can be drawn together. Two draws are
        at least one member apart.
        """
        device = self.low.device
        shape, source = (n_draws + 1, *self.low.shape), device if generator is None else generator.device
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64, device=source).to(device)
        strata = torch.arange(n_draws, dtype=torch.float64, device=device).view(-1, 1, 1)
        room = (1 - n_draws / (self.high - self.low).clamp_min(1)).clamp_min(0)
        share = ((strata + room * uniform[1:]) / n_draws + uniform[0]).remainder(1.0)
        return self._at(share, self.low, self.high)

    def draw_each(self, cells: Tensor, groups: Tensor, generator: torch.Generator) -> Tensor:
        """Return the position of one member of each (cell, group), (n,)."""
        uniform = torch.rand(len(cells), generator=generator, dtype=torch.float64, device=generator.device)
        return self._at(uniform.to(cells.device), self.low[groups, cells], self.high[groups, cells])

    def _at(self, share: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Return the row at which a share of the weight of a range is reached; any row for an empty range."""
        begin, end = self.cumulative[low], self.cumulative[high]
        places = torch.searchsorted(self.cumulative[1:], begin + share * (end - begin), right=True)
        return self.order[torch.minimum(places, high - 1).clamp_min(0)]


REFERENCES: Registry[Callable[[ReferenceRows], References]] = Registry(
    "reference", {"means": Means, "members": Members}, lambda _, references: references
)
COMBINATIONS: Mapping[str, tuple[str, ...]] = {"both": ("means", "members"), "mean": ("means",)}


def register_references(
    name: str, references: Callable[[ReferenceRows], References], *, overwrite: bool = False
) -> None:
    """Add a kind of references.

    Parameters
    ----------
    name : str
        The name, for ``references=`` of the estimators.
    references : callable
        Takes `ReferenceRows` and returns `References`.
    overwrite : bool
        Whether another kind of this name is replaced.

    Examples
    --------
    >>> register_references("few", lambda rows: Members(rows, n_draws=2), overwrite=True)
    >>> "few" in REFERENCES
    True
    """
    REFERENCES.add(name, references, overwrite=overwrite)


def reference_kinds(name: str) -> tuple[str, ...]:
    """Return the kinds that a name stands for: ``"both"`` are means and members."""
    return COMBINATIONS.get(name, (name,))


class GroupBaselines(nn.Module):
    """The references of every group, for penalties in a training loop of your own.

    `from_data` is the usual way to make them. With a `rate` the means follow the mini-batches as exponential
    moving averages, as in the paper's Algorithm 1.

    Attributes
    ----------
    values : Tensor of shape (cells, groups, ...)
        The means; a cell is a label, or one of ten bins of a number.
    counts : Tensor of shape (cells, groups)
        The number of rows of each.
    task : Task
        The kind of label.

    Examples
    --------
    >>> x, groups = torch.tensor([[1.0], [3.0], [5.0], [6.0]]), torch.tensor([0, 0, 1, 1])
    >>> GroupBaselines.from_data(x, torch.tensor([0, 1, 0, 1]), groups).values[..., 0]
    tensor([[1., 5.],
            [3., 6.]])
    """

    values: Tensor
    counts: Tensor
    defined: Tensor

    def __init__(self, rows: ReferenceRows, rate: float = 0.05) -> None:
        super().__init__()
        self.rows, self.task, self.rate, self.n_groups = rows, rows.task, rate, rows.n_groups
        self.register_buffer("values", Means(rows).values, persistent=False)
        self.register_buffer("counts", rows.counts, persistent=False)
        self.register_buffer("defined", rows.defined, persistent=False)
        self.all_defined = bool(self.defined.all())

    @classmethod
    def from_data(
        cls,
        x: Tensor,
        y: Tensor,
        groups: Tensor,
        *,
        task: str | Task = "auto",
        min_cell: int = 1,
        n_groups: int | None = None,
        sample_weight: Tensor | None = None,
        legitimate: Tensor | None = None,
        rate: float = 0.05,
    ) -> "GroupBaselines":
        """Return the references of these rows.

        Parameters
        ----------
        x : Tensor of shape (n, ...)
        y : Tensor of shape (n,)
            Codes of classes, or numbers.
        groups : Tensor of integers from 0, shape (n,)
        task : {"auto", "binary", "classes", "number"} or Task
        min_cell : int
            A row is compared among the groups that have this many rows of its label.
        n_groups : int, optional
            By default the largest code plus one.
        sample_weight : Tensor of shape (n,), optional
        legitimate : Tensor of bool, with the shape of a row, optional
            The entries in which all groups have the same references.
        rate : float
            How fast the means follow mini-batches in `update`.
        """
        check_argument("min_cell", min_cell, "a positive integer", lambda value: is_count(value, 1))
        check_argument("rate", rate, "in (0, 1]", lambda value: is_number(value) and 0 < value <= 1)
        if not x.is_floating_point():
            raise ValueError(
                f"x must be floating point, not {x.dtype}: means of other types would be rounded"
            )
        _check_lengths(x, y, groups)
        if sample_weight is not None and sample_weight.shape != y.shape:
            raise ValueError(f"sample_weight must have shape ({len(y)},), not {tuple(sample_weight.shape)}")
        x = x.detach()
        codes = int(groups.max()) + 1
        n_groups = codes if n_groups is None else n_groups
        if not 2 <= n_groups >= codes:
            raise ValueError(
                f"n_groups must be two or more, and more than the largest code of a group, {codes - 1}; not "
                f"{n_groups}. Explanations relative to one group cannot be compared."
            )
        of_label = task_of(y, task, sample_weight)
        check_labels(of_label, y)
        rows = ReferenceRows(x, y, groups.long(), of_label, n_groups, sample_weight, legitimate, min_cell)
        return cls(rows, rate)

    def of(self, y: Tensor) -> Tensor:
        """Return the means for rows with labels y, (groups, n, ...)."""
        return self.values.index_select(0, self.task.cells(y)).transpose(0, 1)

    @torch.no_grad()
    def update(self, x: Tensor, y: Tensor, groups: Tensor) -> None:
        """Move the means towards those of a mini-batch; cells without rows stay as they are."""
        shape = (self.task.n_cells, self.n_groups)
        places = self.task.cells(y) * self.n_groups + groups.long()
        counts = torch.bincount(places, minlength=shape[0] * shape[1]).view(*shape, 1)
        flat = x.detach().flatten(1).to(self.values.dtype)
        sums = (
            flat.new_zeros(shape[0] * shape[1], flat.shape[1]).index_add_(0, places, flat).unflatten(0, shape)
        )
        if self.rows.legitimate is not None:  # all groups together
            alike = self.rows.legitimate.flatten()
            sums = torch.where(alike, sums.sum(1, keepdim=True), sums)
            counts = torch.where(alike, counts.sum(1, keepdim=True), counts)
        means, rate = sums / counts.clamp_min(1), self.rate * (counts > 0).to(sums.dtype)
        self.values.lerp_(means.view_as(self.values), rate.expand_as(means).view_as(self.values))


def check_labels(task: Task, y: Tensor) -> None:
    """Raise an error if labels are not those of the task."""
    if isinstance(task, Number) or not len(y):
        return
    low, high = (int(each) for each in y.aminmax())
    if low < 0 or high >= task.n_cells or (y.is_floating_point() and bool((y != y.round()).any())):
        raise ValueError(
            f"y must be codes of classes from 0 to {task.n_cells - 1}, but has values from "
            f"{float(y.min()):g} to {float(y.max()):g}. Number the classes from 0, or make baselines of the "
            "labels that occur."
        )


def _check_lengths(x: Tensor, y: Tensor, groups: Tensor) -> None:
    for name, values in (("y", y), ("groups", groups)):
        if not isinstance(values, Tensor) or values.shape != (len(x),):
            shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                f"{name} must be a tensor of shape ({len(x)},), one value per row of x, not {shape}"
            )
    if groups.is_floating_point() or groups.dtype == torch.bool or (len(groups) and int(groups.min()) < 0):
        raise ValueError("groups must be integer codes from 0")


def legitimate_columns(names: Any, columns: Sequence[str]) -> list[int]:
    """Return the positions of legitimate columns among the columns of a table."""
    names, columns = [names] if isinstance(names, str) else list(names or ()), list(columns)
    if unknown := [name for name in names if name not in columns]:
        raise InputError(
            f"names columns that the table does not have: {', '.join(map(repr, unknown[:5]))}. It has "
            f"{', '.join(map(repr, columns[:20]))}.",
            argument="legitimate",
        )
    return [columns.index(name) for name in names]
