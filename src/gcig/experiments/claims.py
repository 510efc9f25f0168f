"""The paper's claims, one by one: each sentence with a number or a ranking, judged on the run's results.

A claim is *replicated* if the results support it beyond chance: a difference or a ranking if its 95 %
interval excludes zero, a number if the interval contains it. It *cannot be tested* if the paper leaves open
what would have to hold, or if too few folds are finished. Every claim about FairX is judged twice: for the
published algorithm, which the paper is about, and for our version. Claims that need datasets, methods or
experiments that were not requested are not judged at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from gcig.benchmark.results import method_label
from gcig.experiments import correlation, design
from gcig.experiments.paper import FAIRX, PUBLISHED, versions
from gcig.experiments.run_folder import Results
from gcig.experiments.settings import FOLD_KEYS, HIGHER_IS_BETTER, Setting, finished, fold_test, make_table
from gcig.records import Interval, formatting
from gcig.records.base import UNDEFINED
from gcig.records.evaluation import is_ranked
from gcig.report.tables import Entry, Mark, Table, Value

MIN_FOLDS = 3  # with two folds an interval is too wide to decide anything
MEASURES = ("auc", "f1", "eo_gap", "gcig_raw", "gcig", "gcig_members", "collapsed")
_NOTHING = pd.DataFrame(
    index=pd.MultiIndex.from_arrays([[], []], names=FOLD_KEYS), columns=list(MEASURES), dtype=float
)
FEW = "fewer than three folds are finished"
REPLICATED, NOT_REPLICATED, UNTESTABLE = "replicated", "not replicated", "cannot be tested"


@dataclass(frozen=True)
class Evidence:
    """The collected results of a run: fold values, paired differences and ratios, with 95 % intervals."""

    results: Results

    @cached_property
    def _settings(self) -> dict[tuple[Any, ...], pd.DataFrame]:
        """The fold means of every setting, by experiment, dataset, method and variant."""
        found = {}
        for experiment, frame in self.results.frames.items():
            rows = finished(frame)
            rows = rows.assign(collapsed=rows["collapsed"].astype(float))
            for place, own in rows.groupby(["dataset", "method", "variant"]):
                found[experiment, *place] = own.groupby(FOLD_KEYS)[list(MEASURES)].mean()
        return found

    def folds_of(self, setting: Setting, experiment: str) -> pd.DataFrame:
        """Return one row per fold of a setting, with the means over its fits; empty without results."""
        place = (experiment, setting.dataset, setting.method, setting.variant)
        return self._settings.get(place, _NOTHING)

    def folds(self, dataset: str, method: str) -> pd.DataFrame:
        """Return one row per fold of a method in the comparison."""
        return self.folds_of(Setting(dataset, method), "comparison")

    def ablation(self, fairx: str, key: str) -> pd.DataFrame:
        """Return one row per fold of a configuration of the ablation."""
        return self.folds_of(design.ablated("compas-paper", fairx, key), "ablation")

    def sweeps(self, fairx: str) -> list[pd.DataFrame]:
        """Return one row per fold for every weight of both sweeps."""
        settings = [
            design.weighted("compas-paper", fairx, swept, weight)
            for swept in design.SWEPT
            for weight in design.WEIGHTS
        ]
        return [self.folds_of(setting, "sensitivity") for setting in settings]

    def mean(self, dataset: str, method: str, metric: str) -> float:
        """Return the mean of a metric over folds and seeds; NaN without results."""
        return float(self.folds(dataset, method)[metric].mean())

    def difference(self, dataset: str, method: str, minus: str, metric: str) -> Interval:
        """Return the mean paired difference of two methods over the folds."""
        ours, theirs = (self.folds(dataset, each)[metric] for each in (method, minus))
        return self.interval((ours - theirs).dropna())

    def change(self, metric: str, new: pd.DataFrame, old: pd.DataFrame) -> Interval:
        """Return the relative change of a positive metric, such as -0.5 for half, from paired log ratios."""
        ours, theirs = (np.log(folds[metric].clip(lower=1e-12)) for folds in (new, old))
        found = self.interval((ours - theirs).dropna())
        return Interval(*(math.expm1(value) for value in (found.value, found.low, found.high)))

    def interval(self, values: pd.Series[Any]) -> Interval:
        """Return a mean over folds with its interval; undefined with fewer than three folds."""
        if len(values) < MIN_FOLDS:
            return UNDEFINED
        return fold_test(values, n_folds=self.results.request.n_folds).difference

    def rivals(self, fairx: str, metric: str) -> list[str]:
        """Return the methods that a version of FairX is ranked against: all but the other version."""
        ranked = [method for method in self.results.request.methods if is_ranked(method, metric)]
        return [method for method in ranked if method == fairx or method not in (FAIRX, PUBLISHED)]

    def champions(self, dataset: str, fairx: str, metric: str) -> list[str]:
        """Return the methods with the best mean, equal up to the digits that the paper prints."""
        sign = -1 if metric in HIGHER_IS_BETTER else 1
        values = {method: self.mean(dataset, method, metric) for method in self.rivals(fairx, metric)}
        rounded = {
            method: sign * round(value, 3) for method, value in values.items() if not math.isnan(value)
        }
        return [method for method, value in rounded.items() if value == min(rounded.values())]

    def correlate(self, fairx: str, datasets: Sequence[str], kind: str = "pearson") -> Interval:
        """Return a correlation of EO gap and GCIG (raw); undefined with fewer than three folds."""
        points = correlation.points(self.results.frames["comparison"], fairx).dropna()
        points = points[points["dataset"].isin(datasets)]
        if len(points[["dataset", *FOLD_KEYS]].drop_duplicates()) < MIN_FOLDS:
            return UNDEFINED
        return correlation.correlate(points, kind)


def percent(found: Interval) -> str:
    """Format a relative change with its interval in percent.

    >>> percent(Interval(-0.5, -0.6, -0.4))
    '\N{MINUS SIGN}50 % (\N{MINUS SIGN}60 to \N{MINUS SIGN}40)'
    """
    value, low, high = (_points(100 * each) for each in (found.value, found.low, found.high))
    sign = "+" if found.value > 0 else ""
    return f"{sign}{value} %" + ("" if math.isnan(found.low) else f" ({low} to {high})")


def _points(value: float) -> str:
    """Format percentage points without decimals, unless the sign would be lost."""
    whole = formatting.number(value, 0)
    return formatting.number(value, 1) if whole == "0" else whole


@dataclass(frozen=True)
class Finding:
    """The results' verdict on a claim; ``holds`` is None if it cannot be tested, for the given reason."""

    ours: str
    holds: bool | None
    reason: str = ""

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return {True: REPLICATED, False: NOT_REPLICATED, None: UNTESTABLE}[self.holds]

    @classmethod
    def of(cls, ours: str, holds: bool, doubt: str) -> Finding:
        """Return a verdict; ``doubt`` is the reason if the claim does not hold."""
        return cls(ours, holds, "" if holds else doubt)


