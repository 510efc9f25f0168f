"""From sums and samples to an evaluation: every measure computed, with its interval."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import UndefinedMetricWarning

from gcig._arguments import InputError, warn_caller
from gcig._arrays import Floats
from gcig._progress import LONG, announce, progress
from gcig.adapters.base import DifferentiableModel
from gcig.core.attribution import Attribution, IntegratedGradients, Score, choose_steps
from gcig.core.explained import (
    LEAST_REFERENCES,
    REACH,
    ExplainedTable,
    choose,
    explain_table,
    smallest_by_group,
)
from gcig.metrics.intervals import interval
from gcig.metrics.measure import Estimate, Measure
from gcig.metrics.outcomes import warn_if_undefined
from gcig.metrics.partial import Partial
from gcig.metrics.plan import Plan
from gcig.metrics.relative_to_means import MeanSums
from gcig.metrics.samples import N_PARTS, Sample, leave_out, resample
from gcig.metrics.table import TableView
from gcig.metrics.utility import Counts, has_collapsed, outcome_cells
from gcig.records import Evaluation, GroupRates
from gcig.records.evaluation import Figure

_NO_MEANS = (
    "The model has no gradients (or another attribution was chosen), and a mean is no reference for Shapley "
    "values. See reason_gap and gcig_members."
)
_ALONE = "Relative to means every attribute needs explanations of its own: evaluate it alone."
_FEW = (
    "Fewer than two groups have {min_cell} reference rows of a label, or fewer than 20 people can be "
    "explained."
)
_NO_MEANS_OF_TWO = (
    "No label has enough reference rows of two groups for their means. Pass "
    "reference=(X, y, sensitive_features) with more rows of each."
)
# Nodes of the quadrature are doubled until explanations change by less than this share of their size. With
# two nodes an additive module with tanh(1.5 x) in it has a varying part of 0.06 instead of 0.
_TOLERANCE = 0.01
_FEW_PEOPLE, _FEW_REFERENCES = 16, 8
_LARGE = 200_000  # operations per row of a network
_CONSTANT = "The model's score is the same for all rows."
_NOT_COMPLETE = "The attributions do not add up to the difference of the scores, so they have no parts."


@dataclass(frozen=True, eq=False)
class Measured:
    """Everything that measures are computed from; ``levels`` joins groups to those of one attribute."""

    partial: Partial
    names: tuple[str, ...]
    levels: tuple[int, ...] | None = None
    view_of: "Measured | None" = None  # the measurement whose explanations are used

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.partial.plan

    @cached_property
    def counts_by_block(self) -> tuple[Counts, Floats]:
        """The counts, and the sums by block."""
        plan, sums = self.plan, self.partial.sums
        found = Counts(
            plan.task,
            sums["counts"],
            sums["n_rows"],
            sums["squares"],
            _cell_weight(plan),
            max(1, plan.options.min_cell),
            plan.adapted.probabilistic,
            plan.favourable,
            _cell_names(plan),
            plan.groups.names,
        )
        if self.levels is not None:
            found = found.regrouped(self.levels, self.names)
        return found.with_sums(found.sums.sum(axis=0)), found.sums

    @property
    def counts(self) -> Counts:
        """The sums of all rows."""
        return self.counts_by_block[0]

    @cached_property
    def draws(self) -> Counts:
        """Sums of rows drawn with replacement."""
        counts, by_block = self.counts_by_block
        options = self.plan.options
        return counts.with_sums(resample(by_block, options.n_bootstrap, options.seed % 2**32))

    @cached_property
    def parts(self) -> Counts:
        """Sums without each tenth of the rows."""
        counts, by_block = self.counts_by_block
        return counts.with_sums(leave_out(by_block))

    @cached_property
    def spread(self) -> float:
        """The spread of the explained score over people."""
        scores, task = self.partial.scores, self.plan.task
        outputs, weights = torch.from_numpy(scores.outputs), torch.from_numpy(scores.weights)
        return (
            float(task.spread(outputs, weights if self.weighted else None)) if len(scores) > 1 else math.nan
        )

    @cached_property
    def constant(self) -> bool:
        """Whether the outputs are the same for all rows; rounding may then leave a spread above 0."""
        outputs = self.partial.scores.outputs
        return len(outputs) > 1 and bool((outputs == outputs[0]).all())

    @cached_property
    def weighted(self) -> bool:
        """Whether rows have different weights."""
        weights = self.partial.scores.weights
        return bool(len(weights)) and bool((weights != weights[0]).any())

    @cached_property
    def means(self) -> MeanSums | None:
        """The sums of explanations relative to means, by tenth of the rows; None if there are none."""
        plan, arrays = self.plan, self.partial.sums
        if plan.means is None or "means.rows" not in arrays or self.levels is not None:
            return None
        explainer = plan.means
        return MeanSums(
            arrays["means.rows"],
            arrays["means.contributions"],
            arrays["means.shares"],
            arrays["means.deviations"],
            definition=explainer.definition,
            column_names=explainer.columns.of(explainer.definition.columns),
            original_names=explainer.columns.names,
            group_names=plan.groups.names,
            spread=self.spread,
        )

    @cached_property
    def chosen(self) -> "tuple[Sample, list[NDArray[np.int64]], Sample, list[NDArray[np.int64]]]":
        """People and references: each a sample, and the positions of those of each cell in it."""
        plan, rows = self.plan, self.partial.rows
        cells = plan.cells(rows.labels)
        if plan.references is None:
            people, references = choose(cells, rows.groups, rows.keys, plan.n_people, plan.n_references)
            references = _fill(references, plan.task.n_cells)
            return rows, _fill(people, plan.task.n_cells), rows, references
        own = plan.references
        of_cell = plan.cells(own.labels)
        people = [np.flatnonzero(cells == cell)[: plan.n_people] for cell in range(plan.task.n_cells)]
        references = [
            smallest_by_group(np.flatnonzero(of_cell == cell), own.groups, plan.n_references)
            for cell in range(plan.task.n_cells)
        ]
        return rows, people, own, references

    @cached_property
    def table(self) -> ExplainedTable | None:
        """The table of attributions; None if the score is constant or the attribution is not complete."""
        plan = self.plan
        if not plan.attribution.complete or self.constant or not self.spread > 0:
            return None
        people, of_people, references, of_references = self.chosen
        return self.explain(plan.attribution, people, of_people, references, of_references)

    def explain(
        self,
        attribution: Attribution,
        people: Sample,
        of_people: Sequence[NDArray[np.int64]],
        references: Sample,
        of_references: Sequence[NDArray[np.int64]],
    ) -> ExplainedTable:
        """Return the table of attributions of chosen people relative to chosen references."""
        plan, module = self.plan, self.plan.module
        assert people.inputs is not None
        assert references.inputs is not None

        def score(labels: torch.Tensor) -> Score:  # called before some people are explained
            advance(len(labels))
            return Score.of(module, plan.task, labels)

        task = self._check_calls(of_people, of_references)
        inputs = plan.tensor(people.inputs)
        labels = torch.from_numpy(np.asarray(people.labels)).to(inputs.device)
        rows = plan.tensor(references.inputs)
        if isinstance(attribution, IntegratedGradients):
            large = plan.operations > _LARGE
            some, starts = _some_pairs(of_people, of_references, 4 if large else _FEW_PEOPLE)
            if len(some):  # none if there are too few rows to compare anybody
                attribution = choose_steps(
                    attribution,
                    Score.of(module, plan.task, labels[some]),
                    inputs[some],
                    rows[starts],
                    tolerance=_TOLERANCE,
                    figure=_size if large else None,
                )
        weights: tuple[Any, Any] = (None, None)
        if self.weighted:
            weights = torch.from_numpy(people.weights), torch.from_numpy(references.weights)
        legitimate = None if plan.legitimate is None else torch.from_numpy(plan.legitimate).to(inputs.device)
        with progress(sum(map(len, of_people)), task, unit="people", after=LONG) as advance:
            return explain_table(
                score,
                attribution,
                plan.task,
                (inputs, labels),
                rows,
                of_people,
                of_references,
                spread=self.spread,
                columns=plan.columns.matrix.to(inputs.device),
                legitimate=legitimate,
                weights=weights,
                mass=torch.from_numpy(self.partial.sums["cell_mass"].sum(axis=1)),
                seed=plan.options.seed,
            )

    def _check_calls(
        self, of_people: Sequence[NDArray[np.int64]], of_references: Sequence[NDArray[np.int64]]
    ) -> str:
        """Say how often a model without gradients is called; raise an error if that is more than allowed."""
        plan, most = self.plan, self.plan.options.max_calls
        if isinstance(plan.adapted, DifferentiableModel):
            return "Explaining"
        pairs = sum(len(people) * len(own) for people, own in zip(of_people, of_references, strict=True))
        each = 1 + len(plan.columns.names)
        announce(f"To explain the model, it is called with up to {pairs * each:,} points.")
        if most is not None and pairs * each > most:
            raise InputError(
                f"is {most:,}, but to explain the model it is called with up to {pairs * each:,} points: "
                f"{pairs:,} pairs of a person and a reference, {each} points each. Raise it to that, or "
                "measure fewer rows or columns.",
                argument="max_calls",
            )
        return f"Explaining by up to {pairs * each:,} calls"

    @cached_property
    def view(self) -> TableView | None:
        """The table with the groups of the references, those of too few rows left out."""
        whole = self.view_of or self
        table = whole.table
        if table is None:
            return None
        plan, references = self.plan, self.chosen_references
        groups = torch.from_numpy(references.groups.astype(np.int64))
        names: tuple[str, ...] = plan.groups.names
        options = plan.options
        view = TableView(
            table, groups, names, plan.columns.names, options.seed % 2**62, intervals=options.n_bootstrap > 0
        )
        if self.levels is not None:
            view = view.regrouped(torch.tensor(self.levels), self.names)
        return self._suppressed(view, references)

    @property
    def chosen_references(self) -> Sample:
        """The sample that the references are in."""
        return (self.view_of or self).chosen[2]

    def _suppressed(self, view: TableView, references: Sample) -> TableView:
        """Leave out the references of cells with fewer than `min_cell` rows."""
        least = self.plan.options.min_cell
        if least <= LEAST_REFERENCES:
            return view
        cells = torch.from_numpy(self.plan.cells(references.labels))
        place = cells * view.n_groups + view.groups.clamp_min(0)
        count = torch.bincount(place[view.groups >= 0], minlength=self.plan.task.n_cells * view.n_groups)
        few = (count[place] < least) & (count[place] < self.plan.n_references)
        return replace(view, groups=torch.where(few, -1, view.groups))

    @property
    def described(self) -> Sample:
        """A sample of the rows with their inputs, which does not depend on how the table is divided."""
        rows = self.plan.chance_rows
        return self.partial.rows if rows is None or not self.plan.apart else rows

    def some_rows(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the inputs and labels of the rows with the smallest keys among those that are kept."""
        rows = self.described
        few = rows[np.argsort(rows.keys, kind="stable")[:count]]
        assert few.inputs is not None
        inputs = self.plan.tensor(few.inputs)
        return inputs, torch.from_numpy(np.asarray(few.labels)).to(inputs.device)

    @cached_property
    def chance_sample(self) -> Sample:
        """Reference rows whose groups are permuted."""
        return self.plan.chance_rows or self.partial.rows

    def estimate(self, measure: Measure) -> "Estimate | Mapping[str, float] | Floats":
        """Return a measure with its interval; an array if it has one number per group."""
        found = getattr(self, f"_from_{measure.needs}")(measure)
        return found if not isinstance(found, Estimate) else _within(found, measure)

    def _from_counts(self, measure: Measure) -> Any:
        value = measure.compute(self.counts)
        if isinstance(value, Estimate) or measure.per_group:
            return value
        estimate = Estimate(float(value))
        if not self.plan.options.n_bootstrap or math.isnan(estimate.value):
            return estimate
        with np.errstate(invalid="ignore", divide="ignore"):
            limits = interval(estimate.value, np.asarray(measure.compute(self.draws)))
            replicates = np.asarray(measure.compute(self.parts))
        return replace(estimate, low=limits.low, high=limits.high, replicates=tuple(replicates.tolist()))

    def _from_scores(self, measure: Measure) -> Any:
        sample = self.partial.scores
        value = measure.compute(sample)
        if not isinstance(value, float | int) or not self.plan.options.n_bootstrap:
            return Estimate(float(value)) if isinstance(value, float | int) else value
        part = (sample.keys >> np.uint64(56)).astype(np.int64) % self.plan.n_blocks % N_PARTS
        return _jackknifed(value, lambda own: float(measure.compute(sample[part != own])))

    def _from_means(self, measure: Measure) -> Any:
        sums = self.means
        if sums is None or not sums.rows.any():
            return {} if measure.by_column or measure.per_group else Estimate()
        value = measure.compute(sums.add_up())
        if isinstance(value, Mapping | Estimate) or measure.per_group:
            return value
        if not self.plan.options.n_bootstrap:
            return Estimate(float(value))
        return _jackknifed(float(value), lambda own: float(measure.compute(sums.add_up(own))))

    def _from_table(self, measure: Measure) -> Any:
        if self.view is None or not self.view.defined:
            return {} if measure.by_column else Estimate()
        value = measure.compute(self.view)
        return Estimate(float(value)) if isinstance(value, float | int) else value

    def _from_model(self, measure: Measure) -> Any:
        value = measure.compute(self)
        return Estimate(float(value)) if isinstance(value, float | int) else value

    def why_undefined(self, measure: Measure) -> str:
        """Return why a figure is NaN."""
        if measure.needs == "means" or measure.name == "gcig_chance":
            if self.levels is not None:
                return _ALONE
            if self.plan.means is None:
                return _NO_MEANS
            if self.constant:
                return _CONSTANT
            if not (self.plan.means.defined.sum(1) > 1).any():
                return _NO_MEANS_OF_TWO
        if measure.needs == "table":
            if not self.plan.attribution.complete:
                return _NOT_COMPLETE
            if self.constant:
                return _CONSTANT
            return _FEW.format(min_cell=max(LEAST_REFERENCES, self.plan.options.min_cell))
        return measure.undefined


