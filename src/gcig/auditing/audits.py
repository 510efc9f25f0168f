"""Audits of tables in memory and of files of any length: an evaluation with its provenance."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from numpy.typing import ArrayLike

from gcig._arguments import InputError, InputWarning, check_argument, is_flag, is_number
from gcig._files import hash_file
from gcig.adapters import OnnxClassifier
from gcig.adapters.boosters import booster_columns
from gcig.auditing.audit_change import compare_audits
from gcig.auditing.parts import (
    ROWS_AT_ONCE,
    SAMPLED_ROWS,
    LabelledFiles,
    classes_of,
    list_files,
    measure_files,
    plan_of_files,
)
from gcig.auditing.result import AuditResult
from gcig.auditing.subject import describe_subject, hash_model, hash_table, resolve_model
from gcig.auditing.verdict import judge
from gcig.core.modules import Score
from gcig.metrics.checked import Reference
from gcig.metrics.evaluation import measure_once
from gcig.metrics.plan import Plan
from gcig.metrics.planning import adapt_for, check_reference, make_plan
from gcig.metrics.samples import row_keys
from gcig.records import Evaluation
from gcig.records.audit import AuditRecord
from gcig.records.options import MeasureOptions
from gcig.records.verdict import MATERIAL
from gcig.tables.frames import check_lengths, level_name
from gcig.tables.names import as_spelled
from gcig.tables.read import open_table
from gcig.tables.roles import assign_roles, check_positive


def audit(
    model: Any,
    X: Any,
    y: ArrayLike | None = None,
    *,
    sensitive_features: Any,
    reference: Reference | None = None,
    sample_weight: ArrayLike | None = None,
    keys: Any = None,
    other: Any = None,
    against: "AuditRecord | AuditResult | str | Path | None" = None,
    score: Score | None = None,
    preprocess: Any = None,
    name: str | None = None,
    material: float = MATERIAL,
    trust_pickle: bool = False,
    **options: Any,
) -> AuditResult:
    """Audit any trained model on a table: `gcig.evaluate` with provenance, limits and a page.

    Parameters
    ----------
    model : any
        A model that `gcig.adapt` accepts, or the path of a saved one (see `open_model`).
    X, y, sensitive_features, reference, sample_weight, keys, score, preprocess
        As in `gcig.evaluate`.
    other : any, optional
        A second model, or its path: both are explained by Shapley values on the same people and references,
        and ``result.difference`` has the paired differences.
    against : AuditResult, AuditRecord or path, optional
        An earlier audit. The result says what changed since then, and whether that is more than chance.
    name : str, optional
        The name of the model in the report.
    material : float
        The smallest reason gap that matters to the verdict, in units of the spread of the score.
    trust_pickle : bool
        Whether a model may be opened by running the code in its file.
    **options
        The fields of `gcig.metrics.MeasureOptions`, as in `gcig.evaluate`.

    Returns
    -------
    AuditResult
        Every figure of `gcig.evaluate` under the same name, ``.verdict``, ``.provenance``,
        ``.check(max_reason_gap=...)``, ``.to_html(path)``, ``.to_json(path)``, ``.to_markdown()``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.choice(["f", "m"], 600)
    >>> X = rng.normal(size=(600, 2)) + np.outer(sex == "m", [1, 0])
    >>> y = (X.sum(axis=1) + rng.normal(size=600) > 0.5).astype(int)
    >>> found = audit(LogisticRegression().fit(X, y), X, y, sensitive_features=sex)
    >>> found.check(max_reason_gap=0.05).passed, found.record.subject.explanation
    (False, 'integrated_gradients')
    >>> found.verdict.code
    'group_differences'
    """
    _check_arguments(name, trust_pickle, material)
    chosen = _options(options, other)
    earlier = read_earlier(against)
    model, sha256, named = resolve_model(model, trust_pickle=trust_pickle)
    check_lengths(X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight)

    def measure(each: Any) -> tuple[Plan, Evaluation]:
        partial = measure_once(
            each,
            X,
            y,
            sensitive_features=sensitive_features,
            reference=reference,
            options=chosen,
            sample_weight=sample_weight,
            keys=keys,
            score=score,
            preprocess=preprocess,
        )
        return partial.plan, partial.result(suppress=True)

    plan, evaluation = measure(model)
    second = None
    if other is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)  # the first model has issued them
            _, second = measure(resolve_model(other, trust_pickle=trust_pickle)[0])
    subject = describe_subject(
        plan,
        evaluation,
        given=reference is not None,
        name=name or named,
        model_sha256=sha256 or hash_model(model),
        data_sha256=hash_table(X, y, sensitive_features),
    )
    return _finish(AuditRecord(subject, evaluation, second), earlier, model, plan, material)


def _options(options: Mapping[str, Any], other: Any) -> MeasureOptions:
    """Return the options; two models are compared by Shapley values unless another attribution is chosen."""
    if other is not None and "attribution" not in options:
        options = {**options, "attribution": "shapley"}
    return MeasureOptions(**options)


def _finish(
    record: AuditRecord, earlier: AuditRecord | None, model: Any, plan: Plan, material: float
) -> AuditResult:
    """Add the verdict, and the change since an earlier audit."""
    how: dict[str, Any] = {"legitimate": plan.options.legitimate, "seed": plan.options.seed}
    how |= {"material": material, "on_training_rows": plan.on_training_rows}
    given, plain, trained = (getattr(model, each, None) for each in ("given_", "plain_", "validation_"))
    plain = given or plain  # a network that was given is what was repaired
    if isinstance(plain, Mapping) and isinstance(trained, Mapping):
        how |= {"plain": plain, "trained": trained}
    record = replace(record, verdict=judge(record.evaluation, **how))
    if earlier is not None:
        record = replace(record, change=compare_audits(earlier, record))
    return AuditResult(record)


def _check_arguments(name: Any, trust_pickle: Any, material: Any) -> None:
    check_argument("material", material, "a number above 0", lambda value: is_number(value) and value > 0)
    check_argument("name", name, "None or a text", lambda value: value is None or isinstance(value, str))
    check_argument("trust_pickle", trust_pickle, "True or False", is_flag)


def read_earlier(against: "AuditRecord | AuditResult | str | Path | None") -> AuditRecord | None:
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
    other: Any = None,
    against: "AuditRecord | AuditResult | str | Path | None" = None,
    name: str | None = None,
    material: float = MATERIAL,
    trust_pickle: bool = False,
    sep: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    kinds: Mapping[str, str] | None = None,
    group_names: Mapping[str, str] | None = None,
    jobs: int = 1,
    backend: str | None = None,
    address: str | None = None,
    rows_at_once: int = ROWS_AT_ONCE,
    in_memory_rows: int = SAMPLED_ROWS,
    **options: Any,
) -> AuditResult:
    """Audit the rows of a CSV, Parquet or Feather file, or of a folder of Parquet files, larger than memory.

    A file with more than ``in_memory_rows`` rows is read twice, in batches: for a sample of 50,000 rows, from
    which references are taken, and to measure all rows. Parameters that are not listed here are those of
    `gcig.audit`.

    Parameters
    ----------
    model : any
        A model that `gcig.audit` accepts, or a path.
    path : str or Path
        A CSV file with a header line (gzip is fine), a Parquet or Feather file, or a folder of Parquet files.
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
    sep, decimal, encoding : str, optional
        Separator, decimal mark and encoding of a CSV file. By default those of the file that a gcig model was
        trained on; otherwise the separator is guessed, numbers have decimal points and text is UTF-8.
    kinds : mapping of column to kind, optional
        Columns whose kind is not inferred from their entries: "number", "category", "date", "date dmy" or
        "date mdy". Columns that are not listed are read as the file that a gcig model was trained on.
    group_names : mapping of value to name, optional
        Other names for values of the protected columns, such as ``{"1": "male", "2": "female"}``; for one of
        several columns ``{"sex.1": "male"}``. By default the names stored with a gcig model.
    jobs : int
        Processes that measure parts of a large file.
    backend, address : str, optional
        "dask" or "ray", and the address of the cluster: joblib then measures the parts there.
    rows_at_once : int
        Rows per part.
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
    >>> found.record.subject.n_rows, [group.group for group in found.groups]
    (1000, ['female', 'male'])
    """
    _check_arguments(name, trust_pickle, material)
    chosen = _options(options, other)
    earlier = read_earlier(against)
    model, sha256, named = resolve_model(model, trust_pickle=trust_pickle)
    files = tuple(
        open_table(each, sep=sep, decimal=decimal, encoding=encoding, kinds=kinds, model=model)
        for each in list_files(path)
    )
    roles: dict[str, Any] = {
        "target": target,
        "positive": positive,
        "sensitive": sensitive,
        "drop": drop,
        "keep_sensitive": keep_sensitive,
        "group_names": group_names or getattr(model, "group_names_", None),
    }

    def measure(each: Any) -> tuple[Plan, Evaluation, tuple[str, ...]]:
        known = assign_roles(files[0], **roles, known=columns_of(each, files[0].names))
        source = LabelledFiles(
            files,
            known,
            rows_at_once=rows_at_once,
            refuses_missing=chosen.missing_groups == "refuse",
        )
        if source.n_rows <= in_memory_rows:
            return _measure_in_memory(each, source, reference, positive, chosen)
        return _measure_in_parts(each, source, reference, positive, chosen, jobs, backend, address)

    with warnings.catch_warnings():
        warnings.simplefilter("once", InputWarning)  # every batch would repeat the warning
        plan, evaluation, classes = measure(model)
        second = None
        if other is not None:
            _, second, _ = measure(resolve_model(other, trust_pickle=trust_pickle)[0])
    subject = describe_subject(
        plan,
        evaluation,
        given=reference is not None,
        name=name or named,
        model_sha256=sha256 or hash_model(model),
        sampled=evaluation.n_rows > in_memory_rows,
        classes=classes,
        data_sha256=hash_file(files[0].path) if len(files) == 1 else None,
    )
    return _finish(AuditRecord(subject, evaluation, second), earlier, model, plan, material)


def _measure_in_memory(
    model: Any,
    source: LabelledFiles,
    reference: Reference | None,
    positive: str | None,
    options: MeasureOptions,
) -> tuple[Plan, Evaluation, tuple[str, ...]]:
    """Measure a file that is read as a whole."""
    frame = pd.concat([frame for _, frame in source.frames(source.n_rows)], ignore_index=True)
    inputs, labels = frame[list(source.roles.inputs)], frame[source.roles.target]
    adapted = adapt_for(
        model, inputs, labels, options, None, None, None if reference is None else reference[0]
    )
    source = replace(source, task=adapted.task)
    targets = labels.unique().tolist()
    if adapted.task == "binary":
        check_positive(positive, source.roles.target, targets, adapted.classes)
    classes = classes_of(adapted, source, targets)
    inputs, y, groups, keys = source.part(0, frame, classes)
    partial = measure_once(
        adapted, inputs, y, sensitive_features=groups, reference=reference, options=options, keys=keys
    )
    return partial.plan, partial.result(suppress=True), tuple(map(level_name, classes))


def _measure_in_parts(
    model: Any,
    source: LabelledFiles,
    reference: Reference | None,
    positive: str | None,
    options: MeasureOptions,
    jobs: int,
    backend: str | None,
    address: str | None,
) -> tuple[Plan, Evaluation, tuple[str, ...]]:
    """Measure a file in parts that are added up."""
    survey = source.survey(options.seed)
    inputs = survey.sample[list(source.roles.inputs)]
    prototype = survey.prototype(source.roles.inputs)
    adapted = adapt_for(model, inputs, survey.sample[source.roles.target], options, None, None, prototype)
    source = replace(source, task=adapted.task)
    if adapted.task == "binary":
        check_positive(positive, source.roles.target, survey.targets, adapted.classes)
    classes = classes_of(adapted, source, survey.targets)
    if reference is None:
        plan = plan_of_files(adapted, source, survey, classes, options)
    else:
        rows = check_reference(adapted, reference, options)
        hashed = row_keys(None, len(rows), options.seed)
        plan = make_plan(adapted, options, rows, hashed, given=True, disjoint=True)
    flags = sorted(survey.missing)
    how: dict[str, Any] = {"jobs": jobs, "backend": backend, "address": address}
    found = measure_files(plan, source, classes, flags, **how).result(suppress=True)
    return plan, found, tuple(map(level_name, classes))


def columns_of(model: Any, given: Sequence[str]) -> Sequence[Any] | None:
    """Return the columns that a model records as its inputs, as they are spelled among the given ones."""
    known: Sequence[Any] | None = getattr(getattr(model, "encoder_", model), "feature_names_in_", None)
    if known is not None and not isinstance(model, OnnxClassifier):
        return known
    recorded = booster_columns(model) if known is None else known
    return None if recorded is None else as_spelled(recorded, given)
