"""Summaries of methods over the folds of one table: means, pooled rates, and their trade-off in words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from gcig.records import Evaluation, FoldResult, GroupRates, Interval
from gcig.records.audit import SMALLEST_CELL
from gcig.records.evaluation import is_ranked
from gcig.records.formatting import number
from gcig.records.trade_off import pareto_front
from gcig.records.trust import TRUST_NUMBERS
from gcig.report import charts
from gcig.report.charts import TradeOff
from gcig.report.document import FigureBlock, FigureRow
from gcig.report.tables import Entry, mean_sd

RATES = {
    "base rate": "base_rate",
    "selection rate": "selection_rate",
    "true positive rate": "tpr",
    "false positive rate": "fpr",
    "precision": "ppv",
}
_DIFFERENCE = "largest minus smallest over the groups"
# Field of evaluations and audits -> the displayed name, and how to read it.
MEASURES = {
    "auc": ("AUC", "quality of the ranking: 0.5 is chance, 1 is perfect"),
    "f1": ("F1", "of the positive outcome; a constant prediction can score well"),
    "accuracy": ("Accuracy", "share of correct decisions"),
    "balanced_accuracy": ("Balanced accuracy", "accuracy with equal weight for both outcomes"),
    "selection_rate": ("Selection rate", "share of rows with decision 1"),
    "eo_gap": ("EO gap", "sum of the groups' differences in true and false positive rates"),
    "eo_noise_floor": ("EO gap by chance", "average gap of an exactly fair model with as many rows"),
    "eo_worst": ("Larger of the two differences", "another convention for the EO gap"),
    "delta_tpr": ("Difference in true positive rates", _DIFFERENCE),
    "delta_fpr": ("Difference in false positive rates", _DIFFERENCE),
    "demographic_parity_difference": ("Difference in selection rates", _DIFFERENCE),
    "selection_rate_ratio": ("Four-fifths ratio", "lowest divided by highest rate of favourable decisions"),
    "reason_gap": ("Reason gap", "how far the reasons depend on the group; about 0 for groups drawn by coin"),
    "reason_gap_varying": (
        "Reason gap, varying part",
        "columns that weigh differently for people who are alike",
    ),
    "outcome_gap": ("Outcome gap", "how far decisions depend on the group among people with one outcome"),
    "r2": ("R2", "share of the variance that is predicted"),
    "gcig": ("GCIG", "the paper's formula; it falls as well if explanations grow and cancel"),
    "gcig_l2": ("GCIG, normalised by l2", "on a different scale from GCIG"),
    "gcig_encoded": ("GCIG on encoded columns", "each category is a column, centred within its variable"),
    "gcig_raw": (
        "GCIG on raw columns",
        "the paper's: each category is a column, not centred; it can be lowered without changing a score",
    ),
}
_READING = (
    "The dashed line joins the models on the Pareto front of the two numbers; hollow marks are models that "
    "collapsed or decide everyone alike."
)
_LARGER_REASONS = 1.25  # explanations that grew by more lower GCIG by cancelling
_LARGE_NOISE_SHARE = 0.25  # a noise floor above this share of the EO gap deserves a caution


@dataclass(frozen=True)
class MethodSummary:
    """Results of one method on one table: evaluations of fitted folds, and errors of failed ones."""

    method: str  # its key
    label: str  # its displayed name
    evaluations: tuple[Evaluation, ...]
    failures: tuple[str, ...] = ()
    variant: str = ""

    @classmethod
    def of(cls, label: str, evaluation: Evaluation) -> "MethodSummary":
        """Return the summary of a single evaluation."""
        return cls(label, label, (evaluation,))

    @property
    def n_folds(self) -> int:
        """Number of folds, fitted or not."""
        return len(self.evaluations) + len(self.failures)

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

    @property
    def main_measure(self) -> str:
        """The measure of quality: AUC of two classes, accuracy of several, R2 of numbers."""
        task = self.evaluations[0].task if self.evaluations else "binary"
        return {"classes": "accuracy", "number": "r2"}.get(task, "auc")

    def rank_value(self, measure: str) -> float:
        """Return the mean by which the method is ranked, NaN if it has no rank in this measure."""
        return self.mean(measure) if is_ranked(self.method, measure) else math.nan

    @property
    def trade_off(self) -> TradeOff:
        """The mark of the method in charts of the trade-off."""
        auc, gcig, gap = self.mean("auc"), self.rank_value("gcig"), self.mean("eo_gap")
        return TradeOff(self.label, auc, gcig, gap, collapsed=self.degenerate > 0)

    def entry(self, measure: str, digits: int = 3) -> Entry:
        """Return the mean and standard deviation of a measure over the folds as an entry of a table."""
        return mean_sd(self.values(measure), digits)


def summarise(
    results: Sequence[FoldResult], labels: Mapping[str, str] | None = None
) -> dict[str, list[MethodSummary]]:
    """Return table -> summaries of its methods, in order of appearance; ``labels`` name the methods."""
    parts: dict[tuple[str, str, str], list[FoldResult]] = {}
    for result in results:
        parts.setdefault((result.dataset, result.method, result.variant), []).append(result)
    tables: dict[str, list[MethodSummary]] = {}
    for (dataset, method, variant), folds in parts.items():
        label = (labels or {}).get(method, method)
        summary = MethodSummary(
            method,
            f"{label} {variant}" if variant else label,
            tuple(fold.evaluation for fold in folds if fold.evaluation is not None),
            tuple(fold.error or "failed" for fold in folds if fold.evaluation is None),
            variant,
        )
        tables.setdefault(dataset, []).append(summary)
    return tables


def find_front(methods: Sequence[MethodSummary]) -> list[bool]:
    """Return whether each method is on the Pareto front of AUC, EO gap and GCIG.

    A method with a fold that failed, collapsed or decides everyone alike is never on it and dominates none.
    """
    usable = [m.evaluations and not m.degenerate and not m.failures for m in methods]
    points = [(m.mean("auc"), -m.mean("eo_gap"), -m.rank_value("gcig")) for m in methods]
    undefined = (math.nan,) * 3
    return pareto_front([point if use else undefined for point, use in zip(points, usable, strict=True)])


def pooled_rates(
    evaluations: Sequence[Evaluation], *, favours_positive: bool = True
) -> dict[str, dict[str, Interval]]:
    """Return rate -> group -> estimate over the rows of all evaluations together.

    Unless the positive outcome is the favourable one, the favourable rate replaces the selection rate.
    """
    least = min_cell(evaluations)

    def pooled(group: str, field: str) -> Interval:
        parts = [rates for evaluation in evaluations for rates in evaluation.groups if rates.group == group]
        return pooled_rate(parts, field, least)

    groups = group_sizes(evaluations)
    found = {name: {group: pooled(group, field) for group in groups} for name, field in RATES.items()}
    if not favours_positive:
        selected = found["selection rate"]
        found["selection rate"] = {
            g: Interval(1 - r.value, 1 - r.high, 1 - r.low) for g, r in selected.items()
        }
    return dict(zip(rate_names(favours_positive=favours_positive), found.values(), strict=True))


def rate_names(*, favours_positive: bool) -> tuple[str, ...]:
    """Return the names of the rates on a page: the selection rate may be one of the unfavourable outcome."""
    return tuple("favourable rate" if n == "selection rate" and not favours_positive else n for n in RATES)


def group_sizes(evaluations: Sequence[Evaluation]) -> dict[str, int]:
    """Return group -> number of its rows in all evaluations together."""
    sizes: dict[str, int] = {}
    for evaluation in evaluations:
        for rates in evaluation.groups:
            sizes[rates.group] = sizes.get(rates.group, 0) + (rates.n_rows or 0)
    return sizes


def min_cell(evaluations: Sequence[Evaluation]) -> int:
    """Return the number of rows below which a page suppresses rates."""
    return max([SMALLEST_CELL, *(evaluation.min_cell for evaluation in evaluations)])


def pooled_rate(parts: Sequence[GroupRates], field: str, min_cell: int = SMALLEST_CELL) -> Interval:
    """Return one rate of a group over all its parts, undefined if it is a share of too few rows."""
    weighted = [(getattr(rates, field), _n_rows(rates, field)) for rates in parts]
    weighted = [(rate, n) for rate, n in weighted if n > 0 and not math.isnan(rate)]
    n_rows = sum(n for _, n in weighted)
    if n_rows < max(min_cell, 1):
        return Interval(math.nan)
    return Interval.of_rate(sum(rate * n for rate, n in weighted) / n_rows, n_rows)


def _n_rows(rates: GroupRates, field: str) -> float:
    """Return the denominator of a group's rate."""
    share = {"tpr": rates.base_rate, "fpr": 1 - rates.base_rate, "ppv": rates.selection_rate}.get(field, 1.0)
    return 0.0 if math.isnan(share) else float(round((rates.n_rows or 0) * share))


