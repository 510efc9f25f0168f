"""Models back from their folders."""

from pathlib import Path
from typing import Any

from torch import nn

from gcig._validation import InputError
from gcig.methods.registry import METHODS
from gcig.persistence import PersistenceError, load_folder

__all__ = ["load"]


def load(path: str | Path, *, module: nn.Module | None = None) -> Any:
    """Read a model that an estimator's ``save`` wrote; no code of it is ever run.

    Parameters
    ----------
    path : str or Path
        The model's folder.
    module : torch.nn.Module, optional
        An untrained network of the same architecture, for models with a network of their own.

    Examples
    --------
    >>> import gcig, tempfile
    >>> data = gcig.load_dataset("german")
    >>> model = gcig.FairXClassifier(random_state=0)
    >>> folder = tempfile.mkdtemp() + "/model"
    >>> model.fit(data.X, data.y, sensitive_features=data.sensitive_features).save(folder)
    >>> bool((gcig.load(folder).predict(data.X) == model.predict(data.X)).all())
    True
    """
    document, tensors = load_folder(path, kind="gcig-model")
    key = document.get("method")
    if not isinstance(key, str) or key not in METHODS:
        raise PersistenceError(
            f"{path} holds a model of the method {key!r}, which is not known here; "
            f"register it with gcig.register_method, or update gcig. Known are: {', '.join(METHODS)}."
        )
    try:
        return METHODS[key].estimator._from_document(document, tensors, module)
    except InputError:
        raise  # about the argument module, or about the encoder
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise PersistenceError(
            f"{path} does not hold a {key} model as this version of gcig stores it "
            f"({type(error).__name__}: {error}); load it with the version that wrote it."
        ) from error
