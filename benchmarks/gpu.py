"""Cost on a CUDA device, as ratios within one run.

python -m benchmarks.gpu [--only penalty captum fit table] [--json FILE]

Processes take turns on the GPU unless NVIDIA's MPS is started before (nvidia-cuda-mps-control -d).
"""

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from reproduction.experiments import Plan
from reproduction.run import make_trials, read_chosen
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import binary_cross_entropy_with_logits

import gcig
from benchmarks.measurement import Row, format_rows, report
from gcig.benchmark.backends import Backend
from gcig.benchmark.runner import run_trials
from gcig.benchmark.trials import COMMON, Table, common_parameters
from gcig.core.attribution import attributions
from gcig.core.disparity import disparity
from gcig.core.references import GroupBaselines
from gcig.losses.gcig import GCIGPenalty, label_row_weights
from gcig.models.mlp import make_mlp
from gcig.training import loop

DEVICE = torch.device("cuda", 0)
PUBLISHED = Path(__file__).parents[1] / "results" / "paper"  # the run whose chosen parameters the table uses
NAIVE_STEPS = 16
ATTRIBUTED_ROWS, COLUMNS = 100_000, 1024
LADDER = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64)
SAMPLE = 2000  # rows on which the steps of Captum are chosen
SLACK = 1.1  # if only rounding error is left, a difference of a tenth does not count

Module = nn.Module


class Transformer(nn.Module):
    """Two encoder layers over 32 tokens of 64 numbers."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, activation="gelu", batch_first=True, dropout=0.0)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(64, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return one logit per row."""
        return self.head(self.encoder(x).mean(1)).squeeze(-1)


def convolutional() -> Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 1),
        nn.Flatten(0),
    )


# The network, its rows, and limits of the ratio of a step with the penalty to one without.
NETWORKS: Mapping[str, tuple[Callable[[], Module], tuple[int, ...], dict[str, float]]] = {
    "1024-1024-512, batch 16,384": (
        lambda: make_mlp(COLUMNS, (1024, 512)),
        (16_384, COLUMNS),
        {"must": 6, "aim": 5},
    ),
    "104-64-32, batch 512": (lambda: make_mlp(104, (64, 32)), (512, 104), {}),
    "1024-2048-2048-1024, ReLU, batch 4,096": (
        lambda: make_mlp(COLUMNS, (2048, 2048, 1024), "relu"),
        (4096, COLUMNS),
        {},
    ),
    "convolutions, 3 x 32 x 32, batch 512": (convolutional, (512, 3, 32, 32), {}),
    "transformer, 32 x 64, batch 512": (Transformer, (512, 32, 64), {}),
}


def milliseconds(step: Callable[[], object], *, repeats: int = 10, warm_up: int = 3) -> float:
    """Return the median time of a step, launches included."""
    for _ in range(warm_up):
        step()
    found = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        found.append(1e3 * (time.perf_counter() - start))
    return statistics.median(found)


def naive(module: Module, x: Tensor, y: Tensor, baselines: Tensor) -> Tensor:
    """Return the penalty by a right Riemann sum, one group and one node after the other."""
    attributed = []
    for group in range(baselines.shape[1]):
        start = baselines[y, group]
        slope = torch.zeros_like(x)
        for step in range(1, NAIVE_STEPS + 1):
            points = torch.lerp(start, x, step / NAIVE_STEPS).requires_grad_()
            slope = slope + torch.autograd.grad(module(points).sum(), points, create_graph=True)[0]
        attributed.append(((x - start) * slope / NAIVE_STEPS).flatten(1))
    return torch.dot(disparity(torch.stack(attributed)), label_row_weights(y, "sum"))


