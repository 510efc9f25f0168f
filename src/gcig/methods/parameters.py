"""Parameters of estimators: name, default, rule and documentation, declared once and inherited.

>>> class Shrunk(Parametrised):
...     "A model that is shrunk towards zero."
...
...     strength: float = parameter(default=0.5, rule=NON_NEGATIVE, doc="How strongly it is shrunk.")
>>> Shrunk(strength=-1).check_parameters()
Traceback (most recent call last):
gcig._arguments.InputError: strength must be a finite number >= 0, not -1.
"""

import difflib
import inspect
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, dataclass_transform

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import nn

from gcig._arguments import Rule, integer, is_count, is_flag, number, one_of, optional
from gcig.methods.networks import copy_checked
from gcig.models.mlp import ACTIVATIONS, make_mlp
from gcig.tables.encoding import TableEncoder
from gcig.training.loop import Loop
from gcig.training.runtime import resolve_batch_size, resolve_learning_rate

GRID_POINTS = 100_000  # of a curve, at most: finer than the rates of as many rows, and memory grows with them
_MAX_LAYERS, _MAX_WEIGHTS = 100, 2**28  # a gigabyte of weights, of which training keeps several copies
_LARGEST_SIZE = 2**20  # units in a layer: more is a mistake, and torch fails with an obscure error


BOOLEAN = Rule("True or False", is_flag)
FRACTION = number("a number in [0, 1]", lambda value: 0 <= value <= 1)
NON_NEGATIVE = number("a finite number >= 0", lambda value: 0 <= value < math.inf)
POSITIVE = number("a finite number > 0", lambda value: 0 < value < math.inf)
POSITIVE_INTEGER = integer(1)
INSIDE = number("a number between 0 and 1", lambda value: 0 < value < 1)
BOUND = optional(POSITIVE, None)
LAYER_SIZES = Rule(
    f"a sequence of at most {_MAX_LAYERS} integers between 1 and {_LARGEST_SIZE:,}, such as (64, 32), "
    f"with at most {_MAX_WEIGHTS:,} weights between two layers",
    lambda value: (
        isinstance(value, Sequence | np.ndarray)
        and not isinstance(value, str | bytes)
        and len(value) <= _MAX_LAYERS
        and all(is_count(size, 1, _LARGEST_SIZE + 1) for size in value)
        and all(int(size) * int(after) <= _MAX_WEIGHTS for size, after in pairwise(value))
    ),
)
CLASS_WEIGHT = Rule(
    "None, 'balanced' or a dict that gives classes a finite, positive weight",
    lambda value: (
        value is None
        or (isinstance(value, str) and value == "balanced")
        or (isinstance(value, Mapping) and all(map(POSITIVE.holds, value.values())))
    ),
)
RANDOM_STATE = Rule(
    "None, an integer from 0 to 2**32 - 1 or a numpy.random.RandomState",
    lambda value: value is None or isinstance(value, np.random.RandomState) or is_count(value, 0, 2**32),
)
VERBOSE = Rule("True, False or an integer >= 0", lambda value: is_flag(value) or is_count(value))
MODULE = Rule("None or a torch.nn.Module", lambda value: value is None or isinstance(value, torch.nn.Module))


def _is_device(value: Any) -> bool:
    if not isinstance(value, str | torch.device):
        return False
    try:
        found = torch.device("cpu" if value == "auto" else value)
    except RuntimeError:
        return False
    return found.type != "meta"  # it has no values


DEVICE = Rule("'auto' or a device of torch such as 'cpu' or 'cuda:0'", _is_device)


_NAMED_PREPROCESSING = one_of("table", "binned", "none")
_PREPROCESSING = Rule(
    f"{_NAMED_PREPROCESSING.text}, or a TableEncoder",
    lambda value: isinstance(value, TableEncoder) or _NAMED_PREPROCESSING.holds(value),
    _NAMED_PREPROCESSING.choices,
)


@dataclass(frozen=True)
class _Declaration:
    default: Any
    rule: Rule
    doc: str


