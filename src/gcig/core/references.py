r"""References of attributions: the mean, or members, of each (label, group) cell.

The baseline :math:`b_{y,g}` is the mean of the rows with label y in group g. In training it follows the
mini-batches as an exponential moving average, :math:`b \leftarrow (1 - \gamma) b + \gamma \hat b`. References
are fixed points: nothing is differentiated through them.
"""

from contextlib import nullcontext
from functools import lru_cache, partial, reduce
from operator import add
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gcig._arguments import check_argument, is_count, is_number
from gcig.core.definition import EPS
from gcig.core.modules import is_recording

_USUAL_DISTANCE = 0.25  # from the median, in standard deviations: such a number is usual
_CHUNK_ROWS = 4096  # rows in double precision that stay in the cache


def indicator(codes: Tensor, n_codes: int, name: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the one-hot matrix (n, codes) of integer codes; an error message calls the codes `name`."""
    wrong = f"{name} must be int64 codes from 0 to {n_codes - 1}"
    if codes.dtype != torch.int64:
        raise ValueError(wrong)
    if codes.is_cuda and not is_recording() and codes.numel():
        # A GPU would stop the whole process at the first code out of range.
        least, largest = torch.stack(codes.aminmax()).tolist()
        if least < 0 or largest >= n_codes:
            raise ValueError(wrong)
    try:
        # Several times faster than `torch.nn.functional.one_hot` on mini-batches.
        if torch.compiler.is_compiling():
            return torch.eye(n_codes, dtype=dtype, device=codes.device).index_select(0, codes)
        return _identity_on(codes.device, n_codes, dtype).index_select(0, codes)
    except (IndexError, RuntimeError) as error:
        raise ValueError(wrong) from error


@lru_cache(maxsize=64)
def _identity_on(device: torch.device, size: int, dtype: torch.dtype) -> Tensor:
    """Create an identity matrix once; a recorded step would create it in every repetition.

    It is complete when it is returned, because a copy waits: other threads may use it on other streams.
    """
    with torch.inference_mode(False):  # otherwise training could not use it later
        return torch.eye(size, dtype=dtype, device="cpu").to(device)


class CellSums(NamedTuple):
    """Sums and counts of rows by cell; ``+`` adds those of several parts."""

    sums: Tensor  # (labels, groups, ...)
    counts: Tensor  # (labels, groups)

    def __add__(self, other: object) -> "CellSums":
        if not isinstance(other, CellSums):
            return NotImplemented
        return CellSums(self.sums + other.sums, self.counts + other.counts)

    @property
    def means(self) -> Tensor:
        """Means by cell; zero, not NaN, for an empty cell."""
        return self.sums / _spread(self.counts.clamp(min=1), self.sums)


def cell_sums(
    inputs: Tensor, labels: Tensor, groups: Tensor, *, n_groups: int, n_labels: int = 2
) -> CellSums:
    """Sum rows (n, ...) by the (label, group) cell of their codes (n,), in one matrix product.

    ``n_groups`` and ``n_labels`` are the numbers of codes; a cell may have no rows.

    >>> sums = cell_sums(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]),
    ...                  torch.tensor([1, 1, 0]), n_groups=2)
    >>> sums.means[0, 1], sums.counts.tolist()
    (tensor([2.]), [[0, 2], [1, 0]])
    """
    # Two indicators, since each rejects codes out of range; a combined code for the cell would not.
    by_label = indicator(labels, n_labels, "labels", inputs.dtype)
    by_group = indicator(groups, n_groups, "groups", inputs.dtype)
    membership = (by_label.unsqueeze(2) * by_group.unsqueeze(1)).flatten(1)
    sums = (membership.T @ inputs.flatten(1)).view(n_labels, n_groups, *inputs.shape[1:])
    return CellSums(sums, membership.sum(0, dtype=torch.int64).view(n_labels, n_groups))


def _check_cells(counts: Tensor, consequence: str) -> None:
    """Raise an error if a (label, group) cell is empty."""
    empty = [tuple(cell) for cell in (counts == 0).nonzero().tolist()]
    if empty:
        raise ValueError(f"no rows in the (label, group) cells {empty}, so they have {consequence}")


def _spread(cells: Tensor, like: Tensor) -> Tensor:
    """Append dimensions to (labels, groups) until it broadcasts over `like`."""
    return cells.view(*cells.shape, *[1] * (like.dim() - cells.dim()))


class GroupBaselines(nn.Module):
    """Baselines of all (label, group) cells, with moving averages for training.

    Parameters
    ----------
    values : Tensor of shape (labels, groups, ...)
        The initial averages.
    rate : float
        The paper's gamma: the weight of a mini-batch's mean in an update.

    Attributes
    ----------
    values : Tensor of shape (labels, groups, ...)
        The baselines; a buffer, saved, moved and loaded with a module.
    n_empty : Tensor of shape (labels, groups)
        How often a cell had no rows in a mini-batch and its baseline stayed unchanged.

    Examples
    --------
    >>> x, y, groups = torch.arange(8.0).view(4, 2), torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])
    >>> baselines = GroupBaselines.from_data(x, y, groups)
    >>> baselines.values[1, 0]
    tensor([2., 3.])
    >>> baselines.of(y).shape  # groups, rows, columns
    torch.Size([2, 4, 2])
    """

    values: Tensor
    n_empty: Tensor

    def __init__(self, values: Tensor, *, rate: float = 0.1) -> None:
        super().__init__()
        if values.dim() < 3 or values.shape[1] < 2:
            raise ValueError(
                "values must have shape (labels, groups, ...) with at least two groups, "
                f"not {tuple(values.shape)}"
            )
        check_argument("rate", rate, "in [0, 1]", lambda value: is_number(value) and 0 <= value <= 1)
        self.rate = rate
        self.register_buffer("values", values.detach().clone())
        self.register_buffer(
            "n_empty", torch.zeros(values.shape[:2], dtype=torch.int64, device=values.device)
        )

    @classmethod
    def from_data(
        cls, x: Tensor, y: Tensor, groups: Tensor, *, n_groups: int | None = None, rate: float = 0.1
    ) -> "GroupBaselines":
        """Create baselines from the means of all rows; every cell must have at least one row."""
        _check_counts(n_groups=n_groups)
        if not len(x) == len(y) == len(groups):
            lengths = f"{len(x)}, {len(y)} and {len(groups)}"
            raise ValueError(f"x, y and groups must have one entry per row, not {lengths} of them")
        n_groups = int(groups.max()) + 1 if n_groups is None else n_groups
        # Sums over many rows lose digits in single precision.
        exact = torch.float64 if x.device.type != "mps" else x.dtype
        parts = (
            cell_sums(rows.to(exact), labels, codes, n_groups=n_groups)
            for rows, labels, codes in zip(
                *(each.split(_CHUNK_ROWS) for each in (x.detach(), y.long(), groups.long())), strict=True
            )
        )
        sums = reduce(add, parts)
        _check_cells(sums.counts, "no baseline")
        dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
        return cls(sums.means.to(dtype), rate=rate)

    @property
    def n_groups(self) -> int:
        """The number of groups."""
        return self.values.shape[1]

    @torch.no_grad()
    def update(self, x: Tensor, y: Tensor, groups: Tensor) -> CellSums:
        """Update the averages with one mini-batch, and return its sums."""
        n_labels, n_groups = self.values.shape[:2]
        lowered = torch.is_autocast_enabled(x.device.type)
        with torch.autocast(x.device.type, enabled=False) if lowered else nullcontext():
            # Means need full precision.
            sums = cell_sums(x.to(self.values.dtype), y, groups, n_groups=n_groups, n_labels=n_labels)
        self.update_from(sums)
        return sums

    @torch.no_grad()
    def update_from(self, sums: CellSums) -> None:
        """Update the averages with the means of cell sums; an empty cell stays unchanged and is counted."""
        counts = sums.counts
        if counts.is_cpu and not is_recording() and all(map(all, counts.tolist())):
            # The usual case (no empty cell) in few operations.
            self.values.lerp_((sums.sums / _spread(counts, sums.sums)).to(self.values.dtype), self.rate)
            return
        share = (counts > 0).to(self.values.dtype).mul_(self.rate)
        self.values.lerp_(sums.means.to(self.values.dtype), _spread(share, self.values))
        self.n_empty += counts == 0

    def of(self, labels: Tensor) -> Tensor:
        """Return the baselines of each row's label under every group, shape (groups, n, ...)."""
        return self.values.transpose(0, 1)[:, labels]

    def extra_repr(self) -> str:
        """Return shape and rate for ``repr``."""
        labels, groups, *shape = self.values.shape
        return f"labels={labels}, groups={groups}, inputs={tuple(shape)}, rate={self.rate}"


