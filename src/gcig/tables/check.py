"""The checks of X, y, sensitive_features and sample_weight that every entry point shares."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types as pt
from sklearn.exceptions import DataConversionWarning

from gcig._arguments import InputError, InputWarning, Subject, listed, warn_caller, warn_input
from gcig.tables.frames import (
    check_lengths,
    checked_column,
    factorise,
    float_block,
    has_infinity,
    level_name,
    numbered,
    to_array,
    to_frame,
)

MAX_GROUPS = 50  # a protected attribute with more is probably an identifier or a measurement
MAX_CLASSES = 50  # more are probably a number or an identifier
MAX_NAME_LENGTH = 500  # characters of a column, group or class

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


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of classes: ``codes`` (n,) into ``classes``; or numbers, whose codes are themselves."""

    codes: NDArray[Any]
    classes: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class Groups:
    """Protected groups: ``codes`` (n,) into ``names``, and the ``attributes`` that define them."""

    codes: NDArray[np.int64]
    names: tuple[str, ...]
    attributes: tuple[str, ...]

    @property
    def attribute(self) -> str:
        """The attributes as one name."""
        return " & ".join(self.attributes)


@dataclass(frozen=True)
class CheckedTable:
    """A training table after all checks."""

    frame: pd.DataFrame
    labels: Labels
    groups: Groups
    weights: NDArray[np.float64] | None


def check_table(
    X: Any,
    y: Any,
    sensitive_features: Any,
    sample_weight: Any,
    *,
    class_weight: Any = None,
    numbers: bool = False,
) -> CheckedTable:
    """Check a table, its labels, groups and weights against each other; drop rows of weight zero."""
    if sensitive_features is None:
        raise InputError(
            "sensitive_features is missing: fit needs the group of every row. Pass an array, a Series, or a "
            "DataFrame whose columns are crossed."
        )
    check_lengths(X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight)
    frame = check_features(X)
    if numbers:
        labels = check_numbers(y, n_rows=len(frame), warning=DataConversionWarning)
    else:
        labels = check_labels(y, n_rows=len(frame), warning=DataConversionWarning, most=MAX_CLASSES)
    groups = check_groups(sensitive_features, n_rows=len(frame))
    weights = check_sample_weight(sample_weight, len(frame), labels=labels)
    if weights is not None and not weights.all():
        counted = np.flatnonzero(weights)
        frame, weights = frame.iloc[counted], weights[counted]
        labels = replace(labels, codes=labels.codes[counted])
        groups = replace(groups, codes=groups.codes[counted])
    if labels.classes:
        check_cells(labels, groups, minimum=0)
    warn_if_sensitive_in(frame, groups)
    if labels.classes and class_weight is not None:
        counts = np.bincount(labels.codes, weights=weights, minlength=len(labels.classes))
        factors = class_factors(class_weight, labels.classes, counts)
        weights = factors[labels.codes] * (1.0 if weights is None else weights)
    return CheckedTable(frame, labels, groups, weights)


def check_features(X: Any) -> pd.DataFrame:
    """Convert a table into a DataFrame of numbers, booleans, text, categoricals and dates, with text names.

    Accepts pandas, polars and other eager frames, pyarrow tables, arrays, sparse matrices, lists of rows,
    dicts of columns, and one row or a list of rows as dicts; columns without names are called x0, x1, ...
    Missing entries are allowed, infinity is not. An object column is read as numbers if every entry is a
    number. A column that mixes numbers and text is an error, since both readings are plausible; so are
    integers beyond 2**53, since float64 would merge neighbours.

    >>> check_features([[30, "a"], [41, None]]).columns.to_list()
    ['x0', 'x1']
    """
    frame = to_frame(X, "X", prefix="x")
    names = [str(column) for column in frame.columns]
    if repeated := [column for column, count in Counter(names).items() if count > 1]:
        raise InputError(f"has several columns called {listed(repeated)}: rename them.", argument="X")
    check_name_lengths(names, {"argument": "X"})
    for size, what in zip(frame.shape, ("sample(s)", "feature(s)"), strict=True):
        if size == 0:
            shape = f"0 {what} (shape={frame.shape}) while a minimum of 1 is required."
            raise InputError(f"is empty: found array with {shape}", argument="X")
    block = float_block(frame)
    if block is not None and not np.isinf(block).any():
        return frame.set_axis(names, axis=1)
    columns = [frame.iloc[:, j] for j in range(len(names))]
    checked = [
        checked_column(c, {"argument": "X", "column": n}, dates=True)
        for n, c in zip(names, columns, strict=True)
    ]
    if infinite := [n for n, c in zip(names, checked, strict=True) if has_infinity(c)]:
        raise InputError(
            f"contains infinity (inf) in column {listed(infinite)}. Replace it by a finite number, or by NaN "
            "if the value is unknown: NaN is imputed.",
            argument="X",
        )
    if all(after is before for after, before in zip(checked, columns, strict=True)):
        return frame.set_axis(names, axis=1)
    return pd.DataFrame(dict(zip(names, checked, strict=True)), copy=False)


