"""Mini-batches of a student: training rows with the teacher's predictions, and synthetic points.

The student learns the teacher's predictions not only at training rows, but also

- at points between rows and references, so that references stay typical of the people they stand for;
- at copies with exchanged protected columns, so that the attribute is not used more than by the teacher.
"""

import math

import torch
from torch import Tensor, nn

from gcig.core.modules import evaluating
from gcig.core.references import Members, Rows
from gcig.core.task import Task, as_outputs
from gcig.training.objective import Explaining, MiniBatch

_ROWS_AT_ONCE = 65_536  # memory, without effect on the result


@torch.no_grad()
def all_outputs(network: nn.Module, inputs: Tensor) -> Tensor:
    """Return the outputs (n, K) of any number of rows, in evaluation mode."""
    with evaluating(network):
        parts = [as_outputs(network(part), len(part)) for part in inputs.split(_ROWS_AT_ONCE)]
    return torch.cat(parts)


class StudentBatches:
    """Makes the mini-batches of a student.

    `protected` are positions of encoded columns that reveal the group. `between` and `exchanged` are numbers
    of synthetic points of the two kinds, relative to training rows.
    """

    def __init__(
        self,
        teacher: nn.Module,
        rows: Rows,
        task: Task,
        explaining: Explaining,
        *,
        protected: Tensor | None,
        between: float,
        exchanged: float,
    ) -> None:
        self.teacher, self.rows, self.task, self.explaining = teacher.eval(), rows, task, explaining
        self.protected, self.between, self.exchanged = protected, between, exchanged
        self.outputs = all_outputs(teacher, rows.inputs)
        self._members = Members(explaining.baselines.rows)

    def __call__(self, network: nn.Module, positions: Tensor) -> MiniBatch:
        """Return the mini-batch of the rows at these positions, with synthetic points."""
        own, n, count = self.rows[positions], len(positions), 0
        points, weights = [self._between(math.ceil(self.between * n))], own.weights
        if self.protected is not None:
            count = math.ceil(self.exchanged * n)
            points.append((self._exchange(own.inputs[:count]), positions[:count]))
        added = torch.cat([inputs for inputs, _ in points])
        with torch.no_grad():
            answers = as_outputs(self.teacher(added), len(added))
        if self.rows.weights is not None:
            weights = self.rows.weights[torch.cat([positions, *(origins for _, origins in points)])]
        return MiniBatch(
            network=network,
            task=self.task,
            inputs=torch.cat([own.inputs, added]),
            teacher_outputs=torch.cat([self.outputs[positions], answers]),
            labels=own.labels,
            groups=own.groups,
            weights=weights,
            explaining=self.explaining,
            n_exchanged=count,
        )

    def _between(self, count: int) -> tuple[Tensor, Tensor]:
        """Draw points between random rows and references of a random group: means, or members."""
        baselines, generator = self.explaining.baselines, self.explaining.generator
        device, source = self.rows.inputs.device, generator.device
        positions = torch.randint(len(self.rows), (count,), generator=generator, device=source).to(device)
        groups = torch.randint(baselines.n_groups, (count,), generator=generator, device=source).to(device)
        share = torch.rand(2, count, generator=generator, device=source, dtype=torch.float32).to(device)
        inputs, cells = self.rows.inputs[positions], self.task.cells(self.rows.labels[positions])
        shape = (-1, *[1] * (inputs.dim() - 1))
        members = self._members.one_each(cells, groups, generator)
        ends = torch.where((share[0] < 0.5).view(shape), baselines.values[cells, groups], members)
        ends = torch.where(baselines.defined[cells, groups].view(shape), ends, inputs)
        return torch.lerp(inputs, ends, share[1].view(shape)), positions

    def _exchange(self, inputs: Tensor) -> Tensor:
        """Return copies with the protected columns of random rows."""
        generator = self.explaining.generator
        donors = torch.randint(len(self.rows), (len(inputs),), generator=generator, device=generator.device)
        assert self.protected is not None
        copies = inputs.clone()
        copies[:, self.protected] = self.rows.inputs[donors.to(inputs.device)][:, self.protected]
        return copies
