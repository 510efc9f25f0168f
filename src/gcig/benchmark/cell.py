"""What is run: one method with its parameters on one fold of one table, and its name by content."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, Self

from gcig._validation import InputError
from gcig.core.definition import Definition

__all__ = ["ROLES", "Cell", "canonical_json", "shard_of"]

ROLES = ("test", "tune")


@dataclass(frozen=True, kw_only=True, eq=False)
class Cell:
    """One piece of a benchmark. Two cells are the same when their ``key`` is.

    Attributes
    ----------
    dataset : name of the table.
    data_hash : SHA-256 of its rows, `Table.sha256`.
    method : a key of `gcig.methods.METHODS`.
    variant : tells apart several settings of one method in an experiment; a label, nothing is read from it.
    parameters : what is passed to the estimator, as plain JSON values.
    fold, n_folds : which of how many folds. A cell that tunes on one split of the whole table has 0 of 0.
    seed : of the split; several seeds are several partitions into folds.
    repeat : which of several fits on the same rows; the fit's own seed comes from seed, fold and repeat.
    definition : the choices behind GCIG.
    role : "test" (fit on the other folds, measured on this one) or "tune" (fit and measured on two parts of
        the table, or, with folds, of the rows that the fold is trained on).

    Examples
    --------
    >>> cell = Cell(dataset="german", data_hash="ab", method="fairx", parameters={"lambda_ig": 0.5}, fold=2)
    >>> cell.file_name
    'german-fairx-s0-f2-8978fed8747278a3115d786c.json'
    """

    dataset: str
    data_hash: str
    method: str
    variant: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    fold: int = 0
    n_folds: int = 5
    seed: int = 0
    repeat: int = 0
    definition: Definition = field(default_factory=Definition)
    role: str = "test"

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise InputError(f"role must be one of {list(ROLES)}, not {self.role!r}.")
        whole = self.role == "tune" and self.n_folds == self.fold == 0
        if not whole and not (self.n_folds >= 2 and 0 <= self.fold < self.n_folds):
            raise InputError(f"fold must be one of 0 to n_folds - 1; got {self.fold} of {self.n_folds}.")
        object.__setattr__(self, "parameters", _as_json(self.parameters))

    @cached_property
    def key(self) -> str:
        """SHA-256 of the content, the same in every process and on every machine."""
        return hashlib.sha256(canonical_json(self.to_dict()).encode()).hexdigest()

    @property
    def file_name(self) -> str:
        """A name for people, made unique by the key; safe whatever the names of the parts are."""
        parts = [_slug(part) for part in (self.dataset, self.method, self.variant) if part]
        numbers = f"s{self.seed}-f{self.fold}" + (f"-r{self.repeat}" if self.repeat else "")
        return (
            "-".join([*parts, *(["tune"] if self.role == "tune" else []), numbers, self.key[:24]]) + ".json"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return plain | {"parameters": dict(self.parameters), "definition": asdict(self.definition)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The cell that ``to_dict`` was called on."""
        return cls(**{**data, "definition": Definition(**data["definition"])})

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Cell) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        variant = f" {self.variant}" if self.variant else ""
        where = f"fold {self.fold + 1}/{self.n_folds}" if self.n_folds else "validation"
        return f"{self.dataset} {self.method}{variant} seed {self.seed} {where}"


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text.

    >>> canonical_json({"b": 1, "a": (2.0, None)})
    '{"a":[2.0,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def shard_of(cells: Iterable[Cell], number: int, of: int) -> list[Cell]:
    """Part ``number`` (from 1) of ``of`` parts of the cells; all parts together are all cells, each once.

    Cells are dealt out in turn in the order of their content, not of their hash, so that every part gets
    its share of every table and method.
    """
    if not 1 <= number <= of:
        raise InputError(f"shard must be one of 1/{of} to {of}/{of}, not {number}/{of}.")
    order = sorted(set(cells), key=lambda c: (c.dataset, c.method, c.role, c.variant, c.seed, c.fold, c.key))
    return order[number - 1 :: of]


def _as_json(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A copy in JSON's own types: what is read back from a file is what was hashed."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(parameters), allow_nan=False, sort_keys=True))
    except (TypeError, ValueError) as error:
        raise InputError(f"parameters must be plain JSON values (numbers, text, lists): {error}.") from None
    return plain


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")[:40] or "_"
