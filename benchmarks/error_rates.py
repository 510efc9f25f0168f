"""Error rates of what audits state, over samples of known populations: `python -m benchmarks.error_rates`.

A fixed network is audited on samples of two populations. In the fair one the group is independent of
everything; in the other one it shifts a column that the network and the labels use. The true values are those
of a very large sample. Every line counts the samples on which a statement was wrong.

    python -m benchmarks.error_rates [--samples 300] [--rows 600]
"""

import argparse
import math
import warnings
from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

import gcig
from gcig.metrics.rates import Confusion
from gcig.metrics.upper_limits import gap_limit
from gcig.records import Interval
from gcig.records.audit import AuditRecord

_TRUE_ROWS = 200_000
# Statement -> the share of samples on which it may be wrong, as the documentation says.
STATED = {
    "GCIG above chance (p <= 0.05), fair": 0.05,
    "no disparity, unfair": 0.05,
    "interval of GCIG": 0.05,
    "interval of the EO gap": 0.05,
    "interval of AUC": 0.05,
    "interval of accuracy": 0.05,
    "interval of a selection rate": 0.05,
    "interval of the four-fifths ratio": 0.05,
    "upper limit of the EO gap": 0.10,
}
Sample = tuple[np.ndarray, np.ndarray, np.ndarray]


def draw(n: int, seed: int, *, fair: bool) -> Sample:
    """Return rows, labels and groups of a population."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 2, n)
    rows = rng.normal(size=(n, 3))
    if not fair:
        rows[:, 0] += 0.8 * groups
    labels = rng.random(n) < 1 / (1 + np.exp(-(1.5 * rows[:, 0] + rows[:, 1] - 0.6)))
    return rows.astype(np.float32), labels.astype(int), np.array(["a", "b"])[groups]


def audited_network() -> nn.Module:
    """Return a network that knows the two columns that matter, with a bend."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        bent = nn.Sequential(nn.Linear(3, 6), nn.SiLU(), nn.Linear(6, 1))
    with torch.no_grad():
        bent[0].weight[:2] = torch.tensor([[1.5, 1.0, 0.0], [-1.5, -1.0, 0.0]])
        bent[0].bias[:2] = 0.0
        bent[2].weight[0, :2] = torch.tensor([1.0, -1.0])
        bent[2].bias.fill_(-0.6)
    return bent.eval()


def figures(record: AuditRecord) -> dict[str, Interval]:
    """Return the figures of an audit that come with an interval of 95 %."""
    outcome = record.outcome
    return {
        "interval of GCIG": record.procedural.interval,
        "interval of the EO gap": outcome.eo_gap,
        "interval of AUC": outcome.auc,
        "interval of accuracy": outcome.accuracy,
        "interval of a selection rate": record.groups[0].selection_rate,
        "interval of the four-fifths ratio": outcome.selection_rate_ratio,
    }


def simulate(n_samples: int, n_rows: int) -> dict[str, float]:
    """Return the share of samples on which each statement was wrong, and the ratios of the noise floors."""
    network = audited_network()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = _audit(network, draw(_TRUE_ROWS, 10**6, fair=False), n_bootstrap=2, n_shuffles=2)
        truth = {name: interval.value for name, interval in figures(exact).items()}
        wrong = {name: 0 for name in STATED}
        floors: dict[str, list[tuple[float, float]]] = {"EO gap": [], "GCIG": []}
        for seed in range(n_samples):
            fair = _audit(network, draw(n_rows, seed, fair=True))
            wrong["GCIG above chance (p <= 0.05), fair"] += fair.procedural.p_value <= 0.05
            floors["EO gap"].append((fair.outcome.eo_gap.value, fair.outcome.eo_noise_floor))
            floors["GCIG"].append((fair.procedural.gcig.value, fair.procedural.noise_floor.value))
            sample = draw(n_rows, n_samples + seed, fair=False)
            record = _audit(network, sample)
            wrong["no disparity, unfair"] += record.procedural.evidence == "none"
            for name, found in figures(record).items():
                wrong[name] += not found.low <= truth[name] <= found.high
            wrong["upper limit of the EO gap"] += (
                _gap_limit(network, sample) < truth["interval of the EO gap"]
            )
    shares = {name: count / n_samples for name, count in wrong.items()}
    return shares | {
        f"noise floor of the {name}: mean of fair samples over the floor": float(
            np.divide(*np.mean(pairs, 0))
        )
        for name, pairs in floors.items()
    }


def _audit(network: nn.Module, sample: Sample, n_bootstrap: int = 400, n_shuffles: int = 99) -> AuditRecord:
    rows, labels, groups = sample
    drawn = {"n_bootstrap": n_bootstrap, "n_shuffles": n_shuffles}
    return gcig.audit(network, rows, labels, sensitive_features=groups, **drawn).record


def _gap_limit(network: nn.Module, sample: Sample) -> float:
    """Return the upper confidence limit that training compares with a bound."""
    rows, labels, groups = sample
    with torch.no_grad():
        decided = network(torch.from_numpy(rows)).flatten().numpy() >= 0
    counts = Confusion.count(labels, decided.astype(int), (groups == "b").astype(int), 2)
    return gap_limit(np.swapaxes(counts.counts[..., 1], 0, 1), np.swapaxes(counts.counts.sum(-1), 0, 1))


def tolerated(stated: float, n_samples: int) -> float:
    """Return the largest share that is compatible with a stated one, three standard errors above it."""
    return stated + 3 * math.sqrt(stated * (1 - stated) / n_samples)


def format_shares(found: Mapping[str, float]) -> str:
    """Return a table, one line per statement."""
    lines = [f"{'statement':<62} wrong  stated"]
    for name, value in found.items():
        stated = f"{STATED[name]:7.1%}" if name in STATED else ""
        shown = f"{value:7.1%}" if name in STATED else f"{value:7.3f}"
        lines.append(f"{name:<60} {shown} {stated}")
    return "\n".join(lines)


def main() -> None:
    """Print the shares."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.error_rates")
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--rows", type=int, default=600)
    arguments = parser.parse_args()
    print(format_shares(simulate(arguments.samples, arguments.rows)))


if __name__ == "__main__":
    main()
