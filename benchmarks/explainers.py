"""Explainers and references that training never saw.

Permutation Shapley values, LIME and occlusion are attributions as in `gcig.core.attribution`, and go through
the same table of attributions as integrated gradients, with the same people and references. For additive
models all of them have a varying part of 0. The medoid and the modal member are references of GCIG.
"""

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.tables import Table
from gcig.core.attribution import Attribution, IntegratedGradients, Score
from gcig.core.explained import ReasonFigures, choose, explain_table, hashed_keys, smallest_by_group
from gcig.core.gcig import disparity
from gcig.core.shapley import Shapley
from gcig.core.task import Task, task_of

_PEOPLE, _REFERENCES, _LIME_REFERENCES = 40, 600, 150  # per cell, and per cell and group
_PEOPLE_OF_NUMBERS = 20  # per bin, of which there are ten
_GCIG_ROWS, _PERMUTATIONS = 500, 50


@dataclass(frozen=True)
class Occlusion:
    """What each column is worth alone: the change of the score if the row takes the reference's value."""

    complete: ClassVar[bool] = False
    blocks: Tensor  # (encoded columns,): the column of each

    @torch.no_grad()
    def attribute(
        self,
        score: Score,
        rows: Tensor,
        references: Tensor,
        *,
        create_graph: bool = False,  # noqa: ARG002
    ) -> Tensor:
        """Return the changes (references, n, encoded columns), those of a block at its first column."""
        values, whole = torch.zeros_like(references), score(rows.unsqueeze(0))
        for own in _masks(self.blocks):
            values[..., _first(own)] = whole - score(torch.where(own, references, rows))
        return values


@dataclass(frozen=True)
class Lime:
    """LIME: a weighted ridge regression of the score on which columns are the row's own, the others being the
    reference's. All rows and references share the masks.
    """

    complete: ClassVar[bool] = False
    blocks: Tensor
    n_masks: int = 96
    ridge: float = 0.1
    seed: int = 0

    @torch.no_grad()
    def attribute(
        self,
        score: Score,
        rows: Tensor,
        references: Tensor,
        *,
        create_graph: bool = False,  # noqa: ARG002
    ) -> Tensor:
        """Return the coefficients (references, n, encoded columns)."""
        blocks = _masks(self.blocks).to(rows)  # (columns, encoded)
        generator = torch.Generator().manual_seed(self.seed)
        own = (torch.rand(self.n_masks, len(blocks), generator=generator) < 0.5).to(rows)  # (masks, columns)
        removed = 1 - own.mean(1)
        weight = torch.exp(-removed.square() / 0.75**2)
        centred = own - weight @ own / weight.sum()
        weighted = centred * weight.unsqueeze(1)
        penalty = self.ridge * torch.eye(len(blocks), dtype=rows.dtype)
        solve = torch.linalg.solve(centred.T @ weighted + penalty, weighted.T)  # (columns, masks)
        values = torch.zeros_like(references)
        first = [_first(each.bool()) for each in blocks]
        for mask, column in zip(own @ blocks, solve.T, strict=True):
            response = score(torch.where(mask.bool(), rows, references))
            values[..., first] += response.unsqueeze(-1) * column
        return values


def _masks(blocks: Tensor) -> Tensor:
    """Return which encoded columns each column has, (columns, encoded columns)."""
    return blocks == blocks.unique().unsqueeze(1)


def _first(own: Tensor) -> int:
    return int(own.nonzero()[0, 0])


@dataclass(frozen=True)
class _Rows:
    """Rows as a network sees them."""

    inputs: Tensor
    labels: Tensor
    groups: Tensor
    cells: NDArray[Any]


