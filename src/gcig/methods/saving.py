"""Saved models: a fitted estimator as a document and tensors, and back, without running code.

JSON has no tuples, infinities, arrays or keys that are not text; `encode` and `decode` translate these. The
page :doc:`/saved_models` describes the document.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gcig._arguments import InputError
from gcig._arrays import Codes
from gcig.methods.consistency import check_model
from gcig.methods.networks import architecture_of, needs_module, restore_network
from gcig.methods.registry import METHODS
from gcig.persistence import PersistenceError, load_folder, save_folder
from gcig.records.audit import SMALLEST_CELL
from gcig.tables.encoding import TableEncoder
from gcig.tables.passthrough import PassThrough

_KIND = "gcig-model"
_MODELS = ("module", "teacher")  # parameters that are models themselves, and are not needed to predict
_NETWORK = "network."  # prefix of the network's tensors
_ENCODERS = {each.__name__: each for each in (TableEncoder, PassThrough)}


def encode(value: Any, tensors: dict[str, Tensor], path: str) -> Any:
    """Return a value in JSON's types; arrays go to ``tensors``, named by their path.

    >>> encode({"sizes": (4, 2), "limit": math.inf}, {}, "x")
    {'mapping': [['sizes', {'tuple': [4, 2]}], ['limit', {'float': 'inf'}]]}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, TableEncoder):  # a parameter; the fitted encoder is stored apart
        return {"table_encoder": value.get_params()}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        tensors[path] = torch.from_numpy(value)
        return {"tensor": path}
    if isinstance(value, pd.DataFrame):
        columns = {name: value[name].tolist() for name in value.columns}
        return {"frame": encode(columns, tensors, path)["mapping"]}
    if isinstance(value, Mapping):
        items = [
            [encode(key, tensors, path), encode(item, tensors, f"{path}.{index}")]
            for index, (key, item) in enumerate(value.items())
        ]
        return {"mapping": items}
    if isinstance(value, tuple | list):
        parts = [encode(item, tensors, f"{path}.{index}") for index, item in enumerate(value)]
        return {"tuple": parts} if isinstance(value, tuple) else parts
    if is_dataclass(value) and not isinstance(value, type):
        named = {each.name: getattr(value, each.name) for each in fields(value)}
        return {
            "record": type(value).__name__,
            "fields": {name: encode(item, tensors, f"{path}.{name}") for name, item in named.items()},
        }
    raise PersistenceError(
        f"{path} is a {type(value).__name__}, which cannot be saved: use numbers, text, arrays, data frames, "
        "or tuples, lists, dicts and dataclasses of these"
    )


