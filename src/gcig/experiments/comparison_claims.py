"""The paper's statements on the comparison of methods (RQ1), and how each of them is judged."""

import math
from collections.abc import Sequence

from gcig.experiments.claims import (
    MISSING,
    TOO_FEW,
    Claim,
    Evidence,
    Finding,
    are_known,
    percent,
    shown,
    untestable,
)
from gcig.experiments.paper import FAIRX, PAPER_DATASETS, PLAIN, paper, printed
from gcig.experiments.settings import HIGHER_IS_BETTER, LABELS, method_label
from gcig.records import Interval
from gcig.records.formatting import number

NAMES: dict[str, str] = paper()["names"]
LEAKED = "compas-paper"
OTHERS = ("unconstrained", "dir", "hardt", "agarwal", "lagrangian", "adversarial")
MATCH = 0.01  # F1 that "matches" the best is at most this much lower
MARGIN = 0.02  # of F1 or AUC: "a small margin" and "robust"
SAME_EO = ("unconstrained", "hardt", "lagrangian", "adversarial")
CHANCE = "the interval includes zero: the difference may be chance"


def reduces(dataset: str) -> Claim:
    """FairX reduces GCIG on a dataset, by at least as much as printed."""
    before, after = (printed(dataset, method, "gcig_raw") for method in (PLAIN, FAIRX))
    assert before is not None
    assert after is not None
    theirs = after[0] / before[0] - 1

    def judge(data: Evidence, fairx: str) -> Finding:
        found = data.change("gcig_raw", data.folds(dataset, fairx), data.folds(dataset, PLAIN))
        if not are_known(found):
            return TOO_FEW
        plain, own = (data.mean(dataset, method, "gcig_raw") for method in (PLAIN, fairx))
        ours = f"{number(plain)} to {number(own)}: {percent(found)}"
        if found.high >= 0:
            return Finding(ours, False, CHANCE)
        less = f"it falls, but by less than the paper's {number(100 * theirs, 0)} %"
        return Finding.of(ours, found.low <= theirs, less)

    return Claim(
        f"reduces/{dataset}",
        "RQ1",
        f"On {NAMES[dataset]}, GCIG decreases from {number(before[0])} (unconstrained) to "
        f"{number(after[0])}.",
        f"{number(before[0])} to {number(after[0])}: {number(100 * theirs, 0)} %",
        judge,
        (dataset,),
        (PLAIN,),
    )


def best(dataset: str, metric: str, *, statement: str) -> Claim:
    """FairX has the best mean of a metric on a dataset."""
    theirs = printed(dataset, FAIRX, metric)
    assert theirs is not None
    sign = -1 if metric in HIGHER_IS_BETTER else 1

    def judge(data: Evidence, fairx: str) -> Finding:
        means = {method: sign * data.mean(dataset, method, metric) for method in data.rivals(fairx, metric)}
        known = {m: value for m, value in means.items() if m != fairx and not math.isnan(value)}
        if not known:
            return TOO_FEW
        rival = min(known, key=lambda method: known[method])
        found = data.difference(dataset, fairx, rival, metric)
        if not are_known(found):
            return TOO_FEW
        ours = (
            f"{number(sign * means[fairx])}; best of the others {method_label(rival)} "
            f"{number(sign * known[rival])}, difference {shown(found)}"
        )
        below, above = (found.high < 0, found.low > 0) if sign > 0 else (found.low > 0, found.high < 0)
        if sign * found.value >= 0:
            doubt = "beyond chance" if above else "but the difference may be chance"
            return Finding(ours, False, f"{method_label(rival)} is as good or better, {doubt}")
        return Finding.of(ours, below, CHANCE)

    return Claim(f"best/{metric}/{dataset}", "RQ1", statement, number(theirs[0]), judge, (dataset,), OTHERS)


