"""Warnings about models that no longer rank or decide, unreliable reasons, unmet bounds and spent budgets."""

import math
from collections.abc import Mapping

from gcig._arguments import warn_caller
from gcig.core.task import Task
from gcig.methods.fairx.check import Check
from gcig.metrics.utility import MAIN, has_collapsed
from gcig.records.trade_off import Bound
from gcig.records.trust import EFFECT_TOLERANCE, FAITHFULNESS_TOLERANCE, OFFSET_TOLERANCE

_NAMES = {"auc": "AUC", "accuracy": "accuracy", "r2": "R2"}


class CollapseWarning(UserWarning):
    """The model knows next to nothing, or uses far fewer or far more columns than the plain network.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_columns(2.0, 9.0)
    >>> str(caught[0].message)[:60]
    'the model uses 2.0 effective columns, the plain network 9.0.'
    """


class BoundWarning(UserWarning):
    """A bound that the user set is not met or cannot be shown to be met, or a budget is exceeded.

    Attributes
    ----------
    bound : Bound or None
        The bound with the value reached; None for the budget.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_unshowable(Bound("max_gap", 0.01, 0.0, fair_limit=0.08, n_rows=800))
    >>> caught[0].message.bound.can_be_shown
    False
    """

    def __init__(self, message: str, bound: Bound | None = None) -> None:
        super().__init__(message, bound)
        self.bound = bound

    def __str__(self) -> str:
        return str(self.args[0])


class NothingToRepairWarning(UserWarning):
    """Neither reasons nor outcomes depend on the group beyond chance: the plain network was kept.

    Attributes
    ----------
    check : Check
        What was compared, and the smallest dependence that could have been seen.

    Examples
    --------
    >>> from gcig.methods.fairx.check import Dependence
    >>> reasons = Dependence("reason_gap", 0.02, p=0.4, chance=0.06, detectable=0.09)
    >>> outcomes = Dependence("outcome_gap", 0.03, p=0.6, chance=0.08, detectable=0.1)
    >>> str(NothingToRepairWarning(Check(reasons, outcomes)))[:17]
    'Nothing to repair'
    """

    def __init__(self, check: Check) -> None:
        super().__init__(str(check))
        self.check = check


class ReasonsWarning(UserWarning):
    """A figure of fairness fell for a cause that does not make the model fairer.

    The references are no longer typical, explanations no longer describe the model, or decisions depend more
    on the protected attribute than the plain network's.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_attribute({"attribute_effect": 0.05}, {"attribute_effect": 0.13}, n_rows=1000)
    >>> [str(each.message)[:62] for each in caught if each.category is ReasonsWarning]
    ['decisions depend more on the protected attribute than those of']
    """


class ThresholdWarning(UserWarning):
    """The model ranks, but makes nearly the same decision for everyone at its threshold.

    Attributes
    ----------
    threshold : float
        The threshold of the model.
    suggested : float
        The threshold with the best F1 on the held-out set.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_threshold({"auc": 0.84, "decided_alike": 0.998}, 0.5, suggested=0.86)
    >>> caught[0].message.suggested
    0.86
    """

    def __init__(self, message: str, threshold: float, suggested: float) -> None:
        super().__init__(message, threshold, suggested)
        self.threshold, self.suggested = threshold, suggested

    def __str__(self) -> str:
        return str(self.args[0])


def warn_of_collapse(task: Task, measured: Mapping[str, float], plain: Mapping[str, float]) -> None:
    """Warn that a model knows next to nothing, with the likely cause and a remedy."""
    name = "r2" if task.key == "number" else "auc"
    shown = _NAMES[name]
    cause = "The weights of its fairness terms are too high for these data, or it was trained too briefly."
    if plain and has_collapsed(plain):
        cause = "The plain network is no better: the columns say little about y, so nothing was repaired."
    elif plain:
        cause = f"The plain network has {shown} {plain[name]:.3f}: lower the budget, or loosen the bounds."
    warn_caller(
        f"the model collapsed: it predicts hardly better than a constant ({shown} {measured[name]:.3f}). "
        f"{cause}",
        CollapseWarning,
    )


def warn_of_threshold(measured: Mapping[str, float], threshold: float, suggested: float) -> None:
    """Warn that a model ranks but decides everyone alike, and suggest a threshold."""
    warn_caller(
        ThresholdWarning(
            f"the model ranks (AUC {measured['auc']:.3f}), but makes the same decision for "
            f"{measured['decided_alike']:.1%} of the held-out rows at threshold {threshold:.3g}, so equal "
            "rates do not show that it is fair. Set "
            f"threshold='f1' (here {suggested:.3g}) or another threshold, or train for more epochs.",
            threshold,
            suggested,
        )
    )


