"""Auditing a file of any length."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gcig._files import hash_file
from gcig._tables import level_name
from gcig._validation import InputError, InputWarning, check_groups
from gcig.adapters import adapt
from gcig.auditing.engine import Options, run_audit
from gcig.auditing.file_source import FileSource, Roles, Schema, SchemaGrew
from gcig.auditing.fingerprint import hash_model
from gcig.auditing.result import AuditResult
from gcig.auditing.table_audit import (
    assemble,
    describe,
    given_reference,
    reference_words,
    resolve_model,
    telling_columns,
)
from gcig.auditing.watching import bars, no_bars
from gcig.core.definition import Definition
from gcig.core.modules import Score
from gcig.data.reading import TableFile, open_table
from gcig.metrics.sample import Reference, reference_table

__all__ = ["audit_file"]

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
    include_rows: bool = False,
    n_bootstrap: int = 1000,
    n_shuffles: int | None = None,
    random_state: int = 0,
    max_rows_explained: int | None = None,
    progress: bool = False,
    score: Score | None = None,
    name: str | None = None,
    trust_pickle: bool = False,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    rows_at_once: int = ROWS_AT_ONCE,
    in_memory_rows: int = IN_MEMORY_ROWS,
) -> AuditResult:
    """Audit the rows of a CSV or Parquet file, which may be larger than memory.

    The file is gone through twice, in batches: for the groups' baselines, and for attributions and decisions.
    (It is gone through once more where its first batch did not show all groups, labels or kinds of columns.)
    What is not listed here is as in ``gcig.audit``.

    Parameters
    ----------
    model : what ``gcig.audit`` takes, also a path.
    path : a CSV file with a header line, or a Parquet file.
    target, positive : the column with the label, and the value that is label 1; by default the second of the
        model's classes, or of the two values in sorted order.
    sensitive : the protected columns; several are crossed.
    drop : columns that are no inputs. They matter where the model does not know its columns.
    keep_sensitive : whether the protected columns are inputs as well; likewise.
    separator, decimal, encoding : how a CSV file is written; by default that is found out.
    rows_at_once : rows of a batch.
    in_memory_rows : a file with no more rows is read as a whole.

    Examples
    --------
    >>> import tempfile
    >>> import gcig
    >>> folder = Path(tempfile.mkdtemp())
    >>> data = gcig.load_dataset("german")
    >>> data.X.assign(sex=data.sensitive_features, good=data.y).to_csv(folder / "loans.csv", index=False)
    >>> model = gcig.FairXClassifier(random_state=0)
    >>> _ = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> found = audit_file(model, folder / "loans.csv", target="good", sensitive="sex", n_bootstrap=100)
    >>> found.record.subject.n_rows, [group.group for group in found.record.groups]
    (1000, ['female', 'male'])
    """
    model, sha256, named = resolve_model(model, trust_pickle=trust_pickle)
    stream = open_table(path, separator=separator, decimal=decimal, encoding=encoding)
    protected = (sensitive,) if isinstance(sensitive, str) else tuple(sensitive)
    roles = _find_roles(model, stream, target, positive, protected, drop, keep_sensitive=keep_sensitive)
    options = Options(
        definition=definition or Definition(columns="original"),
        threshold=threshold,
        include_rows=include_rows,
        n_bootstrap=n_bootstrap,
        n_shuffles=n_shuffles,
        random_state=random_state,
        max_rows_explained=max_rows_explained,
    )
    mark = stream.find_decimal(roles.columns, rows_at_once)
    whole = stream.n_rows <= in_memory_rows
    rows = stream.n_rows if whole else rows_at_once
    schema = _first_schema(stream, roles, mark, rows)
    watch = bars if progress else no_bars
    with warnings.catch_warnings():
        warnings.simplefilter("once", InputWarning)  # the same would be said of every batch
        while True:
            adapted = adapt(
                model, schema.prototype(roles.inputs), score=score, reference=reference_table(reference)
            )
            _check_positive(positive, adapted.classes)
            given, names = given_reference(adapted, reference)
            source = FileSource(stream, roles, schema, adapted, mark, rows, names)
            try:
                findings = run_audit(adapted, source, given, options, watch)
                break
            except SchemaGrew as grew:
                schema = grew.schema
    subject = describe(
        adapted,
        findings,
        source,
        name=name or named,
        model_sha256=sha256 or hash_model(model),
        data_sha256=hash_file(path),
        reference=reference_words(adapted, given=reference is not None),
        threshold=threshold,
    )
    first = next(source.frames())
    groups = check_groups(first[list(protected)], n_rows=len(first), names=source.group_names)
    return AuditResult(assemble(subject, findings, telling_columns(first[list(roles.inputs)], groups)))


def _find_roles(
    model: Any,
    stream: TableFile,
    target: str,
    positive: str | None,
    sensitive: tuple[str, ...],
    drop: Sequence[str],
    *,
    keep_sensitive: bool,
) -> Roles:
    """The model's own columns, where it knows them; else all that have no other role."""
    for role, names in (("target", (target,)), ("sensitive", sensitive), ("drop", tuple(drop))):
        if absent := [each for each in names if each not in stream.names]:
            raise InputError(
                f"{role}: {stream.path} has no column {', '.join(map(repr, absent))}; it has "
                f"{', '.join(map(repr, stream.names[:30]))}."
            )
    if target in sensitive:
        raise InputError(f"column {target!r} is both target and sensitive: give it one role.")
    known = getattr(getattr(model, "encoder_", model), "feature_names_in_", None)
    if known is not None and set(map(str, known)) <= set(stream.names):
        return Roles(tuple(map(str, known)), target, sensitive, positive)
    left_out = {target, "", *drop, *(() if keep_sensitive else sensitive)}
    inputs = tuple(each for each in stream.names if each not in left_out)
    if not inputs:
        raise InputError(f"{stream.path}: no column is left for the model.")
    return Roles(inputs, target, sensitive, positive)


def _check_positive(positive: str | None, classes: NDArray[Any] | None) -> None:
    """Raise an error where the model's negative class is called positive: all would be upside down."""
    known = [] if classes is None else [level_name(value) for value in classes.tolist()]
    if positive in known[:1]:
        raise InputError(
            f"positive={positive!r} is the model's negative class: it was trained to predict {known[1]!r}. "
            f"Say positive={known[1]!r}, or leave it out."
        )


def _first_schema(stream: TableFile, roles: Roles, decimal: str, rows: int) -> Schema:
    """What the first batches hold, until two groups and two labels were seen."""
    schema = Schema()
    for frame in stream.batches(roles.columns, decimal=decimal, rows=rows):
        schema = schema.grown(frame, roles)
        if len(schema.groups) > 1 and len(schema.targets) > 1:
            break
    return schema
