"""The page of a trade-off: the price of fairer reasons and of fairer decisions, each drawn separately."""

import math

from gcig.records import Interval
from gcig.records.formatting import count, counted, estimate, number
from gcig.records.trade_off import REASONS, TradeOffPoint, TradeOffRecord
from gcig.report.answers import NO_LEGAL_FINDING
from gcig.report.audit_page import figure_sections, glossary_section, group_blocks
from gcig.report.displays import ParetoDisplay, TradeOff
from gcig.report.document import Answer, Block, FigureBlock, Head, Page, Section, Step, Steps, explanations
from gcig.report.summaries import figure_title, method_place
from gcig.report.tables import Entry, Table, Value

_PLAIN, _FAIR = "plain network", "FairX"


def trade_off_page(record: TradeOffRecord, *, title: str, folder: str = "") -> str:
    """Return the page of a family of models, with commands for those saved in ``folder``."""
    about = dict(record.about)
    head = Head(
        about.pop("title", title),
        about.pop("subtitle", f"Measured on {counted(record.n_rows, 'held-out row')}"),
        evidence=[
            f"Evidence: {counted(record.n_rows, 'row')} that no model was trained on; intervals are 95 %.",
            NO_LEGAL_FINDING,
        ],
    )
    return Page(
        head,
        [
            _price(record, REASONS, record.gap, "What do fairer reasons cost?"),
            _price(record, record.gap, REASONS, "What do fairer decisions cost?"),
            *_use(record, folder),
            Answer(
                "How certain is this?",
                f"It rests on {count(record.n_rows)} rows. Each interval holds for a single model: if you "
                "choose among many, prefer one well within its limits.",
            ),
        ],
        [
            Section("All models", [_table(record), *explanations("What is the Pareto front?")]),
            *(
                Section(_first_upper(_name(point)), _details(record, point), f"model-{point.number}")
                for point in record.points
            ),
            *figure_sections({_name(point): point.evaluation for point in record.points}),
            glossary_section(),
        ],
        about,
    ).html()


def family_display(record: TradeOffRecord, gap: str = REASONS) -> ParetoDisplay:
    """Return the chart of the utility against a gap."""
    found = [point.evaluation for point in record.points]
    plain = found[0][record.utility]
    chance = found[0].values().get("eo_noise_floor", math.nan) if gap == "outcome_gap" else math.nan
    points = [
        TradeOff(
            _FAIR if point.number else _PLAIN,
            Interval(point.evaluation[record.utility], plain - point.lost.high, plain - point.lost.low)
            if point.number
            else plain,
            point.evaluation.figure(gap).interval,
            str(point.number) if point.number else "",
            point.evaluation.degenerate,
            method_place("fairx" if point.number else "unconstrained"),
        )
        for point in record.points
    ]
    return ParetoDisplay(points, figure_title(found, gap), figure_title(found, record.utility), chance)


def _price(record: TradeOffRecord, gap: str, held: str, question: str) -> Answer:
    """Say what lowering one gap costs, at a fixed other one."""
    found = [point.evaluation for point in record.points]
    name, other = (figure_title(found, each) for each in (gap, held))
    figure = FigureBlock(
        family_display(record, gap).svg(question),
        "Up and to the left is better. Numbers are those of the models; the dashed line joins the front.",
    )
    best = record.priced(gap, held)
    plain = record.points[0].evaluation[gap]
    if best is None:
        text = (
            f"No model lowers it without raising the {_lower(other)}: the plain network has {number(plain)}."
        )
        return Answer(question, text, "", "unsure", figure=figure)
    after = number(max(0.0, best.evaluation[gap]))
    text = f"The {_lower(name)} falls from {number(plain)} to {after} {_cost(record, best)}."
    sure = found[0].difference(best.evaluation).figure(gap).low > 0
    word = "" if sure else "Not certain:"
    notes = [f"Model {best.number}, on the front; its {_lower(other)} is not above the plain network's."]
    if not math.isnan(best.changed):
        notes.append(f"Of 100 people, {round(100 * best.changed)} are decided otherwise.")
    return Answer(question, text, word, "" if sure else "unsure", notes, figure)


def _cost(record: TradeOffRecord, point: TradeOffPoint) -> str:
    title = figure_title([point.evaluation], record.utility)
    lost = number(max(0.0, point.lost.value))
    return f"at no cost in {title}" if lost == number(0.0) else f"for {lost} of {title}"


def _lower(name: str) -> str:
    return name if name[:2].isupper() else f"{name[:1].lower()}{name[1:]}"


def _first_upper(name: str) -> str:
    return f"{name[:1].upper()}{name[1:]}"


def _name(point: TradeOffPoint) -> str:
    return _PLAIN if point.number == 0 else f"model {point.number}"


def _use(record: TradeOffRecord, folder: str) -> list[Steps]:
    if not folder:
        return []
    best = record.priced(REASONS, record.gap) or record.points[0]
    path = f"{folder}/models/{best.number}"
    return [
        Steps(
            [
                Step(f"Use {_name(best)}:", "", f"gcig predict {path} NEW.csv"),
                Step(
                    "Audit it on other rows:",
                    "",
                    f"gcig audit {path} TEST.csv --target TARGET --sensitive NAME",
                ),
            ]
        )
    ]


def _table(record: TradeOffRecord) -> Table:
    front = {point.number for point in record.front()}
    found = [point.evaluation for point in record.points]
    rows: list[tuple[Value, ...]] = [
        (
            Entry(_first_upper(_name(point)), target=f"model-{point.number}"),
            Entry(f"{point.budget:g}", point.budget),
            *(
                Entry(number(figure.value), figure.value, f"up to {number(point.upper(figure.name))}")
                for figure in (
                    point.evaluation.figure(name) for name in (record.utility, REASONS, record.gap)
                )
            ),
            Entry(estimate(point.lost, 4), point.lost.value),
            "excluded" if point.evaluation.degenerate else "yes" if point.number in front else "no",
        )
        for point in record.points
    ]
    names = (figure_title(found, name) for name in (record.utility, REASONS, record.gap))
    return Table(
        ("model", "budget", *names, "utility lost", "on the front"), rows, "All models of the family"
    )


def _details(record: TradeOffRecord, point: TradeOffPoint) -> list[Block]:
    blocks: list[Block] = []
    if point.number:
        changed = ""
        if not math.isnan(point.changed):
            changed = f" Of 1,000 people, {round(1000 * point.changed)} are decided otherwise than before."
        blocks.append(f"Trained with a budget of {point.budget:g}, {_cost(record, point)}.{changed}")
    return [*blocks, *group_blocks({_name(point): point.evaluation})]