class Untestable(Exception):
    """A claim cannot be tested; the message gives the reason."""


def known(found: Interval) -> Interval:
    """Return an interval that decides a claim; it is `Untestable` if the interval is undefined."""
    if math.isnan(found.low + found.high):
        raise Untestable(FEW)
    return found


def known_means(means: Mapping[str, float]) -> Mapping[str, float]:
    """Return means that decide a claim; it is `Untestable` if one of them is undefined."""
    if any(map(math.isnan, means.values())):
        raise Untestable("results are missing")
    return means


@dataclass(frozen=True)
class Claim:
    """A shortened sentence of the paper with its number, and the function that judges it.

    The function takes the evidence and the version of FairX. The other fields name what a run must contain to
    judge the claim, and whether the finding depends on the version of FairX.
    """

    key: str
    place: str
    statement: str
    printed: str
    judge: Callable[[Evidence, str], Finding]
    datasets: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    experiment: str = "comparison"
    about_fairx: bool = True


@dataclass(frozen=True)
class Judged:
    """A claim with its finding per version of FairX."""

    claim: Claim
    findings: Mapping[str, Finding]


def judge_claims(found: Results, claims: Iterable[Claim]) -> list[Judged]:
    """Judge the claims that the requested datasets, methods and experiments can test."""
    evidence = Evidence(found)
    run = versions(found.request.methods)
    measured = [name for name, rows in found.measured.items() if rows]
    judged = []
    for claim in claims:
        asked = set(claim.datasets) <= set(found.request.datasets)
        asked &= set(claim.methods) <= set(found.request.methods)
        asked &= claim.experiment in (*found.request.experiments, *measured)
        if asked and run:
            relevant = run if claim.about_fairx else run[:1]
            findings = {each: _judge(claim, evidence, each) for each in relevant}
            if found.request.expected() < MIN_FOLDS and claim.experiment not in measured:
                findings = {each: replace(own, holds=None, reason=FEW) for each, own in findings.items()}
            judged.append(Judged(claim, findings))
    return judged


def _judge(claim: Claim, evidence: Evidence, version: str) -> Finding:
    try:
        return claim.judge(evidence, version)
    except Untestable as error:
        return Finding("-", None, str(error))


def table(judged: Sequence[Judged], n_claims: int) -> Table:
    """Return the claims with the paper's number, our results and verdicts."""
    judged_for = list(dict.fromkeys(version for each in judged for version in each.findings))
    rows: list[tuple[Value, ...]] = []
    for each in judged:
        entries: list[Value] = []
        for version in judged_for:
            finding = each.findings.get(version)
            if finding is None:
                entries += ["", ""]
            else:
                mark: Mark | None = "concern" if finding.holds is False else None
                entries += [finding.ours, Entry(finding.verdict, mark=mark)]
        rows.append((each.claim.place, each.claim.statement, each.claim.printed, *entries, _reasons(each)))
    results = [text for each in judged_for for text in (method_label(each), f"{method_label(each)}: verdict")]
    left = n_claims - len(judged)
    words = f"{left} claims need datasets, methods or experiments that are not in this run." if left else ""
    header = ("place", "the paper states", "paper", *results, "reason")
    return replace(make_table("claims", header, rows, left_out=words), prose=True)


def count_verdicts(judged: Sequence[Judged], version: str) -> dict[str, int]:
    """Count the verdicts on one version; claims that do not depend on it count as well."""
    findings = [each.findings.get(version) or next(iter(each.findings.values())) for each in judged]
    verdicts = [finding.verdict for finding in findings]
    return {name: verdicts.count(name) for name in (REPLICATED, NOT_REPLICATED, UNTESTABLE)}


def _reasons(judged: Judged) -> str:
    """Return the reasons, with the name of the version unless they apply to all versions."""
    reasons = {version: finding.reason for version, finding in judged.findings.items() if finding.reason}
    if len(reasons) == len(judged.findings) and len(set(reasons.values())) == 1:
        return next(iter(reasons.values()))
    return "; ".join(f"{method_label(version)}: {reason}" for version, reason in reasons.items())
