"""Names as people see them: texts that look alike although their characters differ."""

import unicodedata
from collections.abc import Iterable

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
    seen = " ".join("".join(filter(_is_visible, seen)).split())
    seen = unicodedata.normalize("NFKC", seen).translate(_ALIKE)
    return seen.casefold() if ignore_case else seen


def _is_visible(character: str) -> bool:
    return unicodedata.category(character) not in ("Cf", "Cc") and ord(character) not in _INVISIBLE


def find_alike(texts: Iterable[str], *, ignore_case: bool = False) -> list[tuple[str, str]]:
    """Return pairs of different texts that look alike, each with the first text that looks like it.

    >>> find_alike(["Male", " Male", "Female"])
    [('Male', ' Male')]
    """
    first: dict[str, str] = {}
    pairs = [(first.setdefault(look_alike(text, ignore_case=ignore_case), text), text) for text in texts]
    return [(one, other) for one, other in pairs if one != other]
