"""Peak memory of the penalty's forward and backward pass on one very large batch.

Each case runs in a process of its own (``python -m benchmarks.memory CASE``), which prints by how many bytes
its resident set grew at the most.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.rows import Row
from benchmarks.timing import report

N_ROWS, N_COLUMNS = 65_536, 104
BUDGET = 256_000_000
CASES: dict[str, dict[str, Any]] = {
    "fused (secants)": {},
    "layered path, Gauss-Legendre 2": {"rule": "gauss_legendre", "n_steps": 2},
    "general path, Gauss-Legendre 2": {"rule": "gauss_legendre", "n_steps": 2, "fast": False},
}


def memory_rows() -> Iterator[Row]:
    section = f"Peak memory of forward and backward beyond inputs and parameters (batch {N_ROWS}, 64-32 SiLU)"
    for name in CASES:
        report(f"memory, {name}")
        command = [sys.executable, "-m", "benchmarks.memory", name]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        grown = json.loads(result.stdout)
        yield Row(section, name, grown / 1e6, unit=" MB", must=BUDGET / 1e6)


def grow(name: str) -> int:
    """Bytes by which the resident set of this process grows in one pass."""
    import torch

    from gcig.core.references import GroupBaselines
    from gcig.losses.gcig import GCIGPenalty
    from gcig.models.mlp import make_mlp

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    module = make_mlp(N_COLUMNS, generator=generator)
    x = torch.randn(N_ROWS, N_COLUMNS, generator=generator)
    y, groups = torch.arange(N_ROWS) % 2, torch.arange(N_ROWS) // 2 % 2
    means = GroupBaselines(torch.randn(2, 2, N_COLUMNS, generator=generator))
    penalty = GCIGPenalty(means, max_bytes=BUDGET, **CASES[name])
    penalty(module, x[:16], y[:16], groups[:16]).backward()  # code and gradients are there from now on
    before = status("VmRSS")
    penalty(module, x, y).backward()
    return status("VmHWM") - before


def status(name: str) -> int:
    """A figure of this process in bytes; `ru_maxrss` would count what the parent had when it forked."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {name} in /proc/self/status")


if __name__ == "__main__":
    print(json.dumps(grow(sys.argv[1])))
