"""The paper's claims: each sentence with a number or a ranking, its test on the results, and the verdict.

A claim is *replicated* if the results support it beyond chance: a difference or a ranking if its 95 %
interval excludes zero, a number if the interval contains it. It *cannot be tested* if the paper leaves open
what would have to hold, or if the results that it needs are missing. Every claim is judged for the published
algorithm, which the paper is about, and for our version.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from reproduction.correlation import correlate
from reproduction.cost import GROUPS, STEPS, rule_name
from reproduction.experiments import SWEPT, WEIGHTS
from reproduction.paper import FAIRX, NAMES, PAPER, PAPER_DATASETS, PLAIN, VERSIONS, printed
from reproduction.results import HIGHER_IS_BETTER, LABELS, Results, label, ranked
from reproduction.statistics import Interval, estimate, number

COMPAS = "compas-paper"
_ALL, _R = PAPER_DATASETS, PAPER["correlation"]
SAME_EO = ("unconstrained", "hardt", "lagrangian", "adversarial")  # and FairX: one EO gap in the paper
MATCH = 0.01  # F1 that "matches" the best is at most this much lower
MARGIN = 0.02  # of F1 or AUC: "a small margin" and "robust"
UNCHANGED = 0.05  # of a correlation: "virtually unchanged"
KEPT_AUC = 0.005  # "competitive utility"; the paper's own loss is 0.002
SAME_GAP = 0.0005  # "identical" in the three digits that the paper prints
APPROXIMATE = 2.0  # a factor: "approximately T times slower"
INDEPENDENT = 1.25  # a factor: cost that is "independent of the number of groups"
ROUNDING = 0.01  # GCIG is printed with three digits, so ratios are known only to a percentage point


class Finding(NamedTuple):
    """What the results show, and whether the claim holds; None if the results cannot decide."""

    ours: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return {True: "replicated", False: "not replicated", None: "cannot be tested"}[self.holds]


class Claim(NamedTuple):
    """A shortened sentence of the paper, its number, and its test on the results and a version of FairX."""

    place: str
    sentence: str
    paper: str
    test: Callable[[Results, str], Finding]


def decide(found: Interval, holds: bool, show: Callable[[Interval], str] = estimate) -> Finding:
    """Return the verdict on an interval; an undefined one decides nothing."""
    return Finding(show(found), None if math.isnan(found.low) else bool(holds))


def decide_all(found: Mapping[str, Interval], holds: Callable[[Interval], bool]) -> Finding:
    """Return whether a test holds for every interval, with the names of those for which it does not."""
    failed = [name for name, each in found.items() if not holds(each)]
    words = f"{len(found) - len(failed)} of {len(found)}" + "; not " * bool(failed) + ", ".join(failed)
    known = not any(math.isnan(each.low) for each in found.values())
    return Finding(words if known else "", not failed if known else None)


def decide_values(
    values: Mapping[str, float], holds: Callable[[Sequence[float]], bool], digits: int = 3
) -> Finding:
    """Return whether a test holds for some numbers; NaN decides nothing."""
    known = not any(map(math.isnan, values.values()))
    words = ", ".join(f"{name} {number(value, digits)}" for name, value in values.items())
    return Finding(words if known else "", bool(holds(list(values.values()))) if known else None)


def percent(found: Interval) -> str:
    """Format a relative change in percent.

    >>> percent(Interval(-0.5, -0.6, 0.002))
    '\N{MINUS SIGN}50 % (\N{MINUS SIGN}60 to 0.2)'
    """
    value, low, high = (number(100 * each, 0 if abs(each) >= 0.005 else 1) for each in found)
    return f"{'+' if found.value > 0 else ''}{value} % ({low} to {high})" if low else ""


def reduction(r: Results, dataset: str, fairx: str) -> Interval:
    """Return the relative change of GCIG from the plain network to FairX."""
    return r.change("gcig_raw", r.folds(dataset, fairx), r.folds(dataset, PLAIN))


def ablation(r: Results, fairx: str, key: str, old: str = "prediction") -> Interval:
    """Return the relative change of GCIG between two configurations of the ablation."""
    return r.change("gcig_raw", r.ablation(fairx, key), r.ablation(fairx, old))


def lead(r: Results, dataset: str, fairx: str, metric: str, margin: float = 0.0) -> Finding:
    """Return whether FairX is better than the best of the others, or less than `margin` worse."""
    others = [method for method in ranked(r.plan.methods, metric) if method not in VERSIONS]
    means = r.means(metric, [dataset], others).iloc[0].dropna()
    if means.empty:
        return Finding("", None)
    rival = str(means.idxmax() if metric in HIGHER_IS_BETTER else means.idxmin())
    words = f"{number(r.mean(dataset, fairx, metric))} against {label(rival)}'s {number(means[rival])}, loss "
    return decide(c := r.loss(dataset, fairx, rival, metric), c.high < margin, lambda c: words + estimate(c))


def won(r: Results, fairx: str, metric: str, method: str) -> Mapping[str, float]:
    """Return 1 for the datasets on which a method is best in three digits, 0 for others, or NaN."""
    methods = [m for m in ranked(r.plan.methods, metric) if m == fairx or m not in VERSIONS]
    means = r.means(metric, PAPER_DATASETS, list(dict.fromkeys([*methods, method]))).round(3)
    top = means.max(axis=1) if metric in HIGHER_IS_BETTER else means.min(axis=1)
    return dict(means[method].eq(top).astype(float).where(means[method].notna()))


def extreme_ratio(r: Results, dataset: str, methods: Sequence[str], metric: str) -> Interval:
    """Return the ratio of a metric between the methods with the largest and the smallest mean."""
    by_mean = sorted(ranked(methods, metric), key=lambda method: r.mean(dataset, method, metric))
    change = r.change(metric, r.folds(dataset, by_mean[-1]), r.folds(dataset, by_mean[0]))
    return Interval(*(1 + each for each in change))


def cost(r: Results, steps: int, groups: int = GROUPS[0]) -> float:
    """Return the measured cost in multiples of plain training; NaN if it was not measured."""
    found = {(row["rule"], row["groups"]): row["ratio"] for row in r.cost}
    return float(found.get((rule_name(steps), groups), math.nan))


def sweeps(r: Results, fairx: str, metric: str) -> list[float]:
    """Return the means of a metric over all weights of both sweeps."""
    return [float(r.sweep(fairx, swept, weight)[metric].mean()) for swept in SWEPT for weight in WEIGHTS]


def untestable(reason: str) -> Callable[[Results, str], Finding]:
    """Return the test of a claim that nothing could test."""
    return lambda *_: Finding(reason, None)


def _reduces(d: str) -> Claim:
    before, after = (printed(d, method, "gcig_raw")[0] for method in (PLAIN, FAIRX))
    most = after / before - 1
    return Claim(
        "RQ1",
        f"On {NAMES[d]}, GCIG decreases from {number(before)} (unconstrained) to {number(after)}.",
        f"{number(before)} to {number(after)}: {number(100 * most, 0)} %",
        lambda r, f: decide(c := reduction(r, d, f), c.high < 0 and c.low <= most, percent),
    )


def _leads(sentence: str, d: str, metric: str, margin: float = 0.0) -> Claim:
    mean = number(printed(d, FAIRX, metric)[0])
    return Claim("RQ1", sentence, mean, lambda r, f: lead(r, d, f, metric, margin))


def _champion(metric: str, count: int, method: str = "") -> Claim:
    return Claim(
        "RQ1, wins",
        f"{label(method or FAIRX)} has the best {LABELS[metric]} on {count} of 4 datasets.",
        f"{count} of 4",
        lambda r, f: decide_values(
            won(r, f, metric, method or f), lambda v: sum(v) == count or (not method and sum(v) > count), 0
        ),
    )


def _never_lower(m: str) -> Claim:
    return Claim(
        "RQ1, wins",
        f"{label(m)} has a lower GCIG than FairX on no dataset.",
        "0 of 4",
        lambda r, f: decide_values(
            {d: r.loss(d, m, f, "gcig_raw").value for d in NAMES}, lambda v: all(each >= 0 for each in v)
        ),
    )


def _correlates(
    sentence: str, theirs: float, kind: str, datasets: tuple[str, ...] = _ALL, vanishes: bool | None = None
) -> Claim:
    """Return a claim on a correlation: its interval contains the paper's, and zero if it vanishes."""
    return Claim(
        "RQ2",
        sentence,
        number(theirs),
        lambda r, f: decide(
            c := correlate(r, datasets, kind, f),
            c.low <= theirs <= c.high and vanishes in (None, c.low <= 0 <= c.high),
        ),
    )


