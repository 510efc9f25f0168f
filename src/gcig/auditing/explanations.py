"""Explanations of single rows of any model, relative to every group and with the nearest people of each."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from gcig._arguments import InputError, check_argument, is_flag, listed
from gcig._files import write_if_named
from gcig._version import __version__
from gcig.adapters import AdaptedModel
from gcig.adapters.base import last_step
from gcig.auditing.audits import columns_of
from gcig.auditing.rows import (
    NEIGHBOUR_ROWS,
    Batch,
    GroupExplainer,
    RowDescriber,
    add_neighbours,
    protected_columns,
)
from gcig.auditing.subject import describe_reference, resolve_model
from gcig.core.modules import Score
from gcig.metrics.checked import (
    Reference,
    favourable_classes,
    read_labels,
    reference_table,
)
from gcig.metrics.plan import Plan, labels_of_decisions
from gcig.metrics.planning import adapt_for, check_reference, make_plan
from gcig.metrics.samples import row_keys
from gcig.records.explanation import ExplanationRecord
from gcig.records.formatting import html_table, shown
from gcig.records.options import MeasureOptions
from gcig.tables.check import check_features, check_groups
from gcig.tables.frames import level_name
from gcig.tables.read import open_table
from gcig.tables.roles import assign_roles, check_positive

if TYPE_CHECKING:
    from gcig.report.displays import WaterfallDisplay

_IDENTIFIERS = ("id", "identifier", "key", "row_id")  # names of a column of identifiers, in lower case


def explain(
    model: Any,
    rows: Any,
    y: ArrayLike | None = None,
    *,
    sensitive_features: Any = None,
    reference: Reference | None = None,
    identifiers: Sequence[Any] | None = None,
    classes: Sequence[Any] | None = None,
    neighbours: bool = True,
    include_protected: bool = False,
    score: Score | None = None,
    preprocess: Any = None,
    name: str | None = None,
    trust_pickle: bool = False,
    **options: Any,
) -> ExplainResult:
    """Explain single rows of any model relative to the typical member of every group.

    Parameters
    ----------
    model : any
        A model that `gcig.adapt` accepts, or the path of a saved one (see `open_model`).
    rows : table of n rows, dict or list of dicts
        The rows to explain, as the model takes them; a dict is one row.
    y : array of shape (n,), optional
        Their labels: a row is compared with references of the same label. By default the predicted labels.
    sensitive_features : array or table of n rows, optional
        Their groups, for models that need them to predict.
    reference : tuple (X, y, sensitive_features), optional
        The rows from which the groups' references are estimated and among which neighbours are found.
        Required unless the model was trained with gcig and therefore has references of its own.
    identifiers : sequence of n names, optional
        Names of the rows; by default the index of a table, or positions.
    classes : sequence of names, optional
        Names of the classes; by default the model's.
    neighbours : bool
        Whether to explain also the nearest reference rows, one per group and decision.
    include_protected : bool
        Whether to show the group of a row, and entries and attributions of the columns that reveal it.
    score, preprocess, name, trust_pickle
        As in `gcig.audit`.
    **options
        Fields of `gcig.metrics.MeasureOptions`: ``attribution``, ``definition``, ``legitimate``, ``task``,
        ``threshold``, ``favourable``, ``min_cell`` and ``random_state``. Groups with fewer than ``min_cell``
        reference rows of a label are not compared, and neighbours are shown only if at least this many rows
        share their group and decision.

    Returns
    -------
    ExplainResult
        ``.record``, ``.frame``, ``.plot()``, ``.to_html(path)``, ``.to_json(path)``.

    Examples
    --------
    >>> import gcig
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> data = gcig.load_dataset("german", include_sensitive=False)
    >>> X, y, sex = data.X[["duration", "credit_amount", "age"]], data.y, data.sensitive_features
    >>> forest = RandomForestClassifier(20, max_depth=4, random_state=0).fit(X, y)
    >>> found = explain(forest, X.iloc[[17]], reference=(X, y, sex))
    >>> [reason.column for reason in found.record.rows[0].columns][:1], len(found.record.rows[0].neighbours)
    (['age'], 4)
    """
    favourable = options.pop("favourable", None)
    check_argument("trust_pickle", trust_pickle, "True or False", is_flag)
    chosen = MeasureOptions(measures=[], n_bootstrap=0, **options)
    check_argument(
        "identifiers",
        identifiers,
        "None or a sequence with the name of each row",
        lambda value: value is None or (len(value) >= 0 and not isinstance(value, str | bytes)),
    )
    for flag, value in (("neighbours", neighbours), ("include_protected", include_protected)):
        check_argument(flag, value, "True or False", is_flag)
    check_argument("name", name, "None or a text", lambda value: value is None or isinstance(value, str))
    model, _, named = resolve_model(model, trust_pickle=trust_pickle)
    given = reference_table(reference)
    rows = _as_table(rows, given)
    first, second = (rows, None) if given is None else (given, rows)
    labels_of_reference = None if reference is None else reference[1]
    adapted = adapt_for(model, first, labels_of_reference, chosen, score, preprocess, second)
    model = adapted.model if isinstance(model, AdaptedModel) else model
    plan, people = _references(adapted, reference, chosen)
    known = tuple(map(str, plan.classes if classes is None else classes))
    plan = replace(plan, favourable=favourable_classes(favourable, plan.task.key, known, model))
    inputs = adapted.encode(rows, sensitive_features)
    outputs = adapted.predict(rows, sensitive_features, encoded=inputs, threshold=chosen.threshold)
    if y is None:
        codes, source = labels_of_decisions(plan.task.key, outputs.decisions), "predicted"
    else:
        codes, source = read_labels(y, len(inputs), plan.task.key, plan.classes, part=True)[0], "given"
    explainer = GroupExplainer(plan, _compared(plan, codes, given=reference is not None))
    groups = None
    if sensitive_features is not None:
        groups = check_groups(sensitive_features, n_rows=len(inputs), names=plan.groups.names)
    hidden: frozenset[str] = frozenset()
    if not include_protected:
        attributes = groups.attributes if groups else plan.groups.attributes if people else ()
        hidden = protected_columns(model, people, attributes)
    describer = RowDescriber(explainer, known, hidden, include_protected)
    index = rows.index if isinstance(rows, pd.DataFrame) else range(len(codes))
    names = check_identifiers(identifiers, len(codes)) or [str(each) for each in index]
    unknown = np.full(len(codes), -1)
    batch = Batch(rows, sensitive_features, inputs, codes, groups.codes if groups else unknown, names)
    described = describer.describe(batch, outputs, label_source=source)
    table = batch.frame
    if neighbours and people is not None and table is not None and plan.task.key != "number":
        few = np.sort(np.random.default_rng(chosen.seed).permutation(len(people))[:NEIGHBOUR_ROWS])
        described = add_neighbours(described, table, people.take(few), describer)
    numbers = plan.task.key == "number"
    return ExplainResult(
        ExplanationRecord(
            model_name=str(name or named or getattr(model, "__name__", type(model).__name__)),
            model_kind=adapted.kind,
            explanation=plan.attribution_name,
            reference=describe_reference(adapted, given=reference is not None),
            groups=explainer.groups,
            positive="" if numbers else known[-1],
            negative="" if numbers else known[0],
            favourable="" if numbers else ", ".join(known[code] for code in plan.favourable),
            probabilistic=adapted.probabilistic,
            threshold=plan.threshold,
            definition={**plan.definition.to_dict(), "attribution": plan.attribution_name},
            rows=described,
            hidden=tuple(sorted(describer.hidden & set(explainer.columns))),
            suppressed=tuple(each for each in plan.groups.names if each not in explainer.groups),
            min_cell=chosen.min_cell,
            versions={"gcig": __version__},
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        )
    )


def _references(
    adapted: AdaptedModel, reference: Reference | None, options: MeasureOptions
) -> tuple[Plan, Batch | None]:
    """Return the plan with the references, and the reference rows unless the model has its own references."""
    if reference is None:
        if adapted.baselines is None:
            raise InputError(
                "is missing: this model has no references of its own. Pass (X, y, sensitive_features) of "
                "the rows that it was trained on, or of other rows with labels and groups.",
                argument="reference",
            )
        return make_plan(adapted, options, None, None), None
    rows = check_reference(adapted, reference, options)
    keys = row_keys(None, len(rows), options.seed)
    plan = make_plan(adapted, options, rows, keys, given=True, disjoint=True)
    assert rows.labels is not None
    return plan, Batch(rows.table, rows.sensitive, rows.inputs, rows.labels, rows.groups.codes)


def _compared(plan: Plan, labels: Any, *, given: bool) -> tuple[int, ...]:
    """Return the groups that have references for the labels of all explained rows."""
    least = max(1, plan.options.min_cell)
    enough = np.asarray(plan.counts) >= least if plan.means is None else plan.means.defined.cpu().numpy()
    compared = tuple(np.flatnonzero(enough[np.unique(plan.cells(labels))].all(axis=0)).tolist())
    if len(compared) > 1:
        return compared
    what = "has" if given else "is missing: the model was trained on"
    raise InputError(
        f"{what} fewer than two groups with {least} rows of each label, so there are no groups to compare "
        f"with. "
        "Pass (X, y, sensitive_features) of more rows, merge groups, or lower min_cell.",
        argument="reference",
    )


def check_identifiers(identifiers: Sequence[Any] | None, n_rows: int) -> list[str] | None:
    """Return the names of rows as text, or None if there are none."""
    if identifiers is None:
        return None
    if len(identifiers) != n_rows:
        raise InputError(
            f"has {len(identifiers)} names for {n_rows} rows. Pass one per row.", argument="identifiers"
        )
    return [level_name(each) for each in identifiers]


def _as_table(rows: Any, reference: Any) -> Any:
    """Return rows that are dicts as a table with the order and the categories of the ``reference``."""
    listed_dicts = isinstance(rows, list | tuple) and rows and all(isinstance(row, Mapping) for row in rows)
    if not listed_dicts and (not isinstance(rows, Mapping) or hasattr(rows, "shape")):
        return rows
    table = check_features(rows)
    if not isinstance(reference, pd.DataFrame) or set(table.columns) != set(reference.columns):
        return table
    kinds = {name: kind for name, kind in reference.dtypes.items() if isinstance(kind, pd.CategoricalDtype)}
    return table[list(reference.columns)].astype(kinds)


@dataclass(frozen=True, eq=False)
class ExplainResult:
    """The explained rows that `gcig.explain` returns; ``record`` holds everything as plain values.

    Examples
    --------
    >>> import gcig
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = gcig.load_dataset("german", include_sensitive=False)
    >>> X = data.X[["duration", "age"]]
    >>> reference = (X, data.y, data.sensitive_features)
    >>> found = gcig.explain(LogisticRegression().fit(X, data.y), X[:1], reference=reference)
    >>> found.frame.columns[:3].tolist(), "<!DOCTYPE html>" in found.to_html()
    (['row', 'role', 'decision'], True)
    """

    record: ExplanationRecord

    @property
    def frame(self) -> pd.DataFrame:
        """One line per row, neighbour, group and column of the table."""
        lines = [
            {
                "row": owner.row,
                "role": each.role or "explained",
                "decision": each.decision,
                "score": each.score,
                "label": each.label,
                "compared_with": group,
                "column": reason.column,
                "value": reason.value,
                "attribution": attribution,
                "difference": reason.difference,
                "disparity": each.disparity,
            }
            for owner in self.record.rows
            for each in (owner, *owner.neighbours)
            for reason in each.columns
            for group, attribution in reason.attributions.items()
        ]
        return pd.DataFrame(lines)

    def plot(self, row: int = 0, *, n_columns: int = 10, ax: Any = None) -> WaterfallDisplay:
        """Draw the waterfall of one explained row under every group's reference."""
        from gcig.report.displays import WaterfallDisplay

        return WaterfallDisplay.from_row(self.record.rows[row], n_columns=n_columns, ax=ax)

    def to_html(self, path: str | Path | None = None) -> str:
        """Return one self-contained HTML page; write it to ``path`` if given."""
        from gcig.report.explanation_page import explanation_page

        return write_if_named(path, explanation_page(self.record), private=True)

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the record as JSON; write it to ``path`` if given."""
        return write_if_named(path, self.record.to_json(indent=1) + "\n", private=True)

    def __str__(self) -> str:
        lines = ([f"Row {row.row}:", *(f"- {line}" for line in row.describe())] for row in self.record.rows)
        return "\n".join(line for of_row in lines for line in of_row)

    def __repr__(self) -> str:
        found = self.record
        return f"<ExplainResult of {len(found.rows)} rows of {found.model_name}>"

    def _repr_html_(self) -> str:
        row = self.record.rows[0]
        lines = [
            (each.column, each.value, *(shown(value) for value in each.attributions.values()))
            for each in row.shown[:10]
        ]
        sentences = "".join(f"<p>{escape(line)}</p>" for line in row.describe())
        header = (f"row {row.row}", "value", *(f"compared with {group}" for group in self.record.groups))
        return sentences + html_table(header, lines)


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
    sep: str | None = None,
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
    file = open_table(path, sep=sep, decimal=decimal, encoding=encoding, kinds=kinds, model=model)
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
            group_names=group_names or getattr(model, "group_names_", None),
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
    needed = dict.fromkeys([*inputs, *([target] if target else []), *sensitive])
    identifier = [column] if column and column not in needed else []
    frame = file.read(list(needed), unchanged=identifier)
    chosen = _positions(frame, ids, rows, column, Path(path))
    names = frame.iloc[chosen][column].map(level_name).tolist() if column else [str(i) for i in chosen]
    table = frame[list(inputs)]
    labels = groups = reference = named_classes = None
    if target is not None:
        values = frame[target]
        distinct = values.dropna().unique()
        recorded = getattr(model, "classes_", getattr(model, "classes", None))
        if positive is not None or recorded is None or len(recorded) == 2:
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
