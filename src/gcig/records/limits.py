"""The comparison of figures with limits: the result of a gate, as text and as a flag."""

import math
from dataclasses import dataclass

from gcig.records.formatting import number


@dataclass(frozen=True)
class LimitCheck:
    """One figure ("gcig" or "eo_gap") compared with the largest value that passes."""

    figure: str
    value: float  # NaN if the figure is undefined
    limit: float
    upper: bool = False  # whether the value is the upper limit of the 95 % interval
    by_chance: float = math.nan  # what a model without any disparity shows on these rows, if known

    @property
    def exceeded(self) -> bool:
        """True if the value is above the limit."""
        return self.value > self.limit

    def __str__(self) -> str:
        name = {"gcig": "GCIG", "eo_gap": "equalized odds gap"}[self.figure]
        if math.isnan(self.value):
            return f"{name} is not defined on these rows"
        what = ""
        if self.upper:
            again = " with references estimated again" if self.figure == "gcig" else ""
            what = f"(upper limit of its interval{again}) "
        relation = "above" if self.exceeded else "at most"
        result = f"{name} {what}{number(self.value, 4)} is {relation} {self.limit:g}"
        if self.exceeded and self.by_chance >= self.limit:
            chance = number(self.by_chance, 4)
            result += f" (as is the {chance} that chance alone gives on these rows: use more rows)"
        return result


@dataclass(frozen=True)
class CheckResult:
    """The comparison of an audit with limits.

    Attributes
    ----------
    checks : tuple of LimitCheck
        The figures that have limits.
    collapsed : bool
        Whether the model no longer ranks; it then fails.
    decides_alike : bool
        Whether the model decides everyone alike; a limit on the equalized odds gap is then inconclusive.

    Examples
    --------
    >>> result = CheckResult((LimitCheck("gcig", 0.07, 0.05),))
    >>> print(result)
    failed: GCIG 0.0700 is above 0.05
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
        return not math.isnan(check.value) and not (self.decides_alike and check.figure == "eo_gap")

    @property
    def reasons(self) -> tuple[str, ...]:
        """One line for each figure that has a limit, and one for a model that does not rank or decide."""
        lines = [str(check) for check in self.checks]
        if self.collapsed:
            lines.append("the model collapsed: it ranks rows hardly better than chance")
        elif self.decides_alike and any(check.figure == "eo_gap" for check in self.checks):
            lines.append("everyone gets the same decision at this threshold, so the gap says nothing")
        return tuple(lines)

    @property
    def problems(self) -> tuple[str, ...]:
        """The reasons without those of limits that are met."""
        met = {str(check) for check in self.checks if check.value <= check.limit}
        return tuple(reason for reason in self.reasons if reason not in met)

    def limit(self, figure: str) -> float | None:
        """Return the limit of a figure; None if it has none."""
        return next((check.limit for check in self.checks if check.figure == figure), None)

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        word = "failed" if self.failed else "passed" if self.passed else "inconclusive"
        return f"{word}: {'; '.join(self.reasons)}"
