"""Preparation of plans: the model, the compared columns, the references and how rows are explained."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from gcig._arguments import InputError
from gcig._arrays import Codes
from gcig.adapters import AdaptedModel, adapt
from gcig.adapters.base import DifferentiableModel, last_step
from gcig.core.attribution import (
    ATTRIBUTIONS,
    Attribution,
    IntegratedGradients,
    Score,
    choose_steps,
    resolve_attribution,
)
from gcig.core.definition import Definition
from gcig.core.explained import choose
from gcig.core.gcig import disparity
from gcig.core.modules import Score as OutputScore
from gcig.core.references import Means, ReferenceRows, legitimate_columns
from gcig.core.shapley import Shapley
from gcig.core.task import Binary, Task
from gcig.metrics.checked import (
    CheckedRows,
    Reference,
    check_rows,
    favourable_classes,
    make_task,
    recognise_task,
    reference_table,
)
from gcig.metrics.columns import ComparedColumns
from gcig.metrics.measure import select_measures
from gcig.metrics.plan import SEEN, Plan, labels_of_decisions
from gcig.metrics.relative_to_means import MeanExplainer
from gcig.metrics.samples import Sample, row_keys
from gcig.metrics.trust import share_in_sketch
from gcig.records.options import MeasureOptions
from gcig.tables.check import Groups

_MEAN_STEPS = 8
_PROBE_ROWS = (24, 512)
_PROBE_OPERATIONS = 2_000_000_000  # of the network, to settle the number of steps: about a second
_TRIED_STEPS = 64
_TRAINED_ON = 0.9  # share of rows; fewer may be equal to training rows by chance
_OTHER_GROUPS = (
    "The groups are not those that the model was trained with, so the means of GCIG are those of the "
    "evaluated rows."
)


def prepare(
    model: Any,
    *,
    reference: Reference | None = None,
    reference_keys: ArrayLike | None = None,
    score: OutputScore | None = None,
    preprocess: Any = None,
    **options: Any,
) -> Plan:
    """Freeze a measurement, to be applied to parts of a table: on other machines, or one block at a time.

    Parameters
    ----------
    model : any
        A model that `gcig.adapt` accepts.
    reference : tuple (X, y, sensitive_features)
        The rows that people are compared with. A fitted model of this package knows the means of its training
        rows, and then takes members from the measured rows; all other models need a reference.
    reference_keys : array, optional
        What identifies each reference row, if they are rows of the table that is measured: nobody is compared
        with themselves.
    score, preprocess
        As in `gcig.evaluate`.
    **options
        The fields of `gcig.metrics.MeasureOptions`: ``legitimate``, ``attribution``, ``measures``,
        ``definition``, ``min_cell``, ``n_bootstrap``, ``random_state`` and others.

    Examples
    --------
    Two parts of a table give the same figures as the whole:

    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X, sex = rng.normal(size=(400, 3)), rng.choice(["f", "m"], 400)
    >>> y = (X[:, 0] + 0.5 * (sex == "m") > 0).astype(int)
    >>> model = LogisticRegression().fit(X, y)
    >>> plan = prepare(model, reference=(X[:200], y[:200], sex[:200]))
    >>> slices = [slice(200, 300), slice(300, 400)]
    >>> parts = [plan.measure(X[s], y[s], sex[s], keys=np.arange(400)[s]) for s in slices]
    >>> whole = plan.measure(X[200:], y[200:], sex[200:], keys=np.arange(200, 400))
    >>> round(sum(parts).result().gcig - whole.result().gcig, 9)
    0.0
    """
    chosen = MeasureOptions(**options)
    table = reference_table(reference)
    adapted = adapt_for(model, table, None if reference is None else reference[1], chosen, score, preprocess)
    if reference is None:
        if adapted.baselines is None:
            raise InputError(
                "is needed: this model does not know whom people are compared with. Pass rows as "
                "reference=(X, y, sensitive_features).",
                argument="reference",
            )
        return make_plan(adapted, chosen, None, None)
    rows = check_reference(adapted, reference, chosen)
    return make_plan(
        adapted,
        chosen,
        rows,
        rows.hashed_keys(reference_keys, chosen.seed),
        given=True,
        disjoint=reference_keys is None,
    )


def adapt_for(
    model: Any,
    table: Any,
    y: Any,
    options: MeasureOptions,
    score: OutputScore | None,
    preprocess: Any,
    more: Any = None,
) -> AdaptedModel:
    """Adapt a model; a function is taken to predict what the labels are."""
    given: Any = None if options.task == "auto" else options.task
    how: dict[str, Any] = {"score": score, "preprocess": preprocess, "reference": more}
    if given is None and y is not None and callable(model) and not hasattr(model, "predict"):
        recognised: Any = recognise_task(y)
        if not isinstance(model, nn.Module):
            given = None if recognised == "binary" else recognised
        elif recognised == "number":
            given = "number"
    return adapt(model, table, task=given, **how)


def check_reference(
    adapted: AdaptedModel, reference: Reference, options: MeasureOptions, sample_weight: Any = None
) -> CheckedRows:
    """Check rows whose labels and groups define those of the measurement."""
    classes = () if adapted.classes is None else tuple(adapted.classes.tolist())
    how: dict[str, Any] = {"sample_weight": sample_weight, "missing_groups": options.missing_groups}
    try:  # one group alone is fine for a model that knows the others
        rows = check_rows(adapted, reference, adapted.task, classes=classes, names=adapted.groups, **how)
    except InputError:
        if adapted.groups is None:
            raise
        rows = check_rows(adapted, reference, adapted.task, classes=classes, **how)
    if adapted.task == "classes" and not classes:
        width = np.asarray(adapted.outputs(rows.inputs[:1])).shape[-1]
        if len(rows.classes) != width:  # labels are then positions of outputs
            rows = check_rows(adapted, reference, adapted.task, classes=tuple(range(width)), **how)
    return rows


def make_plan(
    adapted: AdaptedModel,
    options: MeasureOptions,
    rows: CheckedRows | None,
    keys: NDArray[np.uint64] | None,
    *,
    given: bool = False,
    disjoint: bool = False,
) -> Plan:
    """Freeze a plan.

    ``rows`` are the reference rows if they were ``given``, otherwise the rows that will be measured; None if
    the model knows its references. ``disjoint`` if no reference row is measured.
    """
    if rows is not None and rows.labels is None:  # outcomes are unknown
        how: dict[str, Any] = {"encoded": rows.inputs, "threshold": options.threshold}
        decisions = adapted.predict(rows.table, rows.sensitive, **how).decisions
        rows = replace(rows, labels=labels_of_decisions(adapted.task, decisions))
    trained = getattr(adapted.model, "task_", Binary() if adapted.task == "binary" else None)
    own = adapted.baselines is not None and not given and trained is not None
    known_groups = adapted.groups if own else None
    marks: tuple[str, ...] = ()
    if rows is not None and own and not set(rows.groups.names) & set(adapted.groups or ()):
        own, known_groups, marks = False, None, (_OTHER_GROUPS,)  # trained on another attribute
    if own and rows is not None and (unseen := set(rows.groups.names) - set(known_groups or ())):
        raise InputError(
            f"holds groups that were not in training: {', '.join(sorted(map(repr, unseen)))}; known are "
            f"{', '.join(map(repr, known_groups or ()))}. Use the same names, drop those rows, or pass "
            "reference=(X, y, sensitive_features).",
            argument="sensitive_features",
        )
    classes = rows.classes if rows is not None else tuple(np.asarray(adapted.classes).tolist())
    task: Task
    if own:
        assert trained is not None
        task = trained
    else:
        assert rows is not None
        assert rows.labels is not None
        task = make_task(adapted.task, rows.labels, rows.weights, len(classes))
    if options.task not in ("auto", task.key):
        raise InputError(f"is {options.task!r}, but the model's task is {task.key!r}.", argument="task")
    names = tuple(known_groups or (rows.groups.names if rows is not None else ()))
    attributes = rows.groups.attributes if rows is not None else ("group",)
    if rows is not None and _trained_on(adapted, rows):
        marks = (*marks, SEEN.format(rows="reference" if given else "evaluated"))
    legitimate = _legitimate(adapted, options)
    means, counts = _means(adapted, task, None if own else rows, len(names), legitimate)
    # A model of this package knows which of its columns are one category.
    columns = _columns(adapted, None if own and adapted.blocks is not None else rows, means, counts)
    attribution, name = _attribution(adapted, options, columns)
    plan = Plan(
        adapted=adapted,
        task=task,
        classes=(0, 1) if task.key == "binary" and not classes else classes,
        groups=Groups(np.empty(0, dtype=np.int64), names, attributes),
        attributes=_attributes(rows, names),
        options=options,
        measures=select_measures(options.measures, task.key, robustness=options.robustness),
        columns=columns,
        attribution=attribution,
        attribution_name=name,
        favourable=favourable_classes(options.favourable, task.key, classes, adapted.model),
        means=None,
        counts=counts,
        legitimate=None if legitimate is None else legitimate.numpy(),
        definition=replace(options.definition or Definition(), attribution=name),
        apart=not disjoint,
        marks=marks,
    )
    if isinstance(adapted, DifferentiableModel) and name == "integrated_gradients":
        explainer = _explainer(plan, adapted, means, rows, by_bin=own or task.key != "number")
        plan = replace(plan, means=explainer, definition=explainer.definition)
    if rows is None or keys is None:
        return plan
    nothing = np.zeros((len(rows), 0)), np.zeros(len(rows))  # outputs and decisions
    codes = rows.groups.codes
    sample = Sample(keys, np.asarray(rows.labels), codes, rows.known_weights, *nothing, rows.inputs)
    limit = plan.n_references + plan.n_people
    sample = sample.smallest_by_cell(plan.cells(sample.labels), plan.n_groups, limit)
    references = _references_of(sample, plan) if given else None
    return replace(plan, chance_rows=None if own else sample, references=references)


def _trained_on(adapted: AdaptedModel, rows: CheckedRows) -> bool:
    """Return whether a model of this package was trained on rows."""
    sketch = getattr(last_step(adapted.model), "training_sketch_", None)
    if sketch is None or rows.labels is None:
        return False
    return share_in_sketch(sketch, rows.inputs, rows.labels) >= _TRAINED_ON


def _references_of(sample: Sample, plan: Plan) -> Sample:
    """Return the references among reference rows; if these rows are measured as well, people are left
    for it.
    """
    cells = plan.cells(sample.labels)
    if not plan.apart:
        return sample.smallest_by_cell(cells, plan.n_groups, plan.n_references)
    _, others = choose(cells, sample.groups, sample.keys, plan.n_people, plan.n_references)
    return sample[np.sort(np.concatenate(others))]


def _attributes(
    rows: CheckedRows | None, names: tuple[str, ...]
) -> tuple[tuple[str, tuple[str, ...], tuple[int, ...]], ...]:
    """Return each attribute with its levels, and the level of each crossed group (-1: of a group without
    rows).
    """
    if rows is None:
        return ()
    found = []
    for alone in rows.attributes:
        levels = np.full(len(names), -1)
        place = np.array([names.index(name) for name in rows.groups.names])
        levels[place[rows.groups.codes]] = alone.codes
        found.append((alone.attribute, alone.names, tuple(levels.tolist())))
    return tuple(found)


def _legitimate(adapted: AdaptedModel, options: MeasureOptions) -> Tensor | None:
    """Return which encoded columns are legitimate."""
    if options.legitimate is None:
        return None
    chosen = legitimate_columns(options.legitimate, adapted.original_names)
    return torch.from_numpy(np.isin(adapted.input_origin, chosen))


def _means(
    adapted: AdaptedModel, task: Task, rows: CheckedRows | None, n_groups: int, legitimate: Tensor | None
) -> tuple[Tensor, Codes]:
    """Return the means (cells, groups, p) and the numbers of rows (cells, groups) of rows, or the model's."""
    if rows is not None:
        reference = ReferenceRows(
            torch.tensor(np.asarray(rows.inputs)),
            torch.from_numpy(np.asarray(rows.labels)),
            torch.from_numpy(rows.groups.codes.astype(np.int64)),
            task,
            n_groups,
            None if rows.weights is None else torch.from_numpy(rows.weights),
            legitimate,
        )
        return Means(reference).values, reference.counts.numpy()
    baselines, counts = torch.tensor(np.asarray(adapted.baselines)), adapted.baseline_counts
    known = np.isfinite(baselines.numpy()).all(axis=2)
    sizes = np.where(known, 2**30, 0) if counts is None else np.asarray(counts)
    if legitimate is not None:
        weight = torch.from_numpy(sizes / np.maximum(sizes.sum(1, keepdims=True), 1)).to(baselines)
        pooled = (weight.unsqueeze(-1) * baselines.nan_to_num()).sum(1, keepdim=True)
        baselines = torch.where(legitimate, pooled, baselines)
    return baselines, sizes


