"""Registry of methods: of this package, of installed packages, and registered by the user."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from gcig._plugins import load_plugins

_ENTRY_POINTS = "gcig.methods"


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
        """The class of the estimator."""
        module, _, name = self.location.partition(":")
        found: type[Any] = getattr(import_module(module), name)
        return found


class _Methods(Mapping[str, Method]):
    """Methods by key, read-only except for `register_method`.

    Methods of installed packages are added when a key is looked up that is not one of this package's, or when
    all methods are listed.
    """

    def __init__(self, methods: list[Method]) -> None:
        self._methods = {method.key: method for method in methods}
        self._complete = False

    def __getitem__(self, key: str) -> Method:
        if key not in self._methods and key not in self._all():
            raise KeyError(f"no method {key!r}; choose from {', '.join(self._methods)}")
        return self._methods[key]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._all()))

    def __len__(self) -> int:
        return len(self._all())

    def add(self, method: Method, *, overwrite: bool) -> None:
        if method.key in self._methods and not overwrite:
            raise ValueError(f"the method {method.key!r} exists already; pass overwrite=True to replace it")
        self._methods[method.key] = method

    def _all(self) -> dict[str, Method]:
        if not self._complete:
            self._complete = True  # first: a package may look up methods while it is imported
            for key, method in load_plugins(_ENTRY_POINTS, set(self._methods), _method_of):
                self._methods.setdefault(key, method)
        return self._methods


def _method_of(key: str, found: Any) -> Method:
    """Return the entry of a method that another package offers: a `Method`, or the class of an estimator."""
    own = found.key if isinstance(found, Method) else getattr(found, "method_key", None)
    if own != key:
        raise TypeError(f"it is no Method or estimator with the key {key!r}")
    if isinstance(found, Method):
        return found
    return Method(key, key, f"{found.__module__}:{found.__qualname__}")


# Every method has the same number of candidates, because a larger grid would win by its size. Each of them is
# trained in every fold. learning_rate="auto" is between 0.002 and 0.004, depending on the number of rows.
_LEARNING = {"learning_rate": (2e-3, 4e-3)}

METHODS = _Methods(
    [
        Method(
            "unconstrained",
            "Unconstrained",
            "gcig.methods.unconstrained:UnconstrainedClassifier",
            {"learning_rate": (1e-3, 2e-3, 4e-3, 8e-3)},
        ),
        Method(
            "dir",
            "DIR",
            "gcig.methods.disparate_impact_remover:DisparateImpactRemoverClassifier",
            {"repair_level": (0.5, 1.0), **_LEARNING},
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
            {"max_gap": (0.0, 0.03), **_LEARNING},
        ),
        Method(
            "adversarial",
            "Adversarial",
            "gcig.methods.adversarial:AdversarialClassifier",
            {"alpha": (3.0, 10.0), "sharpness": (5.0, 10.0)},
        ),
        Method(
            "fairx-paper",
            "FairX, as published",
            "gcig.methods.fairx.estimator:PublishedFairXClassifier",
            {"lambda_ig": (0.2, 0.5), "lambda_fair": (0.05, 0.2)},
        ),
        Method(
            "fairx",
            "FairX",
            "gcig.methods.fairx.estimator:FairXClassifier",
            {"lambda_ig": (0.2, 0.6), "lambda_fair": (0.05, 0.25)},
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
    METHODS.add(Method(key, label or key, location, dict(search_space or {})), overwrite=overwrite)
