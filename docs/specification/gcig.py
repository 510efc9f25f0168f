"""GCIG for two classes, several classes and numbers, in NumPy alone."""

import numpy as np


def explained_score(outputs, labels, task, shares=None):
    """Return the score (n,) that is explained, from outputs (n, K) and labels (n,)."""
    if task != "classes":
        return outputs[:, 0]  # the logit of label 1, or the predicted number
    others = np.tile(shares, (len(labels), 1))
    others[np.arange(len(labels)), labels] = 0
    others /= 1 - shares[labels][:, None]
    return outputs[np.arange(len(labels)), labels] - (others * outputs).sum(1)


def disparity(attributions, norm=1, eps=1e-12):
    """Return how far the normalised attributions (groups, n, columns) of each row lie apart, (n,)."""
    size = np.linalg.norm(attributions, ord=norm, axis=-1, keepdims=True)
    units = attributions / (size + eps)
    squares = ((units - units.mean(0)) ** 2).sum((0, 2))
    return np.sqrt(2 / (len(units) - 1) * squares)


def gcig(attributions, norm=1):
    """Return GCIG: the mean disparity of the rows whose attributions do not vanish; NaN if all do."""
    size = np.abs(attributions).sum(-1)
    defined = (size > 1e-8 * np.median(size)).all(0)
    return disparity(attributions, norm)[defined].mean() if defined.any() else np.nan
