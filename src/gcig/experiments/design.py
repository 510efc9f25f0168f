"""Design of FairX (RQ3): ablation of its terms, sensitivity to its weights, and choices in training.

Ablation and sensitivity run both versions of FairX. *As published*, it trains on labels, and the weights
apply until the last epoch regardless of the ranking. Ours keeps the predictions of a plain network and
reduces the weights if AUC drops on the held-out part of the training rows.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from gcig.benchmark.results import method_label
from gcig.experiments.figures import Figure, Panel
from gcig.experiments.paper import PUBLISHED, paper, printed, versions
from gcig.experiments.settings import LABELS, Experiment, Line, Setting, finished, line_rows, make_table
from gcig.records import formatting
from gcig.report.charts import Series
from gcig.report.tables import Entry, Table, Value

SWEPT = ("lambda_ig", "lambda_fair")  # the weights

# Ablation: key -> the paper's name, and the weights that are kept
CONFIGURATIONS = {
    "prediction": ("Prediction only", ()),
    "prediction+eo": ("Prediction + EO", ("lambda_fair",)),
    "prediction+gcig": ("Prediction + GCIG", ("lambda_ig",)),
    "full": ("Full model", SWEPT),
}
_PRINTED = ("auc", "f1", "eo_gap", "gcig_raw")
_NOT_PRINTED = ("gcig", "gcig_members", "eo_noise_floor")


def ablated(dataset: str, method: str, key: str) -> Setting:
    """Return a configuration of the ablation; the full model shares its trials with the comparison."""
    removed = {weight: 0.0 for weight in SWEPT if weight not in CONFIGURATIONS[key][1]}
    return Setting(dataset, method, removed, f"ablation {key}" if removed else "")


def _ablation_lines(datasets: Sequence[str], methods: Sequence[str]) -> list[Line]:
    """Return both versions of FairX with the chosen weights, each either kept or set to zero."""
    return [
        (ablated(name, method, key), (label,))
        for name in datasets
        for method in versions(methods)
        for key, (label, _) in CONFIGURATIONS.items()
    ]


def _ablation_table(
    frame: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str], expected: int
) -> Table:
    """Return one row per configuration with the change of GCIG in percent, and the paper's rows."""
    metrics = (*_PRINTED, *_NOT_PRINTED)
    rows: list[tuple[Value, ...]] = []
    for name in datasets:
        if name == "compas-paper" and versions(methods):
            for key, theirs in paper()["ablation"]["values"].items():
                change = Entry("") if theirs["change"] is None else _percent(theirs["change"])
                absent = [Entry("-")] * len(_NOT_PRINTED)
                label = CONFIGURATIONS[key][0]
                rows.append((name, "the paper", label, *(theirs[m] for m in _PRINTED), *absent, change))
        for method in versions(methods):
            lines = _ablation_lines([name], [method])
            plain, *others = (setting.mean(frame, "gcig_raw") for setting, _ in lines)
            changes = [Entry(""), *(_percent(100 * (other / plain - 1)) for other in others)]
            own = line_rows(frame, lines, metrics, expected)
            rows += [(*row, change) for row, change in zip(own, changes, strict=True)]
    names = [LABELS[metric] for metric in metrics]
    header = ("dataset", "method", "configuration", *names, "change of GCIG (raw)")
    return make_table("ablation", header, rows, plain=_plain_note(frame, datasets))


def _plain_note(frame: pd.DataFrame, datasets: Sequence[str]) -> str:
    """Compare our plain GCIG with the two values that the paper prints for the same model."""
    theirs = printed("compas-paper", "unconstrained", "gcig_raw")
    if theirs is None or "compas-paper" not in datasets:
        return ""
    ours = ablated("compas-paper", PUBLISHED, "prediction").mean(frame, "gcig_raw")
    in_ablation = paper()["ablation"]["values"]["prediction"]["gcig_raw"]
    return (
        f"Prediction only on compas-paper has a GCIG (raw) of {formatting.number(ours)} in this run, "
        f"{formatting.number(theirs[0])} in the paper's main table and {formatting.number(in_ablation)} in "
        "its ablation. The two printed values contradict each other; changes in percent cannot be compared."
    )


def _percent(value: float) -> Entry:
    if math.isnan(value):
        return Entry("missing")
    sign = "+" if value > 0 else ""
    return Entry(f"{sign}{formatting.number(value, 0)} %", value)


ABLATION = Experiment(("compas-paper",), _ablation_lines, _ablation_table)

# Sensitivity: each weight in turn, with the other at FIXED
WEIGHTS: tuple[float, ...] = tuple(paper()["sensitivity"]["weights"])
FIXED: float = paper()["sensitivity"]["fixed"]
_SWEPT_METRICS = (*_PRINTED, "gcig", "gcig_members", "eo_noise_floor", "effective_columns")


def weighted(dataset: str, method: str, swept: str, weight: float) -> Setting:
    """Return a setting of the sweep over a weight; the two sweeps share the one with both weights at 1."""
    values = {name: weight if name == swept else FIXED for name in SWEPT}
    variant = " ".join(f"{name}={value:g}" for name, value in values.items())
    return Setting(dataset, method, values, f"sensitivity {variant}")


def _sensitivity_lines(datasets: Sequence[str], methods: Sequence[str]) -> list[Line]:
    """Return both sweeps of both versions, with the other parameters as chosen."""
    return [
        (weighted(name, method, swept, weight), (swept, Entry(f"{weight:g}", weight)))
        for name in datasets
        for method in versions(methods)
        for swept in SWEPT
        for weight in WEIGHTS
    ]


