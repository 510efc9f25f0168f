"""Disparate impact remover: columns whose distributions no longer tell the group, then the plain network.

Feldman, Friedler, Moeller, Scheidegger and Venkatasubramanian (2015), "Certifying and removing disparate
impact", https://doi.org/10.1145/2783258.2783311.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import Tensor, nn

from gcig._validation import InputError
from gcig.data.encoding import TableEncoder
from gcig.data.passthrough import PassThrough
from gcig.methods.group_dependent import require_groups
from gcig.methods.group_repair import GroupRepair
from gcig.methods.prepared import CheckedTable
from gcig.methods.repair_transformer import REASON, DisparateImpactRemover, check_repair, is_indicator
from gcig.methods.unconstrained import UnconstrainedClassifier

__all__ = ["DisparateImpactRemover", "DisparateImpactRemoverClassifier"]


class DisparateImpactRemoverClassifier(UnconstrainedClassifier):
    """Repair the numbers of a table, then train the plain network on it.

    The repair is that of `DisparateImpactRemover`, on encoded columns of numbers. What GCIG explains is the
    logit as a function of the repaired row, with baselines that are means of repaired rows. The groups of new
    rows are needed to encode, predict and explain.

    Parameters
    ----------
    repair_level : float in [0, 1]
        0 changes nothing, 1 gives the groups one distribution in every column of numbers.
    ties, n_quantiles : str, int
        See `DisparateImpactRemover`.
    others
        Those of `gcig.methods.unconstrained.UnconstrainedClassifier`.

    Attributes
    ----------
    repair_ : GroupRepair
        The quantile functions of the groups, by encoded column.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german")
    >>> model = DisparateImpactRemoverClassifier(max_epochs=3, random_state=0)
    >>> model = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> model.predict(data.X, sensitive_features=data.sensitive_features).shape
    (1000,)
    """

    method_key: ClassVar[str] = "dir"
    needs_groups_to_predict: ClassVar[bool] = True
    __metadata_request__predict: ClassVar = {"sensitive_features": True}
    __metadata_request__predict_proba: ClassVar = {"sensitive_features": True}
    __metadata_request__decision_function: ClassVar = {"sensitive_features": True}
    __metadata_request__score: ClassVar = {"sensitive_features": True}

    def __init__(
        self,
        *,
        repair_level: float = 1.0,
        ties: str = "spread",
        n_quantiles: int = 1000,
        module: nn.Module | None = None,
        preprocessing: str = "table",
        hidden_sizes: Sequence[int] = (64, 32),
        activation: str = "silu",
        dropout: float = 0.0,
        max_epochs: int = 40,
        batch_size: int | str = "auto",
        learning_rate: float | str = "auto",
        weight_decay: float = 1e-4,
        clip_norm: float = 5.0,
        early_stopping: bool = True,
        patience: int = 20,
        validation_fraction: float = 0.15,
        threshold: float | str = 0.5,
        class_weight: Any = None,
        warm_start: bool = False,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            module=module,
            preprocessing=preprocessing,
            hidden_sizes=hidden_sizes,
            activation=activation,
            dropout=dropout,
            max_epochs=max_epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            clip_norm=clip_norm,
            early_stopping=early_stopping,
            patience=patience,
            validation_fraction=validation_fraction,
            threshold=threshold,
            class_weight=class_weight,
            warm_start=warm_start,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )
        self.repair_level = repair_level
        self.ties = ties
        self.n_quantiles = n_quantiles

    def encode(self, X: Any, *, sensitive_features: Any = None) -> NDArray[np.float32]:
        """What the network sees of a table: encoded and repaired rows, float32 of shape (n, p)."""
        encoded = super().encode(X)
        groups = require_groups(
            X,
            sensitive_features,
            names=self.groups_,
            n_rows=len(encoded),
            model=type(self).__name__,
            reason=REASON,
        )
        return self._repaired(encoded, groups.codes)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_repair(self.repair_level, self.ties, self.n_quantiles)

    def _encode_training(self, table: CheckedTable) -> NDArray[np.float32]:
        encoded, groups = super()._encode_training(table), table.groups
        if not hasattr(self, "repair_"):
            self.repair_ = GroupRepair.of(
                encoded.astype(np.float64),
                groups.codes,
                _number_columns(self.encoder_, encoded),
                n_quantiles=self.n_quantiles,
                seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
                spread_ties=self.ties == "spread",
            )
        elif groups.names != self.groups_:  # warm start
            raise InputError(
                f"warm_start goes on with the quantiles of the groups {', '.join(self.groups_)}, but "
                f"sensitive_features holds {', '.join(groups.names)}. Fit a new model instead."
            )
        return self._repaired(encoded, groups.codes)

    def _repaired(self, encoded: NDArray[np.float32], codes: NDArray[np.int64]) -> NDArray[np.float32]:
        return self.repair_.apply(encoded.astype(np.float64), codes, self.repair_level).astype(np.float32)

    def _to_document(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        document, tensors = super()._to_document()
        document["repair"] = {"seed": self.repair_.seed, "spread_ties": self.repair_.spread_ties}
        tables = {f"repair.{name}": table for name, table in self.repair_.to_tensors().items()}
        return document, {**tensors, **tables}

    @classmethod
    def _from_document(
        cls, document: Mapping[str, Any], tensors: Mapping[str, Tensor], module: nn.Module | None
    ) -> Self:
        model = super()._from_document(document, tensors, module)
        prefix = "repair."
        tables = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
        stored = document["repair"]
        model.repair_ = GroupRepair.from_tensors(tables, int(stored["seed"]), bool(stored["spread_ties"]))
        return model


def _number_columns(encoder: TableEncoder | PassThrough, encoded: NDArray[np.float32]) -> list[int]:
    """The encoded columns that hold a number of the table itself: no levels, booleans or indicators."""
    if isinstance(encoder, PassThrough):
        return [column for column in range(encoded.shape[1]) if not is_indicator(encoded[:, column])]
    first = np.searchsorted(encoder.origin_, np.arange(len(encoder.kinds_)))
    return [int(column) for column, kind in zip(first, encoder.kinds_, strict=True) if kind == "number"]
