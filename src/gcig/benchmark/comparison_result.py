"""Result of a comparison: tables, the Pareto front of the methods, and a plot."""

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Self

import pandas as pd

from gcig.benchmark.manifest import Manifest, write_provenance
from gcig.benchmark.results import csv_text, pooled, result_order, results_frame, summary, write_results
from gcig.benchmark.run_files import write_file
from gcig.benchmark.selection import Choice
from gcig.benchmark.store import RunStore
from gcig.benchmark.trials import Trial
from gcig.methods.registry import METHODS
from gcig.records import FoldResult
from gcig.records.formatting import html_table, shown
from gcig.report.charts.svg import standalone
from gcig.report.charts.trade_off import TradeOff, pareto, pareto_front

__all__ = ["ComparisonResult", "Picture"]

_SHOWN = ("f1", "auc", "balanced_accuracy", "eo_gap", "gcig", "fit_seconds")


@dataclass(frozen=True, repr=False)
class Picture:
    """An SVG picture that notebooks display."""

    svg: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to an SVG file."""
        write_file(Path(path), self.svg)

    def _repr_svg_(self) -> str:
        return self.svg


@dataclass(frozen=True, eq=False, repr=False)
class ComparisonResult:
    """The results of a comparison of methods.

    Attributes
    ----------
    results : one record per table, method, fold and seed, with out-of-fold predictions.
    trials : the trials behind the results, in the same order.
    choices : the parameters chosen by tuning, if it was requested.
    manifest : the data, configuration, code and versions of the run.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german", include_sensitive=False)
    >>> found = gcig.compare(
    ...     data.X,
    ...     data.y,
    ...     sensitive_features=data.sensitive_features,
    ...     methods=["unconstrained", "hardt"],
    ...     folds=2,
    ...     parameters={"unconstrained": {"max_epochs": 2}, "hardt": {"max_epochs": 2}},
    ... )
    >>> found.frame[["method", "fold"]].values.tolist()
    [['unconstrained', 0], ['unconstrained', 1], ['hardt', 0], ['hardt', 1]]
    >>> found.summary()["method"].tolist(), len(found.pooled())
    (['unconstrained', 'hardt'], 2)
    """

    results: tuple[FoldResult, ...]
    trials: tuple[Trial, ...]
    choices: tuple[Choice, ...] = ()
    manifest: Manifest = field(default_factory=lambda: Manifest.current({}, {}))

    @classmethod
    def from_store(cls, store: RunStore) -> Self:
        """Collect all finished folds in the folder of a comparison, whichever process ran them."""
        entries = [entry for entry in store.entries() if entry[0].role == "test"]
        entries.sort(key=lambda entry: result_order(entry[1]))
        trials, results = zip(*entries, strict=True) if entries else ((), ())
        return cls(results, trials, manifest=store.manifest)

    @property
    def planned(self) -> int:
        """The number of folds of the complete run; if unknown, the number of available results."""
        asked, tables = self.manifest.configuration, len(self.manifest.data)
        if not {"methods", "seeds", "folds"} <= asked.keys():
            return len(self.results)
        return tables * len(asked["methods"]) * len(asked["seeds"]) * int(asked["folds"])

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The results table: one row per fold, with the columns of results.csv."""
        return results_frame(self.results)

    def summary(self) -> pd.DataFrame:
        """Return mean and standard deviation of every measure per method."""
        return summary(self.frame)

    def pooled(self) -> pd.DataFrame:
        """Return EO gap with its noise floor, AUC and F1 of the pooled out-of-fold predictions per method."""
        return pooled(self.results)

    def pareto(self) -> pd.DataFrame:
        """Return the methods that no other method on the same table dominates in AUC, EO gap and GCIG.

        The criteria are means over the folds; methods with a collapsed or failed fold are left out.
        """
        means = self.summary()
        means = means[(means["collapsed"] == 0) & (means["failed"] == 0)]
        parts = [
            part[pareto_front(list(zip(part["auc"], -part["eo_gap"], -part["gcig"], strict=True)))]
            for _, part in means.groupby("dataset", sort=False)
        ]
        columns = ["dataset", "method", "variant", "auc", "eo_gap", "gcig"]
        return pd.concat(parts or [means])[columns].reset_index(drop=True)

    def plot(self) -> "Picture":
        """Plot AUC against GCIG and against the EO gap, one point per method."""
        svg = pareto(
            [
                TradeOff(
                    _label(row["method"]),
                    row["auc"],
                    row["gcig"],
                    row["eo_gap"],
                    name=row["variant"],
                    collapsed=bool(row["collapsed"]),
                )
                for row in self.summary().to_dict("records")
            ]
        )
        return Picture(standalone(svg))

    def save(self, out: str | os.PathLike[str]) -> None:
        """Write results.csv, summary.csv, pooled.csv and provenance.json into a folder."""
        folder = Path(out)
        write_results(self.frame, folder / "results.csv")
        write_file(folder / "summary.csv", csv_text(self.summary()))
        write_file(folder / "pooled.csv", csv_text(self.pooled()))
        write_provenance(folder / "provenance.json", self.trials, self.manifest)

    def __repr__(self) -> str:
        header, *rows = self._table()
        widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
        lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in (header, *rows))
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        header, *rows = self._table()
        return html_table(header, rows)

    def _table(self) -> list[tuple[str, ...]]:
        """Return a header and one line per method: means, deviations, failed and collapsed folds."""
        means = self.summary()
        several = means["dataset"].nunique() > 1
        table = [(*(["dataset"] if several else []), "method", *_SHOWN, "notes")]
        for row in means.to_dict("records"):
            notes = [f"{row[what]} {what}" for what in ("failed", "collapsed") if row[what]]
            name = " ".join(filter(None, (_label(row["method"]), row["variant"])))
            figures = (f"{shown(row[measure])} ± {shown(row[f'{measure}_sd'])}" for measure in _SHOWN)
            table.append((*([row["dataset"]] if several else []), name, *figures, ", ".join(notes)))
        return table


def _label(method: str) -> str:
    return METHODS[method].label if method in METHODS else method
