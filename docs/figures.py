"""Figures of the user guide: ``python docs/figures.py`` writes them to ``docs/_static``.

The first figure shows invented numbers and says so, the last one an exact example of ``theory.rst``. The
others show shipped data and models that are trained here, with fixed seeds.
"""

import argparse
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

import gcig
from gcig._arguments import InputWarning
from gcig.methods import METHODS
from gcig.methods.explanation import Explanation
from gcig.report.charts import disparity_histogram, standalone
from gcig.report.charts.drawing import (
    WIDTH,
    Marks,
    Scale,
    chart,
    curve,
    element,
    group,
    join,
    marker,
    scale_for,
    text,
    x_axis,
    y_axis,
)

STATIC = Path(__file__).parent / "_static"
N_ROWS = 6000
N_REASONS = 6
_SHORTCUT_STRENGTH = 9


def same_decision() -> Markup:
    """Draw two refusals with different reasons, with invented numbers."""
    people = {
        "Anna: refused": {"age": 0.6, "debts": 0.25, "income": 0.15},
        "Ben: refused": {"debts": 0.6, "income": 0.3, "age": 0.1},
    }
    parts, y = [], 14.0
    for index, (name, reasons) in enumerate(people.items()):
        parts.append(text(name, 8, y, class_="strong"))
        parts.append(text("because of", 8, y + 18, class_="label"))
        for line, (column, share) in enumerate(reasons.items()):
            at = y + 18 + 20 * line
            bar = element(
                "rect", x=150.0, y=at - 7, width=220 * share, height=14.0, fill="currentColor", opacity=0.75
            )
            parts += [
                text(column, 142, at, anchor="end"),
                group(index, bar),
                text(f"{share:.0%}", 156 + 220 * share, at),
            ]
        y += 96
    description = (
        "Two people are refused. For Anna age counts most, for Ben his debts. The numbers are invented."
    )
    return chart(y - 8, *parts, title="The same decision, different reasons", description=description)


def two_references() -> Markup:
    """Draw one person from Adult and the references with the same label, by age and hours per week."""
    data = gcig.load_dataset("adult")
    high = data.X[["age", "hours-per-week"]][data.y == 1]
    sex = data.sensitive_features[data.y == 1]
    typical = {f"typical {name} with a high income": high[sex == name].mean() for name in ("Female", "Male")}
    person = high[(high["age"] == 31) & (high["hours-per-week"] == 38)].iloc[0]
    top = Marks([*typical, "one person"]).height + 30
    x, y = Scale(28, 48, 52, WIDTH - 14), Scale(36, 48, top + 190, top)
    lines = [
        element(
            "line",
            x1=x(mean["age"]),
            y1=y(mean["hours-per-week"]),
            x2=x(person["age"]),
            y2=y(person["hours-per-week"]),
            class_="axis",
            stroke_dasharray="5 4",
        )
        for mean in typical.values()
    ]
    places = [*typical.values(), person]
    marks = [marker(i, x(p["age"]), y(p["hours-per-week"]), size=6.5) for i, p in enumerate(places)]
    return chart(
        top + 232,
        Marks([*typical, "one person"]).legend(),
        text("hours per week", 8, top - 16, class_="label"),
        x_axis(x, top, top + 190, "age"),
        y_axis(y, 52, WIDTH - 14),
        *lines,
        *marks,
        title="One person, two references",
        description="Two dashed paths lead to one person: from the typical woman and from the typical man.",
    )


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


def reasons(trained: Trained) -> Markup:
    """Draw the reasons for one person under both references, for the plain network and for FairX."""
    disparity = trained.plain.disparity
    row = int(np.nanargmin(np.abs(disparity - np.nanmean(disparity))))  # the person closest to the average
    models = {"plain network": _shares(trained.plain, row), "FairX": _shares(trained.fair, row)}
    columns = np.argsort(-np.abs(models["plain network"]).max(axis=0), kind="stable")[:N_REASONS]
    names = [trained.plain.columns[j] for j in columns]
    groups = [f"compared with the typical {group}" for group in trained.plain.groups]
    values = [float(v) for shares in models.values() for v in shares[:, columns].ravel()]
    top = 2 * 20 + 22.0
    scale = scale_for(values, 140, WIDTH - 14, include=[0.0], margin=0.08)
    parts = [Marks(groups).legend()]
    for name, shares in models.items():
        parts.append(text(name, 8, top - 10, class_="strong"))
        parts.append(_panel(names, shares[:, columns], scale, top, last=name == "FairX"))
        top += 22 * N_REASONS + 40
    description = "; ".join(
        f"{model}, {column}: " + " and ".join(f"{shares[g, j]:.2f}" for g in range(len(groups)))
        for model, shares in models.items()
        for column, j in zip(names, columns, strict=True)
    )
    return chart(top + 4, *parts, title="The reasons for one person", description=description)


