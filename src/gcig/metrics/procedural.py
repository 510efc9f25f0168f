"""Measures of reasons: how far explanations depend on the group that a person is compared with."""

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gcig._arrays import Floats
from gcig.core.gcig import disparity, normalise
from gcig.core.references import Means, ReferenceRows
from gcig.core.shapley import Shapley
from gcig.metrics.measure import Estimate, Measure, measure, register_measure
from gcig.metrics.relative_to_means import MeanSums
from gcig.metrics.table import TableView
from gcig.metrics.utility import quotient

if TYPE_CHECKING:
    from gcig.metrics.result import Measured

_CHANCE_ROWS, _CHANCE_DRAWS = (16, 256), 40
_CHANCE_OPERATIONS = 20_000_000_000  # of the network: some seconds
_SHAPLEY_PEOPLE = 40
_NORMAL_95 = 1.645


_reasons = partial(measure, section="reasons", low=-math.inf)


@_reasons("table")
def reason_gap(view: TableView) -> Estimate:
    """Reason gap: How far a person's explanations relative to the groups lie apart, in units of the spread of
    the score; about 0 if the groups were drawn by coin.
    """
    return view.reason("gap")


@_reasons("table")
def reason_gap_common(view: TableView) -> Estimate:
    """Reason gap, common part: The part that is the same for everyone with one label: the groups have other
    values in columns that count.
    """
    return view.reason("common")


@_reasons("table")
def reason_gap_varying(view: TableView) -> Estimate:
    """Reason gap, varying part: The part that differs between people: a column weighs differently for people
    who are alike. 0 for every additive model.
    """
    return view.reason("varying")


@_reasons("table")
def reason_gap_worst(view: TableView) -> Estimate:
    """Reason gap of the worst pair: The reason gap of the two groups that are farthest apart."""
    return view.worst[1]


@_reasons("table", by_column=True)
def reason_gap_common_columns(view: TableView) -> dict[str, float]:
    """Common part by column: Contribution of each column to the common part; squares add up."""
    return view.by_column()[0]


@_reasons("table", by_column=True)
def reason_gap_varying_columns(view: TableView) -> dict[str, float]:
    """Varying part by column: Contribution of each column to the varying part; squares add up."""
    return view.by_column()[1]


@_reasons("table")
def gcig_members(view: TableView) -> Estimate:
    """GCIG relative to members: GCIG with members of each group as references instead of their mean:
    explanations are averaged over them.
    """
    return view.estimate(TableView.gcig_members)


@_reasons("table", low=0.0, high=1.0)
def explanation_moved(view: TableView) -> Estimate:
    """Share that changes hands: The share of an explanation that moves to other columns if a person is
    compared with another group: half the l1 distance of the two normalised explanations.
    """

    def moved(means: torch.Tensor) -> torch.Tensor:
        units = normalise(means)
        first, second = torch.triu_indices(len(units), len(units), 1)
        return (units[first] - units[second]).abs().sum(-1).mean(0) / 2

    return view.estimate(lambda each: each.over_people(moved))


@_reasons("means", low=0.0)
def gcig(sums: MeanSums) -> Floats:
    """GCIG: The paper's formula: how far normalised explanations relative to the groups' means lie apart."""
    return sums.mean("disparity")


@_reasons("means", low=0.0)
def gcig_l2(sums: MeanSums) -> Floats:
    """GCIG with the l2 norm: GCIG with explanations divided by their l2 norm."""
    return sums.mean("l2")


@_reasons("means", low=0.0)
def gcig_encoded(sums: MeanSums) -> Floats:
    """GCIG on encoded columns: GCIG on encoded columns, centred within each one-hot block."""
    return sums.mean("encoded", "encoded_mass")


@_reasons("means", low=0.0)
def gcig_raw(sums: MeanSums) -> Floats:
    """GCIG on raw columns: GCIG on encoded columns as they are, which is the paper's."""
    return sums.mean("raw", "raw_mass")


@_reasons("means", by_column=True)
def gcig_columns(sums: MeanSums) -> dict[str, float]:
    """GCIG by column: Contribution of each column to GCIG; they add up to it."""
    return dict(zip(sums.column_names, sums.column_contributions.tolist(), strict=True))


@_reasons("means", per_group=True)
def group_gcig(sums: MeanSums) -> Floats:
    """GCIG of each group: GCIG over the rows of one group."""
    return sums.of_groups("disparity")


