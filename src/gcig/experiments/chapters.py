"""Chapters of the reproduction: text, tables and figures of each experiment, and answers to the questions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from gcig.benchmark.trials import COMMON, TUNING_ROWS
from gcig.benchmark.tuning import RULE
from gcig.experiments import claims, comparison, correlation, design, measurements, significance
from gcig.experiments.claims import Evidence, percent, shown
from gcig.experiments.figures import Figure
from gcig.experiments.paper import FAIRX, PLAIN, PUBLISHED, contradictions, paper
from gcig.experiments.run_folder import EXPERIMENTS, Results
from gcig.experiments.settings import finished, method_label, spread
from gcig.experiments.statements import CLAIMS, READINGS
from gcig.records import Interval, formatting
from gcig.report.tables import Table, Value

_TUNING = {
    "none": "All methods have their default parameters.",
    "split": "Parameters were chosen once on a 60/20/20 split of the rows, as in the paper, by the rule "
    "below. Some of these rows are also test rows.",
    "nested": "Parameters were chosen within the training rows of every fold by the rule below, so that test "
    "rows have no influence on them.",
}
_SEARCH = (
    f"All methods have the same number of candidates, trained on at most {TUNING_ROWS:,} rows.",
    f"Rule: {RULE}",
)
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
    listed = [
        _summary(results),
        _trade_off(results),
        _claims(results),
        _comparison(results),
        _significance(results),
        _correlation(results),
        Chapter("RQ3, ablation", (), _table(results, "ablation")),
        _sensitivity(results),
        _design_choices(results),
        Chapter("Cost", (), _shown("cost", measurements.cost_table(results.measured.get("cost", [])))),
        _variants(results),
        _candidates(results),
        _protocol(results),
        Chapter(
            "Datasets", (), _shown("datasets", measurements.size_table(results.measured.get("datasets", [])))
        ),
        _failures(results),
        _contradictions(results),
    ]
    return [chapter for chapter in listed if chapter.tables or chapter.text]


def _summary(results: Results) -> Chapter:
    """Return one sentence per research question, and the main table next to the paper's."""
    request, frame = results.request, results.frames["comparison"]
    expected = {name: request.expected() * request.repeats.get(name, 1) for name in request.datasets}
    table = comparison.main_table(
        frame, datasets=request.datasets, methods=request.methods, expected=expected
    )
    sentences = (_answer_rq1(results), _answer_rq2(results), _answer_rq3(results))
    return Chapter("Main results", [sentence for sentence in sentences if sentence], {"main": table})


def _trade_off(results: Results) -> Chapter:
    text = ("The cost of fair reasons and of fair outcomes in AUC, by method, on test rows.",)
    figures = comparison.trade_off_figures(results.frames["comparison"], datasets=results.request.datasets)
    return Chapter("Trade-off", text, {}, figures)


def _claims(results: Results) -> Chapter:
    judged = claims.judge_claims(results, CLAIMS)
    versions = [method for method in (PUBLISHED, FAIRX) if method in results.request.methods]
    text = []
    for version in versions if judged else ():
        counts = claims.count_verdicts(judged, version)
        words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        text.append(f"{method_label(version)}, {len(judged)} claims: {words}.")
    text += [READINGS] if judged else []
    return Chapter("The paper's claims", text, _shown("claims", claims.table(judged, len(CLAIMS))))


def _comparison(results: Results) -> Chapter:
    request, frame = results.request, results.frames["comparison"]
    shown = {"datasets": request.datasets, "methods": request.methods}
    made = comparison.tables(frame, **shown, n_folds=request.n_folds, pooled=results.pooled)
    text = ("Does FairX make a model's reasons depend less on the group, and at what cost?",)
    return Chapter("RQ1, all measures", text, made, comparison.figures(frame, **shown))


def _significance(results: Results) -> Chapter:
    request = results.request
    made = significance.tables(
        results.frames["comparison"],
        datasets=request.datasets,
        methods=request.methods,
        n_folds=request.n_folds,
    )
    return Chapter("RQ1, wins and tests", (), made)


def _correlation(results: Results) -> Chapter:
    frame = results.frames["comparison"]
    text = (
        "Do fair outcomes and fair reasons go together? Each point is one method on one fold.",
        *filter(None, [correlation.answer(frame)]),
    )
    made = correlation.tables(frame, expected=results.request.expected())
    return Chapter("RQ2, outcomes and reasons", text, made, correlation.figures(frame))


def _shown(name: str, table: Table) -> dict[str, Table]:
    return {name: table} if table.rows else {}


def _table(results: Results, experiment: str) -> dict[str, Table]:
    """Return the table of an experiment; none if it, or each of its datasets, was not requested."""
    request = results.request
    datasets = request.requested(experiment)
    if experiment not in results.frames or not datasets:
        return {}
    frame, expected = results.frames[experiment], request.expected(experiment)
    return _shown(experiment, EXPERIMENTS[experiment].table(frame, datasets, request.methods, expected))


def _sensitivity(results: Results) -> Chapter:
    request, made = results.request, _table(results, "sensitivity")
    if not made:
        return Chapter("RQ3, weights", ())
    text = (
        "Each weight in turn, with the other at 1. As published, the network is trained on labels, and the "
        "weights apply until the last epoch. Our version keeps the predictions of a plain network, and "
        "reduces the weights if AUC drops on the held-out part of the training rows.",
    )
    datasets = request.requested("sensitivity")
    figures = design.sensitivity_figures(results.frames["sensitivity"], datasets, request.methods)
    return Chapter("RQ3, weights", text, made, figures)


