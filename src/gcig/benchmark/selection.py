"""Selection of parameters: the rule that is the same for every method, and the choices that gcig ships.

The choices are package data, one JSON file per dataset in ``chosen/``.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gcig.benchmark.run_files import RunError, write_file
from gcig.benchmark.table import Table
from gcig.benchmark.trials import Trial, canonical_json
from gcig.records import FoldResult

__all__ = [
    "FOLDER",
    "RULE",
    "TOLERANCE",
    "Candidate",
    "Choice",
    "choose",
    "choose_all",
    "chosen_parameters",
    "parameters_for",
    "read_chosen",
    "write_chosen",
]

FOLDER = Path(__file__).parent / "chosen"
TOLERANCE = 0.01
RULE = (
    "Among the candidates whose mean validation AUC is within 0.01 of the best of the method's grid, the one "
    "with the lowest mean validation eo_gap + gcig. Candidates that failed or collapsed under any seed are "
    "left out."
)


@dataclass(frozen=True)
class Candidate:
    """Validation metrics of one setting: means over its fits, and the numbers that failed or collapsed."""

    parameters: Mapping[str, Any]
    auc: float
    eo_gap: float
    gcig: float
    f1: float = math.nan
    collapsed: int = 0
    failed: int = 0

    @classmethod
    def of(cls, parameters: Mapping[str, Any], results: Sequence[FoldResult]) -> "Candidate":
        """Average the results of one setting."""
        found = [result.evaluation for result in results if result.evaluation is not None]

        def mean(name: str) -> float:
            return math.fsum(getattr(each, name) for each in found) / len(found) if found else math.nan

        return cls(
            parameters=dict(parameters),
            auc=mean("auc"),
            eo_gap=mean("eo_gap"),
            gcig=mean("gcig"),
            f1=mean("f1"),
            collapsed=sum(each.collapsed for each in found),
            failed=len(results) - len(found),
        )

    @property
    def usable(self) -> bool:
        """True if the rule may choose it."""
        defined = not any(math.isnan(value) for value in (self.auc, self.eo_gap, self.gcig))
        return defined and not self.failed and not self.collapsed

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; NaN becomes None."""
        plain = asdict(self)
        return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in plain.items()}


@dataclass(frozen=True)
class Choice:
    """The setting that the rule chose for a method on a table or inside one of its folds.

    If no candidate was usable, ``parameters`` is empty (the method's defaults) and ``note`` explains it.
    """

    dataset: str
    data_hash: str
    method: str
    fold: int | None
    seed: int
    parameters: Mapping[str, Any]
    candidates: tuple[Candidate, ...]
    note: str = ""


def choose(candidates: Sequence[Candidate], tolerance: float = TOLERANCE) -> int | None:
    """Return the index of the candidate that the rule selects, or None if no candidate is usable.

    Of equal candidates the first is selected.

    Examples
    --------
    >>> metrics = [(0.90, 0.30, 0.20), (0.895, 0.10, 0.05), (0.88, 0.0, 0.0)]
    >>> choose([Candidate({}, *each) for each in metrics])  # the third is too far from the best AUC
    1
    """
    usable = [index for index, each in enumerate(candidates) if each.usable]
    if not usable:
        return None
    best = max(candidates[index].auc for index in usable)
    # The slack admits a candidate that is exactly at the tolerance in spite of rounding.
    near = [index for index in usable if candidates[index].auc >= best - tolerance - 1e-12]
    return min(near, key=lambda index: candidates[index].eo_gap + candidates[index].gcig)


def choose_all(trials: Sequence[Trial], results: Sequence[FoldResult]) -> list[Choice]:
    """Apply the rule to the finished tuning trials of each table, method, fold and seed."""
    searches: dict[tuple[Any, ...], dict[str, list[tuple[Trial, FoldResult]]]] = {}
    for trial, result in zip(trials, results, strict=True):
        fold = trial.fold if trial.n_folds else None
        search = (trial.dataset, trial.data_hash, trial.method, fold, trial.seed)
        candidate = canonical_json(dict(trial.parameters))
        searches.setdefault(search, {}).setdefault(candidate, []).append((trial, result))
    found = []
    for search, by_candidate in searches.items():
        candidates = tuple(
            Candidate.of(own[0][0].parameters, [result for _, result in own]) for own in by_candidate.values()
        )
        index = choose(candidates)
        if index is None:
            note = "every candidate failed or collapsed: the defaults are used"
            found.append(Choice(*search, {}, candidates, note))
        else:
            found.append(Choice(*search, candidates[index].parameters, candidates))
    return found


def chosen_parameters(dataset: str, method: str, *, folder: Path = FOLDER) -> dict[str, Any]:
    """Return the parameters chosen for a method on a shipped dataset; empty if it was not tuned.

    Examples
    --------
    >>> chosen_parameters("no such dataset", "fairx")
    {}
    """
    return _parameters(read_chosen(dataset, folder=folder), method)


def parameters_for(table: Table, method: str, *, folder: Path = FOLDER) -> dict[str, Any]:
    """Return the chosen parameters if they were chosen on the rows of this table, otherwise none."""
    content = read_chosen(table.name, folder=folder)
    return _parameters(content, method) if content.get("data_hash") == table.sha256 else {}


def read_chosen(dataset: str, *, folder: Path = FOLDER) -> dict[str, Any]:
    """Return the file of a dataset (rule, seeds, candidates, versions); empty if there is none."""
    file = folder / f"{dataset}.json"
    if Path(dataset).name != dataset or not file.is_file():
        return {}
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise RunError(
            f"{file.name} in {str(folder)!r} is not JSON: {error}. Restore the file, or tune again."
        ) from None
    return content if isinstance(content, dict) else {}


def write_chosen(dataset: str, content: Mapping[str, Any], *, folder: Path = FOLDER) -> Path:
    """Write the file of a dataset, and return its path.

    Methods that only the old file has are kept if both files have the same rows and rule.
    """
    if Path(dataset).name != dataset:
        raise RunError(f"{dataset!r} cannot be used as a file name. Give the table a name without slashes.")
    before = read_chosen(dataset, folder=folder)
    same = all(before.get(name) == content.get(name) for name in ("data_hash", "rule", "split"))
    merged = {**content, "methods": {**(before.get("methods", {}) if same else {}), **content["methods"]}}
    file = folder / f"{dataset}.json"
    write_file(file, json.dumps(merged, indent=1, allow_nan=False) + "\n")
    return file


def _parameters(content: Mapping[str, Any], method: str) -> dict[str, Any]:
    return dict(content.get("methods", {}).get(method, {}).get("parameters", {}))
