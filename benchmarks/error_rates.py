"""Error rates of what audits state, over samples of known populations: `python -m benchmarks.error_rates`.

A fixed network is audited on samples of two populations. In the fair one the group is independent of
everything; in the other one it shifts a column that the network and the labels use. The true values are those
of a very large sample. Every line counts the samples on which a statement was wrong. Statements about
decisions need no attributions, and are counted on 20 times as many samples.

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
from gcig.adapters import Outputs
from gcig.auditing.figures import audit_groups, audit_outcome
from gcig.metrics.intervals import gap_limit
from gcig.metrics.outcome import OutcomeSums
from gcig.records import Interval
from gcig.records.audit import AuditRecord
from gcig.records.base import UNDEFINED

_TRUE_ROWS, _TRUE_OUTCOMES = 200_000, 2_000_000
_OUTCOME_SAMPLES = 20  # per audited sample
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


def simulate(n_samples: int, n_rows: int) -> dict[str, float]:
    """Return the share of samples on which each statement was wrong, and the ratios of the noise floors."""
    network = audited_network()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _simulate_reasons(network, n_samples, n_rows) | _simulate_outcomes(
            network, _OUTCOME_SAMPLES * n_samples, n_rows
        )


def _simulate_reasons(network: nn.Module, n_samples: int, n_rows: int) -> dict[str, float]:
    """Count wrong statements about GCIG, and compare the noise floors with what fair samples show."""
    truth = _audit(network, draw(_TRUE_ROWS, 10**6, fair=False), n_bootstrap=2, n_shuffles=2)
    above, none, missed, floors = 0, 0, 0, []
    for seed in range(n_samples):
        fair = _audit(network, draw(n_rows, seed, fair=True))
        above += fair.procedural.p_value <= 0.05
        found = fair.outcome.eo_gap.value, fair.procedural.gcig.value
        floors.append((found, (fair.outcome.eo_noise_floor, fair.procedural.noise_floor.value)))
        unfair = _audit(network, draw(n_rows, n_samples + seed, fair=False)).procedural
        none += unfair.evidence == "none"
        missed += _misses(unfair.gcig, truth.procedural.gcig.value)
    of_gap, of_gcig = np.divide(*np.mean(floors, axis=0))
    return {
        "GCIG above chance (p <= 0.05), fair": above / n_samples,
        "no disparity, unfair": none / n_samples,
        "interval of GCIG": missed / n_samples,
        "noise floor of the EO gap: mean of fair samples over the floor": float(of_gap),
        "noise floor of the GCIG: mean of fair samples over the floor": float(of_gcig),
    }


def _simulate_outcomes(network: nn.Module, n_samples: int, n_rows: int) -> dict[str, float]:
    """Count wrong statements about decisions, which need no attributions: many samples are affordable."""
    exact = _outcomes(network, draw(_TRUE_OUTCOMES, 10**6, fair=False), 0, n_bootstrap=2)
    wrong = dict.fromkeys(exact, 0)
    for seed in range(n_samples):
        for name, found in _outcomes(network, draw(n_rows, 10**7 + seed, fair=False), seed).items():
            wrong[name] += _misses(found, exact[name].value)
    return {name: count / n_samples for name, count in wrong.items()}


def _misses(found: Interval, truth: float) -> bool:
    return not found.low <= truth <= found.high


def _audit(network: nn.Module, sample: Sample, n_bootstrap: int = 400, n_shuffles: int = 99) -> AuditRecord:
    rows, labels, groups = sample
    drawn = {"n_bootstrap": n_bootstrap, "n_shuffles": n_shuffles}
    return gcig.audit(network, rows, labels, sensitive_features=groups, **drawn).record


def _outcomes(network: nn.Module, sample: Sample, seed: int, n_bootstrap: int = 1000) -> dict[str, Interval]:
    """Return the figures of an audit about decisions, and the limit that training compares with a bound."""
    rows, labels, groups = sample
    with torch.no_grad():
        scores = torch.sigmoid(network(torch.from_numpy(rows)).flatten().double()).numpy()
    sums, codes = OutcomeSums(2, probabilistic=True), (groups == "b").astype(int)
    sums.add(labels, Outputs(scores, (scores >= 0.5).astype(np.float64)), codes)
    outcome = audit_outcome(sums, n_bootstrap, np.random.default_rng(seed), min_cell=11)
    group = audit_groups(sums, ("a", "b"), (UNDEFINED, UNDEFINED), min_cell=11)[0]
    counts = np.swapaxes(sums.confusion.counts, 0, 1)
    limit = gap_limit(counts[..., 1], counts.sum(-1))
    return {
        "interval of the EO gap": outcome.eo_gap,
        "interval of AUC": outcome.auc,
        "interval of accuracy": outcome.accuracy,
        "interval of a selection rate": group.selection_rate,
        "interval of the four-fifths ratio": outcome.selection_rate_ratio,
        "upper limit of the EO gap": Interval(outcome.eo_gap.value, 0.0, limit),
    }


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
