"""The people nearest to an explained row: of every group, with each decision."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from gcig._validation import check_features
from gcig.adapters import AdaptedModel, Outputs
from gcig.auditing.sources import TableSource
from gcig.metrics.row_reasons import RowDescriber, find_neighbours
from gcig.records.explanation import RowExplanation

_NEIGHBOUR_ROWS = 5000  # reference rows among which neighbours are looked for


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """The people nearest to a row, among a sample of the reference rows."""

    adapted: AdaptedModel
    source: TableSource
    compared: tuple[int, ...]
    describer: RowDescriber
    threshold: float | None
    min_cell: int
    random_state: int

    def add(self, table: pd.DataFrame, described: tuple[RowExplanation, ...]) -> tuple[RowExplanation, ...]:
        """Return the rows with the nearest people of every compared group and decision."""
        batch, groups = self.source.batch, self.source.group_names
        rng = np.random.default_rng(self.random_state)
        few = np.sort(rng.permutation(len(batch))[:_NEIGHBOUR_ROWS])
        whole = check_features(batch.table)
        others, rows = whole.iloc[few], batch.rows[few]
        sensitive = _taken(batch.sensitive, few)
        outputs = self.adapted.answer(others, sensitive, encoded=rows.inputs, threshold=self.threshold)
        accepted = ((outputs.decisions >= 0.5) == self.describer.favourable).astype(np.int64)
        large = {
            (group, decision)
            for group in self.compared
            for decision in (0, 1)
            if np.count_nonzero((rows.groups == group) & (accepted == decision)) >= self.min_cell
        }
        found = find_neighbours(table[list(others.columns)], others, rows.groups, accepted, self.compared)
        wanted = [
            (i, cell, place, distance)
            for i, of_row in enumerate(found)
            for cell, (place, distance) in of_row.items()
            if cell in large
        ]
        if not wanted:
            return described
        places = np.array([place for _, _, place, _ in wanted])
        words = {1: "favourable", 0: "unfavourable"}
        near = self.describer.describe(
            rows[places],
            Outputs(outputs.scores[places], outputs.decisions[places]),
            names=[""] * len(wanted),
            table=others.iloc[places],
            label_source="given",
            group_names=[groups[group] for _, (group, _), _, _ in wanted],
            roles=[
                f"nearest {words[decision]} decision in group {groups[group]!r}"
                for _, (group, decision), _, _ in wanted
            ],
            distances=[distance for *_, distance in wanted],
        )
        return tuple(
            replace(row, neighbours=tuple(n for (j, *_), n in zip(wanted, near, strict=True) if j == i))
            for i, row in enumerate(described)
        )


def _taken(values: Any, places: Any) -> Any:
    return values.iloc[places] if hasattr(values, "iloc") else np.asarray(values)[places]
