"""What all methods share: a network on an encoded table, with scikit-learn's interface."""

from abc import abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from gcig._validation import InputError, check_features, check_labels, match_columns
from gcig.core.definition import Definition
from gcig.core.modules import evaluating, logits
from gcig.core.references import GroupBaselines
from gcig.data.encoding import TableEncoder
from gcig.data.passthrough import PassThrough
from gcig.methods.document import (
    architecture_of,
    check_fits_together,
    history_from_plain,
    history_to_plain,
    parameters_from_plain,
    parameters_to_plain,
    restore_network,
    to_plain,
)
from gcig.methods.explanation import Explanation, explain_rows
from gcig.methods.fitting import describe_divergence, forget_fit, untouched_by_errors
from gcig.methods.own_module import copy_checked
from gcig.methods.parameters import check_parameters
from gcig.methods.prepared import CheckedTable, TrainingData, check_table, training_data
from gcig.methods.threshold import best_f1_threshold
from gcig.models.mlp import MLP, make_mlp
from gcig.persistence import save_folder
from gcig.training.loop import DivergenceError, Outcome
from gcig.training.runtime import (
    isolated_seed,
    own_modes,
    resolve_device,
    resolve_learning_rate,
    seeded_generator,
)

__all__ = ["NetworkClassifier"]

_ROWS_AT_ONCE = 65_536
_NETWORK = "network."  # the tensors of a saved model that are the network's
_ENCODERS: dict[str, type[TableEncoder] | type[PassThrough]] = {
    "TableEncoder": TableEncoder,
    "PassThrough": PassThrough,
}


