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


def table_of(gradient, people, references, origin, spread, legitimate=False, donors=None):
    """Return the table (references, people, columns) of one cell: everybody relative to every member.

    Legitimate columns of all references of a person are those of one of them, the person's donor.
    """
    donated = people if donors is None else references[donors]
    rows = [
        [
            columns_of(integrated_gradients(gradient, x, np.where(legitimate, d, r)), origin)
            for r in references
        ]
        for x, d in zip(people, donated, strict=True)
    ]
    return np.array(rows).swapaxes(0, 1) / spread
