"""The comparison of figures with limits: the result of a gate, as text and as a flag."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gcig.records.evaluation import Evaluation
from gcig.records.formatting import number


@dataclass(frozen=True)
class LimitCheck:
    """One figure compared with the largest, or the smallest, value that passes."""

    figure: str
    value: float  # NaN if the figure is undefined
    limit: float
    smallest: bool = False  # whether the limit is the smallest value that passes
    conservative: bool = False  # whether the value is the limit of the 95 % interval on the bad side
    by_chance: float = math.nan  # what a model without any disparity shows on these rows, if known
    title: str = ""
    is_rate: bool = False  # whether it is 0 if everyone is decided alike

    @property
    def exceeded(self) -> bool:
        """True if the value is on the wrong side of the limit."""
        return self.value < self.limit if self.smallest else self.value > self.limit

    @property
    def met(self) -> bool:
        """True if the value is on the right side of the limit."""
        return not math.isnan(self.value) and not self.exceeded

    def __str__(self) -> str:
        name = self.title or self.figure
        if math.isnan(self.value):
            return f"{name} is not defined on these rows"
        end = "lower" if self.smallest else "upper"
        what = f"({end} limit of its interval) " if self.conservative else ""
        words = ("below", "at least") if self.smallest else ("above", "at most")
        result = f"{name} {what}{number(self.value, 4)} is {words[not self.exceeded]} {self.limit:g}"
        if self.exceeded and not self.smallest and self.by_chance >= self.limit:
            chance = number(self.by_chance, 4)
            result += f" (as is the {chance} that chance alone gives on these rows: use more rows)"
        return result


@dataclass(frozen=True)
class CheckResult:
    """The comparison of an evaluation with limits.

    Attributes
    ----------
    checks : tuple of LimitCheck
        The figures that have limits.
    collapsed : bool
        Whether the model knows next to nothing; it then fails.
    decides_alike : bool
        Whether the model decides everyone alike; a limit on outcomes is then inconclusive.

    Examples
    --------
    >>> result = CheckResult((LimitCheck("reason_gap", 0.07, 0.05, title="Reason gap"),))
    >>> print(result)
    failed: Reason gap 0.0700 is above 0.05
    >>> bool(result)
    False
    """

    checks: tuple[LimitCheck, ...]
    collapsed: bool = False
    decides_alike: bool = False

    @property
    def passed(self) -> bool:
        """True if the model ranks, no limit is exceeded and every figure that has a limit is conclusive."""
        return not self.failed and all(map(self._is_conclusive, self.checks))

    @property
    def failed(self) -> bool:
        """True if the model collapsed or a limit is exceeded."""
        return self.collapsed or any(check.exceeded for check in self.checks)

    @property
    def inconclusive(self) -> bool:
        """True if nothing fails, but a limited figure is undefined, or 0 because all decisions are equal."""
        return not self.passed and not self.failed

    def _is_conclusive(self, check: LimitCheck) -> bool:
        return not math.isnan(check.value) and not (self.decides_alike and check.is_rate)

    @property
    def reasons(self) -> tuple[str, ...]:
        """One line for each figure that has a limit, and one for a model that does not rank or decide."""
        lines = [str(check) for check in self.checks]
        if self.collapsed:
            lines.append("the model collapsed: it knows hardly more than chance")
        elif self.decides_alike and any(check.is_rate for check in self.checks):
            lines.append(
                "everyone gets the same decision at this threshold, so gaps of decisions say nothing"
            )
        return tuple(lines)

    @property
    def problems(self) -> tuple[str, ...]:
        """The reasons without those of limits that are met."""
        met = {str(check) for check in self.checks if check.met}
        return tuple(reason for reason in self.reasons if reason not in met)

    def limit(self, figure: str) -> float | None:
        """Return the limit of a figure; None if it has none."""
        return next((check.limit for check in self.checks if check.figure == figure), None)

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        word = "failed" if self.failed else "passed" if self.passed else "inconclusive"
        return f"{word}: {'; '.join(self.reasons)}"


def check_evaluation(
    evaluation: Evaluation, limits: Mapping[str, float | None], *, conservative: bool = False
) -> CheckResult:
    """Compare figures with limits, ``max_<figure>`` or ``min_<figure>``; limits of None do not count."""
    from gcig._arguments import InputError  # pages read records without pandas

    checks, known = [], {each.name: each for each in evaluation.figures}
    for name, limit in limits.items():
        kind, _, figure = name.partition("_")
        if kind not in ("max", "min") or not figure:
            raise InputError("is no limit: limits are max_<measure> or min_<measure>.", argument=name)
        if limit is None:
            continue
        if isinstance(limit, bool) or not isinstance(limit, int | float) or math.isnan(limit):
            raise InputError(f"must be a number, not {limit!r}.", argument=name)
        if figure not in known:
            raise InputError(
                f"is about {figure!r}, which was not measured. Figures are {', '.join(known)}.", argument=name
            )
        found = known[figure]
        end = found.low if kind == "min" else found.high
        chance = found.chance
        for floor in (f"{figure}_chance", "eo_noise_floor" if figure in ("eo_gap", "outcome_gap") else ""):
            chance = known[floor].value if floor in known else chance
        checks.append(
            LimitCheck(
                figure,
                end if conservative else found.value,
                float(limit),
                kind == "min",
                conservative,
                chance,
                found.title,
                found.section == "outcomes",
            )
        )
    return CheckResult(tuple(checks), evaluation.collapsed, evaluation.decides_alike)
