"""Frozen records of results, to and from JSON.

They hold plain Python values only, so that a report can read them without torch, scikit-learn or pandas.
A number that is not defined is NaN in Python and ``null`` in JSON.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from html import escape
from types import UnionType
from typing import Any, Self, get_args, get_origin, get_type_hints

__all__ = ["Evaluation", "GroupRates", "Record"]


@dataclass(frozen=True, eq=False)
class Record:
    """Base of the records: conversion to and from plain dictionaries and JSON.

    Two records are equal when their dictionaries are, so NaN equals NaN.
    """

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: NaN becomes None, tuples become lists."""
        return {f.name: _plain(getattr(self, f.name), f.name) for f in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The record that ``to_dict`` was called on; unknown, missing and mistyped entries are errors."""
        if not isinstance(data, Mapping):
            raise ValueError(f"{cls.__name__}: expected a mapping, received {type(data).__name__}.")
        hints = get_type_hints(cls)
        names = [f.name for f in fields(cls)]
        for problem, found in (("unknown", set(data) - set(names)), ("missing", set(names) - set(data))):
            if found:
                listed = ", ".join(sorted(map(str, found)))
                raise ValueError(
                    f"{cls.__name__}: {problem} entries: {listed}. Was it written by another version?"
                )
        return cls(**{name: _typed(hints[name], data[name], f"{cls.__name__}.{name}") for name in names})

    def to_json(self, *, indent: int | None = None) -> str:
        """The record as one JSON object."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The record that ``to_json`` was called on."""
        return cls.from_dict(json.loads(text))

    def scalars(self) -> dict[str, Any]:
        """The fields that are single values: one row of a results table."""
        pairs = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {name: value for name, value in pairs if value is None or isinstance(value, str | int | float)}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record) or type(other) is not type(self):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.to_json())


@dataclass(frozen=True, eq=False)
class GroupRates(Record):
    """Rates of one group; a rate whose condition holds for no row of the group is NaN.

    Attributes
    ----------
    group : name of the group.
    n_rows : number of rows.
    base_rate : share of rows with label 1.
    selection_rate : share of rows predicted 1.
    tpr, fpr : share predicted 1 among the rows with label 1 and among those with label 0.
    ppv : share with label 1 among the rows predicted 1.
    mean_score : mean predicted probability of label 1.
    calibration : ``mean_score - base_rate``, signed (positive: the model promises too much).
    calibration_error : expected calibration error over ten bins of equal width.
    """

    group: str
    n_rows: int
    base_rate: float
    selection_rate: float
    tpr: float
    fpr: float
    ppv: float
    mean_score: float = math.nan
    calibration: float = math.nan
    calibration_error: float = math.nan


