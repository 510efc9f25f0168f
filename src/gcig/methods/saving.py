"""Saved models: a fitted estimator as a document and tensors, and back, without running code.

JSON has no tuples, infinities, arrays or keys that are not text; `encode` and `decode` translate these.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from gcig._validation import InputError
from gcig.core.definition import Definition
from gcig.core.modules import logits
from gcig.data.encoding import TableEncoder
from gcig.data.passthrough import PassThrough
from gcig.data.read import REQUESTED_KINDS
from gcig.methods.networks import architecture_of, needs_module, restore_network
from gcig.methods.registry import METHODS
from gcig.persistence import PersistenceError, load_folder, save_folder

if TYPE_CHECKING:
    from gcig.methods.base import NetworkClassifier

_KIND = "gcig-model"
_MODELS = ("module", "teacher")  # parameters that are models themselves, and are not needed to predict
_NETWORK = "network."  # prefix of the network's tensors
_ENCODERS: dict[str, type[TableEncoder] | type[PassThrough]] = {
    "TableEncoder": TableEncoder,
    "PassThrough": PassThrough,
}


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


def save_model(model: "NetworkClassifier", path: str | Path) -> None:
    """Write a fitted estimator to a folder."""
    document, tensors = describe_model(model)
    save_folder(path, document, tensors, kind=_KIND)


def portable_state(model: "NetworkClassifier") -> dict[str, Any]:
    """Return a fitted estimator as text and arrays, for serialisers that store no code, such as skops."""
    document, tensors = describe_model(model)
    if needs_module(document["network"]):
        raise PersistenceError(
            f"{type(model).__name__} has a custom network, whose code cannot be stored: use save(), and "
            "gcig.load(path, module=...) with an untrained network of the same architecture."
        )
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    return {"gcig_document": json.dumps(document), "gcig_tensors": arrays}


def restore_state(model: "NetworkClassifier", state: Mapping[str, Any]) -> None:
    """Set the attributes that `portable_state` described, with the checks of `load`."""
    tensors = {name: torch.from_numpy(array) for name, array in state["gcig_tensors"].items()}
    restored = _from_document(type(model), json.loads(state["gcig_document"]), tensors, None)
    model.__dict__.update(restored.__dict__)


def describe_model(model: "NetworkClassifier") -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return a fitted estimator as a document in JSON's types, and tensors: all that `load` needs."""
    tensors = {f"{_NETWORK}{name}": tensor for name, tensor in model.module_.state_dict().items()}
    tensors["baselines"] = torch.from_numpy(model.baselines_)
    parameters = {name: value for name, value in model.get_params(deep=False).items() if name not in _MODELS}
    if not isinstance(parameters.get("random_state"), int | np.integer):
        parameters["random_state"] = None  # the state of a generator is not kept
    names = _listed(type(model), "fitted_attributes")
    learned = {name: getattr(model, name) for name in names if hasattr(model, name)}
    document = {
        "method": model.method_key,
        "parameters": {name: encode(value, tensors, name) for name, value in parameters.items()},
        "classes": model.classes_.tolist(),
        "groups": list(model.groups_),
        "encoder": model.encoder_.to_dict(),
        "encoder_kind": type(model.encoder_).__name__,
        "threshold": encode(model.threshold_, tensors, "threshold"),
        "named_columns": hasattr(model, "feature_names_in_"),
        "network": architecture_of(model.module_),
        "learned": {name: encode(value, tensors, f"learned.{name}") for name, value in learned.items()},
    }
    return document, tensors


def _listed(cls: type, attribute: str) -> list[Any]:
    """Return the values of a class attribute of a class and its bases, without repetition."""
    listed = (item for each in cls.__mro__ for item in vars(each).get(attribute, ()))
    return list(dict.fromkeys(listed))


