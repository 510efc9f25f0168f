"""Any model as a score that can be explained: what evaluation and audits need of it, and nothing else."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gcig._validation import InputError, check_features
from gcig.core.modes import Score, evaluating

__all__ = ["AdaptedModel", "adapt", "call_with_groups", "to_tensor"]

Rows = NDArray[np.floating[Any]]
CHUNK_ROWS = 65_536


@dataclass(frozen=True, kw_only=True, eq=False)
class AdaptedModel(ABC):
    """A model behind one interface.

    Attributes
    ----------
    model : the model itself.
    module : torch module over encoded rows, (n, p) -> (n,) logits: what is explained.
    columns : names of the p encoded columns.
    origin : (p,) index into ``original_names`` of the column that each encoded column came from.
    original_names : names of the columns as the user gave them.
    classes : the two class labels in order (the second is the positive one), or None where not known.
    groups : names of the groups that the model was trained with, or None.
    baselines : (2, groups, p) means of the training rows per label and group, or None.
    threshold : probability from which a row is predicted 1; NaN where the model decides otherwise.
    probabilistic : whether ``predict_proba`` is defined.
    """

    model: Any
    module: nn.Module
    columns: tuple[str, ...]
    origin: NDArray[np.int64]
    original_names: tuple[str, ...]
    classes: NDArray[Any] | None = None
    groups: tuple[str, ...] | None = None
    baselines: Rows | None = None
    threshold: float = 0.5
    probabilistic: bool = True

    @abstractmethod
    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:
        """Rows as ``module`` takes them, (n, p)."""

    @abstractmethod
    def predict(self, X: Any, sensitive_features: Any = None) -> NDArray[np.int64]:
        """Predictions of the model's own decision rule, as 0 and 1: positions in ``classes``."""

    @abstractmethod
    def predict_proba(self, X: Any, sensitive_features: Any = None) -> Rows:
        """Probabilities of the two classes, (n, 2)."""

    def expected_predictions(self, X: Any, sensitive_features: Any = None) -> NDArray[np.float64]:
        """Chance with which each row is predicted 1: 0 or 1, except where the model draws its decisions."""
        return self.predict(X, sensitive_features).astype(np.float64)

    def logits(self, encoded: Rows) -> Rows:
        """Output of ``module`` for encoded rows, in evaluation mode and in chunks: (n,)."""
        chunks = (encoded[i : i + CHUNK_ROWS] for i in range(0, len(encoded), CHUNK_ROWS))
        with evaluating(self.module), torch.no_grad():
            parts = [self.module(to_tensor(chunk, self.module)) for chunk in chunks]
        return torch.cat(parts).cpu().numpy()


