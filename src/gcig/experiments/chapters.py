"""Chapters of the reproduction: text, tables and figures of each experiment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gcig.benchmark.trials import COMMON, TUNING_ROWS
from gcig.benchmark.tuning import RULE
from gcig.experiments import (
    answers,
    claims,
    comparison,
    correlation,
    design_choices,
    measurements,
    pareto,
    sensitivity,
    significance,
)
from gcig.experiments.collection import Collected
from gcig.experiments.figures import Figure
from gcig.experiments.paper import FAIRX, PUBLISHED, contradictions, paper
from gcig.experiments.request import MODULES
from gcig.experiments.settings import finished, method_label, spread
from gcig.experiments.statements import CLAIMS, READINGS
from gcig.report.tables import Table, Value

_TUNING = {
    "none": "Methods have their default parameters.",
    "split": "Parameters were chosen once on a 60/20/20 split of the rows, as in the paper, by the rule "
    "below. Some of these rows are tested later.",
    "nested": "Parameters were chosen inside the training rows of every fold by the rule below, so that no "
    "row that is tested has a part in the choice.",
}


_SEARCH = (
    f"All methods have the same number of candidates, trained on at most {TUNING_ROWS:,} rows.",
    f"Rule: {RULE}",
)
_TRIAL = ["dataset", "method", "variant", "seed", "fold", "repeat", "parameters", "fit_seconds"]


@dataclass(frozen=True)
class Chapter:
    """A heading with paragraphs, figures by name and tables by name."""

    heading: str
    text: Sequence[str]
    tables: Mapping[str, Table] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)


def chapters(found: Collected) -> list[Chapter]:
    """Return all chapters that have content; the first one is what most readers come for."""
    listed = [
        _summary(found),
        _trade_off(found),
        _claims(found),
        _comparison(found),
        _significance(found),
        _correlation(found),
        _ablation(found),
        _sensitivity(found),
        _design_choices(found),
        _cost(found),
        _variants(found),
        _candidates(found),
        _protocol(found),
        _datasets(found),
        _failures(found),
        _contradictions(found),
    ]
    return [chapter for chapter in listed if chapter.tables or chapter.text]


def _summary(found: Collected) -> Chapter:
    """Return one sentence per research question, and the main table next to the paper's."""
    request, frame = found.request, found.frames["comparison"]
    expected = {name: request.expected() * request.repeats.get(name, 1) for name in request.datasets}
    table = comparison.main_table(
        frame, datasets=request.datasets, methods=request.methods, expected=expected
    )
    sentences = (answers.answer_rq1(found), answers.answer_rq2(found), answers.answer_rq3(found))
    return Chapter("Main results", [sentence for sentence in sentences if sentence], {"main": table})


def _trade_off(found: Collected) -> Chapter:
    text = ("What each method pays in AUC for fair reasons and for fair outcomes, on test rows.",)
    figures = pareto.tuned_figures(found.frames["comparison"], datasets=found.request.datasets)
    return Chapter("Trade-off", text, {}, figures)


def _claims(found: Collected) -> Chapter:
    judged = claims.judge_claims(found, CLAIMS)
    versions = [method for method in (PUBLISHED, FAIRX) if method in found.request.methods]
    text = []
    for version in versions if judged else ():
        counts = claims.count_verdicts(judged, version)
        words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        text.append(f"{method_label(version)}, {len(judged)} claims: {words}.")
    text += [READINGS] if judged else []
    return Chapter("The paper's claims", text, claims.tables(judged, len(CLAIMS)))


def _comparison(found: Collected) -> Chapter:
    request, frame = found.request, found.frames["comparison"]
    shown = {"datasets": request.datasets, "methods": request.methods}
    made = comparison.tables(frame, **shown, n_folds=request.n_folds, pooled=found.pooled)
    text = ("Does FairX make a model's reasons depend less on the group, and at what cost?",)
    return Chapter("RQ1, all measures", text, made, comparison.figures(frame, **shown))


def _significance(found: Collected) -> Chapter:
    request = found.request
    made = significance.tables(
        found.frames["comparison"],
        datasets=request.datasets,
        methods=request.methods,
        n_folds=request.n_folds,
    )
    return Chapter("RQ1, wins and tests", (), made)


def _correlation(found: Collected) -> Chapter:
    frame = found.frames["comparison"]
    text = (
        "Do fair outcomes and fair reasons go together? Each point is one method on one fold.",
        *filter(None, [correlation.answer(frame)]),
    )
    made = correlation.tables(frame, expected=found.request.expected())
    return Chapter("RQ2, outcomes and reasons", text, made, correlation.figures(frame))


