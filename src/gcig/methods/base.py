"""Base classes of all methods: one network on an encoded table, with scikit-learn's interface."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils import check_random_state
from torch import Tensor, nn

from gcig._arguments import InputError
from gcig._arrays import Encoded
from gcig.core.columns import find_blocks, protected_attributes
from gcig.core.references import GroupBaselines
from gcig.core.task import Binary, Classes, Number, Task, as_outputs
from gcig.methods.fitted import FittedClassifier, FittedNetwork, FittedRegressor
from gcig.methods.networks import copy_to_continue
from gcig.methods.parameters import ClassifierParameters, NetworkParameters
from gcig.methods.registry import methods_for
from gcig.methods.training_data import TrainingData, split_rows
from gcig.metrics.trust import sketch_rows
from gcig.metrics.utility import best_f1_threshold, utility
from gcig.models.mlp import with_affine
from gcig.tables.check import CheckedTable, check_table
from gcig.tables.encoding import TableEncoder
from gcig.tables.files import CsvFormat
from gcig.tables.passthrough import PassThrough
from gcig.tables.splitting import hold_out_rows
from gcig.training.batches import all_outputs
from gcig.training.loop import DivergenceError, Loop, Outcome, Validation, raise_if_diverged, train
from gcig.training.runtime import (
    CLIP_NORM,
    descend,
    flattened,
    one_thread,
    own_modes,
    own_random_numbers,
    resolve_device,
    seeded_generator,
)

BINS = 24  # per number; Adult: a plain network has an AUC of 0.919 with bins and 0.908 without
TrainNetwork = Callable[[nn.Module, TrainingData, torch.Generator], tuple[nn.Module, Outcome]]


class NetworkEstimator(NetworkParameters, FittedNetwork, BaseEstimator):
    """An estimator that trains one network on an encoded table; a subclass says how.

    A subclass of `NetworkClassifier` or `NetworkRegressor` sets `method_key`, declares its parameters with
    `gcig.methods.parameter`, implements `train_network`, and names what else it learns in
    `fitted_attributes`.

    Attributes
    ----------
    module_ : torch.nn.Module
        The network, (n, p) -> (n,) logits of two classes or predictions, or (n, K) logits of K classes.
    encoder_ : TableEncoder
        Maps a table to the p columns that the network sees.
    task_ : Task
        The kind of label, with the frequencies of classes or the bins of a number.
    groups_ : tuple of str
        Names of the groups in the training data.
    baselines_ : array of shape (cells, groups, p)
        The mean encoded row of every label and group in the training data; for a number, of every bin.
    cell_sizes_ : array of shape (cells, groups)
        The number of training rows of each. Audits, evaluations and explanations leave out groups with fewer
        than ``min_cell`` of a label. In a saved model, cells of fewer than 11 rows have the size 0 and the
        mean NaN.
    blocks_ : array of shape (p,)
        The number of the column of the table that each encoded column came from; dummy columns of one
        category share a number.
    protected_columns_ : tuple of str
        The columns of the table that reveal the group.
    training_sketch_ : array of int
        Hashes of some training rows, by which evaluations recognise them.
    history_ : DataFrame
        One row per epoch: the terms of the loss and the validation metrics.
    n_epochs_ : int
        The epoch that was kept.
    csv_format_ : CsvFormat
        The separator and decimal mark of the training file, if `gcig train` fitted the model to a CSV file.
    favourable_, group_names_, column_kinds_ : class, dict and dict
        The favourable class, the names for values of the protected columns and the kinds of columns that were
        requested in training; only of models fitted to a file. Audits, explanations and predictions of other
        files use them unless they are given others.
    """

    method_key: ClassVar[str]
    tasks: ClassVar[tuple[str, ...]]
    needs_groups_to_predict: ClassVar[bool] = False
    # Learned attributes that `save` writes and `load` restores, in addition to those of the base classes:
    # numbers, text, arrays, and tuples, lists, dicts, frames and `fitted_records` of these.
    fitted_attributes: ClassVar[tuple[str, ...]] = (
        *("history_", "n_epochs_", "blocks_", "protected_columns_", "training_sketch_", "task_"),
        *("csv_format_", "favourable_", "group_names_", "column_kinds_"),
    )
    fitted_records: ClassVar[tuple[type, ...]] = (CsvFormat, Binary, Classes, Number)
    # Set by the class that implements `train_network`: whether predictions depend on nothing else that it
    # learns. If training diverges, the network of the last good epoch can then be used.
    predicts_by_network: ClassVar[bool] = False
    __metadata_request__fit: ClassVar = {"sensitive_features": True}

    def __init_subclass__(cls, **options: Any) -> None:
        # Metadata routing passes groups to `fit` without a request, and to these if the method needs them.
        for method in ("predict", "predict_proba", "decision_function", "score"):
            setattr(cls, f"__metadata_request__{method}", {"sensitive_features": cls.needs_groups_to_predict})
        super().__init_subclass__(**options)

    @abstractmethod
    def train_network(
        self, network: nn.Module, data: TrainingData, generator: torch.Generator
    ) -> tuple[nn.Module, Outcome]:
        """Train a network, set what else the method learns, and return the trained network and the history.

        Parameters
        ----------
        network : nn.Module
            On the device of the data: newly initialised, a copy of `module`, or with `warm_start` the last
            fit's.
        data : TrainingData
            Encoded rows, with a part held out if `early_stopping` is set.
        generator : torch.Generator
            The source of all random numbers; a CPU generator seeded by `random_state`.
        """

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None) -> Self:
        """Train on a table.

        Parameters
        ----------
        X : table of shape (n, columns)
            pandas, polars, array, sparse matrix or list; text, categories, booleans, numbers, dates and
            missing values.
        y : array of shape (n,)
            Classes of any type, or numbers.
        sensitive_features : array, Series or DataFrame with n rows
            The group of every row; several columns are crossed.
        sample_weight : array of shape (n,), optional
            Weight of each row in the terms of the loss and in the references; rows of weight zero are left
            out.

        Raises
        ------
        DivergenceError
            If the loss is no longer finite. If an epoch was finished, the estimator keeps its network and
            predicts; otherwise, and after any other error, the estimator is as it was before.
        """
        return self.fit_by(
            self.train_network, X, y, sensitive_features=sensitive_features, sample_weight=sample_weight
        )

    def fit_by(
        self, train: TrainNetwork, X: Any, y: Any, *, sensitive_features: Any, sample_weight: Any = None
    ) -> Self:
        """Train on a table as `fit` does, with another function in place of `train_network`."""
        self.check_parameters()
        table = self._check_table(X, y, sensitive_features, sample_weight)
        named = hasattr(X, "columns") or isinstance(X, Mapping)
        with _restored_on_error(self):
            diverged = self._fit_checked(train, table, named=named)
        if diverged is not None:
            raise diverged
        return self

    def _fit_checked(
        self, train: TrainNetwork, table: CheckedTable, *, named: bool
    ) -> DivergenceError | None:
        """Fit, and return the error of a training that diverged after a usable epoch."""
        network = copy_to_continue(self, table.labels.classes) if self.warm_start else None
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        held_out = hold_out_rows(table, self.validation_fraction if self.holds_out else None, seed)
        if network is None:
            _forget_fit(self)
            self.encoder_ = self._make_encoder()
            self.encoder_.fit(table.frame)
        encoded, labels = self._encode_training(table), self._learn_labels(table)
        device = resolve_device(self.device)
        rows, training, validation = split_rows(table, encoded, labels, device, held_out)
        self.task_ = self._make_task(rows.labels, rows.weights, len(table.labels.classes))
        n_groups = len(table.groups.names)
        origin = torch.as_tensor(self.encoder_.origin_, device=device)
        with own_modes(device):  # training uses these tensors, even if the caller is in inference mode
            baselines = GroupBaselines.from_data(
                rows.inputs,
                rows.labels,
                rows.groups,
                task=self.task_,
                n_groups=n_groups,
                sample_weight=rows.weights,
            )
            blocks = find_blocks(rows.inputs, origin)
            protected = protected_attributes(rows.inputs, rows.groups, blocks)
        self.describe_data(table.labels.classes, table.groups.names, baselines.values, named=named)
        self.cell_sizes_ = baselines.counts.cpu().numpy()
        self.blocks_ = blocks.cpu().numpy()
        chosen = {int(origin[j]) for each in protected for j in each.columns.tolist()}
        self.protected_columns_ = tuple(self.encoder_.feature_names_in_[j] for j in sorted(chosen))
        self.training_sketch_ = sketch_rows(encoded, labels.cpu().numpy())
        data = TrainingData(
            rows,
            training,
            validation,
            n_groups,
            table.frame.iloc[np.setdiff1d(np.arange(len(rows)), held_out)],
            self.task_,
            origin,
            blocks,
            tuple(protected),
            None if validation is None else table.frame.iloc[held_out],
        )
        return self._train(train, network, data, seed)

    def describe_data(self, classes: Any, groups: tuple[str, ...], baselines: Tensor, *, named: bool) -> None:
        """Set the attributes that describe the training data."""
        self.groups_, self.baselines_ = groups, baselines.cpu().numpy()
        self.n_features_in_ = len(self.encoder_.feature_names_in_)
        if classes is not None and len(classes):
            self.classes_ = np.asarray(classes)
        if named:
            self.feature_names_in_ = np.asarray(self.encoder_.feature_names_in_, dtype=object)

    def _train(
        self, train: TrainNetwork, network: nn.Module | None, data: TrainingData, seed: int
    ) -> DivergenceError | None:
        """Train a network, or a new one, on encoded rows, and set the learned attributes."""
        device, generator, diverged = data.all.inputs.device, seeded_generator(seed), None
        with own_random_numbers(network or self.module, seed, device), own_modes(device):
            if network is None:
                network = self.make_network(data.all.inputs.shape[1], self.task_.n_outputs, generator)
            network = self._start_network(network.to(device), data)
            try:
                network, outcome = train(network, data, generator)
                raise_if_diverged(all_outputs(network, data.all.inputs))
            except DivergenceError as error:
                network, outcome = error.network or network, error.outcome
                usable = _network_suffices(type(self)) and error.epoch > 0
                # The scores of that epoch may have overflowed already.
                usable = usable and not bool(all_outputs(network, data.all.inputs).isnan().any())
                diverged = _describe_divergence(error, usable=usable)
                if not usable:
                    raise diverged from error
        self.history_ = pd.DataFrame([epoch.to_dict() for epoch in outcome.history])
        self.n_epochs_ = outcome.best_epoch
        self.module_ = self._finish_network(network).cpu().eval()
        self.diverged_ = diverged is not None
        self._finish(data)
        return diverged

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = not isinstance(self.preprocessing, str) or self.preprocessing != "none"
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags

    # Steps of `fit` that a subclass may replace.

    def _make_encoder(self) -> TableEncoder:
        if isinstance(self.preprocessing, TableEncoder):
            encoder: TableEncoder = clone(self.preprocessing)
            return encoder
        if self.preprocessing == "none":
            return PassThrough()
        return TableEncoder(n_bins=BINS if self.preprocessing == "binned" else 0)

    def _encode_training(self, table: CheckedTable) -> Encoded:
        return self.encoder_.encode(table.frame)

    @abstractmethod
    def _check_table(self, X: Any, y: Any, sensitive_features: Any, sample_weight: Any) -> CheckedTable:
        """Check the arguments of `fit`."""

    @abstractmethod
    def _learn_labels(self, table: CheckedTable) -> Tensor:
        """Return the labels that the network is trained on."""

    @abstractmethod
    def _make_task(self, labels: Tensor, weights: Tensor | None, n_classes: int) -> Task:
        """Return the task of the labels."""

    def _start_network(self, network: nn.Module, data: TrainingData) -> nn.Module:  # noqa: ARG002
        """Return the network that is trained."""
        return network

    def _finish_network(self, network: nn.Module) -> nn.Module:
        """Return the network that predicts, from the one that was trained."""
        return network

    def _finish(self, data: TrainingData) -> None:
        """Learn what depends on the trained network."""


class NetworkClassifier(FittedClassifier, ClassifierMixin, ClassifierParameters, NetworkEstimator):
    """A classifier of two or more classes; see `NetworkEstimator`.

    Attributes
    ----------
    classes_ : array of shape (K,)
        The labels; of two, the second is the positive one.
    threshold_ : float
        The probability from which a row is predicted positive; NaN for more than two classes, of which the
        most probable one is predicted.

    Examples
    --------
    A network that is not trained at all:

    >>> import gcig
    >>> class UntrainedClassifier(NetworkClassifier):
    ...     method_key = "untrained"
    ...
    ...     def train_network(self, network, data, generator):
    ...         return network, Outcome(history=(), best_epoch=0)
    >>> data = gcig.load_dataset("german")
    >>> model = UntrainedClassifier(hidden_sizes=(8,), random_state=0)
    >>> model.fit(data.X, data.y, sensitive_features=data.sensitive_features).predict(data.X).shape
    (1000,)
    """

    tasks: ClassVar[tuple[str, ...]] = ("binary", "classes")
    fitted_attributes: ClassVar[tuple[str, ...]] = ("threshold_",)

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; a number as `threshold` applies to a fitted model at once."""
        threshold = params.get("threshold", "f1") if "threshold" in self._declared else "f1"
        if hasattr(self, "threshold_") and threshold != "f1":
            self._declared["threshold"].rule.check("threshold", threshold)
        super().set_params(**params)
        if hasattr(self, "threshold_") and threshold != "f1" and self.task_.key == "binary":
            self.threshold_ = float(threshold)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = "classes" in self.tasks
        return tags

    def _check_table(self, X: Any, y: Any, sensitive_features: Any, sample_weight: Any) -> CheckedTable:
        table = check_table(X, y, sensitive_features, sample_weight, class_weight=self.class_weight)
        classes = table.labels.classes
        if len(classes) > 2 and "classes" not in self.tasks:
            shown = f" ({', '.join(map(repr, classes))})" if len(classes) <= 10 else ""
            raise InputError(
                f"has {len(classes)} classes{shown}. Only binary classification is supported. The type of "
                "the target is multiclass. Methods for several classes are "
                f"{', '.join(methods_for('classes'))}.",
                argument="y",
            )
        return table

    def _learn_labels(self, table: CheckedTable) -> Tensor:
        return torch.from_numpy(table.labels.codes)

    def _make_task(self, labels: Tensor, weights: Tensor | None, n_classes: int) -> Task:
        if n_classes == 2:
            return Binary.of(labels, threshold=0.5 if self.threshold == "f1" else float(self.threshold))
        return Classes.of(labels, weights, n_classes=n_classes)

    def _finish(self, data: TrainingData) -> None:
        self.threshold_ = self._choose_threshold(data)

    def _choose_threshold(self, data: TrainingData) -> float:
        if self.task_.key != "binary":
            return float("nan")
        if self.threshold != "f1":
            return float(self.threshold)
        rows = data.held_out
        scores = torch.from_numpy(self.outputs_from_encoded(rows.inputs.cpu().numpy()))[:, 0]
        return best_f1_threshold(torch.sigmoid(scores), rows.labels.cpu())


