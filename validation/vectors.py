"""Test vectors of the specification: inputs, and the values of the NumPy reference implementations."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from validation.store import ROOT

REFERENCE = ROOT / "docs" / "specification"
VECTORS = ROOT / "src" / "gcig" / "validity" / "vectors"
_DIGITS = 4


def reference(name: str) -> Callable[[str], Any]:
    """Return the functions of one page of the specification, by name."""
    return runpy.run_path(str(REFERENCE / f"{name}.py")).__getitem__


def _normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).round(_DIGITS)


def _gcig(rng: np.random.Generator) -> list[dict[str, Any]]:
    of, cases = reference("gcig"), []
    shares = np.array([0.5, 0.25, 0.25])
    for task, width in (("binary", 1), ("classes", 3), ("number", 1)):
        outputs, labels = _normal(rng, 6, width), np.array([0, 1, 2, 2, 1, 0])
        if task != "classes":
            labels = labels % 2
        inputs = {"task": task, "outputs": outputs, "labels": labels, "shares": shares}
        found = of("explained_score")(outputs, labels, task, shares)
        cases.append({"name": f"score, {task}", "inputs": inputs, "values": {"score": found}})
    for groups in (2, 3):
        a = _normal(rng, groups, 8, 4)
        a[0, 3] = 0  # a row whose attributions vanish is left out
        values = {"gcig": of("gcig")(a), "gcig_l2": of("gcig")(a, norm=2)}
        values["disparity"] = of("disparity")(a)
        cases.append({"name": f"GCIG, {groups} groups", "inputs": {"attributions": a}, "values": values})
    return cases


def _references(rng: np.random.Generator) -> list[dict[str, Any]]:
    of = reference("references")
    x, groups = _normal(rng, 60, 3), np.arange(60) % 3
    labels, numbers = rng.integers(0, 2, 60), _normal(rng, 60)
    numbers[groups == 2] = np.abs(numbers[groups == 2])  # outside of its range a group's curve is clamped
    tied = np.repeat(np.arange(6.0), 10)  # equal labels share a bin
    edges, centres = of("bins_of")(numbers)
    return [
        {
            "name": "means of classes",
            "inputs": {"task": "binary", "x": x, "labels": labels, "groups": groups},
            "values": {"means": of("means_of_classes")(x, labels, groups)},
        },
        {
            "name": "curves of numbers",
            "inputs": {"task": "number", "x": x, "labels": numbers, "groups": groups},
            "values": {
                "edges": edges,
                "centres": centres,
                "means": of("means_of_numbers")(x, numbers, groups),
            },
        },
        {
            "name": "curves of tied numbers",
            "inputs": {"task": "number", "x": x, "labels": tied, "groups": groups},
            "values": {
                "edges": of("bins_of")(tied)[0],
                "centres": of("bins_of")(tied)[1],
                "means": of("means_of_numbers")(x, tied, groups),
            },
        },
    ]


def _members(rng: np.random.Generator) -> list[dict[str, Any]]:
    of = reference("members")
    people, references = _normal(rng, 4, 4), _normal(rng, 6, 4)
    weights, origin, spread = _normal(rng, 4), np.array([0, 1, 1, 2]), 1.5
    legitimate, donors = np.array([True, False, False, False]), np.array([3, 1, 0, 5])

    def gradient(points: np.ndarray) -> np.ndarray:  # of w x + x_0 x_3 + sin(x_1)
        found = np.tile(weights, (len(points), 1))
        found[:, 0] += points[:, 3]
        found[:, 3] += points[:, 0]
        found[:, 1] += np.cos(points[:, 1])
        return found

    inputs = {
        "formula": "weights @ x + x[0] * x[3] + sin(x[1])",
        "weights": weights,
        "people": people,
        "references": references,
        "origin": origin,
        "spread": spread,
    }
    declared = {"legitimate": legitimate, "donors": donors}
    return [
        {
            "name": name,
            "inputs": inputs | more,
            "values": {"table": of("table_of")(gradient, people, references, origin, spread, **more)},
        }
        for name, more in (("a table", {}), ("the same, the first column legitimate", declared))
    ]


def _reason_gap(rng: np.random.Generator) -> list[dict[str, Any]]:
    of, cases = reference("reason_gap"), []
    scores = _normal(rng, 25)
    cases.append({"name": "spread", "inputs": {"scores": scores}, "values": {"spread": of("spread")(scores)}})
    for n_groups in (2, 3):
        tables = [_normal(rng, 18, 12, 3) * 0.2 for _ in range(2)]
        groups = [np.arange(18) % n_groups, rng.permutation(18) % n_groups]
        groups[0][:2] = -1  # a reference in no group
        for table, codes in zip(tables, groups, strict=True):
            table[:, :, 0] += 0.4 * codes[:, None]
            table[:, ::2, 1] += 0.3 * codes[:, None]
        shares = [0.4, 0.6]
        cases.append(
            {
                "name": f"{n_groups} groups",
                "inputs": {"tables": [t.round(_DIGITS) for t in tables], "groups": groups, "shares": shares},
                "values": {
                    "gap_common_varying": of("reason_gap")([t.round(_DIGITS) for t in tables], groups, shares)
                },
            }
        )
    additive = (_normal(rng, 12, 1, 3) + _normal(rng, 1, 10, 3)).round(_DIGITS)
    codes = np.arange(12) % 2
    cases.append(
        {
            "name": "an additive model has no varying part",
            "inputs": {"tables": [additive], "groups": [codes], "shares": [1.0]},
            "values": {"gap_common_varying": of("reason_gap")([additive], [codes], [1.0])},
        }
    )
    return cases


def _chance(rng: np.random.Generator) -> list[dict[str, Any]]:
    of, squares = reference("chance"), reference("reason_gap")("squared_parts")
    table, groups = (0.3 * _normal(rng, 24, 20, 2)).round(_DIGITS), np.arange(24) % 2
    table[:, :, 0] += 0.2 * groups[:, None]
    permutations = np.array([rng.permutation(24) for _ in range(19)])
    p, chance = of("by_chance")(squares, table, groups, permutations)
    return [
        {
            "name": "two groups",
            "inputs": {"table": table, "groups": groups, "permutations": permutations},
            "values": {"p": p, "chance": chance, "limits": of("interval")(squares, table, groups)},
        }
    ]


def _outcome_gaps(rng: np.random.Generator) -> list[dict[str, Any]]:
    of, cases = reference("outcome_gaps"), []
    groups = np.arange(60) % 3
    for classes in (2, 3):
        labels, decisions = rng.integers(0, classes, 60), rng.integers(0, classes, 60)
        cases.append(
            {
                "name": f"{classes} classes",
                "inputs": {
                    "task": "classes",
                    "labels": labels,
                    "predictions": decisions,
                    "groups": groups,
                },
                "values": {"outcome_gap": of("outcome_gap_of_classes")(labels, decisions, groups)},
            }
        )
    labels, predictions = _normal(rng, 60), _normal(rng, 60)
    edges = reference("references")("bins_of")(labels, 5)[0]
    cases.append(
        {
            "name": "numbers",
            "inputs": {"task": "number", "labels": labels, "predictions": predictions, "groups": groups},
            "values": {
                "edges": edges,
                "outcome_gap": of("outcome_gap_of_numbers")(labels, predictions, groups, edges),
            },
        }
    )
    return cases


_CASES: dict[str, Callable[[np.random.Generator], list[dict[str, Any]]]] = {
    "gcig": _gcig,
    "references": _references,
    "members": _members,
    "reason_gap": _reason_gap,
    "chance": _chance,
    "outcome_gaps": _outcome_gaps,
}


def cases_of(definition: str) -> list[dict[str, Any]]:
    """Return the cases of one definition as plain values."""
    found: list[dict[str, Any]] = _plain(_CASES[definition](np.random.default_rng(20_260)))
    return found


def write(folder: Path = VECTORS) -> None:
    """Write the vectors of all definitions."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _CASES:
        text = json.dumps({"definition": name, "cases": cases_of(name)}, allow_nan=False)
        (folder / f"{name}.json").write_text(text + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float | np.floating):
        return round(float(value), 10)
    return value.item() if isinstance(value, np.generic) else value
