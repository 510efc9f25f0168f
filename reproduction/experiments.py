"""What is run: the plan of a reproduction, and the settings of each experiment.

Ablation and sensitivity are about both versions of FairX. *As published*, it trains on labels, and the
weights apply until the last epoch regardless of the ranking. Ours keeps the predictions of a plain network
within a budget: of these settings it runs those that its parameters still have.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import gcig
from gcig.methods import METHODS
from reproduction.paper import DATASETS, FAIRX, PAPER, PUBLISHED, VERSIONS

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
    (PUBLISHED, "T", "8", {"definition": {"rule": "right", "n_steps": 8}}),
    (PUBLISHED, "T", "16 (default)", {}),
    (FAIRX, "rule and T", "automatic (default)", {}),
    (FAIRX, "rule and T", "right, T = 16", {"definition": {"rows": 0.25, "rule": "right", "n_steps": 16}}),
    (FAIRX, "norm", "l1 (default; Algorithm 1)", {}),
    (FAIRX, "norm", "l2 (the paper's text)", {"definition": {"rows": 0.25, "norm": "l2"}}),
    (FAIRX, "rows explained", "a quarter of each batch (default)", {}),
    (FAIRX, "rows explained", "all (paper)", {"definition": {"rows": 1.0}}),
    (FAIRX, "EMA rate", "0.05 (default)", {}),
    (FAIRX, "EMA rate", "1 (the batch alone)", {"ema_rate": 1.0}),
    (FAIRX, "held-out rows", "15 % (default)", {}),
    (FAIRX, "held-out rows", "none", {"early_stopping": False}),
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

    @property
    def parameters(self) -> dict[str, Any] | None:
        """The changes as parameters of today's methods; None if a method no longer has what they change.

        The committed results were computed when our FairX had the paper's weights and definitions.
        """
        changes = dict(self.changes)
        if definition := changes.pop("definition", None):
            changes |= {name: definition[name] for name in ("norm", "n_steps") if name in definition}
        if self.method != FAIRX:
            return changes
        if changes.keys() <= {"early_stopping"} and not definition:
            return changes
        weights = {name: value for name, value in changes.items() if value == 0 and name in SWEPT}
        if weights.keys() == changes.keys() and "lambda_fair" in weights:
            return {"budget": 0.0} if len(weights) == 2 else {"outcome_weight": 0.0}
        return None


def ablated(method: str, key: str) -> Setting:
    """Return a configuration of the ablation; the full model shares its fits with the comparison."""
    label, kept = CONFIGURATIONS[key]
    removed = {weight: 0.0 for weight in SWEPT if weight not in kept}
    return Setting("compas-paper", method, removed, f"ablation {key}" if removed else "", (label,))


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
    "ablation": tuple(ablated(method, key) for method in VERSIONS for key in CONFIGURATIONS),
    "sensitivity": tuple(
        weighted(m, swept, weight) for m in VERSIONS for swept in SWEPT for weight in WEIGHTS
    ),
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