def parameter(*, default: Any, rule: Rule, doc: str) -> Any:
    """Declare a parameter in the body of a `Parametrised` class.

    Parameters
    ----------
    default : any
        The default; a value that nothing changes in place.
    rule : Rule
        The values that are accepted.
    doc : str
        The description in the class's documentation.

    Examples
    --------
    >>> class Rotated(Parametrised):
    ...     angle: float = parameter(default=1.0, rule=POSITIVE, doc="The angle in degrees.")
    >>> Rotated(angle=90.0).get_params()
    {'angle': 90.0}
    """
    return _Declaration(default, rule, inspect.cleandoc(doc))


@dataclass_transform(kw_only_default=True, field_specifiers=(parameter,))
class Parametrised(BaseEstimator):
    """An estimator whose parameters are declared by `parameter` in the class body.

    A subclass inherits parameters, may declare more, and may leave some out:
    ``class Subclass(Base, without=("threshold",))``. Its constructor takes them as keywords, with a signature
    that scikit-learn and editors read, and its docstring gets a section that describes them, its own first.
    A subclass with an ``__init__`` of its own keeps it.
    """

    _declared: ClassVar[dict[str, _Declaration]] = {}

    def __init_subclass__(cls, *, without: Iterable[str] = (), **options: Any) -> None:
        super().__init_subclass__(**options)
        own = {name: value for name, value in vars(cls).items() if isinstance(value, _Declaration)}
        for name in own:
            delattr(cls, name)  # instances hold the values
        cls._declared = dict(own)
        for base in cls.__bases__:
            for name, declared in getattr(base, "_declared", {}).items():
                if name not in without:
                    cls._declared.setdefault(name, declared)
        if "__init__" not in vars(cls):
            cls.__init__ = _constructor(cls)  # type: ignore[method-assign]
        if vars(cls).get("__doc__"):
            cls.__doc__ = _documented(inspect.cleandoc(cls.__doc__ or ""), cls._declared)

    def check_parameters(self) -> None:
        """Raise an `InputError` for the first parameter whose value is not accepted."""
        for name in self.get_params(deep=False):
            if name in self._declared:
                self._declared[name].rule.check(name, getattr(self, name))


