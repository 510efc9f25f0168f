"""The methods by name; the one list of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

__all__ = ["METHODS", "Method", "register_method"]


@dataclass(frozen=True)
class Method:
    """One method of the comparison.

    Parameters
    ----------
    key : str
        Its name in this package.
    label : str
        Its name in the paper.
    location : str
        Where its class is: ``"package.module:Class"``; imported when first used.
    search_space : mapping of parameter name to values
        What grid search tries.

    Examples
    --------
    >>> METHODS["hardt"].label, METHODS["hardt"].estimator.__name__
    ('Hardt', 'ThresholdOptimizerClassifier')
    """

    key: str
    label: str
    location: str
    search_space: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def estimator(self) -> type[Any]:
        """The class of its estimator."""
        module, _, name = self.location.partition(":")
        found: type[Any] = getattr(import_module(module), name)
        return found


class _Methods(Mapping[str, Method]):
    """Methods by key; read-only but for `register_method`."""

    def __init__(self, methods: list[Method]) -> None:
        self._methods = {method.key: method for method in methods}

    def __getitem__(self, key: str) -> Method:
        if key not in self._methods:
            raise KeyError(f"no method {key!r}; there are {', '.join(self._methods)}")
        return self._methods[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._methods)

    def __len__(self) -> int:
        return len(self._methods)

    def add(self, method: Method, *, overwrite: bool) -> None:
        if method.key in self._methods and not overwrite:
            raise ValueError(f"a method {method.key!r} exists already; pass overwrite=True to replace it")
        self._methods[method.key] = method


# Every candidate is trained on each dataset with several seeds, so there are six at most, twelve for FairX.
# The defaults lie within: "auto" as learning_rate is between 0.002 and 0.004, by the number of rows.
_LEARNING = {"learning_rate": (1e-3, 2e-3, 4e-3)}
_FEWER = {"learning_rate": (2e-3, 4e-3)}

METHODS = _Methods(
    [
        Method(
            "unconstrained", "Unconstrained", "gcig.methods.unconstrained:UnconstrainedClassifier", _LEARNING
        ),
        Method(
            "dir",
            "DIR",
            "gcig.methods.disparate_impact_remover:DisparateImpactRemoverClassifier",
            {"repair_level": (0.5, 0.75, 1.0), **_FEWER},
        ),
        Method(
            "hardt",
            "Hardt",
            "gcig.methods.threshold_optimizer:ThresholdOptimizerClassifier",
            {"objective": ("accuracy_score", "balanced_accuracy_score"), **_LEARNING},
        ),
        Method(
            "agarwal",
            "Agarwal",
            "gcig.methods.exponentiated_gradient:ExponentiatedGradientClassifier",
            {"eps": (0.005, 0.01, 0.02, 0.05)},
        ),
        Method(
            "lagrangian",
            "Lagrangian",
            "gcig.methods.lagrangian:LagrangianClassifier",
            {"max_gap": (0.0, 0.01, 0.03), **_FEWER},
        ),
        Method(
            "adversarial",
            "Adversarial",
            "gcig.methods.adversarial:AdversarialClassifier",
            {"alpha": (3.0, 8.0, 12.0), "sharpness": (5.0, 10.0)},
        ),
        Method(
            "fairx",
            "FairX",
            "gcig.methods.fairx.estimator:FairXClassifier",
            {"lambda_ig": (0.25, 0.5, 1.0, 2.0), "lambda_fair": (0.05, 0.15, 0.3)},
        ),
    ]
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
        Its name.
    estimator : class
        With the interface of `gcig.methods.base.NetworkClassifier`; importable by its name.
    label : str, optional
        Its name in tables.
    search_space : mapping, optional
        What grid search tries.

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
    METHODS.add(Method(key, label or key, location, dict(search_space or {})), overwrite=overwrite)
