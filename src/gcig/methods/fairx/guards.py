"""Guards: warnings of a collapsed model, of reasons that cannot be trusted, and of bounds not met."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from gcig._warnings import warn_caller
from gcig.metrics.ranking import roc_auc
from gcig.records.trust import EFFECT_TOLERANCE, FAITHFULNESS_TOLERANCE, OFFSET_TOLERANCE
from gcig.training.loop import Epoch

LOWEST_AUC = 0.55
LARGEST_SHARE = 0.995
_RARE_LABEL = 0.05  # share of a label below which few rows reach a threshold of one half
_UNDECIDED = "training has too few epochs, or the threshold does not suit these data (set it to 'f1')."


class CollapseWarning(UserWarning):
    """The model stopped predicting, or uses far fewer or far more columns than the teacher.

    Examples
    --------
    >>> import gcig, warnings
    >>> data = gcig.load_dataset("german", include_sensitive=False)
    >>> model = gcig.FairXClassifier(lambda_fair=1000.0, max_epochs=2, strategy="paper", random_state=0)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", CollapseWarning)  # stop if the model collapses
    ...     model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    Traceback (most recent call last):
        ...
    gcig.methods.fairx.guards.CollapseWarning: the model collapsed (AUC ...
    """


class BoundWarning(UserWarning):
    """A bound that the user set was not met.

    Examples
    --------
    >>> import gcig, warnings
    >>> data = gcig.load_dataset("german", include_sensitive=False)
    >>> model = gcig.FairXClassifier(max_gcig=1e-6, max_epochs=2, random_state=0)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> [str(each.message) for each in caught if each.category is BoundWarning]
    ['max_gcig=1e-06 was not met: the held-out set gives ...']
    """


class ReasonsWarning(UserWarning):
    """GCIG fell, but for reasons that do not make the model fairer.

    The references are no longer typical, explanations no longer describe the model, or decisions depend more
    on the protected attribute than those of the teacher.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_attribute({"attribute_effect": 0.05}, {"attribute_effect": 0.13}, n_rows=1000)
    >>> [str(each.message)[:62] for each in caught if each.category is ReasonsWarning]
    ['decisions depend more on the protected attribute than those of']
    """


@dataclass(frozen=True)
class Verdict:
    """The measurements that show whether a model still predicts.

    Attributes
    ----------
    auc : float
    share : float
        Share of the rows in the class that is predicted most often.
    rarest : float
        Share of the rows that have the rarer label.
    """

    auc: float
    share: float
    rarest: float

    @property
    def collapsed(self) -> bool:
        """True if the AUC is near chance, or nearly all rows are predicted alike."""
        return self.auc < LOWEST_AUC or self.share >= LARGEST_SHARE


def inspect_predictions(scores: Tensor, labels: Tensor, *, cut: float = 0.0) -> Verdict:
    """Measure logits of shape (n,), of which those from `cut` upwards are predicted positive.

    >>> from torch import tensor
    >>> inspect_predictions(tensor([-2.0, -1.0, -3.0]), tensor([0, 1, 0])).collapsed
    True
    """
    predicted = float((scores >= cut).double().mean())
    positive = float(labels.double().mean())
    return Verdict(
        auc=roc_auc(labels.cpu().numpy(), scores.cpu().numpy()),
        share=max(predicted, 1 - predicted),
        rarest=min(positive, 1 - positive),
    )


def columns_changed(now: float, plain: float) -> bool:
    """Return whether a model uses less than half or more than twice the teacher's effective columns.

    >>> columns_changed(2.0, 8.0), columns_changed(5.0, 8.0), columns_changed(5.0, math.nan)
    (True, False, False)
    """
    return bool(now < 0.5 * plain or now > 2 * plain)


def heaviest_term(weights: Mapping[str, tuple[str, float]], history: Sequence[Epoch]) -> str:
    """Return the parameter whose term added most to the loss; "" if no term has a weight.

    Parameters
    ----------
    weights : mapping of term to (parameter, weight)
    history : sequence of Epoch
        All epochs count: once a model has collapsed, the term that caused it is near zero.

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
    """Warn that a model collapsed, with the likely cause and what to do."""
    plain_auc = plain.get("auc", math.nan)
    if plain_auc < LOWEST_AUC:
        cause = "The network without fairness terms is no better: the columns say little about y."
    elif verdict.auc >= LOWEST_AUC and verdict.rarest <= _RARE_LABEL:
        cause = (
            f"The rarer label has {verdict.rarest:.1%} of the rows, and few of them reach the threshold: set "
            "the threshold to 'f1', or class_weight to 'balanced'."
        )
    elif verdict.auc >= LOWEST_AUC and plain.get("decided_alike", 0.0) >= LARGEST_SHARE:
        cause = f"The network without fairness terms is no better: {_UNDECIDED}"
    elif not heaviest:
        unrelated = "the columns say little about y."
        cause = f"No fairness term has a weight: {unrelated if verdict.auc < LOWEST_AUC else _UNDECIDED}"
    elif not math.isfinite(plain_auc):
        cause = (
            f"{heaviest} is too high for these data, or training has too few epochs: change them, or "
            "set strategy='distil' and early_stopping=True, which limit the weights by a teacher."
        )
    else:
        without = f" (without fairness terms AUC is {plain_auc:.3f})"
        short = ", or training has too few epochs" if verdict.auc >= plain_auc else ""
        cause = (
            f"{heaviest} is too high for these data{without}{short}: lower the weight, or set a bound that "
            "can be met (max_gcig, max_eo_gap)."
        )
    found = f"AUC {verdict.auc:.3f}, {verdict.share:.1%} of the rows predicted alike"
    warn_caller(f"the model collapsed ({found}). {cause}", CollapseWarning)


def warn_of_columns(now: float, plain: float, weight: float) -> None:
    """Warn that a model uses far fewer or far more columns than the teacher."""
    warn_caller(
        f"the model uses {now:.1f} effective columns, the network without fairness terms {plain:.1f}: part "
        f"of the low GCIG comes from that. Lower lambda_ig, now {weight:.3g}, to keep the columns.",
        CollapseWarning,
    )


def warn_of_limits(max_auc_drop: float) -> None:
    """Warn that no epoch was acceptable and the teacher was kept."""
    warn_caller(
        f"the network without fairness terms was kept: on average over the last epochs, none was fairer, "
        f"lost less AUC than max_auc_drop={max_auc_drop:g} and kept its columns. Train for more epochs, "
        "allow a larger max_auc_drop, or lower the weights.",
        BoundWarning,
    )


def warn_of_bound(name: str, bound: float, reached: float, auc: float) -> None:
    """Warn that a bound was not met, and by how much."""
    warn_caller(
        f"{name}={bound:g} was not met: the held-out set gives {reached:.4f} at an AUC of {auc:.3f}. Train "
        "for more epochs, loosen the bound, or allow a larger loss of AUC (max_auc_drop).",
        BoundWarning,
    )


def warn_of_reasons(plain: Mapping[str, float], trained: Mapping[str, float], n_columns: int) -> None:
    """Warn if GCIG no longer describes the reasons of the trained network as well as those of the teacher.

    Parameters
    ----------
    plain, trained : mapping
        Measurements of the teacher and of the trained network.
    n_columns : int
        The original columns: a rank correlation of few columns moves in large steps.
    """
    if trained["reference_offset"] - plain["reference_offset"] > OFFSET_TOLERANCE:
        warn_caller(
            "the mean of a (label, group) cell is no longer typical of its members (distance of their logits "
            f"in standard deviations: {_pair(plain, trained, 'reference_offset', '.2f')}). Part of the low "
            "GCIG comes from that. Set references='both' or 'members', or lower lambda_ig.",
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
    """Warn if decisions depend more on the protected attribute than those of the teacher.

    One or two of `n_rows` decisions may change by chance.
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
