"""Trials: one method with its parameters on one fold of one table, identified by content."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, Self

from gcig._arguments import InputError
from gcig.core.definition import Definition
from gcig.methods.registry import METHODS

if TYPE_CHECKING:
    from gcig.benchmark.tables import Table

ROLES = ("test", "tune")
TRIAL_FIELDS = ("dataset", "method", "variant", "fold", "seed", "repeat")  # shared with results
TUNING_ROWS = 10_000  # a candidate is trained on at most this many rows
COMMON: Mapping[str, Any] = {"threshold": "f1"}  # one rule for the threshold of all methods that have one


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """One unit of benchmark work; trials with equal ``key`` are equal.

    ``seed`` is the seed of the split into folds; the seed of the fit is derived from seed, fold and repeat.
    The role is "test" (fit on the other folds, evaluate on this one) or "tune" (fit and evaluate on two parts
    of the fold's training rows or, with fold and n_folds 0, of the table).

    >>> trial = Trial(dataset="german", data_hash="ab", method="fairx", parameters={"budget": 0.05}, fold=2)
    >>> trial.file_name.rsplit("-", 1)[0], len(trial.key)
    ('german-fairx-s0-f2', 64)
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
        on_whole_table = self.role == "tune" and self.n_folds == self.fold == 0
        if not on_whole_table and not (self.n_folds >= 2 and 0 <= self.fold < self.n_folds):
            raise InputError(
                f"fold must be between 0 and n_folds - 1, and n_folds at least 2; got fold {self.fold} of "
                f"{self.n_folds}."
            )
        object.__setattr__(self, "parameters", _as_json(self.parameters))

    @cached_property
    def key(self) -> str:
        """SHA-256 of the content, equal in every process and on every machine."""
        return hashlib.sha256(canonical_json(self.to_dict()).encode()).hexdigest()

    @property
    def file_name(self) -> str:
        """Readable file name, made unique by the key; safe for any dataset, method or variant name."""
        parts = [_slug(part) for part in (self.dataset, self.method, self.variant) if part]
        if self.role == "tune":
            parts.append("tune")
        numbers = f"s{self.seed}-f{self.fold}" + (f"-r{self.repeat}" if self.repeat else "")
        return "-".join([*parts, numbers, self.key[:24]]) + ".json"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return plain | {"parameters": dict(self.parameters), "definition": asdict(self.definition)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild the trial from the output of `to_dict`."""
        return cls(**{**data, "definition": Definition(**data["definition"])})

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Trial) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        variant = f" {self.variant}" if self.variant else ""
        place = f"fold {self.fold + 1}/{self.n_folds}" if self.n_folds else "validation"
        repeat = f" fit {self.repeat + 1}" if self.repeat else ""
        return f"{self.dataset} {self.method}{variant} seed {self.seed} {place}{repeat}"


def fold_trials(
    table: Table,
    method: str,
    parameters: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    n_folds: int = 5,
    seed: int = 0,
    variant: str = "",
    definition: Definition | None = None,
    repeats: int = 1,
) -> list[Trial]:
    """Return the trials of one method on all folds of a table, ``repeats`` per fold.

    ``parameters`` is either one mapping for all folds or a sequence with one mapping per fold.
    """
    per_fold = [parameters] * n_folds if isinstance(parameters, Mapping) else list(parameters)
    return [
        Trial(
            dataset=table.name,
            data_hash=table.sha256,
            method=method,
            variant=variant,
            parameters=own,
            fold=fold,
            n_folds=len(per_fold),
            seed=seed,
            repeat=repeat,
            definition=definition or Definition(),
        )
        for fold, own in enumerate(per_fold)
        for repeat in range(repeats)
    ]


def common_parameters(
    method: str, common: Mapping[str, Any] = COMMON, task: str = "binary"
) -> dict[str, Any]:
    """Return the common settings that a method has parameters for; the threshold is one of two classes.

    >>> common_parameters("fairx"), common_parameters("hardt")  # hardt has thresholds of its own
    ({'threshold': 'f1'}, {})
    """
    known = METHODS[method].estimator_for(task)().get_params(deep=False)
    dropped = () if task == "binary" else ("threshold",)
    return {name: value for name, value in common.items() if name in known and name not in dropped}


def grid(space: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return all settings of a search space, the last name varying fastest; an empty space has one.

    >>> grid({"a": (1, 2), "b": ("x",)})
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}]
    """
    return [dict(zip(space, values, strict=True)) for values in product(*space.values())]


def select_shard(trials: Iterable[Trial], number: int, count: int) -> list[Trial]:
    """Return part ``number`` (from 1) of ``count`` parts; the parts together hold every trial once.

    Trials are assigned in turn in the order of their content, so that every part has a share of every table
    and method.
    """
    if not 1 <= number <= count:
        raise InputError(f"shard must be one of 1/{count} to {count}/{count}, not {number}/{count}.")
    order = sorted(set(trials), key=lambda t: (t.dataset, t.method, t.role, t.variant, t.seed, t.fold, t.key))
    return order[number - 1 :: count]


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces: equal values give equal text.

    >>> canonical_json({"b": 1, "a": (2.0, None)})
    '{"a":[2.0,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def _as_json(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy in JSON's own types: the value read back from a file is the value that was hashed."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(parameters), allow_nan=False, sort_keys=True))
    except (TypeError, ValueError) as error:
        raise InputError(f"parameters must be plain JSON values (numbers, text, lists): {error}.") from None
    return plain


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")[:40] or "_"
