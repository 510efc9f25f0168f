"""Times of several variants of a step, measured side by side.

Machines are noisy and their speed drifts, so that only ratios within one run mean something. Variants take
turns in blocks of several steps: single steps in turn would leave each to find the cache full of another's
data, which costs a short step relatively more than a long one.
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

Step = Callable[[], object]


class Ratio(NamedTuple):
    """Median and quartiles over the rounds."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"quartiles {self.low:.3g} to {self.high:.3g}"


class Times:
    """Seconds a step, one figure for each round and variant."""

    def __init__(self, seconds: Mapping[str, list[float]]) -> None:
        self.seconds = seconds

    def median(self, name: str) -> float:
        """Seconds of a step."""
        return statistics.median(self.seconds[name])

    def ratio(self, name: str, to: str) -> Ratio:
        """The ratio of two variants in each round."""
        ratios = [a / b for a, b in zip(self.seconds[name], self.seconds[to], strict=True)]
        low, median, high = statistics.quantiles(ratios, n=4)
        return Ratio(median, low, high)


def measure(
    steps: Mapping[str, Step], *, rounds: int = 25, block_seconds: float = 0.02, least: int = 3
) -> Times:
    """Run all variants in turn, `rounds` times, each in a block of at least `least` steps.

    A block lasts about `block_seconds`, and is preceded by steps that are not counted.
    """
    counts = {}
    for name, step in steps.items():
        step()
        once = _seconds_a_step(step, 1)
        counts[name] = max(least if once < 1 else 1, round(block_seconds / once))
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            _seconds_a_step(step, counts[name] // 5)
            seconds[name].append(_seconds_a_step(step, counts[name]))
    return Times(seconds)


def _seconds_a_step(step: Step, count: int) -> float:
    gc.collect(0)
    gc.disable()
    try:
        start = time.process_time()
        for _ in range(count):
            step()
        return (time.process_time() - start) / max(1, count)
    finally:
        gc.enable()


def report(message: str) -> None:
    """Say on stderr what is going on."""
    print(f"  {message} ...", file=sys.stderr, flush=True)
