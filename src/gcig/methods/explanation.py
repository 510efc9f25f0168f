"""The reasons for some rows under each group's baseline, as arrays or as a tidy frame."""

from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["Explanation"]


@dataclass(frozen=True, eq=False)
class Explanation:
    """Attributions of rows, compared with the typical member of every group.

    Attributes
    ----------
    attributions : array of shape (groups, n, columns)
        How much each column moves a row's logit away from that of the group's typical member with the same
        label.
    disparity : array of shape (n,)
        How far the normalised attributions of the groups are apart; NaN where a row has no reasons.
    completeness : array of shape (groups, n)
        ``|sum of the attributions - (f(x) - f(baseline))|``.
    groups, columns : tuple of str
        Names of the first and the last dimension.
    labels : array of shape (n,)
        The labels whose baselines were used, as classes.
    label_source : {"given", "predicted"}
        Where they came from.
    definition : dict
        The definition of disparity.
    """

    attributions: NDArray[np.float32]
    disparity: NDArray[np.float32]
    completeness: NDArray[np.float32]
    groups: tuple[str, ...]
    columns: tuple[str, ...]
    labels: NDArray[Any]
    label_source: str
    definition: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.disparity)

    def to_frame(self) -> pd.DataFrame:
        """One row per row, group and column: row, group, column, attribution, disparity."""
        groups, n, columns = self.attributions.shape
        index = pd.MultiIndex.from_product(
            [range(n), self.groups, self.columns], names=["row", "group", "column"]
        )
        tidy = pd.DataFrame({"attribution": self.attributions.transpose(1, 0, 2).ravel()}, index=index)
        tidy["disparity"] = np.repeat(self.disparity, groups * columns)
        return tidy.reset_index()

    def top_columns(self, n: int = 10) -> pd.DataFrame:
        """The columns with the largest mean absolute attribution, per group."""
        means = pd.DataFrame(
            np.abs(self.attributions).mean(1).T, index=list(self.columns), columns=list(self.groups)
        )
        return means.loc[means.mean(axis=1).sort_values(ascending=False).index[:n]]

    def __repr__(self) -> str:
        return (
            f"Explanation of {len(self)} rows: {len(self.columns)} columns under {len(self.groups)} groups "
            f"({', '.join(self.groups)}), {self.label_source} labels, mean disparity "
            f"{np.nanmean(self.disparity) if len(self) else np.nan:.3f}"
        )

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.top_columns().to_html(float_format='%.3f', escape=True)}"