def match_columns(frame: pd.DataFrame, names: Sequence[str], *, model: str = "the model") -> pd.DataFrame:
    """Return the columns of a checked table in the order that ``model`` was trained with.

    Reordered columns are put in order; the columns of an array, which has no names, are matched by position.
    """
    given, expected = list(frame.columns), list(names)
    if set(given) == set(expected):
        return frame if given == expected else frame[expected]
    if given == numbered("x", len(given)):
        if len(given) != len(expected):
            sizes = f"X has {len(given)} features, but {model} is expecting {len(expected)} features as input"
            raise InputError(f"{sizes}: pass the columns that it was trained with.")
        warn_input(
            f"X does not have valid feature names, but {model} was fitted with feature names: the columns "
            "are matched by position. Pass a table with the names of training to have them checked."
        )
        return frame.set_axis(expected, axis=1)
    unseen, missing = sorted(set(given) - set(expected)), sorted(set(expected) - set(given))
    message = "The feature names should match those that were passed during fit.\n"
    for title, columns in (("unseen at fit time", unseen), ("seen at fit time, yet now missing", missing)):
        shown = columns[:5] + ["..."] * (len(columns) > 5)
        message += f"Feature names {title}:\n" + "".join(f"- {c}\n" for c in shown) if columns else ""
    raise InputError(f"{message}Pass exactly the {len(expected)} columns that {model} was trained with.")


def check_labels(
    y: Any,
    *,
    n_rows: int | None = None,
    classes: Sequence[Any] | None = None,
    warning: type[Warning] = InputWarning,
    name: str = "y",
    paired_with: str = "X",
    most: int = 2,
) -> Labels:
    """Encode labels of classes as codes: the values in sorted order; of two, the second one is positive.

    With ``classes`` (those of training) one class alone is fine, and a label outside them is an error. A
    column vector is flattened with a ``warning`` of the given category. In messages, ``name`` is the argument
    and ``paired_with`` the one that has ``n_rows``.

    >>> labels = check_labels(["yes", "no", "yes"])
    >>> labels.codes.tolist(), labels.classes
    ([1, 0, 1], ('no', 'yes'))
    """
    column, subject = _label_column(y, name, n_rows, paired_with, warning)
    if pt.is_float_dtype(column.dtype) and not np.array_equal(column, np.round(column)):
        raise InputError(
            "must hold two classes, not measurements. Unknown label type: continuous.", argument=name
        )
    codes, values = factorise(column)
    _reject_spellings(values, subject)
    known = values if classes is None else list(classes)
    if classes is None and not 2 <= len(values) <= most:
        if len(values) == 1:
            raise InputError(
                f"has only one class ({values[0]!r}): a classifier needs rows of two.", argument=name
            )
        found = f" ({listed(values)})" if len(values) <= 10 else ""
        if most > 2:
            raise InputError(
                f"has {len(values)} classes (at most {most}): it is probably a number or an identifier. Use "
                "a regressor, or bin the values first.",
                argument=name,
            )
        raise InputError(
            f"has {len(values)} classes{found}. Only binary classification is supported. The type of the "
            "target is multiclass. Keep two classes, or compare with the positive one first "
            "(y = (y == positive)).",
            argument=name,
        )
    position = {value: code for code, value in enumerate(known)}
    if unknown := [value for value in values if value not in position]:
        source = "training" if paired_with == "X" else paired_with
        types = " and ".join(sorted({type(value).__name__ for value in known}))
        raise InputError(
            f"holds {len(unknown)} labels that were not in {source} ({listed(unknown)}); known are "
            f"{listed(known)}, of type {types}.",
            argument=name,
        )
    lookup = np.array([position[value] for value in values], dtype=np.int64)
    return Labels(lookup[codes], tuple(known))


