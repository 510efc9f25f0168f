"""Peak memory and time of auditing files that are larger than memory should be.

Each audit runs in a process of its own (``python -m benchmarks.audit_large FILE MODEL``), which prints the
seconds that it computed and the peak of its resident set. The file, 30 columns of which two are text, is made
from a fixed seed in a temporary folder.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.memory import status
from benchmarks.rows import Row
from benchmarks.timing import report

N_ROWS, N_COLUMNS = 5_000_000, 30
PART = 250_000
MEMORY_GB = 1.5
JOBS = np.array(["clerk", "driver", "farmer", "nurse", "smith", "teacher"])
ZONES = np.array(["east", "north", "south", "west"])


def audit_rows(n_rows: int = N_ROWS) -> Iterator[Row]:
    """A fifth of the rows and all of them: memory stays, and time grows with the rows."""
    section = f"Audit of a CSV file in batches ({N_COLUMNS} columns)"
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model")
        _save_model(model)
        for rows in (n_rows // 5, n_rows):
            path = Path(folder, f"{rows}.csv")
            report(f"audit, writing {rows:,} rows")
            write_table(path, rows)
            report(f"audit, {rows:,} rows")
            command = [sys.executable, "-m", "benchmarks.audit_large", str(path), str(model)]
            result = subprocess.run(command, capture_output=True, text=True, check=True)
            figures[rows] = json.loads(result.stdout)
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
        "time a row, all rows to a fifth of them",
        per_row[1] / per_row[0],
        must=1.25,
        note="1 is linear",
    )


def write_table(path: Path, n_rows: int) -> None:
    """A CSV file of loan applicants, the same for the same number of rows."""
    from pyarrow import Table, csv

    writer = None
    for seed, start in enumerate(range(0, n_rows, PART)):
        part = Table.from_pandas(make_table(min(PART, n_rows - start), seed), preserve_index=False)
        if writer is None:
            writer = csv.CSVWriter(path, part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()


def make_table(n_rows: int, seed: int) -> pd.DataFrame:
    """30 columns in all: 26 of numbers, two of text, the protected one and the label."""
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, n_rows)
    numbers = rng.normal(size=(n_rows, N_COLUMNS - 4)).round(3)
    numbers[:, 0] += 0.5 * sex
    job, zone = rng.integers(0, len(JOBS), n_rows), rng.integers(0, len(ZONES), n_rows)
    logit = numbers[:, :4].sum(axis=1) + 0.3 * job - 1 + rng.logistic(size=n_rows)
    frame = pd.DataFrame(numbers.round(3), columns=[f"n{i}" for i in range(N_COLUMNS - 4)])
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


def _measure(path: str, model: str) -> dict[str, float]:
    import torch

    from gcig.auditing import audit_file

    torch.set_num_threads(1)
    start = time.process_time()
    found = audit_file(model, path, target="approved", sensitive="sex")
    return {
        "seconds": time.process_time() - start,
        "peak": status("VmHWM"),
        "gcig": found.record.procedural.gcig.value,
    }


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], sys.argv[2])))
