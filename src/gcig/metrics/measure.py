"""Measures: one record per figure, and their registry.

A measure says how its figure is computed, for which tasks, in which range it lies, which direction is better,
and the sentence that a page says about it. Records, tables, pages, limits and axes iterate over measures; a
new measure is one call of `register_measure`.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gcig._plugins import Registry
from gcig._validation import InputError

Needs = Literal["counts", "scores", "means", "table", "model"]
SECTIONS = {
    "utility": "utility",
    "outcomes": "outcome fairness",
    "reasons": "procedural fairness",
    "trust": "can the reasons be trusted",
}
TASKS = ("binary", "classes", "number")


@dataclass(frozen=True)
class Estimate:
    """A figure with what is known about it; everything but the value may be NaN.

    ``replicates`` are the figure without each tenth of the rows in turn (of references, then of people, if it
    is taken from the table of attributions): two models on the same rows are compared by them.

    Examples
    --------
    >>> Estimate(0.3, low=0.2, high=0.4).named("spread")
    {'spread': 0.3, 'spread_low': 0.2, 'spread_high': 0.4}
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    chance: float = math.nan
    replicates: tuple[float, ...] = ()
    squared: bool = False  # whether the replicates are squares, of which the value is the signed root
    detectable: float = math.nan  # what these rows would reveal in four of five cases

    def named(self, name: str) -> dict[str, float]:
        """Return the value and what is known about it, by name."""
        more = {part: getattr(self, part) for part in ("low", "high", "p", "chance")}
        return {name: self.value} | {
            f"{name}_{part}": value
            for part, value in more.items()
            if part in ("low", "high") or not math.isnan(value)
        }


@dataclass(frozen=True)
class Measure:
    """One figure.

    Parameters
    ----------
    name : str
        The name of the figure in records, tables, limits (``--max-<name>``) and results.
    compute : callable
        What it takes depends on `needs`; it returns a number, an `Estimate`, or a mapping from columns to
        numbers. NaN means undefined.
    needs : {"counts", "scores", "means", "table", "model"}
        - ``"counts"``: `gcig.metrics.sums.Counts`, additive sums of decisions and losses by cell and group.
          The function is called once with all rows and once with many draws of them: its arrays have leading
          dimensions, and it returns an array of these.
        - ``"scores"``: `gcig.metrics.samples.Sample`, outputs of a sample of rows, with weights.
        - ``"means"``: `gcig.metrics.relative_to_means.MeanSums`, additive sums of the explanations relative
          to means.
        - ``"table"``: `gcig.metrics.table.TableView`, the table of attributions with groups.
        - ``"model"``: `gcig.metrics.result.Measured`, everything.
    title, sentence : str
        What tables call it, and what a page says about it.
    section : {"utility", "outcomes", "reasons", "trust"}
    tasks : tuple of {"binary", "classes", "number"}
        The tasks for which it is defined.
    low, high : float
        Its range.
    better : {"lower", "higher", ""}
    digits : int
        Digits after the point.
    sets : tuple of {"default", "procedural", "robustness"}
        Which sets of measures it belongs to; ``"all"`` has every one.
    per_group : bool
        Whether `compute` returns one number per group, with the groups in the last dimension.
    by_column : bool
        Whether `compute` returns a mapping from columns to numbers.
    cell : int, optional
        The label whose rows a figure per group is about: it is suppressed if there are few.
    labels : {"needed", "conditioned", "unused"}
        Without labels a measure that needs them is left out; one that compares people with the same label is
        conditioned on the model's own decisions instead, and its name ends in ``_decisions``.
    undefined : str
        What a page says if the figure is NaN.

    Examples
    --------
    >>> errors = Measure(
    ...     "error_rate", lambda counts: 1 - counts.accuracy, "counts", "Error rate",
    ...     "Share of wrong decisions.",
    ... )
    >>> errors.shown(0.12345)
    '0.123'
    """

    name: str
    compute: Callable[[Any], Any]
    needs: Needs
    title: str
    sentence: str
    section: str = "outcomes"
    tasks: tuple[str, ...] = TASKS
    low: float = 0.0
    high: float = math.inf
    better: Literal["lower", "higher", ""] = "lower"
    digits: int = 3
    sets: tuple[str, ...] = ("default",)
    per_group: bool = False
    by_column: bool = False
    cell: int | None = None
    labels: Literal["needed", "conditioned", "unused"] = "conditioned"
    undefined: str = ""

    def shown(self, value: float) -> str:
        """Return a value as text."""
        return "undefined" if math.isnan(value) else f"{value:.{self.digits}f}"


