"""All statements of the paper that have a number or a ranking: RQ1, and those on RQ2, RQ3 and cost below."""

import math
from collections.abc import Callable

import pandas as pd

from gcig.experiments import ablation, sensitivity
from gcig.experiments.claims import FEW, Claim, Finding, judge_if_known
from gcig.experiments.comparison_claims import CHANCE, COMPARISON_CLAIMS, LEAKED, MARGIN, NAMES, OTHERS
from gcig.experiments.evidence import Evidence, percent, shown
from gcig.experiments.measurements import GROUPS, rule_name
from gcig.experiments.paper import PAPER_DATASETS, PUBLISHED, paper
from gcig.experiments.settings import LABELS
from gcig.records import formatting

_number = formatting.number
_ROUNDING = 0.01  # GCIG is printed with three digits: their ratios are known to a percentage point


def correlation(kind: str, statement: str, theirs: float, datasets: tuple[str, ...]) -> Claim:
    """The correlation of EO gap and GCIG is the printed one."""

    def judge(data: Evidence, fairx: str) -> Finding:
        found = data.correlate(fairx, datasets, kind)

        def verdict() -> Finding:
            inside = found.low <= theirs <= found.high
            reason = "" if inside else "the interval does not contain the paper's value"
            if kind == "r_squared" and data.correlate(fairx, datasets).value < 0:
                reason = "; ".join(filter(None, (reason, "the correlation itself is negative")))
            return Finding(shown(found), inside, reason)

        return judge_if_known(found, verdict)

    place = "/".join(datasets) if len(datasets) == 1 else "all"
    return Claim(f"{kind}/{place}", "RQ2", statement, _number(theirs), judge, datasets, (*OTHERS,))


def _significant(data: Evidence, fairx: str) -> Finding:
    found = data.correlate(fairx, PAPER_DATASETS)

    def verdict() -> Finding:
        if found.high < 0:
            return Finding(shown(found), False, "it is significant, but negative")
        reason = "" if found.low > 0 else "the interval, which resamples whole folds, includes zero"
        return Finding(shown(found), found.low > 0, reason)

    return judge_if_known(found, verdict)


def _partial_unchanged(data: Evidence, fairx: str) -> Finding:
    raw, given = (data.correlate(fairx, PAPER_DATASETS, kind) for kind in ("pearson", "partial"))

    def verdict() -> Finding:
        same = abs(raw.value - given.value) < 0.05
        reason = "" if same else "it changes by more than 0.05"
        return Finding(f"{_number(raw.value)} to {shown(given)}", same, reason)

    return judge_if_known(given, verdict)


def ablated(key: str, statement: str) -> Claim:
    """A configuration of the ablation changes GCIG beyond chance, and by about the printed percentage."""
    theirs = float(paper()["ablation"]["values"][key]["change"])

    def judge(data: Evidence, fairx: str) -> Finding:
        new, old = (_ablation_rows(data, fairx, each) for each in (key, "prediction"))
        found = data.change("gcig_raw", new, old)

        def verdict() -> Finding:
            changes = found.low > 0 if theirs > 0 else found.high < 0
            opposite = found.high < 0 if theirs > 0 else found.low > 0
            if not changes:
                return Finding(percent(found), False, "the opposite is found" if opposite else CHANCE)
            inside = found.low - _ROUNDING <= theirs / 100 <= found.high + _ROUNDING
            size = "the direction is the same, but the interval excludes the printed change"
            return Finding(percent(found), inside, "" if inside else size)

        return judge_if_known(found, verdict)

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
        return Finding("-", None, FEW)
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
    wide = any(max(v) - min(v) > MARGIN for v in ranges.values())
    reasons = [f"a range above {MARGIN:g}"] * wide + ["collapsed folds"] * bool(collapsed)
    return Finding(f"{ours}; {collapsed} collapsed folds", not reasons, ", ".join(reasons))


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
    *COMPARISON_CLAIMS,
    correlation(
        "pearson",
        "EO gap and GCIG are weakly correlated over all models (Pearson).",
        _RQ2["pearson"]["r"],
        PAPER_DATASETS,
    ),
    Claim(
        "significant",
        "RQ2",
        "The correlation is statistically significant.",
        "p = 0.0037",
        _significant,
        PAPER_DATASETS,
        OTHERS,
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
    ablated("prediction+eo", "Adding outcome fairness alone worsens GCIG by 14 %."),
    ablated("prediction+gcig", "Adding procedural fairness alone provides a modest improvement of 6 %."),
    ablated("full", "Combining both achieves an improvement of 24 %."),
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
