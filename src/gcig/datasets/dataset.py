"""Loaded dataset: a table split into inputs, labels and groups, and its card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from textwrap import fill
from typing import TYPE_CHECKING, Any

from gcig._arguments import InputError
from gcig.datasets.spec import DatasetSpec, ProtectedAttribute
from gcig.records.audit import SMALLEST_CELL

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class GroupFacts:
    """Size of one group, and a summary of its labels; that of a suppressed (too small) group is None.

    The summary of two classes is the ``base_rate``, the share of label 1; of more it is the share of each
    class, and of a number its ``mean``.
    """

    group: str
    rows: int
    labels: dict[str, float] | None


@dataclass(frozen=True)
class DatasetCard:
    """The facts to know before using a dataset, as text, as HTML and as a dictionary.

    ``labels`` summarises the labels as in `GroupFacts`. ``groups`` has facts about the groups of each
    protected attribute, the largest group first.
    """

    spec: DatasetSpec
    inputs: tuple[str, ...]
    rows: int
    labels: dict[str, float]
    groups: dict[str, tuple[GroupFacts, ...]]

    @classmethod
    def from_frame(cls, spec: DatasetSpec, frame: pd.DataFrame) -> DatasetCard:
        """Build the card of a table that passed ``check_frame``."""
        y = labels(spec, frame)
        return cls(
            spec=spec,
            inputs=tuple(input_columns(spec, frame)),
            rows=len(frame),
            labels=summarise(spec, y),
            groups={each.name: group_facts(spec, y, group_names(each, frame)) for each in spec.protected},
        )

    @property
    def base_rate(self) -> float:
        """The share of label 1, of two classes."""
        return self.labels["base_rate"]

    def to_dict(self) -> dict[str, Any]:
        """Return the card as plain values for JSON."""
        counted = {
            "rows": self.rows,
            "columns": len(self.inputs),
            "inputs": list(self.inputs),
            "labels": self.labels,
            "protected": {
                attribute.name: {
                    "description": attribute.description,
                    "columns": list(attribute.columns),
                    "groups": [vars(facts) for facts in self.groups[attribute.name]],
                }
                for attribute in self.spec.protected
            },
        }
        return {**self.spec.to_dict(), **counted}

    def __str__(self) -> str:
        spec = self.spec
        lines = [f"{spec.title} ({spec.name})", ""]
        for heading, words in self._facts():
            lines.append(
                fill(words, 100, initial_indent=f"{heading:<10}", subsequent_indent=" " * 10, **_WHOLE_WORDS)
            )
        for attribute in spec.protected:
            lines += ["", fill(_title(attribute, spec), 100, subsequent_indent="  ")]
            lines += format_groups(self.groups[attribute.name])
        for heading, notes in self._notes():
            lines += ["", heading]
            lines += [
                fill(note, 100, initial_indent="- ", subsequent_indent="  ", **_WHOLE_WORDS) for note in notes
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        spec = self.spec
        facts = "".join(f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in self._facts())
        parts = [f"<h3>{escape(spec.title)} ({escape(spec.name)})</h3><table>{facts}</table>"]
        for attribute in spec.protected:
            rows = "".join(
                f"<tr><td>{escape(each.group)}</td><td>{each.rows:,}</td><td>{escape(_summary(each))}</td></tr>"
                for each in self.groups[attribute.name]
            )
            head = "<tr><th>group</th><th>rows</th><th>labels</th></tr>"
            parts.append(f"<h4>{escape(_title(attribute, spec))}</h4><table>{head}{rows}</table>")
        for heading, notes in self._notes():
            items = "".join(f"<li>{escape(note)}</li>" for note in notes)
            parts.append(f"<h4>{heading}</h4><ul>{items}</ul>")
        return "".join(parts)

    def _facts(self) -> list[tuple[str, str]]:
        spec = self.spec
        return [
            ("rows", f"{self.rows:,}"),
            ("inputs", f"{len(self.inputs)}: {', '.join(self.inputs)}"),
            ("target", f"{spec.target}; {_target(spec, self.labels)}"),
            *((name, getattr(spec, name)) for name in ("source", "licence", "citation")),
            *(("sha256", f"{digest} {file}") for file, digest in spec.sha256.items()),
        ]

    def _notes(self) -> list[tuple[str, tuple[str, ...]]]:
        notes = [("Traps", self.spec.traps), ("Known harms", self.spec.harms)]
        return [(heading, each) for heading, each in notes if each]


def summarise(spec: DatasetSpec, y: pd.Series[Any], names: Sequence[str] = ()) -> dict[str, float]:
    """Return the base rate, the share of every class (in the order of ``names``), or the mean of a number."""
    if spec.task == "classes":
        shares = y.value_counts(normalize=True)
        return {str(name): float(shares.get(name, 0.0)) for name in names or shares.index}
    return {"base_rate" if spec.task == "binary" else "mean": float(y.mean())}


def group_facts(spec: DatasetSpec, y: pd.Series[Any], groups: pd.Series[str]) -> tuple[GroupFacts, ...]:
    """Return the size of every group and a summary of its labels, the largest first."""
    sizes = groups.groupby(groups).size().sort_values(ascending=False, kind="stable")
    names = list(summarise(spec, y))
    return tuple(
        GroupFacts(
            str(group), size, summarise(spec, y[groups == group], names) if size >= SMALLEST_CELL else None
        )
        for group, size in sizes.items()
    )


def format_groups(groups: Sequence[GroupFacts]) -> list[str]:
    """Return one aligned line of text per group.

    >>> format_groups([GroupFacts("male", 690, {"base_rate": 0.723})])
    ['  male      690 rows   72.3% with label 1']
    """
    width = max(len(each.group) for each in groups)
    return [f"  {each.group:<{width}}  {each.rows:>7,} rows  {_summary(each)}" for each in groups]


# Keep hashes, DOIs and column names unbroken.
_WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def _title(attribute: ProtectedAttribute, spec: DatasetSpec) -> str:
    default = ", the default" if attribute.name == spec.default else ""
    described = f": {attribute.description}" if attribute.description else ""
    return f"Protected attribute {attribute.name}{default} (from {', '.join(attribute.columns)}){described}"


def _summary(facts: GroupFacts) -> str:
    if facts.labels is None:
        return f"labels suppressed: fewer than {SMALLEST_CELL} rows"
    if "base_rate" in facts.labels:
        return f"{facts.labels['base_rate']:>6.1%} with label 1"
    return _shares(facts.labels) if len(facts.labels) > 1 else f"mean {facts.labels['mean']:.1f}"


def _shares(labels: dict[str, float]) -> str:
    return ", ".join(f"{share:.1%} {name}" for name, share in labels.items())


def _target(spec: DatasetSpec, labels: dict[str, float]) -> str:
    """Return what the labels are, in words."""
    if spec.task == "binary":
        return f"1 means {spec.positive_means} ({labels['base_rate']:.1%} of the rows)"
    return f"classes: {_shares(labels)}" if spec.task == "classes" else f"a number, mean {labels['mean']:.1f}"


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A table ready for an estimator.

    Attributes
    ----------
    name : name in the registry.
    X : the inputs: numbers, and text as categories.
    y : the labels, named after the target: 0 or 1, the names of classes, or numbers.
    task : ``"binary"``, ``"classes"`` or ``"number"``.
    sensitive_features : the group name of each row: a Series, or a DataFrame if several attributes were
        requested.
    card : the card: facts to know before using the data.

    Examples
    --------
    >>> from gcig.datasets.registry import load_dataset
    >>> data = load_dataset("german", sensitive="age")
    >>> data.X.shape, sorted(data.sensitive_features.unique())
    ((1000, 20), ['25 or younger', 'over 25'])
    """

    name: str
    X: pd.DataFrame
    y: pd.Series[Any]
    sensitive_features: pd.Series[str] | pd.DataFrame
    card: DatasetCard

    @property
    def task(self) -> str:
        """The kind of label."""
        return self.card.spec.task

    @classmethod
    def from_frame(
        cls,
        spec: DatasetSpec,
        frame: pd.DataFrame,
        card: DatasetCard,
        sensitive: str | Sequence[str] | None = None,
        include_sensitive: bool = True,
    ) -> Dataset:
        """Split a table that passed ``check_frame`` into inputs, labels and groups.

        The result shares no memory with ``frame``.
        """
        import pandas as pd

        if sensitive is None:
            sensitive = spec.default
        names = [sensitive] if isinstance(sensitive, str) else list(sensitive)
        if not names or len(set(names)) < len(names):
            raise InputError(
                f"must name each attribute once, got {names}. Available: {', '.join(spec.offered)}.",
                argument="sensitive",
            )
        attributes = [spec.attribute(name) for name in names]
        groups = pd.DataFrame({each.name: group_names(each, frame) for each in attributes})

        dropped: set[str] = set()
        if not include_sensitive:
            dropped.update(*(each.columns for each in attributes))
        kept = [column for column in input_columns(spec, frame) if column not in dropped]
        if not kept:
            raise InputError(
                f"must be True: without {sorted(dropped)}, dataset {spec.name!r} has no inputs.",
                argument="include_sensitive",
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
            f"  y: {self.y.name!r}, {_target(spec, self.card.labels)}",
        ]
        for _, column in pd.DataFrame(self.sensitive_features).items():
            parts = ", ".join(f"{group} ({count:,})" for group, count in column.value_counts().items())
            lines.append(f"  sensitive_features: {column.name!r}: {parts}")
        if spec.traps:
            lines.append(f"  {len(spec.traps)} known traps: print(dataset.card)")
        return "\n".join(lines)


