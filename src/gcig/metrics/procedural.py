"""Measures of reasons: how far explanations depend on the group that a person is compared with."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gcig._arrays import Floats
from gcig.core.gcig import disparity, normalise
from gcig.core.references import Means, ReferenceRows
from gcig.core.shapley import Shapley
from gcig.metrics.measure import Estimate, measure
from gcig.metrics.rates import quotient
from gcig.metrics.relative_to_means import MeanSums
from gcig.metrics.table import TableView

if TYPE_CHECKING:
    from gcig.metrics.result import Measured

_CHANCE_ROWS, _CHANCE_DRAWS = 256, 40
_SHAPLEY_PEOPLE = 40
_NORMAL_95 = 1.645


def _reasons(**options: Any) -> dict[str, Any]:
    return {"section": "reasons", "low": -math.inf, **options}


@measure(
    "table",
    "Reason gap",
    "How far a person's explanations relative to the groups lie apart, in units of the spread of the score; "
    "about 0 if the groups were drawn by coin.",
    **_reasons(),
)
def reason_gap(view: TableView) -> Estimate:
    """Return the reason gap relative to members."""
    return view.reason("gap")


@measure(
    "table",
    "Reason gap, common part",
    "The part that is the same for everyone with one label: the groups have other values in columns that "
    "count.",
    **_reasons(),
)
def reason_gap_common(view: TableView) -> Estimate:
    """Return the common part of the reason gap."""
    return view.reason("common")


@measure(
    "table",
    "Reason gap, varying part",
    "The part that differs between people: a column weighs differently for people who are alike. 0 for every "
    "additive model.",
    **_reasons(),
)
def reason_gap_varying(view: TableView) -> Estimate:
    """Return the varying part of the reason gap."""
    return view.reason("varying")


@measure(
    "table",
    "Reason gap of the worst pair",
    "The reason gap of the two groups that are farthest apart.",
    **_reasons(),
)
def reason_gap_worst(view: TableView) -> Estimate:
    """Return the reason gap of the worst pair of groups; that of two groups is the reason gap."""
    return view.reason("gap") if view.n_groups == 2 else view.worst[1]


@measure(
    "table",
    "Common part by column",
    "Contribution of each column to the common part; squares add up.",
    **_reasons(by_column=True),
)
def reason_gap_common_columns(view: TableView) -> dict[str, float]:
    """Return the common part by column."""
    return view.by_column()[0]


@measure(
    "table",
    "Varying part by column",
    "Contribution of each column to the varying part; squares add up.",
    **_reasons(by_column=True),
)
def reason_gap_varying_columns(view: TableView) -> dict[str, float]:
    """Return the varying part by column."""
    return view.by_column()[1]


@measure(
    "table",
    "GCIG relative to members",
    "GCIG with members of each group as references instead of their mean: explanations are averaged over "
    "them.",
    **_reasons(),
)
def gcig_members(view: TableView) -> Estimate:
    """Return GCIG relative to members."""
    return view.estimate(TableView.gcig_members)


@measure(
    "table",
    "Share that changes hands",
    "The share of an explanation that moves to other columns if a person is compared with another group.",
    **_reasons(low=0.0, high=1.0),
)
def explanation_moved(view: TableView) -> Estimate:
    """Return half the l1 distance of the normalised explanations relative to two groups, averaged over
    pairs.
    """

    def moved(means: torch.Tensor) -> torch.Tensor:
        units = normalise(means)
        first, second = torch.triu_indices(len(units), len(units), 1)
        return (units[first] - units[second]).abs().sum(-1).mean(0) / 2

    return view.estimate(lambda each: each.over_people(moved))


@measure(
    "means",
    "GCIG",
    "The paper's formula: how far normalised explanations relative to the groups' means lie apart.",
    **_reasons(low=0.0),
)
def gcig(sums: MeanSums) -> Floats:
    """Return GCIG by the definition."""
    return sums.mean("disparity")


@measure(
    "means", "GCIG with the l2 norm", "GCIG with explanations divided by their l2 norm.", **_reasons(low=0.0)
)
def gcig_l2(sums: MeanSums) -> Floats:
    """Return GCIG with the l2 norm."""
    return sums.mean("l2")


@measure(
    "means",
    "GCIG on encoded columns",
    "GCIG on encoded columns, centred within each one-hot block.",
    **_reasons(low=0.0),
)
def gcig_encoded(sums: MeanSums) -> Floats:
    """Return GCIG on encoded columns."""
    return sums.mean("encoded", "encoded_mass")


@measure(
    "means",
    "GCIG on raw columns",
    "GCIG on encoded columns as they are, which is the paper's.",
    **_reasons(low=0.0),
)
def gcig_raw(sums: MeanSums) -> Floats:
    """Return GCIG on raw columns."""
    return sums.mean("raw", "raw_mass")


@measure(
    "means",
    "GCIG by column",
    "Contribution of each column to GCIG; they add up to it.",
    **_reasons(by_column=True),
)
def gcig_columns(sums: MeanSums) -> dict[str, float]:
    """Return the contribution of each column."""
    return dict(zip(sums.column_names, sums.column_contributions.tolist(), strict=True))


@measure(
    "means",
    "GCIG of each group",
    "GCIG over the rows of one group.",
    **_reasons(per_group=True, name="group_gcig"),
)
def group_gcig(sums: MeanSums) -> Floats:
    """Return GCIG over the rows of each group."""
    return sums.of_groups("disparity")


@measure(
    "model",
    "GCIG by chance",
    "The 95 % point of GCIG if groups were drawn by coin within labels.",
    **_reasons(low=0.0, better=""),
)
def gcig_chance(measured: "Measured") -> Estimate:
    """Return the 95 % point of GCIG under permuted groups."""
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
    order = np.argsort(sample.keys, kind="stable")[:_CHANCE_ROWS]
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


_PARTS = (("", 0), ("_common", 1), ("_varying", 2))
_MEANS_SENTENCE = "The same as the reason gap{part}, relative to the groups' means instead of their members."
reason_gap_means, reason_gap_means_common, reason_gap_means_varying = (
    measure(
        "means",
        f"Reason gap relative to means{part.replace('_', ', ')}",
        _MEANS_SENTENCE.format(part=part.replace("_", ", ") + (" part" if part else "")),
        **_reasons(sets=("procedural", "robustness"), name=f"reason_gap_means{part}"),
    )(_relative_to_means(place))
    for part, place in _PARTS
)


@measure(
    "model",
    "Reason gap by Shapley values",
    "The reason gap if columns are attributed by Shapley values: if it leads to another conclusion, the "
    "conclusion depends on the attribution.",
    **_reasons(sets=("robustness",)),
)
def reason_gap_shapley(measured: "Measured") -> Estimate:
    """Return the reason gap by Shapley values of the same people and references."""
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
