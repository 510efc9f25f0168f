"""The section of a page that shows whether the conclusion depends on the reference."""

import math
from collections.abc import Mapping
from typing import Any

from gcig.records import Robustness
from gcig.report import charts
from gcig.report.document import Callout, FigureBlock, Section, TableBlock
from gcig.report.glossary import explanations
from gcig.report.tables import Entry, Mark, Value, estimate, number_entry


def robustness_section(
    found: Robustness | None,
    definition: Mapping[str, Any],
    *,
    model: str = "this model",
    other: str = "other model",
) -> list[Section]:
    """Return the verdict, a chart and a table of GCIG under every reference; nothing without a record.

    ``definition`` names the reference of the headline figure. ``model`` and ``other`` are the displayed names
    of the two models; the second is not shown if the record describes a single one.
    """
    if found is None:
        return []
    figures, headline = found.figures, str(definition.get("reference", "mean"))
    paired = any(math.isfinite(figure.other.value) for figure in figures)
    rows: list[tuple[Value, ...]] = []
    marks: dict[tuple[int, int], Mark] = {}
    for i, figure in enumerate(figures):
        values = (estimate(figure.gcig), estimate(figure.other) if paired else _noise(figure.noise))
        rows.append((charts.reference_name(figure.reference, headline), *values, figure.description))
        if charts.is_reversed(figure, figures, headline):
            marks[i, 1] = "concern"
    names = (model, other) if paired else ("GCIG", "noise")
    header = ("reference", *names, "what a row is compared with")
    return [
        Section(
            "Robustness: does the conclusion depend on the reference?",
            [
                Callout("good" if found.agrees else "concern", found.verdict),
                FigureBlock(
                    charts.robustness(figures, model=model, other=other, headline=headline),
                    _caption(paired, marks != {}),
                ),
                TableBlock(
                    header, rows, "GCIG under every reference", marks=marks, sortable=False, prose=True
                ),
                *explanations("Which references are compared?"),
            ],
        )
    ]


def _noise(noise: float) -> Entry:
    """Return the noise of a figure; 0 stands for an estimate that is free of it."""
    return number_entry(noise, 3) if noise else Entry("none", 0.0)


def _caption(paired: bool, any_reversed: bool) -> str:
    """Say how to read the chart."""
    if not paired:
        return (
            "GCIG relative to each kind of reference, with 95 % intervals. Grey bars show what is measured "
            "if nothing differs. The shaded row is the headline's; the dashed line marks its value."
        )
    order = (
        "Dashed lines lean the other way: these references reverse the order of the two models, though not "
        "with certainty if the intervals overlap."
        if any_reversed
        else "All lines lean the same way: every reference orders the two models alike."
    )
    return (
        "GCIG relative to each kind of reference, with 95 % intervals. The shaded row is the headline's. "
        f"{order}"
    )
