"""Which adapter a model needs."""

from typing import Any

from torch import nn

from gcig.adapters.base import AdaptedModel
from gcig.adapters.linear import LinearModel
from gcig.adapters.network import TorchModel
from gcig.adapters.own import GcigModel
from gcig.core.modes import Score

__all__ = ["adapt"]


def adapt(model: Any, X: Any = None, *, score: Score | None = None, reference: Any = None) -> AdaptedModel:
    """What ``evaluate``, ``gcig_score`` and ``audit`` do with a model.

    Parameters
    ----------
    model : an estimator of this package; a torch module over float rows that gives one logit per row; or a
        scikit-learn linear classifier of two classes.
    X : the rows that a torch module is applied to, for its columns' names and the rows' shape; the other
        models know them.
    score : for a torch module with another output: a function from its output to one logit per row.

    Examples
    --------
    >>> import numpy as np
    >>> adapted = adapt(nn.Linear(3, 1), np.zeros((2, 3), dtype="float32"))
    >>> adapted.columns, adapted.predict_proba(np.zeros((4, 3))).shape
    (('x0', 'x1', 'x2'), (4, 2))
    """
    if GcigModel.fits(model):
        return GcigModel.wrap(model)
    if isinstance(model, nn.Module):
        return TorchModel.wrap(model, X, score)
    if LinearModel.fits(model):
        return LinearModel.wrap(model)
    raise TypeError(
        f"model: GCIG needs a differentiable score, and none is known of a {type(model).__name__}. "
        "Accepted are fitted estimators of gcig, torch modules that give one logit per row, and fitted "
        "scikit-learn linear classifiers of two classes (of a pipeline: the last step, on transformed rows)."
    )
