"""The error of V of the rules that training uses, on trained networks."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from benchmarks import adult
from benchmarks.rows import Row
from benchmarks.timing import report
from gcig.core.attribution import attributions
from gcig.core.disparity import defined_rows, disparity
from gcig.core.integration import training_integration
from gcig.core.numerics import vector_norm

N_ROWS = 2000
NETWORKS = [("64-32 SiLU", "silu", (64, 32)), ("64-32 ReLU", "relu", (64, 32)), ("64 SiLU", "silu", (64,))]


def accuracy_rows() -> Iterator[Row]:
    """Mean relative error of V against 512 midpoint nodes, in double precision."""
    section = f"Error of V: mean relative error against 512 midpoint nodes ({N_ROWS} rows of Adult)"
    data = adult.load()
    for name, activation, hidden in NETWORKS:
        for weight in (0.0, adult.WEIGHT):
            trained = f"trained with lambda {weight}" if weight else "trained plainly"
            report(f"error of V, {name}, {trained}")
            module = adult.trained(activation, hidden, weight).double()
            inputs, labels = data.inputs[:N_ROWS].double(), data.labels[:N_ROWS]
            references = adult.baselines(data).of(labels).double()
            limit = _values(module, inputs, references, "midpoint", 512)
            paper = _error(_values(module, inputs, references, "right", 16), limit)
            for fast in (True, False):
                if not fast and activation == "relu":
                    continue  # quadrature has the wrong gradient there, and the penalty says so
                method = training_integration(module, rule="auto", n_steps="auto", fast=fast, tabular=True)
                values = _values(module, inputs, references, method.rule, method.n_steps)
                what = f"{name}, {trained}: {method.rule.replace('_', '-')} {method.n_steps}"
                note = f"right Riemann, T = 16: {paper:.1e}; mean V {limit.mean():.3f}"
                yield Row(section, what, _error(values, limit), unit="", must=paper, note=note)


def _values(module: nn.Module, inputs: Tensor, references: Tensor, rule: str, n_steps: int) -> Tensor:
    with torch.no_grad():
        values = attributions(module, inputs, references, rule=rule, n_steps=n_steps).values
    return disparity(values[:, defined_rows(vector_norm(values, "l1"))])


def _error(values: Tensor, limit: Tensor) -> float:
    return float(((values - limit).abs() / limit).mean())
