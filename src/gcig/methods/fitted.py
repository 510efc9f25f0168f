"""What a fitted network does, whatever it was trained by: encode, predict, explain, save and export."""

import copyreg
from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.validation import check_is_fitted
from torch import nn

from gcig._arguments import InputError
from gcig._arrays import Codes, Encoded, Floats
from gcig.adapters.base import check_scores
from gcig.core.task import Task
from gcig.methods.explanation import Explanation, explain_rows
from gcig.methods.saving import portable_state, restore_state, save_model
from gcig.tables.check import Labels, check_features, check_labels, check_numbers, match_columns
from gcig.tables.encoding import TableEncoder
from gcig.tables.files import CsvFormat
from gcig.training.batches import all_outputs


class FittedNetwork(BaseEstimator):
    """An encoder and a network, and the other attributes that `fit` sets.

    All methods take `sensitive_features`, so callers can treat estimators alike; a method that needs the
    groups of new rows overrides the step that uses them.
    """

    # Annotations in the estimators would declare parameters.
    module_: nn.Module
    encoder_: TableEncoder
    task_: Task
    groups_: tuple[str, ...]
    baselines_: Encoded
    cell_sizes_: Codes
    blocks_: Codes
    protected_columns_: tuple[str, ...]
    training_sketch_: Codes
    diverged_: bool
    history_: pd.DataFrame
    n_epochs_: int
    csv_format_: CsvFormat
    favourable_: Any
    group_names_: dict[str, str]
    column_kinds_: dict[str, str]

    def encode(self, X: Any, *, sensitive_features: Any = None) -> Encoded:  # noqa: ARG002 (one interface)
        """Return what the network sees of a table, float32 of shape (n, p)."""
        check_is_fitted(self)
        frame = match_columns(check_features(X), self.encoder_.feature_names_in_, model=type(self).__name__)
        return self.encoder_.encode(frame)

    def outputs_from_encoded(self, encoded: Encoded) -> Floats:
        """Return the network's outputs (n, K) for rows that `encode` returned."""
        found: Floats = all_outputs(self.module_, torch.from_numpy(encoded)).double().numpy()
        check_scores(found, self)
        return found

    @property
    def explained_score(self) -> nn.Module:
        """The network whose outputs are explained."""
        check_is_fitted(self)
        return self.module_

    def explain(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None, columns: str = "original"
    ) -> Explanation:
        """Explain each row by comparing it with the typical member of every group.

        Parameters
        ----------
        X : table of shape (n, columns)
        y : array of shape (n,), optional
            The labels whose baselines are used; by default the predicted labels, and the result says so.
        sensitive_features : array, Series or DataFrame with n rows
            As in `predict`.
        columns : {"original", "raw"}
            One attribution per column of the table (the columns of a one-hot block, and dummy columns of one
            category, summed), or one per encoded column.
        """
        encoded = self.encode(X, sensitive_features=sensitive_features)
        labels, source = self._labels_to_explain(encoded, y)
        return explain_rows(self, encoded, labels, columns=columns, label_source=source)

    def save(self, path: str | Path) -> None:
        """Write the model to a folder of JSON and tensors, which `gcig.load` reads; see
        :doc:`/saved_models`.
        """
        check_is_fitted(self)
        if getattr(self, "diverged_", False):
            raise InputError("the last fit diverged, and its model is not saved: fit again first.")
        save_model(self, path)

    def check_private(self) -> None:
        """Raise a `PersistenceError` if the saved model would hold records of single people."""

    def check_learned(self) -> None:
        """Raise a `ValueError` if a loaded model has learned values that no fit gives.

        Methods whose predictions depend on other learned values override this, because files can be edited.
        """

    def to_onnx(self, path: str | Path, *, opset: int | None = None) -> None:
        """Write the encoder, the network and the decision rule to one ONNX file; see `export_onnx`."""
        try:
            from gcig.methods.onnx_export import export_onnx  # which imports this class
        except ModuleNotFoundError as error:
            raise ImportError(
                "export to ONNX needs onnx, which is not installed: pip install 'gcig[onnx]'."
            ) from error
        export_onnx(self, path, opset=opset)

    # skops reads `__getstate__` and stores neither code nor pickles: it gets what `save` writes. pickle and
    # copy take the object as it is, with networks and teachers of any kind.

    def __reduce_ex__(self, protocol: Any) -> Any:
        return copyreg.__newobj__, (type(self),), super().__getstate__()  # type: ignore[attr-defined]

    def __getstate__(self) -> Any:
        return portable_state(self) if hasattr(self, "module_") else super().__getstate__()

    def __setstate__(self, state: Any) -> None:
        if "gcig_document" in state:
            restore_state(self, state)
        else:
            super().__setstate__(state)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_")

    @abstractmethod
    def _labels_to_explain(self, encoded: Encoded, y: Any) -> tuple[NDArray[Any], str]:
        """Return labels as the task has them, and whether they were given or predicted."""


