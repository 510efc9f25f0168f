"""Checked arguments of evaluations and audits, encoded rows, random samples of them, and their references."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import UndefinedMetricWarning

from gcig._arguments import check_argument, is_count, is_flag, is_number
from gcig._arrays import Codes, Floats, Rows
from gcig._tables import level_name, listed
from gcig._validation import Groups, InputError, Labels, check_groups, check_labels, check_sample_weight
from gcig._warnings import warn_caller
from gcig.adapters import AdaptedModel
from gcig.adapters.base import last_step
from gcig.core.definition import Definition
from gcig.metrics.rates import quotient

Reference = tuple[Any, Any, Any]
_SAMPLE_ROWS = 4096


def _optional(holds: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: value is None or holds(value)


_FLAG = "True or False", is_flag
_COUNT = "an integer from 0 to 2**31 - 1", is_count
_DRAWS = "an integer from 0 to 100,000", partial(is_count, below=100_001)  # all draws are in memory at once
_ACCEPTED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "threshold": ("None or a probability", _optional(lambda value: is_number(value) and 0 <= value <= 1)),
    "definition": ("None or a gcig.Definition", _optional(lambda value: isinstance(value, Definition))),
    "min_cell": _COUNT,
    "n_bootstrap": _DRAWS,
    "n_shuffles": (f"None or {_DRAWS[0]}", _optional(_DRAWS[1])),
    "max_calls": ("None or a positive integer", _optional(lambda value: is_count(value, 1, 2**63))),
    "max_rows_explained": ("None or a positive integer", _optional(lambda value: is_count(value, 1, 2**63))),
    "random_state": (
        "None, an integer >= 0 or a numpy.random.Generator",
        _optional(lambda value: isinstance(value, np.random.Generator) or is_count(value, 0, 2**128)),
    ),
    "robustness": _FLAG,
    "neighbours": _FLAG,
    "progress": _FLAG,
    "include_rows": _FLAG,
    "include_protected": _FLAG,
    "trust_pickle": _FLAG,
    "identifiers": (
        "None or a sequence with the name of each row",
        _optional(lambda value: len(value) >= 0 and not isinstance(value, str | bytes)),
    ),
    "name": ("None or a text", _optional(lambda value: isinstance(value, str))),
}


def check_arguments(**given: Any) -> None:
    """Raise an `InputError` that names the first argument that cannot be used.

    >>> check_arguments(threshold=0.3, min_cell=11)
    >>> check_arguments(threshold=float("nan"))
    Traceback (most recent call last):
    gcig._tables.InputError: threshold must be None or a probability, not nan.
    """
    for name, value in given.items():
        check_argument(name, value, *_ACCEPTED[name])


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Encoded rows, with label, group, weight and position in the whole table."""

    inputs: Rows
    labels: Codes
    groups: Codes
    positions: NDArray[np.int64]
    weights: Floats | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def known_weights(self) -> Floats:
        """The weight of each row, one if none are given."""
        return np.ones(len(self)) if self.weights is None else self.weights

    def __getitem__(self, rows: Any) -> "EncodedRows":
        fields: list[Any] = [None if each is None else each[rows] for each in vars(self).values()]
        return EncodedRows(*fields)

    @staticmethod
    def join(parts: "Sequence[EncodedRows]") -> "EncodedRows":
        """Return the rows of several parts; weights are kept only if all of them have weights."""
        fields = zip(*(vars(part).values() for part in parts), strict=True)
        joined: list[Any] = [
            None if any(one is None for one in each) else np.concatenate(each) for each in fields
        ]
        return EncodedRows(*joined)


class RandomStreams(NamedTuple):
    """Independent generators: no quantity depends on whether another one is computed."""

    sample: np.random.Generator
    blocks: np.random.Generator
    draws: np.random.Generator
    outcome: np.random.Generator
    shuffles: np.random.Generator
    members: np.random.Generator
    importance: np.random.Generator

    @classmethod
    def spawn(cls, seed: int) -> "RandomStreams":
        """Derive the generators from a seed."""
        return cls(*map(np.random.default_rng, np.random.SeedSequence(seed).spawn(len(cls._fields))))


