"""Explanations of single rows of any model, relative to every group, with the nearest people of each."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from gcig._validation import Groups, InputError, check_features, check_groups
from gcig._version import __version__
from gcig.adapters import AdaptedModel, RemoteModel, adapt
from gcig.auditing.explain_result import ExplainResult
from gcig.auditing.neighbours import NEIGHBOUR_ROWS, Neighbourhood
from gcig.auditing.sources import TableSource, check_identifiers
from gcig.auditing.subject import describe_reference, resolve_model
from gcig.core.definition import Definition
from gcig.core.modules import Score
from gcig.metrics.reasons import Comparison
from gcig.metrics.row_reasons import RowDescriber, known_protected, revealing_columns
from gcig.metrics.sample import (
    EncodedRows,
    Reference,
    cell_means,
    check_favourable,
    check_sample_labels,
    comparable_groups,
    reference_table,
    sum_cells,
)
from gcig.records.audit import SMALLEST_CELL
from gcig.records.explanation import ExplanationRecord

_PROBE_ROWS = 32  # rows that determine the scale of attributions and the steps of integration


def explain(
    model: Any,
    rows: Any,
    y: ArrayLike | None = None,
    *,
    sensitive_features: Any = None,
    reference: Reference | None = None,
    threshold: float | None = None,
    favourable: Any = None,
    definition: Definition | None = None,
    identifiers: Sequence[Any] | None = None,
    classes: tuple[Any, Any] | None = None,
    neighbours: bool = True,
    include_protected: bool = False,
    min_cell: int = SMALLEST_CELL,
    random_state: int = 0,
    score: Score | None = None,
    preprocess: Any = None,
    name: str | None = None,
    trust_pickle: bool = False,
) -> ExplainResult:
    """Explain single rows of any model that can be audited, relative to the typical member of every group.

    Parameters
    ----------
    model : any
        A model that `gcig.adapt` accepts, or the path of a saved one (see `open_model`).
    rows : table of n rows
        The rows to explain, as the model takes them.
    y : array of shape (n,), optional
        Their labels, whose references are used; by default the predicted labels.
    sensitive_features : array or table of n rows, optional
        Their groups, for models that need them to predict.
    reference : tuple (X, y, sensitive_features), optional
        The rows from which the groups' references are estimated and among which neighbours are found. A model
        of this package has references of its own; for any other model it is needed.
    threshold : float, optional
        The probability from which a row is predicted 1. By default the model's own decision rule.
    favourable : optional
        The class that is favourable for a person; by default the second one.
    definition : Definition, optional
        The choices behind the disparity.
    identifiers : sequence of n names, optional
        Names of the rows; by default the index of a table, or positions.
    classes : tuple of two names, optional
        Names of labels 0 and 1; by default the model's classes.
    neighbours : bool
        Whether to explain also the nearest reference rows of every group with each decision.
    include_protected : bool
        Whether to show the group of a row, and the entries of columns that reveal it.
    min_cell : int
        Groups with fewer reference rows of a label are not compared, and neighbours are shown only if at
        least this many rows share their group and decision.
    random_state, score, preprocess, name, trust_pickle
        As in `gcig.audit`.

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
    (['credit_amount'], 4)
    """
    model, _, named = resolve_model(model, trust_pickle=trust_pickle)
    given = reference_table(reference)
    adapted = adapt(
        model,
        rows if given is None else given,
        score=score,
        preprocess=preprocess,
        reference=None if given is None else rows,
    )
    if isinstance(model, RemoteModel):
        model.begin()
    known = _References.of(adapted, reference, min_cell, random_state)
    inputs = adapted.encode(rows, sensitive_features)
    outputs = adapted.predict(rows, sensitive_features, encoded=inputs, threshold=threshold)
    if y is None:
        codes, source = (outputs.decisions >= 0.5).astype(np.int64), "predicted"
    else:
        codes, source = check_sample_labels(y, len(inputs), np.asarray(known.classes)).codes, "given"
    groups = None
    if sensitive_features is not None:
        groups = check_groups(sensitive_features, n_rows=len(inputs), names=known.names)
    own = EncodedRows(inputs, codes, np.full(len(codes), -1), np.arange(len(codes)), None)
    sample = own if known.rows is None else known.rows
    comparison = Comparison.prepare(
        adapted,
        known.baselines,
        definition or Definition(),
        sample,
        min(_PROBE_ROWS, len(sample)),
        compared=known.compared,
    )
    table = check_features(rows) if getattr(rows, "ndim", 2) == 2 else None
    named_classes = known.classes if classes is None else classes
    shown = (str(named_classes[0]), str(named_classes[1]))
    good = check_favourable(favourable, named_classes)
    describer = RowDescriber(
        comparison,
        groups=tuple(known.names[g] for g in known.compared),
        classes=shown,
        favourable=good,
        threshold=adapted.threshold if threshold is None else threshold,
        hidden=frozenset() if include_protected else _protected(model, known, groups),
    )
    index = rows.index if isinstance(rows, pd.DataFrame) else range(len(codes))
    described = describer.describe(
        own,
        outputs,
        names=check_identifiers(identifiers, len(codes)) or [str(each) for each in index],
        table=table,
        label_source=source,
        group_names=[groups.names[g] for g in groups.codes]
        if groups and include_protected
        else [None] * len(codes),
    )
    if neighbours and known.source is not None and table is not None:
        batch = known.source.batch
        few = np.sort(np.random.default_rng(random_state).permutation(len(batch))[:NEIGHBOUR_ROWS])
        near = Neighbourhood(batch.take(few), known.names, known.compared, describer, threshold, min_cell)
        described = near.add(table, described)
    return ExplainResult(
        ExplanationRecord(
            model_name=str(name or named or getattr(model, "__name__", type(model).__name__)),
            model_kind=adapted.kind,
            explanation=adapted.explainer.name,
            reference=describe_reference(adapted, given=reference is not None),
            groups=describer.groups,
            positive=shown[1],
            negative=shown[0],
            favourable=shown[good],
            probabilistic=adapted.probabilistic,
            threshold=float(describer.threshold),
            definition=adapted.explainer.describe(comparison.definition),
            rows=described,
            hidden=tuple(sorted(describer.hidden & set(comparison.columns))),
            suppressed=tuple(each for g, each in enumerate(known.names) if g not in known.compared),
            min_cell=min_cell,
            versions={"gcig": __version__},
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        )
    )


@dataclass(frozen=True, eq=False)
class _References:
    """The references of the groups, and the rows that they come from if these are known.

    Attributes
    ----------
    names, classes : names of the groups; the two classes.
    baselines : (2, compared groups, p).
    compared : positions of the compared groups.
    source : the reference rows; None if the model brings its references.
    rows : the same in random order.
    """

    names: tuple[str, ...]
    classes: tuple[Any, Any]
    baselines: Any
    compared: tuple[int, ...]
    source: TableSource | None = None
    rows: EncodedRows | None = None

    @classmethod
    def of(
        cls, adapted: AdaptedModel, reference: Reference | None, min_cell: int, random_state: int
    ) -> _References:
        if reference is None:
            if adapted.baselines is None or adapted.groups is None or adapted.classes is None:
                raise InputError(
                    "is missing: this model has no references of its own. Pass (X, y, sensitive_features) of "
                    "the rows that it was trained on, or of other rows with labels and groups.",
                    argument="reference",
                )
            first, second = adapted.classes.tolist()
            compared = comparable_groups(None, adapted.baselines, min_cell)
            own = np.asarray(adapted.baselines)[:, list(compared)]
            return cls(adapted.groups, (first, second), own, compared)
        source = TableSource.check(adapted, *reference)
        batch = source.batch
        sums = sum_cells(batch.inputs, batch.labels, batch.groups, len(source.group_names))
        compared = comparable_groups(sums.counts.numpy(), None, min_cell)
        if len(compared) < 2:
            raise InputError(
                f"has fewer than two groups with {min_cell} rows of each label, so there is nobody to "
                "compare with. Pass more rows, merge groups, or lower min_cell.",
                argument="reference",
            )
        order = np.random.default_rng(random_state).permutation(len(batch))
        means = cell_means(sums)[:, list(compared)]
        return cls(source.group_names, source.classes, means, compared, source, batch.rows[order])


def _protected(model: Any, known: _References, groups: Groups | None) -> frozenset[str]:
    """Return the columns that are the protected attribute or reveal it: their entries are not shown."""
    names = {*known_protected(model), *(groups.attribute.split(" & ") if groups else ())}
    if known.source is not None:
        batch = known.source.batch
        names |= {*known.source.attributes, *revealing_columns(batch.table, batch.groups)}
    return frozenset(names)
