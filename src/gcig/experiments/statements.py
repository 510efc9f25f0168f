"""The statements of the paper that have a number or a ranking, and how each of them is judged."""

import math
from collections.abc import Callable

import pandas as pd

from gcig.experiments import ablation, sensitivity
from gcig.experiments.claims import Claim, Finding, untestable
from gcig.experiments.evidence import Evidence, percent, shown
from gcig.experiments.measurements import GROUPS, rule_name
from gcig.experiments.paper import FAIRX, PAPER_DATASETS, PLAIN, PUBLISHED, paper, printed
from gcig.experiments.settings import HIGHER_IS_BETTER, LABELS, method_label
from gcig.records import Interval, formatting

NAMES: dict[str, str] = paper()["names"]
LEAKED = "compas-paper"
OTHERS = ("unconstrained", "dir", "hardt", "agarwal", "lagrangian", "adversarial")
MATCH = 0.01  # F1 that "matches" the best is at most this much lower
MARGIN = 0.02  # of F1 or AUC: "a small margin" and "robust"
SAME_EO = ("unconstrained", "hardt", "lagrangian", "adversarial")
_number = formatting.number
_FEW = "fewer than three folds are finished"
_CHANCE = "the interval includes zero: the difference may be chance"


def _needs(found: Interval, judge: Callable[[], Finding]) -> Finding:
    """Judge unless the interval is undefined."""
    return Finding("-", None, _FEW) if math.isnan(found.low + found.high) else judge()