class NetworkRegressor(FittedRegressor, RegressorMixin, NetworkEstimator):
    """A regressor; see `NetworkEstimator`.

    The network is trained on standardised labels, and its last layer then gives them their units back. A
    `module` of your own that predicts the labels already (R2 above 0) is trained from these predictions.

    Attributes
    ----------
    label_mean_, label_scale_ : float
        The mean and the standard deviation of the labels.

    Examples
    --------
    A network that is not trained at all:

    >>> import gcig
    >>> class UntrainedRegressor(NetworkRegressor):
    ...     method_key = "untrained"
    ...
    ...     def train_network(self, network, data, generator):
    ...         return network, Outcome(history=(), best_epoch=0)
    >>> data = gcig.load_dataset("german")
    >>> X, amount = data.X.drop(columns="credit_amount"), data.X["credit_amount"]
    >>> model = UntrainedRegressor(hidden_sizes=(8,), random_state=0)
    >>> model.fit(X, amount, sensitive_features=data.sensitive_features).predict(X).shape
    (1000,)
    """

    tasks: ClassVar[tuple[str, ...]] = ("number",)
    fitted_attributes: ClassVar[tuple[str, ...]] = ("label_mean_", "label_scale_")
    label_mean_: float
    label_scale_: float

    def _check_table(self, X: Any, y: Any, sensitive_features: Any, sample_weight: Any) -> CheckedTable:
        return check_table(X, y, sensitive_features, sample_weight, numbers=True)

    def _learn_labels(self, table: CheckedTable) -> Tensor:
        values = table.labels.codes
        self.label_mean_ = float(np.average(values, weights=table.weights))
        variance = np.average((values - self.label_mean_) ** 2, weights=table.weights)
        self.label_scale_ = float(np.sqrt(variance)) or 1.0
        return torch.from_numpy((values - self.label_mean_) / self.label_scale_).float()

    def _make_task(self, labels: Tensor, weights: Tensor | None, n_classes: int) -> Task:  # noqa: ARG002
        return Number.of(labels, weights)

    def _start_network(self, network: nn.Module, data: TrainingData) -> nn.Module:
        """Standardise the outputs of a network that predicts labels in their own units."""
        rows, mean, scale = data.training, self.label_mean_, self.label_scale_
        standardised = (all_outputs(network, rows.inputs)[:, 0] - mean) / scale
        error = (standardised - rows.labels).square().mean()
        if float(error) < float(rows.labels.square().mean()):
            shift = torch.full((1,), -mean / scale, device=rows.inputs.device)
            return with_affine(network, 1 / scale, shift)
        return network

    def _finish_network(self, network: nn.Module) -> nn.Module:
        shift = torch.full((1,), self.label_mean_, device=next(network.parameters()).device)
        return with_affine(network, self.label_scale_, shift)

    def _finish(self, data: TrainingData) -> None:  # noqa: ARG002
        task = self.task_
        assert isinstance(task, Number)
        mean, scale = self.label_mean_, self.label_scale_

        def in_units(values: tuple[float, ...]) -> tuple[float, ...]:
            return tuple(mean + scale * value for value in values)

        self.task_ = Number(
            in_units(task.edges), in_units(task.centres), in_units(task.outcome_edges), scale * task.scale
        )


