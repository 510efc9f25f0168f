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

from gcig._arrays import Codes, Floats, Rows
from gcig._progress import LONG, progress
from gcig.adapters import AdaptedModel
from gcig.adapters.base import DifferentiableModel
from gcig.adapters.tensors import to_tensor
from gcig.core.attribution import (
    Attribution,
)
from gcig.core.definition import Definition
from gcig.core.modules import evaluating
from gcig.core.task import Task
from gcig.metrics.checked import (
    CheckedRows,
    check_rows,
)
from gcig.metrics.columns import ComparedColumns
from gcig.metrics.measure import Measure
from gcig.metrics.partial import Partial
from gcig.metrics.relative_to_means import MeanExplainer
from gcig.metrics.samples import N_PARTS, Sample, blocks_of, count_blocks
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


SEEN = (
    "The {rows} rows are rows that the model was trained on: it fits them better than new people. Use rows "
    "that were held out."
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
    >>> from gcig.metrics import prepare
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
        return any(SEEN.format(rows=each) in self.marks for each in ("reference", "evaluated"))

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
        return 0 if self.means is None else self.operations_of(self.means.means)

    def operations_of(self, means: Tensor) -> int:
        """Return the same before the plan is complete; ``means`` (cells, groups, p) are like its rows."""
        from torch.utils.flop_counter import FlopCounterMode  # slow to import

        row = torch.zeros_like(means[0, :1])
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
