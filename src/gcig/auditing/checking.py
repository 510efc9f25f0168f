"""A gate: whether the figures of an audit stay under given limits."""

import math
from dataclasses import dataclass

from gcig._validation import InputError
from gcig.records.audit import AuditRecord, Interval

__all__ = ["CheckResult", "check_limits"]


@dataclass(frozen=True)
class CheckResult:
    """Whether an audit passed.

    Attributes
    ----------
    passed : no limit is exceeded, and every figure that has a limit is defined.
    reasons : a line for each figure that has a limit.
    inconclusive : no limit is exceeded, but a figure is not defined.

    Examples
    --------
    >>> gate = CheckResult(False, ("GCIG 0.0700 is above 0.05",))
    >>> print(gate)
    failed: GCIG 0.0700 is above 0.05
    >>> bool(gate)
    False
    """

    passed: bool
    reasons: tuple[str, ...]
    inconclusive: bool = False

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        word = "passed" if self.passed else "inconclusive" if self.inconclusive else "failed"
        return f"{word}: {'; '.join(self.reasons)}"


def check_limits(
    record: AuditRecord,
    *,
    max_gcig: float | None = None,
    max_eo_gap: float | None = None,
    conservative: bool = False,
) -> CheckResult:
    """Compare GCIG and the equalized odds gap with limits.

    Parameters
    ----------
    max_gcig, max_eo_gap : the largest values that pass; None for no limit.
    conservative : whether the upper end of the 95 % interval is compared, rather than the estimate. For GCIG
        it is the interval in which the baselines are estimated again.
    """
    limits = {
        "GCIG": (record.procedural.gcig, record.procedural.gcig_resampled, max_gcig),
        "equalized odds gap": (record.outcome.eo_gap, record.outcome.eo_gap, max_eo_gap),
    }
    reasons, above, undefined = [], False, False
    for name, (estimate, wide, limit) in limits.items():
        if limit is None:
            continue
        if not limit >= 0:
            raise InputError(f"the limit on {name} must be a number of at least 0, got {limit}.")
        value, what = _compared(estimate, wide, conservative)
        if math.isnan(value):
            undefined = True
            reasons.append(f"{name} is not defined on these rows")
        else:
            above = above or value > limit
            sign = "above" if value > limit else "at most"
            reasons.append(f"{name} {what}{value:.4f} is {sign} {limit:g}")
    if not reasons:
        raise InputError("check needs a limit: max_gcig or max_eo_gap.")
    return CheckResult(not above and not undefined, tuple(reasons), inconclusive=undefined and not above)


def _compared(estimate: Interval, wide: Interval, conservative: bool) -> tuple[float, str]:
    if not conservative:
        return estimate.value, ""
    upper = math.nan if math.isnan(wide.high) else max(estimate.high, wide.high)
    again = " with baselines estimated again" if wide is not estimate else ""
    return upper, f"(upper end of its interval{again}) "
