"""The base class of the displays, and the axes, names, marks and intervals that they share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gcig.records import Interval
from gcig.records.formatting import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_COLOURS = ("#0a67ad", "#c2500f", "#0b7a5c", "#8d4298", "#866700", "#0c7c90", "#a02c4c", "#5b6470")
_MAX_NAME_LENGTH = 40  # characters; a longer name leaves no room for the axes
_MARKERS = ("o", "s", "^", "D", "P", "X", "v")


@dataclass(eq=False)
class Display:
    """Base class of the displays; ``plot`` sets ``ax_`` and ``figure_``."""

    ax_: "Axes" = field(init=False, repr=False)
    figure_: "Figure" = field(init=False, repr=False)

    def _plotted(self, ax: Any) -> Self:
        """Store the axes that the display was drawn on."""
        self.ax_, self.figure_ = ax, ax.figure
        return self


def axes_of(ax: Any, *, height: float = 4.0) -> "Axes":
    """Return the axes to draw on: those given, or those of a new figure."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "Displays need matplotlib, which is not installed. Run: pip install 'gcig[plot]'. The pages that "
            "gcig writes do not need it."
        ) from error
    if ax is not None:
        given: Axes = ax
        return given
    return pyplot.subplots(figsize=(6.4, height), layout="constrained")[1]


def colour(index: int) -> str:
    """Return the colour of a group or model."""
    return _COLOURS[index % len(_COLOURS)]


def mark(index: int) -> dict[str, str]:
    """Return the colour and the marker of a group or model, as arguments of matplotlib."""
    return {"color": colour(index), "marker": _MARKERS[index % len(_MARKERS)]}


def draw_intervals(ax: "Axes", intervals: Sequence[Interval], places: Any, name: str, **style: Any) -> None:
    """Draw estimates with their intervals as horizontal error bars; undefined intervals are left out."""
    values, low, high = (
        np.array([(i.value, i.low, i.high) for i in intervals], dtype=np.float64).reshape(-1, 3).T
    )
    bars = np.nan_to_num(np.stack([values - low, high - values])).clip(min=0)
    ax.errorbar(values, places, xerr=bars, linestyle="none", label=literal(name), capsize=3, **style)


def literal(name: object) -> str:
    r"""Escape a name for matplotlib: no mathematics between dollar signs, no hidden label.

    >>> literal("income in $")
    'income in \\$'
    """
    text = " ".join(visible(str(name)).split())
    text = text if len(text) <= _MAX_NAME_LENGTH else f"{text[: _MAX_NAME_LENGTH - 1]}…"
    text = text.replace("$", r"\$")
    # matplotlib leaves labels that begin with an underscore out of legends.
    return f"\u200b{text}" if text.startswith("_") else text


def call_with_groups(method: Callable[..., Any], X: Any, sensitive_features: Any) -> Any:
    """Call a method of an estimator, passing the groups if its signature takes them."""
    from gcig import adapters  # imports torch, which plots of records do not need

    return adapters.call_with_groups(method, X, sensitive_features)
