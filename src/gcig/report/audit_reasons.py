"""The sections on reasons: how far they depend on the group, by which columns, and how stable that is."""

import math

from gcig.records import AuditRecord, ColumnAudit
from gcig.records.audit import SMALLEST_CELL
from gcig.report import charts
from gcig.report.blocks import Block, Callout, FigureBlock, Paragraph, Section, TableBlock
from gcig.report.glossary import explained
from gcig.report.numerals import count, number, percent
from gcig.report.suppression import rows_cell
from gcig.report.tables import Cell, Value, estimate

__all__ = ["columns_section", "histogram_figure", "profiles_figure", "reasons_section", "stability_section"]

DRAWN = 12  # columns in a picture; the tables have them all

_EVIDENCE = {
    "disparity": "The reasons differ between the groups by more than chance explains.",
    "none": "The difference is no larger than what chance alone gives.",
    "not enough": "There are too few rows to tell the difference from chance.",
}


def profiles_figure(record: AuditRecord) -> FigureBlock:
    """The reasons of the groups side by side, for the columns with the largest shares."""
    columns = ranked(record)[:DRAWN]
    groups = list(dict.fromkeys(group for column in columns for group in column.profile))
    profiles = {group: [column.profile.get(group, math.nan) for column in columns] for group in groups}
    left = len(record.procedural.columns) - len(columns)
    more = f" The table below has {count(left)} more." if left else ""
    return FigureBlock(
        charts.attribution_profiles([column.column for column in columns], profiles),
        "What each column says on average when a row is compared with a group's typical member: to the "
        f"right, for the positive outcome. Marks that lie apart are reasons that depend on the group.{more}",
    )


def ranked(record: AuditRecord) -> list[ColumnAudit]:
    """The columns, the largest share first."""
    return sorted(
        record.procedural.columns, key=lambda c: -math.inf if math.isnan(c.share) else c.share, reverse=True
    )


def reasons_section(record: AuditRecord) -> Section:
    """GCIG, what chance gives, its spread over rows, and its parts."""
    found = record.procedural
    evidence = _EVIDENCE.get(found.evidence, "")
    return Section(
        "Reasons: do they depend on the group?",
        [
            *([Paragraph(evidence)] if evidence else []),
            *_group_figures(record),
            _measures_table(record),
            *_parts(record),
            *explained(
                "What is GCIG?", "What is the noise floor?", "Why is the effective number of columns shown?"
            ),
        ],
    )


def histogram_figure(record: AuditRecord) -> FigureBlock:
    """How the disparity is spread over the rows of each group."""
    found = record.procedural
    return FigureBlock(
        charts.disparity_histogram(
            found.histogram_edges,
            found.histogram_counts,
            means={group.group: group.gcig.value for group in record.groups},
        ),
        "How the disparity is spread over the rows of each group; the dashed line is the mean. Rows at 0 "
        "have reasons that do not depend on the group. The last bar holds all larger values; bars of fewer "
        f"than {SMALLEST_CELL} rows are left out.",
    )


def _group_figures(record: AuditRecord) -> list[FigureBlock]:
    """GCIG of each group's rows: whom the difference concerns."""
    groups = [group for group in record.groups if math.isfinite(group.gcig.value)]
    if not groups:
        return []
    svg = charts.estimates(
        [group.group for group in groups],
        [group.gcig for group in groups],
        title="GCIG over the rows of each group",
        label="GCIG",
        reference=record.procedural.noise_floor.value,
    )
    return [FigureBlock(svg, "GCIG over the rows of each group. The dashed line is what chance alone gives.")]


