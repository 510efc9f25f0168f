"""The people nearest to an explained row: of every group, with each decision."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gcig._validation import check_features
from gcig.adapters import Outputs
from gcig.auditing.sources import Batch
from gcig.metrics.row_reasons import RowDescriber, find_neighbours
from gcig.records.explanation import RowExplanation

NEIGHBOUR_ROWS = 5000  # people that are searched for neighbours: a sample of the table


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """The people that are searched for those nearest to a row.

    Attributes
    ----------
    people : the rows of these people.
    group_names : names of the groups, in the order of their codes.
    compared : positions of the groups that neighbours come from.
    describer : how rows are described.
    threshold : probability from which a row is predicted 1; None for the model's own rule.
    min_cell : neighbours are shown only if at least this many people share their group and decision.
    """

    people: Batch
    group_names: Sequence[str]
    compared: tuple[int, ...]
    describer: RowDescriber
    threshold: float | None
    min_cell: int

    def add(self, table: pd.DataFrame, described: tuple[RowExplanation, ...]) -> tuple[RowExplanation, ...]:
        """Return the rows with the nearest people of every compared group and decision."""
        groups, others = self.people.groups, check_features(self.people.table)
        outputs = self.people.predict(self.describer.comparison.adapted, self.threshold)
        accepted = ((outputs.decisions >= 0.5) == self.describer.favourable).astype(np.int64)
        large = {
            (group, decision)
            for group in self.compared
            for decision in (0, 1)
            if np.count_nonzero((groups == group) & (accepted == decision)) >= self.min_cell
        }
        found = find_neighbours(table[list(others.columns)], others, groups, accepted, self.compared)
        nearest = [
            [(place, distance) for cell, (place, distance) in of_row.items() if cell in large]
            for of_row in found
        ]
        places = np.unique([place for of_row in nearest for place, _ in of_row]).astype(np.int64)
        if not len(places):
            return described
        near = dict(zip(places.tolist(), self._describe(places, others, outputs, accepted), strict=True))
        return tuple(
            replace(row, neighbours=tuple(replace(near[place], distance=d) for place, d in of_row))
            for row, of_row in zip(described, nearest, strict=True)
        )

    def _describe(
        self, places: np.ndarray, others: pd.DataFrame, outputs: Outputs, accepted: np.ndarray
    ) -> tuple[RowExplanation, ...]:
        """Describe people by their places among all; their distance depends on the row that they are near."""
        words = {1: "favourable", 0: "unfavourable"}
        names = [self.group_names[group] for group in self.people.groups[places].tolist()]
        return self.describer.describe(
            self.people.rows[places],
            Outputs(outputs.scores[places], outputs.decisions[places]),
            names=[""] * len(places),
            table=others.iloc[places],
            label_source="given",
            group_names=names,
            roles=[
                f"nearest {words[decision]} decision in group {name!r}"
                for name, decision in zip(names, accepted[places].tolist(), strict=True)
            ],
        )
