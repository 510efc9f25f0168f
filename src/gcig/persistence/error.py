"""The one error of folders that cannot be written or read."""

__all__ = ["PersistenceError"]


class PersistenceError(ValueError):
    """A folder that cannot be written or read: the message says which file, why, and what to do.

    Examples
    --------
    >>> import gcig
    >>> gcig.load("nowhere")
    Traceback (most recent call last):
        ...
    gcig.persistence.error.PersistenceError: no saved model in 'nowhere': the path does not exist
    """
