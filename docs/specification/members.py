"""The table of attributions relative to members, in NumPy alone."""

import numpy as np


def integrated_gradients(gradient, person, reference, steps=256):
    """Return the explanation of a person relative to a reference, (columns,): midpoint rule."""
    at = (np.arange(steps) + 0.5) / steps
    points = reference + at[:, None] * (person - reference)
    return (person - reference) * gradient(points).mean(0)


def columns_of(attribution, origin):
    """Add up, with their signs, the encoded columns of each original column."""
    return np.bincount(origin, attribution, minlength=origin.max() + 1)


def with_legitimate(references, legitimate, donors):
    """Return references whose legitimate columns are those of a random reference of the same cell."""
    return np.where(legitimate, references[donors], references)


def table_of(gradient, people, references, origin, spread):
    """Return the table (references, people, columns) of one cell: everybody relative to every member."""
    rows = [
        [columns_of(integrated_gradients(gradient, x, r), origin) / spread for x in people]
        for r in references
    ]
    return np.array(rows)
