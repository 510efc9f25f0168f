"""Tables of a run next to the paper's numbers: RQ1 (comparison), RQ3 (design of FairX), and cost.

A table is a frame of text; the best entries are between two asterisks, which is bold in every page.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
from scipy import stats

from gcig.metrics.intervals import holm
from reproduction.cost import GROUPS, STEPS, rule_name
from reproduction.experiments import CONFIGURATIONS, EXPERIMENTS, Setting
from reproduction.paper import (
    FAIRX,
    PAPER,
    PAPER_DATASETS,
    PLAIN,
    PRINTED,
    PUBLISHED,
    VERSIONS,
    printed,
    printed_means,
    printed_tally,
)
from reproduction.results import HIGHER_IS_BETTER, LABELS, Results, label, ranked, spread
from reproduction.statistics import corrected_t, estimate, mean_ranks, nemenyi, number, p_text, tally

COUNTED = ("gcig_raw", "eo_gap", "f1")  # the metrics of the paper's table of wins
TESTED = ("gcig_raw", "gcig", "gcig_members", "eo_gap", "f1", "auc")
RANGES = {  # of possible values; others are at least 0
    **dict.fromkeys(("auc", "f1", "balanced_accuracy", "attribute_effect"), (0.0, 1.0)),
    **dict.fromkeys(("eo_gap", "eo_noise_floor"), (0.0, 2.0)),
    "faithfulness": (-1.0, 1.0),
    "effective_columns": (1.0, math.inf),
}
MEASURES = (
    *("gcig_raw", "gcig", "gcig_members", "reference_offset", "faithfulness", "attribute_effect"),
    *("auc", "f1", "balanced_accuracy", "log_loss", "eo_gap", "eo_noise_floor", "effective_columns"),
)
_RANKED = (*TESTED, "balanced_accuracy", "log_loss")


def overview(results: Results) -> pd.DataFrame:
    """Return one row per dataset with the plain network, the best of the other methods and FairX."""
    others = [method for method in results.plan.methods if method not in (PLAIN, FAIRX, PUBLISHED)]
    rows = []
    for name in results.plan.datasets:
        row = {"dataset": name}
        for metric in ("gcig", "gcig_members", "eo_gap"):
            means = results.means(metric, [name], ranked(others, metric)).iloc[0].dropna()
            best = ""
            if len(means):  # an EO gap is easily closed by poor decisions: show the F1 with it
                first = str(means.idxmin())
                score = f", F1 {number(results.mean(name, first, 'f1'))}" if metric == "eo_gap" else ""
                best = f"{number(means.min())} ({label(first)}{score})"
            for who, text in (
                ("plain", number(results.mean(name, PLAIN, metric))),
                ("best other", best),
                ("FairX", number(results.mean(name, FAIRX, metric))),
            ):
                row[f"{LABELS[metric]}: {who}"] = text
        row["EO gap: chance"] = number(results.mean(name, FAIRX, "eo_noise_floor"))
        for metric in ("auc", "f1"):
            both = [number(results.mean(name, method, metric)) for method in (PLAIN, FAIRX)]
            row[f"{LABELS[metric]} plain → FairX"] = " → ".join(both)
        rows.append(row)
    return pd.DataFrame(rows)


def _by_method(results: Results, columns: Callable[[str], Mapping[str, Sequence[str]]]) -> pd.DataFrame:
    """Return one row per dataset and method; `columns` takes a dataset and returns its columns."""
    methods = [label(method) for method in results.plan.methods]
    frames = [
        pd.DataFrame({"dataset": name, "method": methods, **columns(name)}) for name in results.plan.datasets
    ]
    return pd.concat(frames, ignore_index=True)


def _mark_best(results: Results, dataset: str, metric: str, texts: Sequence[str]) -> list[str]:
    methods = list(results.plan.methods)
    means = results.means(metric, [dataset], ranked(methods, metric)).iloc[0]
    best = means.max() if metric in HIGHER_IS_BETTER else means.min()
    marked = {method for method, mean in means.items() if abs(mean - best) <= 1e-9}
    return [f"**{text}**" if method in marked else text for method, text in zip(methods, texts, strict=True)]


def main(results: Results) -> pd.DataFrame:
    """Return the paper's main table with ours next to it: mean and standard deviation over all fits."""

    def columns(name: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for metric in PRINTED:
            ours = [spread(results.rows(Setting(name, m)), metric) for m in results.plan.methods]
            found[LABELS[metric]] = _mark_best(results, name, metric, ours)
            theirs = [map(number, printed(name, m, metric)) for m in results.plan.methods]
            found[f"{LABELS[metric]}, paper"] = [" ± ".join(each).strip(" ±") for each in theirs]
        return found

    return _by_method(results, columns)


def measures(results: Results) -> pd.DataFrame:
    """Return the mean of every measure with its interval, cut off at the possible values."""

    def entry(name: str, method: str, metric: str) -> str:
        found = corrected_t(results.folds(name, method)[metric], n_folds=results.plan.n_folds)[0]
        if math.isnan(found.value):
            return "undefined"
        least, most = RANGES.get(metric, (0.0, math.inf))
        found = found._replace(low=max(found.low, least), high=min(found.high, most))
        return estimate(found, 1 if metric == "effective_columns" else 3)

    def columns(name: str) -> dict[str, list[str]]:
        texts = {m: [entry(name, method, m) for method in results.plan.methods] for m in MEASURES}
        return {
            LABELS[m]: _mark_best(results, name, m, own) if m in _RANKED else own for m, own in texts.items()
        }

    return _by_method(results, columns)


def pooled(results: Results) -> pd.DataFrame:
    """Return the EO gap of the pooled out-of-fold predictions with that of a fair model in brackets."""
    gaps = results.pooled.assign(
        text=[
            f"{number(gap)} ({number(fair)})"
            for gap, fair in results.pooled[["eo_gap", "eo_noise_floor"]].values
        ]
    )
    table = gaps.pivot(index="dataset", columns="method", values="text")
    table = table.reindex(index=results.plan.datasets, columns=results.plan.methods).astype("str").fillna("")
    return table.rename(columns=label).reset_index()


def wins(results: Results) -> pd.DataFrame:
    """Count wins, losses and championships on the paper's datasets with each version of FairX."""
    datasets = [name for name in PAPER_DATASETS if name in results.plan.datasets]
    others = [method for method in results.plan.methods if method not in VERSIONS]
    rows = []
    for metric in COUNTED:
        rules: dict[str, Any] = {"against": FAIRX, "lower_is_better": metric not in HIGHER_IS_BETTER}
        counts = {}
        for version in VERSIONS:
            means = results.means(metric, datasets, [*ranked(others, metric), version])
            counts[f"with {label(version)}"] = tally(means.rename(columns={version: FAIRX}), **rules)
        counts["paper"] = printed_tally(metric)
        counts["paper, recounted"] = tally(printed_means(metric), **rules)
        for method in (*others, FAIRX):
            own = {
                name: " / ".join(map(str, count.loc[method])) if method in count.index else ""
                for name, count in counts.items()
            }
            rows.append({"metric": LABELS[metric], "method": label(method), **own})
    return pd.DataFrame(rows)


def ranks(results: Results) -> pd.DataFrame:
    """Return mean ranks over datasets, 1 for the best, with Friedman's test and Nemenyi's against FairX."""
    datasets, methods = results.plan.datasets, [m for m in results.plan.methods if m != PUBLISHED]
    rows = []
    for metric in TESTED:
        means = results.means(metric, datasets, ranked(methods, metric))
        lower = metric not in HIGHER_IS_BETTER
        found = mean_ranks(means, lower_is_better=lower)
        friedman = stats.friedmanchisquare(*means.to_numpy().T)
        p_values = nemenyi(found - found[FAIRX], n_methods=len(found), n_blocks=len(means))
        texts = {
            method: number(rank, 2) + ("" if method == FAIRX else f" (p {p_text(p)})")
            for (method, rank), p in zip(found.items(), p_values, strict=True)
        }
        test = f"{number(friedman.statistic, 2)} (p {p_text(friedman.pvalue)})"
        own = {label(method): texts.get(method, "") for method in methods}
        rows.append({"metric": LABELS[metric], "Friedman": test, **own})
    return pd.DataFrame(rows)


def t_tests(results: Results) -> pd.DataFrame:
    """Return FairX minus each method: mean difference over folds, and its p-value adjusted by Holm's rule."""
    others = [method for method in results.plan.methods if method != FAIRX]
    rows = []
    for name in results.plan.datasets:
        for metric in TESTED:
            ours = results.folds(name, FAIRX)[metric]
            found = [
                corrected_t(ours - results.folds(name, method)[metric], n_folds=results.plan.n_folds)
                for method in others
            ]
            p_values = holm([p for _, p in found])
            texts = [
                f"{number(each.value)} (p {p_text(p)})" for (each, _), p in zip(found, p_values, strict=True)
            ]
            labels = map(label, others)
            rows.append({"dataset": name, "metric": LABELS[metric], **dict(zip(labels, texts, strict=True))})
    return pd.DataFrame(rows)


def _settings(
    results: Results, experiment: str, words: Sequence[str], metrics: Sequence[str]
) -> pd.DataFrame:
    """Return one row per setting of an experiment: method, what distinguishes it, and its metrics."""
    rows = []
    for each in EXPERIMENTS[experiment]:
        if each.dataset in results.plan.datasets and each.method in results.plan.methods:
            own = results.rows(each, experiment)
            shown = {LABELS[m]: spread(own, m, 1 if m == "effective_columns" else 3) for m in metrics}
            rows.append({"method": label(each.method), **dict(zip(words, each.words, strict=True)), **shown})
    return pd.DataFrame(rows)


def ablation(results: Results) -> pd.DataFrame:
    """Return the configurations of both versions with the change of GCIG, and the paper's rows."""
    metrics = ("auc", "f1", "eo_gap", "gcig_raw")
    ours = _settings(
        results, "ablation", ["configuration"], (*metrics, "gcig", "gcig_members", "eo_noise_floor")
    )
    changes = []
    for version in (each for each in VERSIONS if each in results.plan.methods):
        plain = results.ablation(version, "prediction")["gcig_raw"].mean()
        for key in CONFIGURATIONS:
            change = results.ablation(version, key)["gcig_raw"].mean() / plain - 1
            changes.append("" if key == "prediction" else _percent(100 * change))
    theirs = [
        {
            "method": "the paper",
            "configuration": CONFIGURATIONS[key][0],
            **{LABELS[metric]: number(row[metric]) for metric in metrics},
            "change of GCIG (raw)": "" if row["change"] is None else _percent(row["change"]),
        }
        for key, row in PAPER["ablation"]["values"].items()
    ]
    ours["change of GCIG (raw)"] = changes
    return pd.concat([pd.DataFrame(theirs), ours])[ours.columns].fillna("")


def sensitivity(results: Results) -> pd.DataFrame:
    """Return one row per version and weight, with the other weight at 1."""
    metrics = ("auc", "f1", "eo_gap", "gcig_raw", "gcig", "gcig_members", "effective_columns")
    return _settings(results, "sensitivity", ["swept", "weight"], metrics)


def design_choices(results: Results) -> pd.DataFrame:
    """Return one row per design choice in training."""
    metrics = ("auc", "f1", "eo_gap", "gcig_raw", "gcig", "gcig_members", "effective_columns", "fit_seconds")
    return _settings(results, "design_choices", ["aspect", "setting"], metrics)


def cost(results: Results) -> pd.DataFrame:
    """Return the cost of training with the GCIG term in multiples of plain training."""
    by = {(row["rule"], row["groups"]): row for row in results.cost}
    rows = []
    for steps in STEPS if by else ():
        few, many = (by[rule_name(steps), n] for n in GROUPS)
        own = {
            f"{n} groups": f"{number(row['ratio'], 1)} ({number(row['low'], 1)} to {number(row['high'], 1)})"
            for n, row in zip(GROUPS, (few, many), strict=True)
        }
        growth = number(many["ratio"] / few["ratio"], 1)
        rows.append(
            {"rule": rule_name(steps), **own, "growth": growth, "paper": f"{steps}", "growth, paper": "1.0"}
        )
    return pd.DataFrame(rows)


def _percent(value: float) -> str:
    return f"{'+' if value > 0.5 else ''}{number(value, 0)} %" if value == value else ""
