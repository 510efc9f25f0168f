"""Audits of tables in memory and of files of any length."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from gcig._arguments import check_argument
from gcig._files import hash_file
from gcig._tables import as_spelled, level_name
from gcig._validation import InputError, InputWarning, check_lengths
from gcig.adapters import OnnxClassifier, adapt_binary
from gcig.adapters.boosters import booster_columns
from gcig.auditing.findings import run_audit
from gcig.auditing.result import AuditResult
from gcig.auditing.sources import FileSource, Schema, SchemaGrew, TableSource, reference_source
from gcig.auditing.subject import Audited, Options, hash_model, hash_table, resolve_model
from gcig.core.definition import Definition
from gcig.core.modules import Score
from gcig.data.read import TableFile, open_table
from gcig.data.roles import Roles, assign_roles, check_positive
from gcig.metrics.sample import Reference, check_arguments, check_favourable, reference_table
from gcig.records.audit import SMALLEST_CELL, AuditRecord

ROWS_AT_ONCE = 65_536
IN_MEMORY_ROWS = 100_000


def audit(
    model: Any,
    X: Any,
    y: ArrayLike,
    *,
    sensitive_features: Any,
    reference: Reference | None = None,
    sample_weight: ArrayLike | None = None,
    threshold: float | None = None,
    definition: Definition | None = None,
    min_cell: int = SMALLEST_CELL,
    include_rows: bool = False,
    n_bootstrap: int = 1000,
    n_shuffles: int | None = None,
    random_state: int = 0,
    max_rows_explained: int | None = None,
    max_calls: int | None = None,
    progress: bool = False,
    robustness: bool = False,
    other: Any = None,
    favourable: Any = None,
    identifiers: Sequence[Any] | None = None,
    include_protected: bool = False,
    against: AuditRecord | AuditResult | str | Path | None = None,
    score: Score | None = None,
    preprocess: Any = None,
    name: str | None = None,
    trust_pickle: bool = False,
) -> AuditResult:
    """Audit any trained model on a table, and quantify the uncertainty of every figure.

    Figures have the values that `gcig.evaluate` returns for the same rows.

    Parameters
    ----------
    model : any
        A model that `gcig.adapt` accepts, or the path of a saved one (see `open_model`).
    X, y : table and array of n rows
        The audited rows, as the model takes them, and their labels.
    sensitive_features : array or table of n rows
        The group of each row; several columns are crossed.
    reference : tuple (X, y, sensitive_features), optional
        The rows from which the groups' references are estimated. By default the training rows of a gcig
        model, otherwise the audited rows.
    sample_weight, threshold, definition, random_state, score, preprocess
        As in `gcig.evaluate`.
    min_cell : int
        Groups and (label, group) cells with fewer rows are suppressed: their rates are neither published
        nor part of a gap, and groups with fewer reference rows of a label are not compared by GCIG.
    include_rows : bool
        Whether the result contains entries, decision and reasons of single rows, which is personal data;
        otherwise rows are positions only.
    n_bootstrap : int
        Draws of the intervals.
    n_shuffles : int, optional
        Shuffles of the groups within each label, for the noise floor and the p-value. By default 199, or 99
        if the model has no gradients.
    max_rows_explained : int, optional
        Explain a random sample of this many rows. By default all rows, or 1,000 if the model has no
        gradients. Figures relative to members are measured on 1,000 of these at most.
    max_calls : int, optional
        The most rows that a model without gradients may be called with. The audit says the number before it
        starts (with ``progress``), and raises an error if it is larger.
    progress : bool
        Whether to report progress on standard error.
    robustness : bool
        Whether to measure GCIG under several references, and to report whether they lead to the same
        conclusion: ``result.record.robustness``.
    other : any, optional
        A second model, or its path, to compare with under every reference.
    favourable : optional
        The class that is favourable for a person; by default the one that `gcig train` stored with the
        model, otherwise the second one. It determines the direction of differences and the four-fifths ratio.
    identifiers : sequence of n names, optional
        Names of the rows, by which a reader of the page finds them; by default positions.
    include_protected : bool
        With ``include_rows``, whether groups and the columns that reveal them are shown.
    against : AuditResult, AuditRecord or path, optional
        An earlier audit. The result says what changed since then, and whether that is more than chance.
    name : str, optional
        The name of the model in the report.
    trust_pickle : bool
        Whether a model may be opened by running the code in its file.

    Returns
    -------
    AuditResult
        ``.record``, ``.check(max_gcig=...)``, ``.to_html(path)``, ``.to_json(path)``, ``.to_markdown()``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.choice(["f", "m"], 300)
    >>> X = rng.normal(size=(300, 2)) + np.outer(sex == "m", [1, 0])
    >>> y = (X.sum(axis=1) + rng.normal(size=300) > 0.5).astype(int)
    >>> found = audit(LogisticRegression().fit(X, y), X, y, sensitive_features=sex, n_bootstrap=100)
    >>> found.record.verdict.status, found.record.subject.explanation
    ('concern', 'integrated gradients')
    """
    options = Options.among(locals())
    check_arguments(trust_pickle=trust_pickle, name=name, identifiers=identifiers)
    check_robustness(other, robustness=robustness)
    earlier = read_earlier(against)
    model, sha256, named = resolve_model(model, trust_pickle=trust_pickle)
    check_lengths(X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight)

    def prepare(model: Any, identifiers: Sequence[Any] | None = None) -> Audited:
        table = reference_table(reference)
        adapted = adapt_binary(model, X, score=score, preprocess=preprocess, reference=table)
        given, names = reference_source(adapted, reference)
        rows = TableSource.check(adapted, X, y, sensitive_features, sample_weight, names, identifiers)
        return Audited(adapted, rows, given)

    audited = prepare(model, identifiers)
    (batch,) = audited.source.batches()
    audited = replace(
        audited,
        name=name or named,
        model_sha256=sha256 or hash_model(model),
        data_sha256=hash_table(X, batch.rows.labels, batch.rows.groups),
    )
    options = replace(options, favourable=check_favourable(favourable, audited.source.classes, model))
    with warnings.catch_warnings():
        # Encoding the rows above has already issued these warnings.
        warnings.simplefilter("ignore", InputWarning)
        second = None if other is None else prepare(resolve_model(other, trust_pickle=trust_pickle)[0])
        return AuditResult(run_audit(audited, options, other=second, earlier=earlier))


def read_earlier(against: AuditRecord | AuditResult | str | Path | None) -> AuditRecord | None:
    """Return the record of an earlier audit; call this before the new audit, so that errors appear early."""
    check_argument(
        "against",
        against,
        "None, an earlier audit or the path of one",
        lambda given: given is None or isinstance(given, AuditRecord | AuditResult | str | Path),
    )
    if isinstance(against, str | Path):
        if not str(against).lstrip().startswith("{") and not Path(against).is_file():
            raise InputError(
                f"is {str(against)!r}, but there is no such file. Name the JSON of an audit.",
                argument="against",
            )
        against = AuditResult.from_json(against)
    return against.record if isinstance(against, AuditResult) else against


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
    max_calls: int | None = None,
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
    sep: str | None = None,
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
    sep, decimal, encoding : str, optional
        Separator, decimal mark and encoding of a CSV file. By default those of the file that a gcig model was
        trained on; otherwise the separator is guessed, numbers have decimal points and text is UTF-8.
    kinds : mapping of column to kind, optional
        Columns whose kind is not inferred from their entries: "number", "category", "date", "date dmy" or
        "date mdy". Columns that are not listed are read as the file that a gcig model was trained on.
    group_names : mapping of value to name, optional
        Other names for values of the protected columns, such as ``{"1": "male", "2": "female"}``; for one of
        several columns ``{"sex.1": "male"}``. By default the names stored with a gcig model.
    rows_at_once : int
        Rows per batch.
    in_memory_rows : int
        A file with at most this many rows is read as a whole.

    Examples
    --------
    >>> import tempfile
    >>> import gcig
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = gcig.load_dataset("german")
    >>> X, path = data.X[["duration", "age"]], Path(tempfile.mkdtemp()) / "loans.csv"
    >>> X.assign(sex=data.sensitive_features, good=data.y).to_csv(path, index=False)
    >>> model = LogisticRegression().fit(X, data.y)
    >>> found = audit_file(model, path, target="good", sensitive="sex", n_bootstrap=100)
    >>> found.record.subject.n_rows, [group.group for group in found.record.groups]
    (1000, ['female', 'male'])
    """
    options = Options.among(locals())
    check_arguments(trust_pickle=trust_pickle, name=name)
    check_robustness(other, robustness=robustness)
    earlier = read_earlier(against)
    model, sha256, named = resolve_model(model, trust_pickle=trust_pickle)
    if other is not None:
        other, _, _ = resolve_model(other, trust_pickle=trust_pickle)
    stream = open_table(path, sep=sep, decimal=decimal, encoding=encoding, kinds=kinds, model=model)
    named_roles: dict[str, Any] = {
        "target": target,
        "positive": positive,
        "sensitive": sensitive,
        "drop": drop,
        "keep_sensitive": keep_sensitive,
        "group_names": group_names or getattr(model, "group_names_", None),
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
    rows = stream.n_rows if stream.n_rows <= in_memory_rows else rows_at_once
    schema = _first_schema(stream, roles, rows)

    def prepare(model: Any, roles: Roles, id_column: str | None = None) -> Audited:
        prototype = schema.prototype(roles.inputs)
        given_rows = reference_table(reference)
        adapted = adapt_binary(model, prototype, score=score, preprocess=preprocess, reference=given_rows)
        given, names = reference_source(adapted, reference)
        return Audited(adapted, FileSource(stream, roles, schema, adapted, rows, names, id_column), given)

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
            good = check_favourable(favourable, audited.source.classes, model)
            options = replace(options, favourable=good)
            second = None if other is None else prepare(other, also)
            try:
                return AuditResult(run_audit(audited, options, other=second, earlier=earlier))
            except SchemaGrew as grew:
                schema = grew.schema


def columns_of(model: Any, given: Sequence[str]) -> Sequence[Any] | None:
    """Return the columns that a model records as its inputs, as they are spelled among the given ones."""
    known: Sequence[Any] | None = getattr(getattr(model, "encoder_", model), "feature_names_in_", None)
    if known is not None and not isinstance(model, OnnxClassifier):
        return known
    recorded = booster_columns(model) if known is None else known
    return None if recorded is None else as_spelled(recorded, given)


def _first_schema(stream: TableFile, roles: Roles, rows: int) -> Schema:
    """Read batches until they contain two groups, two labels and the positive label; return their schema."""
    schema = Schema()
    for frame in stream.batches(roles.columns, rows=rows):
        schema = schema.grown(frame, roles)
        found = {level_name(value) for value in schema.targets}
        if len(schema.groups) > 1 and len(found) > 1 and roles.positive in (None, *found):
            break
    return schema


def check_robustness(other: Any, *, robustness: bool) -> None:
    """Raise an error if a second model is given that would not be used."""
    if other is not None and not robustness:
        raise InputError(
            "was given, but only robustness=True compares two models. Pass robustness=True, or leave it out.",
            argument="other",
        )