@dataclass(frozen=True, kw_only=True, eq=False)
class GcigModel(AdaptedModel):
    """An estimator of this package: it knows its columns, groups and training baselines."""

    @classmethod
    def wrap(cls, model: Any) -> "GcigModel":
        """Read the fitted attributes."""
        if not hasattr(model, "baselines_"):
            raise InputError(f"model: this {type(model).__name__} is not fitted. Call fit(...) first.")
        score, baselines = model.explained_score, model.baselines_
        return cls(
            model=model,
            module=score if isinstance(score, nn.Module) else _Scored(nn.Identity(), score),
            columns=tuple(model.encoder_.encoded_names_),
            origin=np.asarray(model.encoder_.origin_),
            original_names=tuple(model.encoder_.feature_names_in_),
            classes=np.asarray(model.classes_),
            groups=tuple(model.groups_),
            baselines=baselines.cpu().numpy() if isinstance(baselines, Tensor) else np.asarray(baselines),
            threshold=float(getattr(model, "threshold_", np.nan)),
        )

    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:
        return np.asarray(call_with_groups(self.model.encode, X, sensitive_features))

    def predict(self, X: Any, sensitive_features: Any = None) -> NDArray[np.int64]:
        return _codes(call_with_groups(self.model.predict, X, sensitive_features), self.classes)

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> Rows:
        return np.asarray(call_with_groups(self.model.predict_proba, X, sensitive_features))

    def expected_predictions(self, X: Any, sensitive_features: Any = None) -> NDArray[np.float64]:
        if not hasattr(self.model, "expected_predictions"):
            return super().expected_predictions(X, sensitive_features)
        chances = call_with_groups(self.model.expected_predictions, X, sensitive_features)
        return np.asarray(chances, dtype=np.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class TorchModel(AdaptedModel):
    """A torch module over float rows of any shape; rows are flattened, their entries are the columns."""

    @classmethod
    def wrap(cls, model: nn.Module, X: Any, score: Score | None) -> "TorchModel":
        """Learn row shape and column names from ``X``, and try the module on two rows of it."""
        if X is None:
            raise TypeError(
                "X: a torch module does not know its columns. Pass the rows that it is applied to."
            )
        rows, names = _numeric_rows(X, _first_parameter(model).dtype)
        flat = rows.reshape(len(rows), -1)
        steps: list[nn.Module] = [model if score is None else _Scored(model, score)]
        if rows.ndim != 2:
            steps.insert(0, nn.Unflatten(1, rows.shape[1:]))
        if _check_output(nn.Sequential(*steps), flat[[0, -1]]) == 2:
            steps.append(nn.Flatten(0))
        module = steps[0] if len(steps) == 1 else nn.Sequential(*steps)
        # Building a Sequential leaves the mode of its parts alone, and its own flag is not looked at.
        return cls(
            model=model,
            module=module,
            columns=names,
            origin=np.arange(flat.shape[1]),
            original_names=names,
        )

    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:  # noqa: ARG002 (rows are taken as given)
        rows, _ = _numeric_rows(X, _first_parameter(self.module).dtype)
        return rows.reshape(len(rows), -1)

    def predict(self, X: Any, sensitive_features: Any = None) -> NDArray[np.int64]:
        return (self.predict_proba(X, sensitive_features)[:, 1] >= self.threshold).astype(np.int64)

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> Rows:
        positive = torch.sigmoid(torch.as_tensor(self.logits(self.encode(X, sensitive_features)))).numpy()
        return np.stack([1 - positive, positive], axis=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearModel(AdaptedModel):
    """A scikit-learn linear classifier of two classes: its decision function as one torch ``Linear``."""

    @classmethod
    def wrap(cls, model: Any) -> "LinearModel":
        """Copy ``coef_`` and ``intercept_`` in double precision."""
        weights = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
        linear = nn.Linear(weights.shape[1], 1, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weights))
            linear.bias.fill_(float(np.ravel(model.intercept_)[0]))
        named = getattr(model, "feature_names_in_", None)
        names = _default_names(weights.shape[1]) if named is None else tuple(map(str, named))
        return cls(
            model=model,
            module=nn.Sequential(linear, nn.Flatten(0)).requires_grad_(False).eval(),
            columns=names,
            origin=np.arange(len(names)),
            original_names=names,
            classes=np.asarray(model.classes_),
            probabilistic=hasattr(model, "predict_proba"),
            threshold=0.5 if hasattr(model, "predict_proba") else np.nan,
        )

    @staticmethod
    def fits(model: Any) -> bool:
        """Whether the model is linear in its inputs, with one score."""
        shape: tuple[int, ...] = getattr(getattr(model, "coef_", None), "shape", ())
        binary = len(getattr(model, "classes_", ())) == 2
        return binary and shape[:-1] in ((1,), ()) and len(shape) > 0 and hasattr(model, "intercept_")

    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:  # noqa: ARG002 (rows are taken as given)
        return _numeric_rows(X, torch.float64)[0]

    def predict(self, X: Any, sensitive_features: Any = None) -> NDArray[np.int64]:  # noqa: ARG002 (no group needed)
        return _codes(self.model.predict(X), self.classes)

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> Rows:  # noqa: ARG002 (no group needed)
        return np.asarray(self.model.predict_proba(X))


def adapt(model: Any, X: Any = None, *, score: Score | None = None) -> AdaptedModel:
    """What ``evaluate``, ``gcig_score`` and ``audit`` do with a model.

    Parameters
    ----------
    model : an estimator of this package; a torch module over float rows that gives one logit per row; or a
        scikit-learn linear classifier of two classes.
    X : the rows that a torch module is applied to, for its columns' names and the rows' shape; the other
        models know them.
    score : for a torch module with another output: a function from its output to one logit per row.

    Examples
    --------
    >>> adapted = adapt(nn.Linear(3, 1), np.zeros((2, 3), dtype="float32"))
    >>> adapted.columns, adapted.predict_proba(np.zeros((4, 3))).shape
    (('x0', 'x1', 'x2'), (4, 2))
    """
    # Looked up on the class as well: on an unfitted estimator the attribute may raise.
    if any(hasattr(owner, "encode") and hasattr(owner, "explained_score") for owner in (model, type(model))):
        return GcigModel.wrap(model)
    if isinstance(model, nn.Module):
        return TorchModel.wrap(model, X, score)
    if LinearModel.fits(model):
        return LinearModel.wrap(model)
    raise TypeError(
        f"model: GCIG needs a differentiable score, and none is known of a {type(model).__name__}. "
        "Accepted are fitted estimators of gcig, torch modules that give one logit per row, and fitted "
        "scikit-learn linear classifiers of two classes (of a pipeline: the last step, on transformed rows)."
    )


class _Scored(nn.Module):
    """A module followed by a function."""

    def __init__(self, module: nn.Module, score: Score) -> None:
        super().__init__()
        self.module = module
        self.score = score

    def forward(self, rows: Tensor) -> Tensor:
        return self.score(self.module(rows))


def to_tensor(rows: Rows, module: nn.Module) -> Tensor:
    """A copy of ``rows`` in the precision and on the device of the module (arrays may be read-only)."""
    like = _first_parameter(module)
    return torch.tensor(rows, dtype=like.dtype, device=like.device)


def _first_parameter(module: nn.Module) -> Tensor:
    """A tensor whose dtype and device the inputs of the module should have."""
    return next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))