def _tables(found: Collected, experiment: str) -> Mapping[str, Table]:
    """Return the tables of an experiment; none if it, or each of its datasets, was not requested."""
    request, module = found.request, MODULES[experiment]
    datasets = request.requested(module.DATASETS)
    if experiment not in found.frames or not datasets:
        return {}
    made: Mapping[str, Table] = module.tables(
        found.frames[experiment],
        datasets=datasets,
        methods=request.methods,
        expected=request.expected(experiment),
    )
    return made


def _ablation(found: Collected) -> Chapter:
    return Chapter("RQ3, ablation", (), _tables(found, "ablation"))


def _sensitivity(found: Collected) -> Chapter:
    request, made = found.request, _tables(found, "sensitivity")
    if not made:
        return Chapter("RQ3, weights", ())
    text = (
        "Each weight in turn, with the other at 1. As published, the network is trained on labels, and the "
        "weights are in force until the last epoch. Our version keeps the predictions of a plain network, "
        "and reduces the weights if AUC is lost on the held-out part of the training rows.",
    )
    datasets = request.requested(sensitivity.DATASETS)
    figures = sensitivity.figures(found.frames["sensitivity"], datasets=datasets, methods=request.methods)
    return Chapter("RQ3, weights", text, made, figures)


def _design_choices(found: Collected) -> Chapter:
    made = _tables(found, "design_choices")
    datasets = found.request.requested(design_choices.DATASETS)
    text = [design_choices.describe_activation(found.frames["design_choices"], datasets)] if made else []
    return Chapter("RQ3, design choices", list(filter(None, text)), made)


def _cost(found: Collected) -> Chapter:
    return Chapter("Cost", (), measurements.cost_tables(found.measured.get("cost", [])))


def _variants(found: Collected) -> Chapter:
    made = _tables(found, "variants")
    text = (
        "Some numbers of the paper cannot be reached by the readings that we chose where it is silent. Here "
        "others are tried.",
    )
    return Chapter("Differences tried", text if made else (), made)


def _candidates(found: Collected) -> Chapter:
    frame = found.frames.get("tuning")
    if frame is None or not len(finished(frame)):
        return Chapter("All candidates", ())
    text = ("The trade-off over all settings that the grid search tried.",)
    figures = pareto.candidate_figures(frame, datasets=found.request.datasets)
    return Chapter("All candidates", text, {}, figures)


def _protocol(found: Collected) -> Chapter:
    request = found.request
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
        "Grids, the threshold rule and FairX's training are the same for all datasets; they were fixed when "
        "results of earlier versions on these folds were known.",
    ]
    return Chapter("Protocol", text, {**_chosen(found), **_time(found)})


def _time(found: Collected) -> dict[str, Table]:
    """Return how many fits each experiment has of its own, and how long they took."""
    seen: set[tuple[object, ...]] = set()
    counts: list[tuple[str, int, float]] = []
    for name, frame in found.frames.items():
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


def _chosen(found: Collected) -> dict[str, Table]:
    """Return how often each candidate was chosen."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for each in found.parameters.chosen:
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
    return {"chosen_parameters": Table(header, rows, caption="Chosen parameters")} if rows else {}


def _datasets(found: Collected) -> Chapter:
    return Chapter("Datasets", (), measurements.size_tables(found.measured.get("datasets", [])))


def _failures(found: Collected) -> Chapter:
    """List the fits that ended with an error; means leave them out."""
    rows = [
        (row["dataset"], row["method"], row["variant"], int(row["fold"]), row["error"])
        for frame in found.frames.values()
        for _, row in frame[frame["error"].notna()].iterrows()
    ]
    distinct = list(dict.fromkeys(rows))  # a trial may belong to several experiments
    table = Table(("dataset", "method", "variant", "fold", "error"), distinct, caption="Fits that failed")
    return Chapter("Failed fits", (), {"failures": table} if rows else {})


def _contradictions(found: Collected) -> Chapter:
    header, rows = ("place", "the paper", "our reading"), contradictions(_facts(found))
    table = Table(header, rows, caption="Contradictions in the paper")
    text = (f"Numbers and statements of {paper()['source']} that cannot all hold.",)
    return Chapter("The paper's contradictions", text, {"contradictions": table})


def _facts(found: Collected) -> dict[str, str]:
    """Return values of the run that our reading of the paper quotes."""
    frame = finished(found.frames["comparison"])
    plain = frame[(frame["dataset"] == "compas-paper") & (frame["method"] == "unconstrained")]
    swept = found.frames.get("sensitivity", frame.iloc[:0])
    return {
        **{f"plain_{metric}": spread(plain, metric).text for metric in ("gcig_raw", "gcig", "gcig_l2")},
        "collapsed": sensitivity.describe_collapse(swept),
    }
