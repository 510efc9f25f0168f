"""Tables with known truth: which columns the groups differ in, and whether one standard is applied.

Each generator has a formula for the score of a person, a causal picture, and what a fair auditor of the model
with exactly this formula should say. They were written down, and divided into a half for design and a half
kept for the end, before anything was measured on them.

Columns are normal with unit variance unless the generator says otherwise. A person's group is g, its `side`
runs from -1 (first group) to 1 (last group), and k is the strength of what the generator is about. Labels of
two classes are drawn with the logit 1.5 (s - c) of the score s; numbers are s plus noise; of three classes
the logits are 1.5 times (s, t, -(s + t) / 2), with t a second score of columns that do not differ.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gcig._arguments import InputError

Floats = NDArray[np.float64]
Columns = Mapping[str, Tensor]
Half = Literal["design", "end"]

_SHARPNESS = 1.5  # of labels: the logit per unit of the score
_NOISE = 0.8  # standard deviation of numbers around the score
_LATENT = "latent"  # a score that labels follow, and no model sees
_FACTS = ("x1", "x2", "x3", "x4", "x5")
_SEED_OF_CENTRES = 20_240


@dataclass(frozen=True)
class Generator:
    """A table with known truth.

    Attributes
    ----------
    name, title : str
    formula : the score of a person.
    picture : the causal picture; S is the score, Y the label.
    says : what a fair auditor of the true model says without a declaration of legitimate columns.
    says_declared : what it says if the columns in ``legitimate`` are declared legitimate.
    half : "design", or "end" for the half on which nothing is chosen.
    switches : columns that stand for the group where a fault acts; exchanging them shows it.
    share : the share of the last group.
    """

    name: str
    title: str
    formula: str
    picture: str
    says: str
    says_declared: str
    half: Half
    draw: Callable[[Floats, float, np.random.Generator], dict[str, Floats]]  # side, strength
    score: Callable[[Columns, float], Tensor]  # columns, strength
    legitimate: tuple[str, ...] = _FACTS
    switches: tuple[str, ...] = ()
    share: float = 0.3
    flips: bool = False  # whether favourable labels of the last group are withheld

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the inputs."""
        drawn = self.draw(np.array([-1.0, 1.0]), 1.0, np.random.default_rng(0))
        return tuple(name for name in drawn if name != _LATENT)


@dataclass(frozen=True, eq=False)
class KnownTruth:
    """Rows of a generator, with the model that made the labels."""

    generator: Generator
    X: pd.DataFrame
    y: NDArray[np.int64] | Floats
    groups: NDArray[np.str_]
    model: nn.Module  # float32 rows -> logit (n,), logits (n, 3) or number (n,)
    task: str
    strength: float


class TrueModel(nn.Module):
    """The formula of a generator as a module over rows."""

    def __init__(self, generator: Generator, task: str, strength: float, centre: float) -> None:
        super().__init__()
        self.generator, self.task, self.strength, self.centre = generator, task, strength, centre
        self.names = generator.columns
        self.at = nn.Parameter(torch.zeros(()), requires_grad=False)  # says device and precision

    def forward(self, rows: Tensor) -> Tensor:
        """Return outputs of rows (..., columns)."""
        columns = {name: rows[..., place] for place, name in enumerate(self.names)}
        score = self.generator.score(columns, self.strength) - self.centre
        if self.task == "number":
            return score
        if self.task == "binary":
            return _SHARPNESS * score
        other = columns["x5"] - columns["x2"]
        return _SHARPNESS * torch.stack([score, other, -(score + other) / 2], -1)


def generate(
    name: str,
    n: int,
    *,
    task: str = "binary",
    seed: int = 0,
    strength: float = 1.0,
    n_groups: int = 2,
    share: float | None = None,
) -> KnownTruth:
    """Draw rows of a generator.

    Parameters
    ----------
    name : one of `GENERATORS`.
    n : rows.
    task : {"binary", "classes", "number"}
    strength : how strong what the generator is about is; 0 for none.
    n_groups : the last one has the share of the generator, the others are equally large.
    share : replaces the share of the last group.

    Examples
    --------
    >>> drawn = generate("two_weights", 500, seed=1)
    >>> drawn.X.shape, np.unique(drawn.groups).tolist(), drawn.generator.says
    ((500, 6), ['g0', 'g1'], 'different_standards')
    """
    if name not in GENERATORS:
        raise InputError(f"is {name!r}: choose one of {', '.join(GENERATORS)}.", argument="name")
    if task not in ("binary", "classes", "number"):
        raise InputError(f"is {task!r}: choose 'binary', 'classes' or 'number'.", argument="task")
    generator, rng = GENERATORS[name], np.random.default_rng([seed, n])
    last = generator.share if share is None else share
    shares = [*[(1 - last) / (n_groups - 1)] * (n_groups - 1), last]
    codes = rng.choice(n_groups, n, p=shares)
    side = 2 * codes / (n_groups - 1) - 1
    drawn = generator.draw(side, strength, rng)
    latent = drawn.pop(_LATENT, None)
    X = pd.DataFrame({column: values.astype(np.float32) for column, values in drawn.items()})
    centre = _centre(name, strength, n_groups, last)
    model = TrueModel(generator, task, strength, centre)
    seen = torch.tensor(X.to_numpy())
    if latent is not None:  # labels follow what was measured without noise
        seen[:, : latent.shape[1]] = torch.from_numpy(latent.astype(np.float32))
    with torch.no_grad():
        outputs = model(seen).double().numpy()
    y = _labels(outputs, task, rng)
    if generator.flips:
        y = _withhold(y, task, strength * (side + 1) / 2, rng)
    return KnownTruth(generator, X, y, np.array([f"g{code}" for code in codes]), model, task, strength)