def _measures_table(record: AuditRecord) -> TableBlock:
    found = record.procedural
    rows: list[tuple[Value, ...]] = [
        ("GCIG", estimate(found.gcig), f"mean disparity over the rows; {_counted(record)}"),
        (
            "the same, baselines estimated again",
            estimate(found.gcig_resampled),
            "allows for uncertain baselines",
        ),
        ("Noise floor", estimate(found.noise_floor), "GCIG when group labels are shuffled"),
        (
            "Excess",
            estimate(found.excess),
            "GCIG (with baselines from the audited rows) less the noise floor: what counts",
        ),
        ("p-value", number(found.p_value), "share of shuffles with a GCIG as large"),
        ("Effective columns", number(found.effective_columns, 1), "how many columns the reasons rest on"),
        ("Completeness", number(found.completeness, 4), "what the reasons leave unexplained; 0 is exact"),
        ("Rows without reasons", found.undefined_rows, "left out of every mean above"),
    ]
    if math.isfinite(found.standard_error):
        rows.append(
            ("Sampling error", number(found.standard_error, 4), "of GCIG, from sampling Shapley values")
        )
    if math.isfinite(found.clipped):
        rows.append(
            ("Clipped probabilities", percent(found.clipped, 1), "so near 0 or 1 that they were cut off")
        )
    return TableBlock(("measure", "value", "how to read it"), rows, "GCIG and how sure it is", sortable=False)


def _counted(record: AuditRecord) -> str:
    """What GCIG is made of: values on one kind of columns say nothing about the other."""
    if record.subject.definition.get("columns") == "raw":
        return "each category counts as a column, as in reports of training"
    return "each column of the table counts once (reports of training count each category)"


def _parts(record: AuditRecord) -> list[Block]:
    found = record.procedural
    parts: list[Block] = []
    if found.labels:
        labels = [(part.label, rows_cell(part.n_rows), estimate(part.gcig)) for part in found.labels]
        parts.append(TableBlock(("outcome", "rows", "GCIG"), labels, "By true outcome"))
    if len(found.pairs) > 1:
        pairs = [(pair.first, pair.second, estimate(pair.gcig)) for pair in found.pairs]
        parts.append(TableBlock(("group", "compared with", "GCIG"), pairs, "By pair of groups"))
    return parts


def columns_section(record: AuditRecord) -> Section:
    """Which columns make the reasons differ, and in which direction."""
    columns = ranked(record)
    heading = "Columns: where do the reasons differ?"
    if not columns:
        return Section(heading, [Callout("note", "There are no columns to rank.")])
    groups = list(dict.fromkeys(group for column in columns for group in column.profile))
    rows: list[tuple[Value, ...]] = [
        (
            column.column,
            Cell(percent(column.share, 1), column.share),
            estimate(column.contribution, 4),
            column.towards or "none",
            column.difference,
            *(column.profile.get(group, math.nan) for group in groups),
        )
        for column in columns
    ]
    header = (
        "column",
        "share",
        "contribution",
        "most favourable when compared with",
        "difference",
        *(f"under {group}" for group in groups),
    )
    bars = charts.estimates(
        [column.column for column in columns[:DRAWN]],
        [column.contribution for column in columns[:DRAWN]],
        title="What each column adds to GCIG",
        label="contribution to GCIG",
    )
    return Section(
        heading,
        [
            FigureBlock(
                bars, "What each column adds to GCIG, with 95 % intervals; the largest shares first."
            ),
            TableBlock(header, rows, "Every column"),
            *explained("How are columns ranked?"),
        ],
    )


def stability_section(record: AuditRecord) -> Section:
    """GCIG with one choice of the definition changed at a time."""
    checks = record.procedural.stability
    heading = "Stability: would another choice change the result?"
    if not checks:
        return Section(heading, [Callout("note", "No other choices were tried.")])
    rows = [(check.aspect, check.setting, check.gcig, "yes" if check.used else "") for check in checks]
    return Section(
        heading,
        [
            Paragraph(
                "GCIG depends on a few choices of method. Here one of them is changed at a time. Values that "
                "differ in size but lead to the same conclusion are no concern: "
                "another norm has another scale."
            ),
            TableBlock(("choice", "setting", "GCIG", "used"), rows, "GCIG under other choices"),
        ],
    )
