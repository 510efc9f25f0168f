r"""Disparate impact remover: repair columns until their distributions no longer reveal the group, then train.

Feldman, Friedler, Moeller, Scheidegger and Venkatasubramanian (2015), "Certifying and removing disparate
impact", https://doi.org/10.1145/2783258.2783311. With :math:`F_g` the distribution of a column in group g,

.. math:: x \mapsto (1 - \lambda) \, x + \lambda \, \mathrm{median}_h \, F_h^{-1}(F_g(x)).
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import check_random_state

from gcig._arguments import InputError, integer
from gcig._arrays import Codes, Encoded, Floats
from gcig.methods.parameters import FRACTION, GRID_POINTS, Parametrised, parameter
from gcig.methods.randomised import row_uniforms
from gcig.methods.training_data import require_groups
from gcig.methods.unconstrained import UnconstrainedClassifier, UnconstrainedRegressor
from gcig.persistence import PersistenceError
from gcig.records.audit import SMALLEST_CELL
from gcig.tables.check import CheckedTable

_REASON = "a row is repaired by the quantiles of its own group"


@dataclass(frozen=True, eq=False)
class Quantiles:
    """A piecewise linear quantile function: ascending values at the middles of equal shares of ranks.

    A value that many rows share is an atom: it occupies an interval of ranks.
    """

    values: Floats

    def __post_init__(self) -> None:
        """Raise a `ValueError` unless the array describes a distribution."""
        values = self.values
        finite = values.ndim == 1 and values.dtype.kind == "f" and values.size and np.isfinite(values).all()
        if not finite or (np.diff(values) < 0).any():
            raise ValueError("a distribution needs finite values in ascending order")

    @classmethod
    def of(cls, sample: Floats, *, resolution: int = 1000) -> Self:
        """Return the distribution of a sample, with ranks exact to the inverse of `resolution`.

        >>> Quantiles.of(np.array([3.0, 1.0, 2.0])).values
        array([1., 2., 3.])
        """
        if len(sample) > resolution:
            sample = np.quantile(sample, _middles(resolution), method="hazen")
        return cls(np.sort(sample))

    def ranks(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the first and the last rank of each value, interpolated; they differ for atoms only.

        >>> Quantiles(np.array([0.0, 0.0, 0.0, 5.0])).ranks(np.array([0.0, 2.5, 9.0]))
        (array([0.125, 0.75 , 0.875]), array([0.625, 0.75 , 0.875]))
        """
        middles = _middles(len(self.values))
        left, right = (np.searchsorted(self.values, x, side) for side in ("left", "right"))
        between, atom = np.interp(x, self.values, middles), right > left
        first, last = middles[left.clip(max=len(middles) - 1)], middles[right - 1]
        return np.where(atom, first, between), np.where(atom, last, between)

    def at(self, ranks: Floats) -> Floats:
        """Return the value at each rank."""
        return np.interp(ranks, _middles(len(self.values)), self.values)


def _middles(count: int) -> Floats:
    return (np.arange(count) + 0.5) / count


@dataclass(frozen=True, eq=False)
class GroupRepair:
    """Distributions of all columns in every group, and the map to the median distribution.

    Rows with the same value are spread evenly over its ranks, each by its own content and a seed: the same
    row always gets the same value, and the distributions of the groups become equal. (With the middle of
    these ranks for everybody, the largest Kolmogorov-Smirnov distance over Adult's columns stays 0.21; so it
    falls to 0.002.) Rows that agree in every column stay together.
    """

    columns: tuple[tuple[Quantiles, ...], ...]
    seed: int

    @classmethod
    def learn(cls, table: Floats, groups: Codes, *, resolution: int, seed: int) -> Self:
        """Learn from rows (n, p) with group codes (n,)."""
        parts = [table[groups == group] for group in range(groups.max() + 1)]
        of = (
            tuple(Quantiles.of(part[:, j], resolution=resolution) for part in parts)
            for j in range(table.shape[1])
        )
        return cls(tuple(of), seed)

    def check(self, n_groups: int, n_columns: int) -> None:
        """Raise a `ValueError` unless the repair fits this many groups and columns."""
        each = [[type(part) for part in parts] for parts in self.columns if isinstance(parts, tuple)]
        if each != [[Quantiles] * n_groups] * n_columns or type(self.seed) is not int:
            raise ValueError(f"the repair does not fit {n_groups} groups and {n_columns} columns")

    def apply(self, table: Floats, groups: Codes, level: float) -> Floats:
        """Return a copy of the rows with each column moved by ``level`` towards the median distribution."""
        repaired, place = table.copy(), row_uniforms(table, self.seed, len(self.columns))
        for column, distributions in enumerate(self.columns):
            for group, own in enumerate(distributions):
                rows = np.flatnonzero(groups == group)
                first, last = own.ranks(table[rows, column])
                rank = first + place[rows, column] * (last - first)
                target = np.median([each.at(rank) for each in distributions], axis=0)
                repaired[rows, column] = (1 - level) * table[rows, column] + level * target
        return repaired


class RepairingNetwork(Parametrised):
    """A network that sees repaired columns: the parameters of the repair, and its learning."""

    method_key: ClassVar[str] = "dir"
    needs_groups_to_predict: ClassVar[bool] = True
    fitted_attributes: ClassVar[tuple[str, ...]] = ("repair_",)
    fitted_records: ClassVar[tuple[type, ...]] = (GroupRepair, Quantiles)
    repair_: GroupRepair

    repair_level: float = parameter(
        default=1.0,
        rule=FRACTION,
        doc="The paper's lambda: 0 changes nothing, 1 gives all groups the same distribution per column.",
    )
    n_quantiles: int = parameter(
        default=1000, rule=integer(2, most=GRID_POINTS), doc="Resolution of the quantile functions."
    )

    def check_private(self: Any) -> None:
        """Raise a `PersistenceError` if a group is so small that its quantiles are records of its people."""
        least = min(SMALLEST_CELL, self.n_quantiles)
        for parts in self.repair_.columns:
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
        groups = require_groups(self, X, sensitive_features, n_rows=len(encoded), reason=_REASON)
        repaired: Encoded = self._repaired(encoded, groups.codes)
        return repaired

    def _encode_training(self: Any, table: CheckedTable) -> Encoded:
        encoded, groups = super()._encode_training(table), table.groups
        if not hasattr(self, "repair_"):
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self.repair_ = GroupRepair.learn(
                encoded.astype(np.float64), groups.codes, resolution=self.n_quantiles, seed=seed
            )
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

    Every encoded column is moved to the median over groups of its quantile: numbers, and the 0/1 columns of
    categories, because otherwise a network reads the group from them. Explanations are of the
    output as a function of the repaired row, with means of repaired rows as references. The groups of new
    rows are needed to encode, predict and explain.

    Attributes
    ----------
    repair_ : GroupRepair
        The quantile functions of the groups, per encoded column.

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
