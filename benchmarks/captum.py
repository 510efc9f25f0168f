"""Attributions of 10,000 rows for two baselines, against Captum's IntegratedGradients."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from captum.attr import IntegratedGradients
from torch import Tensor, nn

from benchmarks import adult
from benchmarks.rows import Row
from benchmarks.timing import Step, measure, report
from gcig.core.attribution import Attribution, attributions

N_ROWS = 10_000
SAMPLE = 500
INTERNAL_BATCH = 10_000  # the fastest of 10,000 to 100,000
LADDER = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 48, 64)
SLACK = 1.1  # where only rounding is left, a tenth is no difference


def captum_rows() -> Iterator[Row]:
    """At the same completeness residual, and at the same error of the attributions."""
    section = f"Captum's IntegratedGradients / ours: {N_ROWS} rows, two baselines, single precision"
    data = adult.load()[:N_ROWS]
    # The two groups' means among the negatives, for all rows.
    references = adult.baselines(adult.load()).values[0].unsqueeze(1).expand(-1, N_ROWS, -1)
    for name, activation in [("64-32 SiLU", "silu"), ("64-32 ReLU", "relu")]:
        report(f"Captum, {name}")
        module = adult.trained(activation, (64, 32), 0.0).float().eval()
        some, starts = data.inputs[:SAMPLE], references[:, :SAMPLE]
        found = attributions(module, data.inputs, references)
        yield from _compare(
            Row(section, f"{name}, same completeness residual", 0.0, must=20, aim=50, at_least=True),
            module,
            data.inputs,
            references,
            found,
            partial(_residual, module, some, starts),
        )
        limit = attributions(copy.deepcopy(module).double(), some.double(), starts.double(), tolerance=1e-6)
        yield from _compare(
            Row(section, f"{name}, same error of the attributions", 0.0, at_least=True),
            module,
            data.inputs,
            references,
            found,
            partial(_error, limit.values),
        )


def _compare(
    row: Row,
    module: nn.Module,
    inputs: Tensor,
    references: Tensor,
    found: Attribution,
    judge: Callable[[Tensor], float],
) -> Iterator[Row]:
    """Time Captum with as few steps as are as good as ours."""
    some, starts = inputs[:SAMPLE], references[:, :SAMPLE]
    target = judge(found.values[:, :SAMPLE])
    n_steps, reached = _least_steps(module, some, starts, judge, SLACK * target)
    # Captum's time is proportional to the rows: so many steps are timed on fewer of them.
    n_rows = min(N_ROWS, 100_000 // n_steps)
    steps: dict[str, Step] = {
        "ours": lambda: attributions(module, inputs, references),
        "captum": lambda: _captum(module, inputs[:n_rows], references[:, :n_rows], n_steps),
    }
    times = measure(steps, rounds=3, least=1)
    ratio = times.ratio("captum", "ours").median * N_ROWS / n_rows
    note = (
        f"ours {found.rule} {found.n_steps}: {target:.1e} in {1e3 * times.median('ours'):.0f} ms; Captum "
        f"{n_steps} Gauss-Legendre steps: {reached:.1e}{'' if reached <= SLACK * target else ', not reached'}"
    )
    yield replace(row, ours=ratio, note=note)


def _residual(module: nn.Module, inputs: Tensor, references: Tensor, values: Tensor) -> float:
    with torch.no_grad():
        change = module(inputs) - module(references.flatten(0, 1)).view(2, -1)
    return float((values.sum(-1) - change).abs().mean())


def _error(limit: Tensor, values: Tensor) -> float:
    return float(((values.double() - limit).abs().sum(-1) / limit.abs().sum(-1)).mean())


def _captum(module: nn.Module, inputs: Tensor, references: Tensor, n_steps: int) -> Tensor:
    explainer = IntegratedGradients(module)
    return torch.stack(
        [
            explainer.attribute(
                inputs, start[:1], n_steps=n_steps, method="gausslegendre", internal_batch_size=INTERNAL_BATCH
            )
            for start in references
        ]
    )


def _least_steps(
    module: nn.Module, inputs: Tensor, references: Tensor, judge: Callable[[Tensor], float], target: float
) -> tuple[int, float]:
    """The fewest steps of the ladder that are as good as the target, or its last, and how good they are."""
    for n_steps in LADDER:
        reached = judge(_captum(module, inputs, references, n_steps))
        if reached <= target:
            break
    return n_steps, reached