def near_best(dataset: str, *, margin: float, statement: str) -> Claim:
    """FairX has an F1 near the best of the others on a dataset."""
    theirs = printed(dataset, FAIRX, "f1")
    assert theirs is not None

    def judge(data: Evidence, fairx: str) -> Finding:
        known = {m: data.mean(dataset, m, "f1") for m in data.rivals(fairx, "f1") if m != fairx}
        rival = max(known, key=lambda method: -math.inf if math.isnan(known[method]) else known[method])
        found = data.difference(dataset, fairx, rival, "f1")
        if not are_known(found):
            return TOO_FEW
        ours = f"{number(data.mean(dataset, fairx, 'f1'))}, {shown(found)} against {method_label(rival)}"
        if found.value <= -margin:
            return Finding(ours, False, f"F1 is lower by {margin:g} or more")
        doubt = f"the mean is less than {margin:g} lower, but the interval reaches further"
        return Finding.of(ours, found.low > -margin, doubt)

    return Claim(f"near/f1/{dataset}", "RQ1", statement, number(theirs[0]), judge, (dataset,), OTHERS)


def championships(metric: str, count: int, method: str | None = None) -> Claim:
    """A method has the best mean on so many of the four datasets; None is FairX."""
    name = "FairX" if method is None else method_label(method)

    def judge(data: Evidence, fairx: str) -> Finding:
        own = fairx if method is None else method
        if any(math.isnan(data.mean(dataset, own, metric)) for dataset in PAPER_DATASETS):
            return MISSING
        won = [name for name in PAPER_DATASETS if own in data.champions(name, fairx, metric)]
        holds = len(won) == count if method else len(won) >= count
        return Finding.of(_count_won(won), holds, _describe_champions(data, fairx, metric, won))

    return Claim(
        f"champion/{metric}/{method or FAIRX}",
        "RQ1, wins",
        f"{name} has the best {LABELS[metric]} on {count} of 4 datasets.",
        f"{count} of 4",
        judge,
        PAPER_DATASETS,
        OTHERS,
    )


def _count_won(won: Sequence[str]) -> str:
    return f"{len(won)} of 4" + (f": {', '.join(won)}" if won else "")


def _describe_champions(data: Evidence, fairx: str, metric: str, left_out: Sequence[str]) -> str:
    """Say which methods are best on the other datasets."""
    found: dict[str, list[str]] = {}
    for name in (each for each in PAPER_DATASETS if each not in left_out):
        for method in data.champions(name, fairx, metric):
            found.setdefault(method_label(method), []).append(name)
    return "; ".join(f"{label} is best on {', '.join(names)}" for label, names in found.items())


def never_wins(method: str) -> Claim:
    """A method has a lower GCIG than FairX on no dataset."""

    def judge(data: Evidence, fairx: str) -> Finding:
        found = {name: data.difference(name, method, fairx, "gcig_raw") for name in PAPER_DATASETS}
        if not are_known(*found.values()):
            return TOO_FEW
        won = [name for name, each in found.items() if each.value < 0]
        return Finding.of(_count_won(won), not won, "its mean is lower there, which is how the paper counts")

    statement = f"{method_label(method)} has a lower GCIG than FairX on no dataset."
    return Claim(f"wins/{method}", "RQ1, wins", statement, "0 of 4", judge, PAPER_DATASETS, (method, PLAIN))


def _identical_gaps(data: Evidence, fairx: str) -> Finding:
    means = {method: data.mean(LEAKED, method, "eo_gap") for method in (*SAME_EO, fairx)}
    if any(map(math.isnan, means.values())):
        return MISSING
    low, high = (choose(means, key=lambda method: means[method]) for choose in (min, max))
    ours = " to ".join(f"{number(means[method])} ({method_label(method)})" for method in (low, high))
    same = number(means[low]) == number(means[high])
    return Finding.of(ours, same, f"the means of the {len(means)} methods differ")


def _explanations_differ(data: Evidence, fairx: str) -> Finding:
    means = {
        m: data.mean(LEAKED, m, "gcig_raw") for m in (*SAME_EO, fairx) if m in data.rivals(fairx, "gcig_raw")
    }
    if any(map(math.isnan, means.values())):
        return MISSING
    low, high = (choose(means, key=lambda method: means[method]) for choose in (min, max))
    found = data.change("gcig_raw", data.folds(LEAKED, high), data.folds(LEAKED, low))
    if not are_known(found):
        return TOO_FEW
    ratio = Interval(1 + found.value, 1 + found.low, 1 + found.high)
    ours = f"{shown(ratio, 1)} times ({method_label(high)} over {method_label(low)})"
    doubt = "the factor is at most five" if ratio.value <= 5 else "the interval reaches below five"
    return Finding.of(ours, ratio.low > 5, doubt)