def describe_trade_off(plain: MethodSummary, fair: MethodSummary) -> tuple[str, list[str], list[str]]:
    """Return a headline, findings and cautions that compare a fair model with the plain one."""
    return _headline(plain, fair), _findings(plain, fair), _cautions(plain, fair)


def _headline(plain: MethodSummary, fair: MethodSummary) -> str:
    if fair.collapsed:
        return f"{fair.label} has collapsed: it hardly distinguishes the outcomes, and low gaps mean little."
    if fair.degenerate:
        return f"{fair.label} decides everyone alike: low gaps mean little. Choose another threshold."
    before, after = (each.interval("reason_gap") for each in (plain, fair))
    if math.isnan(before.value + after.value):
        return (
            f"The reason gap is undefined for {plain.label} or {fair.label}, so their reasons cannot be "
            "compared."
        )
    name = fair.main_measure
    cost = round(plain.mean(name), 3) - round(fair.mean(name), 3)
    title = MEASURES.get(name, (name, ""))[0]
    price = f"at a cost of {number(cost)} in {title}" if cost > 5e-4 else f"at no cost in {title}"
    if not _surely_lower(plain, fair):
        return f"It is not certain that {fair.label} makes the reasons depend less on the group, {price}."
    certain = before.low > 0 and after.low > 0
    times = f"{before.value / after.value:.1f} times less" if certain else "less"
    return f"{fair.label} makes the reasons depend {times} on the group, {price}."


