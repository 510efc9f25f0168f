"""GCIG under several references, and whether they lead to the same conclusion.

The references of a (label, group) cell are its mean, its medoid (the member nearest to the mean), its modal
member (the one with the most common value in most columns), or its members themselves; the mean of the group
over both labels; and, for all groups alike, the mean of the label. All figures of a model are measured on
the same random rows.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from gcig._arrays import Floats, Rows
from gcig.adapters import block_shapley_values
from gcig.core.definition import EPS
from gcig.core.gcig import normalise, vector_norm
from gcig.metrics.intervals import Draws, interval
from gcig.metrics.members import MemberPool
from gcig.metrics.rates import quotient
from gcig.metrics.reasons import Comparison, combine_labels, compare_attributions
from gcig.metrics.sample import EncodedRows, RandomStreams
from gcig.metrics.trust import MAX_PERMUTED_COLUMNS, members_interval, sum_members
from gcig.records.audit import MATERIAL
from gcig.records.base import UNDEFINED, Interval, Z
from gcig.records.trust import REFERENCES, Robustness, RobustnessFigure

_SHAPLEY_ROWS, _SHAPLEY_PAIRS = 100, 8
_OTHER_SCALE = ("mean, l2",)  # values that cannot be compared with MATERIAL


@dataclass(frozen=True, eq=False)
class PanelFigure:
    """GCIG of one model relative to one kind of reference."""

    interval: Interval = UNDEFINED  # the value and its 95 % interval
    draws: Floats = field(default_factory=lambda: np.empty(0))  # (draws,) the value in draws of the rows
    error: float = 0.0  # standard error that is not due to the choice of rows
    noise: float = 0.0  # the value for two halves of the same group; 0 if the value is free of noise


def measure_panel(
    comparison: Comparison, sample: EncodedRows, pool: MemberPool, streams: RandomStreams, n_bootstrap: int
) -> dict[str, PanelFigure]:
    """Measure GCIG of a model relative to every kind of reference; those of ``comparison`` are cell means.

    The first rows of ``sample``, which is in random order, are explained. Models that are compared share the
    sample and the seed of ``streams``, from which only ``pool``, the members of the cells, was drawn.
    """
    budget = comparison.adapted.explainer.budget
    of_members = sum_members(comparison, sample, pool, streams)
    members = members_interval(of_members, n_bootstrap, streams.members)
    rows = sample[: budget.member_rows]
    draws = Draws(len(rows), max(2, n_bootstrap), np.random.default_rng(0))
    resampled = of_members.combine(draws.resample(of_members.total))
    error = of_members.standard_error
    comparison = replace(comparison, definition=budget.coarsen(comparison.definition))
    norm_l2 = replace(comparison, definition=replace(comparison.definition, norm="l2"))
    references = _references(comparison, pool)
    found = {kind: _relative_to(comparison, rows, draws, sets) for kind, sets in references.items()}
    found["members"] = PanelFigure(members, resampled, 0.0 if math.isnan(error) else error)
    found["common"] = _common(comparison, rows, pool, draws)
    found["Shapley values"] = _by_shapley_values(comparison, rows, found["mean"], n_bootstrap)
    found["mean, l2"] = _relative_to(norm_l2, rows, draws, comparison.baselines[None])
    return {kind: found[kind] for kind in REFERENCES}


def _references(comparison: Comparison, pool: MemberPool) -> dict[str, Floats]:
    """Return kind -> references (3, 2, groups, p): those of every cell, and of each of its two halves."""
    compared, shape = comparison.compared, comparison.baselines.shape
    blocks = torch.from_numpy(comparison.compared_columns.input_blocks)
    counts = np.maximum(pool.counts[:, list(compared)], 1).astype(np.float64)
    makers = {
        "mean": lambda members: members.mean(axis=0),
        "medoid": lambda members: members[int(medoid(torch.from_numpy(members)))],
        "modal member": lambda members: members[int(modal_member(torch.from_numpy(members), blocks))],
    }
    found = {kind: np.full((3, *shape), np.nan) for kind in makers}
    for label, group in np.ndindex(*shape[:2]):
        if pool.counts[label, compared[group]] < 2:
            continue
        members = np.asarray(pool.members(label, compared[group]), dtype=np.float64)
        for kind, make in makers.items():
            for i, some in enumerate((members, members[0::2], members[1::2])):
                found[kind][i, label, group] = make(some)
    found["mean"][0] = comparison.baselines
    return {**found, "label-free": np.stack([_without_label(each, counts) for each in found["mean"]])}


def _without_label(references: Rows, counts: Floats) -> Rows:
    """Return the mean over labels of references (2, groups, p), for both labels."""
    mean = np.einsum("yg,ygp->gp", counts / counts.sum(axis=0), references)
    return np.stack([mean, mean])


def _relative_to(comparison: Comparison, rows: EncodedRows, draws: Draws, references: Rows) -> PanelFigure:
    """Measure GCIG relative to the first of several sets of references (sets, 2, groups, p).

    If there are two more, of two halves of every cell, their distance is the noise.
    """
    kind, used = comparison.definition.columns, comparison.definition
    weights = rows.known_weights
    sums, noise = np.zeros((len(rows), 2, 2)), np.zeros((2, 2))
    for label in range(2):
        own, sets = np.flatnonzero(rows.labels == label), references[:, label]
        if not len(own):
            continue
        if not np.isfinite(sets).all():
            return PanelFigure()
        _, kinds = comparison.attribute(rows.inputs[own], sets.reshape(-1, sets.shape[-1]), (kind,))
        values = kinds[kind].unflatten(0, (len(sets), -1))
        sums[own, label] = _sum_rows(comparison, values[0], kind, weights[own])
        if len(sets) > 1:
            first, second = (normalise(each, norm=used.norm, eps=used.eps) for each in values[1:])
            apart = vector_norm(first - second, "l2").mean(0).numpy()
            noise[label] = (apart * weights[own]).sum(), weights[own].sum()
    apart_by_chance = float(combine_labels(noise, used.label_weights)) if len(references) > 1 else 0.0
    return _figure(comparison, sums, draws, apart_by_chance)


def _sum_rows(comparison: Comparison, values: Tensor, kind: str, weights: Floats) -> Floats:
    """Return weighted disparity and weight (n, 2) of rows of one label; zeros for an undefined row."""
    found = compare_attributions(values, comparison.definition, comparison.scale[kind])
    defined = found.defined.numpy()
    return np.stack([np.where(defined, found.disparity.numpy(), 0.0), defined], axis=1) * weights[:, None]


def _figure(comparison: Comparison, sums: Floats, draws: Draws, noise: float) -> PanelFigure:
    """Return GCIG from sums of rows (n, 2, 2), with the interval of their draws."""
    of_labels = comparison.definition.label_weights
    resampled = combine_labels(draws.resample(sums), of_labels)
    value = float(combine_labels(sums.sum(axis=0), of_labels))
    return PanelFigure(interval(value, resampled), resampled, noise=noise)


def _common(comparison: Comparison, rows: EncodedRows, pool: MemberPool, draws: Draws) -> PanelFigure:
    """Compare the groups' mean attributions relative to one reference per label, the mean of its rows."""
    kind, used = comparison.definition.columns, comparison.definition
    compared = list(comparison.compared)
    counts = np.maximum(pool.counts[:, compared], 1).astype(np.float64)
    sums = np.zeros((len(rows), 2, len(compared), len(comparison.columns) + 1))
    for label in range(2):
        own = np.flatnonzero((rows.labels == label) & np.isin(rows.groups, compared))
        reference = (counts[label, :, None] * comparison.baselines[label]).sum(axis=0) / counts[label].sum()
        if not len(own):
            continue
        if not np.isfinite(reference).all():
            return PanelFigure()
        _, kinds = comparison.attribute(rows.inputs[own], reference[None], (kind,))
        units = normalise(kinds[kind], norm=used.norm, eps=used.eps)[0].numpy()
        place = np.searchsorted(compared, rows.groups[own])
        weights = rows.known_weights[own, None]
        sums[own, label, place] = np.column_stack([units, np.ones(len(own))]) * weights
    resampled = _distance_of_groups(draws.resample(sums))
    return PanelFigure(interval(_distance_of_groups(sums.sum(axis=0)[None])[0], resampled), resampled)