def _fill(positions: Sequence[NDArray[np.int64]], n_cells: int) -> list[NDArray[np.int64]]:
    """Return positions for all cells; the last ones may have no rows."""
    return [*positions, *[np.empty(0, dtype=np.int64)] * (n_cells - len(positions))]


def _size(attributions: torch.Tensor) -> float:
    """Return the mean size of explanations (references, n, ...) that are averaged over references.

    It settles long before the integral of every path does, which for large networks with kinks takes minutes.
    """
    return float(attributions.mean(0).flatten(1).abs().sum(1).mean()) if attributions.numel() else 0.0


def _some_pairs(
    people: Sequence[NDArray[np.int64]], references: Sequence[NDArray[np.int64]], count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return some people (n,), and a few references of the same cell for each, (references, n)."""
    cells = [
        (own[:count], others[:_FEW_REFERENCES])
        for own, others in zip(people, references, strict=True)
        if len(others) >= _FEW_REFERENCES
    ]
    some = np.concatenate([own for own, _ in cells] or [np.empty(0, dtype=np.int64)])
    starts = [np.tile(others, (len(own), 1)) for own, others in cells]
    none = np.empty((0, _FEW_REFERENCES), dtype=np.int64)
    return torch.from_numpy(some), torch.from_numpy(np.concatenate([*starts, none]).T.copy())


def _cell_weight(plan: Plan) -> float:
    return outcome_cells(plan.task, np.zeros(1))[2]


def _cell_names(plan: Plan) -> tuple[str, ...]:
    if plan.task.key == "number":
        return tuple(f"in bin {place + 1}" for place in range(outcome_cells(plan.task, np.zeros(1))[1]))
    return tuple(map(str, range(2))) if plan.task.key == "binary" else tuple(map(str, plan.classes))


def _jackknifed(value: float, without: Callable[[int], float]) -> Estimate:
    """Return an estimate with the interval of leaving out a tenth of the rows in turn."""
    replicates = np.array([without(part) for part in range(N_PARTS)])
    known = replicates[~np.isnan(replicates)]
    if math.isnan(value) or len(known) < N_PARTS:
        return Estimate(value)
    error = math.sqrt((N_PARTS - 1) / N_PARTS * float(((known - known.mean()) ** 2).sum()))
    return Estimate(
        value, value - REACH * error, value + REACH * error, replicates=tuple(replicates.tolist())
    )


def _within(estimate: Estimate, measure: Measure) -> Estimate:
    """Cut the limits off at the range of the measure."""
    if math.isnan(estimate.low + estimate.high):
        return estimate
    return replace(estimate, low=max(estimate.low, measure.low), high=min(estimate.high, measure.high))


def evaluate_partial(partial: Partial, *, suppress: bool = False) -> Evaluation:
    """Return the evaluation of a measured table, and of each of several attributes.

    With `suppress`, figures of groups with fewer than ``min_cell`` rows are not in the record.
    """
    plan = partial.plan
    whole = Measured(partial, plan.groups.names)
    alone = {
        name: _evaluate(Measured(partial, levels, of_group, whole), suppress)
        for name, levels, of_group in plan.attributes
    }
    return replace(_evaluate(whole, suppress), by_attribute=alone)


def _evaluate(measured: Measured, suppress: bool) -> Evaluation:
    plan, partial = measured.plan, measured.partial
    labelled = int(partial.sums["labelled"][0]) == partial.n_rows
    figures: list[Figure] = []
    columns: dict[str, Mapping[str, float]] = {}
    per_group: dict[str, Floats] = {}
    for measure in plan.measures:
        if measure.labels == "needed" and not labelled:
            continue
        if measure.per_group and measured.levels is not None and measure.needs == "means":
            continue
        name = measure.name
        if not labelled and measure.labels == "conditioned" and measure.section == "reasons":
            name = _conditioned(name)
        value = measured.estimate(measure)
        if measure.per_group and not isinstance(value, np.ndarray):
            continue
        if isinstance(value, Mapping):
            columns[name] = {str(key): float(each) for key, each in value.items()}
        elif isinstance(value, Estimate):
            figures.append(_figure(measured, measure, name, value))
        else:
            rates = np.array(value, dtype=np.float64)
            rows = measured.counts.n_rows
            few = (rows.sum(axis=0) if measure.cell is None else rows[measure.cell]) < plan.options.min_cell
            per_group[name.removeprefix("group_")] = np.where(few, np.nan, rates) if suppress else rates
    counts, view = measured.counts, measured.view if plan.needs("table") else None
    n_rows = counts.n_rows.sum(axis=0)
    hidden = (n_rows < plan.options.min_cell) & suppress
    groups = tuple(
        GroupRates(
            group,
            None if hidden[g] else int(n_rows[g]),
            {name: float(each[g]) for name, each in per_group.items() if len(each) > g},
        )
        for g, group in enumerate(measured.names)
    )
    values = {each.name: each.value for each in figures}
    worst = () if view is None or not view.defined or plan.n_groups < 3 else view.worst[0]
    definition = {**plan.definition.to_dict(), "attribution": plan.attribution_name}
    found = Evaluation(
        figures=tuple(figures),
        n_rows=partial.n_rows,
        task=plan.task.key,
        threshold=plan.threshold,
        groups=groups,
        columns=columns,
        labelled=labelled,
        collapsed=has_collapsed(values),
        decided_alike=_decided_alike(counts),
        min_cell=max(1, plan.options.min_cell),
        suppressed_cells=counts.names_of(~counts.kept),
        compared_groups=_compared(measured, view),
        worst_pair=worst,
        n_missing=int(partial.sums["n_missing"][0]),
        definition=definition,
        remarks=_remarks(measured, labelled),
        sample=_hash(measured),
    )
    _warn(measured, found, counts, labelled)
    return found


def _conditioned(name: str) -> str:
    """Return the name of a figure that is conditioned on the model's own decisions."""
    if name.endswith("_columns"):
        return f"{name.removesuffix('_columns')}_decisions_columns"
    return f"{name}_decisions"


def _figure(measured: Measured, measure: Measure, name: str, value: Estimate) -> Figure:
    said = {part: getattr(measure, part) for part in ("title", "section", "sentence", "better", "digits")}
    undefined = measured.why_undefined(measure) if math.isnan(value.value) else ""
    return Figure(name, undefined=undefined, **said, **vars(value))


def _compared(measured: Measured, view: TableView | None) -> tuple[str, ...]:
    explainer = measured.plan.means
    if view is not None and view.defined:
        codes = sorted({int(code) for part in view.tenths for code in part.codes})
        return tuple(view.names[code] for code in codes)
    if explainer is not None and measured.levels is None:
        known = explainer.defined[(explainer.defined.sum(1) > 1)].any(0).tolist()
        return tuple(name for name, yes in zip(measured.names, known, strict=True) if yes)
    return ()


def _decided_alike(counts: Counts) -> float:
    if counts.task.key == "number":
        return math.nan
    mass = counts.mass.sum()
    shares = counts.of("decided").sum(axis=(0, 1)) / mass if mass > 0 else np.full(1, np.nan)
    return float(max(shares.max(), 1 - shares.max()) if len(shares) == 1 else shares.max())


def _remarks(measured: Measured, labelled: bool) -> tuple[str, ...]:
    remarks = list(measured.plan.marks)
    if not labelled:
        remarks.append(
            "Outcomes are unknown: people are compared with references who got the same decision. That "
            "cannot "
            "show that the decisions themselves are wrong for one group."
        )
    if (left_out := _not_compared(measured)) and measured.plan.needs("means", "table"):
        remarks.append(
            f"{left_out} of {measured.partial.n_rows} rows are not compared: fewer than two groups have "
            f"{max(1, measured.plan.options.min_cell)} reference rows of their label."
        )
    missing = int(measured.partial.sums["n_missing"][0])
    if missing and measured.plan.options.missing_groups == "leave out":
        remarks.append(f"{missing} rows without a group are left out.")
    if missing and measured.plan.options.missing_groups == "own group":
        remarks.append(f"{missing} rows without a group are a group of their own.")
    return tuple(remarks)


def _not_compared(measured: Measured) -> int:
    """Return the number of rows whose label has references of fewer than two groups."""
    explainer, rows = measured.plan.means, measured.partial.sums.get("cell_rows")
    if rows is None or measured.levels is not None:
        return 0
    if explainer is not None:
        defined = explainer.defined.cpu().numpy()
    else:
        defined = np.asarray(measured.plan.counts) >= max(1, measured.plan.options.min_cell)
    return int(rows.sum(axis=1)[defined.sum(axis=1) < 2].sum())


def _hash(measured: Measured) -> str:
    """Return a hash of the people and references, and of how they are explained."""
    plan, partial = measured.plan, measured.partial
    found = hashlib.sha256(
        repr((plan.attribution_name, plan.options.seed, measured.names, plan.task)).encode()
    )
    found.update(partial.scores.keys.tobytes())
    found.update(partial.rows.keys.tobytes())
    if plan.references is not None:
        found.update(plan.references.keys.tobytes())
    return found.hexdigest()[:32]


def _warn(measured: Measured, found: Evaluation, counts: Counts, labelled: bool) -> None:
    """Warn about figures that are NaN for want of rows, or because the score is constant."""
    needed = any(each.name in found for each in measured.plan.measures if each.labels == "needed")
    if needed and labelled and counts.task.key == "binary":
        warn_if_undefined(counts)
    reasons = [each for each in found.figures if each.section == "reasons"]
    if reasons and all(math.isnan(each.value) for each in reasons):
        remedy = (
            "Check that the model was trained, and that X has the columns that it uses."
            if measured.constant
            else "Pass more rows, pass reference=(X, y, sensitive_features), merge groups, or lower min_cell."
        )
        warn_caller(
            "No figure about reasons is defined: "
            f"{reasons[0].undefined or 'no row can be compared.'} {remedy}",
            UndefinedMetricWarning,
        )