def _significant(kind: str) -> Claim:
    sentence, p_value = f"{kind.title()}'s correlation is statistically significant.", f"p = {_R[kind]['p']}"
    return Claim("RQ2", sentence, p_value, lambda r, f: decide(c := correlate(r, _ALL, kind, f), c.low > 0))


def _ablation(sentence: str, key: str) -> Claim:
    """Return a claim on the ablation: GCIG changes beyond chance, by about the printed percentage."""
    theirs = PAPER["ablation"]["values"][key]["change"] / 100
    return Claim(
        "RQ3, ablation",
        sentence,
        f"{'+' if theirs > 0 else ''}{number(100 * theirs, 0)} %",
        lambda r, f: decide(
            c := ablation(r, f, key),
            c.low - ROUNDING <= theirs <= c.high + ROUNDING and (c.low > 0 if theirs > 0 else c.high < 0),
            percent,
        ),
    )


def _keeps(sentence: str, paper: str, metric: str, most: float) -> Claim:
    """Return a claim on the ablation: the full model changes a mean by at most so much."""
    return Claim(
        "RQ3, ablation",
        sentence,
        paper,
        lambda r, f: decide_values(
            {key: float(r.ablation(f, key)[metric].mean()) for key in ("prediction", "full")},
            lambda v: abs(v[0] - v[1]) <= most,
        ),
    )


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "RQ1",
        "Across all datasets, FairX consistently reduces GCIG relative to the unconstrained baseline.",
        "4 of 4",
        lambda r, f: decide_all({d: reduction(r, d, f) for d in _ALL}, lambda c: c.high < 0),
    ),
    *map(_reduces, _ALL),
    *(_leads(f"FairX has a lower GCIG than all baselines on {NAMES[d]}.", d, "gcig_raw") for d in _ALL),
    _leads("FairX achieves the highest F1 on German Credit.", "german", "f1"),
    _leads("FairX matches the best-performing methods' F1 on COMPAS.", COMPAS, "f1", MATCH),
    _leads("On Adult Income, F1 remains within a small margin of the best baseline.", "adult", "f1", MARGIN),
    _leads("On Bank Marketing, F1 remains within a small margin of the best baseline.", "bank", "f1", MARGIN),
    _leads("FairX achieves the lowest EO gap on German Credit.", "german", "eo_gap"),
    Claim(
        "RQ1",
        "FairX's EO gap remains competitive on the other datasets.",
        "0.023, 0.141, 0.062",
        untestable("'competitive' names no margin"),
    ),
    Claim(
        "RQ1",
        "On COMPAS, several methods including FairX (five in the table) achieve identical EO gaps.",
        "0.023",
        lambda r, f: decide_values(
            {label(m): r.mean(COMPAS, m, "eo_gap") for m in (*SAME_EO, f)},
            lambda v: len(set(map(number, v))) == 1,
        ),
    ),
    Claim(
        "Discussion",
        "On COMPAS, the GCIG of these methods varies by a factor of more than five.",
        "0.193 / 0.034 = 5.7",
        lambda r, f: decide(c := extreme_ratio(r, COMPAS, (*SAME_EO, f), "gcig_raw"), c.low > 5),
    ),
    Claim(
        "Discussion",
        "Reducing GCIG did not systematically worsen EO gaps or predictive utility.",
        "no number",
        lambda r, f: decide_all(
            {f"{LABELS[m]} on {d}": r.loss(d, f, PLAIN, m) for d in _ALL for m in ("eo_gap", "f1")},
            lambda c: c.low <= 0,
        ),
    ),
    _champion("gcig_raw", 4),
    _champion("eo_gap", 2),
    _champion("f1", 2),
    _champion("f1", 3, "lagrangian"),
    _champion("eo_gap", 2, "agarwal"),
    _never_lower("lagrangian"),
    _never_lower("agarwal"),
    _correlates("Over all folds, EO gap and GCIG have a weak correlation.", _R["pearson"]["r"], "pearson"),
    _significant("pearson"),
    _correlates("The Spearman rank correlation is 0.229.", _R["spearman"]["r"], "spearman"),
    _significant("spearman"),
    _correlates(
        "Equalized Odds explains only 0.059 of the variance; over 94 % remains unexplained.",
        _R["r_squared"],
        "r_squared",
    ),
    *(
        _correlates(sentence, _R["values"][d]["r"], "pearson", (d,), vanishes)
        for sentence, d, vanishes in (
            ("A moderate correlation appears on German Credit.", "german", False),
            ("The correlation vanishes on Adult Income.", "adult", True),
            ("The correlation vanishes on COMPAS.", COMPAS, True),
            ("There is weak alignment on Bank Marketing.", "bank", None),
        )
    ),
    Claim(
        "RQ2",
        "The partial correlation controlling for F1 remains virtually unchanged.",
        "0.244 to 0.244",
        lambda r, f: decide_values(
            {kind: correlate(r, _ALL, kind, f).value for kind in ("pearson", "partial")},
            lambda v: abs(v[0] - v[1]) < UNCHANGED,
        ),
    ),
    Claim(
        "RQ3, sensitivity",
        "On COMPAS, performance is robust to each weight from 0.1 to 10, with the other at 1.",
        "no number",
        lambda r, f: decide_values(
            {
                "AUC varies by": np.ptp(sweeps(r, f, "auc")),
                "F1 by": np.ptp(sweeps(r, f, "f1")),
                "share of collapsed fits": float(np.mean(sweeps(r, f, "collapsed"))),
            },
            lambda v: max(v[:2]) <= MARGIN and v[2] == 0,
        ),
    ),
    _ablation("Adding outcome fairness alone worsens GCIG by 14 %.", "prediction+eo"),
    _ablation("Adding procedural fairness alone provides a modest improvement of 6 %.", "prediction+gcig"),
    _ablation("Combining both achieves an improvement of 24 %.", "full"),
    Claim(
        "RQ3, ablation",
        "Combining both is substantially better than either component individually.",
        "0.023 against 0.034 and 0.028",
        lambda r, f: decide_all(
            {f"than {t.upper()} alone": ablation(r, f, "full", f"prediction+{t}") for t in ("eo", "gcig")},
            lambda c: c.high < 0,
        ),
    ),
    _keeps("The full model maintains competitive utility (AUC).", "0.981 to 0.979", "auc", KEPT_AUC),
    _keeps("The full model maintains identical outcome fairness.", "0.017 to 0.017", "eo_gap", SAME_GAP),
    Claim(
        "Complexity",
        "GCIG training is approximately T times slower than standard training (T of 8 and 16).",
        "8, 16",
        lambda r, _: decide_values(
            {f"T = {T}:": cost(r, T) for T in STEPS},
            lambda v: all(1 / APPROXIMATE <= c / T <= APPROXIMATE for c, T in zip(v, STEPS, strict=True)),
            1,
        ),
    ),
    Claim(
        "Complexity",
        "With vectorisation, the cost is independent of the number of groups.",
        "1.0",
        lambda r, _: decide_values(
            {"7 over 2 groups:": cost(r, STEPS[-1], GROUPS[-1]) / cost(r, STEPS[-1])},
            lambda v: v[0] < INDEPENDENT,
            1,
        ),
    ),
    Claim(
        "Complexity",
        "Small T (8, 16) provides a favourable trade-off between cost and attribution accuracy.",
        "8, 16",
        untestable("'favourable' names no limit, and the paper prints no error of attributions"),
    ),
)


def judge(results: Results) -> pd.DataFrame:
    """Return every claim with the paper's number, our results and the verdict per version of FairX."""
    rows = []
    for claim in CLAIMS:
        row = {"place": claim.place, "the paper states": claim.sentence, "paper": claim.paper}
        for version in VERSIONS:
            found = claim.test(results, version)
            verdict = f"**{found.verdict}**" if found.holds is False else found.verdict
            row |= {label(version): found.ours, f"{label(version)}: verdict": verdict}
        rows.append(row)
    return pd.DataFrame(rows)