def _distance_of_groups(sums: Floats) -> Floats:
    """Return distances (draws,) between mean attributions, from sums (draws, 2, groups, columns + 1).

    A group without rows of a label is not compared in that label, and a label with fewer than two such
    groups is left out; NaN if both are.
    """
    weights, means = sums[..., -1], quotient(sums[..., :-1], sums[..., -1:])
    present = weights > 0
    count = present.sum(axis=2)
    centre = np.nansum(means, axis=2) / np.maximum(count, 1)[..., None]
    squares = np.nansum(np.square(means - centre[:, :, None]), axis=(2, 3))
    apart = np.sqrt(2 * squares / np.maximum(count - 1, 1))
    usable = np.where(count > 1, weights.sum(axis=2), 0.0)
    return quotient((apart * usable).sum(axis=1), usable.sum(axis=1))


def _by_shapley_values(
    comparison: Comparison, rows: EncodedRows, mean: PanelFigure, n_bootstrap: int
) -> PanelFigure:
    """Measure GCIG with Shapley values of the original columns in place of integrated gradients."""
    adapted = comparison.adapted
    if adapted.explainer.name == "Shapley values":
        return mean
    if len(comparison.compared_columns.names) > MAX_PERMUTED_COLUMNS:
        return PanelFigure()
    few, blocks = rows[:_SHAPLEY_ROWS], comparison.compared_columns.input_blocks.astype(np.int64)
    sums = np.zeros((len(few), 2, 2))
    for label in range(2):
        own = np.flatnonzero(few.labels == label)
        if not len(own):
            continue
        if not np.isfinite(comparison.baselines[label]).all():
            return PanelFigure()
        values = block_shapley_values(
            adapted.logits, few.inputs[own], comparison.baselines[label], blocks, n_pairs=_SHAPLEY_PAIRS
        )
        sums[own, label] = _sum_rows(comparison, values, "original", few.known_weights[own])
    draws = Draws(len(few), max(2, n_bootstrap), np.random.default_rng(0))
    return _figure(comparison, sums, draws, mean.noise)


