"""Auditing a table in memory."""

import datetime
import platform
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from gcig._validation import (
    Groups,
    InputWarning,
    Labels,
    check_features,
    check_groups,
    check_lengths,
    check_sample_weight,
    warn_if_sensitive_in,
)
from gcig._version import __version__
from gcig.adapters import AdaptedModel, adapt
from gcig.auditing.batches import Batch, TableSource
from gcig.auditing.engine import Findings, Options, run_audit
from gcig.auditing.fingerprint import hash_model, hash_path, hash_table
from gcig.auditing.opening import open_model
from gcig.auditing.result import AuditResult
from gcig.auditing.verdict import write_verdict
from gcig.auditing.watching import bars, no_bars
from gcig.core.definition import Definition
from gcig.core.modules import Score
from gcig.metrics.sample import Reference, check_sample_labels, reference_table
from gcig.records.audit import AuditRecord, Subject

__all__ = ["audit", "describe"]


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
    include_rows: bool = False,
    n_bootstrap: int = 1000,
    n_shuffles: int | None = None,
    random_state: int = 0,
    max_rows_explained: int | None = None,
    progress: bool = False,
    score: Score | None = None,
    name: str | None = None,
    trust_pickle: bool = False,
) -> AuditResult:
    """Measure a model that anybody trained, and say how sure the figures are.

    Parameters
    ----------
    model : what ``gcig.adapt`` takes, or the path of a saved one (see `open_model`).
    X, y : the audited rows, as the model takes them, and their labels.
    sensitive_features : group of each row; several columns are crossed.
    reference : ``(X, y, sensitive_features)`` that the groups' baselines are estimated on. Default: the
        training rows of a gcig model, else the audited rows.
    sample_weight : weight of each row in every mean.
    threshold : probability from which a row is predicted 1. Default: the model's own decision rule.
    definition : the choices behind GCIG; by default one value for each original column.
    include_rows : whether attributions of single rows are part of the result. Off, rows are positions only.
    n_bootstrap : draws of the intervals.
    n_shuffles : shuffles of the groups inside each label, for the noise floor and the p-value. Default: 199,
        and 99 where the model has no gradients.
    random_state : seed of everything that is drawn.
    max_rows_explained : explain a random sample of so many rows. Default: all rows where the model has
        gradients, 1,000 where it has none.
    progress : whether bars are shown on standard error.
    score : for a torch module with several outputs, a function from its output to the logit.
    name : what the model is called in the report.
    trust_pickle : whether a model may be opened by running the code that its file holds.

    Returns
    -------
    AuditResult
        ``.record``, ``.check(max_gcig=...)``, ``.to_html(path)``, ``.to_json(path)``, ``.to_markdown()``.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.choice(["f", "m"], 300)
    >>> X = rng.normal(size=(300, 2)) + np.outer(sex == "m", [1, 0])
    >>> y = (X.sum(axis=1) + rng.normal(size=300) > 0.5).astype(int)
    >>> found = audit(LogisticRegression().fit(X, y), X, y, sensitive_features=sex, n_bootstrap=100)
    >>> found.record.verdict.status, found.record.subject.explanation
    ('concern', 'integrated gradients')
    """
    model, sha256, named = resolve_model(model, trust_pickle=trust_pickle)
    check_lengths(X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight)
    adapted = adapt(model, X, score=score, reference=reference_table(reference))
    options = Options(
        definition=definition or Definition(columns="original"),
        threshold=threshold,
        include_rows=include_rows,
        n_bootstrap=n_bootstrap,
        n_shuffles=n_shuffles,
        random_state=random_state,
        max_rows_explained=max_rows_explained,
    )
    given, names = given_reference(adapted, reference)
    source = table_source(adapted, X, y, sensitive_features, sample_weight, names)
    with warnings.catch_warnings():
        # What encoding and prediction warn of was said when the rows were encoded above.
        warnings.simplefilter("ignore", InputWarning)
        findings = run_audit(adapted, source, given, options, bars if progress else no_bars)
    subject = describe(
        adapted,
        findings,
        source,
        name=name or named,
        model_sha256=sha256 or hash_model(model),
        data_sha256=hash_table(X, source.batch.labels, source.batch.groups),
        reference=reference_words(adapted, given=reference is not None),
        threshold=threshold,
    )
    groups = Groups(source.batch.groups.astype(np.int64), source.group_names, " & ".join(source.attributes))
    return AuditResult(assemble(subject, findings, telling_columns(X, groups)))


