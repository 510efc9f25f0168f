"""Cost of a training step with the penalty, in steps of the same network without it."""

import itertools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks import adult
from benchmarks.measurement import Row, Step, Times, measure, report
from gcig.core.batch import TrainingRows
from gcig.core.references import GroupBaselines
from gcig.engine.optimizer import FlatAdamW, flat_parameters
from gcig.losses.gcig import GCIGPenalty
from gcig.losses.objective import Objective, ObjectiveGradient
from gcig.losses.terms import PredictionTerm, ReasonTerm
from gcig.methods.fairx.distillation import BatchSource
from gcig.methods.fairx.settings import FairTraining
from gcig.models.mlp import MLP

# The share of each mini-batch that FairX explains by default.
TRAINING_ROWS: float = FairTraining.penalty_rows
_FLAT = ExitStack()  # networks stay flat until the process ends

SHARED = "  the same, shared forward pass (what FairX trains with)"

Loss = Callable[[MLP, Tensor, Tensor, Tensor], Tensor]


def plain(module: MLP, x: Tensor, _: Tensor, target: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(module(x), target)


def penalised(penalty: GCIGPenalty) -> Loss:
    """Return the loss with the penalty added as a term of its own, which is the public interface."""

    def loss(module: MLP, x: Tensor, y: Tensor, target: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(module(x), target) + adult.WEIGHT * penalty(module, x, y)

    return loss


def make_step(activation: str, hidden: tuple[int, ...], loss: Loss) -> Step:
    module = adult.network(activation, hidden)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3, fused=True)
    batches = adult.batches(adult.load())

    def step() -> None:
        x, y, target = next(batches)
        optimizer.zero_grad()
        loss(module, x, y, target).backward()
        optimizer.step()

    return step


def make_engine_step(
    activation: str, hidden: tuple[int, ...], baselines: GroupBaselines, share: float = 1.0
) -> Step:
    """Return the step that FairX trains with: the engine explains a share of the rows, and predicts all."""
    module, data = adult.network(activation, hidden), adult.load()
    rows = itertools.cycle(torch.arange(32 * adult.BATCH_SIZE).split(adult.BATCH_SIZE))
    parameters = _FLAT.enter_context(flat_parameters(module))
    optimizer = FlatAdamW(parameters, learning_rate=1e-3)
    objective = Objective({"prediction": PredictionTerm(), "gcig": ReasonTerm(GCIGPenalty(baselines))})
    source = BatchSource(
        module,
        TrainingRows(data, data.labels.float()),
        baselines.n_groups,
        n_explained=math.ceil(share * adult.BATCH_SIZE),
    )
    gradient = ObjectiveGradient(objective, module, source, len(data))
    assert gradient.engine is not None

    def step() -> None:
        gradient(next(rows), {"gcig": adult.WEIGHT})
        optimizer.step()

    return step


def many_groups(n_groups: int) -> GroupBaselines:
    """Return the references of random groups; only their number matters for the cost."""
    data = adult.load()
    groups = torch.randint(n_groups, (len(data),), generator=torch.Generator().manual_seed(0))
    return GroupBaselines.from_data(data.inputs, data.labels, groups)


def step_rows() -> Iterator[Row]:
    """Time eager steps of three networks."""
    section = "A training step with the penalty / a plain step (104 inputs, batch 512, Adam, one thread)"
    two = adult.baselines(adult.load())
    seven = many_groups(7)

    def row(times: Times, name: str, what: str, to: str = "plain", **limits: float) -> Row:
        ratio = times.ratio(name, to)
        milliseconds = f"{1e3 * times.median(name):.2f} ms"
        return Row(section, what, ratio.median, note=f"{milliseconds}, {ratio}", **limits)

    report("steps, 64-32 SiLU")
    losses = {
        "plain": plain,
        "penalty": penalised(GCIGPenalty(two)),
        "default": penalised(GCIGPenalty(two, rows=TRAINING_ROWS)),
        "seven": penalised(GCIGPenalty(seven)),
        "paper": penalised(GCIGPenalty(two, rule="right", n_steps=16, fast=False)),
    }
    steps = {name: make_step("silu", (64, 32), loss) for name, loss in losses.items()}
    steps["joint"] = make_engine_step("silu", (64, 32), two)
    steps["default, joint"] = make_engine_step("silu", (64, 32), two, TRAINING_ROWS)
    times = measure(steps)
    default = f"training default: {TRAINING_ROWS:.0%} of the rows, 64-32 SiLU"
    yield row(times, "penalty", "penalty on all rows, 64-32 SiLU", must=5, aim=3)
    yield row(times, "joint", SHARED)
    for name, hidden, activation, must, aim in [
        ("64-32 ReLU", (64, 32), "relu", 5.5, 3),
        ("64 SiLU (exact)", (64,), "silu", 4.5, 2.5),
    ]:
        report(f"steps, {name}")
        steps = {
            key: make_step(activation, hidden, loss)
            for key, loss in {
                "plain": plain,
                "penalty": penalised(GCIGPenalty(two)),
            }.items()
        }
        steps["joint"] = make_engine_step(activation, hidden, two)
        others = measure(steps)
        yield row(others, "penalty", f"penalty on all rows, {name}", must=must, aim=aim)
        yield row(others, "joint", SHARED)
    yield row(times, "default", default, must=3, aim=2)
    yield row(times, "default, joint", SHARED)
    yield row(times, "seven", "7 groups / 2 groups, all pairs, 64-32 SiLU", "penalty", must=3, aim=2.5)
    yield row(times, "paper", "naive: right Riemann, T = 16, general path, 64-32 SiLU")


def compiled_rows() -> Iterator[Row]:
    """Time the loss with the penalty under torch.compile, against the eager plain step."""
    section = "The same under torch.compile / an eager plain step"
    two = adult.baselines(adult.load())
    for name, hidden, activation in [
        ("64-32 SiLU", (64, 32), "silu"),
        ("64-32 ReLU", (64, 32), "relu"),
        ("64 SiLU (exact)", (64,), "silu"),
    ]:
        report(f"compiling, {name}")
        torch.compiler.reset()
        step = make_step(activation, hidden, torch.compile(penalised(GCIGPenalty(two)), fullgraph=True))
        start = time.perf_counter()
        step()
        seconds = time.perf_counter() - start
        times = measure({"plain": make_step(activation, hidden, plain), "compiled": step})
        ratio = times.ratio("compiled", "plain")
        note = f"{1e3 * times.median('compiled'):.2f} ms, {ratio}; compiled in {seconds:.0f} s"
        yield Row(section, f"penalty on all rows, {name}", ratio.median, note=note)