def conclude(panel: Mapping[str, PanelFigure], other: Mapping[str, PanelFigure] | None = None) -> Robustness:
    """Return the figures, and whether the conclusion depends on the reference.

    For two models the conclusion is which of them has the lower GCIG, if the 95 % interval of the difference
    does not contain zero. For one model it is whether GCIG exceeds its noise by 0.05 or more; values with
    the l2 norm, which are on another scale, are then not judged.
    """
    others = {kind: figure.interval for kind, figure in (other or {}).items()}
    figures = tuple(
        RobustnessFigure(kind, each.interval, others.get(kind, UNDEFINED), REFERENCES[kind], each.noise)
        for kind, each in panel.items()
    )
    defined = {kind: figure for kind, figure in panel.items() if not math.isnan(figure.interval.value)}
    if other is None:
        beyond = {kind: each.interval.value - each.noise for kind, each in defined.items()}
        judged = {kind: value >= MATERIAL for kind, value in beyond.items() if kind not in _OTHER_SCALE}
        return _conclude_on_one(figures, judged)
    return _conclude_on_two(figures, {kind: _fairer(each, other[kind]) for kind, each in defined.items()})


def _fairer(first: PanelFigure, second: PanelFigure) -> str:
    """Return "first" or "second", whichever has the lower GCIG, or "neither" if that is not certain."""
    difference = first.interval.value - second.interval.value
    paired = len(first.draws) == len(second.draws) and len(first.draws) > 1
    if paired:
        of_rows = float(np.nanstd(first.draws - second.draws))
    else:
        of_rows = math.hypot(first.interval.standard_error, second.interval.standard_error)
    reach = Z * math.hypot(of_rows, first.error, second.error)
    if math.isnan(difference) or not abs(difference) > reach:
        return "neither"
    return "first" if difference < 0 else "second"


