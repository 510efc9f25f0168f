"""Rows with their labels and groups: the input of every loss and metric."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class GroupedBatch:
    """Inputs of shape (n, ...) with binary labels and group codes of shape (n,)."""

    inputs: Tensor
    labels: Tensor
    groups: Tensor

    def __post_init__(self) -> None:
        n = len(self.inputs)
        for name in ("labels", "groups"):
            codes = getattr(self, name)
            if codes.shape != (n,) or codes.dtype != torch.int64:
                raise ValueError(
                    f"{name} must be an int64 tensor of shape ({n},), one code per row, "
                    f"not {codes.dtype} of shape {tuple(codes.shape)}"
                )

    @classmethod
    def join(cls, batches: "Sequence[GroupedBatch]") -> "GroupedBatch":
        """Return the rows of several batches, one after another."""
        return cls(
            *(torch.cat(each) for each in zip(*(vars(batch).values() for batch in batches), strict=True))
        )

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: "Tensor | slice") -> "GroupedBatch":
        return GroupedBatch(self.inputs[rows], self.labels[rows], self.groups[rows])

    def spread(self, count: int) -> "GroupedBatch":
        """Return at most `count` of the rows, evenly spaced, since a table may be sorted."""
        if len(self) <= count:
            return self
        return self[torch.arange(count, device=self.inputs.device) * len(self) // count]

    def to(self, device: torch.device | str) -> "GroupedBatch":
        """Return the batch on another device."""
        return GroupedBatch(self.inputs.to(device), self.labels.to(device), self.groups.to(device))


@dataclass(frozen=True)
class TrainingRows:
    """Training rows: inputs with labels and groups, and the targets of their predictions."""

    rows: GroupedBatch
    targets: Tensor  # (n,) labels as floats, or a teacher's probabilities
    weights: Tensor | None = None  # (n,) the weight of each row in the terms of the loss

    def __len__(self) -> int:
        return len(self.rows)
