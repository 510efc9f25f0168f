"""Rows: inputs with labels, groups and weights, the one container from the encoder to the last figure."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """Rows with labels, groups and weights."""

    inputs: Tensor  # (n, ...)
    labels: Tensor  # (n,) codes of classes, or numbers
    groups: Tensor  # (n,) codes
    weights: Tensor | None = None  # (n,)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: "Tensor | slice") -> "Rows":
        weights = None if self.weights is None else self.weights[rows]
        return Rows(self.inputs[rows], self.labels[rows], self.groups[rows], weights)

    def to(self, device: torch.device | str) -> "Rows":
        """Return the rows on another device."""
        weights = None if self.weights is None else self.weights.to(device)
        return Rows(self.inputs.to(device), self.labels.to(device), self.groups.to(device), weights)
