"""Chapters of the reproduction: text, tables and figures of each experiment, and answers to the questions."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from gcig.benchmark.results import method_label
from gcig.benchmark.trials import COMMON, TUNING_ROWS
from gcig.benchmark.tuning import RULE
from gcig.experiments import claims, comparison, correlation, design, measurements
from gcig.experiments.claims import Evidence, percent
from gcig.experiments.figures import Figure, trade_off_figures
from gcig.experiments.paper import FAIRX, PLAIN, PUBLISHED, contradictions, paper, versions
from gcig.experiments.run_folder import EXPERIMENTS, Results
from gcig.experiments.settings import Setting, finished, make_table, spread, texts
from gcig.experiments.statements import CLAIMS, READINGS
from gcig.records import Interval, formatting
from gcig.report.tables import Table, Value

_TEXTS: Mapping[str, str] = texts()["chapters"]
_MEASURES = {
    "gcig_raw": "GCIG (raw), the paper's measure,",
    "gcig": "GCIG",
    "gcig_members": "GCIG relative to members",
}
_TERMS = {"prediction+eo": "the EO term alone", "prediction+gcig": "the GCIG term alone", "full": "both"}
_TRIAL = ["dataset", "method", "variant", "seed", "fold", "repeat", "parameters", "fit_seconds"]


@dataclass(frozen=True)
class Chapter:
    """A heading with paragraphs, figures by name and tables by name."""

    heading: str
    text: Sequence[str]
    tables: Mapping[str, Table] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)


def chapters(results: Results) -> list[Chapter]:
    """Return all chapters that have content, the main results first."""
    request, frame = results.request, results.frames["comparison"]
    scope = {"datasets": request.datasets, "methods": request.methods}
    expected = {name: request.expected() * request.repeats.get(name, 1) for name in request.datasets}
    answers = (_answer_rq1(results), _answer_rq2(results), _answer_rq3(results))
    variants = _table(results, "variants")
    listed = [
        Chapter(
            "Main results",
            list(filter(None, answers)),
            {"main": comparison.main_table(frame, **scope, expected=expected)},
        ),
        Chapter(
            "Trade-off",
            [_TEXTS["trade_off"]],
            figures=trade_off_figures("trade_off", frame, request.datasets),
        ),
        _claims(results),
        Chapter(
            "RQ1, all measures",
            [_TEXTS["comparison"]],
            comparison.tables(frame, **scope, n_folds=request.n_folds, pooled=results.pooled),
            comparison.figures(frame, **scope),
        ),
        Chapter(
            "RQ1, wins and tests", (), comparison.significance_tables(frame, **scope, n_folds=request.n_folds)
        ),
        Chapter(
            "RQ2, outcomes and reasons",
            [_TEXTS["correlation"]],
            correlation.tables(frame, expected=request.expected()),
            correlation.figures(frame),
        ),
        Chapter("RQ3, ablation", (), _table(results, "ablation")),
        _sensitivity(results),
        _design_choices(results),
        Chapter("Cost", (), _measured(results, "cost", measurements.cost_table)),
        Chapter("Other readings of the paper", [_TEXTS["variants"]] if variants else (), variants),
        _candidates(results),
        Chapter("Protocol", _protocol(results), {**_chosen(results), **_time(results)}),
        Chapter("Datasets", (), _measured(results, "datasets", measurements.size_table)),
        Chapter("Failed fits", (), _failures(results)),
        _contradictions(results),
    ]
    return [chapter for chapter in listed if chapter.tables or chapter.text]


def _claims(results: Results) -> Chapter:
    judged = claims.judge_claims(results, CLAIMS)
    text = []
    for version in versions(results.request.methods) if judged else ():
        counts = claims.count_verdicts(judged, version)
        words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        text.append(f"{method_label(version)}, {len(judged)} claims: {words}.")
    text += [READINGS] if judged else []
    return Chapter("The paper's claims", text, _unless_empty("claims", claims.table(judged, len(CLAIMS))))


def _unless_empty(name: str, table: Table) -> dict[str, Table]:
    return {name: table} if table.rows else {}


def _measured(results: Results, name: str, table: Callable[[Sequence[Any]], Table]) -> dict[str, Table]:
    return _unless_empty(name, table(results.measured.get(name, [])))


def _table(results: Results, experiment: str) -> dict[str, Table]:
    """Return the table of an experiment; none if it, or each of its datasets, was not requested."""
    request = results.request
    datasets = request.requested(experiment)
    if experiment not in results.frames or not datasets:
        return {}
    frame, expected = results.frames[experiment], request.expected(experiment)
    made = EXPERIMENTS[experiment].table(frame, datasets, request.methods, expected)
    return _unless_empty(experiment, made)


def _sensitivity(results: Results) -> Chapter:
    request, made = results.request, _table(results, "sensitivity")
    if not made:
        return Chapter("RQ3, weights", ())
    datasets = request.requested("sensitivity")
    figures = design.sensitivity_figures(results.frames["sensitivity"], datasets, request.methods)
    return Chapter("RQ3, weights", [_TEXTS["sensitivity"]], made, figures)


def _design_choices(results: Results) -> Chapter:
    made = _table(results, "design_choices")
    datasets = results.request.requested("design_choices")
    text = [design.describe_activation(results.frames["design_choices"], datasets)] if made else []
    return Chapter("RQ3, design choices", list(filter(None, text)), made)


def _candidates(results: Results) -> Chapter:
    frame = results.frames.get("tuning")
    if frame is None or not len(finished(frame)):
        return Chapter("All candidates", ())
    figures = trade_off_figures("candidates", frame, results.request.datasets)
    return Chapter("All candidates", [_TEXTS["candidates"]], figures=figures)


def _protocol(results: Results) -> list[str]:
    request = results.request
    seeds = f"seed{'s' * (len(request.seeds) > 1)} {', '.join(map(str, request.seeds))}"
    folds = [_TEXTS["folds"].format(folds=request.folds, n_folds=request.n_folds, seeds=seeds)]
    if repeated := [name for name, repeats in request.repeats.items() if repeats > 1]:
        most = max(request.repeats.values())
        folds.append(_TEXTS["repeats"].format(datasets=", ".join(repeated), most=most))
    tuning = [_TEXTS[f"tuning_{request.tuning}"]]
    if request.tuning != "none":
        tuning.append(_TEXTS["search"].format(rows=TUNING_ROWS, rule=RULE))
    return [" ".join(folds), " ".join(tuning), _TEXTS["fixed"]]


def _time(results: Results) -> dict[str, Table]:
    """Return the number of fits of each experiment and their time; shared trials count once."""
    seen: set[tuple[object, ...]] = set()
    counts: list[tuple[str, int, float]] = []
    for name, frame in results.frames.items():
        own = finished(frame)
        places = list(own[_TRIAL].itertuples(index=False, name=None))
        new = [place not in seen for place in places]  # a trial may belong to several experiments
        seen |= set(places)
        counts.append((name.replace("_", " "), sum(new), float(own.loc[new, "fit_seconds"].sum()) / 60))
    _, fits, minutes = zip(*counts, strict=True)
    rows: list[tuple[Value, ...]] = [*counts, ("all", sum(fits), sum(minutes))]
    return {"time": make_table("time", ("experiment", "fits", "minutes of one core"), rows, digits=1)}


def _chosen(results: Results) -> dict[str, Table]:
    """Return how often each candidate was chosen."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for each in results.parameters.chosen:
        own = {name: value for name, value in each["parameters"].items() if name not in COMMON}
        words = ", ".join(f"{name} = {value}" for name, value in sorted(own.items()))
        words = words or each.get("note", "defaults")
        place = counts.setdefault((each["dataset"], each["method"]), {})
        place[words] = place.get(words, 0) + 1
    rows = [
        (dataset, method_label(method), "; ".join(f"{words} ({n})" for words, n in sorted(chosen.items())))
        for (dataset, method), chosen in counts.items()
    ]
    header = ("dataset", "method", "parameters (number of folds)")
    return _unless_empty("chosen_parameters", make_table("chosen_parameters", header, rows))


