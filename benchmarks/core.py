"""Cost of the penalties and of attributions, relative to a plain step and to Captum."""

from collections.abc import Callable, Iterator

import torch
from captum.attr import IntegratedGradients as CaptumGradients
from torch import nn

from benchmarks import adult
from benchmarks.measurement import Row, Step, measure, report
from gcig.core.attribution import IntegratedGradients, Score
from gcig.core.penalties import GCIGPenalty, ReasonGapPenalty
from gcig.core.references import GroupBaselines

LADDER = (2, 4, 8, 16, 32, 64, 128, 256, 512)


def step_rows() -> Iterator[Row]:
    """Compare a step with a penalty on all rows of a mini-batch with a plain step."""
    data, section = (
        adult.load(),
        f"A step on Adult, 64-32, {adult.BATCH_SIZE} rows, all explained / a plain step",
    )
    batch = data[: adult.BATCH_SIZE]
    for activation in ("silu", "relu"):
        report(f"steps, {activation}")
        module = adult.network(activation)
        optimizer = torch.optim.Adam(module.parameters(), fused=True)
        penalties = {
            "GCIGPenalty": GCIGPenalty(adult.baselines(data), rows="all"),
            "GCIGPenalty, the paper's sum of 16": GCIGPenalty(
                adult.baselines(data), rule="right", n_steps=16, rows="all"
            ),
            "ReasonGapPenalty, means": ReasonGapPenalty(
                adult.baselines(data), references="means", rows="all"
            ),
            "ReasonGapPenalty, means and members, 32 rows": ReasonGapPenalty(adult.baselines(data), rows=32),
        }

        def step(penalty: nn.Module | None, module: nn.Module = module, optimizer=optimizer) -> None:  # type: ignore[no-untyped-def]
            loss = nn.functional.binary_cross_entropy_with_logits(module(batch.inputs), batch.labels.float())
            if penalty is not None:
                loss = loss + 0.2 * penalty(module, batch.inputs, batch.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        steps: dict[str, Step] = {"plain": lambda: step(None)}
        steps |= {name: (lambda each=each: step(each)) for name, each in penalties.items()}
        times = measure(steps)
        for name in penalties:
            ratio = times.ratio(name, "plain")
            must = 12.0 if name == "GCIGPenalty" else None
            yield Row(section, f"{activation}: {name}", ratio.median, must=must, note=str(ratio))


def captum_rows() -> Iterator[Row]:
    """Compare times with Captum's at equal completeness."""
    section = "Captum's IntegratedGradients / ours, 2,000 rows, two baselines, equal completeness"
    data = adult.load()[:2000]
    starts = adult.baselines(adult.load()).of(data.labels)
    for activation, rule in (("relu", "auto"), ("silu", "secant"), ("silu", "auto")):
        report(f"Captum, {activation}")
        module = adult.network(activation)
        ours = IntegratedGradients(rule, 2)
        score = Score(module, torch.ones(len(data), 1))

        def residual(values: torch.Tensor, module: nn.Module = module) -> float:
            change = module(data.inputs) - module(starts.flatten(0, 1)).view(2, -1)
            return float((values.sum(-1) - change).detach().abs().mean())

        target = residual(ours.attribute(score, data.inputs, starts))
        explainer = CaptumGradients(module)

        def captum(n: int, explainer: CaptumGradients = explainer) -> torch.Tensor:
            options = {"n_steps": n, "method": "gausslegendre", "internal_batch_size": 8192}
            return torch.stack([explainer.attribute(data.inputs, start, **options) for start in starts])

        n_steps = next((n for n in LADDER if residual(captum(n)) <= 1.05 * target), LADDER[-1])
        times = measure(
            {"ours": lambda: ours.attribute(score, data.inputs, starts), "captum": lambda: captum(n_steps)},  # noqa: B023
            rounds=3,
            least=1,
        )
        name = {
            "auto": "secants" if activation == "relu" else "two Gauss-Legendre nodes",
            "secant": "secants",
        }[rule]
        must = None if (activation, rule) == ("silu", "auto") else 10.0
        note = f"completeness {target:.1e}; Captum needs {n_steps} steps"
        ratio = times.ratio("captum", "ours").median
        yield Row(section, f"{activation}, {name}", ratio, must=must, at_least=True, note=note)


def literal_epoch(
    model: nn.Module, baselines: GroupBaselines, data: object, epochs: int
) -> Callable[[], None]:
    """Return a run of the paper's Algorithm 1 as written, T = 16, one path point after the other."""
    rows = data

    def run() -> None:
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        for _ in range(epochs):
            for part in torch.randperm(len(rows)).split(adult.BATCH_SIZE):  # type: ignore[arg-type]
                batch = rows[part]  # type: ignore[index]
                baselines.update(batch.inputs, batch.labels, batch.groups)
                loss = nn.functional.binary_cross_entropy_with_logits(
                    model(batch.inputs), batch.labels.float()
                )
                for label in (0, 1):
                    x = batch.inputs[batch.labels == label]
                    units = []
                    for start in baselines.values[label]:
                        total = torch.zeros_like(x)
                        for k in range(1, 17):
                            point = (start + k / 16 * (x - start)).requires_grad_()
                            (slope,) = torch.autograd.grad(model(point).sum(), point, create_graph=True)
                            total = total + slope
                        values = (x - start) * total / 16
                        units.append(values / (values.abs().sum(1, keepdim=True) + 1e-12))
                    loss = loss + 0.2 * (units[0] - units[1]).norm(dim=1).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    return run
