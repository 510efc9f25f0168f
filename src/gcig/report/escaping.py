"""Text from users' files made safe to show: names of columns, groups, categories, files."""

import re

from markupsafe import Markup, escape

__all__ = ["markup", "visible"]

# Control characters, lone surrogates (no encoding of them exists) and the marks that turn the direction of
# the text around them.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def visible(text: str) -> str:
    r"""The text with every character that is unseen or turns its surroundings around replaced.

    Examples
    --------
    >>> visible("age\u202egnp.exe")
    'age�gnp.exe'
    """
    return _UNSEEN.sub("\ufffd", text)


def markup(value: object) -> Markup:
    """A value as escaped markup; what is ``Markup`` already is left as it is.

    Examples
    --------
    >>> print(markup("<b>"))
    &lt;b&gt;
    """
    return value if isinstance(value, Markup) else escape(visible(str(value)))
