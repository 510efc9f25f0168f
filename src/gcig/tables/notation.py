"""Entries of text: which columns hold numbers, and numbers in notations that have to be requested.

A number has an optional sign, digits, at most one decimal mark (``decimal``, never guessed) and an optional
exponent. Digits in groups ("1,234"), currency signs and percent signs are read only in columns that the user
declared as numbers. A column whose entries are all numbers in another notation is not text: it is an error.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gcig._arguments import InputError, warn_input
from gcig.tables.frames import MAX_EXACT_INTEGER

# Common spellings of a missing number. In a column of text these are text.
MISSING_NUMBERS = frozenset(
    ("NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "NULL", "null", "None", "none", "#N/A", "?", ".", "-")
)
_BLANK = pa.array(["", *sorted(MISSING_NUMBERS)])
_FLAGS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
_NUMBER = {
    mark: rf"^[+-]?([0-9]+{point}?[0-9]*|{point}[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(?i:inf|infinity)$"
    for mark, point in ((".", r"\."), (",", ","))
}
_GROUPED = {  # digits in groups of three, by decimal mark
    mark: rf"^[+-]?[1-9][0-9]{{0,2}}([{other}' \x{{a0}}\x{{2019}}\x{{202f}}][0-9]{{3}})+({point}[0-9]+)?$"
    for mark, point, other in ((".", r"\.", ","), (",", ",", "."))
}
_ANY_NUMBER = (*_NUMBER.values(), *_GROUPED.values())
# One group after the decimal mark: a number, but with the other mark it would be a thousand times as large.
_THREE_DIGITS = {
    mark: rf"^[+-]?[1-9][0-9]{{0,2}}{point}[0-9]{{3}}$" for mark, point in ((".", r"\."), (",", ","))
}
_SIGNED = re.compile(
    r"(?P<minus>[+-]?)(?P<before>[$€£¥])?\s*"
    r"(?P<digits>[0-9][0-9.,' \u00a0\u2019\u202f]*?|[.,][0-9]+)\s*(?P<after>[$€£¥%])?"
)
_MANY_LEVELS = (
    10_000  # of text with more distinct entries, equal ones with and without spaces are not counted
)


def strip_sign(entry: str) -> tuple[str, str]:
    """Return a number as text without its currency or percent sign, and the sign; other text unchanged.

    >>> strip_sign("-$1,200"), strip_sign("4.5 %"), strip_sign("12"), strip_sign("A$")
    (('-1,200', '$'), ('4.5', '%'), ('12', ''), ('A$', ''))
    """
    match = _SIGNED.fullmatch(entry)
    if match is None or (match["before"] and match["after"]):
        return entry, ""
    return match["minus"] + match["digits"], match["before"] or match["after"] or ""


def read_number(entry: str, decimal: str) -> float | None:
    """Return a number that may have groups of digits, a currency or a percent sign; None for other text.

    >>> read_number("$1,200.5", "."), read_number("1.200,5 €", ","), read_number("1,5", ".")
    (1200.5, 1200.5, None)
    """
    bare, _ = strip_sign(entry.strip())
    if re.match(_python(_GROUPED[decimal]), bare):
        bare = re.sub(rf"[^0-9+\-{decimal}]", "", bare)
    return float(bare.replace(decimal, ".")) if re.match(_python(_NUMBER[decimal]), bare) else None


def is_number(entry: str) -> bool:
    """Return whether an entry is a number in some notation, without a sign of currency or percent.

    >>> [is_number(each) for each in ("1,5", "1.234,5", "2", "2.3.4", "x")]
    [True, True, True, False, False]
    """
    return any(re.match(_python(pattern), entry) for pattern in _ANY_NUMBER)


@cache
def _python(pattern: str) -> str:
    """Return a pattern of Arrow's regular expressions as one of Python's."""
    return re.sub(r"\\x\{(\w+)\}", lambda code: f"\\u{int(code[1], 16):04x}", pattern)


def _matches(texts: Any, pattern: str) -> NDArray[np.bool_]:
    return _flags(pc.match_substring_regex(texts, pattern))


def _flags(mask: Any) -> NDArray[np.bool_]:
    return np.asarray(pc.fill_null(mask, False).to_numpy(zero_copy_only=False), dtype=bool)


class ColumnEntries:
    """The entries of a column of text, counted over all batches.

    ``numeric`` says that the user declared the column as numbers, so other entries are missing.
    """

    def __init__(self, name: str, decimal: str, *, numeric: bool = False) -> None:
        self.name, self.decimal, self.numeric = name, decimal, numeric
        self.n_rows = self.n_blank = self.n_missing_words = self.n_numbers = 0
        self.n_flags = self.n_texts = self.n_other_notation = self.n_spaced = 0
        self.whole = True  # whether all numbers are whole
        self.has_fraction = self.has_three_digits = self.has_leading_zero = self.has_huge = False
        self.longest_whole = 0
        self.signs: set[str] = set()
        self.distinct: set[str] = set()

    def add(self, column: Any) -> None:
        """Count the entries of a batch, an Arrow array of text."""
        self.n_rows += len(column)
        counted = pc.value_counts(column.drop_null())
        raw, counts = counted.field(0), counted.field(1).to_numpy()
        self.n_blank += column.null_count
        texts = pc.utf8_trim_whitespace(raw)
        spaced = _flags(pc.not_equal(raw, texts))
        self.n_spaced += int(counts[spaced].sum())
        missing = _flags(pc.is_in(texts, value_set=_BLANK))
        blank = _flags(pc.equal(texts, ""))
        self.n_blank += int(counts[blank].sum())
        self.n_missing_words += int(counts[missing & ~blank].sum())
        if self.numeric:
            self._add_declared(texts.filter(pa.array(~missing)), counts[~missing])
            return
        number = _matches(texts, _NUMBER[self.decimal])
        self.n_numbers += int(counts[number].sum())
        if number.any() and not self.has_fraction:
            self._look_at_numbers(texts.filter(pa.array(number)))
        others = ~(missing | number)
        if others.any():
            words = texts.filter(pa.array(others))
            flag = _flags(pc.is_in(pc.utf8_lower(words), value_set=pa.array(["true", "false"])))
            notation = np.any([_matches(words, pattern) for pattern in _ANY_NUMBER], axis=0)
            self.n_flags += int(counts[others][flag].sum())
            self.n_other_notation += int(counts[others][notation].sum())
            self.n_texts += int(counts[others][~flag & ~notation].sum())
        if len(self.distinct) <= _MANY_LEVELS and not self.n_numbers:
            self.distinct.update(raw.to_pylist())

    def _look_at_numbers(self, numbers: Any) -> None:
        """Note whether numbers are whole, and whether their mark could separate thousands instead."""
        marked = _flags(pc.match_substring(numbers, self.decimal))
        three = _matches(numbers, _THREE_DIGITS[self.decimal])
        whole = _matches(numbers, r"^[+-]?[0-9]+$")
        self.has_fraction = bool((marked & ~three).any())
        self.has_three_digits = self.has_three_digits or bool(three.any())
        self.whole = self.whole and bool(whole.all())
        if whole.any():
            digits = pc.utf8_ltrim(numbers.filter(pa.array(whole)), characters="+-")
            self.longest_whole = max(self.longest_whole, pc.max(pc.utf8_length(digits)).as_py())
            self.has_leading_zero = self.has_leading_zero or bool(_matches(digits, "^0[0-9]").any())
            long = digits.filter(pc.greater(pc.utf8_length(digits), 15)).to_pylist()
            self.has_huge = self.has_huge or any(int(each) > MAX_EXACT_INTEGER for each in long)

    def _add_declared(self, texts: Any, counts: NDArray[np.int64]) -> None:
        other = "," if self.decimal == "." else "."
        for text, count in zip(texts.to_pylist(), counts.tolist(), strict=True):
            bare, sign = strip_sign(text)
            if read_number(text, self.decimal) is not None:
                self.n_numbers += count
                self.signs |= {sign} - {""}
                if re.match(_THREE_DIGITS[self.decimal], bare):
                    self.has_three_digits = True
                elif self.decimal in bare:
                    self.has_fraction = True
                elif bare.lstrip("+-").isdecimal():
                    self.longest_whole = max(self.longest_whole, len(bare.lstrip("+-")))
            elif read_number(bare, other) is not None:
                self.n_other_notation += count
            else:
                self.n_texts += count

    @property
    def kind(self) -> str:
        """The kind that the entries show: "number", "boolean" or "category"."""
        words = self.n_flags + self.n_texts + self.n_other_notation
        if words == 0 and (self.n_numbers or not self.n_missing_words):
            return "number"  # a column without any entry is a number that is always missing
        only_flags = self.n_flags and not (self.n_numbers + self.n_missing_words + words - self.n_flags)
        return "boolean" if only_flags else "category"

    def check(self, path: object) -> None:
        """Raise an error if the column would be read wrongly without a further option."""
        subject: dict[str, str] = {"argument": str(path), "column": self.name}
        mark = "commas" if self.decimal == "." else "points"
        ask = f"--decimal {',' if self.decimal == '.' else '.'} if these are decimal {mark}"
        if self.numeric:
            if self.n_other_notation:
                raise InputError(
                    f"has {self.n_other_notation} numbers that are written with another decimal mark than "
                    f"{self.decimal!r}. Add {ask}.",
                    **subject,
                )
            if len(self.signs) > 1:
                signs = " ".join(sorted(self.signs))
                raise InputError(
                    f"has numbers with different signs ({signs}). Convert them to one unit first.", **subject
                )
            if self.n_texts > self.n_rows / 2:
                raise InputError(
                    f"has {self.n_texts} entries of {self.n_rows} that are not numbers. Read it as "
                    "categories instead.",
                    **subject,
                )
        elif self.n_other_notation and not self.n_texts and not self.n_flags:
            raise InputError(
                f"holds {self.n_other_notation} numbers with {mark} or with digits in groups. Add {ask}, "
                f"--numeric {self.name} if they separate thousands, or --categorical {self.name} if the "
                "entries are categories.",
                **subject,
            )
        elif self.kind == "number" and self.whole and self.has_huge:
            raise InputError(
                "holds integers beyond 2**53, which float64 cannot distinguish. If it is an identifier, drop "
                f"it; --categorical {self.name} keeps the digits as categories.",
                **subject,
            )

    def is_ambiguous(self, separator: str) -> bool:
        """Return whether every mark stands before three digits, so that it may separate thousands.

        If commas separate the entries, points are the decimal marks of most files: such a column is doubted
        only if numbers without a mark are below a thousand, as numbers without a thousands separator are.
        """
        if not self.has_three_digits or self.has_fraction or not (self.numeric or self.kind == "number"):
            return False
        return separator != "," or 0 < self.longest_whole <= len("999")

    def notes(self) -> list[str]:
        """Return what the user should know about how the column is read."""
        column = f"column {self.name!r}"
        if self.numeric:
            lost = f"{column}: {self.n_texts} entries that are not numbers read as missing"
            return [lost] if self.n_texts else []
        if self.kind == "number":
            notes = []
            if self.n_missing_words:
                notes.append(f"{column}: {self.n_missing_words} entries such as NA or ? read as missing")
            if self.whole and self.has_leading_zero:
                notes.append(
                    f"{column} has leading zeros, but is read as numbers; --categorical {self.name} keeps "
                    "them as categories"
                )
            return notes
        if self.n_spaced == 0:
            return []
        return [f"{column}: spaces around {self.n_spaced} entries removed"]

    def warn_of_spaces(self) -> None:
        """Warn if entries that differed only by spaces become the same value."""
        spaced = {entry for entry in self.distinct if entry != entry.strip()}
        if self.kind == "category" and {entry.strip() for entry in spaced} & (self.distinct - spaced):
            warn_input(
                f"has the same values with and without spaces around them: {self.n_spaced} entries were "
                "stripped and now count as the same value.",
                column=self.name,
            )


def parse_numbers(column: Any, decimal: str) -> tuple[NDArray[np.float64], int | None]:
    """Convert Arrow text into numbers (n,), NaN if missing; also return the first place that holds text.

    >>> parse_numbers(pa.chunked_array([["1,5", "NA", None, "-2"]]), ",")
    (array([ 1.5,  nan,  nan, -2. ]), None)
    """
    texts = pc.utf8_trim_whitespace(column)
    number = pc.match_substring_regex(texts, _NUMBER[decimal])
    blank = pc.or_kleene(pc.is_in(texts, value_set=_BLANK), pc.is_null(texts))
    wrong = np.flatnonzero(~_flags(pc.or_kleene(number, blank)))
    if len(wrong):
        return np.empty(0), int(wrong[0])
    texts = pc.if_else(number, texts, pa.scalar(None, texts.type))
    if decimal == ",":
        texts = pc.replace_substring(texts, ",", ".")
    values = pc.cast(texts, pa.float64()).to_pandas().to_numpy(np.float64, na_value=np.nan)
    return values, None


def parse_flags(column: Any) -> tuple[Any, int | None]:
    """Convert Arrow text into True, False and None; also return the first place that holds something else."""
    distinct = pc.unique(column).to_pylist()
    flags = {entry: _FLAGS.get((entry or "").strip().lower()) for entry in distinct}
    wrong = [entry for entry, flag in flags.items() if flag is None and not is_missing(entry)]
    if wrong:
        return None, pc.index(column, wrong[0]).as_py()
    codes = pc.index_in(column, value_set=pa.array(distinct, column.type))
    return pa.array([flags[entry] for entry in distinct], pa.bool_()).take(codes.combine_chunks()), None


def is_missing(entry: str | None) -> bool:
    """Return whether an entry of a column of numbers or of true and false is missing."""
    return entry is None or not entry.strip() or entry.strip() in MISSING_NUMBERS
