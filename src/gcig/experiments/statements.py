"""All statements of the paper that have a number or a ranking: RQ1, and those on RQ2, RQ3 and cost below."""

import math
from collections.abc import Callable

import pandas as pd

from gcig.experiments import design
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
from gcig.experiments.comparison_claims import CHANCE, COMPARISON_CLAIMS, LEAKED, MARGIN, MATCH, OTHERS
from gcig.experiments.measurements import GROUPS, rule_name
from gcig.experiments.paper import PAPER_DATASETS, PUBLISHED, paper
from gcig.experiments.settings import LABELS
from gcig.records.formatting import number

_RQ2 = paper()["correlation"]
UNCHANGED = 0.05  # of a correlation: "virtually unchanged"
KEPT_AUC = 0.005  # "competitive utility"; the paper's own loss is 0.002
SAME_GAP = 0.0005  # "identical" in the three digits that the paper prints
APPROXIMATE = 2.0  # a factor: "approximately T times slower"
INDEPENDENT = 1.25  # a factor: cost that is "independent of the number of groups"
READINGS = (
    "Words without a number are read as follows. 'Matches': F1 less than "
    f"{MATCH:g} lower. 'A small margin' and 'robust': less than {MARGIN:g} of F1 or AUC. 'Virtually "
    f"unchanged': less than {UNCHANGED:g}. 'Vanishes': the interval includes zero. 'Competitive utility': "
    f"at most {KEPT_AUC:g} of AUC. 'Approximately': within a factor of {APPROXIMATE:g}. 'Independent': less "
    f"than {INDEPENDENT:g} times the cost. 'Systematically': in any comparison, beyond chance. Best means "
    "and identical gaps are compared at the three digits that the paper prints."
)
_ROUNDING = 0.01  # GCIG is printed with three digits: their ratios are known to a percentage point


def correlation(
    kind: str, statement: str, theirs: float, datasets: tuple[str, ...], *, sign: int | None = None
) -> Claim:
    """The correlation of EO gap and GCIG is the printed one; with `sign` 1 also positive, with 0 zero."""

    def judge(data: Evidence, fairx: str) -> Finding:
        found = data.correlate(fairx, datasets, kind)
        if not are_known(found):
            return TOO_FEW
        doubts = []
        if not found.low <= theirs <= found.high:
            doubts.append(f"the interval does not contain the paper's {number(theirs)}")
        if sign == 0 and not found.low <= 0 <= found.high:
            doubts.append("the interval excludes zero: the correlation does not vanish")
        if sign == 1 and found.low <= 0:
            doubts.append("the interval is not above zero")
        holds = not doubts
        if kind == "r_squared" and data.correlate(fairx, datasets).value < 0:
            doubts.append("our correlation is negative, the paper's is positive")
        return Finding(shown(found), holds, "; ".join(doubts))

    place = "/".join(datasets) if len(datasets) == 1 else "all"
    return Claim(f"{kind}/{place}", "RQ2", statement, number(theirs), judge, datasets, (*OTHERS,))


def significant(kind: str, statement: str) -> Claim:
    """The correlation over all models is positive beyond chance."""

    def judge(data: Evidence, fairx: str) -> Finding:
        found = data.correlate(fairx, PAPER_DATASETS, kind)
        if not are_known(found):
            return TOO_FEW
        if found.high < 0:
            return Finding(shown(found), False, "it is significant, but negative")
        doubt = "the interval, which resamples whole folds, includes zero"
        return Finding.of(shown(found), found.low > 0, doubt)

    printed_p = f"p = {_RQ2[kind]['p']:.4f}"
    return Claim(f"significant/{kind}", "RQ2", statement, printed_p, judge, PAPER_DATASETS, OTHERS)


def _partial_unchanged(data: Evidence, fairx: str) -> Finding:
    raw, given = (data.correlate(fairx, PAPER_DATASETS, kind) for kind in ("pearson", "partial"))
    if not are_known(given):
        return TOO_FEW
    moved = abs(raw.value - given.value)
    ours = f"{number(raw.value)} to {shown(given)}"
    return Finding.of(ours, moved < UNCHANGED, f"it changes by {number(moved)}")


