"""The audit page's sections on reasons: GCIG, the columns behind it, and its stability."""

import math

from gcig.records import AuditRecord
from gcig.records.audit import MATERIAL, ColumnAudit
from gcig.records.formatting import count, percent
from gcig.report import charts
from gcig.report.document import Block, Callout, FigureBlock, Section, caution, explanations
from gcig.report.summaries import MEASURES
from gcig.report.tables import Entry, Table, Value, estimate, measures_table, number_entry, rows_entry
from gcig.report.trust import models_trust

_CHART_COLUMNS = 12  # columns in a chart; the tables have them all
_OF_ROWS = "Intervals of the parts of GCIG cover the choice of rows, with the references as they are."
_TRUST = (
    "A model can have a low GCIG without treating people more equally: its references may not be typical, or "
    "it may rely on a single column. These numbers detect such cases."
)
_STABILITY = (
    "GCIG depends on a few methodological choices. This table changes one of them at a time. Values that "
    "differ in size but lead to the same conclusion are no concern: another norm, for example, has a "
    "different scale."
)


def differences_figure(record: AuditRecord) -> FigureBlock:
    """Return the chart of how much the reasons differ, for the columns with the largest shares."""
    columns = columns_by_share(record)[:_CHART_COLUMNS]
    groups = record.procedural.compared_groups
    remaining = len(record.procedural.columns) - len(columns)
    more = f" The table below has {count(remaining)} more." if remaining else ""
    sides = (groups[0], groups[1]) if len(groups) == 2 else None
    direction = (
        "To the right, the column speaks more for the favourable outcome if a person is compared with "
        f"{groups[1]!r}; to the left, if compared with {groups[0]!r}."
        if sides
        else "The difference is the largest minus the smallest over the groups."
    )
    return FigureBlock(
        charts.difference_boxes([c.column for c in columns], [c.quantiles for c in columns], sides=sides),
        "How much the reason that a column gives depends on the group, row by row: the line is the median "
        f"row, the box holds half of the rows and the whiskers hold 90 %. {direction} A box at 0 is a column "
        f"whose part in the reasons does not depend on the group.{more}",
    )


def columns_by_share(record: AuditRecord) -> list[ColumnAudit]:
    """Return the columns by decreasing share of the disparity, undefined shares last."""
    return sorted(
        record.procedural.columns, key=lambda c: -math.inf if math.isnan(c.share) else c.share, reverse=True
    )


def _evidence(record: AuditRecord) -> str:
    """Describe the result of the comparison with chance in one sentence, consistent with the verdict."""
    found, status = record.procedural, record.verdict.reasons
    if found.evidence == "disparity":
        if found.excess.value >= MATERIAL:
            return "The reasons differ between the groups by more than chance explains."
        return (
            "The reasons differ between the groups by more than chance explains, but by less than "
            f"{MATERIAL}, which counts as small."
        )
    if found.evidence == "none":
        if status == "clear":
            return "The difference is no larger than chance alone gives."
        return (
            "Relative to the groups' means, the difference is no larger than chance alone gives; the other "
            "references below do not confirm this."
        )
    return "There are too few rows to distinguish the difference from chance."


def reasons_section(record: AuditRecord) -> Section:
    """Return GCIG, its noise floor, and its parts by group and outcome."""
    return Section(
        "Reasons: do they depend on the group?",
        [
            _evidence(record),
            *_group_figures(record),
            _measures_table(record),
            *_parts(record),
            *explanations("What is GCIG?", "What is the noise floor?"),
        ],
    )


def trust_section(record: AuditRecord) -> Section:
    """Return the numbers that say whether GCIG can be relied on."""
    missing = Callout(
        "note",
        "GCIG under other references is not part of this audit; robustness=True (gcig audit --robustness) "
        "adds it.",
    )
    return Section(
        "Trust: can GCIG be relied on?",
        [
            _TRUST,
            *models_trust({record.subject.model_name: record.procedural}),
            *([missing] if record.robustness is None else []),
        ],
    )


def histogram_figure(record: AuditRecord) -> FigureBlock:
    """Return the histogram of the disparity over the rows of each group."""
    found = record.procedural
    drawn = {group for group, counts in found.histogram_counts.items() if sum(counts)}
    left_out = [repr(group) for group in record.group_names if group not in drawn]
    omitted = f" Not drawn, for the same reason: {', '.join(left_out)}." if drawn and left_out else ""
    return FigureBlock(
        charts.disparity_histogram(
            found.histogram_edges,
            found.histogram_counts,
            means={group.group: group.gcig.value for group in record.groups},
            order=record.group_names,
        ),
        "The distribution of the disparity over the rows of each group; the dashed line is the mean. Rows at "
        "0 have reasons that do not depend on the group. The last bar includes all larger values; bars of "
        f"fewer than {record.min_cell} rows are suppressed.{omitted}",
    )