def _failures(results: Results) -> dict[str, Table]:
    """List the fits that ended with an error; means leave them out."""
    rows = [
        (row["dataset"], row["method"], row["variant"], int(row["fold"]), row["error"])
        for frame in results.frames.values()
        for _, row in frame[frame["error"].notna()].iterrows()
    ]
    distinct = list(dict.fromkeys(rows))  # a trial may belong to several experiments
    header = ("dataset", "method", "variant", "fold", "error")
    return _unless_empty("failures", make_table("failures", header, distinct))


def _contradictions(results: Results) -> Chapter:
    """List the paper's contradictions with our readings, which quote values of the run."""
    plain = Setting("compas-paper", PLAIN).results(results.frames["comparison"])
    swept = results.frames.get("sensitivity", results.frames["comparison"][:0])
    facts = {
        **{f"plain_{metric}": spread(plain, metric).text for metric in ("gcig_raw", "gcig", "gcig_l2")},
        "collapsed": design.describe_collapse(swept),
    }
    table = make_table("contradictions", ("place", "the paper", "our reading"), contradictions(facts))
    text = [_TEXTS["contradictions"].format(source=paper()["source"])]
    return Chapter("The paper's contradictions", text, {"contradictions": table})


def _answer_rq1(results: Results) -> str:
    """Describe what FairX does to explanations and utility on all datasets; empty without results."""
    data, datasets, parts = Evidence(results), results.request.datasets, []
    for version in (PUBLISHED, FAIRX):
        changes, certain = [], []
        for metric, words in _MEASURES.items():
            known = [
                _change(data, metric, *(data.folds(name, each) for each in (version, PLAIN)))
                for name in datasets
            ]
            if not any(math.isnan(each.value) for each in known):
                low, high = (percent(Interval(choose(each.value for each in known))) for choose in (min, max))
                changes.append(f"{words} by {_range(low, high)}")
            if not any(math.isnan(each.high) for each in known):
                certain.append(str(sum(each.high < 0 for each in known)))
        moved = [data.mean(name, version, "auc") - data.mean(name, PLAIN, "auc") for name in datasets]
        if changes:
            auc = _range(formatting.signed(min(moved), 3), formatting.signed(max(moved), 3))
            beyond = f" (GCIG is lower beyond chance on {', '.join(certain)} datasets)" if certain else ""
            parts.append(f"{_name(version)} changes {', '.join(changes)} and AUC by {auc}{beyond}")
    if not parts:
        return ""
    return (
        f"RQ1, explanations and utility: compared with the plain network on {len(datasets)} datasets, "
        f"{'; '.join(parts)}."
    )