def ablated(key: str, statement: str) -> Claim:
    """A configuration of the ablation changes GCIG beyond chance, and by about the printed percentage."""
    theirs = float(paper()["ablation"]["values"][key]["change"])

    def judge(data: Evidence, fairx: str) -> Finding:
        new, old = (_ablation_rows(data, fairx, each) for each in (key, "prediction"))
        found = data.change("gcig_raw", new, old)
        if not are_known(found):
            return TOO_FEW
        changes = found.low > 0 if theirs > 0 else found.high < 0
        opposite = found.high < 0 if theirs > 0 else found.low > 0
        if not changes:
            return Finding(percent(found), False, "the change has the opposite sign" if opposite else CHANCE)
        inside = found.low - _ROUNDING <= theirs / 100 <= found.high + _ROUNDING
        size = "the direction is the same, but the interval excludes the printed change"
        return Finding.of(percent(found), inside, size)

    printed_change = f"{'+' if theirs > 0 else ''}{number(theirs, 0)} %"
    return Claim(
        f"ablation/{key}", "RQ3, ablation", statement, printed_change, judge, (LEAKED,), (), "ablation"
    )


def _ablation_rows(data: Evidence, fairx: str, key: str) -> pd.DataFrame:
    return data.folds(LEAKED, fairx, variant=design.ablation_variant(key), experiment="ablation")


def _both_terms(data: Evidence, fairx: str) -> Finding:
    full = _ablation_rows(data, fairx, "full")
    found = {
        key: data.change("gcig_raw", full, _ablation_rows(data, fairx, key))
        for key in ("prediction+eo", "prediction+gcig")
    }
    if not are_known(*found.values()):
        return TOO_FEW
    to_eo, to_gcig = map(percent, found.values())
    ours = f"{to_eo} against EO alone, {to_gcig} against GCIG alone"
    doubtful = [name for name, each in zip(("EO", "GCIG"), found.values(), strict=True) if each.high >= 0]
    reason = f"not lower beyond chance than with {' or '.join(doubtful)} alone"
    return Finding.of(ours, not doubtful, reason)


def _ablation_same(metric: str, tolerance: float) -> Callable[[Evidence, str], Finding]:
    def judge(data: Evidence, fairx: str) -> Finding:
        new, old = (
            data.mean(LEAKED, fairx, metric, variant=design.ablation_variant(key), experiment="ablation")
            for key in ("full", "prediction")
        )
        if math.isnan(new + old):
            return MISSING
        apart = abs(new - old)
        return Finding.of(
            f"{number(old)} to {number(new)}", apart <= tolerance, f"they differ by {number(apart, 4)}"
        )

    return judge


def _insensitive(data: Evidence, fairx: str) -> Finding:
    frames = [
        data.folds(LEAKED, fairx, variant=design.sensitivity_variant(swept, weight), experiment="sensitivity")
        for swept in design.SWEPT
        for weight in design.WEIGHTS
    ]
    if not all(map(len, frames)):
        return MISSING
    ranges = {m: [float(rows[m].mean()) for rows in frames] for m in ("auc", "f1")}
    collapsed = sum(int((rows["collapsed"] > 0).sum()) for rows in frames)
    ours = ", ".join(f"{LABELS[m]} {number(min(v))} to {number(max(v))}" for m, v in ranges.items())
    widths = {metric: max(values) - min(values) for metric, values in ranges.items()}
    reasons = [f"{LABELS[m]} varies by {number(width)}" for m, width in widths.items() if width > MARGIN]
    reasons += ["folds collapse"] * bool(collapsed)
    return Finding(f"{ours}; {collapsed} collapsed folds", not reasons, ", ".join(reasons))