def _from_document(
    cls: "type[NetworkClassifier]",
    document: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    module: nn.Module | None,
) -> "NetworkClassifier":
    """Return the model that a document describes; anything that does not fit together is an error."""
    records = [Definition, *_listed(cls, "fitted_records")]
    model = cls(**{name: decode(value, tensors, records) for name, value in document["parameters"].items()})
    model.encoder_ = _ENCODERS[document["encoder_kind"]].from_dict(document["encoder"])
    groups, named = tuple(document["groups"]), bool(document["named_columns"])
    model.describe_data(document["classes"], groups, tensors["baselines"], named=named)
    model.threshold_, model.diverged_ = float(decode(document["threshold"], tensors)), False
    learned = document["learned"]
    for name in _listed(cls, "fitted_attributes"):
        if name in learned:
            setattr(model, name, decode(learned[name], tensors, records))
    state = {name.removeprefix(_NETWORK): each for name, each in tensors.items() if name.startswith(_NETWORK)}
    model.module_ = restore_network(document["network"], state, module)
    if needs_module(document["network"]):
        model.module = module
    try:
        model.check_parameters()
    except InputError as error:  # about the file, not about an argument of the caller
        raise ValueError(str(error)) from error
    _check_fits_together(model)
    _check_requests(model)
    model.check_learned()
    return model


def _check_fits_together(model: "NetworkClassifier") -> None:
    """Raise a `ValueError` if the parts of a stored model cannot be parts of one model."""
    n_inputs = model.encoder_.n_features_out_
    classes = model.classes_.tolist() if model.classes_.ndim == 1 else []
    if len(classes) != 2 or classes[0] == classes[1] or not all(map(_is_label, classes)):
        raise ValueError("a model has two classes, which are different numbers or texts")
    if not all(isinstance(name, str) for name in model.groups_) or len(set(model.groups_)) < 2:
        raise ValueError("a model has the names of at least two groups")
    if len(set(model.groups_)) < len(model.groups_):
        raise ValueError("two groups have the same name")
    if model.baselines_.shape != (2, len(model.groups_), n_inputs):
        raise ValueError(
            f"baselines of shape {model.baselines_.shape} do not fit {len(model.groups_)} groups and "
            f"{n_inputs} columns"
        )
    if not np.isfinite(model.baselines_).all():
        raise ValueError("baselines are not finite")
    sizes = np.asarray(getattr(model, "cell_sizes_", np.ones((2, len(model.groups_)), dtype=np.int64)))
    if sizes.shape != (2, len(model.groups_)) or sizes.dtype.kind != "i" or (sizes < 1).any():
        raise ValueError("the sizes of the (label, group) cells are not counts of rows")
    # Methods without the parameter have other decision rules, and their threshold is NaN.
    decides = "threshold" in model.get_params(deep=False)
    if not (0 <= model.threshold_ <= 1 if decides else math.isnan(model.threshold_)):
        raise ValueError(f"the threshold {model.threshold_} is not a probability")
    if not all(bool(torch.isfinite(each).all()) for each in model.module_.state_dict().values()):
        raise ValueError("weights of the network are not finite")
    try:
        with torch.no_grad():
            logits(model.module_, torch.zeros(1, n_inputs, dtype=torch.float32))
    except RuntimeError as error:
        raise ValueError(f"the network does not take {n_inputs} columns: {error}") from error


def _check_requests(model: "NetworkClassifier") -> None:
    """Raise a `ValueError` if what a training file was requested to be read as is not possible."""
    if hasattr(model, "favourable_") and model.favourable_ not in model.classes_.tolist():
        raise ValueError("the favourable outcome is not a class of the model")
    requests = [getattr(model, name, {}) for name in ("group_names_", "column_kinds_")]
    if not all(isinstance(each, dict) for each in requests) or not all(
        isinstance(text, str) for each in requests for pair in each.items() for text in pair
    ):
        raise ValueError("names of groups and kinds of columns are not text")
    if unknown := set(requests[1].values()) - set(REQUESTED_KINDS):
        raise ValueError(f"{min(unknown)!r} is not a kind of column")


def _is_label(value: Any) -> bool:
    return isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


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
    key = document.get("method")
    if not isinstance(key, str) or key not in METHODS:
        raise PersistenceError(
            f"{path} holds a model of the method {key!r}, which is not known here; "
            f"register it with gcig.register_method, or update gcig. Known are: {', '.join(METHODS)}."
        )
    try:
        return _from_document(METHODS[key].estimator, document, tensors, module)
    except InputError:
        raise  # about the argument module, or about the encoder
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RuntimeError) as error:
        raise PersistenceError(
            f"{path} does not hold a model of the method {key!r} as this version of gcig stores it "
            f"({type(error).__name__}: {error}); load it with the version that wrote it."
        ) from error
