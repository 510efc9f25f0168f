"""Training data: a user's table checked, encoded and weighted, with a part of it held out."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from torch import Tensor

from gcig._arrays import Encoded, Floats
from gcig._validation import (
    Groups,
    InputError,
    Labels,
    check_cells,
    check_features,
    check_groups,
    check_labels,
    check_lengths,
    check_sample_weight,
    warn_if_sensitive_in,
    warn_input,
)
from gcig.core.batch import GroupedBatch, TrainingRows
from gcig.core.columns import AttributeColumns
from gcig.data.splitting import hold_out


@dataclass(frozen=True)
class CheckedTable:
    """A training table after all checks."""

    frame: Any
    labels: Labels
    groups: Groups
    weights: Floats | None


@dataclass(frozen=True)
class TrainingData:
    """Encoded rows on a device, split into a training and a validation part.

    Attributes
    ----------
    all : GroupedBatch
        Every row.
    training : GroupedBatch
        The rows that gradients are computed on.
    validation : GroupedBatch or None
        The held-out set, for early stopping; None if nothing is held out.
    weights : Tensor or None
        Weights of the training rows, with mean one.
    n_groups : int
    table : DataFrame
        The training rows as the user gave them.
    blocks : Tensor of shape (columns,), optional
        The original column, or dummy block, of each encoded column, if it is known.
    protected : tuple of AttributeColumns, optional
        The protected attributes among the encoded columns, if they are known.

    Examples
    --------
    >>> rows = GroupedBatch(torch.zeros(2, 1), torch.tensor([0, 1]), torch.tensor([0, 1]))
    >>> data = TrainingData(rows, rows, None, weights=None, n_groups=2, table=pd.DataFrame())
    >>> len(data.rows)
    2
    """

    all: GroupedBatch
    training: GroupedBatch
    validation: GroupedBatch | None
    weights: Tensor | None
    n_groups: int
    table: pd.DataFrame
    blocks: Tensor | None = None
    protected: tuple[AttributeColumns, ...] | None = None

    @property
    def rows(self) -> TrainingRows:
        """The training rows with their labels as targets."""
        return TrainingRows(self.training, self.training.labels, self.weights)


def check_table(
    X: Any, y: Any, sensitive_features: Any, sample_weight: Any, class_weight: Any
) -> CheckedTable:
    """Check a table, its labels, groups and weights against each other; drop rows of weight zero."""
    if sensitive_features is None:
        raise InputError(
            "sensitive_features is missing: fit needs the group of every row. Pass an array, a Series, or a "
            "DataFrame whose columns are crossed."
        )
    check_lengths(X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight)
    frame = check_features(X)
    labels = check_labels(y, n_rows=len(frame), warning=DataConversionWarning)
    groups = check_groups(sensitive_features, n_rows=len(frame))
    weights = check_sample_weight(sample_weight, len(frame), labels=labels)
    if weights is not None and not weights.all():
        counted = np.flatnonzero(weights)
        frame, weights = frame.iloc[counted], weights[counted]
        labels = replace(labels, codes=labels.codes[counted])
        groups = replace(groups, codes=groups.codes[counted])
    check_cells(labels, groups)
    warn_if_sensitive_in(frame, groups)
    counts = np.bincount(labels.codes, weights=weights, minlength=2)
    factors = class_factors(class_weight, labels.classes, counts)
    if factors is not None:
        weights = factors[labels.codes] * (1.0 if weights is None else weights)
    return CheckedTable(frame, labels, groups, weights)


def class_factors(class_weight: Any, classes: tuple[Any, Any], counts: NDArray[Any]) -> Floats | None:
    """Return the weight of a row of each class, given the number of rows; None without class weights."""
    if class_weight is None:
        return None
    if class_weight == "balanced":
        return np.asarray(counts.sum() / (2 * counts), dtype=np.float64)
    if unknown := set(class_weight) - set(classes):
        raise InputError(
            f"class_weight names classes that y does not have: {', '.join(sorted(map(repr, unknown)))}; "
            f"y has {classes[0]!r} and {classes[1]!r}."
        )
    return np.array([float(class_weight.get(name, 1.0)) for name in classes])


def training_data(
    table: CheckedTable, encoded: Encoded, device: torch.device, validation_fraction: float | None, seed: int
) -> TrainingData:
    """Move encoded rows to a device and hold out a part of them, stratified by label and group."""
    cells = table.labels.codes, table.groups.codes
    rows = GroupedBatch(*(torch.from_numpy(each).to(device) for each in (encoded, *cells)))
    kept, held_out = np.arange(len(rows)), np.arange(0)
    if validation_fraction is not None:
        kept, held_out = hold_out(*cells, fraction=validation_fraction, random_state=seed, strict=False)
        if len(np.unique(table.labels.codes[held_out])) < 2:
            warn_input(
                f"{len(rows)} rows are too few to hold out rows of both labels "
                f"(validation_fraction={validation_fraction}): the network is trained on all rows to the "
                "last epoch, and is not validated. Provide more rows or a larger validation_fraction."
            )
            kept, held_out = np.arange(len(rows)), np.arange(0)
    weights = None
    if table.weights is not None:
        share = table.weights[kept] / table.weights[kept].mean()
        weights = torch.from_numpy(share.astype(np.float32)).to(device)
    return TrainingData(
        all=rows,
        training=rows[torch.from_numpy(kept).to(device)] if len(held_out) else rows,
        validation=rows[torch.from_numpy(held_out).to(device)] if len(held_out) else None,
        weights=weights,
        n_groups=len(table.groups.names),
        table=table.frame.iloc[kept],
    )


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
