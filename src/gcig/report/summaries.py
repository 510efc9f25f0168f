"""Summaries of methods over the folds of one table: means, pooled rates, and their trade-off in words."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from gcig.records import Evaluation, FoldResult, GroupRates, Interval
from gcig.records.audit import SMALLEST_CELL
from gcig.records.evaluation import Figure, is_ranked
from gcig.records.formatting import number
from gcig.records.trade_off import pareto_front
from gcig.records.trust import TRUST_NUMBERS
from gcig.report.tables import Entry, mean_sd

RATES = {
    "base rate": "base_rate",
    "selection rate": "selection_rate",
    "true positive rate": "tpr",
    "false positive rate": "fpr",
    "precision": "ppv",
}
CONCLUDED = ("reason_gap", "outcome_gap")  # what pages and trade-offs conclude from, besides utility
_MAIN = {"binary": "auc", "classes": "accuracy", "number": "r2"}
# Colours and marks of methods are the same on every page; those of groups follow from their order.
_MARKS = {
    "unconstrained": 7,
    "fairx": 8,
    "dir": 4,
    "hardt": 5,
    "agarwal": 3,
    "lagrangian": 9,
    "adversarial": 6,
    "fairx-paper": 2,
}
_LARGER_REASONS = 1.25  # explanations that grew by more lower GCIG by cancelling
_LARGE_NOISE_SHARE = 0.25  # a noise floor above this share of the outcome gap deserves a caution


def main_measure(task: str) -> str:
    """Return the measure of utility that a price is stated in, as `gcig.metrics.utility.MAIN`."""
    return _MAIN.get(task, "auc")


def figures_of(evaluations: Iterable[Evaluation]) -> dict[str, Figure]:
    """Return the figures that some evaluation has, by name."""
    return {each.name: each for evaluation in evaluations for each in evaluation.figures}


def figure_title(evaluations: Iterable[Evaluation], name: str) -> str:
    """Return what pages call a figure."""
    figure = figures_of(evaluations).get(name)
    return figure.title if figure is not None and figure.title else name.replace("_", " ")


def lead_names(task: str) -> tuple[str, ...]:
    """Return the figures that stand on the first screen of a comparison."""
    return (main_measure(task), "outcome_gap", "reason_gap", "reason_gap_varying")


@dataclass(frozen=True)
class MethodSummary:
    """Results of one method on one table: evaluations of fitted folds, and errors of failed ones."""

    method: str  # its key
    label: str  # its displayed name
    evaluations: tuple[Evaluation, ...]
    failures: tuple[str, ...] = ()
    variant: str = ""
    place: int | None = None  # the number of its mark

    @classmethod
    def of(cls, key: str, label: str, evaluation: Evaluation) -> "MethodSummary":
        """Return the summary of a single evaluation."""
        return cls(key, label, (evaluation,), place=method_place(key))

    @property
    def n_folds(self) -> int:
        """Number of folds, fitted or not."""
        return len(self.evaluations) + len(self.failures)

    @property
    def task(self) -> str:
        """The task of its evaluations."""
        return self.evaluations[0].task if self.evaluations else "binary"

    @property
    def collapsed(self) -> int:
        """Number of folds whose model has collapsed."""
        return sum(evaluation.collapsed for evaluation in self.evaluations)

    @property
    def degenerate(self) -> int:
        """Number of folds whose model has collapsed or decides everyone alike."""
        return sum(evaluation.degenerate for evaluation in self.evaluations)

    def values(self, measure: str) -> list[float]:
        """Return the defined values of a measure, one per fold."""
        found = [float(each[measure]) for each in self.evaluations if measure in each]
        return [value for value in found if not math.isnan(value)]

    def mean(self, measure: str) -> float:
        """Return the mean of a measure over the folds."""
        values = self.values(measure)
        return fmean(values) if values else math.nan

    def interval(self, measure: str) -> Interval:
        """Return the mean of a measure, with the means of its limits."""
        return Interval(self.mean(measure), *(self.mean(f"{measure}_{end}") for end in ("low", "high")))

    def rank_value(self, measure: str) -> float:
        """Return the mean by which the method is ranked, NaN if it has no rank in this measure."""
        return self.mean(measure) if is_ranked(self.method, measure) else math.nan

    def entry(self, measure: str, digits: int = 3) -> Entry:
        """Return the mean and standard deviation of a measure over the folds as an entry of a table."""
        return mean_sd(self.values(measure), digits)


def method_place(key: str, others: Sequence[str] = ()) -> int:
    """Return the number of a method's mark; methods of other packages follow those of this one."""
    unknown = [each for each in others if each not in _MARKS]
    return _MARKS.get(key, 10 + (unknown.index(key) if key in unknown else 0))


