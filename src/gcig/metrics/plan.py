"""Plans: everything about a measurement that does not depend on the measured rows, frozen.

A plan measures any part of the rows. Parts add up, so one table in memory, the blocks of a large file and the
partitions of a cluster are the same code: random draws depend on a row's key and the seed alone.
"""

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from gcig._arguments import InputError
from gcig._arrays import Codes, Floats, Rows
from gcig._progress import LONG, progress
from gcig.adapters import AdaptedModel, adapt
from gcig.adapters.base import DifferentiableModel, last_step
from gcig.adapters.tensors import to_tensor
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
from gcig.core.modules import evaluating
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
from gcig.metrics.measure import Measure, select_measures
from gcig.metrics.partial import Partial
from gcig.metrics.relative_to_means import MeanExplainer
from gcig.metrics.samples import N_PARTS, Sample, blocks_of, count_blocks, row_keys
from gcig.metrics.trust import share_in_sketch
from gcig.metrics.utility import count_rows, layout, one_hot
from gcig.records.options import MeasureOptions
from gcig.tables.check import Groups

SCORE_ROWS = 200_000  # rows whose scores are kept, for the AUC and the spread of the score
_PEOPLE = {True: 200, False: 80}  # in all cells together, if the model has gradients, and if it has none
_LEAST_PEOPLE = 20  # per cell
_REFERENCES = 1600  # per cell and group
_AFFORDED_REFERENCES = 200  # per cell and group, before a large network is explained for more people
_MOST_NUMBERS = 60_000_000  # of the table of attributions
_MOST_OPERATIONS = 20_000_000_000  # of the network for that table, per node: some seconds
_MEAN_STEPS = 8
_PROBE_ROWS = 512
_TRAINED_ON = 0.9  # share of rows; fewer may be equal to training rows by chance
_SEEN = (
    "The {rows} rows are rows that the model was trained on: it fits them better than new people. Use rows "
    "that were held out."
)
_OTHER_GROUPS = (
    "The groups are not those that the model was trained with, so the means of GCIG are those of the "
    "evaluated rows."
)


class _Outputs(nn.Module):
    """The outputs of a model that is no torch module, for explanations without gradients."""

    def __init__(self, adapted: AdaptedModel) -> None:
        super().__init__()
        self.adapted = adapted

    def forward(self, rows: Tensor) -> Tensor:
        """Return the outputs of encoded rows."""
        return torch.as_tensor(np.asarray(self.adapted.outputs(rows.numpy())))


