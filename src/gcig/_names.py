"""Names as people see them: texts that look alike although their characters differ."""

import unicodedata
from collections.abc import Iterable


def look_alike(text: str, *, ignore_case: bool = False) -> str:
    r"""Return what a reader sees of a text: texts that look alike give the same one.

    Accents are composed, characters of other widths are normalised, and spaces around the text and characters
    without a width are removed.

    >>> look_alike("Jose\u0301") == look_alike("\uff2aos\xe9\u200b ")
    True
    >>> look_alike("Male") == look_alike("male")
    False
    """
    shown = "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")
    shown = unicodedata.normalize("NFKC", " ".join(shown.split()))
    return shown.casefold() if ignore_case else shown


def find_alike(texts: Iterable[str], *, ignore_case: bool = False) -> list[tuple[str, str]]:
    """Return pairs of different texts that look alike, each with the first text that looks like it.

    >>> find_alike(["Male", " Male", "Female"])
    [('Male', ' Male')]
    """
    first: dict[str, str] = {}
    pairs = [(first.setdefault(look_alike(text, ignore_case=ignore_case), text), text) for text in texts]
    return [(one, other) for one, other in pairs if one != other]
