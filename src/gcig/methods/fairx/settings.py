"""Settings of FairX training."""

from dataclasses import dataclass

from gcig.core.definition import Definition
from gcig.training.loop import Loop

# The width, in logits, of the smoothed decisions whose rates are compared in mini-batches. Wide ones move
# rows far from the threshold, which costs AUC; narrow ones depend on few rows: with 0.15, larger weights did
# not end with smaller gaps.
RATE_TEMPERATURE = 0.3


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
    def bounds(self) -> dict[str, float]:
        """The bounds that are set, by term."""
        given = {"gcig": self.max_gcig, "outcome": self.max_eo_gap}
        return {name: bound for name, bound in given.items() if bound is not None}

    @property
    def definition(self) -> Definition:
        """The definition of GCIG measured on the held-out set."""
        return Definition(norm=self.norm)
