"""The audit in words: what was found, how sure it is, and what to know before relying on it."""

import math
from collections.abc import Sequence

from gcig.auditing.procedural import MATERIAL, NOT_COMPARED
from gcig.records.audit import SMALLEST_CELL, GcigAudit, GroupAudit, Interval, OutcomeAudit, Subject, Verdict

__all__ = ["FOUR_FIFTHS", "MATERIAL_GAP", "outcome_status", "reasons_status", "write_verdict"]

FOUR_FIFTHS = 0.8  # of the rule that the smallest selection rate is at least 4/5 of the largest
MATERIAL_GAP = 0.1  # a gap of error rates beyond chance that is called material
FEW_COLUMNS = 2.0  # effective columns under which a small GCIG means little
MANY_CLIPPED = 0.05


def write_verdict(
    subject: Subject,
    outcome: OutcomeAudit,
    groups: Sequence[GroupAudit],
    procedural: GcigAudit,
    cautions: Sequence[str] = (),
) -> Verdict:
    """Status, headline, findings and cautions.

    The status is the more serious of the two questions: whether reasons depend on the group, and whether
    decisions do.
    """
    reasons, decisions = reasons_status(procedural), outcome_status(outcome)
    order = ("clear", "inconclusive", "concern")
    status = max(reasons, decisions, key=order.index)
    return Verdict(
        status=status,
        headline=_headline(reasons, decisions),
        findings=(
            *_reason_findings(procedural),
            *_outcome_findings(outcome, groups),
            *_utility_findings(outcome),
        ),
        cautions=(*_cautions(subject, outcome, groups, procedural), *cautions),
    )


def reasons_status(found: GcigAudit) -> str:
    """Whether the model's reasons depend on the group."""
    if found.evidence == "disparity" and found.excess.value >= MATERIAL:
        return "concern"
    if found.evidence != "not enough" and found.excess.high < MATERIAL:
        return "clear"
    return "inconclusive"


def outcome_status(found: OutcomeAudit) -> str:
    """Whether decisions differ between the groups beyond chance."""
    rates, gap = found.selection_rate_ratio, found.eo_gap
    beyond = gap.value - found.eo_noise_floor
    if found.collapsed or math.isnan(gap.value) or math.isnan(rates.value):
        return "inconclusive"
    if rates.high < FOUR_FIFTHS or (beyond >= MATERIAL_GAP and gap.low > found.eo_noise_floor):
        return "concern"
    if rates.value < FOUR_FIFTHS or beyond >= MATERIAL_GAP:
        return "inconclusive"
    return "clear"


_REASONS = {
    "concern": "The model's reasons depend on the group that a person is compared with",
    "clear": "No material dependence of the model's reasons on the group was found",
    "inconclusive": "There is not enough evidence to say whether the model's reasons depend on the group",
}
_DECISIONS = {
    "concern": "its decisions differ between the groups",
    "clear": "its decisions do not differ materially between the groups",
    "inconclusive": "whether its decisions differ between the groups is not certain",
}


def _headline(reasons: str, decisions: str) -> str:
    joint = ", and " if reasons == decisions else ", but " if "clear" in (reasons, decisions) else "; "
    return f"{_REASONS[reasons]}{joint}{_DECISIONS[decisions]}."


def _reason_findings(found: GcigAudit) -> list[str]:
    if found is NOT_COMPARED:
        return [
            f"GCIG is not defined on these rows: fewer than two groups have {SMALLEST_CELL} rows of each "
            "label, so that no typical members can be compared. Audit more rows, merge groups, or give the "
            "training rows as the reference."
        ]
    if math.isnan(found.gcig.value):
        return ["GCIG is not defined on these rows: the model gives no reasons that could be compared."]
    measured = (
        "The reasons for a person's score change by "
        f"{_range(found.gcig)} on average (GCIG) when the person is compared with the typical member of one "
        "group or of another."
    )
    if math.isnan(found.p_value):
        return [
            f"{measured} What chance alone gives could not be measured on these rows: not enough evidence."
        ]
    here = found.excess.value + found.noise_floor.value
    if abs(here - found.gcig.value) > 1e-9:  # the model brought its own baselines
        measured += f" With typical members of the audited rows, not of training, it is {here:.3f}."
    lines = [
        f"{measured} When group labels are shuffled it is {found.noise_floor.value:.3f} by chance alone"
        + (f", so {found.excess.value:.3f} is more than chance explains." if found.excess.value > 0 else "."),
        _evidence(found),
    ]
    if found.columns and found.evidence == "disparity":
        first = found.columns[0]
        lines.append(
            f"The column that drives the difference most is {first.column!r} ({first.share:.0%} of it): it "
            f"speaks more for the positive class when a person is compared with group {first.towards!r}."
        )
    if len(found.pairs) > 1:
        worst = max(found.pairs, key=lambda pair: (not math.isnan(pair.gcig.value), pair.gcig.value))
        lines.append(
            f"The groups whose reasons are furthest apart are {worst.first!r} and {worst.second!r}: "
            f"{_range(worst.gcig)}."
        )
    return lines


