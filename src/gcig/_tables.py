"""Tables of the user as pandas columns of known types, and the errors for input that cannot be used.

Nothing here writes to the caller's memory. No message repeats an entry of the caller's table: messages hold
column, class and group names, types and counts.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, TypedDict

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types as pt

MAX_NAME_LENGTH = 500  # characters of a column, group or class
MAX_EXACT_INTEGER = 2**53  # float64 represents every integer up to here, but not every larger one
# Options of `pandas.read_csv`: before 3.1 it rounds a quarter of all long numbers wrongly in the last digit.
EXACT_NUMBERS: dict[str, Any] = (
    {} if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}
)
_MAX_DENSE_BYTES = 2**34  # of a sparse matrix that is made dense
_FORMULA = re.compile(r"\s*[=+\-@\t\r]")
_UNSAFE = re.compile(r"[^0-9A-Za-z_]")  # characters that libraries replace in the names of columns
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?")

# Greek and Cyrillic letters that look like Latin ones, dashes and apostrophes.
_ALIKE = str.maketrans(
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bf"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0405\u0406\u0408"
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0455\u0456\u0458"
    "\u2010\u2011\u2012\u2013\u2212\u2018\u2019\u02bc",
    "ABEZHIKMNOPTYXo" + "ABEKMHOPCTXSIJ" + "aeopcyxsij" + "-" * 5 + "'" * 3,
)
# Characters without a width beyond formats and controls: the grapheme joiner, fillers, variation selectors.
_INVISIBLE = {0x034F, 0x115F, 0x1160, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)}


class Subject(TypedDict, total=False):
    """The input that a message is about: an argument, a column, or a column of an argument."""

    argument: str
    column: str


class _InputMessage(Exception):
    """A message whose subject is kept in fields, so that Python and the shell can spell it differently.

    With a subject, the name of an argument or a column, ``message`` is a predicate such as "has only one
    class".
    """

    def __init__(self, message: str, *, argument: str | None = None, column: str | None = None) -> None:
        self.message = message
        self.argument = argument
        self.column = column
        super().__init__(self.phrase())

    def phrase(self, spell: Callable[[str], str] = str) -> str:
        """Return the whole sentence, with the argument as ``spell`` writes it."""
        argument = None if self.argument is None else spell(self.argument)
        if self.column is not None:
            place = "" if argument is None else f" of {argument}"
            return f"Column {self.column!r}{place} {self.message}"
        if argument is None:
            return self.message
        # A spelling in words, such as "the target", begins the sentence; a name keeps its case.
        subject = argument[0].upper() + argument[1:] if " " in argument else argument
        return f"{subject} {self.message}"


class InputError(_InputMessage, ValueError):
    """Input that cannot be used; the message says why and what to do.

    Examples
    --------
    >>> import gcig
    >>> try:
    ...     gcig.metrics.delta_tpr([0, 1, 2], [0, 1, 1], sensitive_features=["f", "m", "m"])
    ... except gcig.InputError as error:
    ...     print(error.argument, "|", error)
    y_true | y_true has 3 classes (0, 1, 2). Only binary classification is supported...
    """


class InputTypeError(InputError, TypeError):
    """Input of a type that cannot be used."""


class InputWarning(_InputMessage, UserWarning):
    """Input that can be used, but should be checked.

    Examples
    --------
    To be strict, turn it into an error:

    >>> import warnings
    >>> from gcig.tables.encoding import TableEncoder
    >>> encoder = TableEncoder().fit({"city": ["Rome", "Oslo", "Rome"]})
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", InputWarning)
    ...     encoder.transform({"city": ["Oslo", "Bern"]})
    Traceback (most recent call last):
        ...
    gcig.tables.encoding.UnseenValuesWarning: Categories that training did not see, encoded as zeros: ...
    """


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


def check_name_lengths(names: Iterable[str], subject: Subject) -> None:
    """Raise an error for names that no page could show, which are most likely free text."""
    if long := [name for name in names if len(name) > MAX_NAME_LENGTH]:
        raise InputError(
            f"has a name of {len(long[0]):,} characters, beginning with {long[0][:20]!r}: at most "
            f"{MAX_NAME_LENGTH} are allowed. Shorten it.",
            **subject,
        )


def numbered(prefix: str, size: int) -> list[str]:
    """Return names for columns that have none."""
    return [f"{prefix}{j}" for j in range(size)]


def as_spelled(names: Iterable[str], given: Iterable[str]) -> list[str]:
    """Return, for each name that a model records, the given column that it stands for; itself if none does.

    LightGBM and exporters to ONNX replace characters of a name by underscores. A column stands for such a
    name if it is the only one that looks like it then.

    >>> as_spelled(["late_payments", "age", "pay_rate"], ["age", "late payments", "pay/rate", "pay rate"])
    ['late payments', 'age', 'pay_rate']
    """
    wanted, columns = list(names), list(given)
    plain = [_UNSAFE.sub("_", name) for name in columns]
    found = []
    for name in wanted:
        alike = _UNSAFE.sub("_", name)
        unique = name not in columns and plain.count(alike) == 1
        column = columns[plain.index(alike)] if unique else name
        found.append(name if column in wanted else column)
    return found


def rename_as(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return a table with the names that a model records for its columns; see `as_spelled`."""
    return frame.rename(columns=dict(zip(as_spelled(names, frame.columns), names, strict=True)))


def listed(values: Iterable[Any], limit: int = 10) -> str:
    """Join names for a message, quoted to make spaces visible, and at most ``limit`` of them."""
    shown = [repr(value) for value in values]
    return ", ".join(shown[:limit]) + (f" and {len(shown) - limit} more" if len(shown) > limit else "")


def is_formula(text: str) -> bool:
    """Return whether a spreadsheet would evaluate the text of a CSV entry instead of showing it.

    >>> is_formula("=HYPERLINK(A1)"), is_formula("-3.5"), is_formula("plain")
    (True, False, False)
    """
    return _FORMULA.match(text) is not None and _NUMBER.fullmatch(text) is None


def guard_formula(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would evaluate, which makes it plain text there.

    >>> guard_formula("=1+2"), guard_formula("-3.5")
    ("'=1+2", '-3.5')
    """
    return f"'{text}" if is_formula(text) else text


def look_alike(text: str, *, ignore_case: bool = False) -> str:
    r"""Return the text as a reader sees it: texts that look alike give the same result.

    Accents are composed, full-width characters are normalised, Greek and Cyrillic letters that look Latin are
    replaced, and surrounding spaces and characters without a width are removed.

    >>> look_alike("Jose\u0301") == look_alike("\uff2aos\xe9\u200b ")
    True
    >>> look_alike("Male") == look_alike("male")
    False
    """
    seen = " ".join(unicodedata.normalize("NFKC", text).split())
    visible = (c for c in seen if unicodedata.category(c) not in ("Cf", "Cc") and ord(c) not in _INVISIBLE)
    seen = " ".join("".join(visible).split())
    seen = unicodedata.normalize("NFKC", seen).translate(_ALIKE)
    return seen.casefold() if ignore_case else seen


def find_alike(texts: Iterable[str], *, ignore_case: bool = False) -> list[tuple[str, str]]:
    """Return pairs of different texts that look alike, each with the first text that looks like it.

    >>> find_alike(["Male", " Male", "Female"])
    [('Male', ' Male')]
    """
    first: dict[str, str] = {}
    pairs = [(first.setdefault(look_alike(text, ignore_case=ignore_case), text), text) for text in texts]
    return [(one, other) for one, other in pairs if one != other]
