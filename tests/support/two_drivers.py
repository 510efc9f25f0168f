"""Kill two drivers of one run folder at random moments, then run it to the end: OUT KILLS SEED [TROUBLE].

After every kill, each trial that was acknowledged before is read back and compared to the bit. Prints how
many trials were finished after each kill. With the trouble "full" or "read-only", the file system that OUT is
on, which must be small and mounted for this purpose, gets into that state at random and out of it again.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

from gcig.benchmark.execution import run_trial
from support.kill_and_resume import fork_and_run
from support.small_disks import SmallDisk
from support.small_runs import small_store, small_table, small_trials


def acknowledged(out):
    """Return the content of every finished trial's file."""
    return {path.name: path.read_bytes() for path in Path(out, "trials").glob("*.json")}


def cause(trouble, disk, state):
    """Bring a disk into a state, True for trouble."""
    if trouble == "full":
        disk.fill() if state else disk.free()
    elif trouble == "read-only":
        disk.make_read_only(state)


def main(out, kills, seed, trouble=""):
    rng = random.Random(seed)
    table = small_table()
    trials = small_trials(table)
    run_trial(trials[-1], table)  # what is slow the first time only
    start = time.monotonic()
    run_trial(trials[-1], table)
    seconds = time.monotonic() - start  # of the longest trial, on this machine as busy as it is
    disk = SmallDisk(Path(out).parent)
    known = {}
    drivers = []
    for _ in range(kills):
        drivers = [each for each in drivers if os.waitpid(each, os.WNOHANG) == (0, 0)]
        while len(drivers) < 2:
            drivers.append(fork_and_run(out, 1))
        time.sleep(rng.uniform(0, 3 * seconds))
        cause(trouble, disk, rng.random() < 0.5)
        victim = drivers.pop(rng.randrange(2))
        os.killpg(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        found = acknowledged(out)
        lost = [name for name, content in known.items() if found.get(name) != content]
        assert not lost, f"lost or changed: {lost}"
        known = found
        print(len(known), flush=True)
        if len(known) == len(trials):  # finished: begin again in another folder, and go on killing
            out, known = f"{out}+", {}
            for each in drivers:
                os.killpg(each, signal.SIGKILL)
                os.waitpid(each, 0)
            drivers = []
    cause(trouble, disk, False)
    for each in drivers:
        os.waitpid(each, 0)
    _, status = os.waitpid(fork_and_run(out, 1), 0)
    store = small_store(out, table)
    assert all(store.get(trial) is not None and store.get(trial).error is None for trial in trials)
    sys.exit(status)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:4]), *sys.argv[4:])
