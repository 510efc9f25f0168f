"""Partial measurements: what one part of a table contributes. They add up, and travel as bytes."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from gcig._arguments import InputError
from gcig.metrics.samples import Sample

if TYPE_CHECKING:
    from gcig.metrics.plan import Plan
    from gcig.records import Evaluation

Arrays = dict[str, NDArray[Any]]
_FINGERPRINT = "plan"


@dataclass(frozen=True, eq=False)
class Partial:
    """What some rows contribute to a measurement; ``+`` adds other rows of the same plan.

    Attributes
    ----------
    sums : dict of arrays
        Additive sums.
    rows : Sample
        The rows of each label and group with the smallest keys, encoded: people and references.
    scores : Sample
        The rows with the smallest keys, without inputs.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from gcig.metrics import prepare
    >>> rng = np.random.default_rng(0)
    >>> X, sex = rng.normal(size=(200, 2)), rng.choice(["f", "m"], 200)
    >>> y, keys = (X[:, 0] > 0).astype(int), np.arange(200)
    >>> plan = prepare(LogisticRegression().fit(X, y), reference=(X, y, sex), n_bootstrap=0)
    >>> first = plan.measure(X[:100], y[:100], sex[:100], keys=keys[:100])
    >>> second = plan.measure(X[100:], y[100:], sex[100:], keys=keys[100:])
    >>> (first + Partial.from_bytes(plan, second.to_bytes())).n_rows
    200
    """

    plan: "Plan"
    sums: Arrays
    rows: Sample
    scores: Sample

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.sums["n_rows"].sum())

    def __add__(self, other: object) -> "Partial":
        if not isinstance(other, Partial):
            return NotImplemented
        if other.plan.fingerprint != self.plan.fingerprint:
            raise InputError("these parts were measured by different plans, and cannot be added.")
        return replace(
            self,
            sums={name: each + other.sums[name] for name, each in self.sums.items()},
            rows=self.plan.keep_rows(self.rows.join(other.rows)),
            scores=self.plan.keep_scores(self.scores.join(other.scores)),
        )

    def __radd__(self, other: object) -> "Partial":
        return self if other == 0 else NotImplemented  # the start of `sum`

    def result(self, *, suppress: bool = False) -> "Evaluation":
        """Return the evaluation of the rows; `suppress` hides figures of groups with few rows."""
        from gcig.metrics.result import evaluate_partial  # which imports this module

        return evaluate_partial(self, suppress=suppress)

    def to_bytes(self) -> bytes:
        """Return the sums and samples as bytes, which `Plan.read` reads: arrays only, no pickle."""
        arrays = {f"sums.{name}": each for name, each in self.sums.items()}
        arrays |= self.rows.to_arrays("rows") | self.scores.to_arrays("scores")
        contiguous = {name: np.ascontiguousarray(each) for name, each in arrays.items()}
        found: bytes = save(contiguous, metadata={_FINGERPRINT: self.plan.fingerprint})
        return found

    @classmethod
    def from_bytes(cls, plan: "Plan", data: bytes) -> "Partial":
        """Return the part that `to_bytes` was called on."""
        try:
            size = int.from_bytes(data[:8], "little")
            header = data[8 : 8 + size].decode()
            arrays = load(data)
        except Exception as error:  # the bytes may be anything
            raise InputError("these bytes are no part of a measurement.") from error
        if f'"{_FINGERPRINT}":"{plan.fingerprint}"' not in header.replace(" ", ""):
            raise InputError(
                "this part was measured by another plan. Read it with the plan that measured it."
            )
        sums = {name.removeprefix("sums."): each for name, each in arrays.items() if name.startswith("sums.")}
        return cls(plan, sums, Sample.from_arrays(arrays, "rows"), Sample.from_arrays(arrays, "scores"))
