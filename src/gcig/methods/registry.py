"""Registry of methods: of this package, of installed packages, and registered by the user."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from gcig._arguments import InputError
from gcig._plugins import Registry


@dataclass(frozen=True)
class Method:
    """An entry of the registry.

    Parameters
    ----------
    key : str
        The name in code and on the command line.
    label : str
        The name in tables and figures.
    locations : mapping of task to str
        The location of the estimator for each task that the method is defined for,
        ``"package.module:Class"``; imported when first used.
    search_space : mapping of parameter name to values
        The values that grid search tries.
    number_search_space : mapping of parameter name to values, optional
        The values for the task ``"number"``, if they are others.

    Examples
    --------
    >>> METHODS["hardt"].label, METHODS["hardt"].estimator.__name__
    ('Hardt', 'ThresholdOptimizerClassifier')
    >>> METHODS["lagrangian"].estimator_for("number").__name__
    'LagrangianRegressor'
    """

    key: str
    label: str
    locations: Mapping[str, str]
    search_space: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    number_search_space: Mapping[str, tuple[Any, ...]] | None = None

    @classmethod
    def of(
        cls, key: str, *estimators: type[Any], label: str | None = None, search_space: Any = None
    ) -> "Method":
        """Return the entry of estimators, which say themselves for which tasks they are."""
        locations = {
            task: f"{each.__module__}:{each.__qualname__}" for each in estimators for task in each.tasks
        }
        return cls(key, label or key, locations, dict(search_space or {}))

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that the method is defined for, of ``"binary"``, ``"classes"`` and ``"number"``."""
        return tuple(self.locations)

    @property
    def estimator(self) -> type[Any]:
        """The class of the estimator that classifies."""
        return self.estimator_for(self.tasks[0])

    def estimator_for(self, task: str) -> type[Any]:
        """Return the class of the estimator for a task, or raise an `InputError` that names other methods."""
        if task not in self.locations:
            able = methods_for(task)
            remedy = f"Choose one of {', '.join(able)}." if able else f"The tasks are {', '.join(TASKS)}."
            raise InputError(
                f"The method {self.key!r} is not defined for the task {task!r}, but for "
                f"{' and '.join(map(repr, self.tasks))}. {remedy}"
            )
        return _import(self.locations[task])

    def search_space_for(self, task: str) -> Mapping[str, tuple[Any, ...]]:
        """Return the values that grid search tries for a task."""
        own = self.number_search_space if task == "number" else None
        return self.search_space if own is None else own


def _import(location: str) -> type[Any]:
    module, _, name = location.partition(":")
    estimator: type[Any] = getattr(import_module(module), name)
    return estimator


def methods_for(task: str) -> tuple[str, ...]:
    """Return the keys of the methods that are defined for a task.

    >>> methods_for("number")
    ('unconstrained', 'dir', 'agarwal', 'lagrangian', 'adversarial', 'fairx')
    """
    return tuple(key for key, method in METHODS.items() if task in method.tasks)


def _method_of(key: str, entry: Any) -> Method:
    """Return the entry of a method that another package offers: a `Method`, or the class of an estimator."""
    own = entry.key if isinstance(entry, Method) else getattr(entry, "method_key", None)
    if own != key:
        raise TypeError(
            f"its key is {own!r}, but must be {key!r}, the name of the entry point: set method_key = {key!r} "
            "in the class of the estimator, or the key of the Method"
        )
    return entry if isinstance(entry, Method) else Method.of(key, entry)


