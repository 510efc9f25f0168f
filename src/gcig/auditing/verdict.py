"""The verdict of an audit: statuses derived from the figures, and the sentences that explain them."""

import math

from gcig._tables import listed
from gcig.records import Robustness
from gcig.records.audit import MATERIAL, AuditRecord, GcigAudit, OutcomeAudit, Verdict
from gcig.records.base import Interval
from gcig.records.evaluation import describe_degeneracy
from gcig.records.formatting import counted, describe_suppression, estimate, number, percent
from gcig.records.trust import TRUST_NUMBERS

FOUR_FIFTHS = 0.8  # the four-fifths rule: the smallest selection rate is at least 4/5 of the largest
MATERIAL_GAP = 0.1  # a gap of error rates beyond chance that counts as material
_MANY_CLIPPED = 0.05  # share of clipped probabilities that warrants a caution
_SEVERITY = ("clear", "inconclusive", "concern")


def write_verdict(record: AuditRecord) -> Verdict:
    """Decide the status of an audit and describe its findings and cautions.

    The status is the more serious of two: whether reasons depend on the group, and whether decisions do.
    """
    members, decisions = members_status(record.procedural), outcome_status(record.outcome)
    reasons = reasons_status(record.procedural, record.robustness)
    return Verdict(
        status=max(reasons, decisions, key=_SEVERITY.index),
        headline=_headline(reasons, decisions, found=record.procedural),
        findings=(*_reason_findings(record), *_outcome_findings(record)),
        cautions=(*_data_cautions(record), *_explanation_cautions(record)),
        reasons=reasons,
        decisions=decisions,
        members=members,
    )


def reasons_status(found: GcigAudit, robustness: Robustness | None = None) -> str:
    """Decide whether the model's reasons depend on the group.

    The status is "clear" only if it is so relative to both means and members and, if ``robustness`` was
    measured, relative to the other references.
    """
    if found.evidence == "disparity" and found.excess.value >= MATERIAL:
        return "concern"
    if found.evidence == "not enough":
        return "inconclusive"
    if members_status(found) == "concern":
        return "concern"
    small = found.excess.high < MATERIAL and not found.gcig_members.value >= MATERIAL
    return "clear" if small and (robustness is None or robustness.agrees) else "inconclusive"


def members_status(found: GcigAudit) -> str:
    """Decide whether the model's reasons depend on the group, relative to members instead of means.

    Sampling noise has already been removed from this estimate, so no noise floor is subtracted.
    """
    if found.gcig_members.low >= MATERIAL:
        return "concern"
    return "clear" if found.gcig_members.high < MATERIAL else "inconclusive"


def outcome_status(found: OutcomeAudit) -> str:
    """Decide whether decisions differ between the groups beyond chance.

    The status is "clear" only if the intervals exclude what would be a concern: a ratio below four fifths,
    and a gap of error rates that exceeds the noise floor by a material amount.
    """
    ratio, gap = found.selection_rate_ratio, found.eo_gap
    beyond = gap.value - found.eo_noise_floor
    if found.collapsed or found.decides_alike or math.isnan(gap.value) or math.isnan(ratio.value):
        return "inconclusive"
    if ratio.high < FOUR_FIFTHS or (beyond >= MATERIAL_GAP and gap.low > found.eo_noise_floor):
        return "concern"
    excluded = ratio.low >= FOUR_FIFTHS and gap.high - found.eo_noise_floor < MATERIAL_GAP
    return "clear" if excluded else "inconclusive"


_REASONS = {
    "concern": "The model's reasons depend on the group that a person is compared with",
    "clear": "No material dependence of the model's reasons on the group was found",
    "inconclusive": "There is not enough evidence to say whether the model's reasons depend on the group",
}
_DECISIONS = {
    "concern": "its decisions differ between the groups",
    "clear": "its decisions do not differ materially between the groups",
    "inconclusive": "whether its decisions differ between the groups is uncertain",
}
_UNCERTAIN = {  # evidence of an inconclusive status -> what is uncertain
    "disparity": "The model's reasons depend on the group, but whether by a material amount is uncertain",
    "none": "Whether the model's reasons depend on the group is uncertain: the answer varies with the "
    "reference",
}
_ONLY_MEMBERS = (
    "The model's reasons depend on the group relative to its members, but there is not enough evidence "
    "relative to its mean"
)


