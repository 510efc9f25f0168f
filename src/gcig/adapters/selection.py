"""Selection of the adapter for a model."""

from collections.abc import Sequence
from typing import Any

from sklearn.pipeline import Pipeline
from torch import nn

from gcig._arguments import InputError
from gcig.adapters.base import AdaptedModel, Task
from gcig.adapters.black_boxes import adapt_black_box
from gcig.adapters.estimators import DifferentiablePipeline, GcigModel, LinearModel
from gcig.adapters.modules import TorchModel
from gcig.core.modules import Score


def adapt(
    model: Any,
    X: Any = None,
    *,
    task: Task | None = None,
    score: Score | None = None,
    preprocess: Any = None,
    origin: Any = None,
    original_names: Sequence[str] | None = None,
    reference: Any = None,
) -> AdaptedModel:
    """Wrap a model in the interface that ``evaluate``, ``gcig_score``, ``audit`` and ``explain`` use.

    They also take the wrapped model in place of the model; call this function for options of its own.

    Models with gradients are explained by integrated gradients: estimators of this package, torch modules,
    linear models of scikit-learn, and pipelines that encode each column separately and end in an estimator
    of this package or a linear model. All other models are explained by Shapley values of the
    logit on the original columns.

    Parameters
    ----------
    model : a fitted estimator of this package; a torch module over float rows that gives one logit per row,
        or one per class; a fitted scikit-learn classifier, regressor or pipeline; boosted trees of XGBoost,
        LightGBM or CatBoost; an `OnnxClassifier`; or a function from rows to probabilities, (n,), (n, 2) or
        (n, K). A fitted search over parameters stands for its best estimator.
    X : the rows that the model is applied to, from which column names and types are learned. Linear
        classifiers and estimators of this package know their columns and do not need it.
    task : what the model predicts: one of two classes ("binary"), one of several ("classes") or a number
        ("number"). Needed if the model does not say so: a function, an ONNX file or a torch module that does
        not choose between two classes.
    score : for a torch module with another output: a function from its output to one logit per row.
    preprocess : for a torch module: a function from the table to the rows that it takes, or a fitted
        transformer. If a transformer treats columns separately, attributions are added up over the columns
        that came from one column of the table.
    origin : for a torch module: the group of inputs that each entry of a row belongs to, as integers from 0,
        in the shape of a row or one that broadcasts to it, as in `GCIGPenalty`. Attributions are added up
        over each group before they are compared: tokens, patches or superpixels instead of single entries.
    original_names : the names of these groups; by default x0, x1, ...
    reference : further rows whose categories are learned as well.

    Examples
    --------
    >>> import numpy as np
    >>> adapted = adapt(nn.Linear(3, 1), np.zeros((2, 3), dtype="float32"))
    >>> adapted.columns, adapted.scores(np.zeros((4, 3))).shape
    (('x0', 'x1', 'x2'), (4,))
    >>> adapt(lambda rows: rows[:, 0], np.array([[0.2, 5], [0.7, 1]])).explanation
    'Shapley values'

    A module over three tokens of four numbers, explained by token:

    >>> rows, module = np.zeros((2, 3, 4), dtype="float32"), nn.Sequential(nn.Flatten(), nn.Linear(12, 1))
    >>> adapt(module, rows, origin=np.arange(3)[:, None], original_names=["a", "b", "c"])
    <TorchModel: torch module, 3 columns, explained by integrated gradients>
    """
    module_options = {"preprocess": preprocess, "origin": origin, "original_names": original_names}
    given = [name for name, value in module_options.items() if value is not None]
    if isinstance(model, AdaptedModel):
        if given or score is not None:
            raise InputError(
                "is adapted already. Pass score=, preprocess= and origin= to the first call of adapt.",
                argument="model",
            )
        return model
    found = _adapt(_unwrap(model), X, task, score, module_options, reference)
    if task is not None and found.task != task:
        raise InputError(
            f"is {task!r}, but that of this {type(found.model).__name__} is {found.task!r}. Leave it out.",
            argument="task",
        )
    return found


def _adapt(
    model: Any, X: Any, task: Task | None, score: Score | None, module_options: dict[str, Any], reference: Any
) -> AdaptedModel:
    given = [name for name, value in module_options.items() if value is not None]
    if GcigModel.fits(model) and not given:
        return GcigModel.wrap(model)
    if isinstance(model, nn.Module):
        return TorchModel.wrap(model, X, score, task=task, **module_options)
    if given:
        remedy = "Leave it out: other models are explained by the columns of their table."
        if given[0] == "preprocess":
            remedy = "Pass a pipeline that starts with the preprocessing, or a function that applies both."
        raise InputError(
            f"is for torch modules, but the model is a {type(model).__name__}. {remedy}", argument=given[0]
        )
    if LinearModel.fits(model):
        return LinearModel.wrap(model)
    if (pipeline := DifferentiablePipeline.of(model, X)) is not None:
        return pipeline
    return adapt_black_box(model, [X] if reference is None else [X, reference], task)


def _unwrap(model: Any) -> Any:
    """Return the best estimator of a search, and the only step of a pipeline."""
    if hasattr(model, "best_estimator_"):
        return _unwrap(model.best_estimator_)
    if isinstance(model, Pipeline) and len(model.steps) == 1:
        return _unwrap(model.steps[0][1])
    return model
