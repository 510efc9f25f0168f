"""Gradient boosted trees of XGBoost, LightGBM and CatBoost, and their native files, which run no code."""

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api import types as pt
from scipy.special import softmax

from gcig._arguments import InputError, listed
from gcig.adapters.base import Task
from gcig.adapters.booster_files import load_safely
from gcig.tables.check import check_features, match_columns
from gcig.tables.names import rename_as

_LIBRARIES = {"xgboost": "XGBoost", "lightgbm": "LightGBM", "catboost": "CatBoost"}
# Objectives, or their first letters, of models that predict numbers: those of XGBoost, then of LightGBM.
_OF_NUMBERS = (
    *("reg:", "count:", "survival:", "rank:"),
    *("regression", "huber", "fair", "poisson", "quantile", "mape", "gamma", "tweedie", "lambdarank"),
)
_HEAD_BYTES = 4096  # enough to recognise a file


def booster_kind(path: Path) -> str | None:
    """Return the library whose native file this is, recognised by its first bytes; None for other files."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(b"CBM1"):
        return "catboost"
    if head.startswith(b"tree\n"):
        return "lightgbm"
    if head.startswith(b"{") and b"learner" in head[:64]:  # JSON or UBJSON
        return "xgboost"
    if head.lstrip().startswith(b"{") and any(key in head for key in (b'"ctr_data"', b'"features_info"')):
        return "catboost"
    return None


def open_booster(path: Path, kind: str) -> Any:
    """Open a native file with its library."""
    name = _LIBRARIES[kind]
    if find_spec(kind) is None:
        raise InputError(
            f"{path} is a model of {name}, which is not installed. Install it: pip install {kind}."
        )
    try:
        return load_safely(path, kind)
    except Exception as error:  # each library has its own errors
        raise InputError(
            f"{path} could not be opened as a model of {name} ({type(error).__name__}): the file is damaged, "
            f"or another version of {name} wrote it. Save the model again with the installed version."
        ) from error


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


def native_booster(model: Any) -> tuple[Callable[[Any], Any], Task] | None:
    """Return the prediction of a native LightGBM or XGBoost model, and its task; None for other models."""
    home = type(model).__module__.partition(".")[0]
    if not _is_native(model) or home not in ("lightgbm", "xgboost"):
        return None
    categories, names = booster_categories(model), booster_columns(model)
    if home == "xgboost":
        task = _task_of(json.loads(model.save_config())["learner"]["objective"]["name"])
        xgboost = import_module("xgboost")
        if categories and not hasattr(model, "get_categories"):
            raise InputError(
                "model: it has columns of categories, whose order this version of XGBoost does not record. "
                "Install XGBoost 3.1.1 or later, train the model again and save it."
            )

        def predict_by_xgboost(X: Any) -> Any:
            table = _with_levels(_prepared(X, names, categories), model)
            rows = xgboost.DMatrix(table, enable_categorical=bool(categories))
            if task != "classes":
                return model.predict(rows)
            return softmax(model.predict(rows, output_margin=True), axis=1)  # "multi:softmax" gives classes

        return predict_by_xgboost, task
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

    return predict, _task_of(model.dump_model(num_iteration=1).get("objective", ""))


def _task_of(objective: str) -> Task:
    """Return the task of an objective of XGBoost or LightGBM; a custom one is taken for two classes."""
    if objective.startswith("multi"):
        return "classes"
    return "number" if objective.startswith(_OF_NUMBERS) and objective != "reg:logistic" else "binary"


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
