"""Models in the ONNX format; they need onnxruntime."""

import json
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gcig._arguments import InputError, listed
from gcig.adapters.base import Task
from gcig.tables.check import check_features
from gcig.tables.names import rename_as

_TYPES: dict[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(string)": object,
}


_MAX_MEMORY = 4 * 2**30  # bytes that the models of a process may use: a file of 200 bytes can ask for more


@cache
def _bounded_options() -> Any:
    """Return the options of sessions that share a bounded amount of memory and print nothing."""
    onnxruntime = import_module("onnxruntime")
    place = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    onnxruntime.create_and_register_allocator(place, onnxruntime.OrtArenaCfg(_MAX_MEMORY, -1, -1, -1))
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.use_env_allocators", "1")
    options.log_severity_level = 4  # errors are raised
    return options


class OnnxClassifier:
    """An ONNX session that returns probabilities or numbers, from the content of an ``.onnx`` file.

    The model has either one input that takes all columns, or one input per column, named after it. The
    probabilities are the output with "prob" in its name, or the only floating-point output: (n,), (n, 1), (n,
    2) or (n, K), or a mapping from class to probability per row. If the model also returns labels and its
    classes are known, the labels are its decisions. ``feature_names_in_`` is None if one input takes all
    columns, ``classes`` if the file does not name them; ``threshold`` is NaN if the file has none.
    """

    def __init__(self, content: bytes) -> None:
        try:
            onnxruntime = import_module("onnxruntime")
        except ImportError as error:
            raise InputError(
                "ONNX models need onnxruntime, which is not installed: pip install 'gcig[onnx]'."
            ) from error
        try:
            self.session = onnxruntime.InferenceSession(
                content, _bounded_options(), providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime raises many exception types
            raise InputError(
                f"the ONNX model cannot be read ({type(error).__name__}): the file is damaged, or its "
                "version is not supported by onnxruntime. Export it again."
            ) from error
        self.content = content
        inputs = [each.name for each in self.session.get_inputs()]
        self.feature_names_in_ = tuple(inputs) if len(inputs) > 1 else None
        self.output = self._find_output()
        outputs = [each.name for each in self.session.get_outputs() if each.name != self.output]
        self.label = next((name for name in outputs if "label" in name.lower()), None)
        notes = self.session.get_modelmeta().custom_metadata_map
        self.threshold = float(notes.get("gcig_threshold", "nan"))
        self.predicts_number = notes.get("gcig_task") == "number"
        self.classes = np.array(json.loads(notes["gcig_classes"])) if "gcig_classes" in notes else None
        if self.classes is None:
            self.classes = _classes_of_nodes(content)

    @property
    def task(self) -> Task:
        """A number if gcig wrote the file for one; several classes if the file has them; two otherwise."""
        if self.predicts_number:
            return "number"
        node = next(each for each in self.session.get_outputs() if each.name == self.output)
        widths = [size for size in (node.shape or [])[1:] if isinstance(size, int)]
        n_classes = max(*widths, 0 if self.classes is None else len(self.classes), 0, 0)
        return "classes" if n_classes > 2 else "binary"

    @property
    def decides(self) -> bool:
        """True if the model returns labels that can be read as decisions."""
        return self.label is not None and self.classes is not None

    def decide(self, X: Any) -> NDArray[Any]:
        """Return the classes that the model itself predicts, (n,)."""
        labels = self._run(self.label, X)
        return np.asarray(labels).reshape(len(X))

    def check(self, X: Any) -> None:
        """Raise an error if the model cannot take a table, and name the columns that do not fit."""
        self._feed(X)

    def __getstate__(self) -> bytes:
        return self.content

    def __setstate__(self, content: bytes) -> None:
        self.__init__(content)  # type: ignore[misc]

    def _find_output(self) -> str:
        outputs = self.session.get_outputs()
        named = [each.name for each in outputs if "prob" in each.name.lower()]
        floats = [each.name for each in outputs if "float" in each.type or "double" in each.type]
        if named or len(floats) == 1:
            return str((named or floats)[0])
        raise InputError(
            "the ONNX model's probabilities are not found among its outputs "
            f"({', '.join(each.name for each in outputs)}). Export it with an output named 'probabilities'."
        )

    def __call__(self, X: Any) -> NDArray[np.float64]:
        """Return the model's probabilities for a table or an array."""
        answer = self._run(self.output, X)
        if isinstance(answer, list) and answer and isinstance(answer[0], dict):
            names = sorted(answer[0]) if self.classes is None else self.classes.tolist()
            chosen = names if len(names) > 2 else names[-1:]
            return np.array([[row[name] for name in chosen] for row in answer], dtype=np.float64)
        return np.asarray(answer, dtype=np.float64)

    def _run(self, output: str | None, X: Any) -> Any:
        feed = self._feed(X)
        try:
            (answer,) = self.session.run([output], feed)
        except Exception as error:  # onnxruntime raises many exception types
            raise InputError(
                f"the ONNX model fails on these rows ({type(error).__name__}): it needs more than "
                f"{_MAX_MEMORY // 2**30} GiB, or does not take such a table. Check it, or use fewer rows."
            ) from error
        return answer

    def _feed(self, X: Any) -> dict[str, NDArray[Any]]:
        inputs = self.session.get_inputs()
        frame = rename_as(check_features(X), [each.name for each in inputs])
        if len(inputs) == 1 and (inputs[0].name not in frame.columns or frame.shape[1] > 1):
            self._check_width(inputs[0], frame)
            columns = [_entries(frame[name], self._type(inputs[0])) for name in frame.columns]
            return {inputs[0].name: np.ascontiguousarray(np.stack(columns, axis=1))}
        missing = [each.name for each in inputs if each.name not in frame.columns]
        if missing:
            raise InputError(
                f"lacks columns that the ONNX model takes: {listed(missing)}. Add them, or rename the "
                f"columns of the table ({listed(list(frame.columns))}) as the model names them.",
                argument="X",
            )
        return {each.name: _entries(frame[each.name], self._type(each)).reshape(-1, 1) for each in inputs}

    def _check_width(self, node: Any, frame: pd.DataFrame) -> None:
        """Raise an error if the model's only input takes another number of columns."""
        width = node.shape[1] if len(node.shape) == 2 else None
        if isinstance(width, int) and width != frame.shape[1]:
            raise InputError(
                f"has {frame.shape[1]} columns ({listed(list(frame.columns))}), but the ONNX model's input "
                f"{node.name!r} takes {width}. Pass the columns that it was trained with, in their order; "
                "the shell leaves out others with --drop.",
                argument="X",
            )

    def _type(self, node: Any) -> Any:
        if node.type not in _TYPES:
            raise InputError(
                f"the ONNX model's input {node.name!r} has type {node.type}, which is not supported. "
                "Export the model with float, integer, boolean or string inputs."
            )
        return _TYPES[node.type]


def _entries(column: "pd.Series[Any]", kind: Any) -> NDArray[Any]:
    """Return a column in the type of an input; missing text becomes empty text."""
    if kind is not object:
        if column.dtype.kind not in "biuf":
            raise InputError(
                "holds text, but the ONNX model takes numbers there. Encode it as in training, or export the "
                "model with its encoder.",
                argument="X",
                column=str(column.name),
            )
        if column.isna().any() and not issubclass(kind, np.floating):
            raise InputError(
                "has missing values, but the ONNX model takes whole numbers. Impute them, or export the "
                "model with a floating-point input.",
                argument="X",
                column=str(column.name),
            )
        return np.asarray(column.to_numpy().astype(kind))
    codes, levels = pd.factorize(column)
    return np.array([*map(str, levels), ""], dtype=object)[codes]


def _classes_of_nodes(content: bytes) -> NDArray[Any] | None:
    """Return the classes that a classifier node names; None if there is none, or without onnx."""
    try:
        onnx = import_module("onnx")
    except ImportError:
        return None
    for node in onnx.load_from_string(content).graph.node:
        for attribute in node.attribute:
            if attribute.name.startswith("classlabels_"):
                found = [*attribute.ints, *(text.decode() for text in attribute.strings)]
                if len(found) >= 2:
                    return np.array(found)
    return None
