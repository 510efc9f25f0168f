"""The checks of the rows of a measurement, once."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from gcig._arguments import InputError, listed
from gcig._arrays import Floats, Rows
from gcig.adapters import AdaptedModel
from gcig.adapters.base import last_step
from gcig.core.task import Binary, Classes, Number, Task, task_of
from gcig.metrics.samples import row_keys
from gcig.tables.check import Groups, check_groups, check_labels, check_numbers, check_sample_weight
from gcig.tables.frames import level_name, to_frame

Reference = tuple[Any, Any, Any]
MOST_CLASSES = 50  # more are probably a number or an identifier
MISSING = "missing"  # the name of the group of rows without one


@dataclass(frozen=True, eq=False)
class CheckedRows:
    """Encoded rows with labels, groups and weights, and the tables that they came from."""

    table: Any
    sensitive: Any
    inputs: Rows  # (n, p)
    labels: NDArray[Any] | None  # codes of classes, or numbers; None if outcomes are unknown
    groups: Groups
    attributes: tuple[Groups, ...]  # each attribute alone, if there are several
    weights: Floats | None
    classes: tuple[Any, ...] = ()
    kept: NDArray[np.int64] | None = None  # positions of the rows with a group; None for all
    n_missing: int = 0  # rows without a group

    def __len__(self) -> int:
        return len(self.inputs)

    def hashed_keys(self, keys: Any, seed: int) -> NDArray[np.uint64]:
        """Return the hashed keys of the rows; ``keys`` include those of rows without a group."""
        if keys is not None and self.kept is not None:
            keys = np.asarray(keys)[self.kept]
        return row_keys(keys, len(self), seed)

    @property
    def known_weights(self) -> Floats:
        """The weight of each row."""
        return np.ones(len(self)) if self.weights is None else self.weights


def check_rows(
    adapted: AdaptedModel,
    rows: tuple[Any, Any, Any],
    task: str,
    *,
    sample_weight: Any = None,
    classes: tuple[Any, ...] = (),
    names: tuple[str, ...] | None = None,
    missing_groups: str = "refuse",
    part: bool = False,
) -> CheckedRows:
    """Check and encode rows (X, y, groups).

    ``classes`` and ``names`` are those of the model or of reference rows; a ``part`` of a table may have one
    label, or one group.
    """
    table, y, sensitive = rows
    kept, sensitive, n_missing = known_groups(sensitive, missing_groups)
    if kept is not None:
        table, y, sample_weight = (_take(each, kept) for each in (table, y, sample_weight))
    inputs = adapted.encode(table, sensitive)
    groups = check_groups(sensitive, n_rows=len(inputs), names=names)
    frame = to_frame(sensitive, "sensitive_features", prefix="group", flat=True)
    alone: tuple[Groups, ...] = ()
    if frame.shape[1] > 1 and not part:
        columns = [frame.iloc[:, [place]] for place in range(frame.shape[1])]
        alone = tuple(
            check_groups(each, n_rows=len(inputs)) for each in columns if each.iloc[:, 0].nunique() > 1
        )
    labels, found = (None, classes) if y is None else read_labels(y, len(inputs), task, classes, part=part)
    weights = check_sample_weight(sample_weight, len(inputs))
    labels = None if labels is None else np.array(labels)  # tables may be read-only, which torch refuses
    return CheckedRows(table, sensitive, inputs, labels, groups, alone, weights, found, kept, n_missing)


def known_groups(sensitive: Any, policy: str) -> tuple[NDArray[np.int64] | None, Any, int]:
    """Apply the policy for rows without a group: the rows that are kept (None for all), groups, their
    number.
    """
    if policy == "refuse" or sensitive is None:
        return None, sensitive, 0
    frame = to_frame(sensitive, "sensitive_features", prefix="group", flat=True)
    missing = frame.isna().to_numpy()
    count = int(missing.any(axis=1).sum())
    if not count:
        return None, sensitive, 0
    if policy == "leave out":
        kept = np.flatnonzero(~missing.any(axis=1))
        return kept, frame.iloc[kept].reset_index(drop=True), count
    filled = {name: frame[name].astype(object).where(frame[name].notna(), MISSING) for name in frame.columns}
    return None, pd.DataFrame(filled), count


def _take(values: Any, rows: NDArray[np.int64]) -> Any:
    if values is None:
        return None
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    return values[rows] if hasattr(values, "shape") else [values[row] for row in rows.tolist()]


def read_labels(
    y: Any, n_rows: int, task: str, classes: tuple[Any, ...] = (), *, part: bool = False
) -> tuple[NDArray[Any], tuple[Any, ...]]:
    """Return labels as the task has them, and the classes; two classes may be given as 0 and 1."""
    if task == "number":
        return check_numbers(y, n_rows=n_rows, constant=part).codes, ()
    if task == "classes":
        found = check_labels(y, n_rows=n_rows, classes=classes or None, most=MOST_CLASSES)
        return found.codes, found.classes
    known = classes or (0, 1)
    for attempt in (known, (0, 1), None):
        try:
            found = check_labels(y, n_rows=n_rows, classes=attempt)
        except InputError as error:
            if attempt == known:
                first = error
        else:
            return found.codes, classes or found.classes
        if attempt is not None and classes and attempt != known:
            break
    if classes:
        raise first
    return check_labels(y, n_rows=n_rows).codes, ()  # whose error names what is wrong


def recognise_task(y: Any) -> str:
    """Return the task of labels: numbers, two classes or more."""
    values = pd.Series(np.asarray(y).ravel()).dropna()
    if values.dtype.kind in "biuf":
        numbers = values.to_numpy(dtype=np.float64)
        if (numbers != np.round(numbers)).any() or len(np.unique(numbers)) > MOST_CLASSES:
            return "number"
    return "binary" if values.nunique() <= 2 else "classes"


def make_task(key: str, labels: NDArray[Any], weights: Floats | None, n_classes: int) -> Task:
    """Return the task of a measurement, with the frequencies of classes or the bins of numbers."""
    y = torch.from_numpy(np.asarray(labels))
    w = None if weights is None else torch.from_numpy(weights)
    if key == "classes":
        return Classes.of(y, w, n_classes=n_classes)
    if key in ("binary", "number"):
        return Binary.of(y) if key == "binary" else Number.of(y, w)
    return task_of(y, key, w)


def favourable_classes(favourable: Any, task: str, classes: tuple[Any, ...], model: Any) -> tuple[int, ...]:
    """Return the codes of the favourable classes; of numbers (1,) if high ones are favourable, else (0,)."""
    if isinstance(favourable, list | tuple) and len(favourable) == 1:
        favourable = favourable[0]
    if task == "number":
        if favourable not in (None, "high", "low"):
            raise InputError(
                "must be 'high' or 'low' for a model that predicts numbers.", argument="favourable"
            )
        return (0,) if favourable == "low" else (1,)
    trained = last_step(model)
    if favourable is None:
        favourable = getattr(trained, "favourable_", None)
    if favourable is None:
        return (1,) if task == "binary" else ()
    chosen = favourable if isinstance(favourable, list | tuple | set) else [favourable]
    names = [level_name(each) for each in classes]
    if unknown := [each for each in chosen if level_name(each) not in names]:
        raise InputError(
            f"is {unknown[0]!r}, but the classes are {listed(names)}. Name the favourable one.",
            argument="favourable",
        )
    return tuple(sorted(names.index(level_name(each)) for each in chosen))


def reference_table(reference: Reference | None) -> Any:
    """Return the rows of a reference, or None if there is none."""
    if reference is None:
        return None
    if not isinstance(reference, tuple) or len(reference) != 3:
        raise InputError("reference must be a tuple (X, y, sensitive_features).")
    return reference[0]
