"""The record of everything measured of one model on one set of rows, and of one benchmark trial."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from gcig.records.base import Interval, Record
from gcig.records.formatting import describe_suppression, html_table, shown, text_table

if TYPE_CHECKING:
    import pandas as pd

_ALIKE = 0.995  # share of the rows from which decisions count as all alike
_PARTS = ("low", "high", "p", "chance")
# The 97.5 % quantile of Student's distribution with nine degrees of freedom: tenths are left out.
_T = 2.262157


def describe_degeneracy(collapsed: bool, alike: bool) -> str:
    """Say why equal rates mean nothing; empty for a model that ranks and decides."""
    if collapsed:
        return (
            "The model has collapsed: it knows hardly more than chance, so equal rates say nothing in its "
            "favour."
        )
    if alike:
        return (
            "The model decides nearly everyone alike at its threshold, so equal rates say nothing in its "
            "favour. Choose another threshold."
        )
    return ""


@dataclass(frozen=True, eq=False)
class Figure(Record):
    """One figure with its limits, and what a page says about it.

    ``p`` and ``chance`` (the 95 % point) refer to groups permuted
    within labels; ``replicates`` are the figure
    without each tenth of the rows, by which two models are compared (squares, if ``squared``).
    """

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    chance: float = math.nan
    title: str = ""
    section: str = ""
    sentence: str = ""
    better: str = ""
    digits: int = 3
    undefined: str = ""  # why the value is NaN
    replicates: tuple[float, ...] = ()
    squared: bool = False
    detectable: float = math.nan  # what these rows would reveal in four of five cases

    @property
    def interval(self) -> Interval:
        """The value with its limits."""
        return Interval(self.value, self.low, self.high)

    def values(self) -> dict[str, float]:
        """Return the value and what is known about it, by name."""
        more = {part: float(getattr(self, part)) for part in (*_PARTS, "detectable")}
        return {self.name: self.value} | {
            f"{self.name}_{part}": value
            for part, value in more.items()
            if part in ("low", "high") or not math.isnan(value)
        }

    def roots(self) -> list[float]:
        """Return the replicates in the unit of the value."""
        if not self.squared:
            return list(self.replicates)
        return [math.copysign(math.sqrt(abs(each)), each) for each in self.replicates]


@dataclass(frozen=True, eq=False)
class Figures(Record):
    """Figures as attributes and as items: ``record.gcig``, ``record["gcig_low"]``."""

    figures: tuple[Figure, ...]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "figures" not in vars(self):
            raise AttributeError(name)
        values = self.values()
        if name in values:
            return values[name]
        columns = vars(self).get("columns", {})
        if name in columns:
            return columns[name]
        rate, groups = name.removesuffix("_groups"), vars(self).get("groups", ())
        if name.endswith("_groups") and groups and rate in groups[0].values:
            return {each.group: each.values[rate] for each in groups}
        raise AttributeError(
            f"no figure is called {name!r}; this record has {', '.join(each.name for each in self.figures)}"
        )

    def __getitem__(self, name: str) -> float:
        values = self.values()
        if name not in values:
            raise KeyError(f"no figure is called {name!r}; choose from {', '.join(values)}")
        return values[name]

    def __contains__(self, name: object) -> bool:
        return name in self.values()

    def figure(self, name: str) -> Figure:
        """Return one figure."""
        for each in self.figures:
            if each.name == name:
                return each
        raise KeyError(f"no figure is called {name!r}")

    def values(self) -> dict[str, float]:
        """Return all figures and their limits by name."""
        return {key: value for each in self.figures for key, value in each.values().items()}

    def scalars(self) -> dict[str, Any]:
        """Return all single values: one row of a results table."""
        return {**super().scalars(), **self.values()}

    @property
    def undefined(self) -> dict[str, str]:
        """Why figures are NaN, by name."""
        return {each.name: each.undefined for each in self.figures if each.undefined}

    @property
    def frame(self) -> "pd.DataFrame":
        """A table with one line per figure: value, low, high, p and chance."""
        import pandas as pd

        lines = [(each.value, each.low, each.high, each.p, each.chance) for each in self.figures]
        index = pd.Index([each.name for each in self.figures], name="figure")
        return pd.DataFrame(lines, index=index, columns=["value", *_PARTS])

    def _lines(self) -> list[tuple[str, str, str]]:
        """Return name, value and interval of every figure that is defined."""
        return [
            (each.name, shown(each.value), _limits(each))
            for each in self.figures
            if not math.isnan(each.value)
        ]


def _limits(figure: Figure) -> str:
    if math.isnan(figure.low + figure.high):
        return ""
    return f"{shown(figure.low)} to {shown(figure.high)}"


@dataclass(frozen=True, eq=False)
class GroupRates(Record):
    """Figures of one group; one is NaN if no row of the group meets its condition.

    ``n_rows`` is None for a suppressed group.
    """

    group: str
    n_rows: int | None
    values: Mapping[str, float] = field(default_factory=dict)

    def __getattr__(self, name: str) -> float:
        if name.startswith("_") or "values" not in vars(self):
            raise AttributeError(name)
        if name not in self.values:
            raise AttributeError(f"no rate is called {name!r}; choose from {', '.join(self.values)}")
        return self.values[name]

    def scalars(self) -> dict[str, Any]:
        """Return group, rows and all rates."""
        return {"group": self.group, "n_rows": self.n_rows, **self.values}


@dataclass(frozen=True, eq=False)
class Difference(Figures):
    """The figures of one model minus those of another on the same rows, with 95 % intervals of the
    difference.
    """

    def __str__(self) -> str:
        return text_table(("figure", "difference", "95 % interval"), self._lines(), right_aligned=(1, 2))


# The figures that a notebook shows if there are more.
_HEADLINES = (
    *("auc", "accuracy", "r2", "log_loss", "outcome_gap", "eo_gap", "demographic_parity_difference"),
    *("reason_gap", "reason_gap_decisions", "reason_gap_common", "reason_gap_varying", "gcig"),
)


@dataclass(frozen=True, eq=False)
class Evaluation(Figures):
    """Everything measured of one model on one set of rows.

    Every figure is an attribute and an item,
    with its limits: ``evaluation.gcig``, ``evaluation["gcig_low"]``.
    Which figures there are depends on the task and the measures; ``evaluation.frame`` has them all, and
    ``docs/guide/glossary.rst`` says what each is. ``gcig_columns`` and the like map
    columns to contributions, ``gcig_groups`` and the like groups to figures.

    Attributes
    ----------
    figures : all figures.
    n_rows, task : number of rows; "binary", "classes" or "number".
    threshold : probability from which a row is decided positive; NaN if the model has a rule of its own.
    groups : figures of each group.
    columns : figures by column, by name.
    by_attribute : the evaluation of each attribute alone, if several were crossed.
    labelled : False if outcomes are unknown: figures are then conditioned on the model's own decisions.
    collapsed : whether the model knows next to nothing.
    min_cell, suppressed_cells : gaps leave out the rates of cells with fewer rows; the names of these cells.
    compared_groups : groups whose references are compared.
    worst_pair : the two groups whose reasons are farthest apart.
    n_missing : rows without a group.
    definition : the choices behind ``gcig`` and the attribution.
    remarks : sentences that belong with the figures.

    Examples
    --------
    >>> evaluation = Evaluation((Figure("gcig", 0.3, low=0.2, high=0.4),), n_rows=600)
    >>> evaluation.gcig, evaluation["gcig_low"], "auc" in evaluation
    (0.3, 0.2, False)
    """

    n_rows: int = 0
    task: str = "binary"
    threshold: float = math.nan
    groups: tuple[GroupRates, ...] = ()
    columns: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    by_attribute: Mapping[str, "Evaluation"] = field(default_factory=dict)
    labelled: bool = True
    collapsed: bool = False
    decided_alike: float = math.nan  # the share of rows with the most frequent decision
    min_cell: int = 1
    suppressed_cells: tuple[str, ...] = ()
    compared_groups: tuple[str, ...] = ()
    worst_pair: tuple[str, ...] = ()
    n_missing: int = 0
    definition: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    sample: str = ""  # a hash of the people and references that were explained, and how

    @property
    def decides_alike(self) -> bool:
        """True if at least 99.5 % of the rows are decided alike: rates are then equal, because nothing
        is decided.
        """
        return self.task != "number" and self.decided_alike >= _ALIKE

    @property
    def degenerate(self) -> bool:
        """True if equal rates say nothing: the model has collapsed, or decides everyone alike."""
        return self.collapsed or self.decides_alike

    def difference(self, other: "Evaluation") -> Difference:
        """Return the figures of this model minus those of another one on the same rows, with intervals.

        Both models must have been explained in the same way on the same people and references; the interval
        is that of the paired difference.
        """
        from gcig._arguments import InputError  # pages read records without pandas

        if self.sample != other.sample:
            raise InputError(
                "was measured on other people or references, or explained in another way. Evaluate both "
                "models "
                "on the same rows with the same random_state, reference and attribution; "
                "attribution='shapley' "
                "serves any two models.",
                argument="other",
            )
        others = {each.name: each for each in other.figures}
        known = [(each, others[each.name]) for each in self.figures if each.name in others]
        return Difference(tuple(_difference(first, second) for first, second in known))

    def to_frame(self, part: str = "figures") -> "pd.DataFrame":
        """Return a pandas table.

        Parameters
        ----------
        part : {"figures", "groups", "columns"}
            One row of all single values, a row of a results table; one row per group; or one row per column.
        """
        import pandas as pd

        if part == "figures":
            return pd.DataFrame([self.scalars()])
        if part == "groups":
            return pd.DataFrame([each.scalars() for each in self.groups]).set_index("group")
        if part == "columns":
            return pd.DataFrame(dict(self.columns)).rename_axis("column")
        raise ValueError(f"part must be 'figures', 'groups' or 'columns', not {part!r}.")

    def __repr__(self) -> str:
        values = self.values()
        known = (
            f"{name} {shown(values[name])}"
            for name in ("auc", "accuracy", "r2", "outcome_gap", "reason_gap", "gcig")
            if name in values and not math.isnan(values[name])
        )
        flag = ", collapsed" if self.collapsed else ", decides everyone alike" if self.decides_alike else ""
        return f"<Evaluation of {self.n_rows} rows: {', '.join(known)}{flag}>"

    def __str__(self) -> str:
        lines = text_table(("figure", "value", "95 % interval"), self._lines(), right_aligned=(1, 2))
        header, *body = self._group_table()
        groups = text_table(header, body, right_aligned=range(1, len(header)))
        return "\n".join([f"{self.n_rows} rows", lines, "", groups, *self.notes])

    def _repr_html_(self) -> str:
        known = [each for each in self.figures if not math.isnan(each.value)]
        folded: list[Figure] = []
        if len(known) > len(_HEADLINES):  # a notebook shows the main ones, and folds the others away
            folded = [each for each in known if each.name not in _HEADLINES]
            known = [each for each in known if each.name in _HEADLINES]

        def table(figures: list[Figure], title: str) -> str:
            lines = [
                (each.title or each.name, f"{each.value:.{each.digits}f}", _limits(each)) for each in figures
            ]
            return html_table((title, "value", "95 % interval"), lines)

        header, *body = self._group_table()
        remarks = [html_table(("remarks",), [(line,) for line in self.notes])] if self.notes else []
        rest = (
            f"<details><summary>other figures</summary>{table(folded, 'figure')}</details>" if folded else ""
        )
        return "".join([table(known, f"{self.n_rows} rows"), html_table(header, body), rest, *remarks])

    @property
    def notes(self) -> list[str]:
        """The sentences that belong with the figures."""
        notes = (
            describe_suppression(self.suppressed_cells, self.min_cell),
            describe_degeneracy(self.collapsed, self.decides_alike),
            *self.remarks,
        )
        return [note for note in notes if note]

    def _group_table(self) -> list[tuple[str, ...]]:
        """Return a header and one line per group."""
        names = list(self.groups[0].values) if self.groups else []
        table: list[tuple[str, ...]] = [("group", "n_rows", *names)]
        for each in self.groups:
            rows = "few" if each.n_rows is None else str(each.n_rows)
            table.append((each.group, rows, *(shown(each.values[name]) for name in names)))
        return table


def _difference(first: Figure, second: Figure) -> Figure:
    """Return the difference of two figures with the jackknife interval of the paired difference."""
    value = first.value - second.value
    pairs = list(zip(first.roots(), second.roots(), strict=False))
    low = high = math.nan
    if pairs and len(first.replicates) == len(second.replicates):
        reach = _T * math.sqrt(_jackknife([a - b for a, b in pairs]))
        low, high = value - reach, value + reach
    kept = {each.name: getattr(first, each.name) for each in fields(first)}
    kept |= {"value": value, "low": low, "high": high, "p": math.nan, "chance": math.nan, "replicates": ()}
    return Figure(**kept)


def _jackknife(replicates: Sequence[float], parts: int = 10) -> float:
    """Return the variance of a figure from replicates without each tenth: of references plus of people."""
    total = 0.0
    for start in range(0, len(replicates), parts):
        own = replicates[start : start + parts]
        mean = sum(own) / len(own)
        total += (len(own) - 1) / len(own) * sum((each - mean) ** 2 for each in own)
    return total


# Methods whose decisions follow from group thresholds, which the explained logit does not contain.
_POST_PROCESSED = frozenset({"hardt"})
UNRANKED_NOTE = "Hardt has no rank in GCIG: its group thresholds are not part of the logit that is explained."


def is_ranked(method: str, measure: str) -> bool:
    """Return whether a method may be ranked by a measure: post-processing has no rank in GCIG.

    >>> is_ranked("hardt", "gcig_raw"), is_ranked("hardt", "eo_gap"), is_ranked("fairx", "gcig_raw")
    (False, True, True)
    """
    return method not in _POST_PROCESSED or not measure.startswith(("gcig", "reason"))


@dataclass(frozen=True, eq=False)
class FoldResult(Record):
    """One method, fitted on the training rows of one fold and measured on its test rows."""

    dataset: str
    method: str
    variant: str  # distinguishes settings of one method within an experiment
    parameters: Mapping[str, Any]  # of the estimator
    fold: int
    seed: int  # of the split
    evaluation: Evaluation | None  # None if the fit failed
    fit_seconds: float
    error: str | None = None  # one line if the fit failed
    # Out-of-fold rows as columns (position, label, group code, score, prediction); if decisions are random,
    # the prediction is the probability of a decision for 1.
    predictions: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # one line each
    worker_died: bool = False  # the worker was killed, perhaps out of memory; running again repeats the trial
    repeat: int = 0  # number of the fit among several on the same rows with different seeds
