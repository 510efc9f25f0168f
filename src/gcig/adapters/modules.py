"""Torch modules that map float rows to one logit per row."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gcig._validation import InputError
from gcig.adapters.base import DifferentiableModel, numeric_rows
from gcig.adapters.explainers import Rows, first_parameter, to_tensor
from gcig.core.modules import Score, evaluating


class Scored(nn.Module):
    """A module followed by a function."""

    def __init__(self, module: nn.Module, score: Score) -> None:
        super().__init__()
        self.module = module
        self.score = score

    def forward(self, rows: Tensor) -> Tensor:
        """Apply the function to the module's output."""
        return self.score(self.module(rows))


@dataclass(frozen=True, kw_only=True, eq=False)
class TorchModel(DifferentiableModel):
    """A torch module over float rows of any shape; rows are flattened, and their entries are the columns."""

    kind: str = "torch module"

    @classmethod
    def wrap(cls, model: nn.Module, X: Any, score: Score | None) -> "TorchModel":
        """Learn the row shape and column names from ``X``, and try the module on two of its rows."""
        if X is None:
            raise TypeError(
                "X: a torch module does not know its columns. Pass the rows that it is applied to."
            )
        rows, names = numeric_rows(X, first_parameter(model).dtype)
        flat = rows.reshape(len(rows), -1)
        steps: list[nn.Module] = [model if score is None else Scored(model, score)]
        if rows.ndim != 2:
            steps.insert(0, nn.Unflatten(1, rows.shape[1:]))
        if _check_output(nn.Sequential(*steps), flat[[0, -1]]) == 2:
            steps.append(nn.Flatten(0))
        module = steps[0] if len(steps) == 1 else nn.Sequential(*steps)
        # A new Sequential does not change the mode of its parts.
        return cls(
            model=model,
            module=module,
            columns=names,
            origin=np.arange(flat.shape[1]),
            original_names=names,
        )

    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:  # noqa: ARG002 (rows are taken as given)
        """Return the flattened rows."""
        rows, _ = numeric_rows(X, first_parameter(self.module).dtype)
        return rows.reshape(len(rows), -1)

    def predict(self, X: Any, sensitive_features: Any = None) -> NDArray[np.int64]:
        """Return whether the probability reaches the threshold."""
        return (self.predict_proba(X, sensitive_features)[:, 1] >= self.threshold).astype(np.int64)

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> Rows:
        """Return the sigmoid of the logit, for both classes."""
        positive = torch.sigmoid(torch.as_tensor(self.logits(self.encode(X, sensitive_features)))).numpy()
        return np.stack([1 - positive, positive], axis=1)


def _check_output(module: nn.Module, rows: Rows) -> int:
    """Check that the module gives one logit per row, and return its number of output dimensions, 1 or 2."""
    inputs = to_tensor(rows, module).requires_grad_()
    with evaluating(module), torch.enable_grad():
        output = module(inputs)
        if not isinstance(output, Tensor) or tuple(output.shape) not in ((2,), (2, 1)):
            got = (
                f"shape {tuple(output.shape)}"
                if isinstance(output, Tensor)
                else f"type {type(output).__name__}"
            )
            raise InputError(
                f"model: for 2 rows the module returned an output of {got}, but one logit per row is needed. "
                "Pass score=, a function from output to logit, such as lambda out: out[:, 1] - out[:, 0]."
            )
        gradient = None
        if output.requires_grad:
            (gradient,) = torch.autograd.grad(output.sum(), inputs, allow_unused=True)
    if gradient is None:
        raise InputError(
            "model: the module's output is not differentiable in its input. Remove detach(), no_grad(), "
            "rounding or argmax from its forward, or adapt the part of it that gives the logit."
        )
    return output.ndim
