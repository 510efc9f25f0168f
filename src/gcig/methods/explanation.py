"""Explanations of rows: attributions under each group's baseline, as arrays or as a tidy frame."""

from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from gcig._arguments import InputError, warn_input
from gcig._arrays import Encoded
from gcig.adapters.estimators import GcigModel
from gcig.core.attribution import IntegratedGradients, Score, choose_steps
from gcig.core.definition import Definition
from gcig.core.modules import evaluating
from gcig.metrics.columns import ComparedColumns
from gcig.metrics.relative_to_means import compare_rows
from gcig.records.audit import SMALLEST_CELL
from gcig.records.formatting import html_table, number, shown


@dataclass(frozen=True, eq=False)
class Explanation:
    """The attributions of rows that are compared with the typical member of every group.

    Attributes
    ----------
    attributions : array of shape (groups, n, columns)
        How much each column moves the logit of a row away from that of the group's typical member with the
        same label.
    disparity : array of shape (n,)
        How far the normalised attributions of the groups are apart; NaN if the attributions vanish, or if the
        model was loaded and a group has too few training rows with the label.
    completeness : array of shape (groups, n)
        ``|sum of the attributions - (f(x) - f(baseline))|``.
    groups, columns : tuple of str
        Names of the first and the last dimension.
    labels : array of shape (n,)
        The labels whose baselines were used, as classes.
    label_source : {"given", "predicted"}
        Whether `explain` was given the labels, or used the predicted ones.
    definition : dict
        The definition of disparity, with the rule and the steps that were used.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german", include_sensitive=False)
    >>> model = gcig.FairXClassifier(max_epochs=5, budget=0, random_state=0)
    >>> model = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> found = model.explain(data.X, data.y)
    >>> found.attributions.shape, found.groups
    ((2, 1000, 19), ('female', 'male'))
    >>> found.top_columns(1).index[0]
    'duration'
    """

    attributions: Encoded
    disparity: Encoded
    completeness: Encoded
    groups: tuple[str, ...]
    columns: tuple[str, ...]
    labels: NDArray[Any]
    label_source: str
    definition: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.disparity)

    def to_frame(self) -> pd.DataFrame:
        """Return one line per row, group and column: row, label, group, column, attribution, disparity.

        ``row`` is the position in the explained table; label and disparity are those of the row.
        """
        groups, n, columns = self.attributions.shape
        index = pd.MultiIndex.from_product(
            [range(n), self.groups, self.columns], names=["row", "group", "column"]
        )
        tidy = pd.DataFrame({"attribution": self.attributions.transpose(1, 0, 2).ravel()}, index=index)
        tidy = tidy.reset_index()
        tidy.insert(1, "label", np.repeat(self.labels, groups * columns))
        tidy["disparity"] = np.repeat(self.disparity, groups * columns)
        return tidy

    def top_columns(self, n: int = 10) -> pd.DataFrame:
        """Return the columns with the largest mean absolute attribution, per group."""
        means = pd.DataFrame(
            np.abs(self.attributions).mean(1).T, index=list(self.columns), columns=list(self.groups)
        )
        return means.loc[means.mean(axis=1).sort_values(ascending=False, kind="stable").index[:n]]

    def __repr__(self) -> str:
        defined = self.disparity[~np.isnan(self.disparity)]
        mean = f"mean disparity {number(float(defined.mean()))}" if len(defined) else "disparity undefined"
        left_out = len(self) - len(defined)
        return (
            f"Explanation of {len(self)} rows: {len(self.columns)} columns under {len(self.groups)} groups "
            f"({', '.join(self.groups)}), {self.label_source} labels, {mean}"
            + (f" ({left_out} rows have vanishing attributions or no reference)" if left_out else "")
        )

    def _repr_html_(self) -> str:
        top = self.top_columns()
        rows = [
            (name, *map(shown, means))
            for name, means in zip(top.index, top.to_numpy(float).tolist(), strict=True)
        ]
        title = "mean absolute attribution, compared with"
        return f"<p>{escape(repr(self))}</p>" + html_table((title, *self.groups), rows)


def explain_rows(
    model: Any, encoded: Encoded, labels: NDArray[Any], *, columns: str, label_source: str
) -> Explanation:
    """Explain encoded rows (n, p) of a fitted model against the references of the labels."""
    adapted, definition = GcigModel.wrap(model), Definition(columns=columns)
    if columns == "encoded":
        raise InputError(
            "must be 'original' or 'raw': explanations are not centred within one-hot blocks. For GCIG on "
            "centred columns, see gcig_encoded of gcig.evaluate.",
            argument="columns",
        )
    baselines, groups = np.asarray(model.baselines_), adapted.groups or ()
    of_rows = torch.tensor(labels)
    cells = model.task_.cells(of_rows)
    references = torch.from_numpy(baselines)[cells].transpose(0, 1)  # (groups, n, columns)
    known = references.isfinite().all(2)  # (groups, n); small cells are not saved
    if unknown := int((~known).any(0).sum()):
        warn_input(
            f"{unknown} rows have a label of which a group has no reference, because the model was saved "
            f"without those of fewer than {SMALLEST_CELL} training rows: their disparity is NaN."
        )
    references = references.nan_to_num()
    inputs, score = torch.from_numpy(encoded), Score.of(adapted.module, model.task_, of_rows)
    attribution = choose_steps(IntegratedGradients(), score, inputs, references, tolerance=1e-6)
    values = attribution.attribute(score, inputs, references)
    with evaluating(adapted.module), torch.no_grad():
        change = score(inputs.unsqueeze(0)) - score(references)
    residual = (values.sum(-1) - change).abs()
    compared_columns = ComparedColumns.find(adapted, encoded, np.nan_to_num(baselines).mean(axis=(0, 1)))
    values = compared_columns.sum(values) if columns == "original" else values
    disparity, _ = compare_rows(values.masked_fill(~known.unsqueeze(2), torch.nan), definition)
    values, residual = (
        values.masked_fill(~known.unsqueeze(2), torch.nan),
        residual.masked_fill(~known, torch.nan),
    )
    return Explanation(
        attributions=values.numpy(),
        disparity=disparity.numpy(),
        completeness=residual.numpy(),
        groups=groups,
        columns=compared_columns.of(columns),
        labels=model.classes_[labels] if hasattr(model, "classes_") else labels,
        label_source=label_source,
        definition=replace(definition, n_steps=attribution.n_steps).to_dict(),
    )