def _headline(reasons: str, decisions: str, found: GcigAudit) -> str:
    """Combine the two statuses into one sentence that is consistent with the findings."""
    joint = ", and " if reasons == decisions else ", but " if "clear" in (reasons, decisions) else "; "
    words = _REASONS[reasons]
    if reasons == "inconclusive" and found.evidence in _UNCERTAIN:
        words, joint = _UNCERTAIN[found.evidence], "; "
    elif reasons == "inconclusive" and members_status(found) == "concern":
        words, joint = _ONLY_MEMBERS, "; "
    return f"{words}{joint}{_DECISIONS[decisions]}."


def _reason_findings(record: AuditRecord) -> list[str]:
    found = record.procedural
    if math.isnan(found.gcig.value):
        return [_why_undefined(record)]
    measured = (
        f"The reasons for a person's score change by {estimate(found.gcig)} on average (GCIG) between "
        "comparing the person with the typical member of one group and with that of another."
    )
    if math.isnan(found.p_value):
        return [
            f"{measured} The effect of chance alone could not be measured on these rows: not enough evidence."
        ]
    if found.comparable is not None:
        measured += (
            f" It is {number(found.comparable)} if the typical members are estimated on the audited rows "
            "instead of the training rows, as they are for the comparison with chance."
        )
    beyond = ""
    if found.excess.value > 0 and found.evidence == "disparity":
        beyond = f", so {number(found.excess.value)} is more than chance explains"
    chance = f"If group labels are shuffled, it is {number(found.noise_floor.value)} by chance alone{beyond}."
    lines = [f"{measured} {chance}", _evidence(found)]
    if found.columns and found.evidence == "disparity":
        first = found.columns[0]
        lines.append(
            f"The column that contributes most to the difference is {first.column!r} "
            f"({percent(first.share)}): it speaks more for the favourable outcome, "
            f"{record.subject.favourable!r}, if a person is compared with group {first.towards!r}."
        )
    lines += _reference_findings(record)
    if len(found.pairs) > 1:
        worst = max(found.pairs, key=lambda pair: (not math.isnan(pair.gcig.value), pair.gcig.value))
        lines.append(
            f"The groups whose reasons differ most are {worst.first!r} and {worst.second!r}: "
            f"{number(worst.gcig.value)}."
        )
    return lines


def _reference_findings(record: AuditRecord) -> list[str]:
    """Describe whether the finding holds relative to members and, if measured, to other references."""
    found, lines = record.procedural, []
    if not math.isnan(found.gcig_members.value):
        line = (
            "Compared with the members of the groups one by one instead of their mean, reasons change by "
            f"{estimate(found.gcig_members)}."
        )
        small = found.evidence != "not enough" and found.excess.high < MATERIAL
        if small and found.gcig_members.value >= MATERIAL:
            line += " The small value relative to means does not hold relative to the people behind them."
        if found.comparable is not None:
            line += (
                " The members are drawn from the audited rows: of the training rows, the model keeps only "
                "the means."
            )
        lines.append(line)
    if record.robustness is not None:
        lines.append(record.robustness.verdict)
    return lines


def _why_undefined(record: AuditRecord) -> str:
    if len(record.procedural.compared_groups) < 2:
        return (
            f"GCIG is undefined on these rows: fewer than two groups have {record.min_cell} rows of each "
            "label, so there are no typical members to compare. Audit more rows, merge groups, or pass the "
            "training rows as the reference."
        )
    return "GCIG is undefined on these rows: the model gives no reasons that could be compared."


def _evidence(found: GcigAudit) -> str:
    p = f"{found.p_value:.3f}".rstrip("0")
    reached = f"Shuffled groups reach a value as large with probability {p}"
    if found.evidence == "disparity":
        material = found.excess.value >= MATERIAL
        small = "" if material else f", although the part beyond chance is estimated at less than {MATERIAL}"
        return f"{reached}: chance alone is an unlikely explanation{small}."
    if found.evidence == "none":
        return (
            f"{reached}, and a difference of {MATERIAL} or more would have been detected: there is no "
            "evidence that reasons depend on the group."
        )
    return (
        f"{reached}, and a difference of {MATERIAL} or more cannot be ruled out with so few rows: not enough "
        "evidence."
    )