def telling_columns(X: Any, groups: Groups) -> tuple[str, ...]:
    """A caution for columns that tell the group of a row."""
    if getattr(X, "ndim", 2) != 2:
        return ()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_if_sensitive_in(check_features(X), groups)
    return tuple(str(warning.message).partition(" Drop it")[0] for warning in caught)


def table_source(
    adapted: AdaptedModel,
    X: Any,
    y: ArrayLike,
    sensitive_features: Any,
    sample_weight: ArrayLike | None = None,
    names: tuple[str, ...] | None = None,
) -> TableSource:
    """Check and encode a table in memory."""
    inputs = adapted.encode(X, sensitive_features)
    labels: Labels = check_sample_labels(y, len(inputs), adapted.classes)
    groups: Groups = check_groups(sensitive_features, n_rows=len(inputs), names=names)
    weights = check_sample_weight(sample_weight, len(inputs))
    batch = Batch(X, sensitive_features, inputs, labels.codes, groups.codes, weights)
    return TableSource(batch, labels.classes, groups.names, tuple(groups.attribute.split(" & ")))


def given_reference(
    adapted: AdaptedModel, reference: Reference | None
) -> tuple[TableSource | None, tuple[str, ...] | None]:
    """The rows that were given for the baselines, and the groups, where these rows or the model know them."""
    if reference is None:
        return None, None if adapted.baselines is None else adapted.groups
    source = table_source(adapted, *reference)
    return source, source.group_names


def resolve_model(model: Any, *, trust_pickle: bool) -> tuple[Any, str | None, str | None]:
    """The model, and for one that was given by its path, its hash and name."""
    if not isinstance(model, str | Path):
        return model, None, None
    return open_model(model, trust_pickle=trust_pickle), hash_path(model), Path(model).name


def reference_words(adapted: AdaptedModel, *, given: bool) -> str:
    """Where the baselines come from."""
    if given:
        return "the reference rows that were given"
    if adapted.baselines is not None:
        return "the model's training rows; noise floor, p-value and re-estimated interval: the audited rows"
    return "the audited rows"


def describe(
    adapted: AdaptedModel,
    findings: Findings,
    source: Any,
    *,
    name: str | None,
    model_sha256: str | None,
    data_sha256: str | None,
    reference: str,
    threshold: float | None,
) -> Subject:
    """What was audited."""
    return Subject(
        model_name=str(name or getattr(adapted.model, "__name__", type(adapted.model).__name__)),
        model_kind=adapted.kind,
        model_sha256=model_sha256,
        data_sha256=data_sha256,
        explanation=adapted.explainer.name,
        reference=reference,
        n_rows=findings.n_rows,
        n_columns=len(adapted.original_names),
        sensitive=source.attributes,
        positive=str(source.classes[1]),
        threshold=float(adapted.threshold if threshold is None else threshold),
        definition=findings.definition,
        versions={
            "gcig": __version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": np.__version__,
        },
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def assemble(subject: Subject, findings: Findings, cautions: tuple[str, ...] = ()) -> AuditRecord:
    """The record, with its verdict."""
    if findings.sampled:
        cautions += (f"Reasons were computed for a random sample of {findings.n_explained:,} rows.",)
    if findings.left_out:
        left = ", ".join(map(repr, findings.left_out[:10]))
        cautions += (f"Too few reference rows of a label to compare the reasons of: {left}.",)
    verdict = write_verdict(subject, findings.outcome, findings.groups, findings.procedural, cautions)
    return AuditRecord(subject, verdict, findings.outcome, findings.groups, findings.procedural)
