"""The first screen of a page: who is worse off, by which standard, by the attribute itself, and how certain.

Each function returns one `Answer`, from records alone; an answer has one number per idea, in people.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from gcig.records import Evaluation, Interval
from gcig.records.audit import Subject
from gcig.records.evaluation import GroupRates
from gcig.records.formatting import count, counted, number
from gcig.records.limits import CheckResult
from gcig.report.displays import Estimate, EstimatesDisplay, PeopleDisplay
from gcig.report.document import Answer, Callout, Details, FigureBlock, Gate, Tone
from gcig.report.summaries import rate_rows

NO_LEGAL_FINDING = (
    "What this page says is a statement about this model on these rows, measured as the definition says. It "
    "is no legal finding."
)
SPREAD = "in units of the spread of the score"
_SURE = 0.975  # of a two-sided 95 % limit
_SMALL = 5  # of 100 people: if chance reaches more, rows are too few to say that groups are treated alike
_NOTABLE = 0.01  # share of decisions: less is hardly an effect
_LISTED = 3  # columns named or drawn per part


@dataclass(frozen=True)
class Setting:
    """What a model predicts, which outcomes are favourable, and the groups in the order of their marks."""

    task: str
    classes: tuple[str, ...] = ()
    favourable: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @classmethod
    def of(cls, subject: Subject, found: Evaluation) -> "Setting":
        """Return the setting of an audit."""
        groups = tuple(group.group for group in found.groups)
        return cls(subject.task, subject.classes, subject.favourable, subject.sensitive, groups)

    @property
    def attribute(self) -> str:
        """The protected attribute in words."""
        return " and ".join(self.sensitive) or "the protected attribute"


@dataclass(frozen=True)
class _Shares:
    """A share of the people of each group that is bad (or good) for them."""

    who: str
    what: str
    bad: bool
    values: Mapping[str, Interval]
    rows: Mapping[str, float]

    @property
    def ends(self) -> tuple[str, str]:
        """The groups that are worst and best off."""
        order = sorted(self.values, key=lambda group: self.values[group].value, reverse=self.bad)
        return order[0], order[-1]

    def chance(self) -> float:
        """Return the difference that groups treated alike reach in 95 % of samples of this size."""
        first, second = self.ends
        n = sum(self.rows.values())
        pooled = sum(self.values[g].value * self.rows[g] for g in self.values) / n
        error = math.sqrt(pooled * (1 - pooled) * (1 / self.rows[first] + 1 / self.rows[second]))
        return _quantile(len(self.values)) * error


def _quantile(n_groups: int) -> float:
    """Return the normal quantile for the largest difference of several groups (Bonferroni)."""
    return NormalDist().inv_cdf(1 - (1 - _SURE) / max(1, n_groups * (n_groups - 1) // 2))


def people(found: Evaluation, setting: Setting) -> Answer:
    """Say who is worse off, and by how much, in people of a hundred."""
    question = "Are people treated equally well?"
    if setting.task == "number":
        return _people_of_numbers(found, setting, question)
    shares = _shares(found, setting)
    if shares is None or len(shares.values) < 2:
        text = "Fewer than two groups have enough rows with a decision to compare."
        return Answer(question, text, "Not known.", "unsure")
    worst, best = shares.ends
    of = {group: round(100 * shares.values[group].value) for group in shares.values}
    difference = abs(shares.values[worst].value - shares.values[best].value)
    chance = shares.chance()
    text = (
        f"Of 100 people in {_quoted(worst)}{shares.who}, {of[worst]} are {shares.what}; of 100 in "
        f"{_quoted(best)}, {of[best]}."
    )
    around = " and ".join(_percents(shares.values[group]) for group in (worst, best))
    notes = [
        f"95 % intervals: {around}. On this many people, groups that are treated alike differ by up to "
        f"{round(100 * chance)} in 100."
    ]
    if len(setting.groups) > 2:
        notes.append("The worst and the best off of all groups; the others are in the table of groups.")
    shown = {group: of[group] for group in (worst, best)}
    places = [setting.groups.index(group) for group in shown]
    picture = PeopleDisplay(shown, shares.what, places)
    word, tone = _judged(difference > chance, 100 * chance > _SMALL)
    return Answer(question, text, word, tone, notes, FigureBlock(picture.svg("People of a hundred")))


def _judged(beyond: bool, few: bool) -> tuple[str, Tone]:
    if beyond:
        return "No.", "bad"
    return ("Not certain.", "unsure") if few else ("Yes, as far as these rows show.", "good")


def _shares(found: Evaluation, setting: Setting) -> _Shares | None:
    """Return the share of each group that says who is worse off: of people who deserve better, if known."""
    good = setting.favourable[0] if setting.favourable else ""
    if setting.task == "binary":
        negative, positive = setting.classes if len(setting.classes) == 2 else ("0", "1")
        refused = positive if good == negative else negative
        who = f" whose outcome is {_quoted(good or positive)}"
        if good == negative:
            return _share(found, "fpr", who, f"decided {_quoted(refused)}")
        if found.labelled:
            return _share(found, "tpr", who, f"decided {_quoted(refused)}", invert=True)
        return _share(found, "selection_rate", "", f"decided {_quoted(good or positive)}", bad=False)
    if setting.favourable:
        return _share(found, "favourable_rate", "", "decided favourably", bad=False)
    return _share(found, "accuracy", "", "given a wrong class", invert=True)


def _share(
    found: Evaluation, name: str, who: str, what: str, *, invert: bool = False, bad: bool = True
) -> _Shares | None:
    values: dict[str, Interval] = {}
    rows: dict[str, float] = {}
    for group in found.groups:
        rate, n = group.values.get(name, math.nan), rate_rows(group, name)
        if group.n_rows is None or math.isnan(rate) or n < max(1, found.min_cell):
            continue
        values[group.group] = Interval.of_rate(1 - rate if invert else rate, n)
        rows[group.group] = n
    return _Shares(who, what, bad, values, rows) if values else None


def _people_of_numbers(found: Evaluation, setting: Setting, question: str) -> Answer:
    """Say whose predictions are too low or too high on average."""
    errors = {each.group: _mean_error(each) for each in found.groups if each.n_rows}
    errors = {group: each for group, each in errors.items() if not math.isnan(each.value)}
    if len(errors) < 2:
        return Answer(question, "Fewer than two groups have enough rows to compare.", "Not known.", "unsure")
    order = sorted(errors, key=lambda group: errors[group].value, reverse="low" in setting.favourable)
    worst, best = order[0], order[-1]
    difference = abs(errors[worst].value - errors[best].value)
    chance = _quantile(len(errors)) * math.hypot(errors[worst].standard_error, errors[best].standard_error)
    text = f"Predictions for {_quoted(worst)} are {_side(errors[worst].value)} on average; for "
    text += f"{_quoted(best)}, {_side(errors[best].value)}."
    notes = [f"On this many people, groups that are treated alike differ by up to about {chance:,.3g}."]
    lines = [
        Estimate(group, errors[group], place=setting.groups.index(group))
        for group in setting.groups
        if group in errors
    ]
    picture = EstimatesDisplay(lines[:12], "mean prediction minus mean outcome").svg("Predicted minus true")
    word, tone = _judged(difference > chance, False)
    return Answer(question, text, word, tone, notes, FigureBlock(picture))


def _mean_error(group: GroupRates) -> Interval:
    """Return the mean error of a group, with an interval from its mean absolute error."""
    value = group.values.get("calibration", math.nan)
    reach = 1.96 * 1.25 * group.values.get("mae", math.nan) / math.sqrt(group.n_rows or 1)
    return Interval(value, value - reach, value + reach)


def _side(error: float) -> str:
    if abs(error) < 1e-9:
        return "right"
    return f"{abs(error):,.3g} too {'low' if error < 0 else 'high'}"


_VERDICTS: dict[str, tuple[str, Tone]] = {
    "different_standards": ("No.", "bad"),
    "group_differences": ("No different weights were found.", "unsure"),
    "no_dependence": ("Yes, as far as this audit can see.", "good"),
    "uncertain": ("Not certain.", "unsure"),
    "undefined": ("Not known.", "unsure"),
}


def standards(found: Evaluation, verdict: Any, setting: Setting) -> Answer:
    """Say whether columns weigh differently for the groups: the verdict, in words and one picture."""
    question = "Is everybody judged by the same standard?"
    suffix = "" if "reason_gap" in found else "_decisions"
    lines = _part_lines(found, suffix)
    figure = FigureBlock(
        EstimatesDisplay(lines, SPREAD).svg("How far reasons depend on the group, and by which columns")
    )
    if verdict is None:
        text = "The figures below say how far the reasons depend on the group."
        return Answer(question, text, figure=figure)
    word, tone = _VERDICTS[verdict.code]
    largest = list(verdict.columns)[:_LISTED]
    text = verdict.sentence
    notes = []
    if verdict.code == "different_standards":
        text = {
            "attribute_shift": f"Scores move if nothing but {setting.attribute} changes.",
            "reason_gap": f"Reasons depend on the group through {_listed(largest)}, which were not declared "
            "legitimate.",
        }.get(
            verdict.cause,
            f"{_listed(largest)} {'weighs' if len(largest) == 1 else 'weigh'} differently "
            "for people who are alike in everything else that counts.",
        )
    elif verdict.code == "group_differences":
        text = f"The groups differ in columns that count: {_listed(largest)}."
    elif verdict.code == "no_dependence":
        text = f"Reasons depend on the group by less than {number(verdict.material, 2)}, what matters here."
    elif verdict.code == "uncertain" and not verdict.cause:
        text = "These rows do not show whether columns weigh differently for the groups."
    if text != verdict.sentence:
        notes.append(verdict.sentence)
    if math.isfinite(unit := decisions_per_unit(found)):
        notes.append(
            f"A score that moves by {number(verdict.standards, 1)} of its spread changes about "
            f"{counted(max(1, round(100 * verdict.standards * unit)), 'decision')} of 100."
        )
    return Answer(question, text, word, tone, notes, figure)


def _part_lines(found: Evaluation, suffix: str) -> list[Estimate]:
    """Return the two parts of the reason gap, each followed by its largest columns."""
    lines = []
    for part, words in (("varying", "weigh differently"), ("common", "groups differ")):
        name = f"reason_gap_{part}{suffix}"
        if name not in found:
            continue
        figure = found.figure(name)
        lines.append(Estimate(words, figure.interval, figure.chance))
        columns = found.columns.get(f"{name}_columns", {})
        largest = sorted(columns, key=lambda column: -abs(columns[column]))[:_LISTED]
        lines += [Estimate(column, Interval(columns[column]), part=True) for column in largest]
    return lines


def decisions_per_unit(found: Evaluation) -> float:
    """Return the share of decisions that a small shift of the score changes, per unit of its spread.

    Scores are taken as normal; NaN for other tasks than two classes.
    """
    rate = found.values().get("selection_rate", math.nan)
    if found.task != "binary" or not 0 < rate < 1:
        return math.nan
    return NormalDist().pdf(NormalDist().inv_cdf(rate))


def attribute(found: Evaluation, setting: Setting, check: CheckResult | None = None) -> Answer:
    """Say whether the protected attribute itself decides."""
    question = f"Does the model decide by {setting.attribute} itself?"
    effect = found.figure("attribute_effect") if "attribute_effect" in found else None
    if effect is None or math.isnan(effect.value):
        reason = effect.undefined if effect is not None else ""
        if "not among" in reason or not reason:
            text = f"{_first_upper(setting.attribute)} is not among the columns whose weight was measured."
            note = (
                "Other columns may stand in for it: the question above covers them. A rule on top of the "
                "score, such as thresholds per group, is not covered."
            )
            return Answer(question, text, "Not by a column of its own.", "good", [note])
        return Answer(question, reason, "Not known.", "unsure")
    share = effect.value
    if found.task == "number":
        text = f"Changing nothing but {setting.attribute} moves predictions by {number(share, 2)} standard "
        text += "deviations."
        scale, label = 1.0, "standard deviations of the label"
    else:
        text = f"Changing nothing but {setting.attribute} changes {_of_hundred(share)} of 100 decisions."
        scale, label = 100.0, "decisions of 100"
    low = share if math.isnan(effect.low) else effect.low
    tone: Tone = "bad" if low > _NOTABLE else "good"
    word = "Yes." if tone == "bad" else "Hardly."
    limit = math.nan if check is None else check.limit("attribute_effect") or math.nan
    interval = Interval(*(scale * each for each in (share, effect.low, effect.high)))
    picture = EstimatesDisplay(
        [Estimate("change", interval)],
        label,
        limit=scale * limit,
        range=(0, max(10.0, 1.15 * scale * share)) if scale > 1 else None,
    )
    return Answer(question, text, word, tone, figure=FigureBlock(picture.svg("Effect of the attribute")))


def certainty(found: Evaluation, verdict: Any, rows: str = "rows that the model was judged on") -> Answer:
    """Say how many rows this rests on, what they would have revealed, and what to be careful about."""
    text = f"It rests on {count(found.n_rows)} {rows}."
    detectable = getattr(verdict, "detectable", math.nan)
    if math.isfinite(detectable):
        text += f" They would have revealed a reason gap of {number(detectable, 2)} in four of five cases."
    flags = [flag.replace("_", " ") for flag in getattr(verdict, "red_flags", ())]
    notes = [f"Be careful: {', '.join(flags)}."] if flags else []
    more = [Details("Before you rely on this", [Callout("caution", each) for each in found.notes])]
    return Answer("How certain is this?", text, "", "", notes, more=more if found.notes else ())


def gate(check: CheckResult | None) -> Gate | None:
    """Return whether the limits are met, for the top of a page."""
    if check is None:
        return None
    n = len(check.checks)
    exceeded = sum(each.exceeded for each in check.checks)
    if check.failed:
        words = f"{exceeded} of {counted(n, 'limit')} exceeded" if exceeded else "the model collapsed"
        return Gate(f"failed: {words}", "bad")
    if not check.passed:
        return Gate("inconclusive: a limit cannot be judged", "unsure")
    return Gate(f"passed: {counted(n, 'limit')} met", "good")


def limits_answer(check: CheckResult | None) -> list[Answer]:
    """Return which limits are met; nothing without limits."""
    if check is None:
        return []
    known = gate(check)
    lines = [f"{_first_upper(line)}." for line in check.reasons]
    word = {"bad": "No.", "good": "Yes.", "unsure": "Inconclusive."}[known.tone if known else ""]
    return [Answer("Did it pass the gate?", lines[0], word, known.tone if known else "", lines[1:])]


def _percents(interval: Interval) -> str:
    return f"{round(100 * interval.low)} to {round(100 * interval.high)}"


def _of_hundred(share: float) -> str:
    value = 100 * share
    return f"{value:.0f}" if value >= 1 or value == 0 else f"{value:.1f}"


def _quoted(name: str) -> str:
    return f"\u201c{name}\u201d"


def _listed(names: Sequence[str]) -> str:
    quoted = [_quoted(name) for name in names]
    if not quoted:
        return "some columns"
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def _first_upper(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
