"""Torch modules that map float rows to one logit or number per row, or to one logit per class."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gcig._arguments import InputError
from gcig._arrays import Rows
from gcig.adapters.base import DifferentiableModel, Task, default_names, numeric_rows
from gcig.adapters.origin import column_origin
from gcig.adapters.tensors import first_parameter, to_tensor
from gcig.core.columns import spread_origin
from gcig.core.modules import Score, evaluating
from gcig.tables.check import check_features

Preprocess = Callable[[Any], Any]


class Scored(nn.Module):
    """A module followed by a function."""

    def __init__(self, module: nn.Module, score: Score) -> None:
        super().__init__()
        self.module = module
        self.score = score

    def forward(self, rows: Tensor) -> Tensor:
        """Apply the function to the module's output."""
        return self.score(self.module(rows))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TorchModel(DifferentiableModel):
    """A torch module over float rows of any shape; rows are flattened, and their entries are the columns.

    ``preprocess`` turns a table into these rows; None if the module takes the table's numbers themselves.
    """

    kind: str = "torch module"
    preprocess: Preprocess | None = None

    @classmethod
    def wrap(
        cls,
        model: nn.Module,
        X: Any,
        score: Score | None,
        *,
        task: Task | None = None,
        preprocess: Any = None,
        origin: Any = None,
        original_names: Sequence[str] | None = None,
    ) -> "TorchModel":
        """Learn the row shape and column names from ``X``, and try the module on two of its rows."""
        if X is None:
            raise TypeError(
                "X: a torch module does not know its columns. Pass the rows that it is applied to."
            )
        prepare = getattr(preprocess, "transform", preprocess)
        rows, names = _numeric(X, prepare, model)
        flat = rows.reshape(len(rows), -1)
        steps: list[nn.Module] = [model if score is None else Scored(model, score)]
        if rows.ndim != 2:
            steps.insert(0, nn.Unflatten(1, rows.shape[1:]))
        exported = any(isinstance(part, torch.fx.GraphModule) for part in model.modules())
        fixed = " If it was exported for a fixed number of rows, use dynamic_shapes=({0: Dim.AUTO},)."
        width = check_output(
            nn.Sequential(*steps),
            flat[[0, -1]],
            argument="model",
            columns="Pass the columns that it was trained with (the shell leaves out others with --drop), or "
            f"preprocess=, a function from the table to the module's inputs.{fixed if exported else ''}",
            score="Pass score=, a function from output to logit, such as lambda out: out[:, 1] - out[:, 0].",
            least_classes=None if task in ("binary", "number") else 2 if task == "classes" else 3,
        )
        if width == 1:
            steps.append(nn.Flatten(0))
        if task == "classes" and not width > 1:
            raise InputError(
                "is 'classes', but the module gives one output per row. Give it one logit per class.",
                argument="task",
            )
        module = steps[0] if len(steps) == 1 else nn.Sequential(*steps)
        if origin is None:
            groups, originals = _original_columns(preprocess, X, names)
        else:
            groups = spread_origin(torch.as_tensor(origin).cpu(), torch.Size(rows.shape[1:])).numpy()
            originals = default_names(int(groups.max()) + 1)
        if original_names is not None:
            originals = _checked_names(original_names, len(originals))
        # A new Sequential does not change the mode of its parts.
        return cls(
            model=model,
            task=task or ("classes" if width > 1 else "binary"),
            probabilistic=task != "number",
            threshold=0.5 if task != "number" else np.nan,
            module=module,
            columns=names,
            origin=groups,
            original_names=originals,
            blocks=None if origin is None else groups,  # no dummy columns are looked for
            preprocess=prepare,
        )

    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:  # noqa: ARG002 (rows are taken as given)
        """Return the flattened rows, preprocessed."""
        rows, _ = _numeric(X, self.preprocess, self.module)
        return rows.reshape(len(rows), -1)


def _numeric(X: Any, prepare: Preprocess | None, module: nn.Module) -> tuple[Rows, tuple[str, ...]]:
    """Return the rows that a module takes, and the names of their entries."""
    dtype = first_parameter(module).dtype
    return numeric_rows(_prepared(X, prepare), dtype, prepared=prepare is not None)


def _prepared(X: Any, prepare: Preprocess | None) -> Any:
    """Apply the preprocessing, and check that it returns one row of numbers per row."""
    if prepare is None:
        return X
    try:
        found = prepare(X)
    except InputError:
        raise
    except Exception as error:  # the caller's own code may raise anything
        raise InputError(
            f"failed on these rows ({type(error).__name__}: {error}). Call it on X to see where.",
            argument="preprocess",
        ) from error
    found = found.toarray() if hasattr(found, "toarray") else found
    found = found.detach().cpu().numpy() if isinstance(found, Tensor) else found
    if not hasattr(found, "shape") or len(found) != len(X):
        got = f"{len(found)} rows" if hasattr(found, "__len__") else f"a {type(found).__name__}"
        raise InputError(
            f"returned {got} for {len(X)} rows, but one row of numbers per row is needed. Return an array, a "
            "tensor or a table with as many rows.",
            argument="preprocess",
        )
    return found


def _original_columns(
    preprocess: Any, X: Any, names: tuple[str, ...]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the column of the table that each entry of a row came from, if that can be determined."""
    if hasattr(preprocess, "transform"):
        table = check_features(X)
        origin = column_origin(preprocess, table.shape[1])
        if origin is not None and len(origin) == len(names):
            return origin, tuple(map(str, table.columns))
    return np.arange(len(names)), names


def _checked_names(names: Sequence[str], n_groups: int) -> tuple[str, ...]:
    if isinstance(names, str) or len(names) != n_groups or len(set(names)) < n_groups:
        raise InputError(
            f"must be {n_groups} different names, one per group of inputs.", argument="original_names"
        )
    return tuple(map(str, names))


def check_output(
    module: nn.Module,
    rows: Rows,
    *,
    argument: str,
    columns: str,
    score: str,
    least_classes: int | None = None,
) -> int:
    """Check that a module gives one differentiable logit per row; return the width of its output.

    The width is 0 for the shape (n,), and K for (n, K). Several logits per row, one per class, are accepted
    if there are `least_classes` or more. Messages name the module by ``argument``. ``columns`` and ``score``
    say what to do if the module does not take the rows, and if it does not give one logit per row.
    """
    inputs = to_tensor(rows, module).requires_grad_()
    with evaluating(module), torch.enable_grad():
        try:
            output = module(inputs)
        except Exception as error:  # a module may raise anything
            raise InputError(
                f"does not take rows of {rows.shape[1]} numbers ({type(error).__name__}: "
                f"{str(error).rstrip('.')}). {columns}",
                argument=argument,
            ) from error
        found = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        several = isinstance(output, Tensor) and output.ndim == 2 and len(output) == len(rows)
        several = several and least_classes is not None and output.shape[1] >= least_classes
        if not several and found not in ((len(rows),), (len(rows), 1)):
            raise InputError(
                f"must give one logit per row, shape (n,) or (n, 1), but gave {found} for {len(rows)} rows. "
                f"{score}",
                argument=argument,
            )
        gradient = None
        if output.requires_grad:
            (gradient,) = torch.autograd.grad(output.sum(), inputs, allow_unused=True)
    if gradient is None:
        raise InputError(
            "has an output that is not differentiable in its input. Remove detach(), no_grad(), rounding or "
            "argmax from its forward, or use the part of it that gives the logit.",
            argument=argument,
        )
    return 0 if output.ndim == 1 else int(output.shape[1])
