"""RQ1: on how many datasets a method wins, loses and is champion, ours beside the paper's count."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from gcig.benchmark.statistics import tally
from gcig.experiments.paper import PAPER_DATASETS, printed_means, printed_tally
from gcig.experiments.summary import HIGHER, LABELS, means, method_label
from gcig.report.tables import Table, Value

__all__ = ["COUNTED", "FAIRX", "wins_table"]

FAIRX = "fairx"
COUNTED = ("gcig", "eo_gap", "f1")  # the metrics of the paper's main table


def wins_table(frame: pd.DataFrame, datasets: Sequence[str], methods: Sequence[str]) -> Table:
    """Wins, losses and championships: ours on the paper's datasets and on all, and the paper's twice."""
    in_paper = [name for name in PAPER_DATASETS if name in datasets]
    rows: list[tuple[Value, ...]] = []
    for metric in COUNTED:
        counts = _counts(frame, metric, in_paper, datasets, methods)
        rows += [
            (LABELS[metric], method_label(m), *(_triple(each, m) for each in counts.values()))
            for m in methods
        ]
    return Table(
        ("metric", "method", "ours", "ours, all", "paper", "paper, recounted"),
        rows,
        caption="Win / loss / champion, counted in datasets",
        notes=(
            "A method's win is a dataset on which it beats FairX; FairX's own line compares it with the best "
            "of the others. Means are not rounded; means equal to 1e-9 tie, which is neither; champions are "
            "shared.",
            f"ours: {', '.join(in_paper)}. ours, all: {', '.join(datasets)}. paper: as printed. paper, "
            "recounted: from the rounded means in the paper's own main table by the same rules.",
        ),
    )


def _counts(
    frame: pd.DataFrame,
    metric: str,
    in_paper: Sequence[str],
    datasets: Sequence[str],
    methods: Sequence[str],
) -> dict[str, pd.DataFrame]:
    lower = metric not in HIGHER
    found: dict[str, pd.DataFrame] = {}
    for source, names in (("ours", in_paper), ("ours, all", datasets)):
        averages = means(frame, metric, datasets=names, methods=methods)
        found[source] = tally(averages, against=FAIRX, lower_is_better=lower)
    found["paper"] = printed_tally(metric)
    found["paper, recounted"] = tally(printed_means(metric), against=FAIRX, lower_is_better=lower)
    return found


def _triple(counts: pd.DataFrame, method: str) -> str:
    if method not in counts.index:
        return "-"
    row: Any = counts.loc[method]
    return f"{row['win']} / {row['loss']} / {row['champion']}"
