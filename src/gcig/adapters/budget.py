"""The effort of a measurement: the default, and the most precise one within a limit on rows sent to a model.

Shapley values need many evaluations of the model. `Workload` counts the rows that every part of a measurement
sends at most, and `Workload.fit` chooses the most precise `Budget` within a limit.
"""

from dataclasses import dataclass, replace

from gcig._validation import InputError
from gcig.adapters.entries import TableEncoding
from gcig.core.definition import Definition
from gcig.core.shapley import ALWAYS_EXACT, count_points

_SCALES = tuple(0.9**k for k in range(60))  # shares of the default effort, in decreasing order


@dataclass(frozen=True)
class Budget:
    """The effort of a measurement: numbers of rows, permutations and draws; by default that of an audit."""

    rows: int | None = None  # rows that are explained; None for all
    pairs: int = 16  # antithetic pairs of orders of a Shapley value
    probe_rows: int = 2000  # rows that determine scales and bins
    stability_rows: int = 2000  # rows on which other settings are tried
    shuffles: int = 199  # times that the groups are shuffled
    resamples: int = 100  # times that references are estimated again from resampled rows
    shuffled_rows: int = 500  # rows that are explained again for every shuffle
    shuffled_steps: int | None = None  # steps of those explanations; None for as many as in the main one
    member_rows: int = 1000  # rows that are explained relative to members
    members: int = 64  # members of each half of a cell; see `gcig.metrics.members`
    offset_rows: int = 2048  # members of each cell whose scores are compared with that of its reference
    importance_rows: int = 512  # rows for faithfulness
    exchanged_rows: int = 2048  # rows for the attribute effect
    described_rows: int = 50  # random rows that are described in addition to those with the largest disparity
    exact_points: int = (
        ALWAYS_EXACT  # evaluations per row and group up to which all coalitions are enumerated
    )
    max_levels: int = 256  # levels of all columns with a control variate, which costs an evaluation per row

    def coarsen(self, definition: Definition) -> Definition:
        """Return the definition with the number of steps that shuffles use."""
        return definition if self.shuffled_steps is None else replace(definition, n_steps=self.shuffled_steps)


SHAPLEY_BUDGET = Budget(
    rows=1000,
    probe_rows=100,
    stability_rows=32,
    shuffles=99,
    resamples=50,
    shuffled_rows=32,
    shuffled_steps=2,
    member_rows=128,
    members=16,
)


@dataclass(frozen=True)
class Workload:
    """The size of a measurement by Shapley values."""

    n_rows: int
    n_columns: int
    n_groups: int
    n_levels: int  # of all columns of categories
    random: bool  # whether references are drawn: a column is categorical or has missing values
    audit: bool = True  # whether GCIG is compared with chance and under other settings, as an audit does
    robustness: bool = False  # whether GCIG is measured under several references

    @classmethod
    def of(
        cls, encoding: TableEncoding, n_rows: int, n_groups: int, *, audit: bool, robustness: bool
    ) -> "Workload":
        """Return the size of a measurement of rows with this encoding."""
        n_columns = len(encoding.names)
        return cls(n_rows, n_columns, n_groups, encoding.n_levels, encoding.random, audit, robustness)

    def rows_sent(self, budget: Budget) -> dict[str, int]:
        """Return the most rows that each part of the measurement sends to the model."""
        levels = min(self.n_levels, budget.max_levels)
        explained = min(self.n_rows, budget.rows or self.n_rows)
        coarse, cells = budget.shuffled_steps or budget.pairs, 2 * self.n_groups

        def explain(rows: int, pairs: int, sets: int = 1) -> int:
            points = count_points(self.n_columns, pairs, random=self.random, always=budget.exact_points)
            return min(rows, self.n_rows) * (1 + levels + sets * self.n_groups * points)

        parts = {
            "decisions": self.n_rows,
            "attributions": explain(explained, budget.pairs) + explain(budget.probe_rows, budget.pairs),
            "members": self._members(budget),
            "trust": cells * (budget.offset_rows + 256)
            + budget.importance_rows * (1 + self.n_columns)
            + budget.exchanged_rows * 3,
        }
        if self.audit:
            sets = 1 + budget.shuffles + budget.resamples
            parts["chance"] = explain(min(budget.shuffled_rows, budget.probe_rows), coarse, sets)
            tried = budget.stability_rows
            parts["stability"] = explain(tried, budget.pairs, 3) + explain(tried, 2 * budget.pairs)
        if self.robustness:
            parts["robustness"] = explain(budget.member_rows, coarse, 14) + parts["members"]
        return parts

    def _members(self, budget: Budget) -> int:
        """Return the rows sent to explain relative to members: strata of a few members each."""
        strata = min(8, budget.members)
        each = count_points(self.n_columns, budget.members // strata, random=True, always=budget.exact_points)
        return min(budget.member_rows, self.n_rows) * (1 + 2 * self.n_groups * strata * each)

    def calls(self, budget: Budget, batch_rows: int) -> int:
        """Return the most calls of the model with at most ``batch_rows`` rows each."""
        of_label = 1 + min(self.n_columns, self.n_levels) + budget.pairs  # calls to explain rows of one label
        explained = 2 + 4 * self.audit + 8 * self.robustness  # times that rows are explained
        chunks = -(-budget.member_rows // 32) + 2
        begun = 1 + 2 * of_label * explained + 4 * chunks * (1 + budget.members) * (1 + self.robustness)
        return begun + 4 * self.n_groups + 6 + sum(self.rows_sent(budget).values()) // batch_rows

    def fit(self, limit: int, max_rows: int | None = None) -> Budget:
        """Return the most precise budget that sends at most ``limit`` rows, or raise an error."""
        for scale in _SCALES:
            budget = _scaled(scale)
            if max_rows is not None:
                budget = replace(budget, rows=min(max_rows, budget.rows or max_rows))
            if (total := sum(self.rows_sent(budget).values())) <= limit:
                return budget
        raise InputError(
            f"is {limit:,}, but this measurement sends at least {total:,} rows: {self.n_rows:,} for "
            "decisions, the others for reasons. Raise it, or measure fewer rows or columns.",
            argument="row_budget",
        )


def _scaled(scale: float) -> Budget:
    """Return a share of the default effort, with a minimum for every part."""
    full = SHAPLEY_BUDGET

    def part(number: int | None, least: int) -> int:
        return max(least, round(scale * (number or 0)))

    many, some = scale > 0.3, scale > 0.03
    rows = part(full.rows, 20)
    return Budget(
        rows=rows,
        pairs=full.pairs if many else 8 if some else 4,
        probe_rows=min(rows, part(full.probe_rows, 12)),
        stability_rows=part(full.stability_rows, 4),
        shuffles=full.shuffles if many else 39 if some else 19,
        resamples=full.resamples if many else 20 if some else 10,
        shuffled_rows=max(8, round(scale**0.5 * full.shuffled_rows)),
        shuffled_steps=full.shuffled_steps if many else 1,
        member_rows=part(full.member_rows, 8),
        members=full.members if many else 8,
        offset_rows=part(full.offset_rows, 32),
        importance_rows=part(full.importance_rows, 32),
        exchanged_rows=part(full.exchanged_rows, 64),
        described_rows=0,
        exact_points=full.exact_points if many else 0,
        max_levels=part(full.max_levels, 32),
    )
