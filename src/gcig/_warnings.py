"""Warnings that point at the caller's line outside this package, however deep inside it they arise."""

import sys
import warnings
from traceback import walk_stack

_PACKAGE = __file__.removesuffix("_warnings.py")  # as frames spell it: a normalised path may differ


def warn_caller(message: str | Warning, category: type[Warning] | None = None) -> None:
    """Issue a warning that points at the line outside this package that led here.

    ``message`` is a text of the given ``category``, or a warning with fields. Python shows a warning once per
    line that it points at: if that line were in this package, a second call that deserves the warning would
    be silent. The field ``origin`` is "gcig", also for categories of other libraries.
    """
    warning = message if isinstance(message, Warning) else (category or UserWarning)(message)
    vars(warning)["origin"] = "gcig"
    files = [frame.f_code.co_filename for frame, _ in walk_stack(sys._getframe())]
    outermost = max(depth for depth, file in enumerate(files, start=1) if file.startswith(_PACKAGE))
    warnings.warn(warning, stacklevel=outermost + 1)
