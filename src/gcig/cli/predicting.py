"""Predictions for the parts of a table, and what is checked before the first of them."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import pandas as pd

from gcig._tables import InputWarning, level_name, listed
from gcig._warnings import warn_caller
from gcig.cli.guessing import did_you_mean
from gcig.cli.predict import ADDED
from gcig.data.encoding import UnseenValuesWarning
from gcig.data.reading import TableFile, TablePart

__all__ = ["check_plan", "predicted_parts"]

_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?")


def check_plan(
    estimator: Any,
    stream: TableFile,
    *,
    ids: Sequence[str],
    keep: bool,
    sensitive: Sequence[str],
    out: Path | None,
) -> list[str]:
    """The columns to hand through; an error when the file or the options do not fit the model."""
    inputs = list(estimator.encoder_.feature_names_in_)
    if absent := [name for name in inputs if name not in stream.names]:
        raise click.ClickException(
            f"{stream.path} lacks {len(absent)} of the {len(inputs)} columns that the model was trained "
            f"with: {listed(absent)}. It has: {listed(stream.names, 20)}."
        )
    for option, names in (("--id", ids), ("--sensitive", sensitive)):
        for name in names:
            if name not in stream.names:
                hint = did_you_mean(name, stream.names, there="It has")
                raise click.ClickException(f"{stream.path} has no column '{name}' ({option}). {hint}")
    if estimator.needs_groups_to_predict and not sensitive:
        raise click.ClickException(
            f"This model ({estimator.method_key}) needs the group of every row to predict: name its "
            f"column with --sensitive. Training had the groups {listed(estimator.groups_)}."
        )
    passed = [name for name in stream.names if name] if keep else list(dict.fromkeys(ids))
    if clash := [name for name in passed if name in ADDED]:
        raise click.ClickException(
            f"{stream.path} has a column '{clash[0]}', which is a name of the result: rename it, or say "
            "what to keep with --id instead of --keep."
        )
    if out is not None and out.exists() and out.samefile(stream.path):
        raise click.ClickException(f"--out {out} is the input itself: choose another name.")
    return passed


def predicted_parts(
    estimator: Any, stream: TableFile, passed: Sequence[str], sensitive: Sequence[str], rows: int
) -> Iterator[pd.DataFrame]:
    """What is written for each part: columns handed through, probability and decision."""
    encoder = estimator.encoder_
    names = encoder.feature_names_in_
    kinds = dict(zip(names, getattr(encoder, "kinds_", ["number"] * len(names)), strict=True))
    groups = list(sensitive) if estimator.needs_groups_to_predict else []
    wanted = [*passed, *(name for name in groups if name not in passed)]
    unforeseen: Counter[tuple[str, str]] = Counter()
    formulas: Counter[str] = Counter()
    for part in stream.parts(kinds, wanted, rows=rows):
        found = _predict(estimator, part, groups, unforeseen)
        formulas.update(_formula_cells(part.passed[list(passed)]))
        yield pd.concat([part.passed[list(passed)], found], axis=1)
    _warn(unforeseen, formulas)


def _predict(
    estimator: Any, part: TablePart, groups: Sequence[str], unforeseen: Counter[tuple[str, str]]
) -> pd.DataFrame:
    extra: dict[str, Any] = {}
    if groups:
        extra["sensitive_features"] = _known_groups(part.passed[list(groups)], estimator.groups_)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        probability = estimator.predict_proba(part.inputs, **extra)[:, 1]
    _tally(caught, unforeseen)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same once more
        decision = [level_name(value) for value in estimator.predict(part.inputs, **extra).tolist()]
    return pd.DataFrame(dict(zip(ADDED, (probability, decision), strict=True)), index=part.inputs.index)


def _known_groups(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Groups as training called them: a file of text has "1.0" or "true" where training had 1 or True."""
    known = {level for name in names for level in (name, *name.split(" & "))}
    several = frame.shape[1] > 1

    def renamed(attribute: str, cell: Any) -> Any:
        if not isinstance(cell, str):
            return cell
        text = cell.strip()
        forms = [text, text.capitalize()]
        if _NUMBER.fullmatch(text):
            forms.append(level_name(float(text.replace(",", "."))))
        found = (form for form in forms if (f"{attribute}={form}" if several else form) in known)
        return next(found, text or None)

    columns = {
        name: frame[name].map({cell: renamed(str(name), cell) for cell in frame[name].dropna().unique()})
        for name in frame.columns
    }
    return pd.DataFrame(columns, index=frame.index)


def _tally(caught: Sequence[warnings.WarningMessage], unforeseen: Counter[tuple[str, str]]) -> None:
    """Add up warnings that count rows; pass others on at once."""
    for each in caught:
        if isinstance(each.message, UnseenValuesWarning):
            for column, rows in each.message.rows.items():
                unforeseen[each.message.treatment, column] += rows
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def _formula_cells(frame: pd.DataFrame) -> Mapping[str, int]:
    """Cells of text that a spreadsheet would run, by column."""
    found = {}
    for name in frame.columns:
        column = frame[name]
        if pd.api.types.is_string_dtype(column.dtype):
            text = column.fillna("").astype(str)
            risky = text.str.match(_FORMULA) & ~text.str.fullmatch(_NUMBER)
            found[str(name)] = int(risky.sum())
    return found


def _warn(unforeseen: Counter[tuple[str, str]], formulas: Counter[str]) -> None:
    by_treatment: dict[str, dict[str, int]] = {}
    for (treatment, column), rows in unforeseen.items():
        by_treatment.setdefault(treatment, {})[column] = rows
    for treatment, counts in by_treatment.items():
        warn_caller(UnseenValuesWarning(treatment, counts))
    for name, cells in formulas.items():
        if cells:
            warn_caller(
                f"{cells} cells of column {name!r} begin as a formula does (=, +, -, @) and were passed on "
                "unchanged: do not open the result in a spreadsheet unless you trust them.",
                InputWarning,
            )
