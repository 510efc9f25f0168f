"""What is run: the plan of a reproduction, and the settings of each experiment.

Ablation and sensitivity are about FairX as published, which trains on labels with constant weights. Our FairX
has a budget instead of weights; of the ablation it runs what its parameters can leave out. The committed
results were computed when it had weights too, so their names are kept in `variant`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import gcig
from gcig.methods import METHODS
from reproduction.paper import DATASETS, FAIRX, PAPER, PUBLISHED

SWEPT = ("lambda_ig", "lambda_fair")  # FairX's weights
WEIGHTS: tuple[float, ...] = tuple(PAPER["sensitivity"]["weights"])
FIXED: float = PAPER["sensitivity"]["fixed"]  # the other weight while one is swept
# Ablation: key -> the paper's name, and the weights that are kept
CONFIGURATIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "prediction": ("Prediction only", ()),
    "prediction+eo": ("Prediction + EO", ("lambda_fair",)),
    "prediction+gcig": ("Prediction + GCIG", ("lambda_ig",)),
    "full": ("Full model", SWEPT),
}
# Design choices: method, aspect, what is chosen, and the changed parameters; defaults have none
_CHOICES: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    (PUBLISHED, "activation", "ReLU (default)", {}),
    (PUBLISHED, "activation", "SiLU", {"activation": "silu"}),
    (PUBLISHED, "T", "8", {"n_steps": 8}),
    (PUBLISHED, "T", "16 (default)", {}),
)
SMALL_ROWS, SMALL_REPEATS = 10_000, 5  # fits of smaller tables vary more: they are repeated


@dataclass(frozen=True)
class Setting:
    """One method on one dataset with changes of the chosen parameters, and its words in a table."""

    dataset: str
    method: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""
    words: tuple[str, ...] = ()


_OURS: Mapping[str, dict[str, Any]] = {
    "prediction": {"budget": 0.0},
    "prediction+gcig": {"outcome_weight": 0.0},
}


def ablated(method: str, key: str) -> Setting:
    """Return a configuration of the ablation; the full model shares its fits with the comparison."""
    label, kept = CONFIGURATIONS[key]
    removed = {weight: 0.0 for weight in SWEPT if weight not in kept}
    if method == FAIRX and removed:
        removed = dict(_OURS.get(key, {}))
    return Setting("compas-paper", method, removed, "" if key == "full" else f"ablation {key}", (label,))


def weighted(method: str, swept: str, weight: float) -> Setting:
    """Return a setting of the sweep over a weight; the two sweeps share the one with both weights at 1."""
    values = {name: weight if name == swept else FIXED for name in SWEPT}
    variant = " ".join(f"{name}={value:g}" for name, value in values.items())
    return Setting("compas-paper", method, values, f"sensitivity {variant}", (swept, f"{weight:g}"))


def _choice(method: str, aspect: str, label: str, changes: Mapping[str, Any]) -> Setting:
    words = " ".join(f"{key}={value}" for key, value in sorted(changes.items()))
    return Setting("compas", method, changes, f"design {words}" if words else "", (aspect, label))


# The experiments on one dataset each; the comparison, which RQ2 uses as well, has those of the plan.
EXPERIMENTS: Mapping[str, tuple[Setting, ...]] = {
    "ablation": (
        *(ablated(PUBLISHED, key) for key in CONFIGURATIONS),
        *(ablated(FAIRX, key) for key in CONFIGURATIONS if key in _OURS or key == "full"),
    ),
    "sensitivity": tuple(weighted(PUBLISHED, swept, weight) for swept in SWEPT for weight in WEIGHTS),
    "design_choices": tuple(_choice(*each) for each in _CHOICES),
}
_FOLDS = {"sensitivity": 2, "design_choices": 2}  # fewer than the others, for time


@dataclass(frozen=True)
class Plan:
    """Datasets, methods and folds of a reproduction; ``repeats`` has the fits per fold of the comparison."""

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    n_folds: int = 5
    repeats: Mapping[str, int] = field(default_factory=dict)
    quick: bool = False

    @classmethod
    def of(cls, *, quick: bool = False) -> Self:
        """Return the full plan, or the quick one: comparison and ablation on two folds, without tuning."""
        rows = {name: len(gcig.load_dataset(name).y) for name in DATASETS}
        repeats = {name: SMALL_REPEATS if n < SMALL_ROWS and not quick else 1 for name, n in rows.items()}
        return cls(DATASETS, tuple(METHODS), repeats=repeats, quick=quick)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the plan from the folder of a run."""
        stored = json.loads((folder / "request.json").read_text(encoding="utf-8"))
        datasets, methods = (tuple(stored[name]) for name in ("datasets", "methods"))
        return cls(datasets, methods, stored["n_folds"], stored["repeats"], stored["quick"])

    def write(self, folder: Path) -> None:
        """Write the plan into the folder of a run."""
        (folder / "request.json").write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @property
    def experiments(self) -> tuple[str, ...]:
        """Names of the experiments, each with a file of results."""
        return ("comparison", "ablation") if self.quick else ("comparison", *EXPERIMENTS)

    def folds_of(self, experiment: str) -> int:
        """Return the number of folds that an experiment runs."""
        return 2 if self.quick else min(_FOLDS.get(experiment, self.n_folds), self.n_folds)

    def settings(self, experiment: str) -> list[Setting]:
        """Return the distinct settings of an experiment."""
        if experiment == "comparison":
            return [Setting(name, method) for name in self.datasets for method in self.methods]
        listed = {
            (each.method, each.variant): each
            for each in EXPERIMENTS[experiment]
            if each.dataset in self.datasets and each.method in self.methods
        }
        return list(listed.values())
