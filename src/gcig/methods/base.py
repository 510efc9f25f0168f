"""What all methods share: a network on an encoded table, with scikit-learn's interface."""

from abc import abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from gcig._validation import InputError, check_features, check_labels, match_columns
from gcig.core.attribution import attributions
from gcig.core.baselines import GroupBaselines
from gcig.core.disparity import Definition, defined_rows, disparity, sum_blocks
from gcig.core.modes import evaluating, logits
from gcig.data.encoding import TableEncoder
from gcig.data.passthrough import PassThrough
from gcig.methods.explanation import Explanation
from gcig.methods.prepared import CheckedTable, TrainingData, check_table, training_data
from gcig.models.mlp import MLP, make_mlp, mlp_from_architecture
from gcig.persistence import save_folder
from gcig.training import resolve_device, seeded_generator

__all__ = ["NetworkClassifier"]

_ROWS_AT_ONCE = 65_536


class NetworkClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
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
    """

    method_key: ClassVar[str]
    needs_groups_to_predict: ClassVar[bool] = False

    module_: nn.Module
    encoder_: TableEncoder | PassThrough
    classes_: NDArray[Any]
    groups_: tuple[str, ...]
    baselines_: NDArray[np.float32]
    threshold_: float

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
        """
        self._check_parameters()
        table = check_table(X, y, sensitive_features, sample_weight, self.class_weight)
        continuing = bool(self.warm_start) and hasattr(self, "module_")
        if not continuing:
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
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.asarray(self.encoder_.feature_names_in_, dtype=object)
        rows = data.all
        means = GroupBaselines.from_data(rows.inputs, rows.labels, rows.groups, n_groups=data.n_groups)
        self.baselines_ = means.values.cpu().numpy()
        generator = seeded_generator(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = self.module_ if continuing else self._make_network(encoded.shape[1], generator)
            network = network.to(device)
            self._train(network, data, generator)
        self.module_ = network.cpu().eval()
        self.threshold_ = self._choose_threshold(data)
        return self

    def encode(self, X: Any) -> NDArray[np.float32]:
        """What the network sees of a table: float32 of shape (n, p)."""
        check_is_fitted(self)
        frame = match_columns(
            check_features(X), self.encoder_.feature_names_in_, model=type(self).__name__
        )
        return self.encoder_.transform(frame)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The logit of each row, shape (n,); positive where the second class is more likely."""
        encoded = torch.from_numpy(self.encode(X))
        with evaluating(self.module_), torch.no_grad():
            parts = [logits(self.module_, rows) for rows in encoded.split(_ROWS_AT_ONCE)]
        return torch.cat(parts).double().numpy()

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the two classes, shape (n, 2)."""
        return _probabilities(self.decision_function(X))

    def predict(self, X: Any, *, sensitive_features: Any = None) -> NDArray[Any]:  # noqa: ARG002 (one interface)
        """The class of each row: the second where its probability is at least `threshold_`.

        ``sensitive_features`` is accepted and not used, so that all methods can be called alike.
        """
        positive = self.predict_proba(X)[:, 1] >= self.threshold_
        return self.classes_[positive.astype(np.int64)]

    @property
    def explained_score(self) -> nn.Module:
        """The differentiable logit of an encoded row that GCIG explains."""
        check_is_fitted(self)
        return self.module_

    def explain(self, X: Any, y: Any = None, *, columns: str = "encoded") -> Explanation:
        """The reasons for each row, compared with the typical member of every group.

        Parameters
        ----------
        X : table of shape (n, columns)
        y : array of shape (n,), optional
            The labels whose baselines are used; without them the predicted labels, and the result says so.
        columns : {"encoded", "original"}
            One attribution for each encoded column, or one for each column of the table (one-hot columns
            added up).
        """
        encoded = self.encode(X)
        codes, source = self._labels_to_explain(X, y, len(encoded))
        definition = Definition(columns=columns)
        module = self.explained_score
        baselines = GroupBaselines(torch.from_numpy(self.baselines_))
        found = attributions(module, torch.from_numpy(encoded), baselines.of(torch.from_numpy(codes)))
        values, names = found.values, self.encoder_.encoded_names_
        if columns == "original":
            names = self.encoder_.feature_names_in_
            values = sum_blocks(values, torch.from_numpy(self.encoder_.origin_), len(names))
        spread = disparity(values)
        spread[~defined_rows(values)] = torch.nan
        return Explanation(
            attributions=values.numpy(),
            disparity=spread.numpy(),
            completeness=found.residual.numpy(),
            groups=self.groups_,
            columns=tuple(names),
            labels=self.classes_[codes],
            label_source=source,
            definition=definition.to_dict(),
        )

    def save(self, path: str | Path) -> None:
        """Write the model to a folder of JSON and tensors; `gcig.load` reads it back."""
        check_is_fitted(self)
        document, tensors = self._to_document()
        save_folder(path, document, tensors, kind="gcig-model")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.preprocessing == "table"
        tags.classifier_tags.multi_class = False
        tags.non_deterministic = self.random_state is None
        return tags

    # Steps of fit that subclasses may replace.

    def _check_parameters(self) -> None:
        if self.preprocessing not in ("table", "none"):
            raise InputError(f"preprocessing must be 'table' or 'none', not {self.preprocessing!r}.")
        if self.threshold != "f1" and not (isinstance(self.threshold, int | float) and 0 < self.threshold < 1):
            raise InputError(f"threshold must be 'f1' or a number between 0 and 1, not {self.threshold!r}.")
        if self.early_stopping and not 0 < self.validation_fraction < 1:
            raise InputError(f"validation_fraction must lie between 0 and 1, not {self.validation_fraction!r}.")

    def _make_encoder(self) -> TableEncoder | PassThrough:
        return TableEncoder() if self.preprocessing == "table" else PassThrough()

    def _encode_training(self, table: CheckedTable) -> NDArray[np.float32]:
        return self.encoder_.transform(table.frame)

    def _make_network(self, n_inputs: int, generator: torch.Generator) -> nn.Module:
        if self.module is None:
            return make_mlp(
                n_inputs, self.hidden_sizes, self.activation, dropout=self.dropout, generator=generator
            )
        network = deepcopy(self.module)
        with evaluating(network), torch.no_grad():
            try:
                logits(network, torch.zeros(2, n_inputs))
            except RuntimeError as error:
                raise InputError(
                    f"module: the network cannot take rows of {n_inputs} encoded columns: {error}"
                ) from error
        return network

    def _choose_threshold(self, data: TrainingData) -> float:
        if self.threshold != "f1":
            return float(self.threshold)
        rows = data.validation if data.validation is not None else data.training
        with torch.no_grad():
            scores = logits(self.module_, rows.inputs.cpu())
        return _best_f1_threshold(torch.sigmoid(scores).double(), rows.labels.cpu())

    def _labels_to_explain(self, X: Any, y: ArrayLike | None, n: int) -> tuple[NDArray[np.int64], str]:
        if y is None:
            positive = self.predict_proba(X)[:, 1] >= self.threshold_
            return positive.astype(np.int64), "predicted"
        return check_labels(y, n_rows=n, classes=tuple(self.classes_.tolist())).codes, "given"

    # Persistence: plain values and tensors, put together again without running code.

    def _to_document(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        parameters = {name: value for name, value in self.get_params(deep=False).items() if name != "module"}
        if not isinstance(parameters["random_state"], int | None):
            parameters["random_state"] = None
        document = {
            "method": self.method_key,
            "parameters": _plain(parameters),
            "classes": _plain(self.classes_),
            "groups": list(self.groups_),
            "encoder": self.encoder_.to_dict(),
            "encoder_kind": type(self.encoder_).__name__,
            "threshold": self.threshold_,
            "named_columns": hasattr(self, "feature_names_in_"),
            "network": self.module_.architecture() if isinstance(self.module_, MLP) else None,
        }
        tensors = {f"network.{name}": tensor for name, tensor in self.module_.state_dict().items()}
        return document, {**tensors, "baselines": torch.from_numpy(self.baselines_)}

    @classmethod
    def _from_document(
        cls, document: Mapping[str, Any], tensors: Mapping[str, Tensor], module: nn.Module | None
    ) -> Self:
        parameters = dict(document["parameters"])
        if "hidden_sizes" in parameters:
            parameters["hidden_sizes"] = tuple(parameters["hidden_sizes"])
        model = cls(**parameters)
        kinds: dict[str, type[TableEncoder] | type[PassThrough]] = {
            "TableEncoder": TableEncoder,
            "PassThrough": PassThrough,
        }
        model.encoder_ = kinds[document["encoder_kind"]].from_dict(document["encoder"])
        model.classes_ = np.asarray(document["classes"])
        model.groups_ = tuple(document["groups"])
        model.baselines_ = tensors["baselines"].numpy()
        model.threshold_ = float(document["threshold"])
        model.n_features_in_ = len(model.encoder_.feature_names_in_)
        if document["named_columns"]:
            model.feature_names_in_ = np.asarray(model.encoder_.feature_names_in_, dtype=object)
        prefix = "network."
        state = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
        if document["network"] is not None:
            model.module_ = mlp_from_architecture(document["network"], state).eval()
        elif module is not None:
            model.module_ = deepcopy(module).eval()
            model.module_.load_state_dict(state)
            model.module = module
        else:
            raise InputError(
                "this model has a network of its own, whose code is not stored: pass gcig.load(path, module=...) "
                "an untrained network of the same architecture"
            )
        return model


def _probabilities(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    positive = torch.sigmoid(torch.from_numpy(scores)).numpy()
    negative = torch.sigmoid(torch.from_numpy(-scores)).numpy()
    return np.stack([negative, positive], axis=1)


def _best_f1_threshold(probability: Tensor, labels: Tensor) -> float:
    """The threshold with the highest F1, halfway between two rows where it can be."""
    order = torch.argsort(probability, descending=True)
    sorted_p = probability[order]
    hits = labels[order].cumsum(0).double()
    f1 = 2 * hits / (torch.arange(1, len(order) + 1) + int(labels.sum()))
    last_of_ties = torch.cat([sorted_p[1:] < sorted_p[:-1], torch.tensor([True])])
    best = int(torch.where(last_of_ties, f1, -1.0).argmax())
    below = float(sorted_p[best + 1]) if best + 1 < len(order) else 0.0
    return min(1 - 1e-9, max(1e-9, (float(sorted_p[best]) + below) / 2))


def _plain(value: Any) -> Any:
    """Parameters and labels as JSON has them."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | tuple | list):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
