"""Peak memory of audits of large files.

Each case runs in a process of its own (``python -m benchmarks.memory audit FILE MODEL``), which prints the
result as JSON. The files have 30 columns, two of them text, and are generated from a fixed
seed in a temporary folder.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measurement import Row, report

AUDIT_ROWS, AUDIT_COLUMNS = 5_000_000, 30
PART = 250_000
MEMORY_GB = 1.5
JOBS = np.array(["clerk", "driver", "farmer", "nurse", "smith", "teacher"])
ZONES = np.array(["east", "north", "south", "west"])


def audit_rows(n_rows: int = AUDIT_ROWS) -> Iterator[Row]:
    """Audit a fifth of the rows and all of them: memory stays constant, and time grows linearly."""
    section = f"Audit of a CSV file in batches ({AUDIT_COLUMNS} columns)"
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model")
        _save_model(model)
        for rows in (n_rows // 5, n_rows):
            path = Path(folder, f"{rows}.csv")
            report(f"audit, writing {rows:,} rows")
            write_table(path, rows)
            report(f"audit, {rows:,} rows")
            figures[rows] = _in_process("audit", str(path), str(model))
            yield Row(
                section,
                f"peak memory, {rows:,} rows",
                figures[rows]["peak"] / 1e9,
                unit=" GB",
                must=MEMORY_GB,
                note=f"{path.stat().st_size / 1e9:.2f} GB of CSV, {figures[rows]['seconds']:.0f} s",
            )
            path.unlink()
    per_row = [figures[rows]["seconds"] / rows for rows in (n_rows // 5, n_rows)]
    yield Row(
        section,
        "time per row, all rows / a fifth of them",
        per_row[1] / per_row[0],
        must=1.25,
        note="1 is linear",
    )


def write_table(path: Path, n_rows: int, n_columns: int = AUDIT_COLUMNS) -> None:
    """Write a CSV or Parquet file of loan applicants, equal for equal numbers of rows."""
    from pyarrow import Table, csv, parquet

    writer = None
    for seed, start in enumerate(range(0, n_rows, PART)):
        part = make_table(min(PART, n_rows - start), seed, n_columns)
        table = Table.from_pandas(part, preserve_index=False)
        if writer is None:
            make_writer = csv.CSVWriter if path.suffix == ".csv" else parquet.ParquetWriter
            writer = make_writer(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def make_table(n_rows: int, seed: int, n_columns: int = AUDIT_COLUMNS) -> pd.DataFrame:
    """Return a table of numbers, two texts, the protected attribute and the label."""
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, n_rows)
    numbers = rng.normal(size=(n_rows, n_columns - 4)).round(3)
    numbers[:, 0] += 0.5 * sex
    job, zone = rng.integers(0, len(JOBS), n_rows), rng.integers(0, len(ZONES), n_rows)
    weights = np.linspace(1, 0.2, n_columns // 4)  # the other columns are noise
    logit = numbers[:, : len(weights)] @ weights + 0.3 * job - 1 + rng.logistic(size=n_rows)
    frame = pd.DataFrame(numbers.round(3), columns=[f"n{i}" for i in range(n_columns - 4)])
    return frame.assign(
        job=JOBS[job],
        zone=ZONES[zone],
        sex=np.array(["female", "male"])[sex],
        approved=(logit > 0).astype(int),
    )


def _save_model(path: Path) -> None:
    from gcig.methods import METHODS

    table = make_table(20_000, seed=1_000_000)
    model = METHODS["unconstrained"].estimator(max_epochs=2, random_state=0)
    model.fit(table.drop(columns=["sex", "approved"]), table["approved"], sensitive_features=table["sex"])
    model.save(path)


def status(name: str) -> int:
    """Return a size in bytes that Linux keeps about this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(name)))


def measure_audit(path: str, model: str) -> dict[str, float]:
    """Return CPU seconds, peak memory and GCIG of an audit in this process."""
    import torch

    from gcig.auditing import audit_file

    torch.set_num_threads(1)
    start = time.process_time()
    found = audit_file(model, path, target="approved", sensitive="sex")
    return {
        "seconds": time.process_time() - start,
        "peak": status("VmHWM"),
        "gcig": found.evaluation.gcig,
    }


def _in_process(*arguments: str) -> Any:
    command = [sys.executable, "-m", "benchmarks.memory", *arguments]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    kind, *given = sys.argv[1:]
    measures = {"audit": measure_audit}
    print(json.dumps(measures[kind](*given)))