class TrainingStep:
    """A step of plain training on random rows, or with a penalty added to the loss."""

    def __init__(self, module: Module, shape: tuple[int, ...]) -> None:
        self.module, self.x = module.to(DEVICE).train(), torch.randn(shape, device=DEVICE)
        codes = torch.arange(len(self.x), device=DEVICE)
        self.y, self.baselines = codes % 2, GroupBaselines.from_data(self.x, codes % 2, codes // 2 % 2)
        self.penalty = GCIGPenalty(self.baselines)
        self.optimizer = torch.optim.Adam(module.parameters(), lr=1e-4, fused=True)

    def run(self, penalty: Tensor | None = None) -> None:
        """Train on one mini-batch."""
        self.optimizer.zero_grad()
        loss = binary_cross_entropy_with_logits(self.module(self.x), self.y.float())
        (loss if penalty is None else loss + 0.2 * penalty).backward()
        self.optimizer.step()

    def run_with_ours(self) -> None:
        """Train with the penalty of this package."""
        self.run(self.penalty(self.module, self.x, self.y))

    def run_with_naive(self) -> None:
        """Train with the penalty in loops."""
        with sdpa_kernel(SDPBackend.MATH):
            self.run(naive(self.module, self.x, self.y, self.baselines.values))


def penalty_rows() -> Iterator[Row]:
    """Compare a training step with the penalty to one without it, and to the naive loop."""
    section = "A training step with the penalty / a plain step (Adam, float32)"
    for name, (make, shape, limits) in NETWORKS.items():
        report(name)
        torch.manual_seed(0)
        step = TrainingStep(make(), shape)
        plain, ours = milliseconds(step.run), milliseconds(step.run_with_ours)
        loop = milliseconds(step.run_with_naive, repeats=3)
        note = f"{ours:.2f} ms; plain {plain:.2f} ms, naive loop {loop:.1f} ms"
        yield Row(section, name, ours / plain, note=note, **limits)
        yield Row(section, "  naive loop (T = 16) / ours", loop / ours, must=1, at_least=True)
        del step
        torch.cuda.empty_cache()


def captum_rows() -> Iterator[Row]:
    """Compare attributions of many rows with Captum's at the same completeness residual."""
    for scale in (1.0, 1.4):
        report(f"Captum, weights times {scale}")
        torch.manual_seed(0)
        module = make_mlp(COLUMNS, (1024, 512)).to(DEVICE).eval()
        with torch.no_grad():  # larger weights curve the paths, which then need more steps
            for parameter in module.parameters():
                parameter *= scale
        yield _compare_with_captum(f"1024-512 SiLU, weights times {scale}", module)
        torch.cuda.empty_cache()


def _compare_with_captum(name: str, module: Module) -> Row:
    x = torch.randn(ATTRIBUTED_ROWS, COLUMNS, device=DEVICE)
    starts = 0.3 * torch.randn(2, 1, COLUMNS, device=DEVICE)
    references = starts.expand(-1, len(x), -1)
    found = attributions(module, x, references)
    target = float(found.residual.mean())
    with torch.no_grad():
        change = module(x[:SAMPLE]) - module(starts[:, 0]).unsqueeze(1)
    for n_steps in LADDER:
        values = _captum(module, x[:SAMPLE], starts, n_steps)
        reached = float((values.sum(-1) - change).abs().mean())
        if reached <= SLACK * target:
            break
    ours = milliseconds(lambda: attributions(module, x, references), repeats=3)
    # Captum's time is proportional to the rows.
    theirs = 10 * milliseconds(lambda: _captum(module, x[::10], starts, n_steps), repeats=1, warm_up=1)
    section = f"Captum / ours: {ATTRIBUTED_ROWS:,} rows x {COLUMNS:,} columns, two references"
    note = (
        f"ours {found.rule} {found.n_steps}: residual {target:.1e} in {ours:.0f} ms; "
        f"Captum {n_steps} steps: {reached:.1e} in {theirs:.0f} ms"
    )
    return Row(section, name, theirs / ours, must=10, at_least=True, note=note)


def _captum(module: Module, x: Tensor, starts: Tensor, n_steps: int) -> Tensor:
    from captum.attr import IntegratedGradients

    options = {"n_steps": n_steps, "method": "gausslegendre", "internal_batch_size": 100_000}
    return torch.stack([IntegratedGradients(module).attribute(x, start, **options) for start in starts])


def fit_rows() -> Iterator[Row]:
    """Time the training steps and a whole fit of FairX on Adult, on the device and on one CPU core."""
    section = "FairX on Adult, defaults"
    report("FairX on Adult")
    data = gcig.load_dataset("adult")
    epochs: list[tuple[bool, int, float]] = []

    def fit(device: str, **parameters: object) -> float:
        epochs.clear()
        start = time.perf_counter()
        model = gcig.FairXClassifier(device=device, random_state=0, **parameters)
        model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
        return time.perf_counter() - start

    def run_epoch(step: loop.Step, rows: Iterator[Tensor]) -> dict[str, float]:
        batches = list(rows)
        start = time.perf_counter()
        terms = run(step, iter(batches))
        epochs.append((len(terms) > 2, len(batches), time.perf_counter() - start))
        return terms

    run, loop.mean_terms = loop.mean_terms, run_epoch
    torch.set_num_threads(1)
    try:
        fit("cuda", max_epochs=2)
        on_device = min(fit("cuda") for _ in range(2))
        steps = {"plain": _per_step(epochs, False), "student's": _per_step(epochs, True)}
        on_core = fit("cpu")
        there = {"plain": _per_step(epochs, False), "student's": _per_step(epochs, True)}
    finally:
        loop.mean_terms = run
    for name, step in steps.items():
        note = f"{there[name]:.3f} ms on one core"
        yield Row(section, f"{name} step", step, unit=" ms", must=0.5, note=note)
    note = f"{on_core:.2f} s on one core, {on_device:.2f} s on the device"
    yield Row(section, "one core / device, whole fit", on_core / on_device, must=3, at_least=True, note=note)


def _per_step(epochs: list[tuple[bool, int, float]], fair: bool) -> float:
    """Return the median over epochs of the milliseconds per step."""
    return statistics.median(1e3 * seconds / steps for kind, steps, seconds in epochs if kind == fair)


def table_rows() -> Iterator[Row]:
    """Time the paper's main table as published: all fits of RQ1, with the parameters that were chosen for it.

    There are as many processes as cores.
    """
    plan, jobs = Plan.read(PUBLISHED), os.cpu_count() or 1
    tables = {name: Table.shipped(name) for name in plan.datasets}
    common = {each: common_parameters(each, {**COMMON, "device": str(DEVICE)}) for each in plan.methods}
    trials = make_trials(plan, "comparison", tables, read_chosen(PUBLISHED), common)
    section = f"The paper's main table: {len(trials)} fits with the published parameters, {jobs} processes"

    report(section)
    start = time.perf_counter()
    results = run_trials(trials, tables.values(), backend=Backend(jobs=jobs), progress=True)
    minutes = (time.perf_counter() - start) / 60
    failed = sum(result.error is not None for result in results)
    yield Row(section, "all fits", minutes, unit=" min", must=5, note=f"{failed} fits failed")


SECTIONS = {
    "penalty": penalty_rows,
    "captum": captum_rows,
    "fit": fit_rows,
    "table": table_rows,
}


def main() -> None:
    """Measure, print, and write the values."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="Cost on a CUDA device.")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--json", type=Path, help="also write the values to this file")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no CUDA device")
    warnings.simplefilter("ignore")
    rows: list[Row] = []
    for name in arguments.only:
        found = list(SECTIONS[name]())
        print(format_rows(found), end="\n\n", flush=True)
        rows += found
    if arguments.json:
        machine = f"{torch.cuda.get_device_name(DEVICE)}, torch {torch.__version__}"
        figures = {"machine": machine, "rows": [row.to_dict() for row in rows]}
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
