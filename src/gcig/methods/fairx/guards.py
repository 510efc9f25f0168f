"""Warnings about models that no longer rank or decide, unreliable reasons, and unmet bounds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from gcig._warnings import warn_caller
from gcig.metrics.ranking import roc_auc
from gcig.records.evaluation import decides_alike, has_collapsed
from gcig.records.trade_off import Bound
from gcig.records.trust import EFFECT_TOLERANCE, FAITHFULNESS_TOLERANCE, OFFSET_TOLERANCE
from gcig.training.loop import Epoch


class CollapseWarning(UserWarning):
    """The model hardly ranks better than chance, or uses far fewer or far more columns than the teacher.

    Examples
    --------
    >>> import gcig, warnings
    >>> data = gcig.load_dataset("german", include_sensitive=False)
    >>> model = gcig.FairXClassifier(lambda_ig=1000.0, max_epochs=2, strategy="paper", random_state=0)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", CollapseWarning)  # stop if the model collapses
    ...     model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    Traceback (most recent call last):
        ...
    gcig.methods.fairx.guards.CollapseWarning: the model collapsed: it ranks ...
    """


class BoundWarning(UserWarning):
    """A bound that the user set is not met, or cannot be shown to be met.

    Attributes
    ----------
    bound : Bound or None
        The bound with the value reached, or before training with the confidence limit of an exactly fair
        model. None if no epoch was acceptable and the teacher was kept.

    Examples
    --------
    >>> import gcig, warnings
    >>> data = gcig.load_dataset("german", include_sensitive=False)
    >>> model = gcig.FairXClassifier(max_gcig=1e-6, max_epochs=2, random_state=0)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> [each.message.bound.status for each in caught if each.category is BoundWarning]
    ['not met']
    """

    def __init__(self, message: str, bound: Bound | None = None) -> None:
        super().__init__(message, bound)
        self.bound = bound

    def __str__(self) -> str:
        return str(self.args[0])


class ReasonsWarning(UserWarning):
    """GCIG fell for a cause that does not make the model fairer.

    The references are no longer typical, explanations no longer describe the model, or decisions depend
    more on the protected attribute than the teacher's.

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
    ...     warn_of_threshold({"auc": 0.84, "decided_alike": 0.998}, 0.5, suggested=0.86, heaviest="")
    >>> caught[0].message.suggested
    0.86
    """

    def __init__(self, message: str, threshold: float, suggested: float) -> None:
        super().__init__(message, threshold, suggested)
        self.threshold, self.suggested = threshold, suggested

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Verdict:
    """Measurements that show whether a model still ranks and decides."""

    auc: float
    share: float  # of the rows in the class that is predicted most often

    @property
    def collapsed(self) -> bool:
        """True if the AUC is near chance."""
        return has_collapsed(self.auc)

    @property
    def decides_alike(self) -> bool:
        """True if nearly all rows get the same decision."""
        return decides_alike(self.share)


def inspect_predictions(scores: Tensor, labels: Tensor, *, cut: float = 0.0) -> Verdict:
    """Measure logits of shape (n,), where logits of at least `cut` are positive decisions.

    >>> from torch import tensor
    >>> verdict = inspect_predictions(tensor([-2.0, -1.0, -3.0]), tensor([0, 1, 0]))
    >>> verdict.collapsed, verdict.decides_alike
    (False, True)
    """
    predicted = float((scores >= cut).double().mean())
    auc = roc_auc(labels.cpu().numpy(), scores.cpu().numpy())
    return Verdict(auc, share=max(predicted, 1 - predicted))


def columns_changed(now: float, plain: float) -> bool:
    """Return whether a model uses less than half or more than twice the teacher's effective columns.

    >>> columns_changed(2.0, 8.0), columns_changed(5.0, 8.0), columns_changed(5.0, math.nan)
    (True, False, False)
    """
    return bool(now < 0.5 * plain or now > 2 * plain)


def heaviest_term(weights: Mapping[str, tuple[str, float]], history: Sequence[Epoch]) -> str:
    """Return the parameter whose term contributed most to the loss; "" if no term has a weight.

    `weights` maps each term to its parameter and weight. All epochs count, because the term that made a model
    collapse is near zero afterwards.

    >>> epochs = [Epoch(1, {"prediction": 0.7, "gcig": 0.2, "outcome": 0.3}, {})]
    >>> heaviest_term({"gcig": ("lambda_ig=5", 5.0), "outcome": ("lambda_fair=1", 1.0)}, epochs)
    'lambda_ig=5'
    """
    shares = {
        parameter: weight * sum(epoch.terms.get(term, 0.0) for epoch in history)
        for term, (parameter, weight) in weights.items()
    }
    heaviest = max(shares, key=lambda parameter: shares[parameter])
    return heaviest if shares[heaviest] > 0 else ""


def warn_of_collapse(verdict: Verdict, heaviest: str, plain: Mapping[str, float]) -> None:
    """Warn that a model hardly ranks better than chance, with the likely cause and a remedy."""
    plain_auc = plain.get("auc", math.nan)
    if has_collapsed(plain_auc):
        cause = "The network without fairness terms is no better: the columns say little about y."
    elif not heaviest:
        cause = "No fairness term has a weight: the columns say little about y."
    elif not math.isfinite(plain_auc):
        cause = (
            f"{heaviest} is too high for these data, or training has too few epochs: change them, or "
            "set strategy='distil' and early_stopping=True, which limit the weights by a teacher."
        )
    else:
        cause = (
            f"{heaviest} is too high for these data (without fairness terms AUC is {plain_auc:.3f}): lower "
            "the weight, or set a bound that can be met (max_gcig, max_eo_gap)."
        )
    warn_caller(
        f"the model collapsed: it ranks rows hardly better than chance (AUC {verdict.auc:.3f}). {cause}",
        CollapseWarning,
    )


def warn_of_threshold(
    measured: Mapping[str, float], threshold: float, suggested: float, heaviest: str
) -> None:
    """Warn that a model ranks but decides everyone alike, and suggest a threshold."""
    lower = f", or lower {heaviest}" if heaviest else ""
    warn_caller(
        ThresholdWarning(
            f"the model ranks (AUC {measured['auc']:.3f}), but makes the same decision for "
            f"{measured['decided_alike']:.1%} of the held-out rows at threshold {threshold:.3g}, so equal "
            "rates do not show that it is fair. Set "
            f"threshold='f1' (here {suggested:.3g}) or another threshold, train for more epochs{lower}.",
            threshold,
            suggested,
        )
    )


def warn_of_columns(now: float, plain: float, weight: float) -> None:
    """Warn that a model uses far fewer or far more columns than the teacher."""
    warn_caller(
        f"the model uses {now:.1f} effective columns, the network without fairness terms {plain:.1f}. This "
        f"explains part of the low GCIG. Lower lambda_ig, now {weight:.3g}, to keep the columns.",
        CollapseWarning,
    )


def warn_of_limits(max_auc_drop: float) -> None:
    """Warn that no epoch was acceptable, so that the teacher was kept."""
    warn_caller(
        "the network without fairness terms was kept, because no epoch was fairer, lost less AUC than "
        f"max_auc_drop={max_auc_drop:g} and kept enough columns, on average over a few epochs. "
        "Train for more epochs, allow a larger max_auc_drop, or lower the weights.",
        BoundWarning,
    )


def warn_of_bound(bound: Bound, auc: float) -> None:
    """Warn that a bound was not met or cannot be shown to hold."""
    found = (
        f"the {bound.n_rows:,} held-out rows give {bound.value:.4f}, with an upper 90 % confidence limit of "
        f"{bound.limit:.4f}, at an AUC of {auc:.3f}"
    )
    if bound.value > bound.bound:
        message = (
            f"{bound.name}={bound.bound:g} was not met: {found}. Train for more epochs, loosen the bound, or "
            "allow a larger loss of AUC (max_auc_drop)."
        )
    else:
        message = (
            f"{bound.name}={bound.bound:g} cannot be shown to hold: {found}. Provide more rows, a larger "
            "validation_fraction, or a looser bound."
        )
    warn_caller(BoundWarning(message, bound))


def warn_of_unshowable(max_eo_gap: float, fair_limit: float, n_rows: int) -> None:
    """Warn before training if a bound could not be shown to hold even for an exactly fair model."""
    if max_eo_gap >= fair_limit:
        return
    bound = Bound("max_eo_gap", max_eo_gap, 0.0, math.nan, fair_limit, n_rows)
    warn_caller(
        BoundWarning(
            f"max_eo_gap={max_eo_gap:g} is below what {n_rows:,} held-out rows can show: even an exactly "
            f"fair model would have an upper 90 % confidence limit of about {fair_limit:.3f}. Training aims "
            "at two thirds of the bound instead. Provide more rows, a larger validation_fraction, or "
            "a looser bound.",
            bound,
        )
    )


def warn_of_reasons(plain: Mapping[str, float], trained: Mapping[str, float], n_columns: int) -> None:
    """Warn if GCIG describes the trained network's reasons less well than the teacher's (`plain`).

    The tolerance of faithfulness, a rank correlation, depends on the number of original columns.
    """
    if trained["reference_offset"] - plain["reference_offset"] > OFFSET_TOLERANCE:
        warn_caller(
            "the mean of a (label, group) cell is no longer typical of its members (distance of their logits "
            f"in standard deviations: {_pair(plain, trained, 'reference_offset', '.2f')}). This explains "
            "part of the low GCIG. Lower lambda_ig, or compare with members alone (references='members').",
            ReasonsWarning,
        )
    lost = plain["faithfulness"] - trained["faithfulness"]
    if lost > max(FAITHFULNESS_TOLERANCE, 1 / max(1, n_columns - 1)):
        warn_caller(
            "explanations agree less with the columns that the model depends on (rank correlation with "
            f"permutation importance: {_pair(plain, trained, 'faithfulness', '.2f')}), so GCIG says less "
            "about its reasons. Set references='both' or 'members', or lower lambda_ig.",
            ReasonsWarning,
        )


def warn_of_attribute(plain: Mapping[str, float], trained: Mapping[str, float], n_rows: int) -> None:
    """Warn if decisions depend more on the protected attribute than the teacher's (`plain`).

    Two of `n_rows` decisions may change by chance.
    """
    if trained["attribute_effect"] - plain["attribute_effect"] > max(EFFECT_TOLERANCE, 2 / n_rows):
        warn_caller(
            "decisions depend more on the protected attribute than those of the network without fairness "
            f"terms (share that changes with it: {_pair(plain, trained, 'attribute_effect', '.1%')}). Part "
            "of the fairness comes from treating the groups differently. Drop the attribute's columns, or "
            "lower the weights.",
            ReasonsWarning,
        )


def _pair(plain: Mapping[str, float], trained: Mapping[str, float], name: str, form: str) -> str:
    return f"{plain[name]:{form}} before, {trained[name]:{form}} now"