def _group_figures(record: AuditRecord) -> list[FigureBlock]:
    """Return the chart of GCIG over each group's rows."""
    groups = [group for group in record.groups if math.isfinite(group.gcig.value)]
    if not groups:
        return []
    found = record.procedural
    # The noise floor has references from the audited rows: it is comparable only if GCIG has them, too.
    floor = found.noise_floor.value if found.comparable is None else None
    svg = charts.estimates(
        [group.group for group in groups],
        [group.gcig for group in groups],
        title="GCIG over the rows of each group",
        label="GCIG",
        reference=floor,
        order=record.group_names,
    )
    line = "" if floor is None else " The dashed line is the noise floor."
    return [FigureBlock(svg, f"GCIG over the rows of each group.{line} {_OF_ROWS}")]


def _measures_table(record: AuditRecord) -> Table:
    found, here = record.procedural, record.procedural.comparable
    own = "" if here is None else "with references from the model's training rows; "
    rows: list[tuple[Value, ...]] = [
        (
            "GCIG",
            estimate(found.gcig),
            f"mean disparity over the rows; {own}{_columns_counted(record)}; the interval, which is compared "
            "with limits, includes the uncertainty of the references",
        ),
        *(
            []
            if here is None
            else [("GCIG to compare with chance", here, "with references from the audited rows")]
        ),
        ("Noise floor", estimate(found.noise_floor), "GCIG when group labels are shuffled"),
        (
            "Excess",
            estimate(found.excess),
            f"GCIG{'' if here is None else ' to compare with chance'} minus the noise floor: the part due to "
            "the model",
        ),
        ("p-value", number_entry(found.p_value, 3), "share of shuffles with a GCIG at least as large"),
        *(
            (MEASURES[field][0], number_entry(value, 3), MEASURES[field][1])
            for field in ("gcig_l2", "gcig_encoded", "gcig_raw")
            if math.isfinite(value := getattr(found, field))
        ),
        (
            "Completeness",
            number_entry(found.completeness, 4),
            "relative error of the attributions; 0 is exact",
        ),
        ("Rows without reasons", found.undefined_rows, "left out of every mean above"),
        *_if_defined(
            (
                "Sampling error",
                number_entry(found.standard_error, 4),
                "of GCIG, due to sampled Shapley values",
            ),
            (
                "Clipped probabilities",
                Entry(percent(found.clipped, 1), found.clipped),
                "those closer than 0.001 to 0 or 1",
            ),
        ),
    ]
    return measures_table(rows, "GCIG and its uncertainty")


def _if_defined(*rows: tuple[str, Entry, str]) -> list[tuple[str, Entry, str]]:
    return [row for row in rows if math.isfinite(row[1].value)]


def _columns_counted(record: AuditRecord) -> str:
    """Describe the columns that GCIG is computed on; values on different columns are not comparable."""
    if record.subject.definition.get("columns") in ("raw", "encoded"):
        return "each category counts as a column of its own"
    return "each column of the table counts once"


def _parts(record: AuditRecord) -> list[Block]:
    found = record.procedural
    parts: list[Block] = []
    if found.labels:
        labels = [
            (part.label, rows_entry(part.n_rows, record.min_cell), part.gcig.value) for part in found.labels
        ]
        parts.append(Table(("outcome", "rows", "GCIG"), labels, "By true outcome"))
    if len(found.pairs) > 1:
        pairs = [(pair.first, pair.second, pair.gcig.value) for pair in found.pairs]
        parts.append(Table(("group", "compared with", "GCIG"), pairs, "By pair of groups"))
    return parts


def columns_section(record: AuditRecord) -> Section:
    """Return the contribution of each column to the disparity, and its direction."""
    columns = columns_by_share(record)
    heading = "Columns: where do the reasons differ?"
    if not columns:
        return Section(heading, [Callout("note", "There are no columns to rank.")])
    groups = list(dict.fromkeys(group for column in columns for group in column.profile))
    rows: list[tuple[Value, ...]] = [
        (
            column.column,
            Entry(percent(column.share, 1), column.share),
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
        "most favourable under",
        "difference",
        *(f"under {group}" for group in groups),
    )
    bars = charts.estimates(
        [column.column for column in columns[:_CHART_COLUMNS]],
        [column.contribution for column in columns[:_CHART_COLUMNS]],
        title="Contribution of each column to GCIG",
        label="contribution to GCIG",
    )
    return Section(
        heading,
        [
            *caution(
                "These columns determine the group, so a model can use them in its place: "
                f"{', '.join(record.proxy_columns)}."
                if record.proxy_columns
                else ""
            ),
            FigureBlock(
                bars,
                "The contribution of each column to GCIG, with 95 % intervals; the largest shares first. "
                f"{_OF_ROWS}",
            ),
            Table(header, rows, "Every column"),
            *explanations("How are columns ranked?"),
        ],
    )


def stability_section(record: AuditRecord) -> Section:
    """Return GCIG with one choice of the definition changed at a time."""
    checks = record.procedural.stability
    heading = "Stability: would another choice change the result?"
    if not checks:
        return Section(heading, [Callout("note", "No other choices were tried.")])
    rows = [(check.aspect, check.setting, check.gcig, "yes" if check.used else "") for check in checks]
    return Section(
        heading,
        [
            _STABILITY,
            Table(("choice", "setting", "GCIG", "used"), rows, "GCIG under other choices"),
        ],
    )
