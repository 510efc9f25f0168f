"""Rows with their labels and groups: what every loss and metric of the core is computed on."""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["GroupedBatch"]


@dataclass(frozen=True)
class GroupedBatch:
    """Inputs of shape (n, ...) with binary labels and group codes of shape (n,).

    >>> batch = GroupedBatch(torch.zeros(3, 2), torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]))
    >>> len(batch), len(batch[:2]), batch.spread(2).groups
    (3, 2, tensor([0, 0]))
    """

    inputs: Tensor
    labels: Tensor
    groups: Tensor

    def __post_init__(self) -> None:
        n = len(self.inputs)
        for name in ("labels", "groups"):
            codes = getattr(self, name)
            if codes.shape != (n,) or codes.dtype != torch.int64:
                raise ValueError(
                    f"{name} must be an int64 tensor of shape ({n},), one code a row, "
                    f"not {codes.dtype} of shape {tuple(codes.shape)}"
                )

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: "Tensor | slice") -> "GroupedBatch":
        return GroupedBatch(self.inputs[rows], self.labels[rows], self.groups[rows])

    def spread(self, count: int) -> "GroupedBatch":
        """At most `count` of the rows, at even distances: a table may be sorted."""
        if len(self) <= count:
            return self
        return self[torch.arange(count, device=self.inputs.device) * len(self) // count]

    def to(self, device: torch.device | str) -> "GroupedBatch":
        """The batch on another device."""
        return GroupedBatch(self.inputs.to(device), self.labels.to(device), self.groups.to(device))