def train_plainly(
    network: nn.Module,
    data: TrainingData,
    estimator: NetworkEstimator,
    generator: torch.Generator,
    *,
    targets: Tensor | None = None,
    loop: Loop | None = None,
    stage: str = "",
) -> Outcome:
    """Train a network in place on labels, or on a teacher's predictions, with early stopping.

    ``targets`` (n, K) are predictions for the training rows; ``loop`` replaces the estimator's length of
    training.
    """
    rows, task, device = data.training, data.task, data.training.inputs.device
    loop = loop or estimator.resolve_loop(len(rows))
    rate = estimator.resolve_learning_rate(loop.batch_size)
    network.train()
    with one_thread(device), flattened(network) as flat:
        optimizer = torch.optim.AdamW([flat], lr=rate, weight_decay=estimator.weight_decay, fused=True)

        def step(positions: Tensor) -> dict[str, Tensor]:
            outputs = as_outputs(network(rows.inputs[positions]), len(positions))
            if targets is None:
                each = task.loss(outputs, rows.labels[positions])
            else:
                each = task.distance(outputs, targets[positions])
            loss = (each if rows.weights is None else each * rows.weights[positions]).mean()
            descend(flat, optimizer, loss, CLIP_NORM)
            return {"prediction": loss.detach(), "total": loss.detach()}

        try:
            outcome = train(
                step,
                network,
                optimizer,
                n_rows=len(rows),
                loop=loop,
                generator=generator,
                device=device,
                validate=None if data.validation is None else lambda _: validate_network(network, data),
                progress=bool(estimator.verbose),
                stage=stage,
            )
        except DivergenceError as error:
            error.network = network
            raise
    network.eval()
    return outcome


