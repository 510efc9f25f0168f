"""Training data: a user's table checked, encoded and weighted, with a part of it held out."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from gcig._arguments import InputError
from gcig._arrays import Encoded, Positions
from gcig.core.columns import AttributeColumns
from gcig.core.references import Rows
from gcig.core.task import Task
from gcig.tables.check import CheckedTable, Groups, check_groups
from gcig.tables.frames import check_lengths


@dataclass(frozen=True)
class TrainingData:
    """Encoded rows on a device, split into a training and a validation part.

    Attributes
    ----------
    all : Rows
        Every row.
    training : Rows
        The rows that gradients are computed on.
    validation : Rows or None
        The held-out set; None if nothing is held out.
    n_groups : int
    table : DataFrame
        The training rows as the user gave them; ``held_out_table`` has the others.
    task : Task
        The kind of label, with frequencies or bins of all rows.
    origin : Tensor of shape (encoded columns,)
        The column of the table that each encoded column came from.
    blocks : Tensor of shape (encoded columns,)
        The same, with dummy columns of one category joined.
    protected : tuple of AttributeColumns
        The protected attributes among the encoded columns.

    Examples
    --------
    >>> from gcig.core.task import Binary
    >>> rows = Rows(torch.zeros(2, 1), torch.tensor([0, 1]), torch.tensor([0, 1]))
    >>> column = torch.zeros(1, dtype=torch.int64)
    >>> data = TrainingData(rows, rows, None, 2, pd.DataFrame(), Binary(), column, column)
    >>> len(data.held_out)  # nothing is held out
    2
    """

    all: Rows
    training: Rows
    validation: Rows | None
    n_groups: int
    table: pd.DataFrame
    task: Task
    origin: Tensor
    blocks: Tensor
    protected: tuple[AttributeColumns, ...] = ()
    held_out_table: pd.DataFrame | None = None

    @property
    def held_out(self) -> Rows:
        """The rows that a model is measured on: those held out, or the training rows if there are none."""
        return self.training if self.validation is None else self.validation


def split_rows(
    table: CheckedTable, encoded: Encoded, labels: Tensor, device: torch.device, held_out: Positions
) -> tuple[Rows, Rows, Rows | None]:
    """Move encoded rows to a device; return all of them, those for training, and those held out, if any."""
    mass = None
    if table.weights is not None:
        mass = torch.from_numpy((table.weights / table.weights.mean()).astype(np.float32)).to(device)
    groups = torch.from_numpy(table.groups.codes).to(device)
    rows = Rows(torch.from_numpy(encoded).to(device), labels.to(device), groups, mass)
    if not len(held_out):
        return rows, rows, None
    mask = torch.zeros(len(rows), dtype=torch.bool, device=device)
    mask[torch.from_numpy(held_out).to(device)] = True
    return rows, rows[~mask], rows[mask]


def resample(rows: Rows) -> Rows:
    """Return as many rows, each as often as its weight says, for algorithms that count all rows alike.

    >>> rows = Rows(torch.zeros(4, 1), torch.arange(4), torch.zeros(4), torch.tensor([2.0, 0.0, 1.0, 1.0]))
    >>> resample(rows).labels
    tensor([0, 0, 2, 3])
    """
    if rows.weights is None:
        return rows
    shares = rows.weights.double().cumsum(0) / rows.weights.double().sum()
    places = (torch.arange(len(rows), dtype=torch.float64, device=shares.device) + 0.5) / len(rows)
    positions: Tensor = torch.searchsorted(shares, places).clamp_max(len(rows) - 1)
    return replace(rows[positions], weights=None)


def require_groups(model: Any, X: Any, sensitive_features: Any, *, n_rows: int, reason: str) -> Groups:
    """Return the groups of new rows as codes into the model's groups; for some `reason` they are required."""
    names = model.groups_
    if sensitive_features is None:
        raise InputError(
            f"sensitive_features is missing: {reason}, so {type(model).__name__} needs the group of every "
            f"row to predict as well. Pass sensitive_features=..., with groups of the training data: "
            f"{', '.join(names[:10])}{' and others' if len(names) > 10 else ''}."
        )
    check_lengths(X=X, sensitive_features=sensitive_features)
    return check_groups(sensitive_features, n_rows=n_rows, names=names)