def _sensitivity_table(
    frame: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str], expected: int
) -> Table:
    """Return one row per dataset, method and weight."""
    rows = line_rows(frame, _sensitivity_lines(datasets, methods), _SWEPT_METRICS, expected)
    header = ("dataset", "method", "swept", "weight", *(LABELS[metric] for metric in _SWEPT_METRICS))
    return make_table("sensitivity", header, rows, fixed=FIXED)


def sensitivity_figures(
    frame: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str]
) -> dict[str, Figure]:
    """Return curves of every metric over the weight, with bands of one standard deviation."""
    made = {}
    for name in datasets:
        panels = [
            Panel(
                f"{LABELS[metric]}, {swept}",
                swept,
                LABELS[metric],
                [_curve(frame, name, swept, version, metric) for version in versions(methods)],
                log_x=True,
            )
            for swept in SWEPT
            for metric in _PRINTED
        ]
        made[f"sensitivity_{name}"] = Figure(
            f"Sensitivity to the weights: {name}",
            "Means over the folds with one standard deviation.",
            panels,
            columns=4,
            marks_collapsed=True,
        )
    return made


def describe_collapse(frame: pd.DataFrame) -> str:
    """Describe how many folds collapse as published with both weights at 1."""
    counts = []
    for name in SENSITIVITY.datasets:
        own = weighted(name, PUBLISHED, SWEPT[0], FIXED).results(frame)
        if len(own):
            collapsed = int(own["collapsed"].astype(bool).sum())
            counts.append(f"{collapsed} of {len(own)} folds of {name} collapse")
    return ", ".join(counts) or "not run here"


def _curve(frame: pd.DataFrame, dataset: str, swept: str, method: str, metric: str) -> Series:
    results = {weight: weighted(dataset, method, swept, weight).results(frame) for weight in WEIGHTS}
    results = {weight: own for weight, own in results.items() if len(own)}
    means = [float(own[metric].mean()) for own in results.values()]
    spreads = [float(own[metric].std(ddof=1)) if len(own) > 1 else 0.0 for own in results.values()]
    return Series(
        method_label(method),
        list(results),
        means,
        [mean - spread for mean, spread in zip(means, spreads, strict=True)],
        [mean + spread for mean, spread in zip(means, spreads, strict=True)],
        [bool(own["collapsed"].astype(bool).any()) for own in results.values()],
    )


SENSITIVITY = Experiment(("compas-paper",), _sensitivity_lines, _sensitivity_table, folds=2)

# Design choices: method, aspect, the label of what is chosen, and the changed parameters
CHOICES: Sequence[Mapping[str, Any]] = paper()["design_choices"]
_CHOICE_METRICS = (
    *("auc", "f1", "eo_gap", "gcig_raw", "gcig", "gcig_members", "gcig_l2"),
    *("eo_noise_floor", "effective_columns", "completeness", "fit_seconds"),
)


def _choice_lines(datasets: Sequence[str], methods: Sequence[str]) -> list[Line]:
    """Return every choice with the other parameters as tuned; defaults share their trials with RQ1."""
    found: list[Line] = []
    for name in datasets:
        for choice in CHOICES:
            changes = choice.get("changes", {})
            words = " ".join(f"{key}={value}" for key, value in sorted(changes.items()))
            setting = Setting(name, choice["method"], changes, f"design {words}" if words else "")
            found += [(setting, (choice["aspect"], choice["label"]))] if choice["method"] in methods else []
    return found


def _choice_table(
    frame: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str], expected: int
) -> Table:
    """Return one row per dataset and choice."""
    rows = line_rows(frame, _choice_lines(datasets, methods), _CHOICE_METRICS, expected)
    header = ("dataset", "method", "aspect", "setting", *(LABELS[metric] for metric in _CHOICE_METRICS))
    return make_table("design_choices", header, rows, norms=_compare_norms(frame))


def describe_activation(frame: pd.DataFrame, datasets: Sequence[str]) -> str:
    """Describe what SiLU changes in the published algorithm; empty without results."""
    parts = []
    for name in datasets:
        (relu, _), (silu, _), *_ = _choice_lines([name], [PUBLISHED])
        if len(relu.results(frame)) and len(silu.results(frame)):
            figures = [
                f"{LABELS[metric]} {formatting.number(relu.mean(frame, metric))} to "
                f"{formatting.number(silu.mean(frame, metric))}"
                for metric in ("gcig_raw", "auc", "eo_gap")
            ]
            parts.append(f"{name}: {', '.join(figures)}")
    if not parts:
        return ""
    return (
        "The paper does not name its activation. FairX as published uses ReLU here; SiLU instead changes, on "
        f"{'; on '.join(parts)}."
    )


def _compare_norms(frame: pd.DataFrame) -> str:
    """Describe how much larger the same models' GCIG is with l2."""
    plain = finished(frame[frame["variant"] == ""])
    ratio = float(plain["gcig_l2"].mean() / plain["gcig"].mean()) if len(plain) else math.nan
    if math.isnan(ratio):
        return ""
    return f" With l2 the same models have {formatting.number(ratio, 1)} times the GCIG."


DESIGN_CHOICES = Experiment(("compas",), _choice_lines, _choice_table, folds=2)
