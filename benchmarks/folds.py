"""One fold of a table: FairX and the plain network of the same fit, measured on test rows.

Nothing is chosen on test rows. Figures come from `gcig.evaluate`; the panel of explainers that training never
saw is `benchmarks.explainers`.
"""

import copy
import time
import warnings
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from sklearn.metrics import f1_score

import gcig
from benchmarks.explainers import panel
from benchmarks.tables import TABLES, Table

SEED, N_FOLDS = 3, 5
UTILITY = {"binary": "auc", "classes": "accuracy", "number": "r2"}  # what a budget costs is said in it
_GAPS = ("reason_gap", "reason_gap_common", "reason_gap_varying")
_MEANS = tuple(name.replace("gap", "gap_means") for name in _GAPS)
_TRUST = ("effective_columns", "reference_offset", "faithfulness", "attribute_effect", "reason_size")


@dataclass(frozen=True)
class Fitted:
    """FairX, and a copy of it that has the plain network instead."""

    fairx: Any
    plain: Any
    seconds: float  # of processor time


def measure_fold(
    table: str,
    fold: int,
    parameters: dict[str, Any],
    *,
    n_folds: int = N_FOLDS,
    seed: int = SEED,
    fit_seed: int = SEED,
    unseen: bool = True,
) -> dict[str, Any]:
    """Fit FairX on a fold, and measure it and its plain network on the other rows."""
    data = TABLES[table]()
    train, test = data.folds(n_folds, seed)[fold]
    fitted = fit(data, train, {"random_state": fit_seed, **parameters})
    plain = figures(fitted.plain, data, train, test)
    fairx = figures(fitted.fairx, data, train, test, unit=plain["score_spread"])
    model = fitted.fairx
    fairx |= {
        "budget_used": float(model.budget_used_),
        "seconds": fitted.seconds,
        "repaired": bool(model.repaired_),
        "collapsed": bool(model.collapsed_),
        "bounds": {name: bound.status for name, bound in model.bounds_.items()},
    }
    if unseen:
        plain["unseen"] = panel(fitted.plain, data, train, test)
        fairx["unseen"] = panel(fitted.fairx, data, train, test, plain["score_spread"])
    return {"task": data.task, "plain": plain, "fairx": fairx}


def fit(table: Table, train: NDArray[Any], parameters: dict[str, Any]) -> Fitted:
    """Fit FairX with these parameters, and keep its plain network."""
    kept: list[Any] = []

    class Keeping(table.estimator):  # type: ignore[misc,name-defined]
        def _keep_plain_network(self, network: Any) -> None:
            kept.append(self._finish_network(copy.deepcopy(network)))

    model = Keeping(device="cpu", **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the figures show what is wrong with a model
        start = time.process_time()
        model.fit(**table.rows(train))
        seconds = time.process_time() - start
    if not kept:
        raise RuntimeError(
            "FairX no longer hands over its plain network (_keep_plain_network), so nothing can be compared "
            "with it. Adapt benchmarks/folds.py to the estimator."
        )
    plain = copy.copy(model)
    plain.module_ = kept[-1].cpu().eval()
    return Fitted(model, plain, seconds)


def figures(
    model: Any, table: Table, train: NDArray[Any], test: NDArray[Any], unit: float | None = None
) -> dict[str, float]:
    """Return all figures of a model on test rows.

    ``held_out`` is the reason gap as a user gets it: people and references are test rows, apart, and the unit
    is the spread of the model's own score. ``gap_...`` and ``varying_...`` explain test rows relative to
    training rows in units of the model's own spread or of `unit`, whichever is smaller, so that two models
    can be compared.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # training rows as references are intended here
        people = table.rows(test)
        measures = [
            *_GAPS,
            *_MEANS,
            "gcig",
            "gcig_members",
            "score_spread",
            *_TRUST,
            "outcome_gap",
            UTILITY[table.task],
        ]
        measured = gcig.evaluate(
            model, **people, reference=tuple(table.rows(train).values()), measures=measures, n_bootstrap=0
        ).values()
        held_out = gcig.evaluate(model, **people, measures=list(_GAPS), n_bootstrap=0).values()
    spread = measured["score_spread"]
    scale = spread / min(spread, spread if unit is None else unit)
    found = {
        name: float(measured[name]) for name in ("score_spread", "outcome_gap", *_TRUST, UTILITY[table.task])
    }
    for name, of in (("members", _GAPS), ("means", _MEANS)):
        for part, figure in zip(("gap", "common", "varying"), of, strict=True):
            found[f"{part}_{name}"] = scale * float(measured[figure])
            if name == "members":
                found[f"{part}_chance"] = scale * float(measured[f"{figure}_chance"])
    found |= {"gcig_means": float(measured["gcig"]), "gcig_members": float(measured["gcig_members"])}
    found |= {
        "held_out": float(held_out["reason_gap"]),
        "held_out_chance": float(held_out["reason_gap_chance"]),
        "held_out_varying": float(held_out["reason_gap_varying"]),
    }
    if table.task != "number":
        found["macro_f1"] = float(f1_score(people["y"], model.predict(people["X"]), average="macro"))
    return found


def mean(folds: list[dict[str, Any]], which: str, figure: str) -> float:
    """Return the mean of a figure over folds; NaN if it is undefined in one."""
    return float(sum(fold[which].get(figure, float("nan")) for fold in folds) / len(folds))
