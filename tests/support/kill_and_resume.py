"""Run small trials in processes that are killed at random moments, then once to the end: OUT KILLS SEED JOBS.

Processes are forked from one that has imported everything, so that a kill hits the work and not the imports.
Prints how many trials were finished after each kill.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

from gcig.benchmark.backends import Backend
from gcig.benchmark.execution import run_trial
from gcig.benchmark.results import csv_text, results_frame
from gcig.benchmark.runner import run_trials
from gcig.benchmark.store import write_file
from support.small_runs import small_store, small_table, small_trials


def run(out, jobs):
    table = small_table()
    store = small_store(out, table)
    results = run_trials(small_trials(table), [table], store, backend=Backend(jobs=jobs))
    write_file(Path(out) / "results.csv", csv_text(results_frame(results)))


def fork_and_run(out, jobs):
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        run(out, jobs)
        os._exit(0)
    os.setpgid(child, child)  # here as well: whoever comes first
    return child


def main(out, kills, seed, jobs):
    rng = random.Random(seed)
    table = small_table()
    run_trial(small_trials(table)[-1], table)  # what is slow the first time only
    start = time.monotonic()
    os.waitpid(fork_and_run(f"{out}-undisturbed", jobs), 0)
    whole = time.monotonic() - start
    for kill in range(kills):
        child = fork_and_run(out, jobs)
        time.sleep(rng.uniform(0, 2 * whole / kills))
        # In turn the process alone (its workers are orphans then) and everything at once.
        (os.kill if kill % 2 else os.killpg)(child, signal.SIGKILL)
        os.waitpid(child, 0)
        print(len(list(Path(out, "trials").glob("*.json"))), flush=True)
    _, status = os.waitpid(fork_and_run(out, jobs), 0)
    sys.exit(status)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
