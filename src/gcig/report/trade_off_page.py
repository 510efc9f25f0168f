"""The page of a trade-off: the models as points that can be clicked, and the gain and cost of each."""

from collections.abc import Sequence

from gcig.records.audit import SMALLEST_CELL
from gcig.records.formatting import count, estimate, number
from gcig.records.trade_off import TradeOffPoint, TradeOffRecord
from gcig.report import charts
from gcig.report.document import (
    Block,
    KeyFigures,
    RowExplorer,
    RowView,
    Section,
    VerdictBlock,
    explanations,
    page,
)
from gcig.report.summaries import trade_off_figures
from gcig.report.tables import Entry, Table, Value, number_entry
from gcig.report.trust import models_trust

_PEOPLE = 1000  # the number of people that changes of decisions are stated for
_GAPS = {"equalized_odds": "EO gap", "equal_opportunity": "TPR gap", "demographic_parity": "selection gap"}


def trade_off_page(record: TradeOffRecord, *, title: str, folder: str = "") -> str:
    """Return the page of a family of models, with commands for those saved in ``folder``."""
    about = dict(record.about)
    return page(
        about.pop("title", title),
        [
            Section("Trade-off: what does fairness cost?", _front(record)),
            Section("Models: what does each step buy?", [_explorer(record, folder)]),
            Section("Trust: can GCIG be relied on?", _trust(record)),
        ],
        subtitle=about.pop("subtitle", f"Measured on {count(record.n_rows)} held-out rows"),
        lead=[_verdict(record)],
        foot=about,
    )


def describe_step(record: TradeOffRecord, before: TradeOffPoint, after: TradeOffPoint) -> str:
    """Describe what a step from one model to another gains and costs, and how many decisions it changes."""
    gap = _GAPS[record.outcome]
    pairs = [("GCIG", before.evaluation.gcig, after.evaluation.gcig), (f"the {gap}", before.gap, after.gap)]
    bought = [f"{name} from {number(a)} to {number(b)}" for name, a, b in pairs if b < a]
    paid = [f"{name} from {number(a)} to {number(b)}" for name, a, b in pairs if b > a]
    auc = before.evaluation.auc - after.evaluation.auc
    cost = f"It costs {number(auc, 4)} of AUC" if auc > 0 else f"AUC rises by {number(-auc, 4)}"
    cost = "AUC stays the same" if number(abs(auc), 4) == number(0.0, 4) else cost
    parts = [f"This lowers {' and '.join(bought)}." if bought else "Nothing gets fairer."]
    if paid:
        parts.append(f"It raises {' and '.join(paid)}.")
    changed = record.changes[before.number][after.number]
    return " ".join(
        [*parts, f"{cost}, and of {count(_PEOPLE)} people the decision changes for {_people(changed)}."]
    )


def _price(point: TradeOffPoint) -> str:
    lost = number(max(0.0, point.auc_lost.value))
    return "at no cost in AUC" if lost == number(0.0) else f"for {lost} of AUC"


def _people(share: float) -> str:
    return number(_PEOPLE * share, 0 if share == 0 or _PEOPLE * share >= 1 else 1)


def _name(point: TradeOffPoint) -> str:
    return "the plain network" if point.number == 0 else f"model {point.number}"


def _key(point: TradeOffPoint) -> str:
    return f"model-{point.number}"


def _verdict(record: TradeOffRecord) -> VerdictBlock:
    plain, gap = record.points[0], _GAPS[record.outcome]
    front = [point for point in record.front if point.number]
    if not front:
        return VerdictBlock(
            "inconclusive", "No model is fairer than the plain network and ranks nearly as well."
        )
    reasons = min(front, key=lambda point: point.evaluation.gcig)
    outcome = min(front, key=lambda point: point.gap)
    found = []
    if reasons.evaluation.gcig < plain.evaluation.gcig:
        times = f"{plain.evaluation.gcig / max(reasons.evaluation.gcig, 1e-9):.1f}"
        found.append(f"reasons can depend {times} times less on the group {_price(reasons)}")
    if number(outcome.gap) != number(plain.gap) and outcome.gap < plain.gap:
        ends = f"{number(plain.gap)} to {number(outcome.gap)}"
        found.append(f"the {gap} can fall from {ends} {_price(outcome)}")
    headline = ", and ".join(found) or "no model is clearly fairer than the plain network"
    headline = f"{headline[0].upper()}{headline[1:]}."
    findings = [
        f"{_name(point).capitalize()}: {describe_step(record, plain, point)}"
        for point in record.points
        if point in (reasons, outcome)
    ]
    cautions = [
        f"With {count(record.n_rows)} rows, even an exactly fair model has an upper confidence limit of "
        f"about {number(record.fair_limit)} for the {gap}: smaller limits cannot be shown.",
        "Each limit holds for a single model. If you choose among many, prefer one well within its limits.",
    ]
    return VerdictBlock("neutral", headline, findings, cautions, label="Trade-off")