def validate_network(network: nn.Module, data: TrainingData) -> Validation:
    """Return the mean loss on the held-out rows, as the criterion, and the task's measures of utility."""
    rows, task = data.held_out, data.task
    weights = None if rows.weights is None else rows.weights.double().cpu().numpy()
    outputs = all_outputs(network, rows.inputs)
    raise_if_diverged(outputs)
    loss = task.loss(outputs, rows.labels)
    mean = float(loss.mean() if rows.weights is None else (loss * rows.weights).sum() / rows.weights.sum())
    measured = utility(task, outputs.double().cpu().numpy(), rows.labels.cpu().numpy(), weights)
    return Validation(mean, {f"val_{name}": value for name, value in measured.items()})


def _network_suffices(method: type[NetworkEstimator]) -> bool:
    """Return `predicts_by_network` of the class whose `train_network` is used."""
    trains = next(each for each in method.__mro__ if "train_network" in vars(each))
    return bool(vars(trains).get("predicts_by_network", False))


@contextmanager
def _restored_on_error(estimator: object) -> Iterator[None]:
    """Restore an estimator's attributes (but not objects changed in place) if an error occurs."""
    before = vars(estimator).copy()
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def _forget_fit(estimator: object) -> None:
    """Remove the attributes of an earlier fit: by convention, the names that end in an underscore."""
    for name in list(vars(estimator)):
        if name.endswith("_") and not name.startswith("_"):
            delattr(estimator, name)


def _describe_divergence(error: DivergenceError, *, usable: bool) -> DivergenceError:
    """Return the same error with the state of the estimator added."""
    state = "The estimator is as it was before fit."
    if usable:
        state = (
            "The estimator keeps them and predicts with them: fit again, or continue with warm_start=True."
        )
    described = DivergenceError(f"{error} {state}", error.outcome)
    described.__cause__ = error
    return described
