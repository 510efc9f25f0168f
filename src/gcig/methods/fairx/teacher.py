"""The teacher: the same network trained plainly, whose predictions a fair network learns to keep.

Labels of a few hundred rows are noise to a network that sees them often enough; the teacher's probabilities
are not, and they can be had for any row. So fair training is taught: the student starts as the teacher, is
trained on its probabilities, and changes its reasons. How much AUC that costs is then known almost without
noise, too: by what the teacher would say, beside the labels that were held out.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from gcig.core.modules import evaluating, logits

__all__ = ["Teacher", "expected_auc"]

_PART = 65_536  # rows that are asked about at once


def expected_auc(scores: Tensor, probabilities: Tensor) -> float:
    """Area under the ROC curve of scores where a row is positive with a probability; ties count half.

    NaN where all rows are surely positive, or all surely negative.

    >>> sure, scores = torch.tensor([0.0, 0.0, 1.0, 1.0]), torch.tensor([0.1, 0.4, 0.35, 0.8])
    >>> expected_auc(scores, sure), expected_auc(torch.zeros(4), sure)
    (0.75, 0.5)
    """
    _, rank = torch.unique(scores.cpu(), return_inverse=True)  # on a CPU sums are the same in every run
    positive = torch.bincount(rank, weights=probabilities.cpu().double())
    negative = torch.bincount(rank, weights=1 - probabilities.cpu().double())
    below = negative.cumsum(0) - negative / 2
    return float((positive * below).sum() / (positive.sum() * negative.sum()))


@dataclass(frozen=True)
class Teacher:
    """A plainly trained network, and what it is like on validation rows.

    Attributes
    ----------
    network : nn.Module
    measured : dict
        AUC, GCIG, effective columns, and the outcome gap of its decisions and of its probabilities.
    witnesses : Tensor of shape (n, ...)
        Rows that its students are compared with it on.
    error : float
        The standard error of its AUC.
    """

    network: nn.Module
    measured: dict[str, float]
    witnesses: Tensor
    error: float

    @torch.no_grad()
    def probabilities(self, inputs: Tensor) -> Tensor:
        """What it says about rows; in parts, for there may be millions."""
        with evaluating(self.network):
            return torch.cat([torch.sigmoid(logits(self.network, part)) for part in inputs.split(_PART)])

    @cached_property
    def expected(self) -> Tensor:
        """What it says about the witnesses."""
        return self.probabilities(self.witnesses)

    @cached_property
    def best_auc(self) -> float:
        """The AUC of its scores if its probabilities are right: no scores have a higher one."""
        return expected_auc(self.expected, self.expected)

    @torch.no_grad()
    def auc_lost(self, student: nn.Module, auc: float) -> float:
        """How much AUC a student lost: by the teacher's probabilities, or by labels where that is more.

        Of the difference by labels a quarter of the AUC's standard error is forgiven: on a few rows, noise.
        """
        with evaluating(student):
            scores = logits(student, self.witnesses)
        by_teacher = self.best_auc - expected_auc(scores, self.expected)
        by_labels = self.measured["auc"] - auc - self.error / 4
        return max((lost for lost in (by_teacher, by_labels) if math.isfinite(lost)), default=0.0)