class FittedClassifier(FittedNetwork):
    """The decisions and probabilities of a classifier."""

    classes_: NDArray[Any]
    threshold_: float

    def decision_function(self, X: Any, *, sensitive_features: Any = None) -> Floats:
        """Return the logit of each row, (n,), positive if the second class is more likely; or (n, K)."""
        outputs = self.outputs_from_encoded(self.encode(X, sensitive_features=sensitive_features))
        return outputs[:, 0] if self.task_.key == "binary" else outputs

    def predict_proba(self, X: Any, *, sensitive_features: Any = None) -> Floats:
        """Return the probabilities of the classes, shape (n, K)."""
        return self.proba_from_encoded(self.encode(X, sensitive_features=sensitive_features))

    def predict(self, X: Any, *, sensitive_features: Any = None) -> NDArray[Any]:
        """Return the class of each row.

        Of two classes, it is the second if its probability is at least `threshold_`; of more, the most
        probable one.

        Parameters
        ----------
        X : table of shape (n, columns)
            As in `fit`; a dict of values is one row.
        sensitive_features : array, Series or DataFrame with n rows
            The groups of the rows, for methods whose ``needs_groups_to_predict`` is true; the others ignore
            them.
        """
        encoded = self.encode(X, sensitive_features=sensitive_features)
        if self.task_.key != "binary":
            found: NDArray[Any] = self.classes_[self.proba_from_encoded(encoded).argmax(axis=1)]
            return found
        positive = self.expected_from_encoded(encoded, sensitive_features=sensitive_features)
        return self.classes_[positive.astype(np.int64)]

    def proba_from_encoded(self, encoded: Encoded) -> Floats:
        """Return the probabilities of the classes for rows that `encode` returned, shape (n, K)."""
        outputs = torch.from_numpy(self.outputs_from_encoded(encoded))
        if self.task_.key != "binary":
            return outputs.softmax(1).numpy()
        return torch.cat([torch.sigmoid(-outputs), torch.sigmoid(outputs)], dim=1).numpy()

    def expected_from_encoded(self, encoded: Encoded, *, sensitive_features: Any = None) -> Floats:  # noqa: ARG002 (methods with a rule per group need it)
        """Return the probability of deciding for the second of two classes, for encoded rows.

        It is 0 or 1 unless the method draws its decisions at random. A method with a decision rule of its own
        overrides this function; `predict` and `gcig.evaluate` both call it.
        """
        return (self.proba_from_encoded(encoded)[:, 1] >= self.threshold_).astype(np.float64)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None) -> float:
        """Return the accuracy of `predict`."""
        decisions = self.predict(X, sensitive_features=sensitive_features)
        return float(accuracy_score(y, decisions, sample_weight=sample_weight))

    def _labels_to_explain(self, encoded: Encoded, y: Any) -> tuple[NDArray[Any], str]:
        if y is None:
            probabilities = self.proba_from_encoded(encoded)
            if self.task_.key == "binary":
                return (probabilities[:, 1] >= self.threshold_).astype(np.int64), "predicted"
            return probabilities.argmax(axis=1), "predicted"
        return self.check_labels(y, n_rows=len(encoded)).codes, "given"

    def check_labels(self, y: Any, *, n_rows: int) -> Labels:
        """Check labels of new rows against the classes of training."""
        return check_labels(y, n_rows=n_rows, classes=tuple(self.classes_.tolist()))


class FittedRegressor(FittedNetwork):
    """The predictions of a regressor."""

    def predict(self, X: Any, *, sensitive_features: Any = None) -> Floats:
        """Return the prediction for each row."""
        return self.outputs_from_encoded(self.encode(X, sensitive_features=sensitive_features))[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None) -> float:
        """Return R2 of `predict`."""
        predicted = self.predict(X, sensitive_features=sensitive_features)
        return float(r2_score(y, predicted, sample_weight=sample_weight))

    def _labels_to_explain(self, encoded: Encoded, y: Any) -> tuple[NDArray[Any], str]:
        if y is None:
            return self.outputs_from_encoded(encoded)[:, 0], "predicted"
        return self.check_labels(y, n_rows=len(encoded)).codes, "given"

    def check_labels(self, y: Any, *, n_rows: int) -> Labels:
        """Check labels of new rows."""
        return check_numbers(y, n_rows=n_rows)