def _design_choices(results: Results) -> Chapter:
    made = _table(results, "design_choices")
    datasets = results.request.requested("design_choices")
    text = [design.describe_activation(results.frames["design_choices"], datasets)] if made else []
    return Chapter("RQ3, design choices", list(filter(None, text)), made)


def _variants(results: Results) -> Chapter:
    made = _table(results, "variants")
    text = (
        "The paper omits some details of its experiments, and our choices do not reproduce all of its "
        "numbers. This chapter tries other choices.",
    )
    return Chapter("Other readings of the paper", text if made else (), made)


def _candidates(results: Results) -> Chapter:
    frame = results.frames.get("tuning")
    if frame is None or not len(finished(frame)):
        return Chapter("All candidates", ())
    text = ("The trade-off over all settings that the grid search tried.",)
    figures = comparison.candidate_figures(frame, datasets=results.request.datasets)
    return Chapter("All candidates", text, {}, figures)


def _protocol(results: Results) -> Chapter:
    request = results.request
    seeds = f"seed{'s' * (len(request.seeds) > 1)} {', '.join(map(str, request.seeds))}"
    repeated = [name for name, repeats in request.repeats.items() if repeats > 1]
    text = [
        f"{request.folds} of {request.n_folds} folds stratified by label and group, {seeds}; one network "
        "(64-32 units; SiLU, and ReLU for FairX as published) for all methods; one thread per fit. Early "
        "stopping and thresholds use training rows only."
        + (
            f" In RQ1, {', '.join(repeated)} are fitted "
            f"{max(request.repeats.values())} times per fold, with different initial weights, order of rows "
            "and held-out rows."
            if repeated
            else ""
        ),
        " ".join([_TUNING[request.tuning], *(_SEARCH if request.tuning != "none" else ())]),
        "Grids, the threshold rule and FairX's training are the same for all datasets; they were fixed after "
        "results of earlier versions on these folds had been seen.",
    ]
    return Chapter("Protocol", text, {**_chosen(results), **_time(results)})


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
    notes = ("Every fit uses one core. On two cores a run takes a little more than half of this time.",)
    header = ("experiment", "fits", "minutes of one core")
    return {"time": Table(header, rows, caption="Time", notes=notes, digits=1)}


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
    return _shown("chosen_parameters", Table(header, rows, caption="Chosen parameters"))


def _failures(results: Results) -> Chapter:
    """List the fits that ended with an error; means leave them out."""
    rows = [
        (row["dataset"], row["method"], row["variant"], int(row["fold"]), row["error"])
        for frame in results.frames.values()
        for _, row in frame[frame["error"].notna()].iterrows()
    ]
    distinct = list(dict.fromkeys(rows))  # a trial may belong to several experiments
    table = Table(("dataset", "method", "variant", "fold", "error"), distinct, caption="Fits that failed")
    return Chapter("Failed fits", (), _shown("failures", table))


def _contradictions(results: Results) -> Chapter:
    header, rows = ("place", "the paper", "our reading"), contradictions(_facts(results))
    table = Table(header, rows, caption="Contradictions in the paper")
    text = (f"Numbers and statements of {paper()['source']} that cannot all hold.",)
    return Chapter("The paper's contradictions", text, {"contradictions": table})


def _facts(results: Results) -> dict[str, str]:
    """Return the values of the run that our readings of the paper quote."""
    frame = finished(results.frames["comparison"])
    plain = frame[(frame["dataset"] == "compas-paper") & (frame["method"] == "unconstrained")]
    swept = results.frames.get("sensitivity", frame.iloc[:0])
    return {
        **{f"plain_{metric}": spread(plain, metric).text for metric in ("gcig_raw", "gcig", "gcig_l2")},
        "collapsed": design.describe_collapse(swept),
    }


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
                changes.append(f"{words} by {_percent_range([each.value for each in known])}")
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


def _answer_rq2(results: Results) -> str:
    """Describe the correlation of EO gap and GCIG; empty without results."""
    populations = correlation.populations(results.frames["comparison"])
    if correlation.POOLED not in populations:
        return ""
    data = Evidence(results)
    version = PUBLISHED if PUBLISHED in results.request.methods else FAIRX
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


def _answer_rq3(results: Results) -> str:
    """Describe what the terms, the weights and other choices of FairX change; empty without results."""
    data, parts = Evidence(results), []
    for version in (PUBLISHED, FAIRX):
        changes = []
        for key, words in _TERMS.items():
            new, old = (
                data.folds(
                    "compas-paper", version, variant=design.ablation_variant(each), experiment="ablation"
                )
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


def _percent_range(changes: Sequence[float]) -> str:
    low, high = (percent(Interval(choose(changes))) for choose in (min, max))
    return low if low == high else f"{low} to {high}"


def _describe_weights(data: Evidence, version: str) -> str:
    """Describe GCIG and AUC over the weights, with the other weight at 1; empty if results are missing."""
    frames = [
        data.folds("compas-paper", version, variant=variant, experiment="sensitivity")
        for variant in (design.sensitivity_variant(s, w) for s in design.SWEPT for w in design.WEIGHTS)
    ]
    ranges = []
    for metric in ("gcig_raw", "auc"):
        values = [float(rows[metric].mean()) for rows in frames]
        if any(map(math.isnan, values)):
            return ""
        low, high = formatting.number(min(values)), formatting.number(max(values))
        ranges.append(low if low == high else f"{low} to {high}")
    weights = f"{min(design.WEIGHTS):g} to {max(design.WEIGHTS):g}"
    return f", and with weights of {weights} it is {ranges[0]} at an AUC of {ranges[1]}"


def _name(version: str) -> str:
    return method_label(version).replace(",", "")  # "FairX as published" within a sentence