def reduces(dataset: str) -> Claim:
    """FairX reduces GCIG on a dataset, by at least as much as printed."""
    before, after = (printed(dataset, method, "gcig_raw") for method in (PLAIN, FAIRX))
    assert before is not None
    assert after is not None
    theirs = after[0] / before[0] - 1

    def judge(data: Evidence, fairx: str) -> Finding:
        found = data.change("gcig_raw", data.folds(dataset, fairx), data.folds(dataset, PLAIN))

        def verdict() -> Finding:
            plain, own = (data.mean(dataset, method, "gcig_raw") for method in (PLAIN, fairx))
            ours = f"{_number(plain)} to {_number(own)}: {percent(found)}"
            if found.high >= 0:
                return Finding(ours, False, _CHANCE)
            if found.low > theirs:
                return Finding(ours, False, "it falls, but by less than the paper's")
            return Finding(ours, True)

        return _needs(found, verdict)

    return Claim(
        f"reduces/{dataset}",
        "RQ1",
        f"FairX reduces GCIG relative to the unconstrained network on {NAMES[dataset]}.",
        f"{_number(before[0])} to {_number(after[0])}: {_number(100 * theirs, 0)} %",
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
            return Finding("-", None, _FEW)
        rival = min(known, key=lambda method: known[method])
        found = data.difference(dataset, fairx, rival, metric)

        def verdict() -> Finding:
            ours = (
                f"{_number(sign * means[fairx])}; best of the others {method_label(rival)} "
                f"{_number(sign * known[rival])}, difference {shown(found)}"
            )
            if sign * found.value >= 0:
                return Finding(ours, False, f"{method_label(rival)} is better or equal")
            certain = found.high < 0 if sign > 0 else found.low > 0
            return Finding(ours, certain, "" if certain else _CHANCE)

        return _needs(found, verdict)

    return Claim(f"best/{metric}/{dataset}", "RQ1", statement, _number(theirs[0]), judge, (dataset,), OTHERS)


def near_best(dataset: str, *, margin: float, statement: str) -> Claim:
    """FairX has an F1 near the best of the others on a dataset."""
    theirs = printed(dataset, FAIRX, "f1")
    assert theirs is not None

    def judge(data: Evidence, fairx: str) -> Finding:
        known = {m: data.mean(dataset, m, "f1") for m in data.rivals(fairx, "f1") if m != fairx}
        rival = max(known, key=lambda method: -math.inf if math.isnan(known[method]) else known[method])
        found = data.difference(dataset, fairx, rival, "f1")

        def verdict() -> Finding:
            ours = f"{_number(data.mean(dataset, fairx, 'f1'))}, {shown(found)} against {method_label(rival)}"
            holds = found.low > -margin
            return Finding(ours, holds, "" if holds else f"the interval reaches beyond {margin:g} below")

        return _needs(found, verdict)

    return Claim(f"near/f1/{dataset}", "RQ1", statement, _number(theirs[0]), judge, (dataset,), OTHERS)


def championships(metric: str, count: int, method: str | None = None) -> Claim:
    """A method has the best mean on so many of the four datasets; None is FairX."""
    name = "FairX" if method is None else method_label(method)

    def judge(data: Evidence, fairx: str) -> Finding:
        own = fairx if method is None else method
        if any(math.isnan(data.mean(dataset, own, metric)) for dataset in PAPER_DATASETS):
            return Finding("-", None, "results are missing")
        won = [name for name in PAPER_DATASETS if own in data.champions(name, fairx, metric)]
        ours = f"{len(won)} of 4" + (f": {', '.join(won)}" if won else "")
        holds = len(won) == count if method else len(won) >= count
        reason = "" if holds else "means are compared at the three digits that the paper prints"
        return Finding(ours, holds, reason)

    return Claim(
        f"champion/{metric}/{method or FAIRX}",
        "RQ1, wins",
        f"{name} has the best {LABELS[metric]} on {count} of 4 datasets.",
        f"{count} of 4",
        judge,
        PAPER_DATASETS,
        OTHERS,
    )


def never_wins(method: str) -> Claim:
    """A method has a lower GCIG than FairX on no dataset."""

    def judge(data: Evidence, fairx: str) -> Finding:
        found = {name: data.difference(name, method, fairx, "gcig_raw") for name in PAPER_DATASETS}
        if any(math.isnan(each.low) for each in found.values()):
            return Finding("-", None, _FEW)
        won = [name for name, each in found.items() if each.value < 0]
        return Finding(f"{len(won)} of 4" + (f": {', '.join(won)}" if won else ""), not won)

    statement = f"{method_label(method)} has a lower GCIG than FairX on no dataset."
    return Claim(f"wins/{method}", "RQ1, wins", statement, "0 of 4", judge, PAPER_DATASETS, (method, PLAIN))


def _identical_gaps(data: Evidence, fairx: str) -> Finding:
    means = {method: data.mean(LEAKED, method, "eo_gap") for method in (*SAME_EO, fairx)}
    if any(math.isnan(value) for value in means.values()):
        return Finding("-", None, "results are missing")
    low, high = min(means.values()), max(means.values())
    same = _number(low) == _number(high)
    return Finding(f"{_number(low)} to {_number(high)}", same, "" if same else "they are not identical")


def _gaps_alike_reasons_not(data: Evidence, fairx: str) -> Finding:
    means = {
        m: data.mean(LEAKED, m, "gcig_raw") for m in (*SAME_EO, fairx) if m in data.rivals(fairx, "gcig_raw")
    }
    if any(math.isnan(value) for value in means.values()):
        return Finding("-", None, "results are missing")
    low, high = min(means, key=lambda m: means[m]), max(means, key=lambda m: means[m])
    found = data.change("gcig_raw", data.folds(LEAKED, high), data.folds(LEAKED, low))

    def verdict() -> Finding:
        ratio = Interval(1 + found.value, 1 + found.low, 1 + found.high)
        ours = f"{shown(ratio, 1)} times ({method_label(high)} over {method_label(low)})"
        return Finding(ours, ratio.low > 5, "" if ratio.low > 5 else "the interval reaches below five")

    return _needs(found, verdict)


def _not_worse(data: Evidence, fairx: str) -> Finding:
    worse, known = [], 0
    for dataset in PAPER_DATASETS:
        for metric in ("eo_gap", "f1"):
            found = data.difference(dataset, fairx, PLAIN, metric)
            known += not math.isnan(found.low)
            if found.low > 0 if metric == "eo_gap" else found.high < 0:
                worse.append(f"{LABELS[metric]} on {dataset} ({shown(found)})")
    if known < 2 * len(PAPER_DATASETS):
        return Finding("-", None, _FEW)
    return Finding(f"worse beyond chance in {len(worse)} of 8: {'; '.join(worse) or 'none'}", not worse)


def correlation(kind: str, statement: str, theirs: float, datasets: tuple[str, ...]) -> Claim:
    """The correlation of EO gap and GCIG is the printed one."""

    def judge(data: Evidence, fairx: str) -> Finding:
        found = data.correlate(fairx, datasets, kind)

        def verdict() -> Finding:
            inside = found.low <= theirs <= found.high
            reason = "" if inside else "the interval does not contain the paper's value"
            return Finding(shown(found), inside, reason)

        return _needs(found, verdict)

    place = "/".join(datasets) if len(datasets) == 1 else "all"
    return Claim(f"{kind}/{place}", "RQ2", statement, _number(theirs), judge, datasets, (*OTHERS,))


def _partial_unchanged(data: Evidence, fairx: str) -> Finding:
    raw, given = (data.correlate(fairx, PAPER_DATASETS, kind) for kind in ("pearson", "partial"))

    def verdict() -> Finding:
        same = abs(raw.value - given.value) < 0.05
        reason = "" if same else "it changes by more than 0.05"
        return Finding(f"{_number(raw.value)} to {shown(given)}", same, reason)

    return _needs(given, verdict)


def ablated(key: str, statement: str) -> Claim:
    """A configuration of the ablation changes GCIG by the printed percentage."""
    theirs = float(paper()["ablation"]["values"][key]["change"])

    def judge(data: Evidence, fairx: str) -> Finding:
        new, old = (_ablation_rows(data, fairx, each) for each in (key, "prediction"))
        found = data.change("gcig_raw", new, old)

        def verdict() -> Finding:
            holds = found.low > 0 if theirs > 0 else found.high < 0
            opposite = found.high < 0 if theirs > 0 else found.low > 0
            reason = "" if holds else "the opposite is found" if opposite else _CHANCE
            return Finding(percent(found), holds, reason)

        return _needs(found, verdict)

    printed_change = f"{'+' if theirs > 0 else ''}{_number(theirs, 0)} %"
    return Claim(
        f"ablation/{key}", "RQ3, ablation", statement, printed_change, judge, (LEAKED,), (), "ablation"
    )


def _ablation_rows(data: Evidence, fairx: str, key: str) -> pd.DataFrame:
    return data.folds(LEAKED, fairx, variant=ablation.variant(key), experiment="ablation")


def _both_terms(data: Evidence, fairx: str) -> Finding:
    full = _ablation_rows(data, fairx, "full")
    found = {
        key: data.change("gcig_raw", full, _ablation_rows(data, fairx, key))
        for key in ("prediction+eo", "prediction+gcig")
    }
    if any(math.isnan(each.low) for each in found.values()):
        return Finding("-", None, _FEW)
    to_eo, to_gcig = map(percent, found.values())
    ours = f"{to_eo} against EO alone, {to_gcig} against GCIG alone"
    holds = all(each.high < 0 for each in found.values())
    return Finding(ours, holds, "" if holds else "not lower than both beyond chance")


def _ablation_same(metric: str, tolerance: float) -> Callable[[Evidence, str], Finding]:
    def judge(data: Evidence, fairx: str) -> Finding:
        new, old = (
            data.mean(LEAKED, fairx, metric, variant=ablation.variant(key), experiment="ablation")
            for key in ("full", "prediction")
        )
        if math.isnan(new + old):
            return Finding("-", None, "results are missing")
        holds = abs(new - old) <= tolerance
        reason = "" if holds else f"they differ by more than {tolerance:g}"
        return Finding(f"{_number(old)} to {_number(new)}", holds, reason)

    return judge


def _insensitive(data: Evidence, fairx: str) -> Finding:
    frames = [
        data.folds(LEAKED, fairx, variant=sensitivity.variant(swept, weight), experiment="sensitivity")
        for swept in sensitivity.SWEPT
        for weight in sensitivity.WEIGHTS
    ]
    if not all(map(len, frames)):
        return Finding("-", None, "results are missing")
    ranges = {m: [float(rows[m].mean()) for rows in frames] for m in ("auc", "f1")}
    collapsed = sum(int((rows["collapsed"] > 0).sum()) for rows in frames)
    ours = ", ".join(f"{LABELS[m]} {_number(min(v))} to {_number(max(v))}" for m, v in ranges.items())
    holds = not collapsed and all(max(v) - min(v) <= MARGIN for v in ranges.values())
    reason = "" if holds else f"a range above {MARGIN:g}, or collapsed folds"
    return Finding(f"{ours}; {collapsed} collapsed folds", holds, reason)


def _slower(data: Evidence, _: str) -> Finding:
    cost = {(row["rule"], row["groups"]): row for row in data.measured.get("cost", ())}
    rows = [(steps, cost.get((rule_name(steps), GROUPS[0]))) for steps in paper()["cost"]["steps"]]
    known = [(steps, row) for steps, row in rows if row is not None]
    if not known:
        return Finding("-", None, "the cost was not measured")
    ours = ", ".join(f"T = {steps}: {_number(row['ratio'], 1)} times" for steps, row in known)
    holds = all(0.5 * steps <= row["ratio"] <= 2 * steps for steps, row in known)
    return Finding(ours, holds, "" if holds else "more than a factor of two from T")


def _independent_of_groups(data: Evidence, _: str) -> Finding:
    cost = {(row["rule"], row["groups"]): row["ratio"] for row in data.measured.get("cost", ())}
    few, many = (cost.get((rule_name(16), groups), math.nan) for groups in GROUPS)
    if math.isnan(few + many):
        return Finding("-", None, "the cost was not measured")
    ours = f"{GROUPS[-1]} groups cost {_number(many / few, 1)} times as much as {GROUPS[0]}"
    holds = many / few < 1.25
    return Finding(ours, holds, "" if holds else "one pass explains all groups, but its products grow")


_RQ2 = paper()["correlation"]
CLAIMS: tuple[Claim, ...] = (
    *(reduces(name) for name in PAPER_DATASETS),
    *(
        best(name, "gcig_raw", statement=f"FairX has the lowest GCIG of all methods on {NAMES[name]}.")
        for name in PAPER_DATASETS
    ),
    best("german", "f1", statement="FairX has the highest F1 on German Credit."),
    near_best(LEAKED, margin=MATCH, statement="FairX matches the best F1 on COMPAS."),
    near_best("adult", margin=MARGIN, statement="F1 on Adult is within a small margin of the best."),
    near_best("bank", margin=MARGIN, statement="F1 on Bank is within a small margin of the best."),
    best("german", "eo_gap", statement="FairX has the lowest EO gap on German Credit."),
    Claim(
        "competitive",
        "RQ1",
        "FairX's EO gap is competitive on the other datasets.",
        "0.023, 0.141, 0.062",
        untestable("'competitive' names no margin"),
        about_fairx=False,
    ),
    Claim(
        "identical_gaps",
        "RQ1",
        "On COMPAS, FairX and four other methods have identical EO gaps.",
        "0.023",
        _identical_gaps,
        (LEAKED,),
        SAME_EO,
    ),
    Claim(
        "factor_five",
        "Discussion",
        "The GCIG of methods with the same EO gap on COMPAS differs by a factor of more than five.",
        "0.193 / 0.034 = 5.7",
        _gaps_alike_reasons_not,
        (LEAKED,),
        SAME_EO,
    ),
    Claim(
        "not_worse",
        "Discussion",
        "Reducing GCIG did not systematically worsen EO gaps or F1.",
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
    correlation(
        "pearson",
        "EO gap and GCIG are weakly correlated over all models (Pearson).",
        _RQ2["pearson"]["r"],
        PAPER_DATASETS,
    ),
    correlation("spearman", "The same by ranks (Spearman).", _RQ2["spearman"]["r"], PAPER_DATASETS),
    correlation(
        "r_squared", "The EO gap explains 6 % of the variance of GCIG.", _RQ2["r_squared"], PAPER_DATASETS
    ),
    *(
        correlation("pearson", f"The correlation on {NAMES[name]}.", each["r"], (name,))
        for name, each in _RQ2["values"].items()
    ),
    Claim(
        "partial",
        "RQ2",
        "The correlation is virtually unchanged given F1.",
        "0.244 to 0.244",
        _partial_unchanged,
        PAPER_DATASETS,
        OTHERS,
    ),
    Claim(
        "insensitive",
        "RQ3, sensitivity",
        "Performance on COMPAS is robust to weights from 0.1 to 10.",
        "no values",
        _insensitive,
        (LEAKED,),
        (),
        "sensitivity",
    ),
    ablated("prediction+eo", "The EO term alone worsens GCIG."),
    ablated("prediction+gcig", "The GCIG term alone improves it modestly."),
    ablated("full", "Both terms together improve it most."),
    Claim(
        "both_terms",
        "RQ3, ablation",
        "Both terms together are substantially better than either alone.",
        "0.023 against 0.034 and 0.028",
        _both_terms,
        (LEAKED,),
        (),
        "ablation",
    ),
    Claim(
        "ablation_auc",
        "RQ3, ablation",
        "The full model keeps AUC.",
        "0.981 to 0.979",
        _ablation_same("auc", 0.005),
        (LEAKED,),
        (),
        "ablation",
    ),
    Claim(
        "ablation_eo",
        "RQ3, ablation",
        "The full model has the same EO gap.",
        "0.017 to 0.017",
        _ablation_same("eo_gap", 0.0005),
        (LEAKED,),
        (),
        "ablation",
    ),
    Claim(
        "slower",
        "Complexity",
        "Training is approximately T times slower than standard training (T of 8 and 16).",
        "8, 16",
        _slower,
        (),
        (PUBLISHED,),
        "cost",
        about_fairx=False,
    ),
    Claim(
        "groups",
        "Complexity",
        "The cost is independent of the number of groups.",
        "1.0",
        _independent_of_groups,
        (),
        (PUBLISHED,),
        "cost",
        about_fairx=False,
    ),
)
