"""The rule that chooses parameters: the same for every method, and blind to test rows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from gcig.records import FoldResult

__all__ = ["RULE", "TOLERANCE", "Candidate", "choose", "grid"]

TOLERANCE = 0.01
RULE = (
    "Among the candidates whose mean validation AUC is within 0.01 of the best of the method's grid, the one "
    "with the lowest mean validation eo_gap + gcig. Candidates that failed or collapsed under any seed are "
    "left out."
)


@dataclass(frozen=True)
class Candidate:
    """Validation figures of one setting: means over its fits, and how many of these failed or collapsed."""

    parameters: Mapping[str, Any]
    auc: float
    eo_gap: float
    gcig: float
    f1: float = math.nan
    collapsed: int = 0
    failed: int = 0

    @classmethod
    def of(cls, parameters: Mapping[str, Any], results: Sequence[FoldResult]) -> "Candidate":
        """The means of some results of one setting."""
        found = [result.evaluation for result in results if result.evaluation is not None]

        def mean(name: str) -> float:
            return math.fsum(getattr(each, name) for each in found) / len(found) if found else math.nan

        return cls(
            parameters=dict(parameters),
            auc=mean("auc"),
            eo_gap=mean("eo_gap"),
            gcig=mean("gcig"),
            f1=mean("f1"),
            collapsed=sum(each.collapsed for each in found),
            failed=len(results) - len(found),
        )

    @property
    def usable(self) -> bool:
        """Whether it may be chosen."""
        defined = not any(math.isnan(figure) for figure in (self.auc, self.eo_gap, self.gcig))
        return defined and not self.failed and not self.collapsed

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: NaN is None."""
        plain = asdict(self)
        return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in plain.items()}


def choose(candidates: Sequence[Candidate], tolerance: float = TOLERANCE) -> int | None:
    """Position of the candidate that the rule takes, the first of equals; None where none may be chosen.

    Examples
    --------
    >>> figures = [(0.90, 0.30, 0.20), (0.895, 0.10, 0.05), (0.88, 0.0, 0.0)]
    >>> choose([Candidate({}, *each) for each in figures])  # the third is too far from the best AUC
    1
    """
    usable = [index for index, each in enumerate(candidates) if each.usable]
    if not usable:
        return None
    best = max(candidates[index].auc for index in usable)
    # The slack lets a candidate pass that is exactly at the tolerance, whatever the rounding.
    near = [index for index in usable if candidates[index].auc >= best - tolerance - 1e-12]
    return min(near, key=lambda index: candidates[index].eo_gap + candidates[index].gcig)


def grid(space: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """All settings of a search space, the last name varying fastest; one empty setting where it is empty.

    >>> grid({"a": (1, 2), "b": ("x",)})
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}]
    """
    return [dict(zip(space, values, strict=True)) for values in product(*space.values())]