@cache
def _centre(name: str, strength: float, n_groups: int, share: float) -> float:
    """Return the median score, so that classes are about equally frequent."""
    generator, rng = GENERATORS[name], np.random.default_rng(_SEED_OF_CENTRES)
    shares = [*[(1 - share) / (n_groups - 1)] * (n_groups - 1), share]
    side = 2 * rng.choice(n_groups, 20_000, p=shares) / (n_groups - 1) - 1
    drawn = generator.draw(side, strength, rng)
    columns = {name: torch.from_numpy(values) for name, values in drawn.items() if name != _LATENT}
    return float(generator.score(columns, strength).median())


def _labels(outputs: Floats, task: str, rng: np.random.Generator) -> NDArray[np.int64] | Floats:
    if task == "number":
        return outputs + _NOISE * rng.normal(size=len(outputs))
    if task == "binary":
        return (rng.random(len(outputs)) < 1 / (1 + np.exp(-outputs))).astype(np.int64)
    return np.asarray((outputs + rng.gumbel(size=outputs.shape)).argmax(1), dtype=np.int64)


def _withhold(
    y: NDArray[np.int64] | Floats, task: str, share: Floats, rng: np.random.Generator
) -> NDArray[np.int64] | Floats:
    """Return labels of which favourable ones are withheld from the last group: 0.3 of them, or 0.8."""
    if task == "number":
        return y - 0.8 * share
    favourable, other = (1, 0) if task == "binary" else (0, 2)
    return np.where((y == favourable) & (rng.random(len(y)) < 0.3 * share), other, y)


def _facts(n: int, rng: np.random.Generator) -> dict[str, Floats]:
    return {name: rng.normal(size=n) for name in _FACTS}


def _base(c: Columns, _k: float = 0.0) -> Tensor:
    return c["x1"] + c["x2"] + 0.7 * c["x3"] + 0.5 * c["x4"] - 0.5 * c["x5"]


def _alike(side: Floats, _k: float, rng: np.random.Generator) -> dict[str, Floats]:
    return _facts(len(side), rng)


def _shifted(side: Floats, k: float, rng: np.random.Generator) -> dict[str, Floats]:
    """Draw columns of which the first, third and fourth are higher by k in the last group."""
    columns = _facts(len(side), rng)
    for name in ("x1", "x3", "x4"):
        columns[name] = columns[name] + k * (side + 1) / 2
    return columns


def _with_group(side: Floats, _k: float, rng: np.random.Generator) -> dict[str, Floats]:
    return _facts(len(side), rng) | {"group": side}


def _with_carrier(name: str) -> Callable[[Floats, float, np.random.Generator], dict[str, Floats]]:
    """Return a draw with a column that carries the group."""

    def draw(side: Floats, _k: float, rng: np.random.Generator) -> dict[str, Floats]:
        return _facts(len(side), rng) | {name: 0.8 * side + 0.6 * rng.normal(size=len(side))}

    return draw


def _near_copies(side: Floats, _k: float, rng: np.random.Generator) -> dict[str, Floats]:
    columns = _shifted(side, 1.0, rng)
    columns["u"] = rng.normal(size=len(side))
    return columns | {"v": columns["u"] + 0.05 * rng.normal(size=len(side))}


def _noisier(side: Floats, k: float, rng: np.random.Generator) -> dict[str, Floats]:
    columns = _facts(len(side), rng)
    latent = np.column_stack([columns["x1"], columns["x2"]])
    for name in ("x1", "x2"):
        columns[name] = columns[name] + k * (side + 1) / 2 * rng.normal(size=len(side))
    return columns | {_LATENT: latent}