def _label_column(
    y: Any, name: str, n_rows: int | None, paired_with: str, warning: type[Warning]
) -> tuple[pd.Series[Any], Subject]:
    """Return labels as one complete column, and what messages call it."""
    if y is None:
        raise InputError(f"This requires {name} to be passed, but the target {name} is None.")
    frame = to_frame(y, name, prefix="y", flat=True)
    if frame.shape[1] != 1:
        raise InputError(f"should be a 1d array, got an array of shape {frame.shape} instead.", argument=name)
    if len(getattr(y, "shape", ())) == 2:
        text = f"A column-vector {name} was passed when a 1d array was expected: use {name}.ravel()."
        warn_caller(text, warning)
    subject: Subject = {"argument": name}
    column = checked_column(frame.iloc[:, 0], subject)
    _check_complete(column, subject, n_rows, "drop those rows", paired_with)
    return column, subject


def check_numbers(
    y: Any,
    *,
    n_rows: int | None = None,
    warning: type[Warning] = InputWarning,
    name: str = "y",
    constant: bool = False,
) -> Labels:
    """Check labels that are numbers: finite, and unless `constant` not all the same.

    >>> check_numbers([30, 41.5]).codes.tolist()
    [30.0, 41.5]
    """
    column, _ = _label_column(y, name, n_rows, "X", warning)
    if not (pt.is_numeric_dtype(column.dtype) or pt.is_bool_dtype(column.dtype)):
        raise InputError(
            "must hold numbers, but holds text. Use a classifier for classes, or convert the column.",
            argument=name,
        )
    values = column.to_numpy(dtype=np.float64)
    if not constant and len(values) and (values == values[0]).all():
        count = f"{len(values)} sample{'s' if len(values) > 1 else ''}"
        raise InputError(f"has one value only ({count}): there is nothing to learn.", argument=name)
    return Labels(values)


def check_groups(
    sensitive_features: Any, *, n_rows: int, names: Sequence[str] | None = None, paired_with: str = "X"
) -> Groups:
    """Encode protected groups; several columns are crossed into groups such as "sex=Female & race=Black".

    Groups are sorted. With ``names`` (the groups of training) the codes point into them, one group alone is
    fine, and a group outside them is an error. Messages call the argument with ``n_rows`` ``paired_with``.

    >>> groups = check_groups(["Male", "Female", "Male"], n_rows=3)
    >>> groups.codes.tolist(), groups.names
    ([1, 0, 1], ('Female', 'Male'))
    """
    what = "sensitive_features"
    if sensitive_features is None:
        raise InputError(
            "is None: pass one value per row, the protected attribute of that person.", argument=what
        )
    frame = to_frame(sensitive_features, what, prefix="group", flat=True)
    if frame.shape[1] == 0:
        raise InputError("has no columns.", argument=what)
    codes, found = np.zeros(n_rows, dtype=np.int64), [""]
    for j, attribute in enumerate(map(str, frame.columns)):
        subject: Subject = {"argument": what}
        if frame.shape[1] > 1:
            subject["column"] = attribute
        column = checked_column(frame.iloc[:, j], subject)
        fix = "drop those rows, or fill in a value such as 'unknown', which becomes a separate group"
        _check_complete(column, subject, n_rows, fix, paired_with)
        own, values = factorise(column)
        _reject_spellings(values, subject)
        levels = [level_name(v) for v in values]
        check_name_lengths(levels, subject)
        if frame.shape[1] > 1:
            levels = [f"{attribute}={level}" for level in levels]
        if len(levels) <= MAX_GROUPS:
            occurring, codes = np.unique(codes * len(levels) + own, return_inverse=True)
            pairs = (divmod(int(code), len(levels)) for code in occurring)
            found = [" & ".join(filter(None, (found[before], levels[level]))) for before, level in pairs]
        if (count := max(len(levels), len(found))) > MAX_GROUPS:
            raise InputError(
                f"has {count} groups (at most {MAX_GROUPS}): it is probably an identifier or a measurement. "
                "Choose a categorical attribute, or bin the numbers first.",
                **subject,
            )
    if names is None and len(found) == 1:
        raise InputError(f"has one group only ({found[0]!r}): fairness compares at least two.", argument=what)
    known = found if names is None else list(names)
    if unseen := [group for group in found if group not in known]:
        raise InputError(
            f"holds groups that were not in training: {listed(unseen)}; known are {listed(known)}. Use "
            "the same names (in the shell with --group-names), drop those rows, or train with them.",
            argument=what,
        )
    lookup = np.array([known.index(group) for group in found], dtype=np.int64)
    return Groups(lookup[codes], tuple(known), tuple(map(str, frame.columns)))