def input_columns(spec: DatasetSpec, frame: pd.DataFrame) -> list[str]:
    """Return the names of the inputs: the declared ones, or all columns except the target."""
    if spec.inputs is not None:
        return list(spec.inputs)
    return [column for column in frame.columns if column != spec.target]


def labels(spec: DatasetSpec, frame: pd.DataFrame) -> pd.Series[Any]:
    """Return the target as 0 and 1 (the declared positive value is 1), as text, or as numbers."""
    target = frame[spec.target]
    if spec.task == "binary":
        return (target == spec.positive).astype("int64")
    return target.astype(str) if spec.task == "classes" else target.astype("float64")


def group_names(attribute: ProtectedAttribute, frame: pd.DataFrame) -> pd.Series[str]:
    """Return the group name of each row; a missing group is an error, not a group called "nan"."""
    import pandas as pd

    if attribute.groups is None:
        groups = frame[attribute.columns[0]]
    else:
        # A shallow copy, to which the function may add columns without changing the table.
        groups = pd.Series(attribute.groups(frame.copy(deep=False)), index=frame.index)
    n_missing = int(groups.isna().sum())
    if n_missing:
        raise ValueError(
            f"Protected attribute {attribute.name!r}: {n_missing:,} of {len(groups):,} rows have no group. "
            f"Drop these rows in the loader, or assign a separate group such as 'unknown'."
        )
    return groups.astype(str).rename(attribute.name)


