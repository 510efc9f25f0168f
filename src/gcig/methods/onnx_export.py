"""Fitted classifiers to ONNX files, for services that have neither torch nor gcig."""

from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from gcig._files import write_atomically
from gcig._validation import InputError, InputTypeError
from gcig.methods.base import NetworkClassifier
from gcig.methods.randomised import RandomisedClassifier

__all__ = ["export_onnx"]

# What a class must not compute in a way of its own, if the graph is to answer as it does.
_AS_IN_BASE = ("encode", "decision_function", "predict_proba", "predict", "_logits")


def export_onnx(model: Any, path: str | Path, *, opset: int | None = None) -> None:
    """Write a fitted classifier to an ONNX file, its encoder included.

    The graph takes the columns of the table that the model was trained with, one input of shape (rows, 1)
    each under the column's name: doubles for numbers and booleans, text for categories. A model that was
    trained on an array of numbers has one input ``X`` of shape (rows, columns). It gives ``label`` (rows,),
    what `predict` gives, and ``probabilities`` (rows, 2), those of `predict_proba`; a column of the same
    name makes that ``label_2``.

    Missing cells are NaN for numbers, and "" (or "nan", "None", "<NA>") for text. They and categories that
    training did not see are encoded as in `predict`, but without a warning. What `predict` refuses,
    infinities for example, the graph does not check.

    Parameters
    ----------
    model : estimator of gcig
        One that predicts by a network and a threshold. Methods that need the groups of new rows or draw
        their decisions are refused. Networks are chains of linear layers, activations, normalisations.
    path : str or Path
        The file, by custom ``*.onnx``; its folder must exist.
    opset : int, optional
        The version of ONNX's operators; by default the oldest that suffices, 17.

    Raises
    ------
    ImportError
        Where onnx is not installed: ``pip install 'gcig[onnx]'``.

    Examples
    --------
    >>> import gcig, tempfile
    >>> data = gcig.load_dataset("german")
    >>> model = gcig.FairXClassifier(random_state=0)
    >>> model = model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    >>> export_onnx(model, tempfile.mkdtemp() + "/model.onnx")
    """
    if not isinstance(model, NetworkClassifier):
        raise InputTypeError(f"model must be an estimator of gcig, not a {type(model).__name__}.")
    check_is_fitted(model)
    _check_exportable(model)
    try:
        from gcig.methods.exporting.classifier import classifier_graph
    except ImportError as error:
        raise ImportError(
            "ONNX files are written with onnx, which is not installed: pip install 'gcig[onnx]'."
        ) from error
    write_atomically(path, classifier_graph(model, opset=opset).SerializeToString())


def _check_exportable(model: NetworkClassifier) -> None:
    """Raise an error where a graph of encoder, network and threshold would not answer as the model does."""
    method = type(model)
    reason = ""
    if method.needs_groups_to_predict:
        reason = "it needs the group of every new row, which is no column of the table"
    elif issubclass(method, RandomisedClassifier):
        reason = "it draws its decisions, and no operator of ONNX draws as it does"
    elif own := [
        name for name in _AS_IN_BASE if getattr(method, name) is not getattr(NetworkClassifier, name)
    ]:
        reason = f"it has a way of its own for {', '.join(own)}"
    elif model.diverged_:
        reason = "its last fit diverged, so fit it again first"
    if reason:
        raise InputError(
            f"{method.__name__} cannot be written as ONNX: {reason}. Methods that predict by a network and a "
            "threshold can (fairx, unconstrained, lagrangian, adversarial); save() keeps any of them."
        )
