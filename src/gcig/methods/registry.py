"""Registry of methods: of this package, of installed packages, and registered by the user."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

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
    location : str
        Location of the estimator, ``"package.module:Class"``; imported when first used.
    search_space : mapping of parameter name to values
        The values that grid search tries.
    regressor : str
        Location of the estimator for numbers, if it is another class.

    Examples
    --------
    >>> METHODS["hardt"].label, METHODS["hardt"].estimator.__name__
    ('Hardt', 'ThresholdOptimizerClassifier')
    >>> METHODS["fairx"].estimator_for("number").__name__
    'FairXRegressor'
    """

    key: str
    label: str
    location: str
    search_space: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    regressor: str = ""

    @property
    def estimator(self) -> type[Any]:
        """The class of the estimator."""
        return _import_class(self.location)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that the method is defined for, of ``"binary"``, ``"classes"`` and ``"number"``."""
        return (*self.estimator.tasks, *(("number",) if self.regressor else ()))

    def estimator_for(self, task: str) -> type[Any]:
        """Return the class of the estimator for a task."""
        if task not in self.tasks:
            raise ValueError(f"the method {self.key!r} is not defined for the task {task!r}")
        return self.estimator if task in self.estimator.tasks else _import_class(self.regressor)


def _import_class(location: str) -> type[Any]:
    module, _, name = location.partition(":")
    found: type[Any] = getattr(import_module(module), name)
    return found


def _method_of(key: str, found: Any) -> Method:
    """Return the entry of a method that another package offers: a `Method`, or the class of an estimator."""
    own = found.key if isinstance(found, Method) else getattr(found, "method_key", None)
    if own != key:
        raise TypeError(
            f"its key is {own!r}, but must be {key!r}, the name of the entry point: set method_key = {key!r} "
            "in the class of the estimator, or the key of the Method"
        )
    if isinstance(found, Method):
        return found
    return Method(key, key, f"{found.__module__}:{found.__qualname__}")


_METHODS = {  # label, module and class
    "unconstrained": ("Unconstrained", "unconstrained:UnconstrainedClassifier"),
    "dir": ("DIR", "disparate_impact_remover:DisparateImpactRemoverClassifier"),
    "hardt": ("Hardt", "threshold_optimizer:ThresholdOptimizerClassifier"),
    "agarwal": ("Agarwal", "exponentiated_gradient:ExponentiatedGradientClassifier"),
    "lagrangian": ("Lagrangian", "lagrangian:LagrangianClassifier"),
    "adversarial": ("Adversarial", "adversarial:AdversarialClassifier"),
    "fairx-paper": ("FairX, as published", "fairx.paper:FairXPaperClassifier"),
    "fairx": ("FairX", "fairx.estimator:FairXClassifier"),
}
# Every method has the same number of candidates, because a larger grid would win by its size. Each of them is
# trained in every fold. learning_rate="auto" is between 0.002 and 0.004, depending on the number of rows.
_LEARNING = {"learning_rate": (2e-3, 4e-3)}
_SEARCH_SPACES: dict[str, Mapping[str, tuple[Any, ...]]] = {
    "unconstrained": {"learning_rate": (1e-3, 2e-3, 4e-3, 8e-3)},
    "dir": {"repair_level": (0.5, 1.0), **_LEARNING},
    "hardt": {"objective": ("accuracy_score", "balanced_accuracy_score"), **_LEARNING},
    "agarwal": {"eps": (0.005, 0.01, 0.02, 0.05)},
    "lagrangian": {"max_gap": (0.0, 0.03), **_LEARNING},
    "adversarial": {"alpha": (3.0, 10.0), "sharpness": (5.0, 10.0)},
    "fairx-paper": {"lambda_ig": (0.2, 0.5), "lambda_fair": (0.05, 0.2)},
    "fairx": {"budget": (0.02, 0.05), "outcome_weight": (0.1, 0.5)},
}
_REGRESSORS = {
    "unconstrained": "gcig.methods.unconstrained:UnconstrainedRegressor",
    "fairx": "gcig.methods.fairx.estimator:FairXRegressor",
}
_OWN = {
    key: Method(key, label, f"gcig.methods.{location}", _SEARCH_SPACES[key], _REGRESSORS.get(key, ""))
    for key, (label, location) in _METHODS.items()
}
METHODS = Registry("method", _OWN, _method_of)
_ENCODER_TYPES = tuple(
    f"gcig.data.encoding.{name}" for name in ("CategoryColumn", "NumberColumn", "TableEncoder")
)


def register_method(
    key: str,
    estimator: type[Any],
    *,
    label: str | None = None,
    search_space: Mapping[str, tuple[Any, ...]] | None = None,
    overwrite: bool = False,
) -> None:
    """Add a method from outside the package.

    Parameters
    ----------
    key : str
        The name in code and on the command line; also the estimator's ``method_key``.
    estimator : class
        A subclass of `gcig.methods.NetworkClassifier`; importable by its name.
    label : str, optional
        The name in tables; by default the key.
    search_space : mapping, optional
        The values that grid search tries, by parameter.

    Examples
    --------
    >>> from gcig.methods.fairx.estimator import FairXClassifier
    >>> class StrictClassifier(FairXClassifier):
    ...     method_key = "strict"
    >>> register_method("strict", StrictClassifier, label="FairX, strict", overwrite=True)
    >>> METHODS["strict"].label
    'FairX, strict'
    """
    location = f"{estimator.__module__}:{estimator.__qualname__}"
    METHODS.add(key, Method(key, label or key, location, dict(search_space or {})), overwrite=overwrite)


def skops_types() -> list[str]:
    """Return the types that skops must trust to load the estimators and the encoder of gcig.

    Loading them runs no stored code. MLflow needs no list: see :doc:`/howto/interop`.

    >>> "gcig.methods.fairx.estimator.FairXClassifier" in skops_types()
    True
    """
    places = {place for method in METHODS.values() for place in (method.location, method.regressor) if place}
    return sorted({*_ENCODER_TYPES, *(place.replace(":", ".") for place in places)})