class GroupMembers(nn.Module):
    """Members of every (label, group) cell as references, drawn anew (with replacement) for each mini-batch.

    Averaged over members, attributions are expected gradients: they compare a row with real rows instead of
    the mean of a cell, a point that no row need be near. ``values`` (labels, groups, members, ...) are the
    members drawn last; every cell must have at least one row. The rows at the positions `typical` (labels,
    groups, k), as from `typical_members`, are always the first k members of their cell.
    """

    values: Tensor

    def __init__(
        self,
        inputs: Tensor,
        labels: Tensor,
        groups: Tensor,
        *,
        n_groups: int | None = None,
        n_members: int = 8,
        typical: Tensor | None = None,
        random_state: int = 0,
    ) -> None:
        super().__init__()
        _check_counts(n_groups=n_groups, n_members=n_members)
        check_argument("random_state", random_state, "an integer >= 0", lambda n: is_count(n, 0, 2**63))
        self.n_groups = n_groups or int(groups.max()) + 1
        self.n_members, self._pool = n_members, inputs
        if typical is not None:
            wanted = f"an int64 tensor of shape (2, {self.n_groups}, k) with positions of rows"
            check_argument("typical", typical, wanted, self._are_positions)
        self._typical = None if typical is None else typical[..., :n_members].flatten(0, 1)
        cells = labels * self.n_groups + groups
        # Positions of the rows sorted by cell, and where the rows of each cell begin.
        self._order = torch.argsort(cells, stable=True)
        self._counts = torch.bincount(cells, minlength=2 * self.n_groups)
        self._first = self._counts.cumsum(0) - self._counts
        _check_cells(self._counts.view(2, self.n_groups), "no members to draw")
        self._generator = torch.Generator(inputs.device).manual_seed(random_state)
        self.register_buffer("values", self._draw(), persistent=False)

    def __deepcopy__(self, memo: dict[int, object]) -> "GroupMembers":
        # The pool may be the whole training table, so copies share it; they draw what the original draws.
        copy = GroupMembers.__new__(GroupMembers)
        nn.Module.__init__(copy)
        for name in ("n_groups", "n_members", "_pool", "_typical", "_order", "_counts", "_first"):
            setattr(copy, name, getattr(self, name))
        copy._generator = torch.Generator(self._generator.device)
        copy._generator.set_state(self._generator.get_state())
        copy.register_buffer("values", self.values.clone(), persistent=False)
        memo[id(self)] = copy
        return copy

    def _are_positions(self, typical: Tensor) -> bool:
        inside = (typical >= 0) & (typical < len(self._pool))
        in_shape = typical.dim() == 3 and typical.shape[:2] == (2, self.n_groups)
        return in_shape and typical.dtype == torch.int64 and bool(inside.all())

    def update(self, x: Tensor, y: Tensor, groups: Tensor) -> None:  # noqa: ARG002 (one interface of references)
        """Draw new members; the mini-batch itself is not used."""
        self.values.copy_(self._draw())

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        """The generator of the draws, on the device of the rows."""
        return (self._generator,)

    def _draw(self) -> Tensor:
        shape = (2 * self.n_groups, self.n_members)
        within = torch.rand(
            shape, generator=self._generator, dtype=torch.float64, device=self._generator.device
        )
        within = within.mul_(self._counts.unsqueeze(1)).long().add_(self._first.unsqueeze(1))
        positions = self._order.index_select(0, within.flatten()).view(shape)
        if self._typical is not None:
            positions[:, : self._typical.shape[1]] = self._typical
        members = self._pool.index_select(0, positions.flatten())
        return members.view(2, self.n_groups, self.n_members, *self._pool.shape[1:])


