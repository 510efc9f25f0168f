r"""The truth about a model on a generator, without explanations: columns are exchanged one at a time.

Let :math:`u_{i,j,g}` be the mean score of person i if column j alone becomes that of a random person of group
g with the same label. With the centre over groups subtracted,

- *reach* is the root of the sum over columns of the mean square of u: how far the groups' values move scores;
- *standards* is the same of its deviations from the mean over people with one label, divided by
  :math:`\sqrt 2`: by how much people who are alike in everything else are moved differently;
- *shift* is the root mean square change of the score if the protected column alone is exchanged.

All are in units of the spread of the score. For an additive model, reach is the reason gap and standards is
0; for a product of two columns standards is the varying part (each of the two columns has half of a product
in its explanation, and all of it when it is exchanged). With many rows nothing is left to chance.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from gcig.adapters import adapt
from gcig.adapters.base import AdaptedModel
from gcig.core.task import Classes, Task, task_of
from gcig.validity.generators import KnownTruth

MATERIAL, STANDARDS = 0.05, 0.1
_MARGIN = 0.2  # of a threshold: within it both neighbouring verdicts are right
_POINTS = 32  # values of each column and group
_PEOPLE = 600  # in all cells together
_SPREAD_ROWS = 100_000


@dataclass(frozen=True)
class Truth:
    """Population values, and the verdicts that are right.

    ``declared`` says that the legitimate columns of the generator are declared: reach and standards are then
    those of the other columns.
    """

    reach: float
    standards: float
    shift: float
    switched: float  # change of the score if the known proxy is exchanged; NaN without one
    declared: bool = False
    material: float = MATERIAL

    @property
    def code(self) -> str:
        """The right verdict."""
        if self.shift > STANDARDS or self.standards > STANDARDS:
            return "different_standards"
        if self.reach > self.material:
            return "different_standards" if self.declared else "group_differences"
        return "no_dependence"

    @property
    def right(self) -> frozenset[str]:
        """The right verdicts: more than one if a population value is within a fifth of a threshold.

        A dependence below `material` may be reported as such if it is more than half of that.
        """
        factors = (1 - _MARGIN, 1.0, 1 + _MARGIN)
        codes = {
            replace(self, reach=f * self.reach, standards=f * self.standards, shift=f * self.shift).code
            for f in factors
        }
        if codes == {"no_dependence"} and self.reach > self.material / 2:
            codes.add("different_standards" if self.declared else "group_differences")
        return frozenset(codes)


def known_truth(model: object, rows: KnownTruth, *, seed: int = 0) -> tuple[Truth, Truth]:
    """Return the truth about a model from many rows of a generator, without and with a declaration.

    Parameters
    ----------
    model : any model that `gcig.adapt` accepts
    rows : at least some 10,000 rows

    Examples
    --------
    >>> from gcig.validity import generate
    >>> rows = generate("two_weights", 20_000)
    >>> truth, declared = known_truth(rows.model, rows)
    >>> truth.code, truth.standards > 0.3
    ('different_standards', True)
    """
    adapted = adapt(model, rows.X, task=rows.task if rows.task != "binary" else None)  # type: ignore[arg-type]
    encoded = np.asarray(adapted.encode(rows.X, rows.groups), dtype=np.float64)
    labels = np.asarray(rows.y)
    y = torch.from_numpy(labels)
    task: Task = Classes.of(y, n_classes=3) if rows.task == "classes" else task_of(y, rows.task)
    found = _Exchange(adapted, task, encoded, labels, np.unique(rows.groups, return_inverse=True)[1])
    blocks = _blocks(adapted)
    effects = {name: found.effects(columns) for name, columns in blocks.items()}
    shift = found.shift(blocks["group"], seed) if "group" in blocks else 0.0
    switches = [blocks[name] for name in rows.generator.switches]
    switched = found.shift(np.concatenate(switches), seed) if switches else math.nan

    def truth(declared: bool) -> Truth:
        legitimate = set(rows.generator.legitimate) if declared else set()
        squares = [each for name, each in effects.items() if name not in legitimate]
        reach, standards = (math.sqrt(sum(each[part] for each in squares)) for part in range(2))
        return Truth(reach, standards / math.sqrt(2), shift, switched, declared)

    return truth(False), truth(True)


def _blocks(adapted: AdaptedModel) -> dict[str, NDArray[np.int64]]:
    """Return the encoded columns of each column; those of one category together, under its first name."""
    origin = np.asarray(adapted.input_origin)
    found: dict[str, list[int]] = {}
    for place, name in enumerate(adapted.original_names):
        key = "job_0" if name.startswith("job_") else name
        found.setdefault(key, []).extend(np.flatnonzero(origin == place).tolist())
    return {name: np.array(columns) for name, columns in found.items() if columns}


@dataclass(frozen=True, eq=False)
class _Exchange:
    """Scores of people whose columns are exchanged."""

    adapted: AdaptedModel
    task: Task
    rows: NDArray[np.float64]
    labels: NDArray[np.generic]
    groups: NDArray[np.int64]

    def score(self, rows: NDArray[np.float64], labels: NDArray[np.generic]) -> NDArray[np.float64]:
        """Return the explained score of rows of people with these labels."""
        outputs = np.asarray(self.adapted.outputs(rows.astype(np.float32)), dtype=np.float64)
        scores = self.task.score(
            torch.from_numpy(outputs.reshape(len(rows), -1)), torch.from_numpy(np.asarray(labels))
        )
        return np.asarray(scores.numpy())

    @cached_property
    def spread(self) -> float:
        """The spread of the score over people."""
        rows = self.rows[:_SPREAD_ROWS].astype(np.float32)
        outputs = np.asarray(self.adapted.outputs(rows), dtype=np.float64)
        return float(self.task.spread(torch.from_numpy(outputs.reshape(len(rows), -1))))

    def people(self) -> list[tuple[float, NDArray[np.int64], NDArray[np.int64]]]:
        """Return for each cell its share, all its rows, and the people who are looked at."""
        cells = self.task.cells(torch.from_numpy(np.asarray(self.labels))).numpy()
        count = max(60, _PEOPLE // self.task.n_cells)
        rows = [np.flatnonzero(cells == cell) for cell in range(self.task.n_cells)]
        return [(len(own) / len(cells), own, own[:count]) for own in rows if len(own)]

    def effects(self, columns: NDArray[np.int64]) -> tuple[float, float]:
        """Return the squared reach of one column and the square of its deviations, in units of the spread."""
        n_groups = int(self.groups.max()) + 1
        reach = deviations = 0.0
        for share, cell, people in self.people():
            of_group = [cell[self.groups[cell] == g] for g in range(n_groups)]
            moved = np.stack([self._mean_score(people, columns, donors) for donors in of_group])
            moved = moved - moved.mean(0)
            scale = share * 2 / (n_groups - 1) / self.spread**2
            reach += scale * float((moved**2).mean(1).sum())
            deviations += scale * float(moved.var(1, ddof=1).sum())
        return reach, deviations

    def _mean_score(
        self, people: NDArray[np.int64], columns: NDArray[np.int64], donors: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the mean score of each person with columns of a group, at evenly spaced quantiles."""
        key = self.rows[donors][:, columns] @ np.arange(1, len(columns) + 1)
        places = ((np.arange(_POINTS) + 0.5) / _POINTS * len(donors)).astype(np.int64)
        chosen = donors[np.argsort(key, kind="stable")[places]]
        copies = np.repeat(self.rows[people], _POINTS, axis=0)
        copies[:, columns] = np.tile(self.rows[chosen][:, columns], (len(people), 1))
        scores = self.score(copies, np.repeat(self.labels[people], _POINTS))
        return np.asarray(scores.reshape(len(people), _POINTS).mean(1))

    def shift(self, columns: NDArray[np.int64], seed: int) -> float:
        """Return the root mean square change of the score if columns become those of another group."""
        rng, total = np.random.default_rng(seed), 0.0
        for share, cell, people in self.people():
            copies = self.rows[people].copy()
            for group in np.unique(self.groups[people]):
                own, others = np.flatnonzero(self.groups[people] == group), cell[self.groups[cell] != group]
                copies[np.ix_(own, columns)] = self.rows[np.ix_(rng.choice(others, len(own)), columns)]
            change = self.score(copies, self.labels[people]) - self.score(
                self.rows[people], self.labels[people]
            )
            total += share * float((change**2).mean())
        return math.sqrt(total) / self.spread
