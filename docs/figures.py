"""Figures of the user guide: ``python docs/figures.py`` writes them to ``docs/_static``.

The first figure shows invented numbers and says so, the last one an exact example of ``theory.rst``. The
others show shipped data and models that are trained here, with fixed seeds.
"""

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

import gcig
from gcig._arguments import InputWarning
from gcig.methods import METHODS
from gcig.methods.explanation import Explanation
from gcig.report.displays import AttributionProfileDisplay, DisparityDisplay
from gcig.report.displays.base import WIDTH, colour, dash, finish, mark, palette, theme

STATIC = Path(__file__).parent / "_static"
N_ROWS = 6000
N_REASONS = 6
_SHORTCUT_STRENGTH = 9


def panels(count: int, height: float) -> tuple[Figure, list]:
    """Return a figure with panels above each other, as wide as a chart of a page."""
    figure = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
    FigureCanvasSVG(figure)
    return figure, list(np.atleast_1d(figure.subplots(count)))


def same_decision() -> Figure:
    """Draw two refusals with different reasons, with invented numbers."""
    people = {
        "Anna: refused because of": {"age": 0.6, "debts": 0.25, "income": 0.15},
        "Ben: refused because of": {"debts": 0.6, "income": 0.3, "age": 0.1},
    }
    figure, axes = panels(2, 260)
    for index, (ax, (name, reasons)) in enumerate(zip(axes, people.items(), strict=True)):
        bars = ax.barh(range(3), list(reasons.values()), color=colour(index))
        ax.bar_label(bars, [f"{share:.0%}" for share in reasons.values()], padding=3)
        ax.set_title(name, loc="left", fontsize=12)
        ax.set_yticks(range(3), list(reasons))
        ax.invert_yaxis()
        ax.set_xlim(0, 0.7)
        ax.set_xticks([])
        for side in ("left", "bottom"):
            ax.spines[side].set_visible(False)
    return figure


def two_references() -> Figure:
    """Draw one person from Adult and the references with the same label, by age and hours per week."""
    data = gcig.load_dataset("adult")
    high = data.X[["age", "hours-per-week"]][data.y == 1]
    sex = data.sensitive_features[data.y == 1]
    places = {f"typical {name} with a high income": high[sex == name].mean() for name in ("Female", "Male")}
    places["one person"] = high[(high["age"] == 31) & (high["hours-per-week"] == 38)].iloc[0]
    figure, (ax,) = panels(1, 300)
    person = places["one person"]
    for index, (name, place) in enumerate(places.items()):
        ends = [place["age"], person["age"]], [place["hours-per-week"], person["hours-per-week"]]
        ax.plot(*ends, color=palette()["muted"], linestyle="--", linewidth=1)
        ax.scatter(place["age"], place["hours-per-week"], label=name, s=60, zorder=2, **mark(index))
    ax.set_ylabel("hours per week")
    finish(ax, "age")
    return figure


@dataclass(frozen=True)
class Trained:
    """Attributions of held-out rows of Adult under two models, on original columns."""

    plain: Explanation
    fair: Explanation