@dataclass(frozen=True, eq=False)
class Plan:
    """A frozen measurement, which `gcig.prepare` makes; `measure` applies it to any part of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X, sex = rng.normal(size=(200, 2)), rng.choice(["f", "m"], 200)
    >>> y = (X[:, 0] > 0).astype(int)
    >>> plan = prepare(LogisticRegression().fit(X, y), reference=(X, y, sex), n_bootstrap=0)
    >>> plan.groups.names, plan.task.key, plan.measure(X, y, sex).n_rows
    (('f', 'm'), 'binary', 200)
    """

    adapted: AdaptedModel
    task: Task
    classes: tuple[Any, ...]
    groups: Groups  # names, and the codes of no rows
    attributes: tuple[tuple[str, tuple[str, ...], tuple[int, ...]], ...]  # name, levels, level of each group
    options: MeasureOptions
    measures: tuple[Measure, ...]
    columns: ComparedColumns
    attribution: Attribution
    attribution_name: str
    favourable: tuple[int, ...]
    means: MeanExplainer | None  # None for models without gradients
    counts: Codes  # (cells, groups) reference rows
    chance_rows: Sample | None = None  # reference rows for the chance level of GCIG
    references: Sample | None = None  # the rows that people are compared with; None: of the measured rows
    apart: bool = True  # whether reference rows may also be measured, so that they are told apart by key
    legitimate: NDArray[np.bool_] | None = None  # (p,)
    definition: Definition = field(default_factory=Definition)
    marks: tuple[str, ...] = ()  # remarks about references

    @property
    def on_training_rows(self) -> bool:
        """Whether the references, or the evaluated rows, are rows that the model was trained on."""
        return any(_SEEN.format(rows=each) in self.marks for each in ("reference", "evaluated"))

    @property
    def n_groups(self) -> int:
        """The number of groups."""
        return len(self.groups.names)

    @property
    def module(self) -> nn.Module:
        """The module whose outputs are explained."""
        return (
            self.adapted.module if isinstance(self.adapted, DifferentiableModel) else _Outputs(self.adapted)
        )

    def tensor(self, rows: Rows) -> Tensor:
        """Return encoded rows as the module takes them."""
        if isinstance(self.adapted, DifferentiableModel):
            return to_tensor(rows, self.adapted.module)
        return torch.tensor(np.asarray(rows, dtype=np.float64))

    @cached_property
    def n_blocks(self) -> int:
        """Blocks of rows."""
        width = max(part.stop for part in layout(self.task).values())
        return count_blocks(self.task.n_cells * self.n_groups * width)

    @property
    def n_people(self) -> int:
        """People per cell that are explained relative to members."""
        gradients = isinstance(self.adapted, DifferentiableModel)
        affordable = _MOST_OPERATIONS // max(1, self.operations * self.n_groups * _AFFORDED_REFERENCES)
        return max(_LEAST_PEOPLE, min(_PEOPLE[gradients], affordable) // self.task.n_cells)

    @property
    def n_references(self) -> int:
        """References per cell and group."""
        pairs = self.n_people * self.task.n_cells * self.n_groups
        affordable = min(
            _MOST_NUMBERS // max(1, pairs * len(self.columns.names)),
            _MOST_OPERATIONS // max(1, pairs * self.operations),
        )
        return int(np.clip(affordable, 100, _REFERENCES))

    @cached_property
    def operations(self) -> int:
        """The multiplications and additions of one row in the network, which limit how much is explained."""
        if self.means is None:
            return 0
        from torch.utils.flop_counter import FlopCounterMode  # slow to import

        row = torch.zeros_like(self.means.means[0, :1])
        try:
            with torch.no_grad(), evaluating(self.module), FlopCounterMode(display=False) as counter:
                self.module(row)
        except Exception:  # the modes of other programs cannot be combined with this one
            return 0
        return int(counter.get_total_flops())

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that parts have to have in common."""
        content = [
            *(self.adapted.kind, self.task, self.classes, self.groups.names, self.options, self.definition),
            *(
                self.attribution,
                [each.name for each in self.measures],
                self.columns.names,
                self.counts.tolist(),
            ),
        ]
        found = hashlib.sha256(repr(content).encode())
        if self.means is not None:
            found.update(self.means.means.cpu().numpy().tobytes())
        if self.references is not None:
            found.update(self.references.keys.tobytes())
        return found.hexdigest()

    def needs(self, *kinds: str) -> bool:
        """Return whether some measure is computed from these."""
        return any(each.needs in kinds for each in self.measures)

    def cells(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """Return the cell of each label."""
        found: NDArray[np.int64] = self.task.cells(torch.from_numpy(np.asarray(labels))).numpy()
        return found

    @property
    def decides_by_score(self) -> bool:
        """Whether decisions follow from the explained outputs alone."""
        if self.task.key != "binary":
            return True
        return 0 < self.threshold < 1 if self.adapted.probabilistic else True

    @property
    def threshold(self) -> float:
        """Of two classes, the probability from which a row is decided positive."""
        given = self.options.threshold
        return float(self.adapted.threshold if given is None else given)

    def decide(self, inputs: Rows) -> Floats:
        """Return the decisions (n,) about encoded rows by their outputs: codes, or numbers."""
        outputs = np.asarray(self.adapted.outputs(inputs), dtype=np.float64).reshape(len(inputs), -1)
        if self.task.key != "binary":
            return outputs[:, 0] if self.task.key == "number" else outputs.argmax(axis=1).astype(np.float64)
        cut = np.log(self.threshold) - np.log1p(-self.threshold) if self.adapted.probabilistic else 0.0
        return (outputs[:, 0] >= cut).astype(np.float64)

    def scores(self, outputs: Floats, labels: NDArray[Any]) -> Floats:
        """Return the explained score of rows, (n,), from their outputs."""
        return np.asarray(
            self.task.score(torch.from_numpy(outputs), torch.from_numpy(np.asarray(labels))).numpy()
        )

    def keep_rows(self, rows: Sample) -> Sample:
        """Return the rows from which people and references are chosen."""
        limit = self.n_people + (self.n_references if self.references is None else 0)
        if self.references is not None and self.apart:
            rows = rows[~np.isin(rows.keys, self.references.keys)]
        return rows.smallest_by_cell(self.cells(rows.labels), self.n_groups, limit)

    def keep_scores(self, scores: Sample) -> Sample:
        """Return the rows whose scores are kept."""
        return scores.smallest(SCORE_ROWS)

    def measure(
        self,
        X: Any,
        y: ArrayLike | None,
        sensitive_features: Any,
        *,
        keys: Any = None,
        sample_weight: ArrayLike | None = None,
    ) -> Partial:
        """Measure some rows.

        Parameters
        ----------
        X, y, sensitive_features
            As in `gcig.evaluate`.
        keys : array of shape (n,), optional
            What identifies each row: integers or texts. Without keys a row's position in this part is its
            key, so parts of one table need them.
        sample_weight : array of shape (n,), optional
        """
        rows = check_rows(
            self.adapted,
            (X, y, sensitive_features),
            self.task.key,
            sample_weight=sample_weight,
            classes=self.classes,
            names=self.groups.names,
            missing_groups=self.options.missing_groups,
            part=True,
        )
        return self.measure_rows(rows, keys)

    def read(self, data: bytes) -> Partial:
        """Return a part from its bytes."""
        return Partial.from_bytes(self, data)

    def measure_rows(self, rows: CheckedRows, keys: Any = None) -> Partial:
        """Measure checked rows."""
        hashed = rows.hashed_keys(keys, self.options.seed)
        predicted = self.adapted.predict(
            rows.table, rows.sensitive, encoded=rows.inputs, threshold=self.options.threshold
        )
        labels = (
            rows.labels
            if rows.labels is not None
            else labels_of_decisions(self.task.key, predicted.decisions)
        )
        outputs = np.asarray(self.adapted.outputs(rows.inputs), dtype=np.float64).reshape(len(rows), -1)
        blocks = blocks_of(hashed, self.n_blocks)
        decided = one_hot(self.task, predicted.decisions)
        scores = None
        if self.task.key == "number":
            scores = decided
        elif self.adapted.probabilistic:
            scores = np.asarray(predicted.scores, dtype=np.float64).reshape(len(rows), -1)
        weights = rows.known_weights
        sums, n_rows, squares = count_rows(
            self.task,
            scores,
            decided,
            labels,
            rows.groups.codes,
            self.n_groups,
            weights,
            (blocks, self.n_blocks),
        )
        cells = self.cells(labels)
        place = cells * self.n_groups + rows.groups.codes
        size = self.task.n_cells * self.n_groups
        shape = self.task.n_cells, self.n_groups
        found = {
            "counts": sums,
            "n_rows": n_rows,
            "squares": squares,
            "cell_mass": np.bincount(place, weights, minlength=size).reshape(shape),
            "cell_rows": np.bincount(place, minlength=size).reshape(shape),
            "cell_scores": np.bincount(place, weights * self.scores(outputs, labels), minlength=size).reshape(
                shape
            ),
            "n_missing": np.array([rows.n_missing]),
            "labelled": np.array([len(rows) if rows.labels is not None else 0]),
        }
        if self.means is not None and self.needs("means", "model"):
            inputs = self.tensor(rows.inputs)
            on = torch.from_numpy(labels).to(inputs.device)
            with progress(len(rows), "Explaining relative to means", after=LONG) as advance:
                summed = self.means.sum_rows(
                    inputs, on, rows.groups.codes, weights, blocks % N_PARTS, advance
                )
            found |= summed.to_arrays()
        sample = Sample(hashed, labels, rows.groups.codes, weights, outputs, predicted.decisions, rows.inputs)
        return Partial(self, found, self.keep_rows(sample), self.keep_scores(replace(sample, inputs=None)))


def labels_of_decisions(task: str, decisions: Floats) -> NDArray[Any]:
    """Return a model's own decisions in place of labels."""
    if task == "number":
        return np.asarray(decisions, dtype=np.float64)
    return np.floor(np.asarray(decisions) + 0.5).astype(np.int64)


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
        labels = rows.labels
        if labels is None:
            predicted = adapted.predict(
                rows.table, rows.sensitive, encoded=rows.inputs, threshold=options.threshold
            )
            labels = labels_of_decisions(adapted.task, predicted.decisions)
        task = make_task(adapted.task, labels, rows.weights, len(classes))
    if options.task not in ("auto", task.key):
        raise InputError(f"is {options.task!r}, but the model's task is {task.key!r}.", argument="task")
    all_names = known_groups or (rows.groups.names if rows is not None else ())
    groups = Groups(
        np.empty(0, dtype=np.int64),
        tuple(all_names),
        rows.groups.attributes if rows is not None else ("group",),
    )
    if rows is not None and _trained_on(adapted, rows):
        marks = (*marks, _SEEN.format(rows="reference" if given else "evaluated"))
    base = _Base(adapted, task, options, rows, own)
    legitimate = base.legitimate()
    means, counts = base.means(len(all_names), legitimate)
    columns = base.columns(means, counts)
    attribution, name = base.attribution(columns)
    definition = replace(options.definition or Definition(), attribution=name)
    plan = Plan(
        adapted=adapted,
        task=task,
        classes=(0, 1) if task.key == "binary" and not classes else classes,
        groups=groups,
        attributes=_attributes(rows, all_names),
        options=options,
        measures=select_measures(options.measures, task.key, robustness=options.robustness),
        columns=columns,
        attribution=attribution,
        attribution_name=name,
        favourable=favourable_classes(options.favourable, task.key, classes, adapted.model),
        means=None,
        counts=counts,
        legitimate=None if legitimate is None else legitimate.numpy(),
        definition=definition,
        apart=not disjoint,
        marks=marks,
    )
    if isinstance(adapted, DifferentiableModel) and name == "integrated_gradients":
        plan = replace(plan, means=base.explainer(plan, means))
        assert plan.means is not None
        plan = replace(plan, definition=plan.means.definition)
    if rows is None or keys is None:
        return plan
    y = rows.labels if rows.labels is not None else labels_of_decisions(task.key, base.decisions)
    empty = np.zeros((len(rows), 0))
    sample = Sample(keys, y, rows.groups.codes, rows.known_weights, empty, np.zeros(len(rows)), rows.inputs)
    limit = plan.n_references + plan.n_people
    sample = sample.smallest_by_cell(plan.cells(sample.labels), plan.n_groups, limit)
    chance = None if own else sample
    return replace(plan, chance_rows=chance, references=_references_of(sample, plan) if given else None)


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


@dataclass(frozen=True, eq=False)
class _Base:
    """The parts of a plan, one after the other."""

    adapted: AdaptedModel
    task: Task
    options: MeasureOptions
    rows: CheckedRows | None
    own: bool  # whether the model's own references are used

    @cached_property
    def decisions(self) -> Floats:
        """The model's decisions on the rows."""
        rows = self.rows
        assert rows is not None
        found = self.adapted.predict(
            rows.table, rows.sensitive, encoded=rows.inputs, threshold=self.options.threshold
        )
        return found.decisions

    def legitimate(self) -> Tensor | None:
        """Return which encoded columns are legitimate."""
        if self.options.legitimate is None:
            return None
        try:
            chosen = legitimate_columns(self.options.legitimate, self.adapted.original_names)
        except ValueError as error:
            raise InputError(
                f"names a column that the model does not have. Choose from "
                f"{', '.join(self.adapted.original_names)}.",
                argument="legitimate",
            ) from error
        return torch.from_numpy(np.isin(self.adapted.input_origin, chosen))

    def means(self, n_groups: int, legitimate: Tensor | None) -> tuple[Tensor, Codes]:
        """Return the means (cells, groups, p), and the numbers of rows (cells, groups)."""
        if self.own:
            baselines = torch.tensor(np.asarray(self.adapted.baselines))
            counts = self.adapted.baseline_counts
            known = np.isfinite(baselines.numpy()).all(axis=2)
            sizes = np.where(known, 2**30, 0) if counts is None else np.asarray(counts)
            if legitimate is not None:
                weight = torch.from_numpy(sizes / np.maximum(sizes.sum(1, keepdims=True), 1)).to(baselines)
                pooled = (weight.unsqueeze(-1) * baselines.nan_to_num()).sum(1, keepdim=True)
                baselines = torch.where(legitimate, pooled, baselines)
            return baselines, sizes
        rows = self.rows
        assert rows is not None
        labels = (
            rows.labels if rows.labels is not None else labels_of_decisions(self.task.key, self.decisions)
        )
        weights = None if rows.weights is None else torch.from_numpy(rows.weights)
        reference = ReferenceRows(
            torch.tensor(np.asarray(rows.inputs)),
            torch.from_numpy(np.asarray(labels)),
            torch.from_numpy(rows.groups.codes.astype(np.int64)),
            self.task,
            n_groups,
            weights,
            legitimate,
        )
        return Means(reference).values, reference.counts.numpy()

    def columns(self, means: Tensor, counts: Codes) -> ComparedColumns:
        """Return the columns that are compared."""
        weight = np.asarray(counts, dtype=np.float64)[..., None]
        mean = (weight * np.nan_to_num(means.numpy().astype(np.float64))).sum((0, 1)) / max(weight.sum(), 1)
        rows = np.empty((0, means.shape[-1])) if self.rows is None or self.own else self.rows.inputs
        if self.own and self.rows is not None and self.adapted.blocks is None:
            rows = self.rows.inputs
        return ComparedColumns.find(self.adapted, rows, mean)

    def attribution(self, columns: ComparedColumns) -> tuple[Attribution, str]:
        """Return how people are explained relative to members, and the name of the attribution."""
        gradients = isinstance(self.adapted, DifferentiableModel)
        name = self.options.attribution
        if name == "auto" and self.options.definition is not None and gradients:
            name = self.options.definition.attribution
        if name == "auto":
            name = "integrated_gradients" if gradients else "shapley"
        if name == "shapley":
            blocks = tuple(np.asarray(columns.input_blocks).tolist())
            return Shapley(blocks, self.options.seed), name
        if name not in ATTRIBUTIONS:
            raise InputError(
                f"must be 'auto', 'shapley' or one of {', '.join(map(repr, ATTRIBUTIONS))}, not {name!r}.",
                argument="attribution",
            )
        if not gradients:
            raise InputError(
                f"{name!r} needs gradients, which this {type(self.adapted.model).__name__} does not have. "
                "Use 'auto' or 'shapley'.",
                argument="attribution",
            )
        return resolve_attribution(name), name

    def explainer(self, plan: Plan, means: Tensor) -> MeanExplainer:
        """Return how rows are explained relative to means, with the number of steps settled on some rows."""
        adapted = self.adapted
        assert isinstance(adapted, DifferentiableModel)
        values = plan.tensor(means.numpy())
        known = torch.isfinite(values).all(-1)
        enough = torch.from_numpy(np.asarray(plan.counts) >= max(1, self.options.min_cell))
        if self.task.key == "number" and not self.own:
            enough = torch.from_numpy(
                np.asarray(plan.counts).sum(0) >= max(1, self.options.min_cell)
            ).expand_as(known)
        defined = known & enough.to(known.device)
        definition = plan.definition
        steps = _MEAN_STEPS if isinstance(definition.n_steps, str) else definition.n_steps
        attribution: Attribution = IntegratedGradients(definition.rule, steps)
        explainer = MeanExplainer(
            adapted.module, self.task, values, defined, plan.columns, attribution, definition, 0.0
        )
        rows = self.rows
        if rows is None or not len(rows):
            return replace(explainer, definition=replace(definition, n_steps=steps))
        order = np.argsort(row_keys(None, len(rows), self.options.seed), kind="stable")[:_PROBE_ROWS]
        labels = (
            rows.labels if rows.labels is not None else labels_of_decisions(self.task.key, self.decisions)
        )
        y = torch.from_numpy(np.asarray(labels)[order]).to(values.device)
        usable = defined[self.task.cells(y)].all(1)
        some, y = plan.tensor(rows.inputs[order])[usable], y[usable]
        if not len(some):
            return replace(explainer, definition=replace(definition, n_steps=steps))
        references = values[self.task.cells(y)].transpose(0, 1)
        if isinstance(definition.n_steps, str):
            start = IntegratedGradients(definition.rule, 2)
            score = Score.of(adapted.module, self.task, y)
            chosen = choose_steps(
                start,
                score,
                some,
                references,
                tolerance=1e-3,
                figure=lambda each: float(disparity(plan.columns.sum(each)).mean()),
            )
            explainer = replace(explainer, attribution=chosen)
            definition = replace(definition, n_steps=chosen.n_steps)
        found, slopes = explainer.attribute(some, y, references)
        found = explainer.on_columns(definition.columns, found, slopes, some - references)
        scale = float(found.abs().sum(-1).median())
        return replace(explainer, definition=definition, scale=scale)
