"""One sentence per research question, made from the results of a run."""

import math
from collections.abc import Sequence

import pandas as pd

from gcig.experiments import ablation, correlation, sensitivity
from gcig.experiments.collection import Collected
from gcig.experiments.evidence import Evidence, percent, shown
from gcig.experiments.paper import FAIRX, PLAIN, PUBLISHED, paper
from gcig.experiments.settings import method_label
from gcig.records import Interval, formatting

_MEASURES = {
    "gcig_raw": "GCIG (raw), the paper's measure,",
    "gcig": "GCIG",
    "gcig_members": "GCIG relative to members",
}
_TERMS = {"prediction+eo": "the EO term alone", "prediction+gcig": "the GCIG term alone", "full": "both"}


def answer_rq1(found: Collected) -> str:
    """Describe what FairX does to explanations and utility on all datasets; empty without results."""
    data, datasets, parts = Evidence(found), found.request.datasets, []
    for version in (PUBLISHED, FAIRX):
        changes, certain = [], []
        for metric, words in _MEASURES.items():
            known = [
                _change(data, metric, *(data.folds(name, each) for each in (version, PLAIN)))
                for name in datasets
            ]
            if not any(math.isnan(each.value) for each in known):
                changes.append(f"{words} by {_extent([each.value for each in known])}")
            if not any(math.isnan(each.high) for each in known):
                certain.append(str(sum(each.high < 0 for each in known)))
        moved = [data.mean(name, version, "auc") - data.mean(name, PLAIN, "auc") for name in datasets]
        if changes:
            low, high = formatting.signed(min(moved), 3), formatting.signed(max(moved), 3)
            auc = low if low == high else f"{low} to {high}"
            beyond = f" (GCIG is lower beyond chance on {', '.join(certain)} datasets)" if certain else ""
            parts.append(f"{_name(version)} changes {', '.join(changes)} and AUC by {auc}{beyond}")
    if not parts:
        return ""
    return (
        f"RQ1, explanations and utility: compared with the plain network on {len(datasets)} datasets, "
        f"{'; '.join(parts)}."
    )


def answer_rq2(found: Collected) -> str:
    """Describe the correlation of EO gap and GCIG; empty without results."""
    populations = correlation.populations(found.frames["comparison"])
    if correlation.POOLED not in populations:
        return ""
    data = Evidence(found)
    version = PUBLISHED if PUBLISHED in found.request.methods else FAIRX
    pooled = data.correlate(version, correlation.POPULATIONS[correlation.POOLED])
    within = correlation.associate(populations[correlation.WITHIN], draws=1000)["interval"]
    value, inside = (
        formatting.number(each.value) if math.isnan(pooled.low) else shown(each) for each in (pooled, within)
    )
    theirs = formatting.number(paper()["correlation"]["pearson"]["r"])
    share = "less than 1" if within.value**2 < 0.01 else formatting.number(100 * within.value**2, 0)
    return (
        f"RQ2, outcomes and explanations: EO gap and GCIG (raw) have a correlation of {value} over methods, "
        f"folds and the paper's datasets, where the paper has {theirs}, and of {inside} within datasets, "
        f"where the EO gap thus explains {share} % of the variance of GCIG."
    )


def answer_rq3(found: Collected) -> str:
    """Describe what the terms, the weights and other choices of FairX change; empty without results."""
    data, parts = Evidence(found), []
    for version in (PUBLISHED, FAIRX):
        changes = []
        for key, words in _TERMS.items():
            new, old = (
                data.folds("compas-paper", version, variant=ablation.variant(each), experiment="ablation")
                for each in (key, "prediction")
            )
            change = _change(data, "gcig_raw", new, old)
            if not math.isnan(change.value):
                changes.append(f"{percent(change)} with {words}")
        if changes:
            parts.append(f"for {_name(version)} by {', '.join(changes)}{_describe_weights(data, version)}")
    if not parts:
        return ""
    return f"RQ3, design choices: on compas-paper, GCIG (raw) changes {'; '.join(parts)}."


def _change(data: Evidence, metric: str, new: pd.DataFrame, old: pd.DataFrame) -> Interval:
    """Return the relative change of a metric, without an interval if there are too few folds."""
    change = data.change(metric, new, old)
    if math.isnan(change.low) and len(new) and len(old):
        return Interval(float(new[metric].mean() / old[metric].mean()) - 1)
    return change


def _extent(changes: Sequence[float]) -> str:
    low, high = (percent(Interval(choose(changes))) for choose in (min, max))
    return low if low == high else f"{low} to {high}"


def _describe_weights(data: Evidence, version: str) -> str:
    """Describe GCIG and AUC over the weights, with the other weight at its fixed value."""
    names = [sensitivity.variant(s, weight) for s in sensitivity.SWEPT for weight in sensitivity.WEIGHTS]
    ranges = [
        _describe_range(data, "compas-paper", version, names, "sensitivity", metric)
        for metric in ("gcig_raw", "auc")
    ]
    weights = f"{min(sensitivity.WEIGHTS):g} to {max(sensitivity.WEIGHTS):g}"
    return (
        f", and with weights of {weights} it is {ranges[0]} at an AUC of {ranges[1]}" if all(ranges) else ""
    )


def _describe_range(
    data: Evidence, dataset: str, version: str, variants: Sequence[str], experiment: str, metric: str
) -> str:
    """Return the smallest and the largest mean of a metric over variants; empty if one has no results."""
    values = [data.mean(dataset, version, metric, variant=each, experiment=experiment) for each in variants]
    low, high = formatting.number(min(values)), formatting.number(max(values))
    if any(map(math.isnan, values)):
        return ""
    return low if low == high else f"{low} to {high}"


def _name(version: str) -> str:
    return method_label(version).replace(",", "")  # "FairX as published" within a sentence