def panel(
    model: Any, table: Table, train: NDArray[Any], test: NDArray[Any], unit: float | None = None
) -> dict[str, float]:
    """Measure a model's network with every explainer and reference.

    Gaps are in units of the spread of its own score or of `unit`, whichever is smaller.
    """
    task = task_of(_labels(model, table, train), table.task)
    training, people = (_encode(model, table, rows, task) for rows in (train, test))
    network, blocks = model.module_, torch.as_tensor(model.encoder_.origin_)
    n_groups = len(model.groups_)
    with torch.no_grad():
        spread = float(task.spread(network(people.inputs).view(len(test), -1)))
    spread = spread if unit is None else min(spread, unit)
    found = {}
    for name, attribution in {
        "members": IntegratedGradients(),
        "shapley": Shapley(tuple(blocks.tolist())),
        "lime": Lime(blocks),
        "occlusion": Occlusion(blocks),
    }.items():
        count = _LIME_REFERENCES if name == "lime" else _REFERENCES
        reasons = _figures(network, task, attribution, people, training, n_groups, blocks, spread, count)
        for part, figure in (("gap", reasons.gap), ("varying", reasons.varying)):
            found |= {f"{name}_{part}": figure.value, f"{name}_{part}_chance": figure.chance}
    some = slice(None, None, max(1, len(test) // _GCIG_ROWS))
    for name, of_cell in {"medoid": _medoid, "mode": _mode}.items():
        references = _one_each(training, task, n_groups, blocks, of_cell)
        score = Score.of(network, task, people.labels[some])
        starts = references[:, people.cells[some]]
        known = starts.isfinite().all(-1).all(0)
        values = IntegratedGradients(n_steps=16).attribute(
            Score(network, score.contrast[known]), people.inputs[some][known], starts[:, known]
        )
        found[f"{name}_gcig"] = float(disparity(values @ _masks(blocks).T.to(values)).mean())
    return found


def _labels(model: Any, table: Table, rows: NDArray[Any]) -> Tensor:
    y = table.y[rows]
    if table.task == "number":
        return torch.as_tensor(y, dtype=torch.float64)
    return torch.as_tensor([list(model.classes_).index(each) for each in y])


def _encode(model: Any, table: Table, rows: NDArray[Any], task: Task) -> _Rows:
    labels = _labels(model, table, rows)
    groups = torch.as_tensor(
        [[str(each) for each in model.groups_].index(each) for each in table.groups[rows]]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # test rows may have categories that training rows do not have
        inputs = torch.from_numpy(model.encode(table.X.iloc[rows].reset_index(drop=True)))
    return _Rows(inputs, labels, groups, task.cells(labels).numpy())


def _figures(
    network: Any,
    task: Task,
    attribution: Attribution,
    people: _Rows,
    training: _Rows,
    n_groups: int,
    blocks: Tensor,
    spread: float,
    n_references: int,
) -> ReasonFigures:
    """Return the gap and its parts of test rows relative to training rows."""
    per_cell = _PEOPLE_OF_NUMBERS if task.key == "number" else _PEOPLE
    # `choose` takes at most a quarter of a cell's rows; here the references are other rows.
    chosen, _ = choose(people.cells, people.groups.numpy(), hashed_keys(_positions(people), 0), per_cell, 0)
    keys, references = hashed_keys(_positions(training), 0), []
    for cell in range(task.n_cells):
        own = (training.cells == cell).nonzero()[0]
        references.append(smallest_by_group(own[keys[own].argsort()], training.groups.numpy(), n_references))
    table = explain_table(
        lambda labels: Score.of(network, task, labels),
        attribution,
        task,
        (people.inputs, people.labels),
        training.inputs,
        chosen,
        references,
        spread=spread,
        columns=_masks(blocks).T.to(people.inputs),
    )
    return table.figures(training.groups, n_groups, n_permutations=_PERMUTATIONS)


def _positions(rows: _Rows) -> NDArray[Any]:
    return torch.arange(len(rows.labels)).numpy()


def _one_each(training: _Rows, task: Task, n_groups: int, blocks: Tensor, of_cell: Any) -> Tensor:
    """Return one member of each (group, cell), (groups, cells, encoded columns); NaN if it is empty."""
    found = torch.full((n_groups, task.n_cells, training.inputs.shape[1]), torch.nan)
    for group in range(n_groups):
        for cell in range(task.n_cells):
            own = training.inputs[(training.groups == group) & torch.from_numpy(training.cells == cell)]
            if len(own):
                found[group, cell] = own[of_cell(own, blocks)]
    return found


def _medoid(members: Tensor, blocks: Tensor) -> int:  # noqa: ARG001
    """Return the member nearest to the mean."""
    return int((members - members.mean(0)).square().sum(1).argmin())


def _mode(members: Tensor, blocks: Tensor) -> int:
    """Return the member that has the most frequent category, or a number near the median, in most columns."""
    agree = torch.zeros(len(members))
    for own in _masks(blocks):
        block = members[:, own]
        if block.shape[1] > 1:
            agree += block.argmax(1) == block.mean(0).argmax()
        else:
            distance = (block[:, 0] - block[:, 0].median()).abs()
            agree += (distance < 0.25).to(agree) - 1e-3 * distance
    return int(agree.argmax())
