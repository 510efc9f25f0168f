"""MLflow plugin: ``mlflow.sklearn.log_model(model)`` stores a model of gcig without further arguments.

MLflow stores scikit-learn models with skops and records in each model which other types may be loaded. It
takes these from the argument ``skops_trusted_types`` only: neither MLflow nor skops lets a package register
its types. The plugin therefore wraps ``mlflow.sklearn.save_model`` and adds `skops_types` to that argument if
the model contains an estimator of gcig. The types are recorded with the model, and nothing changes when it is
loaded or served.

MLflow imports this module through the entry point ``mlflow.run_context_provider`` of the installed package.
The module imports neither torch nor scikit-learn, so that ``import mlflow`` stays fast.
"""

import functools
import inspect
import sys
from collections.abc import Iterator
from typing import Any

from mlflow.tracking.context.abstract_context import RunContextProvider

from gcig._version import __version__
from gcig.methods.registry import skops_types

_ARGUMENT = "skops_trusted_types"
_IMPORTED_WITH_ESTIMATORS = (
    "gcig.tables.encoding"  # without this module, a process holds no estimator of gcig
)


class GcigRunContext(RunContextProvider):
    """Runs of processes that use gcig, which get the tag ``gcig.version``."""

    def __init__(self) -> None:
        try:
            from mlflow.utils.import_hooks import register_post_import_hook
        except ImportError:  # another version of MLflow: models need skops_trusted_types=skops_types()
            return
        register_post_import_hook(fill_trusted_types, "mlflow.sklearn")

    def in_context(self) -> bool:
        """Return whether this process uses estimators of gcig."""
        return _IMPORTED_WITH_ESTIMATORS in sys.modules

    def tags(self) -> dict[str, str]:
        """Return the tags of a run."""
        return {"gcig.version": __version__}


def fill_trusted_types(flavor: Any) -> None:
    """Wrap ``save_model`` of ``mlflow.sklearn``, which ``log_model`` calls, to trust the types of gcig."""
    save_model = flavor.save_model
    signature = inspect.signature(save_model)
    if _ARGUMENT not in signature.parameters:  # a version of MLflow that does not use skops
        return

    @functools.wraps(save_model)
    def save(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        uses_skops = given.arguments.get("serialization_format") in (None, "skops")
        if uses_skops and _contains_gcig(given.arguments["sk_model"]):
            trusted = [*(given.arguments.get(_ARGUMENT) or ()), *skops_types()]
            given.arguments[_ARGUMENT] = list(dict.fromkeys(trusted))
        return save_model(*given.args, **given.kwargs)

    flavor.save_model = save


def _contains_gcig(model: Any) -> bool:
    """Return whether a model is or contains an estimator of gcig."""
    if _IMPORTED_WITH_ESTIMATORS not in sys.modules:
        return False
    known = set(skops_types())
    return any(f"{type(part).__module__}.{type(part).__qualname__}" in known for part in _parts(model))


def _parts(model: Any) -> Iterator[Any]:
    """Yield a model and the estimators among its parameters, such as the steps of a pipeline."""
    yield model
    if hasattr(model, "get_params"):
        yield from model.get_params(deep=True).values()
