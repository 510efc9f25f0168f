"""The check of methods that must know the group of a new row."""

from typing import Any

from gcig._validation import Groups, InputError, check_groups, check_lengths

__all__ = ["require_groups"]


def require_groups(
    X: Any, sensitive_features: Any, *, names: tuple[str, ...], n_rows: int, model: str, reason: str
) -> Groups:
    """The groups of new rows as codes into ``names``, those of training; an error where they are missing.

    Parameters
    ----------
    model, reason : str
        Who asks, and why: "DIR repairs a row by the quantiles of its group".
    """
    if sensitive_features is None:
        raise InputError(
            f"sensitive_features is missing: {reason}, so {model} needs the group of every row, also to "
            f"predict. Pass sensitive_features=..., with groups of training: {', '.join(names[:10])}"
            f"{' and others' if len(names) > 10 else ''}."
        )
    check_lengths(X=X, sensitive_features=sensitive_features)
    return check_groups(sensitive_features, n_rows=n_rows, names=names)
