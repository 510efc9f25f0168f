"""Exponents of cost: how time grows with rows, columns, groups, references, nodes and models.

    python -m benchmarks.scaling

Each quantity is varied alone. The exponent is the slope of log time on log size, least squares over all
sizes; the last column is the slope between the two largest sizes, in which constant costs matter least. Times
are CPU seconds of one thread, the least of several repetitions.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import nn

import gcig
from benchmarks.measurement import report
from gcig.core.penalties import GCIGPenalty
from gcig.core.references import GroupBaselines
from gcig.methods.unconstrained import UnconstrainedClassifier
from gcig.models.mlp import make_mlp

_ROWS, _COLUMNS, _GROUPS = 2048, 64, 2
_LEAST_SECONDS = 0.4  # per measurement, to average over the noise of a shared machine


@dataclass(frozen=True)
class Law:
    """Times of an operation at several sizes, and the exponent that they show."""

    operation: str
    quantity: str
    sizes: Sequence[int]
    seconds: Sequence[float]

    @property
    def exponent(self) -> float:
        """The slope of log time on log size over all sizes."""
        return float(np.polyfit(np.log(self.sizes), np.log(self.seconds), 1)[0])

    @property
    def last(self) -> float:
        """The slope between the two largest sizes."""
        return float(np.diff(np.log(self.seconds[-2:]))[0] / np.diff(np.log(self.sizes[-2:]))[0])


def measure(
    operation: str, quantity: str, sizes: Sequence[int], make: Callable[[int], Callable[[], object]]
) -> Law:
    """Time an operation at every size; ``make`` prepares it for one size."""
    report(f"scaling, {operation}, {quantity}")
    return Law(operation, quantity, sizes, [_seconds(make(size)) for size in sizes])


def _seconds(run: Callable[[], object]) -> float:
    run()  # loads what is loaded once
    found, began = [], time.process_time()
    while time.process_time() - began < _LEAST_SECONDS or len(found) < 2:
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def penalty_step(
    rows: int = _ROWS,
    columns: int = _COLUMNS,
    groups: int = _GROUPS,
    nodes: int = 0,
) -> Callable[[], object]:
    """Return one forward and backward pass of the penalty on a network with 64 and 32 hidden units."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, columns, generator=generator)
    y, of_group = torch.arange(rows) % 2, torch.arange(rows) // 2 % groups
    module: nn.Module = make_mlp(columns, generator=generator)
    baselines = GroupBaselines.from_data(x, y, of_group, n_groups=groups)
    penalty = GCIGPenalty(baselines, n_steps=nodes or "auto", rows="all")
    return lambda: penalty(module, x, y).backward()


def table(rows: int, columns: int = 20) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Return a table of numbers with labels and two groups."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(rows, columns)), columns=[f"x{j}" for j in range(columns)])
    groups = rng.integers(0, 2, rows)
    y = (X["x0"] + X["x1"] + 0.5 * groups + rng.logistic(size=rows) > 0).to_numpy().astype(int)
    return X, y, np.where(groups == 1, "m", "f")


def fit(rows: int, columns: int = 20, models: int = 1) -> Callable[[], object]:
    """Return a FairX fit of two epochs, or several of them."""
    X, y, groups = table(rows, columns)

    def run() -> None:
        for seed in range(models):
            model = gcig.FairXClassifier(max_epochs=2, random_state=seed, repair="always")
            model.fit(X, y, sensitive_features=groups)

    return run


def evaluation(rows: int) -> Callable[[], object]:
    """Return the evaluation of a network."""
    X, y, groups = table(rows)
    model = UnconstrainedClassifier(max_epochs=1, random_state=0).fit(X, y, sensitive_features=groups)
    return lambda: gcig.evaluate(model, X, y, sensitive_features=groups, n_bootstrap=0)


def laws() -> list[Law]:
    """Measure everything."""
    step = "penalty, one step"
    return [
        measure(step, "rows", (1024, 4096, 16384, 65536), lambda n: penalty_step(rows=n)),
        measure(step, "columns", (32, 128, 512, 2048), lambda n: penalty_step(columns=n)),
        measure(step, "groups", (2, 4, 8, 16), lambda n: penalty_step(groups=n)),
        measure(step, "nodes per path", (2, 4, 8, 16, 32), lambda n: penalty_step(rows=512, nodes=n)),
        measure("FairX fit, per epoch", "rows", (16_000, 64_000, 256_000), fit),
        measure("FairX fit, per epoch", "columns", (20, 80, 320), lambda n: fit(16_000, columns=n)),
        measure("FairX fit", "models", (1, 2, 4), lambda n: fit(8_000, models=n)),
        measure("evaluate", "rows", (10_000, 40_000, 160_000), evaluation),
    ]


def main() -> None:
    """Print one line per law."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__.splitlines()[0])
    parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"{'operation':24} {'quantity':20} {'sizes':>18} {'seconds':>20} {'exponent':>9} {'last':>6}")
    for law in laws():
        sizes = f"{law.sizes[0]:,}..{law.sizes[-1]:,}"
        seconds = f"{law.seconds[0]:.4f}..{law.seconds[-1]:.4f}"
        slopes = f"{law.exponent:9.2f} {law.last:6.2f}"
        print(f"{law.operation:24} {law.quantity:20} {sizes:>18} {seconds:>20} {slopes}", flush=True)


if __name__ == "__main__":
    main()
