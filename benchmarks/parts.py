"""Audit many rows in Parquet parts, on one worker and on several: time, memory, and equal figures.

python benchmarks/parts.py --rows 5000000 --parts 20 --jobs 2
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import gcig
from gcig.auditing import audit_file

COLUMNS = [f"x{j}" for j in range(12)]


def make_rows(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    X = rng.normal(size=(n, len(COLUMNS))).astype(np.float32)
    X[:, :3] += 0.5 * (sex == "m")[:, None]
    score = X[:, :4].sum(axis=1) + X[:, 4] * X[:, 5] + rng.normal(size=n)
    return pd.DataFrame(X, columns=COLUMNS).assign(sex=sex, y=(score > 0.5).astype(int))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--parts", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    training = make_rows(20_000, seed=0)
    model = gcig.FairXClassifier(budget=0, max_epochs=3, random_state=0)
    model.fit(training[COLUMNS], training["y"], sensitive_features=training["sex"])
    found: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for part in range(options.parts):
            rows = make_rows(options.rows // options.parts, seed=1 + part)
            rows.to_parquet(Path(folder) / f"part-{part:03}.parquet")
        for jobs in (1, options.jobs):
            start = time.perf_counter()
            audited = audit_file(model, folder, target="y", sensitive="sex", jobs=jobs)
            found[jobs] = audited.evaluation.values()
            line = {
                "jobs": jobs,
                "rows": audited.n_rows,
                "seconds": round(time.perf_counter() - start, 1),
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "workers_peak_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
                "reason_gap": round(audited.reason_gap, 6),
                "eo_gap": round(audited.eo_gap, 6),
            }
            print(json.dumps(line), flush=True)
    first, second = (np.array(list(each.values())) for each in found.values())
    np.testing.assert_allclose(first, second, rtol=1e-9, atol=1e-9)
    print("equal figures")


if __name__ == "__main__":
    main()
