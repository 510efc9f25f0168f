"""Settings of FairX training."""

from dataclasses import dataclass

from gcig.core.definition import Definition
from gcig.training.loop import Loop

# The width, in logits, of the smoothed decisions whose rates are compared. Wide ones move rows far from the
# threshold, which costs AUC; narrow ones depend on few rows and are noisy. With a weight, 0.3 keeps larger
# weights in order (0.15 does not). With a bound, 0.15 costs less: prototypes on a fold of COMPAS had a gap of
# 0.11 for 0.0145 of AUC, where 0.3 left 0.19 for 0.0126 and 0.6 left 0.24 for 0.0156.
_WEIGHTED_TEMPERATURE, _BOUNDED_TEMPERATURE = 0.3, 0.15


@dataclass(frozen=True)
class FairTraining:
    """All settings of training except the data and the network; see `gcig.FairXClassifier`."""

    loop: Loop
    student_batch: int | None = None  # rows per mini-batch of the student; the teacher's if None
    learning_rate: float = 2e-3
    weight_decay: float = 1e-4
    clip_norm: float = 5.0
    lambda_ig: float = 0.0
    lambda_fair: float = 0.0
    outcome: str = "equalized_odds"
    max_gcig: float | None = None
    max_eo_gap: float | None = None
    references: str = "both"
    norm: str = "l1"
    rule: str = "auto"
    n_steps: int | str = "auto"
    penalty_rows: float = 0.25  # the share of each mini-batch that is explained
    n_members: int = 8  # members per cell over which attributions are averaged in each step
    ema_rate: float = 0.05
    max_auc_drop: float = 0.012
    cut: float | None = 0.0  # logit at which a row is decided positive; None maximises F1
    progress: bool = False

    @property
    def explains(self) -> bool:
        """True if the GCIG term is used."""
        return self.lambda_ig > 0 or self.max_gcig is not None

    @property
    def constrains(self) -> bool:
        """True if the outcome term is used."""
        return self.lambda_fair > 0 or self.max_eo_gap is not None

    @property
    def weights(self) -> dict[str, float]:
        """The weights of the two fairness terms; a bounded term without a weight starts at 0.1."""
        return {
            "gcig": self.lambda_ig or (0.0 if self.max_gcig is None else 0.1),
            "outcome": self.lambda_fair or (0.0 if self.max_eo_gap is None else 0.1),
        }

    @property
    def rate_temperature(self) -> float:
        """The width, in logits, of the smoothed decisions of the outcome and attribute terms."""
        return _WEIGHTED_TEMPERATURE if self.max_eo_gap is None else _BOUNDED_TEMPERATURE

    @property
    def bounds(self) -> dict[str, float]:
        """The bounds that are set, by term."""
        given = {"gcig": self.max_gcig, "outcome": self.max_eo_gap}
        return {name: bound for name, bound in given.items() if bound is not None}

    @property
    def definition(self) -> Definition:
        """The definition of GCIG measured on the held-out set."""
        return Definition(norm=self.norm)
