"""One figure of a benchmark, with the limits that it is held to."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """A measured figure.

    Attributes
    ----------
    section, what : str
        Where it belongs, and what was measured.
    ours : float
        The figure.
    unit : str
        Printed after it.
    must, aim : float, optional
        Limits: at most, or with `at_least` at least.
    note : str
        What a reader has to know beside it.
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
        """Whether `must` is kept; None where there is none."""
        if self.must is None:
            return None
        return self.ours >= self.must if self.at_least else self.ours <= self.must

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {**asdict(self), "met": self.met}


def number(value: float | None, unit: str = "") -> str:
    """Three digits."""
    if value is None:
        return ""
    text = f"{value:.1e}" if 0 < abs(value) < 0.01 else f"{value:.3g}"
    return text + unit


def format_rows(rows: Iterable[Row]) -> str:
    """A table with a line for each row, under the heading of its section."""
    lines: list[str] = []
    section = None
    for row in rows:
        if row.section != section:
            section = row.section
            lines += ["", section, f"  {'':66} {'ours':>9} {'must':>7} {'aim':>7}"]
        met = {True: "ok", False: "MISSED", None: ""}[row.met]
        figures = (
            f"{number(row.ours, row.unit):>9} {number(row.must, row.unit):>7} {number(row.aim, row.unit):>7}"
        )
        lines.append(f"  {row.what:66} {figures}  {met:6} {row.note}".rstrip())
    return "\n".join(lines).lstrip("\n")
