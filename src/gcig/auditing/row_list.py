"""Single rows of an audit: the distribution of the disparity, and the rows where it is largest."""

from dataclasses import dataclass

import numpy as np

from gcig.metrics.rates import Codes, Floats
from gcig.metrics.reasons import Comparison, RowReasons
from gcig.metrics.sample import EncodedRows
from gcig.records.audit import RowAudit

_N_BINS = 24
_TOP_ROWS = 20
_DESCRIBED_ROWS = 50  # with include_rows: so many of the largest disparity, and so many at random


@dataclass(frozen=True, eq=False)
class _Row:
    """A row and its reasons: ``values`` (groups, columns) are attributions, ``inputs`` (p,) is encoded."""

    position: int
    disparity: float
    label: int
    group: int
    values: Floats
    inputs: Floats


class RowList:
    """Histogram of the disparity per group, and the rows with the largest disparity.

    Parameters
    ----------
    comparison : how rows are explained and compared.
    probe : rows that determine the bins of the histogram.
    n_groups : the number of groups of the rows, compared or not.
    include_rows : whether rows are described, rather than only located.

    Attributes
    ----------
    edges : (bins + 1,) edges of the histogram; the last bin is open.
    histogram : (groups, bins) counts of rows.
    """

    def __init__(
        self, comparison: Comparison, probe: EncodedRows, *, n_groups: int, include_rows: bool
    ) -> None:
        self.comparison, self.include_rows = comparison, include_rows
        spread = [found.disparity for _, found, _ in comparison.explain_all(probe) if found is not None]
        top = float(np.quantile(np.concatenate(spread), 0.995)) if spread else 0.0
        self.edges = np.linspace(0, top if top > 0 else 1.0, _N_BINS + 1)
        self.histogram = np.zeros((n_groups, _N_BINS), dtype=np.int64)
        self._n_top = _DESCRIBED_ROWS if include_rows else _TOP_ROWS
        self._top: list[_Row] = []

    def add(self, rows: EncodedRows, found: RowReasons | None, label: int) -> None:
        """Add explained rows of one label."""
        if found is None:
            return
        bins = np.searchsorted(self.edges, np.where(found.defined, found.disparity, 0.0), side="right") - 1
        flat = rows.groups * _N_BINS + np.clip(bins, 0, _N_BINS - 1)
        counted = np.bincount(flat[found.defined], minlength=self.histogram.size)
        self.histogram += counted.reshape(self.histogram.shape)
        few = np.flatnonzero(found.defined)
        if len(few) > self._n_top:
            few = few[np.argpartition(-found.disparity[few], self._n_top - 1)[: self._n_top]]
        self._top = _sorted([*self._top, *_described(rows, found, label, few)])[: self._n_top]

    def counts(self, names: tuple[str, ...], n_rows: Codes, min_cell: int) -> dict[str, tuple[int, ...]]:
        """Return the counts of each group; a bin, or a group, under ``min_cell`` rows counts as empty."""
        return {
            name: tuple(np.where(self.histogram[g] >= min_cell, self.histogram[g], 0).tolist())
            for g, name in enumerate(names)
            if n_rows[g] >= min_cell
        }

    def records(
        self,
        names: tuple[str, ...],
        compared: tuple[str, ...],
        classes: tuple[str, str],
        others: EncodedRows,
    ) -> tuple[RowAudit, ...]:
        """Return the rows by decreasing disparity.

        Parameters
        ----------
        names : names of all groups.
        compared : names of the compared groups.
        classes : names of the labels.
        others : audited rows in random order, of which some are described as well.
        """
        if not self.include_rows:
            return tuple(RowAudit(row.position, row.disparity) for row in self._top)
        explained = self.comparison.explain_all(others[:_DESCRIBED_ROWS])
        more = [
            row
            for part, found, label in explained
            if found is not None
            for row in _described(part, found, label, np.flatnonzero(found.defined))
        ]
        rows = _sorted(list({row.position: row for row in [*more, *self._top]}.values()))
        if not rows:
            return ()
        adapted = self.comparison.adapted
        logits = np.asarray(adapted.logits(np.stack([row.inputs for row in rows])), np.float64)
        scores = 1 / (1 + np.exp(-logits)) if adapted.probabilistic else logits
        return tuple(
            RowAudit(
                row.position,
                row.disparity,
                label=classes[row.label],
                group=names[row.group],
                score=float(score),
                reasons={
                    group: dict(zip(self.comparison.columns, row.values[g].tolist(), strict=True))
                    for g, group in enumerate(compared)
                },
            )
            for row, score in zip(rows, scores.tolist(), strict=True)
        )


def _described(rows: EncodedRows, found: RowReasons, label: int, few: Codes) -> list[_Row]:
    """Return some of the explained rows one by one."""
    return [
        _Row(
            int(rows.positions[i]),
            float(found.disparity[i]),
            label,
            int(rows.groups[i]),
            found.values[:, i],
            np.asarray(rows.inputs[i], dtype=np.float64),
        )
        for i in few.tolist()
    ]


def _sorted(rows: list[_Row]) -> list[_Row]:
    """Sort rows by decreasing disparity; ties stay in the order of the table."""
    return sorted(rows, key=lambda row: (-row.disparity, row.position))
