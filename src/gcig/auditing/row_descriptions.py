"""The rows of an audit that are described one by one: entries, decision and reasons."""

from dataclasses import replace

import numpy as np

from gcig._validation import check_features
from gcig.auditing.row_list import ListedRow
from gcig.auditing.sources import Source, take_rows
from gcig.metrics.rates import Codes
from gcig.metrics.row_reasons import RowDescriber, known_protected, revealing_columns
from gcig.metrics.sample import EncodedRows
from gcig.records.audit import RowAudit
from gcig.records.explanation import RowExplanation


def describe_rows(
    listed: list[ListedRow],
    source: Source,
    describer: RowDescriber,
    *,
    cell_sizes: Codes,
    min_cell: int,
    threshold: float | None,
    include_protected: bool,
) -> tuple[RowAudit, ...]:
    """Describe rows by decreasing disparity; rows of suppressed cells are left out.

    Parameters
    ----------
    cell_sizes : (groups, 2) number of audited rows per group and label.
    """
    shown = [row for row in listed if cell_sizes[row.group, row.label] >= min_cell]
    if not shown:
        return ()
    by_position = {row.position: row for row in shown}
    adapted, found = describer.comparison.adapted, dict[int, RowExplanation]()
    parts = take_rows(source, list(by_position))
    hidden: set[str] = set()
    if not include_protected:
        hidden = {*source.attributes, *known_protected(adapted.model)}
        first = next(source.batches())
        hidden |= revealing_columns(first.table, first.groups)
    describer = replace(describer, hidden=frozenset(hidden))
    order = sorted(by_position)
    for part in parts:
        places, order = order[: len(part)], order[len(part) :]
        rows = [by_position[place] for place in places]
        encoded = EncodedRows(part.inputs, part.labels, part.groups, np.array(places), None)
        described = describer.describe(
            encoded,
            part.predict(adapted, threshold),
            names=part.identifiers or [str(place) for place in places],
            table=check_features(part.table) if getattr(part.table, "ndim", 2) == 2 else None,
            label_source="given",
            group_names=[source.group_names[row.group] if include_protected else None for row in rows],
            values=np.stack([row.values for row in rows], axis=1),
        )
        found.update(zip(places, described, strict=True))
    return tuple(RowAudit(row.position, row.disparity, found[row.position]) for row in shown)
