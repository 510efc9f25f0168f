"""Figures of a run as SVG and PNG files; equal results give equal bytes, without date or random ids."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from reproduction.correlation import POPULATIONS, points
from reproduction.experiments import SWEPT, WEIGHTS
from reproduction.paper import VERSIONS, printed
from reproduction.results import LABELS, Results, label, ranked

# Okabe and Ito (2008): distinguishable with every kind of colour vision; markers distinguish them in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = "os^DvPX*"
COLLAPSED: dict[str, Any] = {
    "marker": "x",
    "markersize": 11,
    "color": "#B00000",
    "linestyle": "none",
    "label": "collapsed folds",
}
_PANEL_SIZE = (4.2, 3.2)  # inches
_SETTINGS: Any = {
    "svg.hashsalt": "gcig",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
}


def draw(results: Results, folder: Path) -> None:
    """Draw the figures of the experiments that were run."""
    folder.mkdir(exist_ok=True)
    panels: dict[str, tuple[int, list[Callable[[Axes], None]]]] = {
        "trade_off": (
            4,
            [_trade_off(results, d, m) for d in results.plan.datasets for m in ("gcig", "eo_gap")],
        ),
        "comparison": (3, [_fairness(results, name) for name in results.plan.datasets]),
        "correlation": (2, [_correlation(results, name) for name in list(POPULATIONS)[:2]]),
    }
    if "sensitivity" in results.frames:
        metrics = ("auc", "f1", "eo_gap", "gcig_raw")
        panels["sensitivity_compas-paper"] = (4, [_weights(results, s, m) for s in SWEPT for m in metrics])
    for name, (columns, own) in panels.items():
        rows = math.ceil(len(own) / columns)
        with rc_context(_SETTINGS):
            size = (columns * _PANEL_SIZE[0], rows * _PANEL_SIZE[1] + 0.9)
            figure = Figure(figsize=size, layout="constrained")
            FigureCanvasAgg(figure)
            axes = list(figure.subplots(rows, columns, squeeze=False).flat)
            for ax, panel in zip(axes, own, strict=False):
                panel(ax)
            for ax in axes[len(own) :]:
                ax.set_axis_off()
            handles = {t: h for ax in axes for h, t in zip(*ax.get_legend_handles_labels(), strict=True)}
            figure.legend(
                handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False
            )
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
            figure.savefig(folder / f"{name}.png", dpi=150, metadata={"Software": None})


def _style(names: tuple[str, ...], name: str) -> dict[str, Any]:
    """Return the colour and marker of a name, alike in all panels, with its label in the legend."""
    place = names.index(name) % len(COLOURS)
    return {"color": COLOURS[place], "marker": MARKERS[place], "linestyle": "none", "markersize": 5}


def _label(ax: Axes, title: str, x: str, y: str) -> None:
    ax.set_title(title, fontsize=9)
    ax.set_xlabel(x)
    ax.set_ylabel(y)


def _trade_off(results: Results, dataset: str, metric: str) -> Callable[[Axes], None]:
    """Plot AUC against a gap, one point per method, with the front of methods that did not collapse."""

    def panel(ax: Axes) -> None:
        methods = ranked(results.plan.methods, metric)
        x, y, collapsed = (results.means(m, [dataset], methods).iloc[0] for m in (metric, "auc", "collapsed"))
        for method in methods:
            ax.plot(x[method], y[method], label=label(method), **_style(results.plan.methods, method))
        if (collapsed > 0).any():
            ax.plot(x[collapsed > 0], y[collapsed > 0], **COLLAPSED)
        sound = [m for m in x.sort_values().index if not collapsed[m]]
        front = [m for i, m in enumerate(sound) if all(y[m] > y[other] for other in sound[:i])]
        ax.plot(
            x[front], y[front], color="#777777", linewidth=1, linestyle="--", zorder=0, label="Pareto front"
        )
        _label(ax, f"{dataset}: AUC against {LABELS[metric]}", LABELS[metric], "AUC")

    return panel


def _fairness(results: Results, dataset: str) -> Callable[[Axes], None]:
    """Plot outcome against procedural fairness by method; outlines are the paper's numbers."""

    def panel(ax: Axes) -> None:
        for method in results.plan.methods:
            style = _style(results.plan.methods, method)
            ours = (results.mean(dataset, method, metric) for metric in ("eo_gap", "gcig_raw"))
            ax.plot(*ours, label=label(method), **style)
            theirs = (printed(dataset, method, metric)[0] for metric in ("eo_gap", "gcig_raw"))
            ax.plot(*theirs, markerfacecolor="none", **style)
        _label(ax, dataset, LABELS["eo_gap"], LABELS["gcig_raw"])

    return panel


def _correlation(results: Results, population: str) -> Callable[[Axes], None]:
    """Plot every method and fold of pooled datasets as a point, with a least-squares line."""

    def panel(ax: Axes) -> None:
        rows = points(results)
        rows = rows[rows["dataset"].isin(POPULATIONS[population])]
        for name, own in rows.groupby("dataset"):
            ax.plot(own["eo_gap"], own["gcig_raw"], label=name, **_style(results.plan.datasets, str(name)))
        slope, intercept = np.polyfit(rows["eo_gap"], rows["gcig_raw"], 1)
        ax.axline((0.0, intercept), slope=slope, color="#777777", linewidth=1, zorder=0)
        _label(ax, population, LABELS["eo_gap"], LABELS["gcig_raw"])

    return panel


def _weights(results: Results, swept: str, metric: str) -> Callable[[Axes], None]:
    """Plot a metric over a weight with bands of one standard deviation, one curve per version of FairX."""

    def panel(ax: Axes) -> None:
        for version in VERSIONS:
            folds: Mapping[float, Any] = {w: results.sweep(version, swept, w) for w in WEIGHTS}
            mean, deviation = (
                np.array([getattr(own[metric], what)() for own in folds.values()]) for what in ("mean", "std")
            )
            style = _style(VERSIONS, version)
            ax.fill_between(WEIGHTS, mean - deviation, mean + deviation, color=style["color"], alpha=0.15)
            ax.plot(WEIGHTS, mean, label=label(version), **{**style, "linestyle": "-", "linewidth": 1.2})
            collapsed = np.array([own["collapsed"].any() for own in folds.values()])
            if collapsed.any():
                ax.plot(np.array(WEIGHTS)[collapsed], mean[collapsed], **COLLAPSED)
        ax.set_xscale("log")
        _label(ax, f"{LABELS[metric]}, {swept}", swept, LABELS[metric])

    return panel