def _constructor(cls: type[Parametrised]) -> Callable[..., None]:
    declared = cls._declared

    def __init__(self: Parametrised, **values: Any) -> None:
        for name in values:
            if name not in declared:
                close = difflib.get_close_matches(name, declared, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise TypeError(f"{type(self).__name__} has no parameter {name!r}{hint}")
        for name, each in declared.items():
            setattr(self, name, values.get(name, each.default))

    keyword = inspect.Parameter.KEYWORD_ONLY
    annotations = map(inspect.get_annotations, reversed(cls.__mro__))
    types = {name: kind for own in annotations for name, kind in own.items()}
    parameters = [
        inspect.Parameter(name, keyword, default=each.default, annotation=types[name])
        for name, each in declared.items()
    ]
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = inspect.Signature([first, *parameters])  # type: ignore[attr-defined]
    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    __init__.__module__ = cls.__module__
    return __init__


def _documented(text: str, declared: Mapping[str, _Declaration]) -> str:
    """Insert the section on parameters after the description, before the first section."""
    entries = [
        f"{name} : {each.rule.text.removeprefix('a ').removeprefix('an ')}, default {each.default!r}\n"
        + textwrap.indent(each.doc, "    ")
        for name, each in declared.items()
    ]
    section = "\n".join(["Parameters", "----------", *entries])
    lines = text.splitlines()
    rules = [index for index, line in enumerate(lines) if line and set(line) == {"-"}]
    place = rules[0] - 1 if rules else len(lines)
    before, after = "\n".join(lines[:place]).rstrip(), "\n".join(lines[place:])
    return "\n\n".join(part for part in (before, section, after) if part)


class NetworkParameters(Parametrised):
    """The parameters of the network and of its training."""

    module: nn.Module | None = parameter(
        default=None,
        rule=MODULE,
        doc="""A network of your own, (n, p) -> (n,) logits or predictions, or (n, K) for K classes, trained
        from its present weights. It is copied; None builds a multi-layer perceptron.""",
    )
    preprocessing: str | TableEncoder = parameter(
        default="table",
        rule=_PREPROCESSING,
        doc="""``"table"`` encodes the columns (numbers and dates standardised, categories one-hot).
        ``"binned"`` also encodes each number in 24 bins, with which a network follows thresholds as trees
        do. ``"none"`` takes the columns as numbers. A `TableEncoder` sets the bins and the largest number of
        categories; it is copied.""",
    )
    hidden_sizes: Sequence[int] = parameter(
        default=(64, 32),
        rule=LAYER_SIZES,
        doc="Widths of the hidden layers if no `module` is given; ``()`` gives a linear model.",
    )
    activation: str = parameter(
        default="silu", rule=one_of(*ACTIVATIONS), doc="Activation if no `module` is given."
    )
    max_epochs: int = parameter(default=40, rule=POSITIVE_INTEGER, doc="Largest number of epochs.")
    batch_size: int | str = parameter(
        default="auto",
        rule=optional(POSITIVE_INTEGER, "auto"),
        doc='Rows per mini-batch; ``"auto"`` is 64 for small tables and up to 512 for large ones.',
    )
    learning_rate: float | str = parameter(
        default="auto",
        rule=optional(POSITIVE, "auto"),
        doc="""Initial learning rate of AdamW, lowered along a cosine. ``"auto"`` grows with the mini-batch
        and is higher for narrow networks.""",
    )
    weight_decay: float = parameter(default=1e-4, rule=NON_NEGATIVE, doc="Weight decay of AdamW.")
    early_stopping: bool = parameter(
        default=True,
        rule=BOOLEAN,
        doc="""Whether to hold out a part of the training data, which decides the epoch that is kept and when
        to stop. If False, the network is trained on all rows and the last epoch is kept.""",
    )
    patience: int = parameter(
        default=20, rule=POSITIVE_INTEGER, doc="Epochs without improvement before training stops early."
    )
    validation_fraction: float = parameter(
        default=0.15, rule=INSIDE, doc="Share of the training data that is held out."
    )
    warm_start: bool = parameter(
        default=False, rule=BOOLEAN, doc="Whether another `fit` continues from the present network."
    )
    device: str = parameter(
        default="auto", rule=DEVICE, doc='``"auto"`` is a CUDA device if there is one, else the CPU.'
    )
    random_state: Any = parameter(
        default=None, rule=RANDOM_STATE, doc="Seed; an integer makes `fit` reproducible to the bit."
    )
    verbose: bool | int = parameter(default=False, rule=VERBOSE, doc="Whether to show progress.")

    @property
    def holds_out(self) -> bool:
        """True if `fit` holds out a part of the training data."""
        return bool(self.early_stopping)

    def resolve_loop(self, n_rows: int) -> Loop:
        """Return how long and in what mini-batches to train on this many rows."""
        batch_size = resolve_batch_size(self.batch_size, n_rows)
        return Loop(self.max_epochs, batch_size, self.patience if self.holds_out else None)

    def resolve_learning_rate(self, batch_size: int) -> float:
        """Return the initial learning rate, which depends on the mini-batch and the network if ``"auto"``."""
        if self.module is not None:
            return resolve_learning_rate(self.learning_rate, batch_size)
        return resolve_learning_rate(self.learning_rate, batch_size, max(self.hidden_sizes, default=1))

    def make_network(self, n_inputs: int, n_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return an untrained network, or a copy of `module`."""
        if self.module is not None:
            return copy_checked(self.module, n_inputs, n_outputs)
        sizes, activation = self.hidden_sizes, self.activation
        return make_mlp(n_inputs, sizes, activation, n_outputs=n_outputs, generator=generator)


class ClassifierParameters(NetworkParameters):
    """The parameters of a network that classifies."""

    threshold: float | str = parameter(
        default=0.5,
        rule=optional(INSIDE, "f1"),
        doc="""The probability from which a row is predicted positive, for two classes; ``"f1"`` chooses it
        for F1 on the held-out set (or on the training data if nothing is held out). A number set later by
        `set_params` applies to the fitted model at once.""",
    )
    class_weight: Any = parameter(
        default=None, rule=CLASS_WEIGHT, doc="Weights of the classes in the cross-entropy."
    )
