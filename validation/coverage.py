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
import torch

import gcig
from gcig.core.explained import REACH, Block, ExplainedTable, choose, jackknife_variance
from gcig.core.gap import signed_root, spread
from gcig.validity import KnownTruth, generate
from validation.detectors import fit

# A generator with a gap, a varying part and, for the figures that no fault touches, the shifted columns.
_GENERATOR, _STRENGTH, _TRAINED = "two_weights", 0.5, 3000
_TRUTH_ROWS, _TRUTH_SAMPLES = 30_000, 30
_SHARPNESS = 1.5  # of labels of two classes
MEASURES = [
    *("reason_gap", "reason_gap_common", "reason_gap_varying", "attribute_shift"),
    *("gcig", "gcig_members", "mean_attribution_gap", "reason_size", "effective_columns"),
    *("auc", "accuracy", "outcome_gap", "attribute_effect"),
]
SQUARED = {"reason_gap", "reason_gap_common", "reason_gap_varying"}


def grid(*, full: bool) -> Iterator[dict[str, Any]]:
    """Return the trials: samples of every case in turn, so that a part of them says something about all."""
    for groups, sample in itertools.product((2, 8), range(-_TRUTH_SAMPLES, 0)):
        yield {"model": "formula", "groups": groups, "n": _TRUTH_ROWS, "sample": sample}
    for sample, groups, n in itertools.product(
        range(1000 if full else 200), (2, 8), (300, 1000, 3000, 10_000)
    ):
        yield {"model": "formula", "groups": groups, "n": n, "sample": sample}
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


def explain_formula(rows: KnownTruth) -> tuple[ExplainedTable, torch.Tensor]:
    """Return the table of attributions of the formula, and the references' groups, without quadrature.

    A product c u v is divided into c (u - u') (v + v') / 2 for u, and the same with u and v exchanged for v.
    """
    x = torch.tensor(rows.X.to_numpy()).double()
    side = 0.6 * _STRENGTH
    weights = _SHARPNESS * torch.tensor([1.0, 1.0, 0.7, 0.5, -0.5, 0.0], dtype=torch.double)
    products = ((0, _SHARPNESS * side), (1, -_SHARPNESS * side))  # of these columns with the last one
    scores = x @ weights + sum(c * x[:, j] * x[:, 5] for j, c in products)
    unit, codes = float(spread(scores)), np.unique(rows.groups, return_inverse=True)[1]
    people, references = choose(rows.y, codes, np.arange(len(x), dtype=np.uint64), 100, 1600)
    blocks = []
    for own, others in zip(people, references, strict=True):
        to, start = x[torch.from_numpy(own)], x[torch.from_numpy(others)].unsqueeze(1)
        a = weights * (to - start)
        for j, c in products:
            a[..., j] += c * (to - start)[..., j] * (to + start)[..., 5] / 2
            a[..., 5] += c * (to - start)[..., 5] * (to + start)[..., j] / 2
        ones = torch.ones(len(others), dtype=a.dtype), torch.ones(len(own), dtype=a.dtype)
        places = torch.from_numpy(others), torch.from_numpy(own)
        blocks.append(Block(float((rows.y == len(blocks)).mean()), a / unit, *places, *ones))
    return ExplainedTable(tuple(blocks), unit), torch.from_numpy(codes)


def measure_formula(rows: KnownTruth, groups: int, *, intervals: bool) -> dict[str, Any]:
    """Return the reason gap and its parts with intervals, without the permutations that p needs."""
    table, codes = explain_formula(rows)
    table = table.compared(codes, groups)
    if not table.blocks:
        return {"figures": {}, "coins": {}}
    gap, varying = table.squares(codes, groups)
    squares = torch.stack([gap, gap - varying, varying])
    reach = (
        REACH * jackknife_variance(table.replicates(codes, groups)).sqrt()
        if intervals
        else squares * math.nan
    )
    ends = (signed_root(each).tolist() for each in (squares, squares - reach, squares + reach))
    figures = {name: [*each, math.nan] for name, *each in zip(sorted(SQUARED), *ends, strict=True)}
    return {"figures": figures, "coins": {}}


def measure(model: str, groups: int, n: int, sample: int) -> dict[str, Any]:
    """Return the figures of one sample as [value, low, high, p]."""
    if model == "formula":
        seed = 1_000 + sample if sample >= 0 else 50_000 - sample
        return measure_formula(_rows(groups, n, seed), groups, intervals=sample >= 0)
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


def table(results: list[dict[str, Any]], least: int = 50) -> pd.DataFrame:
    """Return bias and coverage of every figure in cases with enough samples, and how often coins look like
    a difference.
    """
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
            measured = [each["figures"][name] for each in found if name in each["figures"]]
            known = [each for each in measured if not math.isnan(each[1])]
            if len(known) < least or name not in truths[model, groups]:
                continue
            truth = float(np.mean(truths[model, groups][name]))
            values = np.array([_unit(name, value) for value, *_ in known])
            inside = [_unit(name, low) <= truth <= _unit(name, high) for _, low, high, _ in known]
            coins = [each["coins"][name][3] for each in found if name in each["coins"]]
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
                    "coins p <= 0.05": float(np.mean(np.array(coins) <= 0.05)) if coins else math.nan,
                }
            )
    return pd.DataFrame(lines)


def _unit(name: str, value: float) -> float:
    """Return the square, with its sign, of figures whose square is unbiased."""
    return math.copysign(value * value, value) if name in SQUARED else value


def _back(name: str, value: float) -> float:
    return math.copysign(math.sqrt(abs(value)), value) if name in SQUARED else value