def _answer_rq2(results: Results) -> str:
    """Describe the correlation of EO gap and GCIG; empty without results."""
    populations = correlation.populations(results.frames["comparison"])
    if correlation.POOLED not in populations:
        return ""
    data = Evidence(results)
    version = PUBLISHED if PUBLISHED in results.request.methods else FAIRX
    pooled = data.correlate(version, correlation.POPULATIONS[correlation.POOLED])
    within = correlation.correlate(populations[correlation.WITHIN])
    value, inside = (
        formatting.number(each.value) if math.isnan(pooled.low) else formatting.estimate(each)
        for each in (pooled, within)
    )
    theirs = formatting.number(paper()["correlation"]["pearson"]["r"])
    share = "less than 1" if within.value**2 < 0.01 else formatting.number(100 * within.value**2, 0)
    return (
        f"RQ2, outcomes and explanations: EO gap and GCIG (raw) have a correlation of {value} over methods, "
        f"folds and the paper's datasets, where the paper has {theirs}, and of {inside} within datasets, "
        f"where the EO gap thus explains {share} % of the variance of GCIG."
    )


def _answer_rq3(results: Results) -> str:
    """Describe what the terms, the weights and other choices of FairX change; empty without results."""
    data, parts = Evidence(results), []
    for version in (PUBLISHED, FAIRX):
        changes = []
        for key, words in _TERMS.items():
            change = _change(
                data, "gcig_raw", *(data.ablation(version, each) for each in (key, "prediction"))
            )
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


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _describe_weights(data: Evidence, version: str) -> str:
    """Describe GCIG and AUC over the weights, with the other weight at 1; empty if results are missing."""
    ranges = []
    for metric in ("gcig_raw", "auc"):
        values = [float(rows[metric].mean()) for rows in data.sweeps(version)]
        if any(map(math.isnan, values)):
            return ""
        ranges.append(_range(formatting.number(min(values)), formatting.number(max(values))))
    weights = f"{min(design.WEIGHTS):g} to {max(design.WEIGHTS):g}"
    return f", and with weights of {weights} it is {ranges[0]} at an AUC of {ranges[1]}"


def _name(version: str) -> str:
    return method_label(version).replace(",", "")  # "FairX as published" within a sentence