def _check_output(module: nn.Module, rows: Rows) -> int:
    """Number of dimensions (1 or 2) of one logit per row; an error where the output is something else."""
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
                f"model: for 2 rows the module gives an output of {got}, where one logit per row is needed. "
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


def _numeric_rows(X: Any, dtype: torch.dtype) -> tuple[Rows, tuple[str, ...]]:
    """Finite float rows of any shape, and a name for each entry of a row."""
    kind: type[np.floating[Any]] = np.float64 if dtype == torch.float64 else np.float32
    array = X.detach().cpu().numpy() if isinstance(X, Tensor) else X
    if isinstance(array, np.ndarray) and array.ndim > 2:
        rows, names = np.asarray(array, dtype=kind), _default_names(int(np.prod(array.shape[1:])))
    else:
        frame = check_features(array)
        text = [str(name) for name, column in frame.items() if column.dtype.kind not in "biuf"]
        if text:
            raise InputError(f"X: this model takes numbers, and these columns hold none: {', '.join(text)}.")
        rows, names = np.asarray(frame.to_numpy(dtype=kind)), tuple(map(str, frame.columns))
    if not np.isfinite(rows).all():
        raise InputError("X has missing or infinite values, which this model has no rule for: impute them.")
    return rows, names


def _default_names(n: int) -> tuple[str, ...]:
    return tuple(f"x{i}" for i in range(n))


def call_with_groups(method: Callable[..., Any], X: Any, sensitive_features: Any) -> Any:
    """Call a method, with the groups where it takes them."""
    if "sensitive_features" in inspect.signature(method).parameters:
        return method(X, sensitive_features=sensitive_features)
    return method(X)


def _codes(predictions: Any, classes: NDArray[Any] | None) -> NDArray[np.int64]:
    positive = 1 if classes is None else classes[1]
    return np.asarray(np.asarray(predictions) == positive, dtype=np.int64)
