"""The original column that each column of a transformed table came from, and the columns of categories."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, TargetEncoder

from gcig.adapters.boosters import booster_categories

Origin = NDArray[np.int64]


def column_origin(transformer: Any, n_inputs: int) -> Origin | None:
    """Return (outputs,) the input column that each output came from; None if an output mixes several.

    >>> from sklearn.preprocessing import StandardScaler
    >>> column_origin(StandardScaler().fit([[1.0, 2.0], [3.0, 5.0]]), 2)
    array([0, 1])
    """
    if transformer in (None, "passthrough"):
        return np.arange(n_inputs)
    if isinstance(transformer, Pipeline):
        return origin_of_steps([step for _, step in transformer.steps], n_inputs)
    if isinstance(transformer, ColumnTransformer):
        return _origin_of_columns(transformer)
    if isinstance(transformer, OneHotEncoder):
        return np.repeat(np.arange(n_inputs), _one_hot_widths(transformer))
    if isinstance(transformer, SimpleImputer):
        # An imputer drops columns without any value, and may add indicators.
        keeps = not transformer.add_indicator and not pd.isna(transformer.statistics_).any()
        return np.arange(n_inputs) if keeps else None
    separate = isinstance(transformer, OneToOneFeatureMixin)
    if isinstance(transformer, FunctionTransformer):  # scikit-learn turns "passthrough" into one
        separate = transformer.func is None or transformer.feature_names_out == "one-to-one"
    return np.arange(n_inputs) if separate else None


def _one_hot_widths(encoder: OneHotEncoder) -> list[int]:
    """Return the number of outputs per input column: its categories after merging and dropping."""
    dropped = [None] * encoder.n_features_in_ if encoder.drop_idx_ is None else encoder.drop_idx_
    infrequent = getattr(encoder, "infrequent_categories_", [None] * encoder.n_features_in_)
    return [
        len(categories) - (drop is not None) - (0 if rare is None else len(rare) - 1)
        for categories, drop, rare in zip(encoder.categories_, dropped, infrequent, strict=True)
    ]


def origin_of_steps(steps: Sequence[Any], n_inputs: int) -> Origin | None:
    """Return the input column of each output of several steps; None if an output mixes several."""
    origin = np.arange(n_inputs)
    for step in steps:
        own = column_origin(step, len(origin))
        if own is None:
            return None
        origin = origin[own]
    return origin


def _origin_of_columns(transformer: ColumnTransformer) -> Origin | None:
    parts: list[Origin] = []
    for name, step, columns in transformer.transformers_:
        part = transformer.output_indices_[name]
        if step == "drop" or part.start == part.stop:
            continue
        inputs = _input_positions(transformer, columns)
        own = column_origin(step, len(inputs))
        if own is None or len(own) != part.stop - part.start:
            return None
        parts.append(np.asarray(inputs, dtype=np.int64)[own])
    return np.concatenate(parts) if parts else None


def _input_positions(transformer: ColumnTransformer, columns: Any) -> list[int]:
    """Return the positions of the columns that one part of a column transformer takes."""
    if isinstance(columns, str | int | np.integer):
        columns = [columns]
    names = list(getattr(transformer, "feature_names_in_", ()))
    if isinstance(columns, slice):
        return list(range(transformer.n_features_in_))[columns]
    chosen = np.asarray(columns)
    if chosen.dtype == bool:
        return np.flatnonzero(chosen).tolist()
    return [names.index(each) if isinstance(each, str) else int(each) for each in chosen.tolist()]


def categorical_columns(model: Any) -> list[int]:
    """Return the positions of input columns that the model treats as categories, even if they are numeric."""
    if isinstance(model, Pipeline):
        for _, step in model.steps:
            if isinstance(step, ColumnTransformer):
                return categorical_columns(step)
            if isinstance(step, OneHotEncoder | OrdinalEncoder | TargetEncoder):
                return list(range(step.n_features_in_))
            if not isinstance(step, OneToOneFeatureMixin | SimpleImputer):
                return categorical_columns(step)
        return []
    if isinstance(model, ColumnTransformer):
        return [
            position
            for _, step, columns in model.transformers_
            if _encodes_categories(step)
            for position in _input_positions(model, columns)
        ]
    marked = getattr(model, "is_categorical_", None)
    return booster_categories(model) if marked is None else np.flatnonzero(marked).tolist()


def _encodes_categories(step: Any) -> bool:
    steps = [each for _, each in step.steps] if isinstance(step, Pipeline) else [step]
    return any(isinstance(each, OneHotEncoder | OrdinalEncoder | TargetEncoder) for each in steps)
