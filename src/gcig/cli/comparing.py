"""What a comparison of methods leaves behind: a table on the terminal, JSON, and a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gcig._files import write_whole
from gcig._version import __version__
from gcig.cli.layout import format_table, number

if TYPE_CHECKING:
    from gcig.benchmark.comparison_result import ComparisonResult
    from gcig.records import FoldResult

__all__ = ["PAGE", "comparison_table", "extent", "failures", "plain_comparison", "write_page"]

PAGE = "report.html"
_TUNED = {
    False: "the methods' defaults, or as given",
    True: "chosen by grid search on one split of the rows, some of which are tested later",
    "nested": "chosen by grid search inside the training rows of every fold",
}
_MEASURES = {"AUC": "auc", "F1": "f1", "EO gap": "eo_gap", "GCIG": "gcig"}


def comparison_table(found: ComparisonResult) -> str:
    """A line for each method: mean and standard deviation over the folds; a star where none beats it."""
    from gcig.methods.registry import METHODS

    best = set(found.pareto()["method"])
    rows = []
    for row in found.summary().to_dict("records"):
        remarks = [f"{row[what]} folds {what}" for what in ("failed", "collapsed") if row[what]]
        figures = (_spread(row[name], row[f"{name}_sd"]) for name in _MEASURES.values())
        star = "*" if row["method"] in best else ""
        seconds = "" if math.isnan(row["fit_seconds"]) else f"{row['fit_seconds']:.1f}"
        rows.append((METHODS[row["method"]].label, *figures, seconds, star, ", ".join(remarks)))
    head = ("", *_MEASURES, "seconds", "", "")
    lines = [format_table(head, rows, right_aligned=range(1, 6))]
    if best:
        lines.append("* No other method has a higher AUC, a smaller EO gap and a smaller GCIG all at once.")
    floors = found.summary()["eo_noise_floor"].dropna()
    if len(floors):
        low, high = number(floors.min()), number(floors.max())
        floor = low if low == high else f"{low} to {high}"
        lines.append(f"On test folds of this size even an exactly fair model shows an EO gap of {floor}.")
    return "\n".join(lines)


def _spread(mean: float, deviation: float) -> str:
    """One fold has a mean and no deviation."""
    return number(mean) if math.isnan(deviation) else f"{number(mean)} ± {number(deviation)}"


def failures(results: Sequence[FoldResult]) -> list[str]:
    """A line for each fold that failed."""
    return [
        f"{each.method}, fold {each.fold + 1}, seed {each.seed}: {each.error}"
        for each in results
        if each.error is not None
    ]


def plain_comparison(found: ComparisonResult, page: Path | None) -> dict[str, Any]:
    """The summary as JSON has it."""
    return {
        "schema": 1,
        "kind": "comparison",
        "summary": _plain(found.summary()),
        "pareto": found.pareto()["method"].tolist(),
        "failures": failures(found.results),
        "page": None if page is None else str(page),
    }


def _plain(frame: Any) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = frame.to_dict("records")
    return [
        {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in row.items()
        }
        for row in records
    ]


def extent(found: ComparisonResult) -> str:
    """How many folds stand behind the means, and how many are not finished."""
    asked = found.manifest.configuration
    partitions = len(asked["seeds"])
    whole = f"{asked['folds']} folds" + (f" of each of {partitions} partitions" if partitions > 1 else "")
    done = len(found.results)
    return whole if done >= found.planned else f"{whole}, unfinished: {done} of {found.planned} fits are done"


def write_page(folder: Path, found: ComparisonResult, *, title: str, **foot: str) -> Path:
    """Write the page of a comparison into its folder."""
    from gcig.methods.registry import METHODS
    from gcig.report.comparison_page import comparison_page

    labels: Mapping[str, str] = {key: method.label for key, method in METHODS.items()}
    names = ", ".join(dict.fromkeys(each.dataset for each in found.results))
    page = comparison_page(
        found.results,
        labels=labels,
        title=title,
        subtitle=f"{names}; mean and standard deviation over {extent(found)}",
        foot={**foot, "parameters": _TUNED[found.manifest.configuration["tuned"]], "gcig": __version__},
    )
    write_whole(folder / PAGE, page)
    return folder / PAGE