def family_points(record: TradeOffRecord) -> list[charts.TradeOff]:
    """Return the marks of the models; a click leads to the model's part of the page."""
    return [
        charts.TradeOff(
            "plain network" if point.number == 0 else "FairX",
            point.evaluation.auc,
            point.evaluation.gcig,
            point.gap,
            name=str(point.number),
            collapsed=point.evaluation.degenerate,
            gcig_limit=point.gcig_limit,
            eo_gap_limit=point.gap_limit,
            auc_low=point.evaluation.auc - _reach(point),
            auc_high=point.evaluation.auc + _reach(point),
            target=_key(point),
        )
        for point in record.points
    ]


def _front(record: TradeOffRecord) -> list[Block]:
    gap, points = _GAPS[record.outcome], family_points(record)
    floor = record.points[0].evaluation.eo_noise_floor if record.outcome == "equalized_odds" else None
    figures = trade_off_figures(
        points,
        noise_floor=floor,
        gap=gap,
        reading="Click a model to see what it changes. Lines to the right end at the upper 90 % confidence "
        "limit; vertical lines are the 95 % interval of the difference from the plain network.",
    )
    return [figures, _table(record), *explanations("What is GCIG?", "What is the EO gap?")]


def _reach(point: TradeOffPoint) -> float:
    return (point.auc_lost.high - point.auc_lost.low) / 2


def _table(record: TradeOffRecord) -> Table:
    front = {point.number for point in record.front}
    rows: list[tuple[Value, ...]] = [
        (
            Entry(_name(point), target=_key(point)),
            number_entry(point.evaluation.auc, 4),
            Entry(number(point.evaluation.gcig), point.evaluation.gcig, f"up to {number(point.gcig_limit)}"),
            Entry(number(point.gap), point.gap, f"up to {number(point.gap_limit)}"),
            number_entry(point.evaluation.f1, 3),
            Entry(_people(point.gained + point.lost), point.gained + point.lost),
            "excluded" if point.evaluation.degenerate else "yes" if point.number in front else "no",
        )
        for point in record.points
    ]
    return Table(
        ("model", "AUC", "GCIG", _GAPS[record.outcome], "F1", "changed of 1,000", "on the front"),
        rows,
        "All models of the family",
        notes=[
            '"Up to" is the upper 90 % confidence limit for new rows. A model is on the front if no other '
            "one is at least as good in AUC, GCIG and the gap."
        ],
    )


def _explorer(record: TradeOffRecord, folder: str) -> RowExplorer:
    front = list(record.front)
    views = []
    for point in record.points:
        better = [other for other in front if other.evaluation.auc > point.evaluation.auc]
        details = _details(record, point, better[-1] if better else None, folder)
        views.append(RowView(_key(point), _name(point).capitalize(), details))
    return RowExplorer(views, label="Model")


def _details(
    record: TradeOffRecord, point: TradeOffPoint, previous: TradeOffPoint | None, folder: str
) -> list[Block]:
    found, plain = point.evaluation, record.points[0]
    lost = f"lost: {estimate(point.auc_lost, 4)}" if point.number else "no fairness term"
    figures = [
        ("AUC", number(found.auc, 4), lost),
        ("GCIG", number(found.gcig), f"at most {number(point.gcig_limit)} with 90 % confidence"),
        (_GAPS[record.outcome], number(point.gap), f"at most {number(point.gap_limit)} with 90 % confidence"),
        ("F1", number(found.f1), f"balanced accuracy {number(found.balanced_accuracy)}"),
    ]
    blocks: list[Block] = [KeyFigures(figures)]
    if point.number:
        blocks += [
            f"Compared with the plain network: {describe_step(record, plain, point)}",
            f"Of {count(_PEOPLE)} people, {_people(point.gained)} get decision 1, which the plain network "
            f"would not give them, and {_people(point.lost)} no longer get it.",
        ]
    if previous is not None and previous.number and point.number:
        step = describe_step(record, previous, point)
        blocks.append(f"Compared with {_name(previous)}, one step back: {step}")
    blocks.append(_groups(record, point))
    if folder:
        blocks.append(f"Use it: gcig predict {folder}/models/{point.number} NEW.csv")
    return blocks


def _groups(record: TradeOffRecord, point: TradeOffPoint) -> Table:
    plain = record.points[0].evaluation
    rows: list[tuple[Value, ...]] = []
    for rates, before in zip(point.evaluation.groups, plain.groups, strict=True):
        if rates.n_rows is not None and rates.n_rows >= SMALLEST_CELL:
            names = ("selection_rate", "tpr", "fpr")
            pairs = [(getattr(rates, name), getattr(before, name)) for name in names]
            entries = (Entry(number(rate), rate, f"plain {number(old)}") for rate, old in pairs)
            rows.append((rates.group, rates.n_rows, *entries))
    return Table(("group", "rows", "selection rate", "TPR", "FPR"), rows, "Decisions by group")


def _trust(record: TradeOffRecord) -> Sequence[Block]:
    front = record.front[1:] or record.points[:1]
    shown = (
        record.points[0],
        min(front, key=lambda point: point.evaluation.gcig),
        min(front, key=lambda point: point.gap),
    )
    found = models_trust({_name(point): point.evaluation for point in record.points if point in shown})
    return [
        "GCIG relative to members compares the models of this page: it includes the noise of a few members, "
        "so it is higher here than in an audit, which removes that noise.",
        *found,
    ]