def fixed_seed(random_state: int | np.random.Generator | None) -> int:
    """Return one seed for everything that is drawn, so that two models are measured on the same rows."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(np.random.default_rng(random_state).integers(2**63))


class Reservoir:
    """Random sample of at most ``size`` rows from batches of any number: those with the smallest random keys.

    The sample depends on the generator and the order of the rows, not on how they are batched.
    """

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self.size = size
        self.rng = rng
        self._keys: Floats = np.empty(0)
        self._rows: EncodedRows | None = None
        self.n_seen = 0

    def add(self, offered: EncodedRows, keys: Floats | None = None) -> None:
        """Offer the rows of a batch; ``keys`` take the place of new random keys."""
        self.n_seen += len(offered)
        keys = self.rng.random(len(offered)) if keys is None else keys
        if len(offered) > self.size:
            few = np.argpartition(keys, self.size - 1)[: self.size]
            keys, offered = keys[few], offered[few]
        rows = offered if self._rows is None else EncodedRows.join([self._rows, offered])
        keys = np.concatenate([self._keys, keys])
        kept = np.argsort(keys)[: self.size]
        self._keys, self._rows = keys[kept], rows[kept]

    @property
    def rows(self) -> EncodedRows:
        """The sample in random order, so its first rows are a random sample as well."""
        if self._rows is None:
            raise ValueError("no rows were added")
        return self._rows


def draw_sample(limit: int | None, rng: np.random.Generator) -> Reservoir:
    """Return an empty sample with room for the rows to explain (None for all) and for probes."""
    return Reservoir(max(_SAMPLE_ROWS, limit or 0), rng)


@dataclass(frozen=True, eq=False)
class Sample:
    """Checked rows in memory, and the references of the groups that are compared."""

    adapted: AdaptedModel
    labels: Labels
    groups: Groups
    rows: EncodedRows
    baselines: Rows  # (2, compared groups, p) references; NaN for a cell without any
    compared: tuple[int, ...]  # positions of the compared groups in `groups.names`
    reference_rows: EncodedRows | None = None  # the rows that the references were estimated from, if given

    @classmethod
    def check(
        cls,
        adapted: AdaptedModel,
        X: Any,
        y: ArrayLike,
        sensitive_features: Any,
        reference: Reference | None,
        sample_weight: ArrayLike | None,
        min_cell: int = 1,
    ) -> "Sample":
        """Check all inputs once; the references come from ``reference``, the model or the rows themselves."""
        inputs = adapted.encode(X, sensitive_features)
        labels = check_sample_labels(y, len(inputs), adapted.classes)
        sums, names, own, given = None, None, None, None
        if reference is not None:
            table, y, of_rows = reference
            encoded = adapted.encode(table, of_rows)
            codes = check_sample_labels(y, len(encoded), np.asarray(labels.classes)).codes
            known = check_groups(of_rows, n_rows=len(encoded))
            given, names = EncodedRows(encoded, codes, known.codes, np.arange(len(encoded))), known.names
            sums = sum_cells(given, len(names))
        elif adapted.baselines is not None:
            own, names = adapted.baselines, adapted.groups
        groups = check_groups(sensitive_features, n_rows=len(inputs), names=names)
        weights = check_sample_weight(sample_weight, len(inputs))
        rows = EncodedRows(inputs, labels.codes, groups.codes, np.arange(len(inputs)), weights)
        if own is None and sums is None:
            sums = sum_cells(rows, len(groups.names))
        counts = adapted.baseline_counts if sums is None else sums.counts.numpy()
        compared = comparable_groups(counts, own, min_cell)
        baselines = np.asarray(own if sums is None else cell_means(sums))[:, list(compared)]
        sample = cls(adapted, labels, groups, rows, baselines, compared, given)
        sample._warn_if_not_comparable(min_cell)
        return sample

    def draw(self, streams: RandomStreams) -> EncodedRows:
        """Return a random sample of the rows, in random order."""
        drawn = draw_sample(self.adapted.explainer.budget.rows, streams.sample)
        drawn.add(self.rows)
        return drawn.rows

    def _warn_if_not_comparable(self, min_cell: int) -> None:
        """Warn if GCIG will be NaN because references are missing."""
        names = [self.groups.names[g] for g in self.compared]
        absent = np.argwhere(np.isnan(self.baselines).any(axis=2)).tolist()
        missing = [f"label {y} in group {names[g]!r}" for y, g in absent if (self.labels.codes == y).any()]
        remedy = "Pass reference=(X, y, sensitive_features) in which every label occurs in every group."
        if missing:
            warn_caller(
                f"No rows with {', '.join(missing)} to estimate references from: GCIG of that label is NaN. "
                f"{remedy}",
                UndefinedMetricWarning,
            )
        elif len(names) < 2:
            warn_caller(
                f"GCIG is NaN: fewer than two groups have {min_cell} reference rows of each label. Pass more "
                "rows, pass the training rows as reference=(X, y, sensitive_features), merge groups, or "
                "lower min_cell.",
                UndefinedMetricWarning,
            )


def comparable_groups(counts: Codes | None, own: Rows | None, min_cell: int) -> tuple[int, ...]:
    """Return the positions of the groups whose references are compared.

    These are the groups with ``min_cell`` reference rows of each label, by ``counts`` (2, groups), which are
    unknown of some models; if the model has references of its own (2, groups, p), only groups with one. With
    ``min_cell`` = 1 all groups are compared: a missing reference then makes GCIG NaN.

    >>> comparable_groups(np.array([[20, 3, 15], [30, 40, 11]]), None, 11)
    (0, 2)
    """
    conditions = []
    if counts is not None:
        conditions.append((np.asarray(counts) >= min_cell).all(axis=0) | (min_cell <= 1))
    if own is not None:
        conditions.append(np.isfinite(own).all(axis=(0, 2)))
    return tuple(np.flatnonzero(np.all(conditions, axis=0)).tolist())


class CellSums(NamedTuple):
    """Sums and counts of rows by cell; ``+`` adds those of several parts."""

    sums: torch.Tensor  # (labels, groups, columns)
    counts: torch.Tensor  # (labels, groups)

    def __add__(self, other: object) -> "CellSums":
        if not isinstance(other, CellSums):
            return NotImplemented
        return CellSums(self.sums + other.sums, self.counts + other.counts)


def sum_cells(rows: EncodedRows, n_groups: int) -> CellSums:
    """Sum encoded rows by (label, group) cell in double precision."""
    inputs = torch.tensor(rows.inputs, dtype=torch.float64)
    places = torch.tensor(rows.labels * n_groups + rows.groups)
    sums = torch.zeros(2 * n_groups, inputs.shape[1], dtype=torch.float64).index_add_(0, places, inputs)
    counts = torch.bincount(places, minlength=2 * n_groups)
    return CellSums(sums.view(2, n_groups, -1), counts.view(2, n_groups))


def cell_means(sums: CellSums) -> Floats:
    """Return the means of each cell, (2, groups, p); NaN for a cell without rows."""
    return quotient(sums.sums.numpy(), sums.counts.double().unsqueeze(-1).numpy())


def reference_table(reference: Reference | None) -> Any:
    """Return the rows of a reference, or None if there is none."""
    if reference is None:
        return None
    if not isinstance(reference, tuple) or len(reference) != 3:
        raise InputError("reference must be a tuple (X, y, sensitive_features).")
    return reference[0]


def check_binary(y: ArrayLike, *, n_rows: int | None = None, name: str = "y_true") -> Labels:
    """Check labels of two classes; 0 and 1 keep their meaning even if only one of them occurs."""
    try:
        return check_labels(y, n_rows=n_rows, classes=(0, 1), name=name)
    except InputError:
        return check_labels(y, n_rows=n_rows, name=name)


def check_sample_labels(y: ArrayLike, n_rows: int, classes: NDArray[Any] | None) -> Labels:
    """Check labels given as the classes of the model, or as 0 and 1."""
    if classes is None:
        return check_binary(y, n_rows=n_rows, name="y")
    known = tuple(classes.tolist())
    try:
        return check_labels(y, n_rows=n_rows, classes=known)
    except InputError as error:
        try:
            codes = check_labels(y, n_rows=n_rows, classes=(0, 1)).codes
        except InputError:
            raise error from None
        return Labels(codes, (known[0], known[1]))


def check_favourable(favourable: Any, classes: tuple[Any, Any], model: Any = None) -> int:
    """Return the code of the class that is favourable for a person.

    By default it is the one that the model records (``favourable_``), otherwise 1, the positive class.

    >>> check_favourable(None, ("paid", "default")), check_favourable("paid", ("paid", "default"))
    (1, 0)
    """
    if favourable is None:
        trained = last_step(model)
        recorded = getattr(trained, "favourable_", None)
        return 1 if recorded is None else trained.classes_.tolist().index(recorded)
    names = [level_name(each) for each in classes]
    if level_name(favourable) not in names:
        raise InputError(
            f"is {favourable!r}, but the classes are {listed(names)}. Name the favourable one.",
            argument="favourable",
        )
    return names.index(level_name(favourable))