def summarise(
    results: Sequence[FoldResult], labels: Mapping[str, str] | None = None
) -> dict[str, list[MethodSummary]]:
    """Return table -> summaries of its methods, in order of appearance; ``labels`` name the methods."""
    parts: dict[tuple[str, str, str], list[FoldResult]] = {}
    for result in results:
        parts.setdefault((result.dataset, result.method, result.variant), []).append(result)
    tables: dict[str, list[MethodSummary]] = {}
    keys = list(dict.fromkeys(method for _, method, _ in parts))
    for (dataset, method, variant), folds in parts.items():
        label = (labels or {}).get(method, method)
        summary = MethodSummary(
            method,
            f"{label} {variant}" if variant else label,
            tuple(fold.evaluation for fold in folds if fold.evaluation is not None),
            tuple(fold.error or "failed" for fold in folds if fold.evaluation is None),
            variant,
            method_place(method, keys) if not variant else None,
        )
        tables.setdefault(dataset, []).append(summary)
    return tables


def find_front(methods: Sequence[MethodSummary]) -> list[bool]:
    """Return whether each method is on the Pareto front of utility, outcome gap and reason gap.

    A method with a fold that failed, collapsed or decides everyone alike is never on it and dominates none. A
    gap that is undefined for all methods, for want of rows, does not count.
    """
    usable = [m.evaluations and not m.degenerate and not m.failures for m in methods]
    names = [name for name in CONCLUDED if not all(math.isnan(m.mean(name)) for m in methods)]
    points = [(m.mean(main_measure(m.task)), *(-m.rank_value(name) for name in names)) for m in methods]
    undefined = (math.nan,) * (1 + len(names))
    return pareto_front([point if use else undefined for point, use in zip(points, usable, strict=True)])


def pooled_rates(evaluations: Sequence[Evaluation]) -> dict[str, dict[str, Interval]]:
    """Return rate -> group -> estimate over the rows of all evaluations together."""
    least = max([SMALLEST_CELL, *(evaluation.min_cell for evaluation in evaluations)])
    groups = dict.fromkeys(rates.group for evaluation in evaluations for rates in evaluation.groups)

    def pooled(group: str, field: str) -> Interval:
        parts = [rates for evaluation in evaluations for rates in evaluation.groups if rates.group == group]
        return pooled_rate(parts, field, least)

    return {name: {group: pooled(group, field) for group in groups} for name, field in RATES.items()}


def pooled_rate(parts: Sequence[GroupRates], field: str, min_cell: int = SMALLEST_CELL) -> Interval:
    """Return one rate of a group over all its parts, undefined if it is a share of too few rows."""
    weighted = [(rates.values.get(field, math.nan), rate_rows(rates, field)) for rates in parts]
    weighted = [(rate, n) for rate, n in weighted if n > 0 and not math.isnan(rate)]
    n_rows = sum(n for _, n in weighted)
    if n_rows < max(min_cell, 1):
        return Interval(math.nan)
    return Interval.of_rate(sum(rate * n for rate, n in weighted) / n_rows, n_rows)


def rate_rows(rates: GroupRates, field: str) -> float:
    """Return the denominator of a group's rate."""
    base, selected = (rates.values.get(name, math.nan) for name in ("base_rate", "selection_rate"))
    share = {"tpr": base, "fpr": 1 - base, "ppv": selected}.get(field, 1.0)
    return 0.0 if math.isnan(share) else float(round((rates.n_rows or 0) * share))


def describe_trade_off(plain: MethodSummary, fair: MethodSummary) -> tuple[str, list[str], list[str]]:
    """Return a headline, findings and cautions that compare a fair model with the plain one."""
    return _headline(plain, fair), _findings(plain, fair), _cautions(plain, fair)


