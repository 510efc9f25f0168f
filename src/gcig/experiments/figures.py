"""Figures: their content as plain values, and their drawing as SVG and PNG files without a screen.

Equal figures give equal bytes: there is no date, and ids come from a fixed salt.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gcig._validation import InputError
from gcig.report.charts import Series, TradeOff

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito (2008): distinguishable with every kind of colour vision; markers distinguish them in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
COLLAPSED = "collapsed folds"
_PANEL_SIZE = (4.2, 3.2)  # inches
_SETTINGS: Any = {  # Any, because matplotlib's own type lists every name
    "svg.hashsalt": "gcig",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.unicode_minus": True,
}


@dataclass(frozen=True)
class Panel:
    """One pair of axes: series, intercept and slope of a fitted line, and corners of a Pareto front."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    fit: tuple[float, float] | None = None
    front: Sequence[tuple[float, float]] = ()
    log_x: bool = False


@dataclass(frozen=True)
class Figure:
    """Panels in rows of `columns`, with a title and a caption.

    A series looks the same in all panels. ``trade_offs`` has the points of a trade-off figure per dataset,
    from which HTML pages draw their own chart. If ``marks_collapsed``, hollow points are collapsed models,
    which files mark with a cross; otherwise they are drawn as outlines, such as the paper's numbers.
    """

    title: str
    caption: str
    panels: Sequence[Panel]
    columns: int = 2
    trade_offs: Mapping[str, Sequence[TradeOff]] = field(default_factory=dict)
    marks_collapsed: bool = False

    def describe(self, collapsed: str) -> str:
        """Return title and caption; ``collapsed`` describes the mark of collapsed models."""
        marks = f" Points with a collapsed model are {collapsed}." if self.marks_collapsed else ""
        return f"{self.title}. {self.caption}{marks}"


def draw(figure: Figure, format: str = "svg") -> bytes:
    """Draw a figure and return the bytes of an SVG or PNG file."""
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise InputError(
            "Figures need matplotlib, which is not installed: pip install 'gcig[plot]'."
        ) from error

    columns = max(1, min(figure.columns, len(figure.panels)))
    rows = max(1, math.ceil(len(figure.panels) / columns))
    styles = _styles(figure)
    with rc_context(_SETTINGS):
        canvas = Canvas(figsize=(columns * _PANEL_SIZE[0], rows * _PANEL_SIZE[1] + 0.9), layout="constrained")
        FigureCanvasAgg(canvas)
        grid = canvas.subplots(rows, columns, squeeze=False)
        axes = list(grid.flat)
        for ax, panel in zip(axes, figure.panels, strict=False):
            _draw_panel(ax, panel, styles, crossed=figure.marks_collapsed)
        for ax in axes[len(figure.panels) :]:
            ax.set_axis_off()
        canvas.suptitle(plain_text(figure.title), fontsize=11)
        _legend(canvas, axes)
        out = io.BytesIO()
        metadata = {"Date": None} if format == "svg" else {"Software": None}
        canvas.savefig(out, format=format, dpi=150, metadata=metadata)
    return out.getvalue()


def plain_text(name: str) -> str:
    r"""Escape a name for matplotlib, which otherwise reads text between dollar signs as mathematics.

    >>> print(plain_text("$income$"))
    \$income\$
    """
    return name.replace("$", r"\$")


def _styles(figure: Figure) -> dict[str, tuple[str, str]]:
    """Assign a colour and a marker to every name, in order of appearance."""
    names = dict.fromkeys(series.name for panel in figure.panels for series in panel.series)
    return {name: (COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]) for i, name in enumerate(names)}


def _draw_panel(ax: Axes, panel: Panel, styles: Mapping[str, tuple[str, str]], *, crossed: bool) -> None:
    for series in panel.series:
        _draw_series(ax, series, *styles[series.name], crossed=crossed)
    if panel.fit is not None:
        ax.axline((0.0, panel.fit[0]), slope=panel.fit[1], color="#777777", linewidth=1, zorder=0)
    if panel.front:
        x, y = zip(*panel.front, strict=True)
        ax.plot(x, y, color="#777777", linewidth=1, linestyle="--", zorder=0, label="Pareto front")
    if panel.log_x:
        ax.set_xscale("log")
    ax.set_title(plain_text(panel.title), fontsize=9)
    ax.set_xlabel(plain_text(panel.x_label))
    ax.set_ylabel(plain_text(panel.y_label))


def _draw_series(ax: Axes, series: Series, colour: str, marker: str, *, crossed: bool) -> None:
    """Draw a series; hollow points are outlines or, if ``crossed``, filled and marked with a cross."""
    if series.low:
        ax.fill_between(series.x, series.low, series.high, color=colour, alpha=0.15, linewidth=0)
    if series.joined:
        ax.plot(series.x, series.y, color=colour, linewidth=1.2)
    style: dict[str, Any] = {"linestyle": "none", "marker": marker, "markersize": 5, "color": colour}
    filled = [crossed or not flag for flag in series.hollow or [False] * len(series.x)]
    ax.plot(*_points(series, filled), label=plain_text(series.name), **style)
    ax.plot(*_points(series, [not flag for flag in filled]), markerfacecolor="none", **style)
    if crossed and any(series.hollow):
        x, y = _points(series, series.hollow)
        ax.plot(x, y, linestyle="none", marker="x", markersize=11, color="#B00000", label=COLLAPSED)


def _points(series: Series, chosen: Sequence[bool]) -> tuple[list[float], list[float]]:
    kept = [i for i, flag in enumerate(chosen) if flag]
    return [series.x[i] for i in kept], [series.y[i] for i in kept]


def _legend(canvas: Any, axes: list[Axes]) -> None:
    """Draw one legend for all panels, with each label once."""
    found: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    for last in ("Pareto front", COLLAPSED):  # labels of marks follow those of series
        if last in found:
            found[last] = found.pop(last)
    if found:
        canvas.legend(found.values(), found.keys(), loc="outside lower center", ncols=4, frameon=False)