def _conclude_on_one(figures: tuple[RobustnessFigure, ...], judged: Mapping[str, bool]) -> Robustness:
    material = [kind for kind, yes in judged.items() if yes]
    small = [kind for kind, yes in judged.items() if not yes]
    if not judged:
        return Robustness(figures, agrees=False, verdict="GCIG is undefined under every reference.")
    if material and small:
        verdict = (
            f"The conclusion depends on the reference: GCIG exceeds its noise by {MATERIAL} or more relative "
            f"to {_listed(material)}, but not relative to {_listed(small)}."
        )
        return Robustness(figures, agrees=False, verdict=verdict)
    size = f"exceeds its noise by {MATERIAL} or more" if material else f"is within {MATERIAL} of its noise"
    verdict = f"The conclusion does not depend on the reference: under each of them GCIG {size}."
    return Robustness(figures, agrees=True, verdict=verdict)


def _conclude_on_two(figures: tuple[RobustnessFigure, ...], judged: Mapping[str, str]) -> Robustness:
    by_answer = {
        answer: [kind for kind, given in judged.items() if given == answer]
        for answer in ("first", "second", "neither")
    }
    first, second = by_answer["first"], by_answer["second"]
    agrees = not (first and second) and judged.get("mean") == judged.get("members")
    parts = [
        f"{name} has the lower GCIG relative to {'all' if len(kinds) == len(judged) else _listed(kinds)}"
        for name, kinds in (("the model", first), ("the other model", second))
        if kinds
    ]
    if by_answer["neither"]:
        parts.append(f"the difference is not certain relative to {_listed(by_answer['neither'])}")
    start = "does not depend" if agrees else "depends"
    return Robustness(figures, agrees, f"The conclusion {start} on the reference: {', and '.join(parts)}.")


def _listed(kinds: list[str]) -> str:
    names = [f"{kind!r}" for kind in kinds]
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + f" and {names[-1]}" if names else ""


_USUAL_DISTANCE = 0.25  # from the median, in standard deviations: such a number is usual


def medoid(members: Tensor) -> Tensor:
    """Return the position of the member (of n, shape (n, p)) that is nearest to their mean.

    >>> medoid(torch.tensor([[0.0], [1.0], [5.0]]))
    tensor(1)
    """
    return (members - members.mean(0)).square().sum(1).argmin()


def modal_member(members: Tensor, origin: Tensor | None = None) -> Tensor:
    """Return the position of the member that has the usual value in most columns.

    The usual value of a one-hot block is its most frequent category; a number within a quarter of a standard
    deviation of the median is usual, and of equally usual members the one nearest to the medians is taken.

    >>> members = torch.tensor([[1.0, 0.0, 2.0], [1.0, 0.0, 3.0], [0.0, 1.0, 3.0]])
    >>> modal_member(members, origin=torch.tensor([0, 0, 1]))
    tensor(1)
    """
    n_columns = members.shape[1]
    if origin is None or len(origin) != n_columns:
        origin = torch.arange(n_columns, device=members.device)
    sizes = torch.bincount(origin)
    numbers = members[:, sizes[origin] == 1]
    spread = (numbers - numbers.mean(0)).square().mean(0).sqrt()
    distances = (numbers - numbers.median(0).values).abs() / spread.clamp_min(EPS)
    usual = ((distances < _USUAL_DISTANCE).to(members.dtype) - 1e-3 * distances).sum(1)
    for block in (sizes > 1).nonzero().flatten():
        categories = members[:, origin == block]
        usual += categories.argmax(1) == categories.mean(0).argmax()
    return usual.argmax()