def _outcome_findings(record: AuditRecord) -> list[str]:
    lines, found = [], record.outcome
    rates = {g.group: g.favourable_rate.value for g in record.groups}
    rates = {group: rate for group, rate in rates.items() if not math.isnan(rate)}
    if len(rates) > 1 and not math.isnan(found.selection_rate_ratio.value):
        low, high = min(rates, key=rates.__getitem__), max(rates, key=rates.__getitem__)
        lines.append(
            f"Group {low!r} gets the favourable decision, {record.subject.favourable!r}, in "
            f"{percent(rates[low], 1)} of cases, group {high!r} "
            f"in {percent(rates[high], 1)}: a ratio of {estimate(found.selection_rate_ratio)}, which "
            f"{_compare_with_four_fifths(found.selection_rate_ratio)}."
        )
    if not math.isnan(found.eo_gap.value):
        lines.append(
            f"Error rates differ between the groups by {estimate(found.eo_gap)} in total (equalized odds "
            f"gap); an exactly fair model would show {number(found.eo_noise_floor)} on this many rows."
        )
    lines.append(
        f"The model ranks a positive case above a negative one with probability (AUC) {estimate(found.auc)}, "
        f"and its decision agrees with the label in {percent(found.accuracy.value, 1)} of cases."
    )
    return lines


def _compare_with_four_fifths(ratio: Interval) -> str:
    if ratio.value < FOUR_FIFTHS:
        unsure = " in this sample; the interval includes values above" if ratio.high >= FOUR_FIFTHS else ""
        return f"is below four fifths{unsure}"
    if ratio.low < FOUR_FIFTHS:
        return "meets four fifths in this sample; the interval includes values below"
    return "meets four fifths"


def _data_cautions(record: AuditRecord) -> list[str]:
    """Return the cautions about the rows: suppression and proxies of the group."""
    lines = []
    if note := describe_degeneracy(record.outcome.collapsed, record.outcome.decides_alike):
        lines.append(note)
    small = [g.group for g in record.groups if g.n_rows is None]
    if small:
        lines.append(
            f"Groups with fewer than {record.min_cell} rows are suppressed and left out of the row count: "
            f"{listed(small)}."
        )
    if note := describe_suppression(record.suppressed_cells, record.min_cell):
        lines.append(note)
    if record.proxy_columns:
        lines.append(
            f"The model can read the protected attribute ({' & '.join(record.subject.sensitive)}) from "
            f"column {listed(record.proxy_columns)} of the table."
        )
    return lines


def _explanation_cautions(record: AuditRecord) -> list[str]:
    lines, found = [], record.procedural
    if found.sampled_rows is not None:
        lines.append(f"Reasons were computed for a random sample of {counted(found.sampled_rows, 'row')}.")
    if left := [g.group for g in record.groups if g.group not in found.compared_groups]:
        lines.append(f"Too few reference rows of a label to compare the reasons of: {listed(left)}.")
    alarms = (item.describe_alarm(found.trust_values[item.field]) for item in TRUST_NUMBERS)
    lines += filter(None, alarms)
    if found.undefined_rows:
        lines.append(f"Left out of GCIG, without reasons to compare: {counted(found.undefined_rows, 'row')}.")
    if found.clipped > _MANY_CLIPPED:
        lines.append(
            f"{percent(found.clipped)} of the model's probabilities are within 0.001 of 0 or 1 and were "
            "clipped before taking logits, which understates the reasons for very confident predictions."
        )
    if not math.isnan(found.standard_error) and found.standard_error > 0.1 * found.gcig.value:
        lines.append(
            f"Sampling the reasons adds a standard error of {number(found.standard_error, 4)} to GCIG."
        )
    if record.subject.explanation == "Shapley values":
        lines.append("Reasons are Shapley values of the logit on the original columns.")
    lines.append("GCIG can be compared between models on the same columns, but not between different tables.")
    return lines
