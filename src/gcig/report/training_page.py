"""The page of a trained model: did reasons get fairer, at what price, and is the model good enough."""

from collections.abc import Mapping, Sequence
from typing import Any

from gcig.records import Evaluation
from gcig.records.formatting import counted
from gcig.records.limits import CheckResult
from gcig.report import answers
from gcig.report.answers import NO_LEGAL_FINDING, SPREAD, Setting
from gcig.report.audit_page import columns_section, figure_sections, glossary_section, group_blocks
from gcig.report.displays import Estimate, EstimatesDisplay
from gcig.report.document import (
    Answer,
    Block,
    Callout,
    Details,
    FigureBlock,
    Head,
    Page,
    Section,
    Steps,
    Tone,
)
from gcig.report.summaries import MethodSummary, describe_trade_off, figure_title, main_measure, surely_lower
from gcig.report.tables import Table


def training_page(
    models: Mapping[str, tuple[str, Evaluation]],
    setting: Setting,
    *,
    title: str,
    subtitle: str = "",
    verdict: Any = None,
    check: CheckResult | None = None,
    columns: Sequence[tuple[str, str, str]] = (),
    notes: Sequence[str] = (),
    steps: Steps | None = None,
    evidence: Sequence[str] = (),
    foot: Mapping[str, str] | None = None,
) -> str:
    """Return the page of `gcig train`.

    ``models`` maps method keys to labels and evaluations on held-out rows, the plain network first and the
    trained model last; a single model is described without a comparison. ``columns`` lists name, role and
    type of every column of the table, and ``notes`` the decisions made while reading it.
    """
    found = [MethodSummary.of(key, label, evaluation) for key, (label, evaluation) in models.items()]
    last = found[-1].evaluations[0]
    by_label = {method.label: method.evaluations[0] for method in found}
    return Page(
        Head(title, subtitle, answers.gate(check), [*evidence, NO_LEGAL_FINDING]),
        [
            *_comparison(found),
            answers.people(last, setting),
            answers.standards(last, verdict, setting),
            answers.attribute(last, setting, check),
            *answers.limits_answer(check),
            *([steps] if steps else []),
            answers.certainty(last, verdict, "held-out rows"),
        ],
        [
            *figure_sections(by_label),
            Section("Groups: how does the model treat them?", group_blocks(by_label)),
            *columns_section(by_label),
            *_reading_section(columns, notes),
            glossary_section(),
        ],
        dict(foot or {}),
    ).html()


def _comparison(models: Sequence[MethodSummary]) -> list[Answer]:
    """Say whether reasons got fairer, and what that cost."""
    if len(models) < 2:
        return []
    plain, fair = models[0], models[-1]
    headline, findings, cautions = describe_trade_off(plain, fair)
    tone: Tone = "bad" if fair.degenerate else "good" if surely_lower(plain, fair) else "unsure"
    word = {"bad": "Do not use it.", "good": "Yes.", "unsure": "Not certain."}[tone]
    gaps = [_line(method, "reason_gap") for method in (plain, fair)]
    main = main_measure(fair.task)
    costs = [_line(method, main) for method in (plain, fair)]
    more: list[Block] = [Details("Before you rely on this", [Callout("caution", each) for each in cautions])]
    figure = EstimatesDisplay(gaps, f"reason gap, {SPREAD}")
    lost = EstimatesDisplay(costs, figure_title(fair.evaluations, main))
    return [
        Answer(
            "Do the reasons depend less on the group?",
            headline,
            word,
            tone,
            figure=FigureBlock(figure.svg("Reason gap of both models")),
            more=more if cautions else (),
        ),
        Answer(
            "What did it cost?",
            findings[0] if findings else "Not known.",
            notes=findings[1:2],
            figure=FigureBlock(lost.svg("Utility of both models")),
        ),
    ]


def _line(method: MethodSummary, measure: str) -> Estimate:
    found = method.evaluations[0]
    known = found.figure(measure) if measure in found else None
    chance = float("nan") if known is None else known.chance
    return Estimate(method.label, method.interval(measure), chance, place=method.place)


def _reading_section(columns: Sequence[tuple[str, str, str]], notes: Sequence[str]) -> list[Section]:
    """Say how the table was read; nothing if no columns are listed."""
    if not columns:
        return []
    table = Table(("column", "role", "read as"), columns, f"The table: {counted(len(columns), 'column')}")
    return [
        Section(
            "Data: how was the table read?", [table, *(f"{note[0].upper()}{note[1:]}." for note in notes)]
        )
    ]