def _columns(
    adapted: AdaptedModel, rows: CheckedRows | None, means: Tensor, counts: Codes
) -> ComparedColumns:
    weight = np.asarray(counts, dtype=np.float64)[..., None]
    mean = (weight * np.nan_to_num(means.numpy().astype(np.float64))).sum((0, 1)) / max(weight.sum(), 1)
    return ComparedColumns.find(
        adapted, np.empty((0, means.shape[-1])) if rows is None else rows.inputs, mean
    )


def _attribution(
    adapted: AdaptedModel, options: MeasureOptions, columns: ComparedColumns
) -> tuple[Attribution, str]:
    """Return how people are explained relative to members, and the name of the attribution."""
    gradients, name = isinstance(adapted, DifferentiableModel), options.attribution
    if name == "auto" and options.definition is not None and gradients:
        name = options.definition.attribution
    if name == "auto":
        name = "integrated_gradients" if gradients else "shapley"
    if name == "shapley":
        return Shapley(tuple(np.asarray(columns.input_blocks).tolist()), options.seed), name
    if name not in ATTRIBUTIONS:
        raise InputError(
            f"must be 'auto', 'shapley' or one of {', '.join(map(repr, ATTRIBUTIONS))}, not {name!r}.",
            argument="attribution",
        )
    if not gradients:
        raise InputError(
            f"{name!r} needs gradients, which this {type(adapted.model).__name__} does not have. "
            "Use 'auto' or 'shapley'.",
            argument="attribution",
        )
    return resolve_attribution(name), name