def price(plain: MethodSummary, fair: MethodSummary) -> str:
    """Say what a model costs in the task's own measure."""
    name = main_measure(fair.task)
    cost = round(plain.mean(name), 3) - round(fair.mean(name), 3)
    title = figure_title(fair.evaluations, name)
    return f"at a cost of {number(cost)} in {title}" if cost > 5e-4 else f"at no cost in {title}"


def _headline(plain: MethodSummary, fair: MethodSummary) -> str:
    if fair.collapsed:
        return f"{fair.label} has collapsed: it hardly distinguishes the outcomes, and low gaps mean little."
    if fair.degenerate:
        return f"{fair.label} decides everyone alike: low gaps mean little. Choose another threshold."
    before, after = (each.interval("reason_gap") for each in (plain, fair))
    if math.isnan(before.value + after.value):
        return f"The reason gap is undefined for {plain.label} or {fair.label}: it cannot be compared."
    cost = price(plain, fair)
    if not surely_lower(plain, fair):
        return f"It is not certain that {fair.label} makes the reasons depend less on the group, {cost}."
    certain = before.low > 0 and after.low > 0
    times = f"{before.value / after.value:.1f} times less" if certain else "less"
    return f"{fair.label} makes the reasons depend {times} on the group, {cost}."


def surely_lower(plain: MethodSummary, fair: MethodSummary) -> bool:
    """Return whether the reason gap is lower with certainty: by the paired difference, if there is one."""
    before, after = (each.interval("reason_gap") for each in (plain, fair))
    if len(plain.evaluations) == len(fair.evaluations) == 1:
        first, second = plain.evaluations[0], fair.evaluations[0]
        if first.sample and first.sample == second.sample:
            return first.difference(second).figure("reason_gap").low > 0
    return after.value < before.value and not overlap(before, after)


def _findings(plain: MethodSummary, fair: MethodSummary) -> list[str]:
    names = [*lead_names(fair.task), "gcig"]
    titles = {name: figure_title([*plain.evaluations, *fair.evaluations], name) for name in names}
    pairs = {name: (plain.mean(name), fair.mean(name)) for name in names}
    return [
        f"{titles[name]} {_change(*pair)}."
        for name, pair in pairs.items()
        if not all(math.isnan(value) for value in pair)
    ]


def _cautions(plain: MethodSummary, fair: MethodSummary) -> list[str]:
    cautions = []
    floor = fair.mean("eo_noise_floor")
    if floor >= _LARGE_NOISE_SHARE * fair.mean("outcome_gap"):
        cautions.append(
            f"With this few rows, even an exactly fair model shows an outcome gap of {number(floor)} on "
            "average: differences of that size mean little."
        )
    before, after = plain.mean("reason_size"), fair.mean("reason_size")
    if after > _LARGER_REASONS * before and fair.mean("gcig") < plain.mean("gcig"):
        cautions.append(
            f"The size of reasons rises from {number(before)} to {number(after)}: GCIG fell because "
            "explanations grew and cancel."
        )
    changes = (item.describe_change(plain.mean(item.field), fair.mean(item.field)) for item in TRUST_NUMBERS)
    return [*cautions, *(change for change in changes if change)]


def overlap(first: Interval, second: Interval) -> bool:
    """Return whether two intervals overlap, so that the order of the estimates is uncertain.

    >>> overlap(Interval(0.2, 0.1, 0.3), Interval(0.25, 0.2, 0.4)), overlap(Interval(0.2), Interval(0.3))
    (True, False)
    """
    return first.low <= second.high and second.low <= first.high


def _change(before: float, after: float) -> str:
    """Describe the change from one value to another.

    >>> _change(0.16, 0.04), _change(0.1, 0.1)
    ('falls from 0.160 to 0.040', 'stays at 0.100')
    """
    if math.isnan(before) or math.isnan(after):
        return f"is {number(before)} before and {number(after)} after"
    if number(before) == number(after):
        return f"stays at {number(after)}"
    return f"{'falls' if after < before else 'rises'} from {number(before)} to {number(after)}"