@_reasons("model", low=0.0, better="")
def gcig_chance(measured: "Measured") -> Estimate:
    """GCIG by chance: The 95 % point of GCIG if groups were drawn by coin within labels."""
    explainer, sample = measured.plan.means, measured.chance_sample
    if explainer is None or not len(sample) or measured.constant:
        return Estimate()
    task, n_groups = measured.plan.task, measured.plan.n_groups
    inputs = torch.as_tensor(np.asarray(sample.inputs, dtype=np.float64))
    labels = torch.from_numpy(np.asarray(sample.labels))
    groups = torch.from_numpy(sample.groups.astype(np.int64))
    cells = task.cells(labels)
    legitimate = None if measured.plan.legitimate is None else torch.from_numpy(measured.plan.legitimate)
    weights = torch.from_numpy(sample.weights)

    def means(of: torch.Tensor, count: int) -> torch.Tensor:
        return Means(ReferenceRows(inputs, labels, of, task, count, weights, legitimate)).values

    pooled = means(torch.zeros_like(groups), 1)
    # The noise of a mean of m sampled rows, scaled to that of the n rows that references were made of.
    places = cells * n_groups + groups
    sampled = torch.bincount(places, minlength=task.n_cells * n_groups).view(task.n_cells, n_groups)
    made_of = torch.from_numpy(np.asarray(measured.plan.counts)).double()
    if task.key == "number":
        sampled, made_of = sampled.sum(0, keepdim=True), made_of.sum(0, keepdim=True)
    scale = (sampled / made_of.clamp_min(1)).clamp_max(1).sqrt().unsqueeze(-1)
    steps = explainer.definition.n_steps
    each = _CHANCE_DRAWS * n_groups * (steps if isinstance(steps, int) else 1) * measured.plan.operations
    count = int(np.clip(_CHANCE_OPERATIONS // max(1, each), *_CHANCE_ROWS))
    order = np.argsort(sample.keys, kind="stable")[:count]
    assert sample.inputs is not None
    x, y = measured.plan.tensor(sample.inputs[order]), labels[torch.from_numpy(order)]
    usable = explainer.defined[task.cells(y)].all(1).cpu()
    x, y = x[usable], y[usable].to(x.device)
    if not len(x):
        return Estimate()
    generator = torch.Generator().manual_seed(measured.plan.options.seed % 2**62)
    found = []
    for _ in range(_CHANCE_DRAWS):
        permuted = groups.clone()
        for cell in cells.unique():
            own = (cells == cell).nonzero().flatten()
            permuted[own] = permuted[own[torch.randperm(len(own), generator=generator)]]
        drawn = pooled + scale * (means(permuted, n_groups) - pooled)
        references = drawn.to(x)[task.cells(y)].transpose(0, 1)
        values, slopes = explainer.attribute(x, y, references)
        used = explainer.definition
        own_columns = explainer.on_columns(used.columns, values, slopes, x - references)
        found.append(float(disparity(own_columns, norm=used.norm, eps=used.eps).mean()))
    factor = task.n_cells if explainer.definition.label_weights == "sum" else 1
    return Estimate(factor * float(np.mean(found) + _NORMAL_95 * np.std(found, ddof=1)))


def _of_means(sums: MeanSums) -> tuple[Floats, Floats]:
    """Return the squared gap relative to means and its squared varying part, in units of the spread."""
    total = sums.of("square").sum(axis=(-2, -1))
    weight = sums.of_all_rows()
    gap = quotient(total, weight.sum(axis=-1)) / sums.spread**2
    deviations = sums.deviations  # (..., cells, groups, columns)
    middle = quotient(deviations, weight[..., None, None])
    compared = np.maximum((np.abs(deviations).sum(axis=-1) > 0).sum(axis=-1), 2)
    of_cell = 2 / (compared - 1) * np.nan_to_num(middle**2).sum(axis=(-2, -1))
    common = quotient((of_cell * weight).sum(axis=-1), weight.sum(axis=-1)) / sums.spread**2
    return np.asarray(gap), np.asarray(gap - common)


def _relative_to_means(part: int) -> Any:
    def compute(sums: MeanSums) -> Floats:
        gap, varying = _of_means(sums)
        square = (gap, gap - varying, varying)[part]
        return np.asarray(np.sign(square) * np.sqrt(np.abs(square)))

    return compute


_PARTS = ("", "_common", "_varying")
reason_gap_means, reason_gap_means_common, reason_gap_means_varying = (
    Measure(
        f"reason_gap_means{part}",
        _relative_to_means(place),
        "means",
        f"Reason gap relative to means{part.replace('_', ', ')}",
        "The same as the reason gap, relative to the groups' means instead of their members.",
        section="reasons",
        low=-math.inf,
        sets=("procedural", "robustness"),
    )
    for place, part in enumerate(_PARTS)
)
for _each in (reason_gap_means, reason_gap_means_common, reason_gap_means_varying):
    register_measure(_each, overwrite=True)


@_reasons("model", sets=("robustness",))
def reason_gap_shapley(measured: "Measured") -> Estimate:
    """Reason gap by Shapley values: The reason gap if columns are attributed by Shapley values: if it leads
    to another conclusion, the conclusion depends on the attribution.
    """
    plan, view = measured.plan, measured.view
    if view is None or plan.attribution_name == "shapley":
        return Estimate() if view is None else view.reason("gap")
    whole = measured.view_of or measured
    blocks = tuple(np.asarray(plan.columns.input_blocks).tolist())
    people, of_people, references, of_references = whole.chosen
    table = whole.explain(
        Shapley(blocks, plan.options.seed),
        people,
        [own[:_SHAPLEY_PEOPLE] for own in of_people],
        references,
        of_references,
    )
    return replace(view, table=table, fixed=None).reason("gap")