def decode(plain: Any, tensors: Mapping[str, Tensor], records: Iterable[type] = ()) -> Any:
    """Return the value that `encode` was given; ``records`` are the dataclasses that may occur.

    >>> decode({"mapping": [[0, {"tuple": [4, 2]}]]}, {})
    {0: (4, 2)}
    """
    if isinstance(plain, list):
        return [decode(item, tensors, records) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if "record" in plain:
        kind = {each.__name__: each for each in records}[plain["record"]]
        return kind(**{name: decode(item, tensors, records) for name, item in plain["fields"].items()})
    ((kind_of, content),) = plain.items()
    match kind_of:
        case "float":
            return float(content)
        case "tensor":
            return tensors[content].numpy()
        case "table_encoder":
            return TableEncoder(**content)
        case "tuple":
            return tuple(decode(content, tensors, records))
        case "mapping":
            return {key: decode(item, tensors, records) for key, item in content}
        case "frame":
            return pd.DataFrame({name: decode(column, tensors) for name, column in content})
    raise ValueError(f"{kind_of!r} is not a kind of value")


def save_model(model: Any, path: str | Path) -> None:
    """Write a fitted estimator to a folder."""
    model.check_private()
    document, tensors = describe_model(model)
    save_folder(path, document, tensors, kind=_KIND)


def portable_state(model: Any) -> dict[str, Any]:
    """Return a fitted estimator as text and arrays, for serialisers that store no code, such as skops."""
    model.check_private()
    document, tensors = describe_model(model)
    if needs_module(document["network"]):
        raise PersistenceError(
            f"{type(model).__name__} has a custom network, whose code cannot be stored: use save(), and "
            "gcig.load(path, module=...) with an untrained network of the same architecture."
        )
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    return {"gcig_document": json.dumps(document), "gcig_tensors": arrays}


def restore_state(model: Any, state: Mapping[str, Any]) -> None:
    """Set the attributes that `portable_state` described, with the checks of `load`."""
    tensors = {name: torch.from_numpy(array) for name, array in state["gcig_tensors"].items()}
    restored = _from_document(type(model), json.loads(state["gcig_document"]), tensors, None)
    model.__dict__.update(restored.__dict__)


def describe_model(model: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return a fitted estimator as a document in JSON's types, and tensors: all that `load` needs."""
    parameters = {name: value for name, value in model.get_params(deep=False).items() if name not in _MODELS}
    if not isinstance(parameters.get("random_state"), int | np.integer):
        parameters["random_state"] = None  # the state of a generator is not kept
    if not isinstance(parameters.get("attribution", ""), str):
        kind = type(parameters["attribution"]).__name__
        raise PersistenceError(
            f"attribution is a {kind}, and objects are not saved: register it with "
            "gcig.register_attribution, and pass its name"
        )
    tensors = {f"{_NETWORK}{name}": tensor for name, tensor in model.module_.state_dict().items()}
    shown = published_cells(model.cell_sizes_)
    tensors["cell_sizes"] = torch.from_numpy(np.where(shown, model.cell_sizes_, 0))
    tensors["baselines"] = torch.from_numpy(np.where(shown[:, :, None], model.baselines_, np.float32("nan")))
    names = _listed(type(model), "fitted_attributes")
    learned = {name: getattr(model, name) for name in names if hasattr(model, name)}
    document = {
        "method": model.method_key,
        "task": model.task_.key,
        "parameters": {name: encode(value, tensors, name) for name, value in parameters.items()},
        "classes": model.classes_.tolist() if hasattr(model, "classes_") else [],
        "groups": list(model.groups_),
        "encoder": model.encoder_.to_dict(),
        "encoder_kind": type(model.encoder_).__name__,
        "named_columns": hasattr(model, "feature_names_in_"),
        "network": architecture_of(model.module_),
        "learned": {name: encode(value, tensors, f"learned.{name}") for name, value in learned.items()},
    }
    return document, tensors


def published_cells(sizes: Codes) -> NDArray[np.bool_]:
    """Return which (label, group) cells of these sizes are saved: those of at least 11 rows.

    The mean of one cell that is left out could be computed from the others, because numbers are encoded with
    mean zero. So all cells that are left out have 11 rows together: if need be, the next smallest is added.

    >>> published_cells(np.array([[50, 3], [20, 30]]))
    array([[ True, False],
           [False,  True]])
    """
    shown = sizes >= SMALLEST_CELL
    while 0 < sizes[~shown].sum() < SMALLEST_CELL and shown.any():
        shown[sizes == sizes[shown].min()] = False
    return shown


def _listed(cls: type, attribute: str) -> list[Any]:
    """Return the values of a class attribute of a class and its bases, without repetition."""
    listed = (item for each in cls.__mro__ for item in vars(each).get(attribute, ()))
    return list(dict.fromkeys(listed))


def _from_document(
    cls: type[Any], document: Mapping[str, Any], tensors: Mapping[str, Tensor], module: nn.Module | None
) -> Any:
    """Return the model that a document describes; a `ValueError` if its parts do not fit together."""
    records = _listed(cls, "fitted_records")
    model = cls(**{name: decode(value, tensors, records) for name, value in document["parameters"].items()})
    try:
        model.encoder_ = _ENCODERS[document["encoder_kind"]].from_dict(document["encoder"])
        model.check_parameters()
    except InputError as error:  # about the file, not about an argument of the caller
        raise ValueError(str(error)) from error
    groups, named = tuple(document["groups"]), bool(document["named_columns"])
    model.describe_data(document["classes"], groups, tensors["baselines"], named=named)
    model.cell_sizes_, model.diverged_ = tensors["cell_sizes"].numpy(), False
    learned = document["learned"]
    for name in _listed(cls, "fitted_attributes"):
        if name in learned:
            setattr(model, name, decode(learned[name], tensors, records))
    state = {name.removeprefix(_NETWORK): each for name, each in tensors.items() if name.startswith(_NETWORK)}
    model.module_ = restore_network(document["network"], state, module)
    if needs_module(document["network"]):
        model.module = module
    check_model(model, document["task"])
    return model


def load(path: str | Path, *, module: nn.Module | None = None) -> Any:
    """Read a model that an estimator's ``save`` wrote; none of its content is executed.

    Parameters
    ----------
    path : str or Path
        The model's folder.
    module : torch.nn.Module, optional
        An untrained network of the same architecture, for a model with a custom network.

    Examples
    --------
    >>> import gcig, tempfile
    >>> data = gcig.load_dataset("german")
    >>> model = gcig.methods.METHODS["unconstrained"].estimator(max_epochs=3, random_state=0)
    >>> folder = tempfile.mkdtemp() + "/model"
    >>> model.fit(data.X, data.y, sensitive_features=data.sensitive_features).save(folder)
    >>> bool((gcig.load(folder).predict(data.X) == model.predict(data.X)).all())
    True
    """
    document, tensors = load_folder(path, kind=_KIND)
    key, task = document.get("method"), document.get("task")
    if not isinstance(key, str) or key not in METHODS:
        raise PersistenceError(
            f"{path} holds a model of the method {key!r}, which is not known here; "
            f"register it with gcig.register_method, or update gcig. Known are: {', '.join(METHODS)}."
        )
    if task not in METHODS[key].tasks:
        raise PersistenceError(
            f"{path} holds a model of the method {key!r} for the task {task!r}, which it is not defined for; "
            f"it is for {', '.join(METHODS[key].tasks)}. Load it with the version that wrote it."
        )
    try:
        return _from_document(METHODS[key].estimator_for(task), document, tensors, module)
    except InputError:
        raise  # about the argument module
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RuntimeError) as error:
        raise PersistenceError(
            f"{path} does not hold a model of the method {key!r} as this version of gcig stores it "
            f"({type(error).__name__}: {error}); load it with the version that wrote it."
        ) from error