def count_cells(labels: Labels, groups: Groups) -> NDArray[np.int64]:
    """Count the rows per (label, group) cell, shape (classes, groups)."""
    n_groups, n_classes = len(groups.names), len(labels.classes)
    counts = np.bincount(labels.codes * n_groups + groups.codes, minlength=n_classes * n_groups)
    return counts.reshape(n_classes, n_groups).astype(np.int64)


def check_cells(labels: Labels, groups: Groups, *, minimum: int = 1) -> NDArray[np.int64]:
    """Count the rows per (label, group) cell, shape (classes, groups); fewer than ``minimum`` is an error.

    Empty cells and cells of one row trigger warnings: the mean of such a cell *is* that person's record.
    """
    counts = count_cells(labels, groups)

    def named(cells: NDArray[np.bool_]) -> str:
        pairs = [(labels.classes[label], groups.names[group]) for label, group in np.argwhere(cells)]
        shown = ", ".join(f"(label {label!r}, group {group!r})" for label, group in pairs[:10])
        return shown + (f" and {len(pairs) - 10} more" if len(pairs) > 10 else "")

    if (counts < minimum).any():
        raise InputError(
            f"Each label needs at least {minimum} row{'s' if minimum > 1 else ''} (of weight above zero) in "
            f"each group, but there are fewer in {named(counts < minimum)}. Merge small groups, drop them, "
            "or add data."
        )
    if ((counts > 0).sum(axis=1) < 2).all():
        raise InputError(
            "No label occurs in two groups, so nobody can be compared with another group's people of the same"
            f" label: there are no rows in {named(counts == 0)}. Merge small groups, or add data."
        )
    if (counts == 0).any():
        warn_input(
            f"No rows in {named(counts == 0)}: people with this label are not compared with this group. "
            "Merge small groups, drop them, or add data."
        )
    if (counts == 1).any():
        warn_input(
            f"One row only in {named(counts == 1)}: the mean of such a cell is one person's record. It is "
            "not saved with the model. Merge small groups or drop them."
        )
    return counts


def check_sample_weight(
    sample_weight: Any, n_rows: int, *, labels: Labels | None = None
) -> NDArray[np.float64] | None:
    """Return weights (n,) that are finite, not negative and not all zero (nor zero for a whole class)."""
    if sample_weight is None:
        return None
    weight = to_array(sample_weight, "sample_weight")
    if weight.shape != (n_rows,) or not np.can_cast(weight.dtype, np.float64, casting="same_kind"):
        found = f"shape {weight.shape} and type {weight.dtype}"
        raise InputError(f"needs one number per row ({n_rows},), got {found}.", argument="sample_weight")
    weight = weight.astype(np.float64)
    if not np.isfinite(weight).all() or (weight < 0).any() or not weight.any():
        raise InputError(
            "must be finite, not negative (no NaN, no inf) and not zero everywhere.", argument="sample_weight"
        )
    if labels is None or not labels.classes:
        return weight
    if (np.bincount(labels.codes, weights=weight, minlength=len(labels.classes)) == 0).any():
        raise InputError(
            "is zero for all rows of one class: only one class is left.", argument="sample_weight"
        )
    return weight


def class_factors(class_weight: Any, classes: tuple[Any, ...], counts: NDArray[Any]) -> NDArray[np.float64]:
    """Return the weight of a row of each class, given the number of rows."""
    if isinstance(class_weight, str):  # "balanced"
        return np.asarray(counts.sum() / (len(counts) * counts), dtype=np.float64)
    if unknown := set(class_weight) - set(classes):
        raise InputError(
            f"class_weight names classes that y does not have: {', '.join(sorted(map(repr, unknown)))}; "
            f"y has {', '.join(map(repr, classes))}."
        )
    return np.array([float(class_weight.get(name, 1.0)) for name in classes])


