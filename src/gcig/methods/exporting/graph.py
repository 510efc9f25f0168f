"""An ONNX graph as it grows: nodes, constants, and names that no two values share."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

__all__ = ["GraphBuilder"]


class GraphBuilder:
    """Nodes and constants in order of computation.

    Parameters
    ----------
    taken : iterable of str
        Names that are not to be given again: those of the inputs, which come from users' tables.

    Examples
    --------
    >>> graph = GraphBuilder(["age"])
    >>> graph.apply("Sub", "age", graph.constant(np.array([[40.0]]), "mean"), name="age")
    'age_2'
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self._names = set(taken)

    def fresh_name(self, wanted: str) -> str:
        """The name that is wanted, numbered where a value has it already."""
        name, count = wanted, 1
        while name in self._names:
            count += 1
            name = f"{wanted}_{count}"
        self._names.add(name)
        return name

    def constant(self, values: NDArray[Any], name: str) -> str:
        """A constant of the graph; arrays of text are arrays of objects."""
        name = self.fresh_name(name)
        if values.dtype.kind in "OU":
            tensor = helper.make_tensor(name, TensorProto.STRING, values.shape, values.ravel().tolist())
        else:
            tensor = numpy_helper.from_array(np.ascontiguousarray(values), name)
        self.constants.append(tensor)
        return name

    def apply(self, operator: str, *inputs: str, name: str, domain: str = "", **attributes: Any) -> str:
        """The name of an operator's one output, as near to ``name`` as is free."""
        return self.give(operator, *inputs, output=self.fresh_name(name), domain=domain, **attributes)

    def give(self, operator: str, *inputs: str, output: str, domain: str = "", **attributes: Any) -> str:
        """The same under a name that is reserved already."""
        self.nodes.append(
            helper.make_node(operator, inputs, [output], name=f"make_{output}", domain=domain, **attributes)
        )
        return output

    def beside(self, values: Sequence[str], name: str) -> str:
        """Blocks of columns side by side; a single one as it is."""
        return values[0] if len(values) == 1 else self.apply("Concat", *values, name=name, axis=1)
