"""What the displays share: matplotlib when it is needed, names that are not markup, and how groups look."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gcig.report.escaping import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLOURS", "MARKERS", "axes_of", "groups_for", "literal"]

COLOURS = ("#0a67ad", "#c2500f", "#0b7a5c", "#8d4298", "#866700", "#0c7c90", "#a02c4c", "#5b6470")
_LONGEST = 40  # characters of a name: a longer one leaves no room for the axes
MARKERS = ("o", "s", "^", "D", "P", "X", "v")


def axes_of(ax: Any, *, height: float = 4.0) -> "Axes":
    """The axes to draw on: those given, or those of a new figure."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "Displays draw with matplotlib, which is not installed: pip install 'gcig[plot]'. The pages that "
            "gcig writes need no matplotlib."
        ) from error
    if ax is not None:
        given: Axes = ax
        return given
    return pyplot.subplots(figsize=(6.4, height), layout="constrained")[1]


def literal(name: object) -> str:
    r"""A name that matplotlib shows as it is: no mathematics between dollar signs, no hidden label.

    Examples
    --------
    >>> literal("income in $")
    'income in \\$'
    """
    text = " ".join(visible(str(name)).split())
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    text = text.replace("$", r"\$")
    # A label that begins with an underscore is left out of legends.
    return f"\u200b{text}" if text.startswith("_") else text


def groups_for(method: Callable[..., Any], sensitive_features: Any) -> dict[str, Any]:
    """The groups of rows as a keyword, for a method that takes them.

    Examples
    --------
    >>> groups_for(lambda X, *, sensitive_features=None: X, ["f", "m"])
    {'sensitive_features': ['f', 'm']}
    >>> groups_for(lambda X: X, ["f", "m"])
    {}
    """
    takes = "sensitive_features" in inspect.signature(method).parameters
    return {"sensitive_features": sensitive_features} if takes else {}
