"""What belongs to rows beside their inputs, side by side, so that a mini-batch is gathered at once."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from gcig.core.batch import GroupedBatch
from gcig.engine.scratch import Scratch
from gcig.losses.gcig import label_members
from gcig.losses.outcome import OUTCOME_LOSSES
from gcig.methods.fairx.settings import FairTraining

__all__ = ["BatchRows", "RowTable"]


class BatchRows(NamedTuple):
    """Of one mini-batch: views of memory that the next one overwrites.

    Attributes
    ----------
    targets : Tensor of shape (n,)
        Labels as floats, or probabilities.
    weights : Tensor of shape (n,) or None
        What each row counts.
    members : Tensor of shape (n, conditions x groups) or None
        The cells of the outcome term.
    cells : Tensor of shape (labels x groups, n) or None
        The cells of the baselines.
    label_members : Tensor of shape (n, labels) or None
        Which label's mean each row's disparity is part of, and with what weight.
    """

    targets: Tensor
    weights: Tensor | None = None
    members: Tensor | None = None
    cells: Tensor | None = None
    label_members: Tensor | None = None


class RowTable:
    """The columns of all training rows, for the terms that the settings ask for.

    Parameters
    ----------
    data : GroupedBatch
        The n training rows.
    targets : Tensor of shape (n,)
        Labels, or probabilities.
    weights : Tensor of shape (n,), optional
        What each row counts in the terms of the loss.
    settings : FairTraining
        Which terms there are.
    n_groups : int
    """

    def __init__(
        self,
        data: GroupedBatch,
        targets: Tensor,
        weights: Tensor | None,
        settings: FairTraining,
        n_groups: int,
    ) -> None:
        dtype = data.inputs.dtype
        columns = {"targets": targets.unsqueeze(1)}
        if weights is not None:
            columns["weights"] = weights.unsqueeze(1)
        if settings.constrains:
            loss = OUTCOME_LOSSES[settings.outcome](n_groups)
            membership = loss.membership(data.labels, data.groups, sample_weight=weights)
            columns["members"] = membership.flatten(0, 1).T
        if settings.explains:
            columns["cells"] = one_hot(data.labels * n_groups + data.groups, 2 * n_groups)
            columns["label_members"] = label_members(data.labels, sample_weight=weights, dtype=dtype)
        self.widths = {name: values.shape[1] for name, values in columns.items()}
        self.values = torch.cat([values.to(dtype) for values in columns.values()], dim=1)
        self._scratch = Scratch()

    def of(self, rows: Tensor) -> BatchRows:
        """Those of some rows, by their numbers."""
        values, batch = self._scratch.recall(len(rows), lambda: self._room(len(rows)))
        torch.index_select(self.values, 0, rows, out=values)
        return batch

    def _room(self, n_rows: int) -> tuple[Tensor, BatchRows]:
        values = self._scratch.array("rows", self.values, n_rows, self.values.shape[1])
        parts = dict(zip(self.widths, values.split(list(self.widths.values()), dim=1), strict=True))
        for name in ("targets", "weights"):
            if name in parts:
                parts[name] = parts[name][:, 0]
        if "cells" in parts:
            parts["cells"] = parts["cells"].T
        return values, BatchRows(**parts)
