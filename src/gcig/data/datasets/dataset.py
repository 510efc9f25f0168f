"""A dataset's rows: the table that a declaration's loader returns, cut into inputs, labels and groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gcig.data.datasets.spec import DatasetSpec, ProtectedAttribute

if TYPE_CHECKING:
    import pandas as pd

    from gcig.data.datasets.card import DatasetCard

__all__ = [
    "Dataset",
    "DatasetSpec",
    "ProtectedAttribute",
    "check_frame",
    "group_names",
    "input_columns",
    "labels",
]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A table ready for a classifier.

    Attributes
    ----------
    name
        Name in the registry.
    X
        The inputs: numbers as numbers, texts as categories.
    y
        The labels, 0 or 1, named after the target.
    sensitive_features
        The name of each row's group: a Series, or a DataFrame when several attributes were asked for.
    card
        What there is to know about the data before using it.

    Examples
    --------
    >>> from gcig.data.datasets.registry import load_dataset
    >>> data = load_dataset("german", sensitive="age")
    >>> data.X.shape, sorted(data.sensitive_features.unique())
    ((1000, 20), ['25 or younger', 'over 25'])
    """

    name: str
    X: pd.DataFrame
    y: pd.Series[int]
    sensitive_features: pd.Series[str] | pd.DataFrame
    card: DatasetCard

    @classmethod
    def from_frame(
        cls,
        spec: DatasetSpec,
        frame: pd.DataFrame,
        card: DatasetCard,
        sensitive: str | Sequence[str] | None = None,
        include_sensitive: bool = True,
    ) -> Dataset:
        """Cut a table that ``check_frame`` has passed into inputs, labels and groups.

        The result shares no memory with ``frame``.
        """
        import pandas as pd

        from gcig._validation import InputError

        if sensitive is None:
            sensitive = spec.default
        names = [sensitive] if isinstance(sensitive, str) else list(sensitive)
        if not names or len(set(names)) < len(names):
            raise InputError(
                f"sensitive: got {names}; name each attribute once, of: {', '.join(spec.offered)}"
            )
        attributes = [spec.attribute(name) for name in names]
        groups = pd.DataFrame({each.name: group_names(each, frame) for each in attributes})

        dropped: set[str] = set()
        if not include_sensitive:
            dropped.update(*(each.columns for each in attributes))
        kept = [column for column in input_columns(spec, frame) if column not in dropped]
        if not kept:
            raise InputError(
                f"include_sensitive: without {sorted(dropped)} dataset {spec.name!r} has no inputs left"
            )
        return cls(
            name=spec.name,
            X=frame[kept].copy(),
            y=labels(spec, frame),
            sensitive_features=groups[sensitive].copy() if isinstance(sensitive, str) else groups,
            card=card,
        )

    def __repr__(self) -> str:
        import pandas as pd

        spec = self.card.spec
        lines = [
            f"Dataset {self.name!r}: {spec.title}",
            f"  X: {len(self.X):,} rows, {self.X.shape[1]} columns",
            f"  y: {self.y.name!r}, 1 means {spec.positive_means} ({self.y.mean():.1%})",
        ]
        for _, column in pd.DataFrame(self.sensitive_features).items():
            parts = ", ".join(f"{group} ({count:,})" for group, count in column.value_counts().items())
            lines.append(f"  sensitive_features: {column.name!r}: {parts}")
        if spec.traps:
            lines.append(f"  {len(spec.traps)} known traps: print(dataset.card)")
        return "\n".join(lines)


def input_columns(spec: DatasetSpec, frame: pd.DataFrame) -> list[str]:
    """The names of the inputs: the declared ones, or all columns but the target."""
    if spec.inputs is not None:
        return list(spec.inputs)
    return [column for column in frame.columns if column != spec.target]


def labels(spec: DatasetSpec, frame: pd.DataFrame) -> pd.Series[int]:
    """The target as 0 and 1, where 1 is the declared positive value."""
    return (frame[spec.target] == spec.positive).astype("int64")


def group_names(attribute: ProtectedAttribute, frame: pd.DataFrame) -> pd.Series[str]:
    """The name of each row's group, as text; a missing group is an error, not a group called "nan"."""
    import pandas as pd

    if attribute.groups is None:
        groups = frame[attribute.columns[0]]
    else:
        # A shallow copy, so that the function cannot add columns to the table.
        groups = pd.Series(attribute.groups(frame.copy(deep=False)), index=frame.index)
    n_missing = int(groups.isna().sum())
    if n_missing:
        raise ValueError(
            f"protected attribute {attribute.name!r}: {n_missing:,} of {len(groups):,} rows have no group; "
            f"drop these rows in the loader, or give them a group of their own such as 'unknown'"
        )
    return groups.astype(str).rename(attribute.name)


def check_frame(spec: DatasetSpec, frame: object) -> pd.DataFrame:
    """The table that a loader returned, if it is what its declaration says."""
    import pandas as pd

    where = f"the loader of dataset {spec.name!r}"
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(f"{where} returned {type(frame).__name__}; it has to return a pandas DataFrame")
    unnamed = [column for column in frame.columns if not isinstance(column, str)]
    if unnamed:
        raise ValueError(f"{where} returned columns whose names are not texts: {unnamed}; name them")
    repeated = frame.columns[frame.columns.duplicated()].unique().tolist()
    if repeated:
        raise ValueError(f"{where} returned columns that occur twice: {repeated}; rename or drop one of each")
    derived = [column for attribute in spec.protected for column in attribute.columns]
    absent = {spec.target, *derived, *(spec.inputs or ())} - set(frame.columns)
    if absent:
        raise ValueError(f"{where} returned no column {sorted(absent)}; it has {frame.columns.tolist()}")
    if spec.rows is not None and len(frame) != spec.rows:
        raise ValueError(f"{where} returned {len(frame):,} rows where {spec.rows:,} are declared")
    _check_target(spec, frame[spec.target])
    return frame


def _check_target(spec: DatasetSpec, target: pd.Series[Any]) -> None:
    n_missing, n_values = int(target.isna().sum()), target.nunique()
    n_positive = int((target == spec.positive).sum())
    if n_missing:
        raise ValueError(
            f"target: {n_missing:,} of {len(target):,} rows of dataset {spec.name!r} have no "
            f"{spec.target!r}; drop them in the loader"
        )
    if n_values != 2 or n_positive == 0:
        raise ValueError(
            f"target: column {spec.target!r} ({target.dtype}) of dataset {spec.name!r} has {n_values} "
            f"values in {len(target):,} rows, and {n_positive:,} rows equal "
            f"positive={spec.positive!r} ({type(spec.positive).__name__}); two values are needed, "
            f"and `positive` has to be one of them"
        )