def _categories(side: Floats, k: float, rng: np.random.Generator) -> dict[str, Floats]:
    columns = _facts(len(side), rng)
    first, last = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
    at = k * (side[:, None] + 1) / 2
    shares = (first * (1 - at) + last * at).clip(0)
    level = (rng.random((len(side), 1)) > shares.cumsum(1) / shares.sum(1, keepdims=True)).sum(1).clip(0, 3)
    return columns | {f"job_{j}": (level == j).astype(np.float64) for j in range(4)}


def _correlated(side: Floats, _k: float, rng: np.random.Generator) -> dict[str, Floats]:
    shared = rng.normal(size=len(side))
    return {name: math.sqrt(0.7) * shared + math.sqrt(0.3) * rng.normal(size=len(side)) for name in _FACTS}


def _switched(carrier: str) -> Callable[[Columns, float], Tensor]:
    """Return the score in which the first column counts more the higher the carrier is."""

    def score(c: Columns, k: float) -> Tensor:
        return (1 + 0.8 * k * c[carrier]) * c["x1"] + c["x2"] + 0.5 * c["x4"] - 0.5 * c["x5"]

    return score


def _two_weights(c: Columns, k: float) -> Tensor:
    side = 0.6 * k * c["group"]
    return (1 + side) * c["x1"] + (1 - side) * c["x2"] + 0.7 * c["x3"] + 0.5 * c["x4"] - 0.5 * c["x5"]


def _two_cutoffs(c: Columns, k: float) -> Tensor:
    """Return a score to which the first column adds from a cut-off on that depends on the group."""
    above = 2 * nn.functional.softplus(4 * (c["x1"] - 0.8 * k * c["group"])) / 4
    return above + c["x2"] + 0.5 * c["x4"] - 0.5 * c["x5"]


def _two_signs(c: Columns, k: float) -> Tensor:
    return 0.8 * k * c["group"] * c["x1"] + c["x2"] + 0.7 * c["x3"] + 0.5 * c["x4"] - 0.5 * c["x5"]


def _curved(c: Columns, _k: float) -> Tensor:
    return (
        1.5 * torch.tanh(1.5 * c["x1"])
        + 0.4 * c["x2"].square()
        + 0.3 * c["x3"].square()
        + 0.5 * c["x4"]
        - 0.5 * c["x5"]
    )


def _of_categories(c: Columns, _k: float) -> Tensor:
    jobs = -0.9 * c["job_0"] - 0.3 * c["job_1"] + 0.3 * c["job_2"] + 0.9 * c["job_3"]
    return c["x1"] + c["x2"] + 0.5 * c["x4"] - 0.5 * c["x5"] + jobs


_BASE = "s = x1 + x2 + .7 x3 + .5 x4 - .5 x5"
_REST = "+ x2 + .5 x4 - .5 x5"
_SHIFTED_PICTURE = "group -> x1, x3, x4 -> S -> Y;  x2, x5 -> S"
_GROUP_PICTURE = "group -> S -> Y;  x1 ... x5 -> S"


