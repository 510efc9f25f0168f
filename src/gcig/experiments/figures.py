"""Figures: their content as plain values, and their drawing as SVG and PNG files without a screen.

Equal figures give equal bytes: there is no date, and ids come from a fixed salt.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from gcig.benchmark.results import method_label
from gcig.experiments.settings import finished, ordered, texts
from gcig.methods.registry import METHODS
from gcig.records.evaluation import is_ranked
from gcig.report.charts import Measure, Series, TradeOff, front_line

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


def trade_off_figures(
    name: Literal["trade_off", "candidates"], frame: pd.DataFrame, datasets: Sequence[str]
) -> dict[str, Figure]:
    """Plot AUC against GCIG and the EO gap, as means over folds: one point per method or per candidate."""
    points = {
        dataset: _trade_offs(frame[frame["dataset"] == dataset], candidates=name == "candidates")
        for dataset in datasets
    }
    measures: tuple[Measure, ...] = ("GCIG", "EO gap")
    panels = [
        Panel(
            f"{dataset}: AUC against {measure}",
            measure,
            "AUC",
            [_cloud(own, label, measure) for label in dict.fromkeys(point.series for point in own)],
            front=sorted(set(front_line(own, measure))),
        )
        for dataset, own in points.items()
        for measure in measures
    ]
    return {
        name: Figure(
            **texts()["figures"][name], panels=panels, columns=4, trade_offs=points, marks_collapsed=True
        )
    }


def _cloud(points: Sequence[TradeOff], label: str, measure: Measure) -> Series:
    own = [point for point in points if point.series == label]
    gaps, hollow = [point.gap(measure) for point in own], [point.collapsed for point in own]
    return Series(label, gaps, [point.auc for point in own], hollow=hollow, joined=False)


def _trade_offs(frame: pd.DataFrame, *, candidates: bool) -> list[TradeOff]:
    rows = finished(frame)
    found = []
    for method in ordered(rows["method"], first=tuple(METHODS)):
        own = rows[rows["method"] == method]
        for _, part in own.groupby("parameters" if candidates else "method", sort=False):
            auc, gcig, gap = (float(part[metric].mean()) for metric in ("auc", "gcig", "eo_gap"))
            gcig = gcig if is_ranked(method, "gcig") else math.nan
            parameters = json.loads(part["parameters"].iloc[0]) if candidates else {}
            searched = METHODS[method].search_space if method in METHODS else parameters
            words = ", ".join(f"{key} {value}" for key, value in parameters.items() if key in searched)
            collapsed = bool(part["collapsed"].astype(bool).any())
            found.append(TradeOff(method_label(method), auc, gcig, gap, words, collapsed))
    return found


def draw(figure: Figure, format: str = "svg") -> bytes:
    """Draw a figure and return the bytes of an SVG or PNG file."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

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