def _surely_lower(plain: MethodSummary, fair: MethodSummary) -> bool:
    """Return whether the reason gap is lower with certainty: by the paired difference, if there is one."""
    before, after = (each.interval("reason_gap") for each in (plain, fair))
    if len(plain.evaluations) == len(fair.evaluations) == 1:
        first, second = plain.evaluations[0], fair.evaluations[0]
        if first.sample and first.sample == second.sample:
            return first.difference(second).figure("reason_gap").low > 0
    return after.value < before.value and not overlap(before, after)


def _findings(plain: MethodSummary, fair: MethodSummary) -> list[str]:
    def change(measure: str) -> str:
        return _change(plain.mean(measure), fair.mean(measure))

    lines = [
        f"Reasons: the reason gap {change('reason_gap')}, its varying part {change('reason_gap_varying')}."
    ]
    if not math.isnan(plain.mean("gcig") + fair.mean("gcig")):
        lines.append(f"GCIG, the paper's formula, {change('gcig')}.")
    name = fair.main_measure
    return [
        *lines,
        f"Decisions: the outcome gap {change('outcome_gap')}.",
        f"Quality: {MEASURES.get(name, (name, ''))[0]} {change(name)}.",
    ]


def _cautions(plain: MethodSummary, fair: MethodSummary) -> list[str]:
    cautions = []
    floor = fair.mean("eo_noise_floor")
    if floor >= _LARGE_NOISE_SHARE * fair.mean("outcome_gap"):
        cautions.append(
            f"With this few rows, even an exactly fair model shows an outcome gap of {number(floor)} on "
            f"average: "
            "differences of that size mean little."
        )
    before, after = plain.mean("reason_size"), fair.mean("reason_size")
    if after > _LARGER_REASONS * before and fair.mean("gcig") < plain.mean("gcig"):
        cautions.append(
            f"The size of reasons rises from {number(before)} to {number(after)}: GCIG fell because "
            f"explanations "
            "grew and cancel."
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


def trade_off_figures(
    points: Sequence[charts.TradeOff],
    *,
    noise_floor: float | None = None,
    gap: str = "EO gap",
    reading: str = _READING,
    order: Sequence[str] = (),
) -> FigureRow:
    """Return the charts of AUC against GCIG and against the outcome gap, which is called ``gap``.

    ``reading`` explains the marks and lines; ``order`` lists all groups and models of the page.
    """
    shade = " In the shaded area, a gap is indistinguishable from chance." if noise_floor is not None else ""
    reasons = charts.pareto(points, ["GCIG"], title="AUC against GCIG", order=order)
    outcome = charts.pareto(
        points, ["EO gap"], title=f"AUC against {gap}", noise_floor=noise_floor, order=order
    )
    return FigureRow(
        [
            FigureBlock(reasons, f"Reasons: up and to the left is better. {reading}"),
            FigureBlock(outcome, f"Decisions: the same for the {gap}.{shade}"),
        ]
    )
