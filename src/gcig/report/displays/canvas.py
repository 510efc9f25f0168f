"""Shared parts of the displays: axes, escaped names, colours and markers."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gcig.records.formatting import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes


COLOURS = ("#0a67ad", "#c2500f", "#0b7a5c", "#8d4298", "#866700", "#0c7c90", "#a02c4c", "#5b6470")
_MAX_NAME_LENGTH = 40  # characters; a longer name leaves no room for the axes
MARKERS = ("o", "s", "^", "D", "P", "X", "v")


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


def literal(name: object) -> str:
    r"""Escape a name for matplotlib: no mathematics between dollar signs, no hidden label.

    Examples
    --------
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
