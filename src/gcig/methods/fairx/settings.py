"""The settings of fair training."""

import math
from dataclasses import dataclass

from gcig.training.loop import Loop

__all__ = ["FairTraining"]

_SETTLED = 0.25  # the share of the epochs in which weights are raised, and plain training is not yet judged


@dataclass(frozen=True)
class FairTraining:
    """Everything about training but the data and the network; see `gcig.FairXClassifier`."""

    loop: Loop
    learning_rate: float = 2e-3
    weight_decay: float = 1e-4
    clip_norm: float = 5.0
    lambda_ig: float = 0.0
    lambda_fair: float = 0.0
    outcome: str = "equalized_odds"
    max_gcig: float | None = None
    max_eo_gap: float | None = None
    norm: str = "l1"
    rule: str = "auto"
    n_steps: int | str = "auto"
    penalty_rows: float = 0.25
    penalty_every: int = 1
    ema_rate: float = 0.05
    max_auc_drop: float = 0.015
    cut: float | None = 0.0  # the logit from which a row is decided positive; None for the best by F1
    progress: bool = False

    @property
    def explains(self) -> bool:
        """Whether the GCIG term is used."""
        return self.lambda_ig > 0 or self.max_gcig is not None

    @property
    def constrains(self) -> bool:
        """Whether the outcome term is used."""
        return self.lambda_fair > 0 or self.max_eo_gap is not None

    @property
    def settled(self) -> int:
        """The epoch at which weights have been raised, and from which plain training may be returned to."""
        return math.ceil(_SETTLED * self.loop.max_epochs)