def _slower(data: Evidence, _: str) -> Finding:
    cost = {(row["rule"], row["groups"]): row for row in data.results.measured.get("cost", ())}
    rows = [(steps, cost.get((rule_name(steps), GROUPS[0]))) for steps in paper()["cost"]["steps"]]
    known = [(steps, row) for steps, row in rows if row is not None]
    if not known:
        return Finding("-", None, "the cost was not measured")
    ours = ", ".join(f"T = {steps}: {number(row['ratio'], 1)} times" for steps, row in known)
    holds = all(1 / APPROXIMATE <= row["ratio"] / steps <= APPROXIMATE for steps, row in known)
    return Finding.of(ours, holds, f"more than a factor of {APPROXIMATE:g} from T")


def _independent_of_groups(data: Evidence, _: str) -> Finding:
    cost = {(row["rule"], row["groups"]): row["ratio"] for row in data.results.measured.get("cost", ())}
    few, many = (cost.get((rule_name(16), groups), math.nan) for groups in GROUPS)
    if math.isnan(few + many):
        return Finding("-", None, "the cost was not measured")
    ours = f"{GROUPS[-1]} groups cost {number(many / few, 1)} times as much as {GROUPS[0]}"
    reason = "one pass explains all groups, but it has more rows to compute with every group"
    return Finding.of(ours, many / few < INDEPENDENT, reason)


CLAIMS: tuple[Claim, ...] = (
    *COMPARISON_CLAIMS,
    correlation(
        "pearson",
        "Across all folds, EO gap and GCIG have a weak Pearson correlation of 0.244.",
        _RQ2["pearson"]["r"],
        PAPER_DATASETS,
    ),
    significant("pearson", "Pearson's correlation is statistically significant."),
    correlation("spearman", "The Spearman rank correlation is 0.229.", _RQ2["spearman"]["r"], PAPER_DATASETS),
    significant("spearman", "Spearman's correlation is statistically significant."),
    correlation(
        "r_squared",
        "Equalized Odds explains only 0.059 of the variance; over 94 % remains unexplained.",
        _RQ2["r_squared"],
        PAPER_DATASETS,
    ),
    *(
        correlation("pearson", statement, _RQ2["values"][name]["r"], (name,), sign=sign)
        for name, statement, sign in (
            ("german", "A moderate correlation appears on German Credit.", 1),
            ("adult", "The correlation vanishes on Adult Income.", 0),
            ("compas-paper", "The correlation vanishes on COMPAS.", 0),
            ("bank", "There is weak alignment on Bank Marketing.", None),
        )
    ),
    Claim(
        "partial",
        "RQ2",
        "The partial correlation controlling for F1 remains virtually unchanged.",
        "0.244 to 0.244",
        _partial_unchanged,
        PAPER_DATASETS,
        OTHERS,
    ),
    Claim(
        "insensitive",
        "RQ3, sensitivity",
        "On COMPAS, performance is robust to each weight from 0.1 to 10, with the other at 1.",
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
        "Combining both is substantially better than either component individually.",
        "0.023 against 0.034 and 0.028",
        _both_terms,
        (LEAKED,),
        (),
        "ablation",
    ),
    Claim(
        "ablation_auc",
        "RQ3, ablation",
        "The full model maintains competitive utility (AUC 0.979, \N{MINUS SIGN}0.2 %).",
        "0.981 to 0.979",
        _ablation_same("auc", KEPT_AUC),
        (LEAKED,),
        (),
        "ablation",
    ),
    Claim(
        "ablation_eo",
        "RQ3, ablation",
        "The full model maintains identical outcome fairness (EO gap 0.017).",
        "0.017 to 0.017",
        _ablation_same("eo_gap", SAME_GAP),
        (LEAKED,),
        (),
        "ablation",
    ),
    Claim(
        "slower",
        "Complexity",
        "GCIG training is approximately T times slower than standard training (T of 8 and 16).",
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
        "With vectorisation, the cost is independent of the number of groups.",
        "1.0",
        _independent_of_groups,
        (),
        (PUBLISHED,),
        "cost",
        about_fairx=False,
    ),
    Claim(
        "small_t",
        "Complexity",
        "Small T (8, 16) provides a favourable trade-off between cost and attribution accuracy.",
        "8, 16",
        untestable("'favourable' names no limit, and the paper prints no error of attributions"),
        (),
        (PUBLISHED,),
        "cost",
        about_fairx=False,
    ),
)
