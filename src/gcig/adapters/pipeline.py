"""Pipelines of scikit-learn: which original column each transformed one came from.

A pipeline whose steps keep columns apart (scalers, imputers, one-hot encoders, column transformers of these)
and whose last step is linear is explained exactly, by integrated gradients on the transformed columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, TargetEncoder

from gcig._validation import check_features
from gcig.adapters.base import DifferentiableModel
from gcig.adapters.linear import LinearModel, linear_module
from gcig.adapters.rows import Rows, class_codes

__all__ = ["LinearPipeline", "categorical_columns", "column_origin"]

Origin = NDArray[np.int64]


def column_origin(transformer: Any, n_inputs: int) -> Origin | None:
    """(outputs,) index of the input column that each output came from; None where outputs mix several.

    >>> from sklearn.preprocessing import StandardScaler
    >>> column_origin(StandardScaler().fit([[1.0, 2.0], [3.0, 5.0]]), 2)
    array([0, 1])
    """
    if transformer in (None, "passthrough"):
        return np.arange(n_inputs)
    if isinstance(transformer, Pipeline):
        return _origin_of_steps([step for _, step in transformer.steps], n_inputs)
    if isinstance(transformer, ColumnTransformer):
        return _origin_of_columns(transformer)
    if isinstance(transformer, OneHotEncoder):
        return np.repeat(np.arange(n_inputs), _one_hot_widths(transformer))
    if isinstance(transformer, SimpleImputer):
        # Columns without any value are dropped, and indicators are added.
        keeps = not transformer.add_indicator and not pd.isna(transformer.statistics_).any()
        return np.arange(n_inputs) if keeps else None
    alone = isinstance(transformer, OneToOneFeatureMixin)
    if isinstance(transformer, FunctionTransformer):  # what becomes of "passthrough", too
        alone = transformer.func is None or transformer.feature_names_out == "one-to-one"
    return np.arange(n_inputs) if alone else None


def _one_hot_widths(encoder: OneHotEncoder) -> list[int]:
    """Outputs of each input column: its categories, less merged ones and the one that is dropped."""
    dropped = [None] * encoder.n_features_in_ if encoder.drop_idx_ is None else encoder.drop_idx_
    merged = getattr(encoder, "infrequent_categories_", [None] * encoder.n_features_in_)
    return [
        len(categories) - (drop is not None) - (0 if few is None else len(few) - 1)
        for categories, drop, few in zip(encoder.categories_, dropped, merged, strict=True)
    ]


def _origin_of_steps(steps: Sequence[Any], n_inputs: int) -> Origin | None:
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
        inputs = transformer_inputs(transformer, columns)
        own = column_origin(step, len(inputs))
        if own is None or len(own) != part.stop - part.start:
            return None
        parts.append(np.asarray(inputs, dtype=np.int64)[own])
    return np.concatenate(parts) if parts else None


def transformer_inputs(transformer: ColumnTransformer, columns: Any) -> list[int]:
    """Positions of the columns that a part of a column transformer takes."""
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
    """Positions of input columns that the model takes as categories even where they are numbers."""
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
            for position in transformer_inputs(model, columns)
        ]
    marked = getattr(model, "is_categorical_", None)
    return [] if marked is None else np.flatnonzero(marked).tolist()


def _encodes_categories(step: Any) -> bool:
    steps = [each for _, each in step.steps] if isinstance(step, Pipeline) else [step]
    return any(isinstance(each, OneHotEncoder | OrdinalEncoder | TargetEncoder) for each in steps)


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearPipeline(DifferentiableModel):
    """A pipeline that encodes columns one by one, and ends in a linear classifier."""

    kind: str = "scikit-learn pipeline with a linear classifier"

    @staticmethod
    def origin_of(model: Any) -> Origin | None:
        """Where the transformed columns came from; None where the model is not of this kind."""
        if not isinstance(model, Pipeline) or not LinearModel.fits(model.steps[-1][1]):
            return None
        origin = _origin_of_steps([step for _, step in model.steps[:-1]], int(model.n_features_in_))
        width = np.shape(model.steps[-1][1].coef_)[-1]
        return origin if origin is not None and len(origin) == width else None

    @classmethod
    def wrap(cls, model: Pipeline, origin: Origin, X: Any) -> "LinearPipeline":
        """Copy the linear step, and take names of columns from the pipeline or from ``X``."""
        named = getattr(model, "feature_names_in_", None)
        if named is None:
            named = [f"x{j}" for j in range(model.n_features_in_)] if X is None else check_features(X).columns
        last = model.steps[-1][1]
        probabilistic = hasattr(last, "predict_proba")
        return cls(
            model=model,
            module=linear_module(last),
            columns=_encoded_names(model, tuple(map(str, named)), origin),
            origin=origin,
            original_names=tuple(map(str, named)),
            classes=np.asarray(last.classes_),
            probabilistic=probabilistic,
            threshold=0.5 if probabilistic else np.nan,
        )

    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:  # noqa: ARG002 (no group needed)
        """What the linear step sees."""
        encoded = self.model[:-1].transform(X) if len(self.model.steps) > 1 else X
        dense = encoded.toarray() if hasattr(encoded, "toarray") else encoded
        return np.asarray(dense, dtype=np.float64)

    def predict(self, X: Any, sensitive_features: Any = None) -> NDArray[np.int64]:  # noqa: ARG002 (no group needed)
        """Decisions of the pipeline."""
        return class_codes(self.model.predict(X), self.classes)

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> Rows:  # noqa: ARG002 (no group needed)
        """Probabilities of the pipeline."""
        return np.asarray(self.model.predict_proba(X))


def _encoded_names(model: Pipeline, names: tuple[str, ...], origin: Origin) -> tuple[str, ...]:
    try:
        return tuple(map(str, model[:-1].get_feature_names_out()))
    except (AttributeError, ValueError):  # a step that does not name its outputs
        return tuple(f"{names[j]} ({i})" for i, j in enumerate(origin.tolist()))