def _reduces_everywhere(data: Evidence, fairx: str) -> Finding:
    found = {
        name: data.change("gcig_raw", data.folds(name, fairx), data.folds(name, PLAIN))
        for name in PAPER_DATASETS
    }
    if not are_known(*found.values()):
        return TOO_FEW
    doubtful = [f"{name} ({percent(each)})" for name, each in found.items() if each.high >= 0]
    ours = f"lower beyond chance on {len(found) - len(doubtful)} of {len(found)} datasets"
    return Finding.of(ours, not doubtful, f"not beyond chance on {', '.join(doubtful)}")


def _not_worse(data: Evidence, fairx: str) -> Finding:
    worse, known = [], 0
    for dataset in PAPER_DATASETS:
        for metric in ("eo_gap", "f1"):
            found = data.difference(dataset, fairx, PLAIN, metric)
            known += not math.isnan(found.low)
            if found.low > 0 if metric == "eo_gap" else found.high < 0:
                worse.append(f"{LABELS[metric]} on {dataset} ({shown(found)})")
    if known < 2 * len(PAPER_DATASETS):
        return TOO_FEW
    ours = f"worse than unconstrained beyond chance in {len(worse)} of {known} comparisons"
    return Finding.of(ours, not worse, f"worse: {'; '.join(worse)}")


COMPARISON_CLAIMS: tuple[Claim, ...] = (
    Claim(
        "reduces/all",
        "RQ1",
        "Across all datasets, FairX consistently reduces GCIG relative to the unconstrained baseline.",
        "4 of 4",
        _reduces_everywhere,
        PAPER_DATASETS,
        (PLAIN,),
    ),
    *(reduces(name) for name in PAPER_DATASETS),
    *(
        best(name, "gcig_raw", statement=f"FairX has a lower GCIG than all baselines on {NAMES[name]}.")
        for name in PAPER_DATASETS
    ),
    best("german", "f1", statement="FairX achieves the highest F1 on German Credit."),
    near_best(LEAKED, margin=MATCH, statement="FairX matches the best-performing methods' F1 on COMPAS."),
    *(
        near_best(
            name,
            margin=MARGIN,
            statement=f"On {NAMES[name]}, F1 remains within a small margin of the strongest baseline.",
        )
        for name in ("adult", "bank")
    ),
    best("german", "eo_gap", statement="FairX achieves the lowest EO gap on German Credit."),
    Claim(
        "competitive",
        "RQ1",
        "FairX's EO gap remains competitive on the other datasets.",
        "0.023, 0.141, 0.062",
        untestable("'competitive' names no margin"),
        about_fairx=False,
    ),
    Claim(
        "identical_gaps",
        "RQ1",
        "On COMPAS, several methods including FairX (five in the table) achieve identical EO gaps.",
        "0.023",
        _identical_gaps,
        (LEAKED,),
        SAME_EO,
    ),
    Claim(
        "factor_five",
        "Discussion",
        "On COMPAS, the GCIG of these methods varies by a factor of more than five.",
        "0.193 / 0.034 = 5.7",
        _explanations_differ,
        (LEAKED,),
        SAME_EO,
    ),
    Claim(
        "not_worse",
        "Discussion",
        "Reducing GCIG did not systematically worsen EO gaps or predictive utility.",
        "-",
        _not_worse,
        PAPER_DATASETS,
        (PLAIN,),
    ),
    championships("gcig_raw", 4),
    championships("eo_gap", 2),
    championships("f1", 2),
    championships("f1", 3, "lagrangian"),
    championships("eo_gap", 2, "agarwal"),
    never_wins("lagrangian"),
    never_wins("agarwal"),
)