def warn_if_sensitive_in(frame: pd.DataFrame, groups: Groups) -> None:
    """Warn if a column of a checked table is the protected attribute, or determines it."""
    if same := [name for name in _candidates(frame, groups) if _is_determined(frame[name], groups.codes)]:
        warn_input(
            f"has columns that reveal the protected attribute ({groups.attribute}): {listed(same)}. The "
            "model can read the group from them. Drop them, or ignore this if they are meant to stay.",
            argument="X",
        )


def _candidates(frame: pd.DataFrame, groups: Groups) -> pd.Index[Any]:
    """Return columns that may be a function of the group, judged by the first rows of a table of floats."""
    block = float_block(frame)
    if block is None:
        return frame.columns
    rows, codes = block[:1000], groups.codes[:1000]
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    typical = rows[first[inverse]]
    same = (rows == typical) | (np.isnan(rows) & np.isnan(typical))
    found: pd.Index[Any] = frame.columns[same.all(axis=0)]
    return found


def _is_determined(column: pd.Series[Any], groups: NDArray[np.int64]) -> bool:
    """Return whether all rows of each group share one value, and the groups do not all share the same."""
    for rows in (slice(0, 1000), slice(None)):  # the first rows rule out nearly every column
        codes, of_group = pd.factorize(column.iloc[rows])[0].astype(np.int64) + 1, groups[rows]
        n_groups = np.count_nonzero(np.bincount(of_group))
        n_values = codes.max() + 1  # missing entries are one of them
        if n_values > n_groups + 1 or np.count_nonzero(np.bincount(of_group * n_values + codes)) > n_groups:
            return False
    return bool(codes.min() < codes.max())


def _check_complete(
    column: pd.Series[Any], subject: Subject, n_rows: int | None, fix: str, paired_with: str
) -> None:
    """Raise an error unless the column has ``n_rows`` rows with a usable value in each."""
    if n_rows is not None and len(column) != n_rows:
        found = f"{paired_with} has {n_rows} rows, {subject['argument']} has {len(column)}"
        raise InputError(f"Found input variables with inconsistent numbers of samples: {found}.")
    if len(column) == 0:
        raise InputError(
            "is empty: found array with 0 sample(s) while a minimum of 1 is required.", **subject
        )
    if missing := int(column.isna().sum()):
        raise InputError(f"contains NaN or None in {missing} of {len(column)} rows: {fix}.", **subject)
    if has_infinity(column):
        raise InputError(f"contains infinity (inf): {fix}.", **subject)


def check_name_lengths(names: Iterable[str], subject: Subject) -> None:
    """Raise an error for names that no page could show, which are most likely free text."""
    if long := [name for name in names if len(name) > MAX_NAME_LENGTH]:
        raise InputError(
            f"has a name of {len(long[0]):,} characters, beginning with {long[0][:20]!r}: at most "
            f"{MAX_NAME_LENGTH} are allowed. Shorten it.",
            **subject,
        )


def _reject_spellings(values: Sequence[Any], subject: Subject) -> None:
    """Raise an error for groups that look alike, and warn of groups that differ in case only."""
    texts = [value for value in values if isinstance(value, str)]
    for first, second in find_alike(texts):
        spaces = first.strip() == second.strip()
        difference = "spaces" if spaces else "characters that look alike, or that are invisible"
        remedy = "Strip the text first (.str.strip() in pandas)" if spaces else "Write them alike"
        shown = f"{first!r} and {second!r}" if spaces else f"{first!a} and {second!a}"
        raise InputError(f"holds both {shown}, which differ only by {difference}. {remedy}.", **subject)
    if alike := find_alike(texts, ignore_case=True):
        pairs = ", ".join(f"{first!r} and {second!r}" for first, second in alike[:5])
        warn_input(
            f"holds groups that differ only by upper and lower case: {pairs}. They are kept apart: write "
            "them alike if they are the same group (in the shell: "
            f"--group-names {alike[0][1]}={alike[0][0]}).",
            **subject,
        )


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
