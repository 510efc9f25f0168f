"""Audits of tables in memory."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from gcig._arguments import check_argument
from gcig._validation import InputWarning, check_lengths
from gcig.adapters import adapt
from gcig.auditing.findings import run_audit
from gcig.auditing.result import AuditResult
from gcig.auditing.sources import TableSource, reference_source
from gcig.auditing.subject import Audited, Options, hash_model, hash_table, resolve_model
from gcig.core.definition import Definition
from gcig.core.modules import Score
from gcig.metrics.arguments import check_arguments
from gcig.metrics.evaluation import check_robustness
from gcig.metrics.sample import Reference, check_favourable, reference_table
from gcig.records.audit import SMALLEST_CELL, AuditRecord


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
    sample_weight : array of shape (n,), optional
        The weight of each row in every mean.
    threshold : float, optional
        The probability from which a row is predicted 1. By default the model's own decision rule.
    definition : Definition, optional
        The choices behind GCIG.
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
    random_state : int
        The seed of everything drawn at random.
    max_rows_explained : int, optional
        Explain a random sample of this many rows. By default all rows, or 1,000 if the model has no
        gradients. Figures relative to members are measured on 1,000 rows at most.
    progress : bool
        Whether to report progress on standard error.
    robustness : bool
        Whether to measure GCIG under several references, and to report whether they lead to the same
        conclusion: ``result.record.robustness``.
    other : any, optional
        A second model, or its path, to compare with under every reference.
    favourable : optional
        The class that is favourable for a person; by default the second one. It determines the direction of
        differences and the four-fifths ratio.
    identifiers : sequence of n names, optional
        Names of the rows, by which a reader of the page finds them; by default positions.
    include_protected : bool
        With ``include_rows``, whether groups and entries of columns that reveal them are shown.
    against : AuditResult, AuditRecord or path, optional
        An earlier audit. The result says what changed since then, and whether that is more than chance.
    score : callable, optional
        For a torch module with several outputs, a function from its output to the logit.
    preprocess : callable or transformer, optional
        For a torch module, a function or fitted transformer from ``X`` to the rows that it takes.
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
    check_arguments(trust_pickle=trust_pickle, name=name, identifiers=identifiers)
    check_robustness(other, robustness=robustness)
    earlier = read_earlier(against)
    model, sha256, named = resolve_model(model, trust_pickle=trust_pickle)
    check_lengths(X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight)

    def prepare(model: Any, identifiers: Sequence[Any] | None = None) -> Audited:
        adapted = adapt(model, X, score=score, preprocess=preprocess, reference=reference_table(reference))
        given, names = reference_source(adapted, reference)
        rows = TableSource.check(adapted, X, y, sensitive_features, sample_weight, names, identifiers)
        return Audited(adapted, rows, given)

    audited = prepare(model, identifiers)
    (batch,) = audited.source.batches()
    audited = replace(
        audited,
        name=name or named,
        model_sha256=sha256 or hash_model(model),
        data_sha256=hash_table(X, batch.labels, batch.groups),
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
        favourable=check_favourable(favourable, audited.source.classes),
    )
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
        against = AuditResult.from_json(against)
    return against.record if isinstance(against, AuditResult) else against