def _explainer(
    plan: Plan, adapted: DifferentiableModel, means: Tensor, rows: CheckedRows | None, *, by_bin: bool
) -> MeanExplainer:
    """Return how rows are explained relative to means, with the number of steps settled on some rows."""
    task, options, definition = plan.task, plan.options, plan.definition
    values = plan.tensor(means.numpy())
    known, counts = torch.isfinite(values).all(-1), np.asarray(plan.counts)
    counts = counts if by_bin else np.broadcast_to(counts.sum(0), counts.shape)  # curves use all bins
    defined = known & torch.from_numpy(counts >= max(1, options.min_cell)).to(known.device)
    settled = not isinstance(definition.n_steps, str)
    steps: Any = definition.n_steps if settled else _MEAN_STEPS
    explainer = MeanExplainer(
        adapted.module,
        task,
        values,
        defined,
        plan.columns,
        IntegratedGradients(definition.rule, steps),
        replace(definition, n_steps=steps),
        0.0,
    )
    if rows is None:
        return explainer
    affordable = _PROBE_OPERATIONS // max(1, plan.operations_of(values) * plan.n_groups * _TRIED_STEPS)
    count = int(np.clip(affordable, *_PROBE_ROWS))
    order = np.argsort(row_keys(None, len(rows), options.seed), kind="stable")[:count]
    y = torch.from_numpy(np.asarray(rows.labels)[order]).to(values.device)
    usable = defined[task.cells(y)].all(1)
    some, y = plan.tensor(rows.inputs[order])[usable], y[usable]
    if not len(some):
        return explainer
    references = values[task.cells(y)].transpose(0, 1)
    if not settled:
        chosen = choose_steps(
            IntegratedGradients(definition.rule, 2),
            Score.of(adapted.module, task, y),
            some,
            references,
            tolerance=1e-3,
            figure=lambda each: float(disparity(plan.columns.sum(each)).mean()),
        )
        known_steps = replace(definition, n_steps=chosen.n_steps)
        explainer = replace(explainer, attribution=chosen, definition=known_steps)
    found, slopes = explainer.attribute(some, y, references)
    found = explainer.on_columns(definition.columns, found, slopes, some - references)
    return replace(explainer, scale=float(found.abs().sum(-1).median()))
