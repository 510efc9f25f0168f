"""Checked rows, and the baselines that they are explained against."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import UndefinedMetricWarning

from gcig._validation import Groups, InputError, Labels, check_groups, check_labels, check_sample_weight
from gcig._warnings import warn_caller
from gcig.adapters import AdaptedModel
from gcig.core.references import cell_sums
from gcig.metrics.confusion import Codes, Floats, quotient
from gcig.metrics.outcome import check_binary
from gcig.metrics.procedural import Explained

__all__ = ["Reference", "Sample", "check_sample_labels", "reference_table"]

Reference = tuple[Any, Any, Any]
Rows = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Sample:
    """Checked rows, with what they are explained against."""

    labels: Labels
    groups: Groups
    explained: Explained

    @classmethod
    def check(
        cls,
        adapted: AdaptedModel,
        X: Any,
        y: ArrayLike,
        sensitive_features: Any,
        reference: Reference | None,
        sample_weight: ArrayLike | None,
    ) -> "Sample":
        """Check everything once; baselines come from the reference, the model or the rows themselves."""
        inputs = adapted.encode(X, sensitive_features)
        labels = check_sample_labels(y, len(inputs), adapted.classes)
        names: tuple[str, ...] | None = None
        baselines = adapted.baselines
        if reference is not None:
            baselines, names = _reference_baselines(adapted, reference, labels.classes)
        elif baselines is not None:
            names = adapted.groups
        groups = check_groups(sensitive_features, n_rows=len(inputs), names=names)
        if baselines is None:
            baselines = _cell_means(inputs, labels.codes, groups)
        _warn_missing_baselines(baselines, groups.names, labels.codes)
        explained = Explained(
            explainer=adapted.explainer,
            inputs=inputs,
            labels=labels.codes,
            baselines=baselines,
            origin=adapted.origin,
            n_columns=len(adapted.original_names),
            weights=check_sample_weight(sample_weight, len(inputs)),
            sampled=_sampled(len(inputs), adapted.explainer.budget.rows),
        )
        return cls(labels, groups, explained)


def reference_table(reference: Reference | None) -> Any:
    """The rows of a reference; None where there is none."""
    if reference is None:
        return None
    if not isinstance(reference, tuple) or len(reference) != 3:
        raise InputError("reference must be a tuple (X, y, sensitive_features).")
    return reference[0]


def _sampled(n_rows: int, limit: int | None) -> NDArray[np.bool_] | None:
    """A random sample of the rows where the explainer is too slow for all."""
    if limit is None or n_rows <= limit:
        return None
    chosen = np.zeros(n_rows, dtype=np.bool_)
    chosen[np.random.default_rng(0).choice(n_rows, limit, replace=False)] = True
    return chosen


def check_sample_labels(y: ArrayLike, n_rows: int, classes: NDArray[Any] | None) -> Labels:
    """Labels in the classes of the model, or as 0 and 1."""
    if classes is None:
        return check_binary(y, n_rows=n_rows, name="y")
    known = tuple(classes.tolist())
    try:
        return check_labels(y, n_rows=n_rows, classes=known)
    except InputError as error:
        try:
            codes = check_labels(y, n_rows=n_rows, classes=(0, 1)).codes
        except InputError:
            raise error from None
        return Labels(codes, (known[0], known[1]))


def _reference_baselines(
    adapted: AdaptedModel, reference: Reference, classes: tuple[Any, Any]
) -> tuple[Rows, tuple[str, ...]]:
    """Baselines of the reference rows, and the names of its groups."""
    X, y, sensitive_features = reference
    inputs = adapted.encode(X, sensitive_features)
    labels = check_sample_labels(y, len(inputs), np.asarray(classes))
    groups = check_groups(sensitive_features, n_rows=len(inputs))
    return _cell_means(inputs, labels.codes, groups), groups.names


def _cell_means(inputs: Rows, labels: Codes, groups: Groups) -> Floats:
    """(2, groups, p) means of the rows of each (label, group) cell; NaN for a cell without rows."""
    sums = cell_sums(
        torch.tensor(inputs, dtype=torch.float64),
        torch.tensor(labels),
        torch.tensor(groups.codes),
        n_groups=len(groups.names),
    )
    return quotient(sums.sums.numpy(), sums.counts.double().unsqueeze(-1).numpy())


def _warn_missing_baselines(baselines: Rows, names: tuple[str, ...], labels: Codes) -> None:
    missing = [
        f"label {y} in group {names[g]!r}"
        for y, g in np.argwhere(np.isnan(baselines).any(axis=2)).tolist()
        if (labels == y).any()
    ]
    if missing:
        warn_caller(
            f"No rows with {', '.join(missing)} to estimate baselines on: GCIG of that label is NaN. "
            "Pass reference=(X, y, sensitive_features) in which every label occurs in every group.",
            UndefinedMetricWarning,
        )
