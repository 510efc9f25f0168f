"""Measurement: times of several variants of a step, and measured values with their limits.

Machines are noisy and their speed drifts; only ratios within one run are meaningful. Variants alternate in
blocks of several steps: if single steps alternated, each would find the cache full of another's data, which
costs a short step relatively more than a long one.
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

Step = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """A measured value.

    Attributes
    ----------
    section, what : str
        Heading of the section, and description of the value.
    ours : float
        The value.
    unit : str
        Printed after the value.
    must, aim : float, optional
        Limits: upper ones, or lower ones with `at_least`.
    note : str
        Context for the reader.
    """

    section: str
    what: str
    ours: float
    unit: str = "x"
    must: float | None = None
    aim: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether `must` is met; None without such a limit."""
        if self.must is None:
            return None
        return self.ours >= self.must if self.at_least else self.ours <= self.must

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {**asdict(self), "met": self.met}


def format_rows(rows: Iterable[Row]) -> str:
    """Format a table with one line per row under the heading of its section."""
    lines: list[str] = []
    section = None
    for row in rows:
        if row.section != section:
            section = row.section
            lines += ["", section, f"  {'':66} {'ours':>9} {'must':>7} {'aim':>7}"]
        met = {True: "ok", False: "MISSED", None: ""}[row.met]
        values = (
            f"{_number(row.ours, row.unit):>9} {_number(row.must, row.unit):>7} "
            f"{_number(row.aim, row.unit):>7}"
        )
        lines.append(f"  {row.what:66} {values}  {met:6} {row.note}".rstrip())
    return "\n".join(lines).lstrip("\n")


def _number(value: float | None, unit: str = "") -> str:
    """Format a number with three significant digits."""
    if value is None:
        return ""
    text = f"{value:.1e}" if 0 < abs(value) < 0.01 else f"{value:.3g}"
    return text + unit


class Ratio(NamedTuple):
    """Median and quartiles of a ratio over the rounds."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"quartiles {self.low:.3g} to {self.high:.3g}"


class Times:
    """Seconds per step, one value per round and variant."""

    def __init__(self, seconds: Mapping[str, list[float]]) -> None:
        self.seconds = seconds

    def median(self, name: str) -> float:
        """Return the median seconds per step of a variant."""
        return statistics.median(self.seconds[name])

    def ratio(self, name: str, to: str) -> Ratio:
        """Return the ratio of two variants over the rounds."""
        ratios = [a / b for a, b in zip(self.seconds[name], self.seconds[to], strict=True)]
        low, median, high = statistics.quantiles(ratios, n=4)
        return Ratio(median, low, high)


def measure(
    steps: Mapping[str, Step], *, rounds: int = 25, block_seconds: float = 0.02, least: int = 3
) -> Times:
    """Run all variants in turn for `rounds` rounds, each in a block of at least `least` steps.

    A block lasts about `block_seconds`, and is preceded by steps that are not counted.
    """
    counts = {}
    for name, step in steps.items():
        step()
        once = _seconds_per_step(step, 1)
        counts[name] = max(least if once < 1 else 1, round(block_seconds / once))
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            _seconds_per_step(step, counts[name] // 5)
            seconds[name].append(_seconds_per_step(step, counts[name]))
    return Times(seconds)


def _seconds_per_step(step: Step, count: int) -> float:
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
    """Print the current activity on standard error."""
    print(f"  {message} ...", file=sys.stderr, flush=True)
