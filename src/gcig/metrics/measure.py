"""Measures: one record per figure, and their registry.

A measure says how its figure is computed, for which tasks, in which range it lies, which direction is better,
and the sentence that a page says about it. Records, tables, pages, limits and axes iterate over measures; a
new measure is one call of `register_measure`.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from gcig._arguments import InputError
from gcig._plugins import Registry

Needs = Literal["counts", "scores", "means", "table", "model"]
TASKS = ("binary", "classes", "number")


@dataclass(frozen=True)
class Estimate:
    """A figure with what is known about it; everything but the value may be NaN.

    ``replicates`` are the figure without each tenth of the rows in turn (of references, then of people, if it
    is taken from the table of attributions): two models on the same rows are compared by them.

    Examples
    --------
    >>> estimate = Estimate(0.3, low=0.2, high=0.4)
    >>> estimate.low < estimate.value < estimate.high
    True
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    chance: float = math.nan
    replicates: tuple[float, ...] = ()
    squared: bool = False  # whether the replicates are squares, of which the value is the signed root
    detectable: float = math.nan  # what these rows would reveal in four of five cases


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
        - ``"counts"``: `gcig.metrics.utility.Counts`, additive sums of decisions and losses by cell and
          group. The function is called once with all rows and once with many draws of them: its arrays have
          leading dimensions, and it returns an array of these.
        - ``"scores"``: `gcig.metrics.samples.Sample`, outputs of a sample of rows, with weights.
        - ``"means"``: `gcig.metrics.relative_to_means.MeanSums`, additive sums of the explanations relative
          to means.
        - ``"table"``: `gcig.metrics.table.TableView`, the table of attributions with groups.
        - ``"model"``: `gcig.metrics.measured.Measured`, everything.
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
    ...     "Share of wrong decisions.", section="utility",
    ... )
    >>> errors.better, errors.tasks
    ('lower', ('binary', 'classes', 'number'))
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


def _check(name: str, found: Any) -> Measure:
    if not isinstance(found, Measure):
        raise TypeError(f"{name!r} must be a gcig.metrics.Measure, not a {type(found).__name__}")
    return found


MEASURES: Registry[Measure] = Registry("measure", {}, _check)


def measure(needs: Needs, **options: Any) -> Callable[[Callable[[Any], Any]], Measure]:
    """Register a function as the measure of its name; its docstring is "Title: sentence"."""

    def of(compute: Callable[[Any], Any]) -> Measure:
        name = options.pop("name", compute.__name__)
        title, _, sentence = " ".join((compute.__doc__ or name).split()).partition(": ")
        found = Measure(name, compute, needs, title, sentence, **options)
        MEASURES.add(name, found, overwrite=True)
        return found

    return of


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
    """Import the modules of this package that register measures."""
    for module in ("utility", "outcomes", "procedural", "relatives", "trust_measures", "exchange"):
        import_module(f"gcig.metrics.{module}")