def measure(
    needs: Needs, title: str, sentence: str, **options: Any
) -> Callable[[Callable[[Any], Any]], Measure]:
    """Turn a function into the measure of its name."""

    def of(compute: Callable[[Any], Any]) -> Measure:
        name = options.pop("name", compute.__name__)
        return Measure(name, compute, needs, title, sentence, **options)

    return of


def _check(name: str, found: Any) -> Measure:
    if not isinstance(found, Measure):
        raise TypeError(f"{name!r} must be a gcig.metrics.Measure, not a {type(found).__name__}")
    return found


MEASURES: Registry[Measure] = Registry("measure", {}, _check)


def register_measure(measure: Measure, *, overwrite: bool = False) -> None:
    """Add a measure: it then appears in evaluations, tables, pages and limits.

    Parameters
    ----------
    measure : gcig.metrics.Measure
    overwrite : bool
        Whether another measure of this name is replaced.

    Examples
    --------
    The share of wrong decisions:

    >>> from gcig.metrics import Measure
    >>> errors = Measure(
    ...     "error_rate", lambda counts: 1 - counts.accuracy, "counts", "Error rate",
    ...     "Share of wrong decisions.", section="utility", tasks=("binary", "classes"), high=1.0,
    ... )
    >>> register_measure(errors, overwrite=True)
    """
    MEASURES.add(_check("measure", measure).name, measure, overwrite=overwrite)


def select_measures(
    chosen: "str | Iterable[str]", task: str, *, robustness: bool = False
) -> tuple[Measure, ...]:
    """Return the measures of a set (``"default"``, ``"procedural"``, ``"all"``) or of a list of names.

    ``robustness`` adds those of the set of this name.
    """
    load_measures()
    if isinstance(chosen, str):
        if chosen not in ("default", "procedural", "all"):
            raise InputError(
                f"is {chosen!r}: pass 'default', 'procedural', 'all' or a list of names.", argument="measures"
            )
        sets = {"default", chosen} | ({"robustness"} if robustness else set())
        found = [each for each in MEASURES.values() if chosen == "all" or sets & set(each.sets)]
        return tuple(each for each in found if task in each.tasks)
    names = list(chosen)
    if unknown := [name for name in names if name not in MEASURES]:
        raise InputError(
            f"has no measure called {', '.join(map(repr, unknown))}. Choose from "
            f"{', '.join(sorted(MEASURES))}.",
            argument="measures",
        )
    found = [MEASURES[name] for name in names]
    if wrong := [each.name for each in found if task not in each.tasks]:
        raise InputError(
            f"{', '.join(wrong)}: not defined for the task {task!r}. Leave them out.", argument="measures"
        )
    return tuple(found)


def load_measures() -> None:
    """Register the measures of this package."""
    from gcig.metrics import exchange, outcomes, procedural, relatives, trust, utility

    for module in (utility, outcomes, procedural, relatives, trust, exchange):
        for value in vars(module).values():
            if isinstance(value, Measure) and value.name not in MEASURES:
                MEASURES.add(value.name, value, overwrite=False)


def flat(estimates: Mapping[str, Estimate]) -> dict[str, float]:
    """Return all values with their limits, by name."""
    return {key: value for name, each in estimates.items() for key, value in each.named(name).items()}
