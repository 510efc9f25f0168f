"""Does a method mend the fault or the figure? Every method on the generators, with the truth."""

import itertools
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch

import gcig
from gcig.adapters import call_with_groups
from gcig.methods import METHODS
from gcig.validity import GENERATORS, KnownTruth, generate, known_truth
from validation.detectors import described, many_rows, truth_of

# Settings of FairX beside its defaults; the paper's weights are those of its reproduction on most tables.
_SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("unconstrained", {}),
    "fairx": ("fairx", {}),
    "fairx, no term for standards": ("fairx", {"standards_weight": 0.0}),
    "fairx, budget 0.1": ("fairx", {"budget": 0.1}),
    "paper": ("fairx-paper", {"lambda_ig": 0.3, "lambda_fair": 0.1}),
    **{key: (key, {}) for key in ("dir", "hardt", "agarwal", "lagrangian", "adversarial")},
}
_OURS = ("plain", "fairx", "fairx, no term for standards", "paper")
_FIRST = ("two_weights", "shifted", "proxy_interaction", "proxy", "protected_column", "nothing")
_ROWS, _DECIDED = 3000, 20_000
_MEASURES = [
    *("reason_gap", "reason_gap_common", "reason_gap_varying", "attribute_shift", "reason_size"),
    *("effective_columns", "faithfulness", "reference_offset", "gcig", "outcome_gap", "auc", "r2"),
]


def grid(*, full: bool) -> Iterator[dict[str, Any]]:
    """Return the trials: generators whose fault is known first."""
    rest = [name for name in GENERATORS if name not in _FIRST]
    tasks = ("binary", "classes", "number") if full else ("binary",)
    names = (*_FIRST, *rest) if full else _FIRST
    others = [method for method in _SETTINGS if method not in _OURS]
    for seed, task, methods in itertools.product(range(3 if full else 1), tasks, (_OURS, others)):
        for name, method in itertools.product(names, methods):
            if task in METHODS[_SETTINGS[method][0]].tasks:
                yield {"generator": name, "task": task, "method": method, "seed": seed}


def measure(generator: str, task: str, method: str, seed: int) -> dict[str, Any]:
    """Train one method; return the true fault, the figures on held-out rows, and utility."""
    key, options = _SETTINGS[method]
    train, test = (generate(generator, _ROWS, task=task, seed=4000 + 2 * seed + which) for which in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = METHODS[key].estimator_for(task)(random_state=seed, **options)
        model.fit(train.X, train.y, sensitive_features=train.groups)
        truth, declared = known_truth(model, many_rows(generator, task, 1.0))
        utility = {"number": ("r2",)}.get(task, ("auc",))
        names = [name for name in _MEASURES if name not in {"r2", "auc"} - set(utility)]
        found = gcig.audit(
            model,
            test.X,
            test.y,
            sensitive_features=pd.Series(test.groups, name="group"),
            task=task,
            measures=names,
            n_bootstrap=50,
        )
        unfair = distance_from_fair(model, generator, task)
    return {
        "plain": {**described(found), "truth": truth_of(truth)},
        "declared": truth_of(declared),
        "unfair": unfair,
        "budget_used": float(getattr(model, "budget_used_", math.nan)),
    }


def distance_from_fair(model: Any, generator: str, task: str) -> float:
    """Return how far decisions lie from those of the fair model: the formula without its fault.

    The share of decisions that differ; of numbers the root mean square difference in standard deviations.
    """
    rows = generate(generator, _DECIDED, task=task, seed=8_000)
    decided = np.asarray(call_with_groups(model.predict, rows.X, rows.groups), dtype=np.float64)
    fair = _decisions(fair_model(generator, task), rows)
    if task == "number":
        return float(np.sqrt(((decided - fair) ** 2).mean()) / fair.std())
    return float((decided != fair).mean())


def fair_model(generator: str, task: str) -> Any:
    """Return the formula without its fault; a generator without a known fault is fair as it is."""
    has_fault = bool(GENERATORS[generator].switches)
    return generate(generator, 2, task=task, strength=0.0 if has_fault else 1.0).model


def _decisions(model: Any, rows: KnownTruth) -> np.ndarray:
    with torch.no_grad():
        outputs = model(torch.tensor(rows.X.to_numpy())).double().numpy()
    if rows.task == "number":
        return np.asarray(outputs)
    return np.asarray((outputs > 0) if rows.task == "binary" else outputs.argmax(1), dtype=np.float64)


def table(results: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the true fault, the figures and utility of every method on every generator."""
    lines = []
    for each in results:
        figures, truth = each["plain"]["figures"], each["plain"]["truth"]

        def of(name: str, figures: dict[str, Any] = figures) -> float:
            return float(figures.get(name, [math.nan])[0])

        lines.append(
            {name: each["trial"][name] for name in ("generator", "task", "method", "seed")}
            | {name: truth[name] for name in ("standards", "shift", "switched", "reach")}
            | {"open reach": each["declared"]["reach"], "unfair decisions": each["unfair"]}
            | {name: of(name) for name in ("gcig", "reason_gap", "reason_gap_common", "reason_gap_varying")}
            | {name: of(name) for name in ("reason_size", "effective_columns", "outcome_gap", "auc", "r2")}
            | {"budget used": each["budget_used"], "verdict": each["plain"]["code"]}
        )
    return pd.DataFrame(lines)