@dataclass(frozen=True, eq=False)
class Evaluation(Record):
    """Everything that is measured of one model on one set of rows.

    The fields that are single values are the columns of a results table (``scalars``). Fields that begin
    with ``gcig``, ``completeness``, ``undefined_rows`` and ``effective_columns`` are NaN or None where only
    predictions were evaluated.

    Attributes
    ----------
    n_rows, threshold : rows evaluated; probability from which a row is predicted 1 (NaN where the model
        has a decision rule of its own).
    f1, auc, accuracy, balanced_accuracy, log_loss : utility, for label 1.
    selection_rate : share of rows predicted 1.
    eo_gap, eo_worst : sum and larger of ``delta_tpr`` and ``delta_fpr``.
    eo_noise_floor, eo_worst_noise_floor : what an exactly fair model with the same rates and cell sizes
        would score on average.
    delta_tpr, delta_fpr : largest minus smallest rate over the groups.
    demographic_parity_difference, selection_rate_ratio : largest minus smallest, and smallest over
        largest, selection rate.
    gcig, gcig_low, gcig_high : GCIG by ``definition``, and its 95 % bootstrap interval over rows with the
        baselines fixed.
    gcig_l2, gcig_original, gcig_l2_original : l2 norm on encoded columns; l1 and l2 on original columns.
    gcig_label0, gcig_label1 : means over the rows of each label, by ``definition``.
    completeness : mean of ``|sum of attributions - score difference|`` over mean ``|score difference|``.
    undefined_rows : rows whose attributions vanish, left out of every mean above.
    effective_columns : exp of the entropy of the mean absolute normalised attribution (encoded columns).
    collapsed : one class predicted for 99.5 % of the rows or more, or an AUC under 0.55.
    groups : rates of each group.
    gcig_groups : GCIG over the rows of each group.
    gcig_columns, gcig_columns_original : mean contribution of each column to the disparity.
    definition : the choices behind ``gcig``.
    """

    n_rows: int
    threshold: float
    f1: float
    auc: float
    accuracy: float
    balanced_accuracy: float
    log_loss: float
    selection_rate: float
    eo_gap: float
    eo_worst: float
    eo_noise_floor: float
    eo_worst_noise_floor: float
    delta_tpr: float
    delta_fpr: float
    demographic_parity_difference: float
    selection_rate_ratio: float
    collapsed: bool
    groups: tuple[GroupRates, ...]
    gcig: float = math.nan
    gcig_low: float = math.nan
    gcig_high: float = math.nan
    gcig_l2: float = math.nan
    gcig_original: float = math.nan
    gcig_l2_original: float = math.nan
    gcig_label0: float = math.nan
    gcig_label1: float = math.nan
    completeness: float = math.nan
    undefined_rows: int | None = None
    effective_columns: float = math.nan
    gcig_groups: Mapping[str, float] = field(default_factory=dict)
    gcig_columns: Mapping[str, float] = field(default_factory=dict)
    gcig_columns_original: Mapping[str, float] = field(default_factory=dict)
    definition: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        rows = [(name, _shown(value)) for name, value in self.scalars().items()]
        width = max(len(name) for name, _ in rows)
        lines = [*(f"{name:<{width}}  {value}" for name, value in rows), ""]
        header, *body = self._group_table()
        widths = [max(len(row[i]) for row in (header, *body)) for i in range(len(header))]
        for row in (header, *body):
            cells = (
                cell.ljust(w) if i == 0 else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            lines.append("  ".join(cells).rstrip())
        if self.collapsed:
            lines.append(
                "The model has collapsed: it predicts one class only, or ranks rows no better than chance."
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        scalars = [(name, _shown(value)) for name, value in self.scalars().items()]
        header, *body = self._group_table()
        return _html_table(("Evaluation", ""), scalars) + _html_table(header, body)

    def _group_table(self) -> list[tuple[str, ...]]:
        """Header and one line per group: the rates, and GCIG where it was measured."""
        names = [f.name for f in fields(GroupRates)]
        table: list[tuple[str, ...]] = [(*names, "gcig")] if self.gcig_groups else [tuple(names)]
        for rates in self.groups:
            cells = tuple(_shown(getattr(rates, name)) for name in names)
            gcig = (_shown(self.gcig_groups.get(rates.group, math.nan)),) if self.gcig_groups else ()
            table.append((*cells, *gcig))
        return table


def _plain(value: Any, name: str) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): _plain(item, name) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item, name) for item in value]
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    if value is None or isinstance(value, str | bool | int):
        return value
    raise TypeError(f"{name}: a record holds plain Python values, received {type(value).__name__}.")


def _typed(hint: Any, value: Any, name: str) -> Any:
    """``value`` from JSON as the type that a field declares."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is UnionType:  # the records use `X | None` alone
        return None if value is None else _typed(arguments[0], value, name)
    if hint is float and value is None:
        return math.nan
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if hint in (bool, str) and isinstance(value, hint):
        return value
    if origin is tuple and isinstance(value, list):
        return tuple(_typed(arguments[0], item, name) for item in value)
    if origin is Mapping and isinstance(value, Mapping):
        return {str(key): _typed(arguments[1], item, name) for key, item in value.items()}
    if isinstance(hint, type) and issubclass(hint, Record):
        return hint.from_dict(value)
    raise ValueError(f"{name}: expected {getattr(hint, '__name__', hint)}, received {type(value).__name__}.")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "undefined"
    if isinstance(value, float):
        return f"{value:.1e}" if 0 < abs(value) < 5e-4 else f"{value:.4f}"
    return str(value)


def _html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with every cell escaped: group and column names come from users' files."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