def _all() -> list[Generator]:
    return [
        Generator(
            "nothing",
            "Nothing differs",
            formula=_BASE,
            picture="x1 ... x5 -> S -> Y;  group apart",
            says="no_dependence",
            says_declared="no_dependence",
            half="design",
            draw=_alike,
            score=_base,
        ),
        Generator(
            "shifted",
            "Groups differ in legitimate columns, one standard",
            formula=_BASE,
            picture=_SHIFTED_PICTURE,
            says="group_differences",
            says_declared="no_dependence",
            half="design",
            draw=_shifted,
            score=_base,
        ),
        Generator(
            "honest_interaction",
            "An honest interaction of legitimate columns",
            formula=f"s = (1 + .8 k tenure) x1 {_REST};  tenure = .8 side + .6 noise",
            picture="group -> tenure -> S -> Y;  x1 ... x5 -> S.  Tenure is a legitimate reason.",
            says="different_standards",
            says_declared="no_dependence",
            half="design",
            draw=_with_carrier("tenure"),
            score=_switched("tenure"),
            legitimate=(*_FACTS, "tenure"),
        ),
        Generator(
            "two_weights",
            "Two standards: weights",
            formula="s = (1 + .6 k side) x1 + (1 - .6 k side) x2 + .7 x3 + .5 x4 - .5 x5",
            picture=_GROUP_PICTURE,
            says="different_standards",
            says_declared="different_standards",
            half="design",
            draw=_with_group,
            score=_two_weights,
            switches=("group",),
        ),
        Generator(
            "protected_column",
            "The protected column itself",
            formula=f"{_BASE} + .5 k side",
            picture=_GROUP_PICTURE,
            says="different_standards",
            says_declared="different_standards",
            half="design",
            draw=_with_group,
            score=lambda c, k: _base(c) + 0.5 * k * c["group"],
            switches=("group",),
        ),
        Generator(
            "cancelling",
            "Explanations that grew and cancel",
            formula=f"{_BASE} + 8 k (u - v);  v = u + .05 noise",
            picture=f"{_SHIFTED_PICTURE};  u, v -> S with opposite weights",
            says="group_differences",
            says_declared="no_dependence",
            half="design",
            draw=_near_copies,
            score=lambda c, k: _base(c) + 8 * k * (c["u"] - c["v"]),
        ),
        Generator(
            "biased_labels",
            "Biased labels: favourable ones are withheld from the last group",
            formula=f"{_BASE};  labels of the last group are changed",
            picture="x1 ... x5 -> S -> Y <- group -> proxy",
            says="group_differences",
            says_declared="no_dependence",
            half="design",
            draw=_with_carrier("proxy"),
            score=_base,
            switches=("proxy",),
            flips=True,
        ),
        Generator(
            "one_hot",
            "A one-hot category whose frequencies differ, one standard",
            formula=f"s = x1 {_REST} + (-.9, -.3, .3, .9)[job]",
            picture="group -> job -> S -> Y;  x1 ... x5 -> S",
            says="group_differences",
            says_declared="no_dependence",
            half="design",
            draw=_categories,
            score=_of_categories,
            legitimate=(*_FACTS, "job_0", "job_1", "job_2", "job_3"),
        ),
        Generator(
            "correlated",
            "Correlated columns, nothing differs",
            formula=_BASE,
            picture="shared -> x1 ... x5 -> S -> Y;  group apart;  correlation .7",
            says="no_dependence",
            says_declared="no_dependence",
            half="end",
            draw=_correlated,
            score=_base,
        ),
        Generator(
            "curved",
            "Groups differ in legitimate columns, one standard, curved",
            formula="s = 1.5 tanh(1.5 x1) + .4 x2^2 + .3 x3^2 + .5 x4 - .5 x5",
            picture=_SHIFTED_PICTURE,
            says="group_differences",
            says_declared="no_dependence",
            half="end",
            draw=_shifted,
            score=_curved,
        ),
        Generator(
            "proxy_interaction",
            "An interaction with a proxy: the same function as honest_interaction",
            formula=f"s = (1 + .8 k proxy) x1 {_REST};  proxy = .8 side + .6 noise",
            picture="group -> proxy -> S -> Y;  x1 ... x5 -> S.  The proxy is no legitimate reason.",
            says="different_standards",
            says_declared="different_standards",
            half="end",
            draw=_with_carrier("proxy"),
            score=_switched("proxy"),
            switches=("proxy",),
        ),
        Generator(
            "two_cutoffs",
            "Two standards: thresholds",
            formula=f"s = softplus(4 (x1 - .8 k side)) / 2 {_REST}",
            picture=_GROUP_PICTURE,
            says="different_standards",
            says_declared="different_standards",
            half="end",
            draw=_with_group,
            score=_two_cutoffs,
            switches=("group",),
        ),
        Generator(
            "two_signs",
            "Two standards: signs",
            formula="s = .8 k side x1 + x2 + .7 x3 + .5 x4 - .5 x5",
            picture=_GROUP_PICTURE,
            says="different_standards",
            says_declared="different_standards",
            half="end",
            draw=_with_group,
            score=_two_signs,
            switches=("group",),
        ),
        Generator(
            "proxy",
            "A proxy that carries the group",
            formula=f"{_BASE} + .6 k proxy;  proxy = .8 side + .6 noise",
            picture="group -> proxy -> S -> Y;  x1 ... x5 -> S",
            says="group_differences",
            says_declared="different_standards",
            half="end",
            draw=_with_carrier("proxy"),
            score=lambda c, k: _base(c) + 0.6 * k * c["proxy"],
            switches=("proxy",),
        ),
        Generator(
            "noisier_group",
            "A group that is measured with more noise",
            formula=f"{_BASE};  the last group's x1 and x2 are measured with noise k",
            picture="x1 ... x5 -> S -> Y;  group -> noise -> measured x1, x2",
            says="no_dependence",
            says_declared="no_dependence",
            half="end",
            draw=_noisier,
            score=_base,
        ),
        Generator(
            "rare_group",
            "Two standards for a group of 2 %",
            formula="as two_weights",
            picture=_GROUP_PICTURE,
            says="different_standards",
            says_declared="different_standards",
            half="end",
            draw=_with_group,
            score=_two_weights,
            switches=("group",),
            share=0.02,
        ),
    ]


GENERATORS: dict[str, Generator] = {each.name: each for each in _all()}
