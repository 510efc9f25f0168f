"""What a fit leaves behind when it goes wrong: everything, or what was there before."""

from collections.abc import Iterator
from contextlib import contextmanager

from gcig.training.loop import DivergenceError

__all__ = ["describe_divergence", "forget_fit", "untouched_by_errors"]


@contextmanager
def untouched_by_errors(estimator: object) -> Iterator[None]:
    """Put an estimator back as it was when something goes wrong: an old fit is not mixed with half a new one.

    Attributes are put back, not copied: what is changed in place stays changed.
    """
    before = vars(estimator).copy()
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def forget_fit(estimator: object) -> None:
    """Remove what an earlier fit learned: by convention, the names that end in an underscore."""
    for name in list(vars(estimator)):
        if name.endswith("_") and not name.startswith("_"):
            delattr(estimator, name)


def describe_divergence(error: DivergenceError, *, usable: bool) -> DivergenceError:
    """The same error with what it means for the estimator, which can predict or is as it was."""
    state = (
        "The estimator has them and predicts with them: fit again, or go on from there with warm_start=True."
        if usable
        else "The estimator is as it was before fit."
    )
    described = DivergenceError(f"{error} {state}", error.outcome)
    described.__cause__ = error
    return described
