"""The settings of fair training."""

import math
from dataclasses import dataclass

from gcig.training import Loop

__all__ = ["FairTraining"]

_SETTLED = 0.25  # the share of the epochs after which validation decides about brake, bounds and return


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
    allowed_drop: float = 0.005
    cut: float = 0.0  # the logit from which a row is decided positive, where outcomes are measured
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
        """The first epoch that validation may brake at or return to."""
        return math.ceil(_SETTLED * self.loop.max_epochs)
