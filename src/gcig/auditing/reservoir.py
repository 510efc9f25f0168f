"""A random sample of rows, of bounded size, from batches of any number."""

import numpy as np

from gcig.auditing.batches import EncodedRows
from gcig.metrics.confusion import Floats

__all__ = ["Reservoir"]


class Reservoir:
    """Keeps the rows with the smallest random keys, so that every row is as likely to stay.

    Parameters
    ----------
    size : int
        Rows that are kept at most.
    """

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self.size = size
        self.rng = rng
        self._keys: Floats = np.empty(0)
        self._rows: EncodedRows | None = None
        self.n_seen = 0

    def add(self, offered: EncodedRows) -> None:
        """Offer some rows."""
        self.n_seen += len(offered)
        keys = self.rng.random(len(offered))
        if len(offered) > self.size:
            few = np.argpartition(keys, self.size - 1)[: self.size]
            keys, offered = keys[few], offered[few]
        rows = offered if self._rows is None else _join(self._rows, offered)
        keys = np.concatenate([self._keys, keys])
        kept = np.argsort(keys)[: self.size]
        self._keys, self._rows = keys[kept], rows[kept]

    @property
    def rows(self) -> EncodedRows:
        """The sample, in random order, so that the first rows of it are a sample as well."""
        if self._rows is None:
            raise ValueError("no rows were added")
        return self._rows


def _join(first: EncodedRows, second: EncodedRows) -> EncodedRows:
    weights = None
    if first.weights is not None and second.weights is not None:
        weights = np.concatenate([first.weights, second.weights])
    return EncodedRows(
        np.concatenate([first.inputs, second.inputs]),
        np.concatenate([first.labels, second.labels]),
        np.concatenate([first.groups, second.groups]),
        np.concatenate([first.positions, second.positions]),
        weights,
    )
