"""Warnings that point at the line of whoever called this package, however deep in it they arise."""

import sys
import warnings
from traceback import walk_stack

__all__ = ["warn_caller"]

_PACKAGE = __file__.removesuffix("_warnings.py")  # as frames spell it: a normalised path may differ


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn as from the line outside this package that led here.

    Python shows a warning once for each line that it comes from: were that one of this package, a second
    call that deserves it would say nothing.
    """
    files = [frame.f_code.co_filename for frame, _ in walk_stack(sys._getframe())]
    outermost = max(depth for depth, file in enumerate(files, start=1) if file.startswith(_PACKAGE))
    warnings.warn(message, category, stacklevel=outermost + 1)