def typical_members(
    inputs: Tensor, labels: Tensor, groups: Tensor, *, n_groups: int, origin: Tensor | None = None
) -> Tensor:
    """Return the positions of the medoid and the modal member of every cell, shape (2, groups, 2).

    Every cell must have at least one row; `origin` is the original column of each encoded column.

    >>> x = torch.tensor([[0.0], [1.0], [5.0], [7.0]])
    >>> typical_members(x, torch.tensor([0, 0, 0, 1]), torch.zeros(4, dtype=torch.int64), n_groups=1)
    tensor([[[1, 1]],
    <BLANKLINE>
            [[3, 3]]])
    """
    rows, cells = inputs.detach().flatten(1), labels * n_groups + groups
    positions = []
    for cell in range(2 * n_groups):
        own = (cells == cell).nonzero().flatten()
        members = rows.index_select(0, own)
        positions.append(own[torch.stack([medoid(members), modal_member(members, origin)])])
    return torch.stack(positions).view(2, n_groups, 2)


def medoid(members: Tensor) -> Tensor:
    """Return the position of the member (of n, shape (n, p)) that is nearest to their mean.

    >>> medoid(torch.tensor([[0.0], [1.0], [5.0]]))
    tensor(1)
    """
    return (members - members.mean(0)).square().sum(1).argmin()


def modal_member(members: Tensor, origin: Tensor | None = None) -> Tensor:
    """Return the position of the member that has the usual value in most columns.

    The usual value of a one-hot block is its most frequent category; a number within a quarter of a standard
    deviation of the median is usual, and of equally usual members the one nearest to the medians is taken.

    >>> members = torch.tensor([[1.0, 0.0, 2.0], [1.0, 0.0, 3.0], [0.0, 1.0, 3.0]])
    >>> modal_member(members, origin=torch.tensor([0, 0, 1]))
    tensor(1)
    """
    n_columns = members.shape[1]
    if origin is None or len(origin) != n_columns:
        origin = torch.arange(n_columns, device=members.device)
    sizes = torch.bincount(origin)
    numbers = members[:, sizes[origin] == 1]
    spread = (numbers - numbers.mean(0)).square().mean(0).sqrt()
    distances = (numbers - numbers.median(0).values).abs() / spread.clamp_min(EPS)
    usual = ((distances < _USUAL_DISTANCE).to(members.dtype) - 1e-3 * distances).sum(1)
    for block in (sizes > 1).nonzero().flatten():
        categories = members[:, origin == block]
        usual += categories.argmax(1) == categories.mean(0).argmax()
    return usual.argmax()


def _check_counts(**given: Any) -> None:
    """Raise an error that names the first argument that is neither None nor a positive integer."""
    for name, count in given.items():
        if count is not None:
            check_argument(name, count, "a positive integer", partial(is_count, least=1))