class NetworkClassifier(ClassifierMixin, BaseEstimator):
    """A classifier with one network over an encoded table; subclasses say how it is trained.

    Subclasses name their parameters in ``__init__`` (scikit-learn reads them from there) and implement
    `_train`. Of their parameters this class reads ``module``, ``preprocessing``, ``hidden_sizes``,
    ``activation``, ``dropout``, ``early_stopping``, ``validation_fraction``, ``threshold``,
    ``class_weight``, ``warm_start``, ``device`` and ``random_state``.

    Attributes
    ----------
    module_ : torch.nn.Module
        The network, (n, p) -> (n,) logits.
    encoder_ : TableEncoder or PassThrough
        From a table to the p columns that the network sees.
    classes_ : array of shape (2,)
        The labels; the second is the positive one.
    groups_ : tuple of str
        Names of the groups in training.
    baselines_ : array of shape (2, groups, p)
        Mean encoded row of every label and group in the training data.
    threshold_ : float
        The probability from which a row is predicted positive.
    history_ : DataFrame
        One row an epoch, for methods that record it.
    """

    method_key: ClassVar[str]
    needs_groups_to_predict: ClassVar[bool] = False
    # For metadata routing: groups go to `fit` without being asked for, and elsewhere where they are needed.
    __metadata_request__fit: ClassVar = {"sensitive_features": True}
    __metadata_request__predict: ClassVar = {"sensitive_features": False}
    __metadata_request__predict_proba: ClassVar = {"sensitive_features": False}
    __metadata_request__decision_function: ClassVar = {"sensitive_features": False}
    __metadata_request__score: ClassVar = {"sensitive_features": False}
    # Stated by a class beside its own `_train`: whether the network is all that is learned there, so that its
    # last good state predicts when training diverged.
    predicts_by_network: ClassVar[bool] = False

    module_: nn.Module
    encoder_: TableEncoder | PassThrough
    classes_: NDArray[Any]
    groups_: tuple[str, ...]
    baselines_: NDArray[np.float32]
    threshold_: float
    diverged_: bool
    history_: pd.DataFrame
    n_epochs_: int

    @abstractmethod
    def _train(self, network: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        """Train the network in place, and set what else the method learns."""

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None) -> Self:
        """Train on a table.

        Parameters
        ----------
        X : table of shape (n, columns)
            pandas, polars, array or list; text, categories, booleans, numbers and missing values.
        y : array of shape (n,)
            Two classes, of any kind.
        sensitive_features : array, Series or DataFrame with n rows
            The group of every row; several columns are crossed.
        sample_weight : array of shape (n,), optional
            What each row counts in the terms of the loss; rows of weight zero are left out. Encoding,
            baselines and what is measured on validation rows count all other rows alike.

        Raises
        ------
        DivergenceError
            When the loss is no longer finite. If an epoch was finished the estimator has its network, and
            predicts; otherwise, and after any other error, it is as it was before.
        """
        self._check_parameters()
        table = check_table(X, y, sensitive_features, sample_weight, self.class_weight)
        named = hasattr(X, "columns") or isinstance(X, Mapping)
        with untouched_by_errors(self):
            diverged = self._fit_checked(table, named=named)
        if diverged is not None:
            raise diverged
        return self

    def _fit_checked(self, table: CheckedTable, *, named: bool) -> DivergenceError | None:
        network = self._network_to_continue(table)
        if network is None:
            forget_fit(self)
            self.encoder_ = self._make_encoder().fit(table.frame)
        encoded = self._encode_training(table)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        device = resolve_device(self.device)
        data = training_data(
            table,
            encoded,
            device=device,
            validation_fraction=self.validation_fraction if self.early_stopping else None,
            seed=seed,
        )
        self.classes_ = np.asarray(table.labels.classes)
        self.groups_ = table.groups.names
        self.n_features_in_ = table.frame.shape[1]
        if named:
            self.feature_names_in_ = np.asarray(self.encoder_.feature_names_in_, dtype=object)
        rows = data.all
        means = GroupBaselines.from_data(rows.inputs, rows.labels, rows.groups, n_groups=data.n_groups)
        self.baselines_ = means.values.cpu().numpy()
        generator = seeded_generator(seed)
        diverged = None
        with isolated_seed(seed, device), own_modes(device):
            if network is None:
                network = self._make_network(encoded.shape[1], generator)
            network = network.to(device)
            try:
                self._train(network, data, generator)
            except DivergenceError as error:
                usable = _network_is_all(type(self)) and error.epoch > 0
                diverged = describe_divergence(error, usable=usable)
                if not usable:
                    raise diverged from error
                self._record(error.outcome)
        self.module_ = network.cpu().eval()
        self.threshold_ = self._choose_threshold(data)
        self.diverged_ = diverged is not None
        return diverged

    # What follows takes `sensitive_features`, so that all methods can be called alike: those that need the
    # groups of new rows override the step that uses them.

    def encode(self, X: Any, *, sensitive_features: Any = None) -> NDArray[np.float32]:  # noqa: ARG002 (one interface)
        """What the network sees of a table: float32 of shape (n, p)."""
        check_is_fitted(self)
        frame = match_columns(check_features(X), self.encoder_.feature_names_in_, model=type(self).__name__)
        return self.encoder_.transform(frame)

    def decision_function(self, X: Any, *, sensitive_features: Any = None) -> NDArray[np.float64]:
        """The logit of each row, shape (n,); positive where the second class is more likely."""
        return self._logits(self.encode(X, sensitive_features=sensitive_features))

    def predict_proba(self, X: Any, *, sensitive_features: Any = None) -> NDArray[np.float64]:
        """Return the probabilities of the two classes, shape (n, 2)."""
        return self.proba_from_encoded(self.encode(X, sensitive_features=sensitive_features))

    def predict(self, X: Any, *, sensitive_features: Any = None) -> NDArray[Any]:
        """The class of each row: the second where its probability is at least `threshold_`.

        Parameters
        ----------
        X : table of shape (n, columns)
        sensitive_features : array, Series or DataFrame with n rows
            The groups of the rows, for methods whose ``needs_groups_to_predict`` is true; the others accept
            them and do not look.
        """
        encoded = self.encode(X, sensitive_features=sensitive_features)
        chances = self.expected_from_encoded(encoded, sensitive_features=sensitive_features)
        return self.classes_[chances.astype(np.int64)]

    def proba_from_encoded(self, encoded: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the probabilities of the two classes for rows that `encode` returned, shape (n, 2)."""
        return _probabilities(self._logits(encoded))

    def expected_from_encoded(
        self,
        encoded: NDArray[np.float32],
        *,
        sensitive_features: Any = None,  # noqa: ARG002 (methods with a rule per group need it)
    ) -> NDArray[np.float64]:
        """Return the probability of deciding for the second class, for rows that `encode` returned.

        It is 0 or 1 unless the method draws its decisions at random. A method with a decision rule of its own
        overrides this function; `predict` and `gcig.evaluate` both call it.
        """
        return (self.proba_from_encoded(encoded)[:, 1] >= self.threshold_).astype(np.float64)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None) -> float:
        """Accuracy of `predict`."""
        decisions = self.predict(X, sensitive_features=sensitive_features)
        return float(accuracy_score(y, decisions, sample_weight=sample_weight))

    @property
    def explained_score(self) -> nn.Module:
        """The differentiable logit of an encoded row that GCIG explains."""
        check_is_fitted(self)
        return self.module_

    def explain(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None, columns: str = "raw"
    ) -> Explanation:
        """The reasons for each row, compared with the typical member of every group.

        Parameters
        ----------
        X : table of shape (n, columns)
        y : array of shape (n,), optional
            The labels whose baselines are used; without them the predicted labels, and the result says so.
        sensitive_features : array, Series or DataFrame with n rows
            As in `predict`.
        columns : {"raw", "original"}
            One attribution for each encoded column, or one for each column of the table (one-hot columns
            added up).
        """
        encoded = self.encode(X, sensitive_features=sensitive_features)
        codes, source = self._labels_to_explain(encoded, y)
        return explain_rows(
            self.explained_score,
            encoded,
            codes,
            self.baselines_,
            self.encoder_,
            definition=Definition(columns=columns),
            groups=self.groups_,
            labels=self.classes_[codes],
            label_source=source,
        )

    def save(self, path: str | Path) -> None:
        """Write the model to a folder of JSON and tensors; `gcig.load` reads it back."""
        check_is_fitted(self)
        if getattr(self, "diverged_", False):
            raise InputError("the last fit diverged, and its model is not saved: fit again first.")
        document, tensors = self._to_document()
        save_folder(path, document, tensors, kind="gcig-model")

    def to_onnx(self, path: str | Path, *, opset: int | None = None) -> None:
        """Write the encoder, the network and the threshold to one ONNX file; see `export_onnx`."""
        from gcig.methods.onnx_export import export_onnx  # which knows this class

        export_onnx(self, path, opset=opset)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.preprocessing == "table"
        tags.classifier_tags.multi_class = False
        tags.non_deterministic = self.random_state is None
        return tags

    # Steps of fit that subclasses may replace.

    def _check_parameters(self) -> None:
        check_parameters(self.get_params(deep=False))

    def _make_encoder(self) -> TableEncoder | PassThrough:
        return TableEncoder() if self.preprocessing == "table" else PassThrough()

    def _encode_training(self, table: CheckedTable) -> NDArray[np.float32]:
        return self.encoder_.transform(table.frame)

    def _make_network(self, n_inputs: int, generator: torch.Generator) -> nn.Module:
        if self.module is None:
            return make_mlp(
                n_inputs, self.hidden_sizes, self.activation, dropout=self.dropout, generator=generator
            )
        return copy_checked(self.module, n_inputs)

    def _network_to_continue(self, table: CheckedTable) -> nn.Module | None:
        """A copy of the present network where `warm_start` says so and it fits the table."""
        if not self.warm_start or not hasattr(self, "module_"):
            return None
        if table.labels.classes != tuple(self.classes_.tolist()):
            raise InputError(
                f"warm_start: y has the classes {table.labels.classes}, but the network was trained for "
                f"{tuple(self.classes_.tolist())}. Set warm_start=False to begin anew."
            )
        if not self._asks_for_these_layers():
            raise InputError(
                "warm_start: hidden_sizes or module ask for other layers than those of the network that was "
                "trained. Set warm_start=False to begin anew."
            )
        return deepcopy(self.module_)

    def _asks_for_these_layers(self) -> bool:
        """Whether the parameters describe the present network; a loaded one may be described by nothing."""
        if self.module is None and not isinstance(self.module_, MLP):
            return True
        network = self._make_network(self.baselines_.shape[-1], seeded_generator(0))
        return [each.shape for each in network.parameters()] == [p.shape for p in self.module_.parameters()]

    def _rate(self, batch_size: int) -> float:
        """The learning rate, which depends on the network where it is ``"auto"``."""
        if self.module is not None:
            return resolve_learning_rate(self.learning_rate, batch_size)
        return resolve_learning_rate(self.learning_rate, batch_size, max(self.hidden_sizes, default=1))

    def _choose_threshold(self, data: TrainingData) -> float:
        if self.threshold != "f1":
            return float(self.threshold)
        rows = data.validation if data.validation is not None else data.training
        scores = torch.from_numpy(self._logits(rows.inputs.cpu().numpy()))
        return best_f1_threshold(torch.sigmoid(scores), rows.labels.cpu())

    def _logits(self, encoded: NDArray[np.float32]) -> NDArray[np.float64]:
        rows = torch.from_numpy(encoded)
        with evaluating(self.module_), torch.no_grad():
            parts = [logits(self.module_, part) for part in rows.split(_ROWS_AT_ONCE)]
        return torch.cat(parts).double().numpy()

    def _labels_to_explain(self, encoded: NDArray[np.float32], y: Any) -> tuple[NDArray[np.int64], str]:
        if y is None:
            positive = self.proba_from_encoded(encoded)[:, 1] >= self.threshold_
            return positive.astype(np.int64), "predicted"
        return check_labels(y, n_rows=len(encoded), classes=tuple(self.classes_.tolist())).codes, "given"

    def _record(self, outcome: Outcome) -> None:
        """Keep the history of training."""
        self.history_ = pd.DataFrame([epoch.to_dict() for epoch in outcome.history])
        self.n_epochs_ = outcome.best_epoch

    # Persistence: plain values and tensors, put together again without running code.

    def _to_document(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        document = {
            "method": self.method_key,
            "parameters": parameters_to_plain(self.get_params(deep=False)),
            "classes": to_plain(self.classes_),
            "groups": list(self.groups_),
            "encoder": self.encoder_.to_dict(),
            "encoder_kind": type(self.encoder_).__name__,
            "threshold": self.threshold_,
            "named_columns": hasattr(self, "feature_names_in_"),
            "network": architecture_of(self.module_),
        }
        if hasattr(self, "history_"):
            document |= {"history": history_to_plain(self.history_), "n_epochs": self.n_epochs_}
        tensors = {f"{_NETWORK}{name}": tensor for name, tensor in self.module_.state_dict().items()}
        return document, {**tensors, "baselines": torch.from_numpy(self.baselines_)}

    @classmethod
    def _from_document(
        cls, document: Mapping[str, Any], tensors: Mapping[str, Tensor], module: nn.Module | None
    ) -> Self:
        model = cls(**parameters_from_plain(document["parameters"]))
        model.encoder_ = _ENCODERS[document["encoder_kind"]].from_dict(document["encoder"])
        model.classes_ = np.asarray(document["classes"])
        model.groups_ = tuple(document["groups"])
        model.baselines_ = tensors["baselines"].numpy()
        model.threshold_ = float(document["threshold"])
        model.diverged_ = False
        model.n_features_in_ = len(model.encoder_.feature_names_in_)
        if document["named_columns"]:
            model.feature_names_in_ = np.asarray(model.encoder_.feature_names_in_, dtype=object)
        if "history" in document:
            model.history_ = history_from_plain(document["history"])
            model.n_epochs_ = int(document["n_epochs"])
        state = {name.removeprefix(_NETWORK): t for name, t in tensors.items() if name.startswith(_NETWORK)}
        model.module_ = restore_network(document["network"], state, module)
        if document["network"] is None:
            model.module = module
        check_fits_together(
            model.module_,
            tensors["baselines"],
            n_classes=len(model.classes_),
            n_groups=len(model.groups_),
            n_inputs=model.encoder_.n_features_out_,
        )
        return model


def _network_is_all(method: type[NetworkClassifier]) -> bool:
    """What the class whose `_train` is used says; one that overrides it may well learn more."""
    trains = next(each for each in method.__mro__ if "_train" in vars(each))
    return bool(vars(trains).get("predicts_by_network", False))


def _probabilities(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    positive = torch.sigmoid(torch.from_numpy(scores)).numpy()
    negative = torch.sigmoid(torch.from_numpy(-scores)).numpy()
    return np.stack([negative, positive], axis=1)