def _shares(explained: Explanation, row: int) -> np.ndarray:
    """Return the normalised attributions of one row, shape (groups, columns)."""
    values = explained.attributions[:, row]
    shares: np.ndarray = values / np.abs(values).sum(axis=1, keepdims=True)
    return shares


def _panel(names: Sequence[str], shares: np.ndarray, scale: Scale, top: float, *, last: bool) -> Markup:
    bottom = top + 22 * len(names)
    lines = [x_axis(scale, top, bottom, "share of the reasons, for and against" if last else "")]
    lines.append(element("line", x1=scale(0), x2=scale(0), y1=top, y2=bottom, class_="axis"))
    for line, name in enumerate(names):
        y = top + 22 * (line + 0.5)
        places = [scale(float(v)) for v in shares[:, line]]
        lines.append(text(name, 132, y, anchor="end"))
        lines.append(
            element("line", x1=min(places), x2=max(places), y1=y, y2=y, class_="axis", stroke_width=2)
        )
        lines += [marker(group, x, y) for group, x in enumerate(places)]
    return join(*lines)


def disparities(trained: Trained) -> Markup:
    """Draw the distribution of disparity over rows; its mean is GCIG."""
    rows: Mapping[str, np.ndarray] = {
        "plain network": trained.plain.disparity,
        "FairX": trained.fair.disparity,
    }
    edges = np.linspace(0, float(np.nanquantile(rows["plain network"], 0.99)), 25)
    counts = {
        name: np.histogram(values[values <= edges[-1]], edges)[0].tolist() for name, values in rows.items()
    }
    means = {name: float(np.nanmean(values)) for name, values in rows.items()}
    return disparity_histogram(edges.tolist(), counts, means=means)


def shortcut() -> Markup:
    """Draw the logit and GCIG of the model x1 + x2 + M (x2^2 - 1) of ``theory.rst``."""
    names = ["M = 0", f"M = {_SHORTCUT_STRENGTH}", "members", "reference"]
    top = Marks(names).height + 30.0
    x, y = Scale(-1.4, 1.4, 52, WIDTH - 14), Scale(-11, 10, top + 150, top)
    along = np.linspace(-1.4, 1.4, 57)
    parts = [
        Marks(names).legend(),
        text("logit at x1 = 0", 8, top - 16, class_="label"),
        x_axis(x, top, top + 150, "column 2"),
        y_axis(y, 52, WIDTH - 14),
    ]
    for index, strength in enumerate((0, _SHORTCUT_STRENGTH)):
        logits = along + strength * (along**2 - 1)
        parts.append(curve(index, [(x(u), y(v)) for u, v in zip(along, logits, strict=True)]))
        parts += [marker(2, x(at), y(at), size=6) for at in (-1, 1)]
        parts.append(marker(3, x(0), y(-strength), size=6))
    names = ["means as references", "members as references"]
    lower = top + 225 + Marks(names).height
    x, y = Scale(0, 40, 52, WIDTH - 14), Scale(0, 0.7, lower + 150, lower)
    strengths = np.linspace(0, 40, 162)  # not exactly 1, where two rows are undefined
    means = [_shortcut_gcig(strength) for strength in strengths]
    parts += [
        Marks(names).legend(lower - Marks(names).height - 24),
        text("GCIG", 8, lower - 16, class_="label"),
        x_axis(x, lower, lower + 150, "M"),
        y_axis(y, 52, WIDTH - 14),
        curve(0, [(x(u), y(v)) for u, v in zip(strengths, means, strict=True)]),
        curve(1, [(x(u), y(means[0])) for u in strengths]),
    ]
    description = (
        "The added term leaves the logits of the members unchanged and lowers the logit at the reference. "
        f"With the means as references GCIG falls from {means[0]:.2f} to {means[-1]:.2f} at M = 40; with the "
        "members it does not change."
    )
    return chart(lower + 192, *parts, title="A shortcut to a low GCIG", description=description)


def _shortcut_gcig(strength: float) -> float:
    """Return the GCIG of the shortcut with the means (-1, 0) and (1, 0) as references."""
    rows = np.array([[v, s] for v in (-3.0, 1.0, -1.0, 3.0) for s in (-1.0, 1.0)])
    shares = []
    for mean in (-1.0, 1.0):
        values = np.stack([rows[:, 0] - mean, rows[:, 1] + strength], axis=1)
        shares.append(values / np.abs(values).sum(axis=1, keepdims=True))
    return float(np.linalg.norm(shares[0] - shares[1], axis=1).mean())


def draw() -> dict[str, Markup]:
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
    for name, picture in draw().items():
        (out / f"{name}.svg").write_text(standalone(picture), encoding="utf-8")
        print(out / f"{name}.svg")


if __name__ == "__main__":
    main()