def _evidence(found: GcigAudit) -> str:
    p = f"{found.p_value:.3f}".rstrip("0")
    if found.evidence == "disparity":
        small = (
            "" if found.excess.value >= MATERIAL else f", though the difference is small (under {MATERIAL})"
        )
        return (
            f"Shuffled groups reach a value as large with probability {p}: chance alone is an unlikely "
            f"explanation{small}."
        )
    if found.evidence == "none":
        return (
            f"Shuffled groups reach a value as large with probability {p}, and a difference of {MATERIAL} or "
            "more would have been seen: there is no evidence that reasons depend on the group."
        )
    return (
        f"Shuffled groups reach a value as large with probability {p}, and a difference of {MATERIAL} or "
        "more cannot be ruled out with so few rows: not enough evidence."
    )


def _outcome_findings(found: OutcomeAudit, groups: Sequence[GroupAudit]) -> list[str]:
    lines = []
    rates = {g.group: g.selection_rate.value for g in groups if not math.isnan(g.selection_rate.value)}
    if len(rates) > 1 and not math.isnan(found.selection_rate_ratio.value):
        low, high = min(rates, key=rates.__getitem__), max(rates, key=rates.__getitem__)
        kept = "meets" if found.selection_rate_ratio.value >= FOUR_FIFTHS else "is below"
        lines.append(
            f"Group {low!r} gets the positive decision in {rates[low]:.1%} of cases, group {high!r} in "
            f"{rates[high]:.1%}: a ratio of {_range(found.selection_rate_ratio)}, which {kept} four fifths."
        )
    if not math.isnan(found.eo_gap.value):
        lines.append(
            f"Error rates differ between the groups by {_range(found.eo_gap)} in total (equalized odds gap); "
            f"an exactly fair model would show {found.eo_noise_floor:.3f} on so many rows."
        )
    return lines


def _utility_findings(found: OutcomeAudit) -> list[str]:
    return [
        f"The model ranks a positive case above a negative one with probability (AUC) {_range(found.auc)}, "
        f"and decides {found.accuracy.value:.1%} of the cases as their labels say."
    ]


def _cautions(
    subject: Subject, outcome: OutcomeAudit, groups: Sequence[GroupAudit], found: GcigAudit
) -> list[str]:
    lines = []
    if outcome.collapsed:
        lines.append(
            "The model decides nearly all cases alike or hardly ranks them: equal treatment is cheap then."
        )
    if found.effective_columns < FEW_COLUMNS:
        lines.append(
            f"The model lives on {found.effective_columns:.1f} columns. GCIG is small for a model of one "
            "column whatever it does, so a small value says little here."
        )
    if small := [g.group for g in groups if g.n_rows is None]:
        lines.append(
            f"Groups with fewer than {SMALLEST_CELL} rows are neither shown nor counted among the rows: "
            f"{', '.join(map(repr, small[:10]))}."
        )
    if found.undefined_rows:
        lines.append(
            f"{found.undefined_rows} rows have no reasons that could differ, and are left out of GCIG."
        )
    if found.clipped > MANY_CLIPPED:
        lines.append(
            f"{found.clipped:.0%} of the model's probabilities are nearer to 0 or 1 than 0.001 and were "
            "moved there before taking logits: reasons of very confident predictions are understated."
        )
    if not math.isnan(found.standard_error) and found.standard_error > 0.1 * found.gcig.value:
        lines.append(
            f"The reasons were sampled: GCIG has a standard error of {found.standard_error:.4f} from that."
        )
    if subject.explanation == "Shapley values":
        lines.append("Reasons are Shapley values of the logit on the original columns.")
    lines.append(
        "Values of GCIG are comparable between models on the same columns, not between tables with others."
    )
    return lines


def _range(value: Interval) -> str:
    if math.isnan(value.low):
        return f"{value.value:.3f}"
    return f"{value.value:.3f} [{value.low:.3f} to {value.high:.3f}]"
