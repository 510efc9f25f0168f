"""Every procedural measure, and the verdict, on every generator: figures beside the truth."""

import itertools
import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression

import gcig
from gcig.methods.unconstrained import UnconstrainedClassifier, UnconstrainedRegressor
from gcig.validity import GENERATORS, KnownTruth, generate, known_truth

MODELS = ("true", "network", "linear", "trees")
TASKS = ("binary", "classes", "number")
REASONS = [
    *("reason_gap", "reason_gap_common", "reason_gap_varying", "attribute_shift"),
    *("reason_size", "effective_columns", "faithfulness", "reference_offset"),
]
MEASURES = [
    *REASONS,
    *("gcig", "gcig_chance", "gcig_members", "outcome_gap", "attribute_effect"),
    *("equal_treatment", "mean_attribution_gap", "accuracy", "r2"),
]
_MANY, _SEED_OF_MANY = 100_000, 900_000
# Large opposite weights multiply the noise of a finite population.
_MORE = {"cancelling": 2_000_000}
_TRAINING, _AUDITED = 0, 1  # seeds of rows


def grid(half: str, *, full: bool) -> Iterator[dict[str, Any]]:
    """Return the trials of one half of the generators: the fixed subset, or all."""
    names = [each.name for each in GENERATORS.values() if each.half == half]
    sizes = (300, 1000, 3000, 10_000, 30_000) if full else (300, 3000, 10_000)
    for n, name, task, model in itertools.product(sizes, names, TASKS, MODELS):
        if not full and n == 10_000 and task != "binary":
            continue
        for seed in range(5 if full else 1):
            yield {"generator": name, "task": task, "model": model, "n": n, "strength": 1.0, "seed": seed}


def power_grid(*, full: bool) -> Iterator[dict[str, Any]]:
    """Return trials of the true models of the half for design with less of what they are about."""
    names = ("shifted", "two_weights", "honest_interaction", "protected_column")
    sizes = (300, 1000, 3000, 10_000) if full else (300, 1000, 3000)
    for n, name, strength in itertools.product(sizes, names, (0.0, 0.1, 0.2, 0.4, 0.8)):
        for seed in range(20 if full else 3):
            yield {
                "generator": name,
                "task": "binary",
                "model": "true",
                "n": n,
                "strength": strength,
                "seed": 10 + seed,
            }


def stability_grid(*, full: bool) -> Iterator[dict[str, Any]]:
    """Return trials of the half for design that are audited with twenty seeds each."""
    names = [each.name for each in GENERATORS.values() if each.half == "design"]
    for n, name in itertools.product((1000, 3000, 10_000) if full else (3000,), names):
        for model in MODELS if full else ("network",):
            yield {"generator": name, "task": "binary", "model": model, "n": n}


def audit_with_seeds(generator: str, task: str, model: str, n: int) -> dict[str, Any]:
    """Audit one model on the same rows with twenty seeds; return the codes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = fit(model, generate(generator, n, task=task, seed=2000))
        rows = generate(generator, n, task=task, seed=2001)
        return {"codes": [audit(fitted, rows, None, seed, REASONS).verdict.code for seed in range(20)]}


@lru_cache(maxsize=3)
def many_rows(name: str, task: str, strength: float) -> KnownTruth:
    """Return the rows that stand for the population."""
    return generate(name, _MORE.get(name, _MANY), task=task, seed=_SEED_OF_MANY, strength=strength)


@lru_cache
def truth_of_formula(name: str, task: str, strength: float) -> tuple[Any, Any]:
    """Return the truth about the model that is the formula, which does not depend on training rows."""
    rows = many_rows(name, task, strength)
    return known_truth(rows.model, rows)


def fit(kind: str, rows: KnownTruth, seed: int = 0) -> Any:
    """Return a model of a kind that is trained on rows; the true model is the formula itself."""
    if kind == "true":
        return rows.model
    number, X, y = rows.task == "number", rows.X, rows.y
    if kind == "network":
        network = (UnconstrainedRegressor if number else UnconstrainedClassifier)(random_state=seed)
        return network.fit(X, y, sensitive_features=rows.groups)
    if kind == "linear":
        return (LinearRegression() if number else LogisticRegression(max_iter=1000)).fit(X, y)
    trees = HistGradientBoostingRegressor if number else HistGradientBoostingClassifier
    return trees(max_iter=60, max_leaf_nodes=8, early_stopping=False, random_state=seed).fit(X, y)


def detect(
    generator: str, task: str, model: str, n: int, strength: float, seed: int, audit_seed: int = 0
) -> dict[str, Any]:
    """Audit one model without and with a declaration; return figures, verdicts and the truth."""
    made = GENERATORS[generator]
    rows = [
        generate(generator, n, task=task, seed=2 * seed + which, strength=strength)
        for which in (_TRAINING, _AUDITED)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = fit(model, rows[_TRAINING], seed)
        if model == "true":
            truths = truth_of_formula(generator, task, strength)
        else:
            truths = known_truth(fitted, many_rows(generator, task, strength))
        found = audit(fitted, rows[_AUDITED], None, audit_seed, MEASURES)
        names = [name for name in made.legitimate if name in made.columns]
        declared = audit(fitted, rows[_AUDITED], names, audit_seed, REASONS)
    return {
        "plain": {**described(found), "truth": truth_of(truths[0])},
        "declared": {**described(declared), "truth": truth_of(truths[1])},
    }


def audit(model: Any, rows: KnownTruth, legitimate: list[str] | None, seed: int, measures: list[str]) -> Any:
    """Audit a model on rows."""
    number = rows.task == "number"
    known = [name for name in measures if name not in (("accuracy",) if number else ("r2",))]
    columns = ["reason_gap_varying_columns", "reason_gap_common_columns"]
    return gcig.audit(
        model,
        rows.X,
        rows.y,
        sensitive_features=pd.Series(rows.groups, name="group"),
        task=rows.task,
        legitimate=legitimate,
        measures=[*known, *columns],
        n_bootstrap=50,
        random_state=seed,
    )


def described(found: gcig.AuditResult) -> dict[str, Any]:
    """Return figures as [value, low, high, p], and the verdict."""
    figures = {each.name: [each.value, each.low, each.high, each.p] for each in found.evaluation.figures}
    chance = {each.name: each.chance for each in found.evaluation.figures if each.chance == each.chance}
    verdict = found.verdict
    return {
        "figures": figures,
        "chance": chance,
        "code": verdict.code,
        "cause": verdict.cause,
        "detectable": verdict.detectable,
        "red_flags": verdict.red_flags,
        "collapsed": found.collapsed,
        "columns": list(verdict.columns)[:3],
    }


def truth_of(truth: Any) -> Mapping[str, Any]:
    """Return the truth as plain values."""
    return {
        "reach": truth.reach,
        "standards": truth.standards,
        "shift": truth.shift,
        "switched": truth.switched,
        "code": truth.code,
        "right": sorted(truth.right),
    }
