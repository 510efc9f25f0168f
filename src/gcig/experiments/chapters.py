"""Chapters of the reproduction: text, tables and figures of each experiment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gcig.benchmark.trials import COMMON
from gcig.benchmark.tuning import RULE
from gcig.experiments import (
    ablation,
    checks,
    comparison,
    correlation,
    design_choices,
    measurements,
    pareto,
    sensitivity,
)
from gcig.experiments.collection import Collected
from gcig.experiments.figures import Figure
from gcig.experiments.paper import contradictions, paper
from gcig.experiments.settings import finished, spread
from gcig.methods.registry import METHODS
from gcig.report.tables import Table

_TUNING = {
    "shipped": "Parameters come with the package, where they were chosen once by the rule below.",
    "split": "Parameters were tuned in this run by the rule below.",
    "nested": "In RQ1 parameters were tuned inside the training rows of every fold; the other experiments "
    "use those that come with the package.",
}


@dataclass(frozen=True)
class Chapter:
    """A heading with paragraphs, tables by name and figures by name."""

    heading: str
    text: Sequence[str]
    tables: Mapping[str, Table] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)


def chapters(found: Collected) -> list[Chapter]:
    """Return all chapters that have content."""
    listed = [
        _checks(found),
        _protocol(found),
        _datasets(found),
        _comparison(found),
        _correlation(found),
        _ablation(found),
        *(_long_experiments(found) if found.request.everything else ()),
        _failures(found),
        _contradictions(found),
    ]
    return [chapter for chapter in listed if chapter.tables or chapter.text]


def _checks(found: Collected) -> Chapter:
    requested = checks.requested_checks(found)
    if not requested:
        return Chapter("Claims", ())
    unmet = sum(check.met is False for check in requested)
    text = f"{sum(check.met is True for check in requested)} of {len(requested)} claims are met" + (
        f"; {unmet} are not, and the table gives the reason if it is known." if unmet else "."
    )
    return Chapter("Claims", (text,), checks.tables(requested, found.explanations))


def _protocol(found: Collected) -> Chapter:
    request = found.request
    seeds = f"seed{'s' * (len(request.seeds) > 1)} {', '.join(map(str, request.seeds))}"
    text = [
        f"{request.n_folds} folds stratified by label and group, {seeds}; one network (64-32, SiLU) "
        "for all methods; one thread per fit. Early stopping and thresholds use training rows only.",
        f"{_TUNING[request.tuning]} Rule: {RULE}",
        "Tuning on one split, as in the paper's protocol, sees rows that are later in test folds; nested "
        "tuning does not. Grids, the threshold rule and FairX's training are the same for all datasets; they "
        "were fixed when results of earlier versions on these folds were known.",
    ]
    rows = [
        (dataset, METHODS[method].label if method in METHODS else method, _describe(parameters))
        for dataset, methods in found.parameters.chosen.items()
        for method, parameters in methods.items()
    ]
    table = Table(("dataset", "method", "parameters"), rows, caption="Chosen parameters")
    return Chapter("Protocol", text, {"chosen_parameters": table} if rows else {})


def _describe(parameters: Mapping[str, object]) -> str:
    words = ", ".join(f"{name} = {value}" for name, value in sorted(parameters.items())) or "defaults"
    return words if set(parameters) - set(COMMON) else f"{words} (not tuned)"


def _datasets(found: Collected) -> Chapter:
    sizes = [measurements.DatasetSize(**row) for row in found.measured.get("datasets", [])]
    return Chapter("Datasets", (), measurements.size_tables(sizes) if sizes else {})


def _comparison(found: Collected) -> Chapter:
    request, frame = found.request, found.frames["comparison"]
    shown = {"datasets": request.datasets, "methods": request.methods}
    made = comparison.tables(frame, **shown, expected=request.expected, pooled=found.pooled)
    made |= comparison.significance_tables(frame, **shown, n_folds=request.n_folds)
    text = (
        "Does FairX make a model's reasons depend less on the group, and at what cost? Every number of the "
        "paper's main table is shown below ours.",
    )
    return Chapter("RQ1: comparison of methods", text, made, comparison.figures(frame, **shown))


def _correlation(found: Collected) -> Chapter:
    frame = found.frames["comparison"]
    text = (
        "Do fair outcomes and fair reasons go together? Each point is one method on one fold.",
        *filter(None, [correlation.answer(frame)]),
    )
    made = correlation.tables(frame, expected=found.request.expected)
    return Chapter("RQ2: outcome and procedural fairness", text, made, correlation.figures(frame))


def _ablation(found: Collected) -> Chapter:
    names = found.request.requested(ablation.DATASETS)
    made = ablation.tables(found.frames["ablation"], datasets=names, expected=found.request.expected)
    return Chapter("RQ3: ablation", (), made if names else {})


def _long_experiments(found: Collected) -> list[Chapter]:
    request, frames = found.request, found.frames
    swept = request.requested(sensitivity.DATASETS)
    changed = request.requested(design_choices.DATASETS)
    fronts = request.requested(pareto.DATASETS)
    pareto_folds = min(pareto.FOLDS, request.n_folds) * len(request.seeds)
    on_front = {"datasets": fronts, "methods": request.methods}
    return [
        Chapter(
            "RQ3: sensitivity to the weights",
            (
                "Each weight in turn, with the other at 1. As published: training on labels, with the "
                "weights in force until the last epoch. Distilled, our default: the network keeps the "
                "predictions of a plain one, and the weights are reduced if AUC is lost on the held-out part "
                "of the training rows.",
            ),
            sensitivity.tables(frames["sensitivity"], datasets=swept, expected=request.expected),
            sensitivity.figures(frames["sensitivity"], datasets=swept),
        ),
        Chapter(
            "RQ3: design choices",
            (),
            {
                **design_choices.tables(
                    frames["design_choices"], datasets=changed, expected=request.expected
                ),
                **design_choices.reference_tables(found.measured.get("references", [])),
            },
        ),
        Chapter("Cost", (), measurements.cost_tables(found.measured.get("cost", []))),
        Chapter(
            "Trade-off over all settings",
            (),
            pareto.tables(frames["pareto"], **on_front, expected=pareto_folds),
            pareto.figures(frames["pareto"], **on_front),
        ),
    ]


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
    rows = [(each.place, each.statement, each.reading) for each in contradictions(_facts(found))]
    table = Table(("place", "the paper", "our reading"), rows, caption="Contradictions in the paper")
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
