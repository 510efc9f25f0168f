"""Tables of any kind as pandas columns of known types: numbers, true/false, text, categories and dates.

Nothing here writes to the caller's memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types as pt

from gcig._arguments import InputError, InputTypeError, Subject

MAX_EXACT_INTEGER = 2**53  # float64 represents every integer up to here, but not every larger one
_MAX_DENSE_BYTES = 2**34  # of a sparse matrix that is made dense


def check_lengths(**inputs: Any) -> int:
    """Return the number of rows that all ``inputs`` share; None stands for an input that was not given.

    pandas indexes must agree as well: otherwise rows in a different order would be paired silently.
    """
    given = {name: values for name, values in inputs.items() if values is not None}
    sizes = {name: _count_rows(values, name) for name, values in given.items()}
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise InputError(f"Found input variables with inconsistent numbers of samples: {found} rows.")
    indexed = {k: v.index for k, v in given.items() if isinstance(v, pd.DataFrame | pd.Series)}
    for name, index in indexed.items():
        first = next(iter(indexed))
        if index is not indexed[first] and not index.equals(indexed[first]):
            raise InputError(
                f"The pandas indexes of {first} and {name} disagree, so rows might be paired with the wrong "
                "rows. If both are in the same order, call .reset_index(drop=True) on each; otherwise align "
                f"them: {name} = {name}.loc[{first}.index]."
            )
    return next(iter(sizes.values()), 0)


def to_frame(values: Any, name: str, *, prefix: str, flat: bool = False) -> pd.DataFrame:
    """Convert a table of any kind (or, if ``flat``, one column) into a DataFrame."""
    if isinstance(values, pd.DataFrame):
        return values
    if hasattr(values, "tocoo"):
        return _from_sparse(values, name, prefix)
    if isinstance(values, Mapping):
        if values and all(map(_is_scalar, values.values())):  # one row
            values = {key: [value] for key, value in values.items()}
        check_lengths(**{f"{name}[{key!r}]": column for key, column in values.items()})
        frames = {k: to_frame(v, f"{name}[{k!r}]", prefix=prefix, flat=True) for k, v in values.items()}
        return pd.DataFrame({key: frame.iloc[:, 0].array for key, frame in frames.items()})
    try:
        native = nw.from_native(values, eager_only=True, allow_series=True, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise InputError("has several columns of the same name: rename them.", argument=name) from error
    if isinstance(native, nw.DataFrame):
        # Column by column through NumPy: polars' own to_pandas needs pyarrow.
        return pd.DataFrame(
            {c: _from_narwhals(native[c], {"argument": name, "column": c}) for c in native.columns}
        )
    if isinstance(values, list | tuple) and values:
        if all(isinstance(row, Mapping) for row in values):
            return _from_rows(values, name)
        if all(isinstance(row, list | tuple | np.ndarray) for row in values):
            widths = sorted({len(row) for row in values})
            if len(widths) > 1:
                raise InputError(
                    f"has rows of different lengths, from {widths[0]} to {widths[-1]} entries.", argument=name
                )
            return pd.DataFrame(list(values), columns=numbered(prefix, widths[0]))
        values = pd.Series(values, dtype=object)  # NumPy would read [1, "a"] as text
    if flat and isinstance(values, pd.Series | pd.Index | pd.api.extensions.ExtensionArray):
        column = pd.Series(values)
        return column.to_frame(prefix if column.name is None else column.name)
    if flat and isinstance(native, nw.Series):
        return pd.DataFrame({native.name or prefix: _from_narwhals(native, {"argument": name})})
    array = to_array(values, name)
    if flat and array.ndim == 1:
        return pd.DataFrame(array[:, np.newaxis], columns=[prefix], copy=False)
    if array.ndim != 2:
        hint = f"Reshape your data: {name}.reshape(-1, 1) is one column, {name}.reshape(1, -1) is one row."
        if isinstance(native, nw.Series):
            hint = f"{name}.iloc[[0]] is one row, unlike {name}.iloc[0]; .to_frame() gives one column."
        if isinstance(values, str):
            hint = "Pass the values themselves, not the name of a column or a file."
        if hasattr(values, "collect"):
            hint = "Call .collect() first: a lazy table has no rows yet."
        expected = "1D or 2D" if flat else "2D"
        found = f"{array.ndim}D data ({type(values).__name__} of shape {array.shape})"
        raise InputError(
            f"has the wrong number of dimensions: expected {expected} data, got {found}. {hint}",
            argument=name,
        )
    return pd.DataFrame(array, columns=numbered(prefix, array.shape[1]), copy=False)


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str) or not (hasattr(value, "__len__") or np.ndim(value))


def _from_rows(rows: Sequence[Mapping[Any, Any]], name: str) -> pd.DataFrame:
    """Return rows given as dicts, which must all have the same columns."""
    names = rows[0].keys()
    if different := sum(row.keys() != names for row in rows):
        raise InputError(
            f"has rows with different columns: {different} of {len(rows)} differ from the first. Give every "
            "row the same keys, with None for missing values.",
            argument=name,
        )
    return pd.DataFrame({key: pd.Series([row[key] for row in rows], dtype=object) for key in names})


def _from_sparse(values: Any, name: str, prefix: str) -> pd.DataFrame:
    """Return a sparse matrix as a dense table, since a network reads every entry."""
    needed = 8 * math.prod(values.shape)
    if needed > _MAX_DENSE_BYTES:
        raise InputTypeError(
            f"is a sparse matrix of shape {values.shape}, which takes {needed / 2**30:.0f} GiB as the dense "
            "table that a network reads. Select or reduce columns first, for example with "
            "sklearn.decomposition.TruncatedSVD.",
            argument=name,
        )
    return pd.DataFrame(values.toarray(), columns=numbered(prefix, values.shape[1]), copy=False)


def _from_narwhals(column: nw.Series[Any], subject: Subject) -> NDArray[Any]:
    if column.dtype.is_nested():
        raise _nested(str(column.dtype), subject)
    if column.dtype.is_integer() and column.null_count() < len(column):
        _reject_huge(column.max(), column.min(), subject)  # missing entries turn integers into floats below
    return column.to_numpy()


def to_array(values: Any, name: str) -> NDArray[Any]:
    """Return the values as an array of numbers, text or objects, without a copy if NumPy needs none."""
    if isinstance(values, np.ma.MaskedArray):  # NumPy would drop the mask: a masked entry is missing
        missing, values = np.ma.getmaskarray(values), np.asarray(values.data)
        values = np.where(missing, np.nan, values) if values.dtype.kind in "fc" else _masked(values, missing)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"of type {type(values).__name__} cannot be converted into an array.", argument=name
        ) from error
    if array.dtype.kind in "SV":
        raise InputError(f"is an array of type {array.dtype}: pass numbers or text.", argument=name)
    return array


def _masked(values: NDArray[Any], missing: NDArray[np.bool_]) -> NDArray[Any]:
    if not missing.any():
        return values
    objects = values.astype(object)
    objects[missing] = None
    return objects


def _count_rows(values: Any, name: str) -> int:
    if isinstance(values, Mapping) and not hasattr(values, "shape"):  # one kind of sparse matrix is a mapping
        first = next(iter(values.values()), ())
        return 1 if _is_scalar(first) else _count_rows(first, name)
    shape = getattr(values, "shape", None)
    shape = (len(values),) if shape is None and hasattr(values, "__len__") else shape
    shape = to_array(values, name).shape if shape is None else shape
    if not shape or isinstance(values, str):
        raise InputError(
            f"of type {type(values).__name__} has no rows: expected one entry per row.", argument=name
        )
    return int(shape[0])


def numbered(prefix: str, size: int) -> list[str]:
    """Return names for columns that have none."""
    return [f"{prefix}{j}" for j in range(size)]


def is_date_column(column: pd.Series[Any]) -> bool:
    """Return whether a checked column holds dates."""
    return pt.is_datetime64_any_dtype(column.dtype)


def checked_column(column: pd.Series[Any], subject: Subject, *, dates: bool = False) -> pd.Series[Any]:
    """Return the column as numbers, booleans, text or a categorical, and dates if they are allowed.

    Anything else is an error.
    """
    dtype = column.dtype
    if dates and is_date_column(column):
        return column
    if isinstance(dtype, pd.CategoricalDtype):
        if pt.is_object_dtype(dtype.categories.dtype):
            _checked_objects(pd.Series(dtype.categories, dtype=object), subject)
        return column
    if isinstance(dtype, pd.SparseDtype):
        return checked_column(column.astype(dtype.subtype), subject, dates=dates)
    if pt.is_complex_dtype(dtype):
        raise InputError(f"has type {dtype}. Complex data not supported.", **subject)
    if pt.is_numeric_dtype(dtype):
        return _checked_numbers(column, subject)
    if pt.is_string_dtype(dtype) and not pt.is_object_dtype(dtype):
        return column
    return _checked_objects(column.astype(object), subject, dates=dates)


def _checked_numbers(column: pd.Series[Any], subject: Subject) -> pd.Series[Any]:
    """Convert numbers of any width, nullable or not, into NumPy numbers that float64 can represent."""
    dtype = column.dtype
    if pt.is_integer_dtype(dtype) and column.notna().any():
        _reject_huge(column.max(), column.min(), subject)
    if isinstance(dtype, np.dtype) and (dtype.kind != "f" or dtype.itemsize in (4, 8)):
        return column
    if pt.is_bool_dtype(dtype):
        return column.astype("boolean" if column.isna().any() else bool)
    if pt.is_integer_dtype(dtype) and not column.isna().any():
        return column.astype(np.int64)
    return pd.Series(column.to_numpy(np.float64, na_value=np.nan), index=column.index, name=column.name)


def _checked_objects(column: pd.Series[Any], subject: Subject, *, dates: bool = False) -> pd.Series[Any]:
    """Convert an object column into text, numbers or dates, by the types of its entries."""
    kind = pt.infer_dtype(column, skipna=True)
    if kind == "string":
        return column
    if dates and kind in ("date", "datetime", "datetime64"):
        return pd.to_datetime(column, utc=True).dt.tz_localize(None)
    if any(word in kind for word in ("date", "time", "period", "interval")):
        raise InputError(
            f"holds dates or times ({kind}), which cannot be used here: convert them into numbers, such as "
            "days since a fixed date, or drop the column.",
            **subject,
        )
    present = column[column.notna()]
    types = set(map(type, present))
    if any(issubclass(t, complex) for t in types):
        raise InputError("holds complex numbers. Complex data not supported.", **subject)
    other = {t for t in types if not issubclass(t, Real | Decimal | np.bool_)}
    if not other:
        if integers := [value for value in present if isinstance(value, Integral)]:
            _reject_huge(max(integers), min(integers), subject)
        if types and types <= {bool, np.bool_}:
            return column.astype(bool if len(present) == len(column) else "boolean")
        if len(integers) == len(column):
            return column.astype(np.int64)
        return column.where(column.notna(), np.nan).astype(np.float64)
    if other == {str}:
        raise InputError(
            "mixes numbers and text: convert it into a category with .astype(str), or into numbers with "
            "pandas.to_numeric(..., errors='coerce').",
            **subject,
        )
    names = ", ".join(sorted(t.__name__ for t in other))
    raise _nested(names, subject)


def _nested(types: str, subject: Subject) -> InputTypeError:
    return InputTypeError(
        f"holds entries of type {types}: every entry argument must be a string or a number. Spread nested "
        "values over separate columns.",
        **subject,
    )


def _reject_huge(largest: Any, smallest: Any, subject: Subject) -> None:
    if max(int(largest), -int(smallest)) > MAX_EXACT_INTEGER:
        raise InputError(
            "holds integers beyond 2**53, which float64 cannot distinguish. If it is an identifier, drop it; "
            "otherwise rescale it, or pass it as text to make it a category.",
            **subject,
        )


def float_block(frame: pd.DataFrame) -> NDArray[np.floating[Any]] | None:
    """Return the values of a table of one NumPy float type, without a copy if possible; otherwise None.

    Checking one array is many times faster than checking column by column.
    """
    kinds = set(frame.dtypes)
    (kind,) = kinds if len(kinds) == 1 else (None,)
    if not isinstance(kind, np.dtype) or kind.kind != "f" or kind.itemsize < 4:
        return None
    values: NDArray[np.floating[Any]] = frame.to_numpy()
    return values


def has_infinity(column: pd.Series[Any]) -> bool:
    """Return whether a checked column holds plus or minus infinity."""
    return pt.is_float_dtype(column.dtype) and bool(np.isinf(column.to_numpy()).any())


def level_codes(column: pd.Series[Any]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return codes (n,) of a checked column, -1 if missing, and the sorted levels that occur, as text."""
    codes, values = factorise(column)
    return codes, tuple(level_name(value) for value in values)


def level_name(value: Any) -> str:
    """Return a level as text; 1.0 is "1", because integers and floats must have the same levels."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def factorise(column: pd.Series[Any]) -> tuple[NDArray[np.int64], list[Any]]:
    """Return codes (n,) of a checked column, -1 if missing, and the sorted values that occur."""
    codes, uniques = pd.factorize(column)
    values = [v.item() if isinstance(v, np.generic) else v for v in uniques]
    order = sorted(range(len(values)), key=values.__getitem__)
    rank = np.full(len(values) + 1, -1, dtype=np.int64)  # the last position is for code -1, a missing entry
    rank[order] = np.arange(len(values))
    return rank[codes], [values[j] for j in order]
