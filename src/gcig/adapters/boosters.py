"""Gradient boosted trees of XGBoost, LightGBM and CatBoost, and their native files, which run no code."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api import types as pt

from gcig._tables import listed, rename_as
from gcig._validation import InputError, check_features, match_columns

_LIBRARIES = {"xgboost": "XGBoost", "lightgbm": "LightGBM", "catboost": "CatBoost"}
_HEAD_BYTES = 4096  # enough to recognise a file
_OPENING_SECONDS = 300  # the most that XGBoost may take to open a file


def booster_kind(path: Path) -> str | None:
    """Return the library whose native file this is, recognised by its first bytes; None for other files."""
    head = _head(path)
    if head.startswith(b"CBM1"):
        return "catboost"
    if head.startswith(b"tree\n"):
        return "lightgbm"
    if head.startswith(b"{") and b"learner" in head[:64]:  # JSON or UBJSON
        return "xgboost"
    if head.lstrip().startswith(b"{") and any(key in head for key in (b'"ctr_data"', b'"features_info"')):
        return "catboost"
    return None


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)


def open_booster(path: Path, kind: str) -> Any:
    """Open a native file with its library."""
    name = _LIBRARIES[kind]
    try:
        library = import_module(kind)
    except ImportError as error:
        raise InputError(
            f"{path} is a model of {name}, which is not installed. Install it: pip install {kind}."
        ) from error
    try:
        if kind == "xgboost":
            _try_in_another_process(path)
            return library.Booster(model_file=str(path))
        if kind == "lightgbm":
            model = library.Booster(model_str=_lightgbm_text(path))
            booster_categories(model)  # fails if what it describes is damaged
            return model
        written = "cbm" if _head(path).startswith(b"CBM1") else "json"
        if written == "json":
            json.loads(path.read_bytes())  # CatBoost opens a truncated file as an empty model
        return library.CatBoostClassifier().load_model(str(path), format=written)
    except Exception as error:  # each library has its own errors
        raise InputError(
            f"{path} could not be opened as a model of {name} ({type(error).__name__}): the file is damaged, "
            f"or another version of {name} wrote it. Save the model again with the installed version."
        ) from error


def _try_in_another_process(path: Path) -> None:
    """Raise an error if XGBoost cannot open a file in its binary format, whose damage can crash the process.

    The other process imports packages from where they are installed, not from the current folder.
    """
    if not _head(path).startswith(b'{"'):  # otherwise JSON, whose damage XGBoost reports
        words = [sys.executable, "-P", "-c", "import sys, xgboost; xgboost.Booster(model_file=sys.argv[1])"]
        done = subprocess.run([*words, str(path)], capture_output=True, timeout=_OPENING_SECONDS)
        if done.returncode:
            raise ValueError(f"the process that opened it ended with {done.returncode}")


def _lightgbm_text(path: Path) -> str:
    """Return the text of a LightGBM model; raise an error if its trees would make LightGBM crash or loop."""
    text = path.read_text("utf-8")
    for tree in text.split("\nTree=")[1:]:
        fields = dict(line.partition("=")[::2] for line in tree.splitlines())
        if (leaves := int(fields["num_leaves"])) > 1:
            children = map(int, f"{fields['left_child']} {fields['right_child']}".split())
            if sorted(children) != [*range(-leaves, 0), *range(1, leaves - 1)]:
                raise ValueError("a tree in which not every node below the root has one parent")
    # LightGBM crashes if it cannot read a parameter of training, which is not needed. With the sizes of its
    # trees, it would read them in parallel, and an error would abort the process.
    return re.sub(r"^tree_sizes=.*\n|^parameters:\n(?s:.*)^end of parameters\n", "", text, flags=re.MULTILINE)


def booster_columns(model: Any) -> tuple[str, ...] | None:
    """Return the names of the columns that boosted trees were trained with; None if they are not recorded."""
    home = type(model).__module__.partition(".")[0]
    names: Any = None
    if home == "xgboost" and _is_native(model):
        names = model.feature_names
    elif home == "lightgbm" and _is_native(model):
        names = model.feature_name()
        if all(name == f"Column_{i}" for i, name in enumerate(names)):
            names = None  # trained with an array
    elif home == "catboost":
        names = model.feature_names_
        if names is not None and all(name == str(i) for i, name in enumerate(names)):
            names = None
    return tuple(map(str, names)) if names else None


def booster_categories(model: Any) -> list[int]:
    """Return the positions of the columns that boosted trees treat as categories."""
    home = type(model).__module__.partition(".")[0]
    if home == "catboost":
        return [int(position) for position in model.get_cat_feature_indices()]
    if not _is_native(model):
        return []
    if home == "xgboost":
        return [i for i, kind in enumerate(model.feature_types or ()) if kind == "c"]
    infos = model.dump_model(num_iteration=1)["feature_infos"]
    return [i for i, name in enumerate(model.feature_name()) if infos.get(name, {}).get("values")]


def booster_prediction(model: Any) -> Callable[[Any], Any] | None:
    """Return the prediction of a native LightGBM or XGBoost model of a table; None for other models."""
    home = type(model).__module__.partition(".")[0]
    if not _is_native(model) or home not in ("lightgbm", "xgboost"):
        return None
    categories, names = booster_categories(model), booster_columns(model)
    if home == "xgboost":
        xgboost = import_module("xgboost")
        if categories and not hasattr(model, "get_categories"):
            raise InputError(
                "model: it has columns of categories, whose order this version of XGBoost does not record. "
                "Install XGBoost 3.1.1 or later, train the model again and save it."
            )
        return lambda X: model.predict(
            xgboost.DMatrix(
                _with_levels(_prepared(X, names, categories), model), enable_categorical=bool(categories)
            )
        )
    expected = len(model.pandas_categorical or ())

    def predict(X: Any) -> Any:
        table = _prepared(X, names, categories)
        if isinstance(table, pd.DataFrame):
            found = [name for name in table if isinstance(table[name].dtype, pd.CategoricalDtype)]
            if len(found) != expected:
                raise InputError(
                    f"The model was trained with {expected} columns of categories, but the table has "
                    f"{len(found)} ({listed(found)}). Pass the columns with the types of training."
                )
        return model.predict(table)

    return predict


def _with_levels(table: Any, model: Any) -> Any:
    """Add a category of training to columns in which every entry is missing: XGBoost fails without one."""
    if not isinstance(table, pd.DataFrame):
        return table
    dtypes = table.dtypes.items()
    empty = [str(name) for name, kind in dtypes if kind == "category" and not len(kind.categories)]
    known = dict(model.get_categories(export_to_arrow=True).to_arrow()) if empty else {}
    return table.assign(**{name: table[name].cat.set_categories([known[name][0].as_py()]) for name in empty})


def _is_native(model: Any) -> bool:
    return type(model).__name__ == "Booster"


def _prepared(X: Any, names: Sequence[str] | None, categories: Sequence[int]) -> Any:
    """Return a table with the columns of training, in order, and text and categories as categories."""
    if names is None and not hasattr(X, "columns"):
        return X
    frame = check_features(X)
    frame = frame if names is None else match_columns(rename_as(frame, names), names)
    marked = {frame.columns[position] for position in categories}
    texts = [name for name in frame if name in marked or not pt.is_numeric_dtype(frame[name].dtype)]
    return frame.astype(dict.fromkeys(texts, "category")) if texts else frame
