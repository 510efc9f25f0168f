"""What all displays share: the theme, the marks of groups and methods, axes, and SVG for pages.

A chart is defined once: `Display.draw` draws it on matplotlib axes. Notebooks and papers use the figure; a
page uses its SVG, whose colours are variables of the page's style, light, dark or printed.
"""

import io
import re
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Self
from xml.etree import ElementTree

import numpy as np
from markupsafe import Markup

from gcig.records.formatting import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 350.0  # points, on pages: text is then readable on a phone
FONT_SIZE = 12.0
LINE = 25.0  # height of a line with one name
ROW_NAME = 24  # characters; a longer name of a row leaves no room for the axes
LEGEND_NAME = 46
_COLOURS = 10
_MARKERS = ("o", "s", "^", "D", "P", "X", "v")
_LINES = ("-", "--", ":", "-.")
_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_DROPPED = ("clip-path", "id", "transform", "width", "height", "version", "class", "font-family")


@cache
def palette() -> dict[str, str]:
    """Return the light colours of pages by the name of their CSS variable."""
    style = (resources.files("gcig.report") / "templates" / "charts.css").read_text(encoding="utf-8")
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", style.partition("@media")[0]))


def theme() -> Any:
    """Return matplotlib's settings for a chart of a page."""
    ink, muted, line = (palette()[name] for name in ("ink", "muted", "line"))
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": "gcig",
        "font.family": "DejaVu Sans",
        "font.size": FONT_SIZE,
        "text.color": ink,
        "axes.edgecolor": muted,
        "axes.labelcolor": muted,
        "axes.facecolor": "none",
        "axes.grid": False,
        "grid.color": line,
        "xtick.color": muted,
        "ytick.color": muted,
        "ytick.labelcolor": ink,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "legend.labelcolor": ink,
        "figure.dpi": 72,
        "figure.facecolor": "none",
    }


def colour(place: int) -> str:
    """Return the colour of a group or method."""
    return palette()[f"g{place % _COLOURS}"]


def mark(place: int) -> dict[str, str]:
    """Return the colour and the marker of a group or method, as arguments of matplotlib."""
    return {"color": colour(place), "marker": _MARKERS[place % len(_MARKERS)]}


def dash(place: int) -> str:
    """Return the line style of a group or method."""
    return _LINES[place % len(_LINES)]


def literal(name: object, most: int = ROW_NAME) -> str:
    r"""Return a name for matplotlib: no mathematics between dollar signs, no hidden label, ends kept.

    >>> literal("income in $"), literal("a name that is very long indeed")
    ('income in \\$', 'a name that …long indeed')
    """
    text = " ".join(visible(str(name)).split())
    if len(text) > most:
        text = f"{text[: most // 2]}…{text[len(text) - (most - most // 2 - 1) :]}"
    text = text.replace("$", r"\$")
    # matplotlib leaves labels that begin with an underscore out of legends.
    return f"\u200b{text}" if text.startswith("_") else text


