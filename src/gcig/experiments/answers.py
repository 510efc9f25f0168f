"""One sentence per research question, made from the results of a run."""

import math

from gcig.experiments import ablation, correlation
from gcig.experiments.collection import Collected
from gcig.experiments.evidence import Evidence, percent, shown
from gcig.experiments.paper import FAIRX, PLAIN, PUBLISHED, paper
from gcig.experiments.settings import LABELS, method_label
from gcig.records import formatting


def answer_rq1(found: Collected) -> str:
    """Describe what FairX does to reasons, outcomes and utility; empty without results."""
    data, parts = Evidence.of(found), []
    for version in (PUBLISHED, FAIRX):
        ranges = []
        for metric in ("gcig_raw", "gcig", "gcig_members"):
            ratios = [
                data.mean(name, PLAIN, metric) / data.mean(name, version, metric)
                for name in found.request.datasets
            ]
            if not any(map(math.isnan, ratios)):
                ranges.append(f"{LABELS[metric]} by {_extent(ratios)}")
        losses = [
            data.mean(name, PLAIN, "auc") - data.mean(name, version, "auc") for name in found.request.datasets
        ]
        if ranges:
            lost = f"{formatting.number(min(losses))} to {formatting.number(max(losses))}"
            parts.append(f"{method_label(version)} divides {', '.join(ranges)} at an AUC loss of {lost}")
    if not parts:
        return ""
    return f"RQ1. Compared with the plain network, {'; '.join(parts)}."


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
    return (
        f"RQ2. The EO gap and GCIG have a correlation of {value} over methods, folds and datasets (paper "
        f"{theirs}), and of {formatting.number(within)} within datasets: one does not stand for the other."
    )


def answer_rq3(found: Collected) -> str:
    """Describe the ablation on the paper's dataset; empty without results."""
    data, parts = Evidence.of(found), []
    for version in (PUBLISHED, FAIRX):
        changes = []
        for key, words in (("prediction+eo", "EO term"), ("prediction+gcig", "GCIG term"), ("full", "both")):
            new, old = (
                data.folds("compas-paper", version, variant=ablation.variant(each), experiment="ablation")
                for each in (key, "prediction")
            )
            change = data.change("gcig_raw", new, old)
            if not math.isnan(change.low):
                changes.append(f"{words} {percent(change)}")
        if changes:
            parts.append(f"{method_label(version)}: {', '.join(changes)}")
    if not parts:
        return ""
    return f"RQ3. GCIG (raw) on compas-paper changes with each term. {'. '.join(parts)}."


def _extent(ratios: list[float]) -> str:
    low, high = formatting.number(min(ratios), 1), formatting.number(max(ratios), 1)
    return low if low == high else f"{low} to {high}"
