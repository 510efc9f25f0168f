"""Audits of files of any length."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gcig._files import hash_file
from gcig._tables import as_spelled, level_name
from gcig._validation import InputError, InputWarning
from gcig.adapters import OnnxClassifier, adapt
from gcig.adapters.boosters import booster_columns
from gcig.auditing.findings import run_audit
from gcig.auditing.result import AuditResult
from gcig.auditing.sources import FileSource, Schema, SchemaGrew, reference_source
from gcig.auditing.subject import Audited, Options, hash_model, resolve_model
from gcig.auditing.table_audit import read_earlier
from gcig.core.definition import Definition
from gcig.core.modules import Score
from gcig.data.reading import TableFile, open_table
from gcig.data.roles import Roles, assign_roles, check_positive
from gcig.metrics.arguments import check_arguments
from gcig.metrics.evaluation import check_robustness
from gcig.metrics.sample import Reference, check_favourable, reference_table
from gcig.records.audit import SMALLEST_CELL, AuditRecord

ROWS_AT_ONCE = 65_536
IN_MEMORY_ROWS = 100_000


def audit_file(
    model: Any,
    path: str | Path,
    *,
    target: str,
    sensitive: str | Sequence[str],
    positive: str | None = None,
    drop: Sequence[str] = (),
    keep_sensitive: bool = False,
    reference: Reference | None = None,
    threshold: float | None = None,
    definition: Definition | None = None,
    min_cell: int = SMALLEST_CELL,
    include_rows: bool = False,
    n_bootstrap: int = 1000,
    n_shuffles: int | None = None,
    random_state: int = 0,
    max_rows_explained: int | None = None,
    progress: bool = False,
    robustness: bool = False,
    other: Any = None,
    favourable: str | None = None,
    id_column: str | None = None,
    include_protected: bool = False,
    against: AuditRecord | AuditResult | str | Path | None = None,
    score: Score | None = None,
    preprocess: Any = None,
    name: str | None = None,
    trust_pickle: bool = False,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    kinds: Mapping[str, str] | None = None,
    group_names: Mapping[str, str] | None = None,
    rows_at_once: int = ROWS_AT_ONCE,
    in_memory_rows: int = IN_MEMORY_ROWS,
) -> AuditResult:
    """Audit the rows of a CSV, Parquet or Feather file, which may be larger than memory.

    The file is read twice, in batches: for the groups' references, and for attributions and decisions. It is
    read once more if its first batch does not contain all groups, labels and kinds of columns. Parameters
    that are not listed here are those of `gcig.audit`.

    Parameters
    ----------
    model : any
        A model that `gcig.audit` accepts, or a path.
    path : str or Path
        A CSV file with a header line (gzip is fine), or a Parquet or Feather file.
    target, positive : str
        The column with the label, and the value that is label 1; by default the second of the model's
        classes. Required if the model does not record its classes, unless the values are 0 and 1.
    sensitive : str or sequence of str
        The protected columns; several are crossed.
    drop : sequence of str
        Columns that are not inputs; needed only if the model does not record its columns.
    keep_sensitive : bool
        Whether the protected columns are inputs as well; needed only if the model does not record its
        columns.
    id_column : str, optional
        The column of identifiers, by which a reader of the page finds rows.
    separator, decimal, encoding : str, optional
        The format of a CSV file; detected by default.
    kinds : mapping of column to kind, optional
        Columns whose kind is not inferred from their entries: "number", "category", "date", "date dmy" or
        "date mdy". The categories of a gcig model are read as text by default, as in training.
    group_names : mapping of value to name, optional
        Other names for values of the protected columns, such as ``{"1": "male", "2": "female"}``; for one of
        several columns ``{"sex.1": "male"}``.
    rows_at_once : int
        Rows per batch.
    in_memory_rows : int
        A file with at most this many rows is read as a whole.

    Examples
    --------
    >>> import tempfile
    >>> import gcig
    >>> folder = Path(tempfile.mkdtemp())
    >>> data = gcig.load_dataset("german")
    >>> data.X.assign(sex=data.sensitive_features, good=data.y).to_csv(folder / "loans.csv", index=False)
    >>> model = gcig.FairXClassifier(max_epochs=5, random_state=0)
    >>> _ = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> found = audit_file(model, folder / "loans.csv", target="good", sensitive="sex", n_bootstrap=100)
    >>> found.record.subject.n_rows, [group.group for group in found.record.groups]
    (1000, ['female', 'male'])
    """
    check_arguments(trust_pickle=trust_pickle, name=name)
    check_robustness(other, robustness=robustness)
    earlier = read_earlier(against)
    model, sha256, named = resolve_model(model, trust_pickle=trust_pickle)
    if other is not None:
        other, _, _ = resolve_model(other, trust_pickle=trust_pickle)
    stream = open_for_model(model, path, separator=separator, decimal=decimal, encoding=encoding, kinds=kinds)
    named_roles: dict[str, Any] = {
        "target": target,
        "positive": positive,
        "sensitive": sensitive,
        "drop": drop,
        "keep_sensitive": keep_sensitive,
        "group_names": group_names,
    }
    roles = also = assign_roles(stream, **named_roles, known=columns_of(model, stream.names))
    if other is not None:
        also = assign_roles(stream, **named_roles, known=columns_of(other, stream.names))
        if set(also.inputs) != set(roles.inputs):
            raise InputError(
                "uses other columns than the audited model, so the two cannot be compared. Pass a model of "
                "the same columns.",
                argument="other",
            )
    mark = stream.find_decimal(roles.columns, rows_at_once)
    rows = stream.n_rows if stream.n_rows <= in_memory_rows else rows_at_once
    schema = _first_schema(stream, roles, mark, rows)

    def prepare(model: Any, roles: Roles, id_column: str | None = None) -> Audited:
        prototype = schema.prototype(roles.inputs)
        given_rows = reference_table(reference)
        adapted = adapt(model, prototype, score=score, preprocess=preprocess, reference=given_rows)
        given, names = reference_source(adapted, reference)
        return Audited(
            adapted, FileSource(stream, roles, schema, adapted, mark, rows, names, id_column), given
        )

    options = Options(
        definition=Definition() if definition is None else definition,
        threshold=threshold,
        min_cell=min_cell,
        include_rows=include_rows,
        n_bootstrap=n_bootstrap,
        n_shuffles=n_shuffles,
        random_state=random_state,
        max_rows_explained=max_rows_explained,
        progress=progress,
        robustness=robustness,
        include_protected=include_protected,
    )
    identity: dict[str, Any] = {
        "name": name or named,
        "model_sha256": sha256 or hash_model(model),
        "data_sha256": hash_file(path),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("once", InputWarning)  # every batch would repeat the warning
        while True:
            audited = replace(prepare(model, roles, id_column), **identity)
            check_positive(positive, target, schema.targets, audited.adapted.classes)
            options = replace(options, favourable=check_favourable(favourable, audited.source.classes))
            second = None if other is None else prepare(other, also)
            try:
                return AuditResult(run_audit(audited, options, other=second, earlier=earlier))
            except SchemaGrew as grew:
                schema = grew.schema


def open_for_model(
    model: Any, path: str | Path, *, kinds: Mapping[str, str] | None = None, **layout: str | None
) -> TableFile:
    """Open a file with `open_table`; for a model of gcig, read it in the same way as the training file.

    The model's categories are then text even if they hold digits, unless ``kinds`` requests another kind.
    """
    file = open_table(path, trained=getattr(model, "csv_format_", None), kinds=kinds, **layout)
    encoder = getattr(model, "encoder_", None)
    trained = getattr(encoder, "kinds_", ())
    names = getattr(encoder, "feature_names_in_", ())[: len(trained)]
    categories = {name for name, kind in zip(names, trained, strict=True) if kind == "category"}
    as_trained = dict.fromkeys(categories & set(file.names), "category")
    return replace(file, kinds={**as_trained, **file.kinds})


def columns_of(model: Any, given: Sequence[str]) -> Sequence[Any] | None:
    """Return the columns that a model records as its inputs, as they are spelled among the given ones."""
    known: Sequence[Any] | None = getattr(getattr(model, "encoder_", model), "feature_names_in_", None)
    if known is not None and not isinstance(model, OnnxClassifier):
        return known
    recorded = booster_columns(model) if known is None else known
    return None if recorded is None else as_spelled(recorded, given)


def _first_schema(stream: TableFile, roles: Roles, decimal: str, rows: int) -> Schema:
    """Read batches until they contain two groups, two labels and the positive label; return their schema."""
    schema = Schema()
    for frame in stream.batches(roles.columns, decimal=decimal, rows=rows):
        schema = schema.grown(frame, roles)
        found = {level_name(value) for value in schema.targets}
        if len(schema.groups) > 1 and len(found) > 1 and roles.positive in (None, *found):
            break
    return schema
