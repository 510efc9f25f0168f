"""Results as tables: one row per fold as in results.csv, means, and figures of pooled predictions."""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from gcig.benchmark.trials import TRIAL_FIELDS, canonical_json
from gcig.methods.registry import METHODS
from gcig.metrics.measure import MEASURES, load_measures
from gcig.metrics.predictions import evaluate_arrays
from gcig.records import Evaluation, FoldResult
from gcig.tables.check import Groups
from gcig.tables.names import guard_formula

_FIRST = ("dataset", "method", "fold", "seed")
_LAST = ("collapsed", "fit_seconds", "parameters", "variant", "repeat", "threshold", "n_rows", "error",
         "n_warnings")  # fmt: skip
_BY = ["dataset", "method", "variant"]


def measures_of(results: Iterable[FoldResult]) -> list[str]:
    """Return the names of the figures of some results, in the order of the registry of measures."""
    load_measures()
    found = {
        each.name for result in results if result.evaluation is not None for each in result.evaluation.figures
    }
    known = [name for name in MEASURES if name in found]
    return [*known, *sorted(found - set(known))]


def results_frame(results: Iterable[FoldResult]) -> pd.DataFrame:
    """Return one row per result, with one column per measure, in an order set by the content alone.

    A failed trial has NaN for every measure and its ``error``; otherwise ``error`` is missing. Methods are
    in the order of the registry.
    """
    ordered = sorted(results, key=result_order)
    measures = measures_of(ordered)
    rows = [_row(result, measures) for result in ordered]
    frame = pd.DataFrame(rows, columns=[*_FIRST, *measures, *_LAST])
    types = dict.fromkeys((*measures, "fit_seconds", "threshold"), "float64")
    types |= dict.fromkeys(("fold", "seed", "repeat"), "int64")
    types |= {"collapsed": "boolean", "n_rows": "Int64"}
    return frame.astype(types)


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Return mean and standard deviation (``_sd``) of every measure per dataset, method and variant.

    Failed results are left out of the means. Columns also count the folds that finished, failed and
    collapsed.
    """
    names = [name for name in frame.columns if name not in (*_FIRST, *_LAST)] + ["fit_seconds"]
    grouped = frame.groupby(_BY, sort=False)
    means, deviations = grouped[names].mean(), grouped[names].std(ddof=1).add_suffix("_sd")
    counts = pd.DataFrame(
        {
            "folds": grouped["error"].agg(lambda errors: int(errors.isna().sum())),
            "failed": grouped["error"].agg(lambda errors: int(errors.notna().sum())),
            "collapsed": grouped["collapsed"].agg(lambda flags: int(flags.fillna(False).sum())),
        }
    )
    columns = [column for name in names for column in (name, f"{name}_sd")]
    return counts.join(means.join(deviations)[columns]).reset_index()


def pooled(results: Iterable[FoldResult]) -> pd.DataFrame:
    """Return figures of the pooled out-of-fold predictions per dataset, method and variant.

    The folds of one seed and repeat are pooled; several seeds and repeats are averaged. On small tables the
    outcome gap of a single fold is mostly noise (``eo_noise_floor``), and the pooled one less so.
    """
    rows = []
    for by, members in groupby(
        sorted(results, key=result_order), key=lambda r: (r.dataset, r.method, r.variant)
    ):
        own = [result for result in members if result.predictions]
        passes = sorted({(result.seed, result.repeat) for result in own})
        found = [_pooled([r for r in own if (r.seed, r.repeat) == each]) for each in passes]
        names = dict.fromkeys(figure.name for each in found for figure in each.figures)
        figures = {name: float(np.mean([each[name] for each in found])) for name in names}
        n_rows = found[0].n_rows if found else 0
        rows.append({**dict(zip(_BY, by, strict=True)), "folds": len(own), "n_rows": n_rows, **figures})
    return pd.DataFrame(rows)


def result_order(result: FoldResult) -> tuple[Any, ...]:
    """Return the sort key of a result in tables; it depends on the content alone."""
    known = list(METHODS)
    rank = known.index(result.method) if result.method in known else len(known)
    place = (result.dataset, rank, result.method, result.variant)
    return (*place, result.seed, result.fold, result.repeat, canonical_json(dict(result.parameters)))


def method_label(key: str) -> str:
    """Return a method's name in tables: the paper's if it has one."""
    return METHODS[key].label if key in METHODS else key


def csv_text(frame: pd.DataFrame) -> str:
    """Return a table as CSV: floats read back exactly, and no spreadsheet evaluates the text."""
    safe = frame.copy()
    for name in safe.columns:
        if safe[name].dtype.kind not in "biuf" and safe[name].dtype.name not in ("boolean", "Int64"):
            safe[name] = safe[name].map(_guard)
    return safe.rename(columns=_guard).to_csv(index=False, lineterminator="\n")


def _guard(value: Any) -> Any:
    return guard_formula(value) if isinstance(value, str) else value


def _row(result: FoldResult, measures: Sequence[str]) -> dict[str, Any]:
    measured = {} if result.evaluation is None else result.evaluation.scalars()
    return {
        **{name: measured.get(name, math.nan) for name in measures},
        **{name: measured.get(name) for name in ("collapsed", "threshold", "n_rows")},
        **{name: getattr(result, name) for name in TRIAL_FIELDS},
        "fit_seconds": result.fit_seconds,
        "parameters": canonical_json(dict(result.parameters)),
        "error": result.error,
        "n_warnings": len(result.warnings),
    }


def _pooled(results: Sequence[FoldResult]) -> Evaluation:
    def column(name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.concatenate([np.asarray(result.predictions[name]) for result in results])

    groups = column("group").astype(np.int64)
    names = tuple(map(str, range(int(groups.max()) + 1)))
    evaluation = results[0].evaluation
    task: Any = "binary" if evaluation is None else evaluation.task
    outputs = sorted(name for name in results[0].predictions if name.startswith("score"))
    labels: Any = column("label") if task == "number" else column("label").astype(np.int64)
    return evaluate_arrays(
        labels,
        np.column_stack([column(name) for name in outputs]),
        column("prediction"),
        Groups(groups, names, ("group",)),
        None,
        threshold=math.nan,
        probabilistic=False,
        min_cell=1,
        task=task,
    )