def train() -> Trained:
    """Train a plain network and FairX on a part of Adult and explain held-out rows."""
    data = gcig.load_dataset("adult", include_sensitive=False)
    order = np.random.default_rng(0).permutation(len(data.X))[:N_ROWS]
    train_rows, test_rows = order[: N_ROWS * 2 // 3], order[N_ROWS * 2 // 3 :]
    explained = []
    for key in ("unconstrained", "fairx"):
        model = METHODS[key].estimator(random_state=0, device="cpu")
        model.fit(
            data.X.iloc[train_rows],
            data.y.iloc[train_rows],
            sensitive_features=data.sensitive_features.iloc[train_rows],
        )
        explained.append(model.explain(data.X.iloc[test_rows], data.y.iloc[test_rows], columns="original"))
    return Trained(*explained)


def reasons(trained: Trained) -> Figure:
    """Draw the reasons for one person under both references, for the plain network and for FairX."""
    disparity = trained.plain.disparity
    row = int(np.nanargmin(np.abs(disparity - np.nanmean(disparity))))  # the person closest to the average
    models = {"plain network": _shares(trained.plain, row), "FairX": _shares(trained.fair, row)}
    columns = np.argsort(-np.abs(models["plain network"]).max(axis=0), kind="stable")[:N_REASONS]
    names = [trained.plain.columns[j] for j in columns]
    figure, axes = panels(2, 460)
    for ax, (model, shares) in zip(axes, models.items(), strict=True):
        profiles = {
            f"compared with the typical {group}": shares[i, columns].tolist()
            for i, group in enumerate(trained.plain.groups)
        }
        AttributionProfileDisplay(names, profiles, "share of the reasons, for and against").draw(ax)
        ax.set_title(model, loc="left", fontsize=12)
        ax.get_legend().remove()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left")
    return figure


def _shares(explained: Explanation, row: int) -> np.ndarray:
    """Return the normalised attributions of one row, shape (groups, columns)."""
    values = explained.attributions[:, row]
    shares: np.ndarray = values / np.abs(values).sum(axis=1, keepdims=True)
    return shares


def disparities(trained: Trained) -> Figure:
    """Draw the distribution of disparity over rows; its mean is GCIG."""
    rows = {"plain network": trained.plain.disparity, "FairX": trained.fair.disparity}
    edges = np.linspace(0, float(np.nanquantile(rows["plain network"], 0.99)), 25)
    counts = {
        name: np.histogram(values[values <= edges[-1]], edges)[0].tolist() for name, values in rows.items()
    }
    figure, (ax,) = panels(1, 260)
    DisparityDisplay(edges.tolist(), counts).draw(ax)
    for index, values in enumerate(rows.values()):
        ax.axvline(float(np.nanmean(values)), color=colour(index), linestyle=dash(index), linewidth=1)
    return figure


def shortcut() -> Figure:
    """Draw the logit and GCIG of the model x1 + x2 + M (x2^2 - 1) of ``theory.rst``."""
    figure, (upper, lower) = panels(2, 460)
    along = np.linspace(-1.4, 1.4, 57)
    for index, strength in enumerate((0, _SHORTCUT_STRENGTH)):
        line = {"color": colour(index), "linestyle": dash(index)}
        upper.plot(along, along + strength * (along**2 - 1), label=f"M = {strength}", **line)
        upper.scatter(0, -strength, s=50, zorder=3, label=None if index else "reference", **mark(3))
    upper.scatter([-1, 1], [-1, 1], s=50, zorder=3, label="members", **mark(2))
    upper.set_ylabel("logit at x1 = 0")
    finish(upper, "column 2")
    strengths = np.linspace(0, 40, 162)  # not exactly 1, where two rows are undefined
    means = [_shortcut_gcig(strength) for strength in strengths]
    lower.plot(strengths, means, label="means as references", color=colour(0))
    lower.plot(
        strengths, [means[0]] * len(means), label="members as references", color=colour(1), linestyle="--"
    )
    lower.set_ylim(0, 0.7)
    lower.set_ylabel("GCIG")
    finish(lower, "M")
    return figure


def _shortcut_gcig(strength: float) -> float:
    """Return the GCIG of the shortcut with the means (-1, 0) and (1, 0) as references."""
    rows = np.array([[v, s] for v in (-3.0, 1.0, -1.0, 3.0) for s in (-1.0, 1.0)])
    shares = []
    for mean in (-1.0, 1.0):
        values = np.stack([rows[:, 0] - mean, rows[:, 1] + strength], axis=1)
        shares.append(values / np.abs(values).sum(axis=1, keepdims=True))
    return float(np.linalg.norm(shares[0] - shares[1], axis=1).mean())


def draw() -> dict[str, Figure]:
    """Return all figures by file name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # countries that do not occur in the training rows
        trained = train()
    return {
        "same_decision": same_decision(),
        "two_references": two_references(),
        "reasons": reasons(trained),
        "disparities": disparities(trained),
        "shortcut": shortcut(),
    }


def main() -> None:
    """Write all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=STATIC)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with rc_context({**theme(), "figure.facecolor": "white", "svg.fonttype": "path"}):
        for name, figure in draw().items():
            figure.savefig(out / f"{name}.svg", metadata={"Date": None})
            print(out / f"{name}.svg")


if __name__ == "__main__":
    main()
