"""Tables and one picture from the results: what finds what, and how often the verdict is right."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score, roc_curve

from gcig.auditing.verdict import judge
from gcig.records import Evaluation
from gcig.records.evaluation import Figure
from gcig.records.verdict import VERDICTS
from gcig.validity import GENERATORS, Truth
from validation import coverage, methods, store

Rows = list[dict[str, Any]]
_FALSE_ALARMS = 0.05  # of a detector on the half for design, which sets its threshold


def _figure(name: str, part: int = 0) -> Callable[[dict[str, Any]], float]:
    return lambda found: found["figures"].get(name, [math.nan] * 4)[part]


def _above_chance(found: dict[str, Any]) -> float:
    return _figure("gcig")(found) - _figure("gcig_chance")(found)


def _or_zero(name: str) -> Callable[[dict[str, Any]], float]:
    """Return a figure that is not measured if the group is not among the inputs."""

    def value(found: dict[str, Any]) -> float:
        shift = _figure(name)(found)
        return 0.0 if math.isnan(shift) else shift

    return value


def _larger(found: dict[str, Any]) -> float:
    """Return the larger of varying part and attribute shift, which the verdict concludes standards from."""
    return float(np.nanmax([_figure("reason_gap_varying")(found), _or_zero("attribute_shift")(found)]))


DETECTORS: dict[str, Callable[[dict[str, Any]], float]] = {
    "GCIG (means)": _figure("gcig"),
    "GCIG minus chance": _above_chance,
    "GCIG (members)": _figure("gcig_members"),
    "reason gap": _figure("reason_gap"),
    "common part": _figure("reason_gap_common"),
    "varying part": _figure("reason_gap_varying"),
    "varying part or shift": _larger,
    "attribute shift": _or_zero("attribute_shift"),
    "attribute effect": _or_zero("attribute_effect"),
    "mean-attribution gap": _figure("mean_attribution_gap"),
    "equal treatment": _figure("equal_treatment"),
    "outcome gap": _figure("outcome_gap"),
}


def verdict_of(found: dict[str, Any], declared: bool, material: float) -> str:
    """Return the code that the rule gives to stored figures."""
    figures = tuple(
        Figure(name, *(float(each) for each in values)) for name, values in found["figures"].items()
    )
    evaluation = Evaluation(figures, collapsed=found["collapsed"])
    return judge(evaluation, legitimate=["declared"] if declared else None, material=material).code


def outcome_of(code: str, truth: dict[str, Any], declared: bool, material: float) -> str:
    """Return whether a verdict is right, undecided or wrong."""
    known = Truth(truth["reach"], truth["standards"], truth["shift"], math.nan, declared, material)
    if code in known.right or (len(known.right) > 1 and code == "uncertain"):
        return "right"
    return "undecided" if code in ("uncertain", "undefined") else "wrong"


def verdicts(rows: Rows) -> pd.DataFrame:
    """Return how often the verdict is right, by half, declaration, material and rows."""
    counts: dict[tuple[Any, ...], Counter[str]] = {}
    for row, part, material in ((r, p, m) for r in rows for p in ("plain", "declared") for m in (0.05, 0.1)):
        trial, found, declared = row["trial"], row[part], part == "declared"
        half = GENERATORS[trial["generator"]].half
        key = half, "declared" if declared else "none", material, trial["n"]
        code = verdict_of(found, declared, material)
        counts.setdefault(key, Counter())[outcome_of(code, found["truth"], declared, material)] += 1
    lines = []
    for (half, declaration, material, n), found in sorted(counts.items()):
        total = sum(found.values())
        shares = {name: found[name] / total for name in ("right", "undecided", "wrong")}
        lines.append(
            {"half": half, "declaration": declaration, "material": material, "rows": n, "cases": total}
            | shares
        )
    return pd.DataFrame(lines)


def mistakes(rows: Rows, material: float = 0.05, least: int = 3000) -> pd.DataFrame:
    """Return the cases from some number of rows on that are not right."""
    lines = []
    for row, part in ((r, p) for r in rows for p in ("plain", "declared")):
        trial, found, declared = row["trial"], row[part], part == "declared"
        code = verdict_of(found, declared, material)
        result = outcome_of(code, found["truth"], declared, material)
        if result == "right" or (trial["n"] < least and result == "undecided"):
            continue
        lines.append(
            {
                "declaration": part,
                "generator": trial["generator"],
                "task": trial["task"],
                "model": trial["model"],
                "rows": trial["n"],
                "says": code,
                "result": result,
                "truth": found["truth"]["code"],
                "reach": found["truth"]["reach"],
                "standards": found["truth"]["standards"],
                "shift": found["truth"]["shift"],
                "gap": _figure("reason_gap")(found),
                "p": _figure("reason_gap", 3)(found),
                "varying": _figure("reason_gap_varying")(found),
            }
        )
    return pd.DataFrame(lines)


def _labelled(rows: Rows, half: str, least: int) -> tuple[Rows, np.ndarray]:
    """Return the audits of one half with a clear truth, and whether standards differ."""
    own = [
        row["plain"]
        for row in rows
        if GENERATORS[row["trial"]["generator"]].half == half and row["trial"]["n"] >= least
    ]
    clear = [each for each in own if len(each["truth"]["right"]) == 1]
    return clear, np.array([each["truth"]["code"] == "different_standards" for each in clear])


def detectors(rows: Rows, least: int = 3000) -> pd.DataFrame:
    """Return for every detector the area under the ROC curve on both halves, and its operating point."""
    lines = []
    for name, value in DETECTORS.items():
        line: dict[str, Any] = {"detector": name}
        threshold = math.nan
        for half in ("design", "end"):
            found, truth = _labelled(rows, half, least)
            values = np.array([value(each) for each in found])
            known = ~np.isnan(values)
            values, truth = values[known], truth[known]
            if not len(truth) or truth.all() or not truth.any():
                continue
            if half == "design":
                threshold = float(np.quantile(values[~truth], 1 - _FALSE_ALARMS))
                line["threshold"] = threshold
            line |= {
                f"cases, {half}": len(truth),
                f"AUC, {half}": roc_auc_score(truth, values),
                f"found, {half}": float((values[truth] > threshold).mean()),
                f"false alarms, {half}": float((values[~truth] > threshold).mean()),
            }
        lines.append(line)
    return pd.DataFrame(lines)


def by_generator(rows: Rows, table: pd.DataFrame, least: int = 3000) -> pd.DataFrame:
    """Return the share of audits of each generator that every detector flags at its threshold."""
    thresholds = dict(zip(table["detector"], table["threshold"], strict=True))
    lines = []
    for generator in GENERATORS:
        own = [r["plain"] for r in rows if r["trial"]["generator"] == generator and r["trial"]["n"] >= least]
        if not own:
            continue
        line: dict[str, Any] = {"generator": generator, "says": GENERATORS[generator].says}
        for name, value in DETECTORS.items():
            values = np.array([value(each) for each in own])
            values = values[~np.isnan(values)]
            line[name] = float((values > thresholds[name]).mean()) if len(values) else math.nan
        lines.append(line)
    return pd.DataFrame(lines)


def power(rows: Rows) -> pd.DataFrame:
    """Return how often each verdict is given, by generator, strength and rows."""
    lines = []
    for (generator, strength, n), own in _grouped(rows, "generator", "strength", "n"):
        codes = Counter(verdict_of(each["plain"], False, 0.05) for each in own)
        truth = own[0]["plain"]["truth"]
        lines.append(
            {"generator": generator, "strength": strength, "rows": n, "reach": truth["reach"]}
            | {"standards": truth["standards"], "shift": truth["shift"]}
            | {code: codes[code] / len(own) for code in ("different_standards", "group_differences")}
            | {code: codes[code] / len(own) for code in ("no_dependence", "uncertain", "undefined")}
        )
    return pd.DataFrame(lines)


def _grouped(rows: Rows, *names: str) -> Iterable[tuple[tuple[Any, ...], Rows]]:
    found: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        found.setdefault(tuple(row["trial"][name] for name in names), []).append(row)
    return sorted(found.items())


def picture(rows: Rows, path: Path, least: int = 3000) -> None:
    """Draw the ROC curves of some detectors of different standards on both halves."""
    shown = ("GCIG (means)", "reason gap", "varying part", "varying part or shift", "equal treatment")
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.8), sharey=True)
    for axis, half, title in zip(axes, ("design", "end"), ("design", "kept for the end"), strict=True):
        found, truth = _labelled(rows, half, least)
        for place, name in enumerate(shown):
            values = np.array([DETECTORS[name](each) for each in found])
            known = ~np.isnan(values)
            false, true, _ = roc_curve(truth[known], values[known])
            axis.plot(false, true, label=name, color=f"C{place}", linewidth=1.8)
        axis.plot([0, 1], [0, 1], color="0.8", linewidth=1, zorder=0)
        axis.set(title=f"Generators: {title}", xlabel="false alarms", xlim=(-0.01, 1), ylim=(0, 1.01))
    axes[0].set_ylabel("different standards found")
    axes[1].legend(frameon=False, fontsize=8, loc="lower right")
    figure.tight_layout()
    plt.rcParams["svg.hashsalt"] = "validity"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def generators() -> pd.DataFrame:
    """Return formula, causal picture and expected verdicts of every generator."""
    lines = [
        {
            "half": each.half,
            "generator": each.name,
            "what it is": each.title,
            "score": each.formula,
            "causes": each.picture,
            "says": each.says,
            "with a declaration": each.says_declared,
        }
        for each in GENERATORS.values()
    ]
    return pd.DataFrame(lines)


def stability(rows: Rows) -> pd.DataFrame:
    """Return how often twenty seeds give each verdict on the same model and rows."""
    lines = []
    for each in rows:
        codes = Counter(each["codes"])
        lines.append(
            {name: each["trial"][name] for name in ("generator", "model", "n")}
            | {code: codes[code] for code in VERDICTS}
            | {"contradict": len(set(codes) - {"uncertain", "undefined"}) > 1}
        )
    return pd.DataFrame(lines)


def write(folder: Path, pictures: Path) -> None:
    """Write all tables as CSV, and the picture."""
    rows = [row for half in ("design", "end") for row in store.read(folder / f"detectors-{half}.jsonl")]
    found = detectors(rows)
    tables = {
        "verdicts": verdicts(rows),
        "mistakes": mistakes(rows),
        "detectors": found,
        "flags": by_generator(rows, found),
        "generators": generators(),
    }
    if more := store.read(folder / "stability.jsonl"):
        tables["stability"] = stability(more)
    if more := store.read(folder / "power.jsonl"):
        tables["power"] = power(more)
    if more := store.read(folder / "coverage.jsonl"):
        tables["coverage"] = coverage.table(more)
    if more := store.read(folder / "methods.jsonl"):
        tables["methods"] = methods.table(more)
    for name, each in tables.items():
        each.to_csv(folder / f"{name}.csv", index=False, float_format="%.3f")
    picture(rows, pictures / "validity.svg")
