"""Attributions: their accuracy in training, and their cost against Captum's IntegratedGradients."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from captum.attr import IntegratedGradients
from torch import Tensor, nn

from benchmarks import adult
from benchmarks.measurement import Row, Step, measure, report
from gcig.core.attribution import Attribution, attributions
from gcig.core.disparity import defined_rows, disparity
from gcig.core.numerics import vector_norm
from gcig.core.quadrature import training_integration

ACCURACY_ROWS = 2000
NETWORKS = [("64-32 SiLU", "silu", (64, 32)), ("64-32 ReLU", "relu", (64, 32)), ("64 SiLU", "silu", (64,))]
N_ROWS = 10_000
SAMPLE = 500
INTERNAL_BATCH = 10_000  # the fastest of 10,000 to 100,000
LADDER = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 48, 64)
SLACK = 1.1  # if only rounding error is left, a difference of a tenth does not count


def accuracy_rows() -> Iterator[Row]:
    """Measure the mean relative error of V against 512 midpoint nodes, in double precision."""
    section = f"Error of V: mean relative error against 512 midpoint nodes ({ACCURACY_ROWS} rows of Adult)"
    data = adult.load()
    for name, activation, hidden in NETWORKS:
        for weight in (0.0, adult.WEIGHT):
            trained = f"trained with lambda {weight}" if weight else "trained plainly"
            report(f"error of V, {name}, {trained}")
            module = adult.trained(activation, hidden, weight).double()
            inputs, labels = data.inputs[:ACCURACY_ROWS].double(), data.labels[:ACCURACY_ROWS]
            references = adult.baselines(data).of(labels).double()
            limit = _values(module, inputs, references, "midpoint", 512)
            paper = _relative_error(_values(module, inputs, references, "right", 16), limit)
            for fast in (True, False):
                if not fast and activation == "relu":
                    continue  # quadrature has the wrong gradient for ReLU, of which the penalty warns
                method = training_integration(module, rule="auto", n_steps="auto", fast=fast, tabular=True)
                values = _values(module, inputs, references, method.rule, method.n_steps)
                what = f"{name}, {trained}: {method.rule.replace('_', '-')} {method.n_steps}"
                note = f"right Riemann, T = 16: {paper:.1e}; mean V {limit.mean():.3f}"
                yield Row(section, what, _relative_error(values, limit), unit="", must=paper, note=note)


def _values(module: nn.Module, inputs: Tensor, references: Tensor, rule: str, n_steps: int) -> Tensor:
    with torch.no_grad():
        values = attributions(module, inputs, references, rule=rule, n_steps=n_steps).values
    return disparity(values[:, defined_rows(vector_norm(values, "l1"))])


def _relative_error(values: Tensor, limit: Tensor) -> float:
    return float(((values - limit).abs() / limit).mean())


def captum_rows() -> Iterator[Row]:
    """Compare times at equal completeness residual, and at equal error of the attributions."""
    section = f"Captum's IntegratedGradients / ours: {N_ROWS} rows, two baselines, single precision"
    data = adult.load()[:N_ROWS]
    # The means of the two groups among the negatives, as references of all rows.
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
            partial(_mean_error, limit.values),
        )


def _compare(
    row: Row,
    module: nn.Module,
    inputs: Tensor,
    references: Tensor,
    found: Attribution,
    criterion: Callable[[Tensor], float],
) -> Iterator[Row]:
    """Time Captum with the fewest steps that are as accurate as ours."""
    some, starts = inputs[:SAMPLE], references[:, :SAMPLE]
    target = criterion(found.values[:, :SAMPLE])
    n_steps, reached = _least_steps(module, some, starts, criterion, SLACK * target)
    # Captum's time is proportional to the rows: with many steps, fewer rows are timed.
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


def _mean_error(limit: Tensor, values: Tensor) -> float:
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
    module: nn.Module, inputs: Tensor, references: Tensor, criterion: Callable[[Tensor], float], target: float
) -> tuple[int, float]:
    """Return the fewest steps that reach the target, or the most there are, and the value they reach."""
    for n_steps in LADDER:
        reached = criterion(_captum(module, inputs, references, n_steps))
        if reached <= target:
            break
    return n_steps, reached