TASKS = ("binary", "classes", "number")
# Every method has the same number of candidates, because a larger grid would win by its size. Each of them is
# trained in every fold. learning_rate="auto" is between 0.002 and 0.004, depending on the number of rows.
_RATES = {"learning_rate": (2e-3, 4e-3)}
_GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "unconstrained": {"learning_rate": (1e-3, 2e-3, 4e-3, 8e-3)},
    "dir": {"repair_level": (0.5, 1.0), **_RATES},
    "hardt": {"objective": ("accuracy_score", "balanced_accuracy_score"), **_RATES},
    "agarwal": {"eps": (0.005, 0.01, 0.02, 0.05)},
    "lagrangian": {"max_gap": (0.0, 0.03), **_RATES},
    "adversarial": {"alpha": (3.0, 10.0), "sharpness": (5.0, 10.0)},
    "fairx-paper": {"lambda_ig": (0.2, 0.5), "lambda_fair": (0.05, 0.2)},
    "fairx": {"budget": (0.02, 0.05), "outcome_weight": (0.1, 0.5)},
}
_NUMBER_GRIDS = {"agarwal": {"eps": (0.1, 0.25, 0.5, 0.9)}}


def _own(key: str, label: str, place: str, tasks: tuple[str, ...] = TASKS) -> Method:
    """Return the entry of a method of this package, whose classes end in Classifier and Regressor."""
    kinds = {task: "Regressor" if task == "number" else "Classifier" for task in tasks}
    locations = {task: f"gcig.methods.{place}{kind}" for task, kind in kinds.items()}
    return Method(key, label, locations, _GRIDS.get(key, {}), _NUMBER_GRIDS.get(key))


_OWN = (
    _own("unconstrained", "Unconstrained", "unconstrained:Unconstrained"),
    _own("dir", "DIR", "disparate_impact_remover:DisparateImpactRemover"),
    _own("hardt", "Hardt", "threshold_optimizer:ThresholdOptimizer", ("binary",)),
    _own("agarwal", "Agarwal", "exponentiated_gradient:ExponentiatedGradient", ("binary", "number")),
    _own("lagrangian", "Lagrangian", "lagrangian:Lagrangian"),
    _own("adversarial", "Adversarial", "adversarial:Adversarial"),
    _own("fairx-paper", "FairX, as published", "fairx.paper:FairXPaper", ("binary",)),
    _own("fairx", "FairX", "fairx.estimator:FairX"),
)
METHODS = Registry("method", {method.key: method for method in _OWN}, _method_of)
_ENCODER_TYPES = (
    *("gcig.tables.columns.CategoryColumn", "gcig.tables.columns.NumberColumn"),
    "gcig.tables.encoding.TableEncoder",
)


def register_method(
    key: str,
    *estimators: type[Any],
    label: str | None = None,
    search_space: Mapping[str, tuple[Any, ...]] | None = None,
    overwrite: bool = False,
) -> None:
    """Add a method from outside the package.

    Parameters
    ----------
    key : str
        The name in code and on the command line; also the estimators' ``method_key``.
    *estimators : class
        A subclass of `gcig.methods.NetworkClassifier`, one of `gcig.methods.NetworkRegressor`, or one of
        each; importable by their names.
    label : str, optional
        The name in tables; by default the key.
    search_space : mapping, optional
        The values that grid search tries, by parameter.
    overwrite : bool
        Whether another method of this key is replaced.

    Examples
    --------
    >>> from gcig.methods.fairx.estimator import FairXClassifier
    >>> class StrictClassifier(FairXClassifier):
    ...     method_key = "strict"
    >>> register_method("strict", StrictClassifier, label="FairX, strict", overwrite=True)
    >>> METHODS["strict"].label, METHODS["strict"].tasks
    ('FairX, strict', ('binary', 'classes'))
    """
    METHODS.add(key, Method.of(key, *estimators, label=label, search_space=search_space), overwrite=overwrite)


def skops_types() -> list[str]:
    """Return the types that skops must trust to load the estimators and the encoder of gcig.

    Loading them runs no stored code. MLflow needs no list: see :doc:`/howto/interop`.

    >>> "gcig.methods.fairx.estimator.FairXClassifier" in skops_types()
    True
    """
    locations = (place for method in METHODS.values() for place in method.locations.values())
    return sorted({*_ENCODER_TYPES, *(place.replace(":", ".") for place in locations)})
