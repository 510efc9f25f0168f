"""Judges of the paper's statements: one function per kind of claim in ``paper.json``.

A judge takes the evidence, the version of FairX and the entries of its claim, such as the dataset.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gcig.benchmark.results import method_label
from gcig.experiments.claims import (
    FEW,
    Claim,
    Evidence,
    Finding,
    Untestable,
    known,
    known_means,
    percent,
)
from gcig.experiments.measurements import GROUPS, rule_name
from gcig.experiments.paper import FAIRX, PAPER_DATASETS, PLAIN, PUBLISHED, paper, printed
from gcig.experiments.settings import HIGHER_IS_BETTER, LABELS, texts
from gcig.records import Interval
from gcig.records.formatting import estimate, number

LEAKED = "compas-paper"
OTHERS = ("unconstrained", "dir", "hardt", "agarwal", "lagrangian", "adversarial")
SAME_EO = ("unconstrained", "hardt", "lagrangian", "adversarial")
MATCH = 0.01  # F1 that "matches" the best is at most this much lower
MARGIN = 0.02  # of F1 or AUC: "a small margin" and "robust"
UNCHANGED = 0.05  # of a correlation: "virtually unchanged"
KEPT_AUC = 0.005  # "competitive utility"; the paper's own loss is 0.002
SAME_GAP = 0.0005  # "identical" in the three digits that the paper prints
APPROXIMATE = 2.0  # a factor: "approximately T times slower"
INDEPENDENT = 1.25  # a factor: cost that is "independent of the number of groups"
READINGS = texts()["chapters"]["readings"].format(
    match=MATCH,
    margin=MARGIN,
    unchanged=UNCHANGED,
    kept_auc=KEPT_AUC,
    approximate=APPROXIMATE,
    independent=INDEPENDENT,
)
CHANCE = "the interval includes zero: the difference may be chance"
_NOT_MEASURED = "the cost was not measured"
_ROUNDING = 0.01  # GCIG is printed with three digits, so ratios are known only to a percentage point

Judge = Callable[..., Finding]
_JUDGES: dict[str, tuple[Judge, dict[str, Any]]] = {}  # name -> function, and the fields of its claims


def _judge(**needs: Any) -> Callable[[Judge], Judge]:
    """Register a judge, with the fields of `Claim` that name what a run must contain."""

    def register(function: Judge) -> Judge:
        _JUDGES[function.__name__] = function, needs
        return function

    return register


@_judge(methods=(PLAIN,))
def reduces(data: Evidence, fairx: str, *, dataset: str) -> Finding:
    """FairX reduces GCIG on a dataset, by at least as much as printed."""
    found = known(data.change("gcig_raw", data.folds(dataset, fairx), data.folds(dataset, PLAIN)))
    before, after = (_printed(dataset, method, "gcig_raw") for method in (PLAIN, FAIRX))
    plain, own = (data.mean(dataset, method, "gcig_raw") for method in (PLAIN, fairx))
    ours = f"{number(plain)} to {number(own)}: {percent(found)}"
    if found.high >= 0:
        return Finding(ours, False, CHANCE)
    theirs = after / before - 1
    less = f"it falls, but by less than the paper's {number(100 * theirs, 0)} %"
    return Finding.of(ours, found.low <= theirs, less)


def _printed(dataset: str, method: str, metric: str) -> float:
    numbers = printed(dataset, method, metric)
    assert numbers is not None
    return numbers[0]


@_judge(datasets=PAPER_DATASETS, methods=(PLAIN,))
def reduces_everywhere(data: Evidence, fairx: str) -> Finding:
    """FairX reduces GCIG beyond chance on every dataset."""
    found = {
        name: known(data.change("gcig_raw", data.folds(name, fairx), data.folds(name, PLAIN)))
        for name in PAPER_DATASETS
    }
    doubtful = [f"{name} ({percent(each)})" for name, each in found.items() if each.high >= 0]
    ours = f"lower beyond chance on {len(found) - len(doubtful)} of {len(found)} datasets"
    return Finding.of(ours, not doubtful, f"not beyond chance on {', '.join(doubtful)}")


@_judge(methods=OTHERS)
def best(data: Evidence, fairx: str, *, dataset: str, metric: str) -> Finding:
    """FairX has the best mean of a metric on a dataset."""
    sign = -1 if metric in HIGHER_IS_BETTER else 1
    means = {method: sign * data.mean(dataset, method, metric) for method in data.rivals(fairx, metric)}
    others = {m: value for m, value in means.items() if m != fairx and not math.isnan(value)}
    if not others:
        raise Untestable(FEW)
    rival = min(others, key=lambda method: others[method])
    found = known(data.difference(dataset, fairx, rival, metric))
    ours = (
        f"{number(sign * means[fairx])}; best of the others {method_label(rival)} "
        f"{number(sign * others[rival])}, difference {estimate(found)}"
    )
    below, above = (found.high < 0, found.low > 0) if sign > 0 else (found.low > 0, found.high < 0)
    if sign * found.value >= 0:
        doubt = "beyond chance" if above else "but the difference may be chance"
        return Finding(ours, False, f"{method_label(rival)} is as good or better, {doubt}")
    return Finding.of(ours, below, CHANCE)


@_judge(methods=OTHERS)
def near_best(data: Evidence, fairx: str, *, dataset: str, matches: bool) -> Finding:
    """FairX matches the best F1 of the others on a dataset, or is within a small margin of it."""
    margin = MATCH if matches else MARGIN
    others = {m: data.mean(dataset, m, "f1") for m in data.rivals(fairx, "f1") if m != fairx}
    rival = max(others, key=lambda method: -math.inf if math.isnan(others[method]) else others[method])
    found = known(data.difference(dataset, fairx, rival, "f1"))
    ours = f"{number(data.mean(dataset, fairx, 'f1'))}, {estimate(found)} against {method_label(rival)}"
    if found.value <= -margin:
        return Finding(ours, False, f"F1 is lower by {margin:g} or more")
    doubt = f"the mean is less than {margin:g} lower, but the interval reaches further"
    return Finding.of(ours, found.low > -margin, doubt)


@_judge(datasets=(LEAKED,), methods=SAME_EO)
def identical_gaps(data: Evidence, fairx: str) -> Finding:
    """Several methods and FairX have the same EO gap on COMPAS."""
    means = known_means({method: data.mean(LEAKED, method, "eo_gap") for method in (*SAME_EO, fairx)})
    low, high = (choose(means, key=lambda method: means[method]) for choose in (min, max))
    ours = " to ".join(f"{number(means[method])} ({method_label(method)})" for method in (low, high))
    same = number(means[low]) == number(means[high])
    return Finding.of(ours, same, f"the means of the {len(means)} methods differ")


@_judge(datasets=(LEAKED,), methods=SAME_EO)
def factor_of_five(data: Evidence, fairx: str) -> Finding:
    """The GCIG of the methods with the same EO gap on COMPAS varies by a factor of more than five."""
    ranked = [method for method in (*SAME_EO, fairx) if method in data.rivals(fairx, "gcig_raw")]
    means = known_means({method: data.mean(LEAKED, method, "gcig_raw") for method in ranked})
    low, high = (choose(means, key=lambda method: means[method]) for choose in (min, max))
    found = known(data.change("gcig_raw", data.folds(LEAKED, high), data.folds(LEAKED, low)))
    ratio = Interval(1 + found.value, 1 + found.low, 1 + found.high)
    ours = f"{estimate(ratio, 1)} times ({method_label(high)} over {method_label(low)})"
    doubt = "the factor is at most five" if ratio.value <= 5 else "the interval reaches below five"
    return Finding.of(ours, ratio.low > 5, doubt)


@_judge(datasets=PAPER_DATASETS, methods=(PLAIN,))
def not_worse(data: Evidence, fairx: str) -> Finding:
    """FairX is worse than the plain network in no EO gap and no F1."""
    worse = []
    for dataset in PAPER_DATASETS:
        for metric in ("eo_gap", "f1"):
            found = known(data.difference(dataset, fairx, PLAIN, metric))
            if found.low > 0 if metric == "eo_gap" else found.high < 0:
                worse.append(f"{LABELS[metric]} on {dataset} ({estimate(found)})")
    compared = 2 * len(PAPER_DATASETS)
    ours = f"worse than unconstrained beyond chance in {len(worse)} of {compared} comparisons"
    return Finding.of(ours, not worse, f"worse: {'; '.join(worse)}")


@_judge(datasets=PAPER_DATASETS, methods=OTHERS)
def championships(
    data: Evidence, fairx: str, *, metric: str, count: int, method: str | None = None
) -> Finding:
    """A method has the best mean on so many of the four datasets; None is FairX."""
    own = fairx if method is None else method
    known_means({name: data.mean(name, own, metric) for name in PAPER_DATASETS})
    champions = {name: data.champions(name, fairx, metric) for name in PAPER_DATASETS}
    won = [name for name, methods in champions.items() if own in methods]
    others: dict[str, list[str]] = {}
    for name, methods in champions.items():
        for each in methods if own not in methods else ():
            others.setdefault(method_label(each), []).append(name)
    reason = "; ".join(f"{label} is best on {', '.join(names)}" for label, names in others.items())
    return Finding.of(_count_won(won), len(won) == count if method else len(won) >= count, reason)


def _count_won(won: Sequence[str]) -> str:
    return f"{len(won)} of 4" + (f": {', '.join(won)}" if won else "")


@_judge(datasets=PAPER_DATASETS, methods=(PLAIN,))
def never_wins(data: Evidence, fairx: str, *, method: str) -> Finding:
    """A method has a lower GCIG than FairX on no dataset."""
    found = {name: known(data.difference(name, method, fairx, "gcig_raw")) for name in PAPER_DATASETS}
    won = [name for name, each in found.items() if each.value < 0]
    return Finding.of(_count_won(won), not won, "its mean is lower there, which is how the paper counts")


@_judge(datasets=PAPER_DATASETS, methods=OTHERS)
def correlation(data: Evidence, fairx: str, *, kind: str, dataset: str = "", sign: str = "") -> Finding:
    """The correlation of EO gap and GCIG is the printed one, and has the given sign: positive or zero."""
    numbers = paper()["correlation"]
    numbers = numbers["values"][dataset] if dataset else numbers[kind]
    theirs = numbers if kind == "r_squared" else numbers["r"]
    datasets = (dataset,) if dataset else PAPER_DATASETS
    found = known(data.correlate(fairx, datasets, kind))
    doubts = []
    if not found.low <= theirs <= found.high:
        doubts.append(f"the interval does not contain the paper's {number(theirs)}")
    if sign == "zero" and not found.low <= 0 <= found.high:
        doubts.append("the interval excludes zero: the correlation does not vanish")
    if sign == "positive" and found.low <= 0:
        doubts.append("the interval is not above zero")
    holds = not doubts
    if kind == "r_squared" and data.correlate(fairx, datasets).value < 0:
        doubts.append("our correlation is negative, the paper's is positive")
    return Finding(estimate(found), holds, "; ".join(doubts))


@_judge(datasets=PAPER_DATASETS, methods=OTHERS)
def significant(data: Evidence, fairx: str, *, kind: str) -> Finding:
    """The correlation over all models is positive beyond chance."""
    found = known(data.correlate(fairx, PAPER_DATASETS, kind))
    if found.high < 0:
        return Finding(estimate(found), False, "it is significant, but negative")
    doubt = "the interval, which resamples whole folds, includes zero"
    return Finding.of(estimate(found), found.low > 0, doubt)


@_judge(datasets=PAPER_DATASETS, methods=OTHERS)
def partial_unchanged(data: Evidence, fairx: str) -> Finding:
    """The correlation given F1 is virtually the same as without it."""
    raw, given = (data.correlate(fairx, PAPER_DATASETS, kind) for kind in ("pearson", "partial"))
    moved = abs(raw.value - known(given).value)
    ours = f"{number(raw.value)} to {estimate(given)}"
    return Finding.of(ours, moved < UNCHANGED, f"it changes by {number(moved)}")


@_judge(datasets=(LEAKED,), experiment="ablation")
def ablated(data: Evidence, fairx: str, *, configuration: str) -> Finding:
    """A configuration of the ablation changes GCIG beyond chance, and by about the printed percentage."""
    theirs = float(paper()["ablation"]["values"][configuration]["change"])
    new, old = (data.ablation(fairx, key) for key in (configuration, "prediction"))
    found = known(data.change("gcig_raw", new, old))
    changes = found.low > 0 if theirs > 0 else found.high < 0
    opposite = found.high < 0 if theirs > 0 else found.low > 0
    if not changes:
        return Finding(percent(found), False, "the change has the opposite sign" if opposite else CHANCE)
    inside = found.low - _ROUNDING <= theirs / 100 <= found.high + _ROUNDING
    size = "the direction is the same, but the interval excludes the printed change"
    return Finding.of(percent(found), inside, size)


@_judge(datasets=(LEAKED,), experiment="ablation")
def both_terms(data: Evidence, fairx: str) -> Finding:
    """Both terms together lower GCIG more than each of them alone."""
    full = data.ablation(fairx, "full")
    found = {
        name: known(data.change("gcig_raw", full, data.ablation(fairx, f"prediction+{name.lower()}")))
        for name in ("EO", "GCIG")
    }
    ours = ", ".join(f"{percent(each)} against {name} alone" for name, each in found.items())
    doubtful = [name for name, each in found.items() if each.high >= 0]
    reason = f"not lower beyond chance than with {' or '.join(doubtful)} alone"
    return Finding.of(ours, not doubtful, reason)


@_judge(datasets=(LEAKED,), experiment="ablation")
def ablation_keeps(data: Evidence, fairx: str, *, metric: str) -> Finding:
    """The full model has the AUC or the EO gap of the model without fairness terms."""
    means = {key: float(data.ablation(fairx, key)[metric].mean()) for key in ("full", "prediction")}
    new, old = known_means(means).values()
    apart, ours = abs(new - old), f"{number(old)} to {number(new)}"
    same = apart <= (KEPT_AUC if metric == "auc" else SAME_GAP)
    return Finding.of(ours, same, f"they differ by {number(apart, 4)}")


@_judge(datasets=(LEAKED,), experiment="sensitivity")
def insensitive(data: Evidence, fairx: str) -> Finding:
    """AUC and F1 hardly depend on the weights, and no fold collapses."""
    frames = data.sweeps(fairx)
    if not all(map(len, frames)):
        raise Untestable("results are missing")
    ranges = {m: [float(rows[m].mean()) for rows in frames] for m in ("auc", "f1")}
    collapsed = sum(int((rows["collapsed"] > 0).sum()) for rows in frames)
    ours = ", ".join(f"{LABELS[m]} {number(min(v))} to {number(max(v))}" for m, v in ranges.items())
    widths = {metric: max(values) - min(values) for metric, values in ranges.items()}
    reasons = [f"{LABELS[m]} varies by {number(width)}" for m, width in widths.items() if width > MARGIN]
    reasons += ["folds collapse"] * bool(collapsed)
    return Finding(f"{ours}; {collapsed} collapsed folds", not reasons, ", ".join(reasons))


@_judge(methods=(PUBLISHED,), experiment="cost", about_fairx=False)
def slower(data: Evidence, _: str) -> Finding:
    """Training with T steps is about T times slower than plain training."""
    cost = _cost(data)
    ratios = {T: ratio for T in paper()["cost"]["steps"] if (ratio := cost.get((rule_name(T), GROUPS[0])))}
    if not ratios:
        raise Untestable(_NOT_MEASURED)
    ours = ", ".join(f"T = {steps}: {number(ratio, 1)} times" for steps, ratio in ratios.items())
    holds = all(1 / APPROXIMATE <= ratio / steps <= APPROXIMATE for steps, ratio in ratios.items())
    return Finding.of(ours, holds, f"more than a factor of {APPROXIMATE:g} from T")


@_judge(methods=(PUBLISHED,), experiment="cost", about_fairx=False)
def independent_of_groups(data: Evidence, _: str) -> Finding:
    """The cost of training does not grow with the number of groups."""
    few, many = (_cost(data).get((rule_name(16), groups), math.nan) for groups in GROUPS)
    if math.isnan(few + many):
        raise Untestable(_NOT_MEASURED)
    ours = f"{GROUPS[-1]} groups cost {number(many / few, 1)} times as much as {GROUPS[0]}"
    reason = "one pass explains all groups, but it has more rows to compute with every group"
    return Finding.of(ours, many / few < INDEPENDENT, reason)


def _cost(data: Evidence) -> dict[tuple[str, int], float]:
    return {(row["rule"], row["groups"]): row["ratio"] for row in data.results.measured.get("cost", ())}


@_judge(about_fairx=False)
def untestable(_: Evidence, __: str, *, reason: str) -> Finding:
    """Nothing could test the claim."""
    return Finding("-", None, reason)


def _claim(key: str, place: str, statement: str, printed: str, judge: str, **entries: Any) -> Claim:
    """Return a claim of ``paper.json`` with its judge; a named dataset or method must be in the run."""
    function, needs = _JUDGES[judge]
    needs = dict(needs)
    if "dataset" in entries:
        needs["datasets"] = (entries["dataset"],)
    if "method" in entries:
        needs["methods"] = (*needs["methods"], entries["method"])
    return Claim(key, place, statement, printed, partial(function, **entries), **needs)


CLAIMS: tuple[Claim, ...] = tuple(_claim(**entry) for entry in paper()["claims"])
