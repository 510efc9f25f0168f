"""Interface of an adapted model, and the row handling that the adapters share."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, is_regressor
from sklearn.utils.validation import _num_samples
from torch import Tensor, nn

from gcig._arguments import InputError, listed
from gcig._arrays import Codes, Floats, Rows
from gcig.adapters.tensors import to_tensor
from gcig.core.modules import evaluating
from gcig.records.formatting import counted
from gcig.tables.check import check_features

_CHUNK_ROWS = 65_536  # rows per forward pass
_ROUNDING = 1e-6  # probabilities may leave [0, 1] by the rounding error of float32
Task = Literal["binary", "classes", "number"]
_SHAPES = {
    "binary": "probabilities of shape ({n},) or ({n}, 2)",
    "classes": "probabilities of shape ({n}, classes)",
    "number": "numbers of shape ({n},)",
}


@dataclass(frozen=True, eq=False)
class Outputs:
    """Scores and decisions of a model for some rows.

    ``scores`` are probabilities of label 1, (m,), or of every class, (m, K); or scores of any kind if the
    model gives no probabilities, such as predicted numbers. ``decisions`` (m,) are positions of classes, the
    probability of 1 if they are drawn at random, or predicted numbers.
    """

    scores: Rows
    decisions: Floats

    @property
    def codes(self) -> NDArray[np.int64]:
        """The decisions between classes as positions, (m,); the likelier one if they are drawn at random."""
        return np.floor(self.decisions + 0.5).astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AdaptedModel(ABC):
    """A model behind the one interface that evaluation and audits use.

    ``task`` says what it predicts: one of two classes (``"binary"``), one of several (``"classes"``), or a
    number (``"number"``).
    """

    model: Any
    task: Task = "binary"
    columns: tuple[str, ...]  # names of the columns that attributions are given for
    origin: NDArray[np.int64]  # for each of them, the position in `original_names` of its original column
    original_names: tuple[str, ...]  # names of the columns of the user's table
    classes: NDArray[Any] | None = None  # of two, the second one is positive; None if unknown or for numbers
    groups: tuple[str, ...] | None = None  # names of the groups in training
    baselines: Rows | None = None  # (2, groups, p) means of the encoded training rows per label and group
    baseline_counts: Codes | None = None  # (2, groups) numbers of these rows; None if unknown
    blocks: NDArray[np.int64] | None = None  # for each column, its original column or dummy block in training
    threshold: float = 0.5  # probability from which a row is predicted 1; NaN if decided by another rule
    probabilistic: bool = True  # whether scores are probabilities
    kind: str = "model"  # description for reports

    def __repr__(self) -> str:
        columns = counted(len(self.original_names), "column")
        return f"<{type(self).__name__}: {self.kind}, {columns}, explained by {self.explanation}>"

    @property
    def input_origin(self) -> NDArray[np.int64]:
        """For each column of encoded rows, the index into ``original_names`` of the column it came from."""
        return self.origin

    @property
    def explanation(self) -> str:
        """How the model is explained by default."""
        return "Shapley values"

    @abstractmethod
    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:
        """Return the rows in the form that is explained, (n, p)."""

    @abstractmethod
    def scores(self, X: Any, sensitive_features: Any = None, encoded: Rows | None = None) -> Rows:
        """Return probabilities of label 1, (n,), or of every class, (n, K), or else scores of the same shape.

        ``encoded`` are the same rows encoded, if they are known.
        """

    def decisions(self, X: Any, sensitive_features: Any, encoded: Rows, scores: Rows) -> Floats:  # noqa: ARG002 (for other rules)
        """Return the model's own decisions, (n,), as in `Outputs`.

        By default a decision is positive if the score reaches the threshold; of several classes, it is the
        one with the highest score; a number is its own decision.
        """
        if self.task == "classes":
            return np.asarray(scores.argmax(axis=1), dtype=np.float64)
        decisions = scores if self.task == "number" else scores >= self.threshold
        return np.asarray(decisions, dtype=np.float64)

    @abstractmethod
    def outputs(self, encoded: Rows) -> Rows:
        """Return the explained outputs of encoded rows.

        The logits of label 1, (n,); one logit or log probability per class, (n, K); or numbers, (n,).
        """

    def predict(
        self, X: Any, sensitive_features: Any = None, *, encoded: Rows, threshold: float | None = None
    ) -> Outputs:
        """Return scores and decisions for the rows of ``X``, whose encoded form is ``encoded``.

        ``threshold``, a probability, replaces the model's own decision rule.
        """
        name = type(self.model).__name__
        if threshold is not None and self.task != "binary":
            raise InputError(f"is for models of two classes, but this {name} is not.", argument="threshold")
        if threshold is not None and not self.probabilistic:
            raise InputError(
                f"threshold is a probability, but this {name} gives no probabilities. Leave threshold out; "
                "the model's own decisions are used."
            )
        scores = self.scores(X, sensitive_features, encoded)
        check_scores(scores, self.model)
        if threshold is not None:
            return Outputs(scores, (scores >= threshold).astype(np.float64))
        return Outputs(scores, self.decisions(X, sensitive_features, encoded, scores))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DifferentiableModel(AdaptedModel):
    """A model whose outputs are those of a torch module over encoded rows, (n, p) -> (n,) or (n, K)."""

    module: nn.Module

    @property
    def explanation(self) -> str:
        """Integrated gradients of the module."""
        return "integrated gradients"

    def outputs(self, encoded: Rows) -> Rows:
        """Return the output of ``module`` in evaluation mode; rows go through it in chunks."""
        chunks = (encoded[i : i + _CHUNK_ROWS] for i in range(0, len(encoded), _CHUNK_ROWS))
        with evaluating(self.module), torch.no_grad():
            parts = [self.module(to_tensor(chunk, self.module)) for chunk in chunks]
        return torch.cat(parts).cpu().numpy()

    def scores(self, X: Any, sensitive_features: Any = None, encoded: Rows | None = None) -> Rows:
        """Return the probabilities of the logits, or the predicted numbers."""
        rows = self.encode(X, sensitive_features) if encoded is None else encoded
        found = torch.as_tensor(self.outputs(rows))
        if self.task == "number":
            return found.numpy()
        return (torch.sigmoid(found) if self.task == "binary" else found.softmax(dim=1)).numpy()


def numeric_rows(X: Any, dtype: torch.dtype, *, prepared: bool = False) -> tuple[Rows, tuple[str, ...]]:
    """Return finite float rows of any shape, and one name per entry of a row.

    ``prepared`` if they are the result of ``preprocess``, which errors then name.
    """
    kind: type[np.floating[Any]] = np.float64 if dtype == torch.float64 else np.float32
    array = X.detach().cpu().numpy() if isinstance(X, Tensor) else X
    if isinstance(array, np.ndarray) and array.ndim > 2:
        rows, names = np.asarray(array, dtype=kind), default_names(int(np.prod(array.shape[1:])))
    else:
        frame = check_features(array)
        text = [str(name) for name, column in frame.items() if column.dtype.kind not in "biuf"]
        if text and prepared:
            raise InputError(
                f"returned columns that are not numeric: {listed(text)}. Return numbers.",
                argument="preprocess",
            )
        if text:
            raise InputError(
                f"has columns that are not numeric: {listed(text)}, but this model takes numbers. Leave them "
                "out (--drop) if they are not inputs; otherwise encode them, pass a pipeline that does, or "
                "for a torch module pass preprocess=, a function or a fitted transformer from the table to "
                "its inputs.",
                argument="X",
            )
        rows, names = np.asarray(frame.to_numpy(dtype=kind)), tuple(map(str, frame.columns))
    finite = np.asarray(np.isfinite(rows).reshape(len(rows), -1).all(axis=0))
    if not finite.all():
        bad = [name for name, good in zip(names, finite, strict=True) if not good]
        if prepared:
            raise InputError(
                f"returned missing or infinite values in {listed(bad)}. Impute them there.",
                argument="preprocess",
            )
        raise InputError(
            f"has missing or infinite values in {listed(bad)}, which this model cannot process. Impute "
            "them first, in a pipeline or, for a torch module, in preprocess=.",
            argument="X",
        )
    return rows, names


def default_names(n: int) -> tuple[str, ...]:
    """Return names for columns that came without."""
    return tuple(f"x{i}" for i in range(n))


def call_with_groups(method: Callable[..., Any], X: Any, sensitive_features: Any) -> Any:
    """Call a method, passing the groups if its signature takes them."""
    if "sensitive_features" in inspect.signature(method).parameters:
        return method(X, sensitive_features=sensitive_features)
    return method(X)


def class_codes(predictions: Any, classes: NDArray[Any] | None) -> Floats:
    """Return the positions of predicted classes; they are 0 and 1 if the classes are unknown."""
    known = np.arange(2) if classes is None else classes
    places = (np.asarray(predictions).reshape(-1, 1) == known).argmax(axis=1)
    return np.asarray(places, dtype=np.float64)


def last_step(model: Any) -> Any:
    """Return the last step of a pipeline, or the model itself."""
    return model.steps[-1][1] if hasattr(model, "steps") else model


def is_regression(model: Any) -> bool:
    """Return whether an estimator predicts numbers."""
    if isinstance(model, BaseEstimator):
        return bool(is_regressor(model))
    return getattr(model, "_estimator_type", None) == "regressor"  # CatBoost


def call_model(method: Callable[[Any], Any], X: Any, model: str) -> Any:
    """Call a third-party model; if it fails, raise an error that names the columns with missing entries."""
    try:
        return method(X)
    except (InputError, MemoryError):
        raise
    except OSError as error:  # such as an error of HTTP
        raise InputError(
            f"model: the {model} failed on these rows ({type(error).__name__}). If it calls a service, "
            "repeat failed calls and keep answers: docs/howto/audit_foreign_model.rst shows how."
        ) from error
    except Exception as error:  # each library has its own errors, whose messages may quote entries
        raise InputError(
            f"model: the {model} failed on these rows ({type(error).__name__}).{_blanks(X)} Pass the columns "
            "and types that it was trained with, with missing entries filled in as in training, or wrap the "
            "model in a function that prepares them."
        ) from error


def _blanks(X: Any) -> str:
    """Name the columns of a table that have missing entries."""
    frame = check_features(X) if getattr(X, "ndim", 2) == 2 else None
    names = [] if frame is None else [str(name) for name in frame if frame[name].isna().any()]
    return f" Columns with missing entries: {listed(names)}." if names else ""


def check_scores(scores: Rows, model: object) -> None:
    """Raise an error if scores are NaN: every decision about these rows would be "no"."""
    if missing := _count_rows(np.isnan(scores)):
        raise InputError(
            f"model: {missing} of {len(scores)} outputs of the {type(model).__name__} are NaN, "
            "because its weights or the entries of these rows are too large. Check both, and train the model "
            "again if its weights are wrong."
        )


def check_answers(output: Any, X: Any, model: str, task: Task = "binary") -> Floats:
    """Return a model's answers for rows: probabilities (n,) of label 1 or (n, K) of classes, or numbers (n,).

    Two classes may come as (n,), (n, 1) or (n, 2), numbers as (n,) or (n, 1).
    """
    found, n_rows = np.asarray(output, dtype=np.float64), _num_samples(X)
    if task != "classes" and found.shape in ((n_rows, 1), (n_rows, 2))[: 1 + (task == "binary")]:
        found = found[:, -1]
    if found.ndim != 1 + (task == "classes") or len(found) != n_rows:
        raise InputError(
            f"model: for {n_rows} rows the {model} returned an output of shape {found.shape}, but "
            f"{_SHAPES[task].format(n=n_rows)} are needed. Wrap the model in a function that returns them. "
            "For several classes or numbers, call gcig.adapt(model, X, task='classes') or task='number'."
        )
    if missing := _count_rows(np.isnan(found)):
        raise InputError(
            f"model: {missing} of {n_rows} outputs of the {model} are missing.{_blanks(X)} Fill in missing "
            "entries as in training, or wrap the model in a function that does."
        )
    if task == "number":
        return found
    if outside := _count_rows((found < -_ROUNDING) | (found > 1 + _ROUNDING)):
        raise InputError(
            f"model: {outside} of {n_rows} outputs of the {model} are outside [0, 1], but probabilities are "
            "needed. If they are logits, export the model with a sigmoid at its end, or wrap it in a "
            "function that turns its output into probabilities."
        )
    return np.clip(found, 0.0, 1.0)


def _count_rows(wrong: NDArray[np.bool_]) -> int:
    """Return the number of rows (n,) or (n, K) with an entry that is wrong."""
    return int(np.count_nonzero(wrong.reshape(len(wrong), -1).any(axis=1)))