def warn_of_columns(now: float, plain: float) -> None:
    """Warn that a model uses far fewer or far more columns than the plain network."""
    warn_caller(
        f"the model uses {now:.1f} effective columns, the plain network {plain:.1f}. This explains part of "
        "the change of its reasons. Raise min_columns, or lower the budget.",
        CollapseWarning,
    )


def warn_of_bound(bound: Bound, task: Task, measured: Mapping[str, float], budget: float) -> None:
    """Warn that a bound was not met or cannot be shown to hold."""
    utility = MAIN[task.key]
    figures = (
        f"the {bound.n_rows:,} held-out rows give {bound.value:.4f}, with an upper 90 % confidence limit of "
        f"{bound.limit:.4f}, at {_NAMES[utility]} {measured[utility]:.3f}"
    )
    if bound.value > bound.bound:
        message = (
            f"{bound.name}={bound.bound:g} was not met: {figures}. Loosen the bound, raise "
            f"budget={budget:g}, or train for more epochs."
        )
    else:
        message = (
            f"{bound.name}={bound.bound:g} cannot be shown to hold: {figures}. Provide more rows, a larger "
            "validation_fraction, or a looser bound."
        )
    warn_caller(BoundWarning(message, bound))


def warn_of_unshowable(bound: Bound) -> None:
    """Warn before training if a bound could not be shown to hold even for an exactly fair model."""
    if not bound.can_be_shown:
        warn_caller(
            BoundWarning(
                f"{bound.name}={bound.bound:g} is below what {bound.n_rows:,} held-out rows can show: even "
                f"an exactly fair model would have an upper 90 % confidence limit of about "
                f"{bound.fair_limit:.3f}. Provide more rows, a larger validation_fraction, or a looser "
                "bound.",
                bound,
            )
        )


def warn_of_budget(used: float, interval: tuple[float, float]) -> None:
    """Warn if more than the budget was spent, with certainty."""
    if interval[0] > 1:
        warn_caller(
            BoundWarning(
                f"the student's predictions on held-out rows are further from the plain network's than the "
                f"budget allows: {used:.2f} times the budget (95 % interval {interval[0]:.2f} to "
                f"{interval[1]:.2f}). This is the price of a bound, or training rows say too little about "
                "new ones: loosen the bound, lower the budget, or provide more rows."
            )
        )


def warn_of_reasons(plain: Mapping[str, float], trained: Mapping[str, float], n_columns: int) -> None:
    """Warn if explanations describe the trained network less well than the plain network.

    The tolerance of faithfulness, a rank correlation, depends on the number of original columns.
    """
    if trained["reference_offset"] - plain["reference_offset"] > OFFSET_TOLERANCE:
        warn_caller(
            "the mean of a (label, group) cell is no longer typical of its members (distance of their scores "
            f"in standard deviations: {_pair(plain, trained, 'reference_offset', '.2f')}). This explains "
            "part of the change of reasons relative to means. Compare with members alone "
            "(references='members'), or lower the budget.",
            ReasonsWarning,
        )
    lost = plain.get("faithfulness", math.nan) - trained.get("faithfulness", math.nan)
    if lost > max(FAITHFULNESS_TOLERANCE, 1 / max(1, n_columns - 1)):
        warn_caller(
            "explanations agree less with the columns that the model depends on (rank correlation with "
            f"permutation importance: {_pair(plain, trained, 'faithfulness', '.2f')}), so they say less "
            "about its reasons. Set references='both' or 'members', or lower the budget.",
            ReasonsWarning,
        )


def warn_of_attribute(plain: Mapping[str, float], trained: Mapping[str, float], n_rows: int) -> None:
    """Warn if decisions depend more on the protected attribute than the plain network's.

    Two of `n_rows` decisions may change by chance.
    """
    if trained["attribute_effect"] - plain["attribute_effect"] > max(EFFECT_TOLERANCE, 2 / n_rows):
        warn_caller(
            "decisions depend more on the protected attribute than those of the plain network (share that "
            f"changes with it: {_pair(plain, trained, 'attribute_effect', '.1%')}). Part of the fairness "
            "comes from treating the groups differently. Drop the attribute's columns, or lower the budget.",
            ReasonsWarning,
        )


def _pair(plain: Mapping[str, float], trained: Mapping[str, float], name: str, form: str) -> str:
    return f"{plain[name]:{form}} before, {trained[name]:{form}} now"