@dataclass(eq=False)
class Display:
    """Base class of the displays; ``plot`` sets ``ax_`` and ``figure_``."""

    ax_: "Axes" = field(init=False, repr=False)
    figure_: "Figure" = field(init=False, repr=False)

    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on a new figure."""
        if ax is None:
            from matplotlib import pyplot

            size = (6.4, max(2.4, self.height / 62))
            ax = pyplot.subplots(figsize=size, layout="constrained")[1]
        self.ax_, self.figure_ = ax, ax.figure
        self.draw(ax)
        return self

    @property
    def height(self) -> float:
        """Height on a page in points."""
        return 230.0

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return False

    def draw(self, ax: Any) -> None:
        """Draw on axes."""
        raise NotImplementedError

    def describe(self) -> str:
        """Return the chart in words, for screen readers."""
        raise NotImplementedError

    def svg(self, title: str) -> Markup:
        """Return the chart as SVG for a page."""
        if self.empty:
            return Markup("")
        import warnings

        from matplotlib import rc_context
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        with rc_context(theme()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of glyphs that only the reader's font has
            figure = Figure(figsize=(WIDTH / 72, self.height / 72), layout="constrained")
            FigureCanvasSVG(figure)
            figure.get_layout_engine().set(w_pad=2 / 72, h_pad=4 / 72)  # type: ignore[call-arg, union-attr]
            self.plot(figure.subplots())
            return page_svg(figure, title, self.describe())


def finish(ax: Any, x_label: str, rows: Sequence[str] = (), *, legend: bool = True) -> None:
    """Name the axis and the rows, the first at the top, and add a legend above."""
    # A long name overflows to the left, where the names of the rows are.
    ax.set_xlabel(literal(x_label, 60), **({"loc": "right"} if rows else {}))
    ax.grid(axis="x" if rows else "both")
    ax.set_axisbelow(True)
    if rows:
        ax.set_yticks(np.arange(len(rows)), [literal(name) for name in rows])
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
    handles, names = ax.get_legend_handles_labels()
    if legend and handles:
        own = len(ax.figure.axes) == 1 and ax.figure.get_layout_engine() is not None
        columns = 1 if sum(len(name) + 5 for name in names) > LEGEND_NAME else len(names)
        place = {"loc": "outside upper left"} if own else {"loc": "best"}
        options = {"borderaxespad": 0.2, "handletextpad": 0.4, "ncols": columns, **place}
        (ax.figure if own else ax).legend(handles, names, **options)


def legend_height(names: Collection[str]) -> float:
    """Return the room that a legend needs on a page."""
    one = sum(len(literal(name, LEGEND_NAME)) + 5 for name in names) <= LEGEND_NAME
    return 20.0 if one else 19.0 * len(names)


def tip(artist: Any, text: str) -> None:
    """Give a mark a tooltip on pages."""
    artist.set_gid(f"tip:{visible(text)}")


def page_svg(figure: "Figure", title: str, description: str) -> Markup:
    """Return a figure as SVG without styles and ids of its own, with the colours of the page."""
    out = io.BytesIO()
    figure.savefig(out, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator")))
    root = ElementTree.fromstring(out.getvalue())
    known = {each.get("id"): each for each in root.iter() if each.get("id")}
    names = {value: f"var(--{name})" for name, value in palette().items()}
    _clean(root, known, names)
    root.attrib = {"viewBox": root.get("viewBox", ""), "class": "chart", "role": "img"}
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        child = ElementTree.Element(f"{_SVG}{tag}")
        child.text = visible(text)
        root.insert(place, child)
    ElementTree.register_namespace("", _SVG.strip("{}"))
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _clean(element: Any, known: Mapping[Any, Any], names: Mapping[str, str]) -> None:
    """Turn styles into attributes, which a page's policy allows, and references into copies."""
    for child in list(element):
        place = list(element).index(child)
        if child.tag == f"{_SVG}use":
            at = f"translate({float(child.get('x', 0)):.2f} {float(child.get('y', 0)):.2f})"
            copy = deepcopy(known[child.get(_HREF, "#").removeprefix("#")])
            copy.set("style", f"{copy.get('style', '')};{child.get('style', '')}")
            element[place] = child = copy
            _attributes(child, names)
            child.set("transform", at)
        elif child.tag in (f"{_SVG}metadata", f"{_SVG}defs"):
            element.remove(child)
            continue
        else:
            _attributes(child, names)
            _clean(child, known, names)
        if child.tag != f"{_SVG}text":
            child.text = None if not (child.text or "").strip() else child.text
        child.tail = None


def _attributes(element: Any, names: Mapping[str, str]) -> None:
    label = element.get("id", "")
    style = element.get("style", "")
    turned = "rotate(-90" in element.get("transform", "")
    kept = {} if not turned else {"transform": element.get("transform")}
    for name in (*_DROPPED, "style"):
        element.attrib.pop(name, None)
    element.attrib |= kept
    for name in ("d", "x", "y", "transform"):
        if (value := element.get(name)) is not None:
            short = re.sub(r"\d+\.\d{3,}", lambda match: f"{float(match[0]):.2f}", value)
            element.set(name, " ".join(short.split()))
    for part in style.split(";"):
        name, _, value = (each.strip() for each in part.partition(":"))
        if name == "font":
            element.set("font-size", re.sub(r".*?([\d.]+)px.*", r"\1", value))
            if re.match(r"(bold|[6-9]00)\b", value):
                element.set("font-weight", "600")
        elif name and name not in _DROPPED:
            element.set(name, names.get(value, value))
    if label.startswith("tip:"):
        child = ElementTree.Element(f"{_SVG}title")
        child.text = label.removeprefix("tip:")
        element.insert(0, child)
