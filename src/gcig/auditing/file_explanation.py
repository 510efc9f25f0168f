"""Explanations of chosen rows of a file, with the whole file as the reference."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gcig._tables import level_name, listed
from gcig._validation import InputError
from gcig.adapters.base import last_step
from gcig.auditing.file_audit import columns_of, open_for_model
from gcig.auditing.row_explanation import ExplainResult, explain
from gcig.auditing.subject import resolve_model
from gcig.data.roles import assign_roles, check_positive

_IDENTIFIERS = ("id", "identifier", "key", "row_id")  # names of a column of identifiers, in lower case


def explain_file(
    model: Any,
    path: str | Path,
    *,
    ids: Sequence[str] = (),
    rows: Sequence[int] = (),
    id_column: str | None = None,
    target: str | None = None,
    positive: str | None = None,
    sensitive: Sequence[str] = (),
    drop: Sequence[str] = (),
    keep_sensitive: bool = False,
    trust_pickle: bool = False,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    kinds: Mapping[str, str] | None = None,
    group_names: Mapping[str, str] | None = None,
    **options: Any,
) -> ExplainResult:
    """Explain rows of a file, chosen by identifier (``ids``) or by position (``rows``).

    Parameters are those of `audit_file` and `gcig.explain`. If target and sensitive are named, the file is
    the reference, which is required for neighbours and for models without references of their own.
    """
    model, _, named = resolve_model(model, trust_pickle=trust_pickle)
    file = open_for_model(model, path, separator=separator, decimal=decimal, encoding=encoding, kinds=kinds)
    if (target is None) != (not sensitive):
        raise InputError("Name both the target and the protected attribute, or neither.")
    known = columns_of(model, file.names)
    if target is not None:
        roles = assign_roles(
            file,
            target=target,
            positive=positive,
            sensitive=sensitive,
            drop=drop,
            keep_sensitive=keep_sensitive,
            known=known,
            group_names=group_names,
        )
        inputs = roles.inputs
    elif known is None or not hasattr(last_step(model), "baselines_"):
        raise InputError(
            "is needed: only models of gcig have references of their own. Name the target and the protected "
            "attribute, so that the rows of the file become the references.",
            argument="target",
        )
    else:
        inputs = tuple(map(str, known))
    column = _id_column(file.names, id_column, inputs) if ids or id_column else None
    needed = [*inputs, *([target] if target else []), *sensitive, *([column] if column else [])]
    frame = file.read(list(dict.fromkeys(needed))).frame
    chosen = _positions(frame, ids, rows, column, Path(path))
    names = frame.iloc[chosen][column].map(level_name).tolist() if column else [str(i) for i in chosen]
    table = frame[list(inputs)]
    labels = groups = reference = named_classes = None
    if target is not None:
        values = frame[target]
        distinct = values.dropna().unique()
        recorded = getattr(model, "classes_", getattr(model, "classes", None))
        check_positive(positive, target, distinct, recorded)
        named_classes = roles.named_classes(distinct)
        labels = values if positive is None else (values.map(level_name) == positive).astype("int64")
        protected = roles.protected(frame)
        groups = protected if len(sensitive) > 1 else protected[sensitive[0]]
        reference = (table, labels, groups)
    return explain(
        model,
        table.iloc[chosen],
        None if labels is None else labels.iloc[chosen],
        sensitive_features=None if groups is None else groups.iloc[chosen],
        reference=reference,
        identifiers=names,
        classes=named_classes,
        name=options.pop("name", None) or named,
        **options,
    )


def _id_column(names: Sequence[str], given: str | None, inputs: Sequence[str]) -> str:
    """Return the column of identifiers: the given one, or one whose name suggests it."""
    if given is not None:
        if given not in names:
            raise InputError(
                f"is {given!r}, but the file has no such column. Its columns are {listed(names, 30)}.",
                argument="id_column",
            )
        return given
    found = [each for each in names if each.lower() in _IDENTIFIERS or each.lower().endswith("_id")]
    found = [each for each in found if each not in inputs] or found
    if not found:
        raise InputError(
            f"is needed: no column is called id. The columns are {listed(names, 30)}.", argument="id_column"
        )
    return found[0]


def _positions(
    frame: pd.DataFrame, ids: Sequence[str], rows: Sequence[int], column: str | None, path: Path
) -> list[int]:
    """Return the positions of the chosen rows."""
    chosen = list(rows)
    if any(not 0 <= place < len(frame) for place in rows):
        raise InputError(f"{path} has rows 0 to {len(frame) - 1}. Choose positions among them.")
    if column is not None:
        known = frame[column].map(level_name)
        for name in ids:
            found = (known == name).to_numpy().nonzero()[0].tolist()
            if not found:
                raise InputError(
                    f"No row of {path} has the identifier {name!r} in column {column!r}. Check it, or name "
                    "another column of identifiers."
                )
            chosen += found
    if not chosen:
        raise InputError("No row is chosen. Name rows by identifier (--id) or by position (--row).")
    return list(dict.fromkeys(chosen))