def check_frame(spec: DatasetSpec, frame: object) -> pd.DataFrame:
    """Return the table of a loader; raise an error unless it matches its declaration."""
    import pandas as pd

    loader = f"The loader of dataset {spec.name!r}"
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(f"{loader} returned {type(frame).__name__}. It must return a pandas DataFrame.")
    unnamed = [column for column in frame.columns if not isinstance(column, str)]
    if unnamed:
        raise ValueError(f"{loader} returned columns whose names are not text: {unnamed}. Rename them.")
    repeated = frame.columns[frame.columns.duplicated()].unique().tolist()
    if repeated:
        raise ValueError(
            f"{loader} returned columns that occur twice: {repeated}. Rename or drop one of each."
        )
    derived = [column for attribute in spec.protected for column in attribute.columns]
    absent = {spec.target, *derived, *(spec.inputs or ())} - set(frame.columns)
    if absent:
        raise ValueError(f"{loader} returned no column {sorted(absent)}. It has {frame.columns.tolist()}.")
    if spec.rows is not None and len(frame) != spec.rows:
        raise ValueError(f"{loader} returned {len(frame):,} rows, but {spec.rows:,} are declared.")
    _check_target(spec, frame[spec.target])
    return frame


def _check_target(spec: DatasetSpec, target: pd.Series[Any]) -> None:
    import numpy as np
    import pandas as pd

    n_missing, n_values = int(target.isna().sum()), target.nunique()
    n_positive = int((target == spec.positive).sum())
    if n_missing:
        raise ValueError(
            f"{n_missing:,} of {len(target):,} rows of dataset {spec.name!r} have no target "
            f"{spec.target!r}. Drop them in the loader."
        )
    if spec.task == "number":
        if not pd.api.types.is_numeric_dtype(target) or not np.isfinite(target).all() or n_values < 3:
            raise ValueError(
                f"The target {spec.target!r} ({target.dtype}) of dataset {spec.name!r} has {n_values} values "
                f"in {len(target):,} rows. With task='number', it must have finite numbers, more than two."
            )
    elif spec.task == "classes" and n_values < 3:
        raise ValueError(
            f"The target {spec.target!r} of dataset {spec.name!r} has {n_values} values in {len(target):,} "
            "rows. With task='classes', it must have more than two; of two, set `positive` instead."
        )
    elif spec.task == "binary" and (n_values != 2 or n_positive == 0):
        raise ValueError(
            f"The target {spec.target!r} ({target.dtype}) of dataset {spec.name!r} has {n_values} values in "
            f"{len(target):,} rows, and {n_positive:,} rows equal positive={spec.positive!r} "
            f"({type(spec.positive).__name__}). It must have two values, one of them `positive`; for other "
            "targets, set `task`."
        )
