"""The reproduction as chapters: the words, tables and figures of each experiment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gcig.benchmark.selection import RULE
from gcig.benchmark.trials import COMMON
from gcig.experiments import (
    ablation,
    baseline_kinds,
    checks,
    comparison,
    correlation,
    cost,
    datasets,
    design_choices,
    pareto,
    sensitivity,
    significance,
)
from gcig.experiments.collection import Collected
from gcig.experiments.figure import Figure
from gcig.experiments.paper import contradictions, paper
from gcig.experiments.summary import finished, spread
from gcig.methods.registry import METHODS
from gcig.report.tables import Table

__all__ = ["Chapter", "chapters"]

_TUNING = {
    "shipped": "Parameters were chosen once by the rule below and came with the package.",
    "split": "Parameters were chosen anew by the rule below.",
    "nested": "In RQ1 parameters were chosen inside the training rows of every fold; the other experiments "
    "use those that came with the package.",
}


@dataclass(frozen=True)
class Chapter:
    """A heading with paragraphs, tables by name and figures by name."""

    heading: str
    text: Sequence[str]
    tables: Mapping[str, Table] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)


def chapters(found: Collected) -> list[Chapter]:
    """All chapters for which there is something to show."""
    listed = [
        _checks(found),
        _protocol(found),
        _datasets(found),
        _comparison(found),
        _correlation(found),
        _ablation(found),
        *(_on_request(found) if found.request.everything else ()),
        _failures(found),
        _contradictions(found),
    ]
    return [chapter for chapter in listed if chapter.tables or chapter.text]


def _checks(found: Collected) -> Chapter:
    asked = checks.asked_checks(found)
    if not asked:
        return Chapter("What was reached", ())
    unmet = sum(check.met is False for check in asked)
    text = f"{sum(check.met is True for check in asked)} of {len(asked)} claims are met" + (
        f", {unmet} are not, and the table says why where it is known." if unmet else "."
    )
    return Chapter("What was reached", (text,), checks.tables(asked, found.explanations))


def _protocol(found: Collected) -> Chapter:
    request = found.request
    seeds = f"seed{'s' * (len(request.seeds) > 1)} {', '.join(map(str, request.seeds))}"
    text = [
        f"{request.n_folds} folds stratified by label and group, {seeds}; one network (64-32, SiLU) "
        "for all methods; each fit on one thread. Early stopping and thresholds see the training rows alone.",
        f"{_TUNING[request.tuning]} The rule: {RULE[0].lower()}{RULE[1:]}",
        "Tuning on one split, as in the paper's protocol, sees rows that are later in test folds; nested "
        "tuning does not. Grids, the rule of the threshold and FairX's training are the same for all "
        "datasets; they were settled while results of earlier versions on these folds were known.",
    ]
    rows = [
        (dataset, METHODS[method].label if method in METHODS else method, _words(parameters))
        for dataset, methods in found.parameters.chosen.items()
        for method, parameters in methods.items()
    ]
    table = Table(("dataset", "method", "parameters"), rows, caption="Chosen parameters")
    return Chapter("Protocol", text, {"chosen_parameters": table} if rows else {})


def _words(parameters: Mapping[str, object]) -> str:
    words = ", ".join(f"{name} = {value}" for name, value in sorted(parameters.items())) or "defaults"
    return words if set(parameters) - set(COMMON) else f"{words} (not tuned)"


def _datasets(found: Collected) -> Chapter:
    sizes = [datasets.DatasetSize(**row) for row in found.measured.get("datasets", [])]
    return Chapter("Datasets", (), datasets.tables(sizes) if sizes else {})


def _comparison(found: Collected) -> Chapter:
    request, frame = found.request, found.frames["comparison"]
    shown = {"datasets": request.datasets, "methods": request.methods}
    made = comparison.tables(frame, **shown, expected=request.expected, pooled=found.pooled)
    made |= significance.tables(frame, **shown, n_folds=request.n_folds)
    text = (
        "Does FairX make reasons depend less on the group, and what does it cost? Every number of the "
        "paper's main table stands below ours.",
    )
    return Chapter("RQ1: the methods compared", text, made, comparison.figures(frame, **shown))


def _correlation(found: Collected) -> Chapter:
    frame = found.frames["comparison"]
    text = (
        "Do fair outcomes and fair reasons go together? One point is one method on one fold.",
        *filter(None, [correlation.answer(frame)]),
    )
    made = correlation.tables(frame, expected=found.request.expected)
    return Chapter("RQ2: outcome and procedural fairness", text, made, correlation.figures(frame))


def _ablation(found: Collected) -> Chapter:
    names = found.request.among(ablation.DATASETS)
    made = ablation.tables(found.frames["ablation"], datasets=names, expected=found.request.expected)
    return Chapter("RQ3: ablation", (), made if names else {})


def _on_request(found: Collected) -> list[Chapter]:
    request, frames = found.request, found.frames
    swept = request.among(sensitivity.DATASETS)
    changed = request.among(design_choices.DATASETS)
    fronts = request.among(pareto.DATASETS)
    on_front = {"datasets": fronts, "methods": request.methods}
    return [
        Chapter(
            "RQ3: sensitivity to the weights",
            (
                "Each weight in turn, the other at 1. As published: trained on labels, the weights act to "
                "the last epoch. Taught, our default: the network keeps the predictions of a plain one, and "
                "weights are lowered where AUC is lost on training rows held out.",
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
                **baseline_kinds.tables(found.measured.get("baseline_kinds", [])),
            },
        ),
        Chapter("Cost", (), cost.tables(found.measured.get("cost", []))),
        Chapter(
            "The trade-off over all weights",
            (),
            pareto.tables(
                frames["pareto"], **on_front, expected=_pareto_folds(request.n_folds, len(request.seeds))
            ),
            pareto.figures(frames["pareto"], **on_front),
        ),
    ]


def _pareto_folds(n_folds: int, n_seeds: int) -> int:
    return min(pareto.FOLDS, n_folds) * n_seeds


def _failures(found: Collected) -> Chapter:
    """Fits that ended with an error; they are in no mean."""
    rows = [
        (row["dataset"], row["method"], row["variant"], int(row["fold"]), row["error"])
        for frame in found.frames.values()
        for _, row in frame[frame["error"].notna()].iterrows()
    ]
    distinct = list(dict.fromkeys(rows))  # a cell may be in several experiments
    table = Table(("dataset", "method", "variant", "fold", "error"), distinct, caption="Fits that failed")
    return Chapter("Failed fits", (), {"failures": table} if rows else {})


def _contradictions(found: Collected) -> Chapter:
    rows = [(each.where, each.what, each.read) for each in contradictions(_facts(found))]
    table = Table(("where", "the paper", "how we read it"), rows, caption="The paper against itself")
    text = (f"Numbers and statements of {paper()['source']} that cannot all be so.",)
    return Chapter("The paper's contradictions", text, {"contradictions": table})


def _facts(found: Collected) -> dict[str, str]:
    """Figures of the run that our reading of the paper names."""
    frame = finished(found.frames["comparison"])
    plain = frame[(frame["dataset"] == "compas-paper") & (frame["method"] == "unconstrained")]
    swept = found.frames.get("sensitivity", frame.iloc[:0])
    return {
        "plain_gcig": spread(plain, "gcig").text,
        "plain_gcig_l2": spread(plain, "gcig_l2").text,
        "collapsed": sensitivity.collapsed_at_one(swept),
    }
