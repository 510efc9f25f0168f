"""Explanations relative to the groups' means, as in the paper: additive sums over all rows.

Every row is explained relative to the mean of every group with the same label. What is summed are
functions of
one row's explanations, so the sums of several parts of a table are added. Models without gradients are not
explained here: a mean is no reference for a step function.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gcig._arrays import Floats
from gcig.core.attribution import Attribution, IntegratedGradients, Score
from gcig.core.definition import Definition
from gcig.core.gcig import column_disparity, defined_rows, disparity, normalise, vector_norm
from gcig.core.modules import evaluating
from gcig.core.task import Task
from gcig.metrics.columns import ComparedColumns
from gcig.metrics.samples import N_PARTS
from gcig.metrics.utility import quotient, sum_rows

_BYTES_AT_ONCE = 1 << 25
_VANISHING = 1e-8  # of the median norm, under which an explanation counts as none
# The sums by tenth, cell and group; "all" are all rows, "mass" is the weight of the rows whose
# explanations do not vanish.
FIELDS = (
    "mass",
    "disparity",
    "l2",
    "encoded_mass",
    "encoded",
    "raw_mass",
    "raw",
    "residual",
    "change",
    "size",
    "undefined",
    "square",
    "all",
)


@dataclass(frozen=True, eq=False)
class MeanExplainer:
    """How rows are explained relative to means; part of a frozen plan."""

    module: nn.Module
    task: Task
    means: Tensor  # (cells, groups, p)
    defined: Tensor  # (cells, groups): which groups are compared
    columns: ComparedColumns
    attribution: Attribution
    definition: Definition
    scale: float  # the median l1 norm of an explanation, relative to which one counts as vanishing

    def attribute(self, inputs: Tensor, labels: Tensor, references: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return attributions (groups, n, p) of rows, and the average slopes if there are any."""
        score = Score.of(self.module, self.task, labels)
        if isinstance(self.attribution, IntegratedGradients):
            slopes = self.attribution.slopes(score, inputs, references)
            return (inputs - references) * slopes, slopes
        return self.attribution.attribute(score, inputs, references).detach(), None

    def on_columns(self, kind: str, values: Tensor, slopes: Tensor | None, difference: Tensor) -> Tensor:
        """Return attributions (groups, n, p) on columns of a kind."""
        if kind == "original":
            return self.columns.sum(values)
        if kind == "encoded" and slopes is not None and self.columns.centres:
            return difference * self.columns.centre(slopes)
        return values

    def sum_rows(
        self,
        inputs: Tensor,
        labels: Tensor,
        groups: NDArray[np.int64],
        weights: Floats,
        parts: NDArray[np.int64],
        advance: Callable[[int], object],
    ) -> "MeanSums":
        """Return the sums over rows (n, p), each of which belongs to one tenth of the rows."""
        cells = self.task.cells(labels)
        n_cells, n_groups = self.defined.shape
        sums = MeanSums.zeros(self)
        size = max(1, _BYTES_AT_ONCE // (8 * max(1, inputs.shape[1]) * n_groups))
        for cell in range(n_cells):
            compared = self.defined[cell].nonzero().flatten()
            own = (cells == cell).nonzero().flatten()
            if len(compared) < 2 or not len(own):
                advance(len(own))
                continue
            for part in own.split(size):
                references = self.means[cell, compared].unsqueeze(1).expand(-1, len(part), -1)
                at = part.cpu().numpy()
                place = parts[at], groups[at]
                self._add(sums, cell, compared, inputs[part], labels[part], references, weights[at], place)
                advance(len(part))
        return sums

    def _add(
        self,
        sums: "MeanSums",
        cell: int,
        compared: Tensor,
        inputs: Tensor,
        labels: Tensor,
        references: Tensor,
        weights: Floats,
        place: tuple[NDArray[np.int64], NDArray[np.int64]],
    ) -> None:
        """Add the quantities of some rows of one cell."""
        used = self.definition
        values, slopes = self.attribute(inputs, labels, references)
        difference = inputs - references
        kinds = {
            kind: self.on_columns(kind, values, slopes, difference) for kind in ("original", "encoded", "raw")
        }
        norms = {kind: each.abs().sum(-1) for kind, each in kinds.items()}
        known = {kind: (each > _VANISHING * self.scale).all(0) for kind, each in norms.items()}
        own, defined = kinds[used.columns], known[used.columns]
        # In training mode BatchNorm would change its statistics, and dropout the figures.
        with torch.no_grad(), evaluating(self.module):
            score = Score.of(self.module, self.task, labels)
            change = score(inputs.unsqueeze(0)) - score(references)
        residual = (values.sum(-1) - change).abs().mean(0)
        centred = own - own.mean(0)
        groups = len(compared)
        square = 2 / (groups - 1) * centred.square().sum(-1).sum(0)
        v = disparity(own, norm=used.norm, eps=used.eps)
        per_row = {
            "mass": defined,
            "disparity": v * defined,
            "l2": disparity(own, norm="l2") * defined,
            "encoded_mass": known["encoded"],
            "encoded": disparity(kinds["encoded"]) * known["encoded"],
            "raw_mass": known["raw"],
            "raw": disparity(kinds["raw"]) * known["raw"],
            "residual": residual,
            "change": change.abs().mean(0),
            "size": vector_norm(kinds["original"], "l1").mean(0),
            "undefined": ~defined,
            "square": square,
            "all": torch.ones_like(v),
        }
        table = torch.stack([per_row[name].double() for name in FIELDS], 1).cpu().numpy()
        counted = table * weights[:, None]
        counted[:, FIELDS.index("undefined")] = table[:, FIELDS.index("undefined")]
        n_groups = sums.rows.shape[2]
        added = sum_rows(place[0] * n_groups + place[1], counted, N_PARTS * n_groups)
        sums.rows[:, cell] += added.reshape(N_PARTS, n_groups, -1)
        w = torch.from_numpy(weights).to(v) * defined
        squares = column_disparity(own, norm=used.norm, eps=used.eps).square()
        contributions = squares / v.clamp_min(torch.finfo(v.dtype).tiny).unsqueeze(-1)
        shares = normalise(kinds["original"]).abs().mean(0)
        part = torch.from_numpy(place[0]).to(v.device)
        member = torch.nn.functional.one_hot(part, N_PARTS).to(v) * w.unsqueeze(1)
        sums.contributions[:, cell] += (member.T @ contributions).double().cpu().numpy()
        sums.shares[:, cell] += (member.T @ shares).double().cpu().numpy()
        every = torch.nn.functional.one_hot(part, N_PARTS).to(v) * torch.from_numpy(weights).to(v).unsqueeze(
            1
        )
        moved = torch.einsum("nk,gnc->kgc", every, centred).double().cpu().numpy()
        sums.deviations[:, cell, compared.cpu().numpy()] += moved


@dataclass(frozen=True, eq=False)
class MeanSums:
    """Sums of what is measured relative to means; measures are functions of them."""

    rows: Floats  # (..., cells, groups, fields), fields as in `FIELDS`; stored by tenth of the rows
    contributions: Floats  # (..., cells, columns of the definition)
    shares: Floats  # (..., cells, original columns)
    deviations: Floats  # (..., cells, groups, columns of the definition): from the mean over the groups
    definition: Definition = field(default_factory=Definition)
    column_names: tuple[str, ...] = ()
    original_names: tuple[str, ...] = ()
    group_names: tuple[str, ...] = ()
    spread: float = float("nan")

    @classmethod
    def zeros(cls, explainer: MeanExplainer) -> "MeanSums":
        """Return sums of no rows."""
        cells, groups = explainer.defined.shape
        names = explainer.columns.of(explainer.definition.columns)
        return cls(
            np.zeros((N_PARTS, cells, groups, len(FIELDS))),
            np.zeros((N_PARTS, cells, len(names))),
            np.zeros((N_PARTS, cells, len(explainer.columns.names))),
            np.zeros((N_PARTS, cells, groups, len(names))),
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the additive arrays by name."""
        names = ("rows", "contributions", "shares", "deviations")
        return {f"means.{name}": getattr(self, name) for name in names}

    def of(self, field: str) -> Floats:
        """Return the sums of one field, (..., cells, groups)."""
        return np.asarray(self.rows[..., FIELDS.index(field)])

    def of_all_rows(self) -> Floats:
        """Return the weight of all explained rows, (..., cells)."""
        return np.asarray(self.of("all").sum(axis=-1))

    def mean(self, field: str, mass: str = "mass") -> Floats:
        """Return the mean of a field over rows, with labels weighted as in the definition."""
        total, weight = self.of(field).sum(axis=-1), self.of(mass).sum(axis=-1)
        return self._combine(total, weight)

    def of_groups(self, field: str, mass: str = "mass") -> Floats:
        """Return the mean of a field over the rows of each group, (..., groups)."""
        return self._combine(np.swapaxes(self.of(field), -1, -2), np.swapaxes(self.of(mass), -1, -2))

    def _combine(self, total: Floats, weight: Floats) -> Floats:
        """Combine sums over cells (..., cells) as `label_weights` says."""
        if self.definition.label_weights == "empirical":
            return quotient(total.sum(axis=-1), weight.sum(axis=-1))
        means = quotient(total, weight)
        with np.errstate(invalid="ignore"):
            known = ~np.isnan(means)
            added = np.where(known, means, 0).sum(axis=-1)
            count = known.sum(axis=-1)
        added = np.where(count > 0, added, np.nan)
        return added if self.definition.label_weights == "sum" else np.asarray(added / np.maximum(count, 1))

    @property
    def column_contributions(self) -> Floats:
        """The contribution of each column to the disparity; they add up to it, (..., columns)."""
        weight = self.of("mass").sum(axis=-1)
        total = np.moveaxis(self.contributions, -1, -2)  # (..., columns, cells)
        return self._combine(total, np.broadcast_to(weight[..., None, :], total.shape))

    def add_up(self, leave_out: int | None = None) -> "MeanSums":
        """Return the sums of all rows, or of all but one tenth."""
        kept = [part for part in range(N_PARTS) if part != leave_out]
        names = ("rows", "contributions", "shares", "deviations")
        return replace(self, **{name: getattr(self, name)[kept].sum(axis=0) for name in names})


def compare_rows(values: Tensor, definition: Definition) -> tuple[Tensor, Tensor]:
    """Return the disparity (n,) of attributions (groups, n, columns), and each column's share of it.

    Both are NaN for a row whose attributions vanish or are undefined.
    """
    known = torch.isfinite(values).all(-1).all(0)
    spread = torch.full((values.shape[1],), torch.nan, dtype=values.dtype)
    shares = torch.full(values.shape[1:], torch.nan, dtype=values.dtype)
    if known.any():
        own = values[:, known]
        apart = disparity(own, norm=definition.norm, eps=definition.eps)
        squares = column_disparity(own, norm=definition.norm, eps=definition.eps).square()
        defined = defined_rows(vector_norm(own, "l1"))
        spread[known] = torch.where(defined, apart, torch.nan)
        shares[known] = torch.where(defined.unsqueeze(1), squares / apart.square().unsqueeze(1), torch.nan)
    return spread, shares
