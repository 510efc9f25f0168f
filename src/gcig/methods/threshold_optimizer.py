"""Equalized odds by post-processing: thresholds per group on the scores of the unconstrained network.

Hardt, Price and Srebro (2016), "Equality of opportunity in supervised learning",
https://arxiv.org/abs/1610.02413; the optimisation is Fairlearn's `ThresholdOptimizer`.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from fairlearn.postprocessing import ThresholdOptimizer
from scipy.special import expit
from sklearn.base import BaseEstimator
from torch import Generator, nn

from gcig._arguments import InputError, integer, one_of
from gcig._arrays import Codes, Encoded, Floats
from gcig.methods.parameters import GRID_POINTS, parameter
from gcig.methods.randomised import RandomisedClassifier
from gcig.methods.training_data import TrainingData, require_groups
from gcig.tables.frames import check_lengths
from gcig.training.batches import all_outputs
from gcig.training.loop import Outcome, raise_if_diverged

_REASON = "each group has its own thresholds"


@dataclass(frozen=True)
class ThresholdRule:
    """The randomised decision of one group: a constant probability or one of two thresholds.

    A score s is decided positive with probability

        p_ignore * constant + (1 - p_ignore) * (p0 * [s > threshold0] + p1 * [s > threshold1]).
    """

    p_ignore: float
    constant: float
    p0: float
    threshold0: float
    p1: float
    threshold1: float

    def __post_init__(self) -> None:
        """Raise a `ValueError` unless shares are probabilities and thresholds are numbers."""
        shares = (self.p_ignore, self.constant, self.p0, self.p1)
        slack = 1e-6  # Fairlearn's probabilities sum to one up to rounding
        if not all(-slack <= share <= 1 + slack for share in (*shares, self.p0 + self.p1)):
            raise ValueError(f"a rule has the probabilities {shares}")
        if math.isnan(self.threshold0) or math.isnan(self.threshold1):
            raise ValueError("a rule has a threshold that is not a number")

    def __call__(self, scores: Floats) -> Floats:
        """Return the probability of a positive decision for each score.

        >>> ThresholdRule(0.0, 0.0, 0.25, 0.3, 0.75, 0.6)(np.array([0.1, 0.5, 0.9]))
        array([0.  , 0.25, 1.  ])
        """
        above = self.p0 * (scores > self.threshold0) + self.p1 * (scores > self.threshold1)
        return np.clip(self.p_ignore * self.constant + (1 - self.p_ignore) * above, 0, 1)


def equalize_odds(
    scores: Floats, labels: Codes, groups: Codes, objective: str = "accuracy_score", grid_size: int = 1000
) -> tuple[ThresholdRule, ...]:
    """Return the best rules, one per group, whose true and false positive rates are equal on these rows.

    Labels are 0 and 1, and every group code occurs with both.
    """
    how: dict[str, Any] = {"constraints": "equalized_odds", "objective": objective, "grid_size": grid_size}
    optimizer = ThresholdOptimizer(
        estimator=_Scores(), prefit=True, predict_method="decision_function", **how
    )
    # In float32, pandas 3 refuses the infinite thresholds that Fairlearn mixes in.
    optimizer.fit(scores.astype(np.float64)[:, None], labels, sensitive_features=groups)
    by_group = optimizer.interpolated_thresholder_.interpolation_dict
    return tuple(_rule(by_group[group]) for group in range(len(by_group)))


def _rule(mixed: Any) -> ThresholdRule:
    return ThresholdRule(
        p_ignore=float(mixed.p_ignore),
        constant=float(mixed.prediction_constant),
        p0=float(mixed.p0),
        threshold0=float(mixed.operation0.threshold),
        p1=float(mixed.p1),
        threshold1=float(mixed.operation1.threshold),
    )


class _Scores(BaseEstimator):
    """An estimator for Fairlearn whose single column is already the score."""

    def fit(self, X: Any, y: Any) -> "_Scores":  # noqa: ARG002 (never called; it marks an estimator)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def decision_function(self, X: Floats) -> Floats:
        return X[:, 0]


class ThresholdOptimizerClassifier(RandomisedClassifier):
    """The unconstrained network with thresholds per group that make true and false positive rates equal.

    Scores, and therefore AUC and the explained logit, are those of the unconstrained network; only decisions
    depend on the group, and they are randomised. `predict` draws them reproducibly, `expected_predictions`
    returns their probabilities. Both need the groups of new rows.

    The thresholds are fitted on all training rows, the held-out set included: they are few numbers, and cells
    are small. All rows count alike there; ``sample_weight`` acts in the training of the network.

    Attributes
    ----------
    rules_ : tuple of ThresholdRule
        One for each of `groups_`.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german")
    >>> model = ThresholdOptimizerClassifier(max_epochs=3, random_state=0)
    >>> model = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> probability = model.expected_predictions(data.X, sensitive_features=data.sensitive_features)
    >>> probability.shape
    (1000,)
    """

    method_key: ClassVar[str] = "hardt"
    needs_groups_to_predict: ClassVar[bool] = True
    fitted_attributes: ClassVar[tuple[str, ...]] = ("rules_",)
    fitted_records: ClassVar[tuple[type, ...]] = (ThresholdRule,)
    rules_: tuple[ThresholdRule, ...]

    objective: str = parameter(
        default="accuracy_score",
        rule=one_of("accuracy_score", "balanced_accuracy_score"),
        doc="The score that is maximised among the rules with equal odds.",
    )
    grid_size: int = parameter(
        default=1000, rule=integer(1, most=GRID_POINTS), doc="How many false positive rates are tried."
    )

    def check_learned(self) -> None:
        """Raise a `ValueError` unless there is one rule per group."""
        super().check_learned()
        rules = self.rules_ if isinstance(self.rules_, tuple) else ()
        if [type(rule) for rule in rules] != [ThresholdRule] * len(self.groups_):
            raise ValueError(f"{len(self.groups_)} groups need as many rules")

    def encode(self, X: Any, *, sensitive_features: Any = None) -> Encoded:
        """Return the rows as the network sees them, after checking that the groups are those of ``X``."""
        if sensitive_features is not None:
            check_lengths(X=X, sensitive_features=sensitive_features)
        return super().encode(X)

    def expected_from_encoded(self, encoded: Encoded, *, sensitive_features: Any = None) -> Floats:
        """Return the probability of a positive decision under the rule of each row's group."""
        codes = require_groups(self, encoded, sensitive_features, n_rows=len(encoded), reason=_REASON).codes
        scores = expit(self.outputs_from_encoded(encoded)[:, 0])
        probability = np.empty(len(scores))
        for group, rule in enumerate(self.rules_):
            probability[codes == group] = rule(scores[codes == group])
        return probability

    def train_network(
        self, network: nn.Module, data: TrainingData, generator: Generator
    ) -> tuple[nn.Module, Outcome]:
        """Train the unconstrained network and fit the rules of the groups."""
        known = self.cell_sizes_ > 0
        if not known.all():
            group = self.groups_[int(np.argmin(known.all(axis=0)))]
            raise InputError(
                f"Group {group!r} has rows of one label only, so no thresholds give it the error rates of "
                "the others. Merge small groups, or choose another method, such as 'lagrangian'."
            )
        network, outcome = super().train_network(network, data, generator)
        outputs = all_outputs(network, data.all.inputs)[:, 0]
        raise_if_diverged(outputs)  # Fairlearn would search for the thresholds of NaN without end
        labels, groups = data.all.labels.cpu().numpy(), data.all.groups.cpu().numpy()
        scores, how = expit(outputs.double().cpu().numpy()), (self.objective, self.grid_size)
        self.rules_ = equalize_odds(scores, labels, groups, *how)
        return network, outcome
