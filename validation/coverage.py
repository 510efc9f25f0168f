"""Do the 95 % intervals cover? One fixed model per case, truth from many rows, many samples."""

import itertools
import math
import warnings
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

import gcig
from gcig.validity import KnownTruth, generate
from validation.detectors import fit

# A generator with a gap, a varying part and, for the figures that no fault touches, the shifted columns.
_GENERATOR, _STRENGTH, _TRAINED = "two_weights", 0.5, 3000
_TRUTH_ROWS, _TRUTH_SAMPLES = 30_000, 30
MEASURES = [
    *("reason_gap", "reason_gap_common", "reason_gap_varying", "attribute_shift"),
    *("gcig", "gcig_members", "mean_attribution_gap", "reason_size", "effective_columns"),
    *("auc", "accuracy", "outcome_gap", "attribute_effect"),
]
SQUARED = {"reason_gap", "reason_gap_common", "reason_gap_varying"}


def grid(*, full: bool) -> Iterator[dict[str, Any]]:
    """Return the trials: samples of every case in turn, so that a part of them says something about all."""
    models = ("linear", "network", "trees")
    sizes = (300, 1000, 3000, 10_000) if full else (1000, 3000)
    for model, groups in itertools.product(models, (2, 8)):
        for sample in range(_TRUTH_SAMPLES if full else 8):
            yield {"model": model, "groups": groups, "n": _TRUTH_ROWS, "sample": -1 - sample}
    for sample in range(200 if full else 60):
        for model, groups, n in itertools.product(models, (2, 8), sizes):
            if model == "trees" and sample % 3 and not full:
                continue  # explained by Shapley values, three times as long
            yield {"model": model, "groups": groups, "n": n, "sample": sample}


@lru_cache
def model_of(kind: str, groups: int) -> Any:
    """Return the fixed model of a case."""
    return fit(kind, _rows(groups, _TRAINED, 77))


def _rows(groups: int, n: int, seed: int) -> KnownTruth:
    return generate(
        _GENERATOR, n, seed=seed, strength=_STRENGTH, n_groups=groups, share=0.3 if groups == 2 else None
    )


def measure(model: str, groups: int, n: int, sample: int) -> dict[str, Any]:
    """Return the figures of one sample as [value, low, high, p]."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = _rows(groups, n, 1_000 + sample if sample >= 0 else 50_000 - sample)
        found = gcig.evaluate(
            model_of(model, groups),
            rows.X,
            rows.y,
            sensitive_features=pd.Series(rows.groups, name="group"),
            measures=MEASURES,
            n_bootstrap=200,
            random_state=abs(sample),
        )
        coins = np.random.default_rng(sample + 10_000).permutation(rows.groups)
        chance = gcig.evaluate(
            model_of(model, groups),
            rows.X,
            rows.y,
            sensitive_features=pd.Series(coins, name="group"),
            measures=["reason_gap", "reason_gap_varying"],
            n_bootstrap=1,
            random_state=abs(sample),
        )
    return {
        "figures": {each.name: [each.value, each.low, each.high, each.p] for each in found.figures},
        "coins": {each.name: [each.value, each.low, each.high, each.p] for each in chance.figures},
    }


def table(results: list[dict[str, Any]]) -> pd.DataFrame:
    """Return bias and coverage of every figure in every case, and how often coins look like a difference."""
    truths: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    samples: dict[tuple[str, int, int], list[dict[str, Any]]] = defaultdict(list)
    for each in results:
        trial = each["trial"]
        if trial["sample"] >= 0:
            samples[trial["model"], trial["groups"], trial["n"]].append(each)
            continue
        for name, (value, *_) in each["figures"].items():
            truths[trial["model"], trial["groups"]][name].append(_unit(name, value))
    lines = []
    for (model, groups, n), found in sorted(samples.items()):
        for name in MEASURES:
            known = [each["figures"][name] for each in found if not math.isnan(each["figures"][name][1])]
            if not known or name not in truths[model, groups]:
                continue
            truth = float(np.mean(truths[model, groups][name]))
            values = np.array([_unit(name, value) for value, *_ in known])
            inside = [_unit(name, low) <= truth <= _unit(name, high) for _, low, high, _ in known]
            coins = [each["coins"].get(name, [math.nan] * 4)[3] for each in found]
            lines.append(
                {
                    "model": model,
                    "groups": groups,
                    "rows": n,
                    "figure": name,
                    "samples": len(known),
                    "truth": _back(name, truth),
                    "bias": _back(name, float(values.mean())) - _back(name, truth),
                    "coverage": float(np.mean(inside)),
                    "coins p <= 0.05": float(np.mean(np.array(coins) <= 0.05))
                    if name in SQUARED
                    else math.nan,
                }
            )
    return pd.DataFrame(lines)


def _unit(name: str, value: float) -> float:
    """Return the square, with its sign, of figures whose square is unbiased."""
    return math.copysign(value * value, value) if name in SQUARED else value


def _back(name: str, value: float) -> float:
    return math.copysign(math.sqrt(abs(value)), value) if name in SQUARED else value
