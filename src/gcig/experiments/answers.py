"""One sentence per research question, made from the results of a run."""

import math

from gcig.experiments import ablation, correlation
from gcig.experiments.collection import Collected
from gcig.experiments.evidence import Evidence, percent, shown
from gcig.experiments.paper import FAIRX, PLAIN, PUBLISHED, paper
from gcig.experiments.settings import method_label
from gcig.records import Interval, formatting

_MEASURES = {"gcig_raw": "GCIG (raw)", "gcig": "GCIG", "gcig_members": "GCIG relative to members"}
_TERMS = {"prediction+eo": "the EO term", "prediction+gcig": "the GCIG term", "full": "both"}


def answer_rq1(found: Collected) -> str:
    """Describe what FairX does to reasons, outcomes and utility; empty without results."""
    data, datasets, parts = Evidence.of(found), found.request.datasets, []
    for version in (PUBLISHED, FAIRX):
        ranges = []
        for metric in _MEASURES:
            ratios = [data.mean(name, PLAIN, metric) / data.mean(name, version, metric) for name in datasets]
            if not any(map(math.isnan, ratios)):
                ranges.append(f"{_MEASURES[metric]} by {_extent(ratios)}")
        losses = [data.mean(name, PLAIN, "auc") - data.mean(name, version, "auc") for name in datasets]
        if ranges:
            *first, last = ranges
            divided = f"{', '.join(first)} and {last}" if first else last
            lost = formatting.number(max(losses))
            parts.append(f"{_name(version)} divides {divided}, and loses at most {lost} of AUC")
    if not parts:
        return ""
    return f"RQ1. Compared with the plain network, on {len(datasets)} datasets, {'; '.join(parts)}."


def answer_rq2(found: Collected) -> str:
    """Describe the correlation of EO gap and GCIG; empty without results."""
    populations = correlation.populations(found.frames["comparison"])
    if correlation.POOLED not in populations:
        return ""
    data = Evidence.of(found)
    version = PUBLISHED if PUBLISHED in found.request.methods else FAIRX
    pooled = data.correlate(version, correlation.POPULATIONS[correlation.POOLED])
    within = correlation.associate(populations[correlation.WITHIN], draws=1)["pearson"].r
    value = formatting.number(pooled.value) if math.isnan(pooled.low) else shown(pooled)
    theirs = formatting.number(paper()["correlation"]["pearson"]["r"])
    share = "less than 1" if within**2 < 0.01 else formatting.number(100 * within**2, 0)
    return (
        f"RQ2. The EO gap and GCIG (raw) have a correlation of {value} over methods, folds and datasets "
        f"(paper {theirs}), and of {formatting.number(within)} within datasets, which means that the EO gap "
        f"explains {share} % of the variance of GCIG there."
    )


def answer_rq3(found: Collected) -> str:
    """Describe the ablation on the paper's dataset; empty without results."""
    data, parts = Evidence.of(found), []
    for version in (PUBLISHED, FAIRX):
        changes = []
        for key, words in _TERMS.items():
            new, old = (
                data.folds("compas-paper", version, variant=ablation.variant(each), experiment="ablation")
                for each in (key, "prediction")
            )
            change = data.change("gcig_raw", new, old)
            if math.isnan(change.low) and len(new) and len(old):  # too few folds for an interval
                change = Interval(float(new["gcig_raw"].mean() / old["gcig_raw"].mean()) - 1)
            if not math.isnan(change.value):
                changes.append(f"{percent(change)} with {words}")
        if changes:
            parts.append(f"for {_name(version)} by {', '.join(changes)}")
    if not parts:
        return ""
    return f"RQ3. On compas-paper, GCIG (raw) changes {'; '.join(parts)}."


def _extent(ratios: list[float]) -> str:
    low, high = formatting.number(min(ratios), 1), formatting.number(max(ratios), 1)
    return low if low == high else f"{low} to {high}"


def _name(version: str) -> str:
    return method_label(version).replace(",", "")  # "FairX as published" within a sentence
