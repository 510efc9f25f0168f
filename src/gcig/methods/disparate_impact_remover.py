"""Disparate impact remover: repair columns until their distributions no longer reveal the group, then train.

Feldman, Friedler, Moeller, Scheidegger and Venkatasubramanian (2015), "Certifying and removing disparate
impact", https://doi.org/10.1145/2783258.2783311.
"""

from typing import Any, ClassVar

import numpy as np

from gcig._arguments import InputError
from gcig._arrays import Codes, Encoded
from gcig.methods.quantile_repair import REASON, GroupRepair, Quantiles, Repairing
from gcig.methods.training_data import require_groups
from gcig.methods.unconstrained import UnconstrainedClassifier, UnconstrainedRegressor
from gcig.persistence import PersistenceError
from gcig.records.audit import SMALLEST_CELL
from gcig.tables.check import CheckedTable


class RepairingNetwork(Repairing):
    """A network that sees repaired columns."""

    method_key: ClassVar[str] = "dir"
    needs_groups_to_predict: ClassVar[bool] = True
    fitted_attributes: ClassVar[tuple[str, ...]] = ("repair_",)
    fitted_records: ClassVar[tuple[type, ...]] = (GroupRepair, Quantiles)

    def check_private(self: Any) -> None:
        """Raise a `PersistenceError` if a group is so small that its quantiles are records of its people."""
        least = min(SMALLEST_CELL, self.n_quantiles)
        for parts in self.repair_.columns.values():
            for name, part in zip(self.groups_, parts, strict=True):
                if len(part.values) < least:
                    raise PersistenceError(
                        f"the quantiles of the group {name!r} would be records of its people, because it has "
                        f"fewer than {SMALLEST_CELL} training rows: merge small groups or drop them"
                    )

    def check_learned(self: Any) -> None:
        """Raise a `ValueError` unless the repair fits the groups and the columns."""
        self.repair_.check(len(self.groups_), self.encoder_.n_features_out_)

    def encode(self: Any, X: Any, *, sensitive_features: Any = None) -> Encoded:
        """Return what the network sees of a table: encoded, repaired rows, float32 of shape (n, p)."""
        encoded: Encoded = super().encode(X)
        groups = require_groups(self, X, sensitive_features, n_rows=len(encoded), reason=REASON)
        repaired: Encoded = self._repaired(encoded, groups.codes)
        return repaired

    def _encode_training(self: Any, table: CheckedTable) -> Encoded:
        encoded, groups = super()._encode_training(table), table.groups
        if not hasattr(self, "repair_"):
            columns = list(range(encoded.shape[1]))
            self.repair_ = self.learn_repair(encoded.astype(np.float64), groups.codes, columns)
        elif groups.names != self.groups_:  # warm start
            raise InputError(
                f"warm_start continues with the quantiles of the groups {', '.join(self.groups_)}, but "
                f"sensitive_features holds {', '.join(groups.names)}. Fit a new model instead."
            )
        repaired: Encoded = self._repaired(encoded, groups.codes)
        return repaired

    def _repaired(self, encoded: Encoded, codes: Codes) -> Encoded:
        return self.repair_.apply(encoded.astype(np.float64), codes, self.repair_level).astype(np.float32)


class DisparateImpactRemoverClassifier(RepairingNetwork, UnconstrainedClassifier):
    """The unconstrained network trained on repaired rows.

    The repair is that of `DisparateImpactRemover`, on every encoded column: numbers, and the 0/1 columns of
    categories, because otherwise a network reads the group from them. Explanations are of the
    output as a function of the repaired row, with means of repaired rows as references. The groups of new
    rows are needed to encode, predict and explain.

    Attributes
    ----------
    repair_ : GroupRepair
        The quantile functions of the groups by encoded column.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german")
    >>> model = DisparateImpactRemoverClassifier(max_epochs=3, random_state=0)
    >>> model = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> model.predict(data.X, sensitive_features=data.sensitive_features).shape
    (1000,)
    """


class DisparateImpactRemoverRegressor(RepairingNetwork, UnconstrainedRegressor):
    """The unconstrained network for a number, trained on repaired rows.

    Parameters and attributes are those of `DisparateImpactRemoverClassifier`.
    """
