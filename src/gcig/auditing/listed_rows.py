"""Single rows in a record: positions, and only where asked for also reasons."""

import numpy as np

from gcig.auditing.batches import EncodedRows
from gcig.auditing.procedural import Measured
from gcig.auditing.reasons import Explaining
from gcig.auditing.row_tally import RowTally, TopRow, described_rows, largest
from gcig.records.audit import RowAudit

__all__ = ["list_rows"]


def list_rows(
    tally: RowTally, names: tuple[str, ...], measured: Measured, others: EncodedRows | None
) -> tuple[RowAudit, ...]:
    """The rows with the largest disparity, by falling disparity.

    Parameters
    ----------
    names : of all groups.
    others : further rows to describe; None where no row is to be described, and positions are all.
    """
    if others is None:
        return tuple(RowAudit(row.position, row.disparity) for row in tally.top)
    explaining = tally.explaining
    rows = largest(
        list({row.position: row for row in [*_described(explaining, others), *tally.top]}.values())
    )
    if not rows:
        return ()
    logits = np.asarray(explaining.adapted.logits(np.stack([row.inputs for row in rows])), np.float64)
    scores = 1 / (1 + np.exp(-logits)) if explaining.adapted.probabilistic else logits
    return tuple(
        RowAudit(
            row.position,
            row.disparity,
            label=measured.classes[row.label],
            group=names[row.group],
            score=float(score),
            reasons={
                group: dict(zip(measured.columns, row.values[g].tolist(), strict=True))
                for g, group in enumerate(measured.groups)
            },
        )
        for row, score in zip(rows, scores.tolist(), strict=True)
    )


def _described(explaining: Explaining, rows: EncodedRows) -> list[TopRow]:
    found = []
    for label in np.unique(rows.labels).tolist():
        own = rows[rows.labels == label]
        reasons = explaining.explain(own.inputs, label)
        found += described_rows(own, reasons, label, np.flatnonzero(reasons.defined))
    return found
