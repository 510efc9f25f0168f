"""A fitted encoder as ONNX operators: from the columns of a table to what the network sees."""

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper

from gcig.data.encoding import MISSING, CategoryColumn, NumberColumn, TableEncoder
from gcig.data.passthrough import PassThrough
from gcig.methods.exporting.graph import GraphBuilder

__all__ = ["MISSING_TEXT", "ROWS", "encode_rows", "table_inputs"]

ROWS = "rows"  # the name of the dimension that is not fixed
# How a missing cell of text may be spelt, since text has no NaN: as pandas and NumPy write theirs, or not
# at all. A category of training keeps its meaning whatever its name.
MISSING_TEXT = ("", "nan", "NaN", "None", "<NA>")


def table_inputs(encoder: TableEncoder | PassThrough, *, named: bool) -> list[ValueInfoProto]:
    """One input (rows, 1) for each column: doubles for numbers and booleans, text for categories.

    Columns without names that are all numbers are one input ``X`` (rows, columns), as they were one array in
    training.
    """
    categories = [isinstance(column, CategoryColumn) for column in _columns(encoder)]
    if not named and not any(categories):
        return [helper.make_tensor_value_info("X", TensorProto.DOUBLE, [ROWS, len(categories)])]
    return [
        helper.make_tensor_value_info(name, TensorProto.STRING if text else TensorProto.DOUBLE, [ROWS, 1])
        for name, text in zip(encoder.feature_names_in_, categories, strict=True)
    ]


def encode_rows(graph: GraphBuilder, encoder: TableEncoder | PassThrough, inputs: Sequence[str]) -> str:
    """What `encoder.transform` computes of the named inputs, as floats (rows, p)."""
    if isinstance(encoder, PassThrough):
        values = graph.beside(inputs, "numbers")
        return graph.apply("Cast", values, name="encoded", to=TensorProto.FLOAT)
    columns = _columns(encoder)
    starts = np.searchsorted(encoder.origin_, np.arange(len(columns)))  # of each column's encoded block
    numbers = [(j, column) for j, column in enumerate(columns) if isinstance(column, NumberColumn)]
    blocks: list[str] = []
    places: list[int] = []  # where each column of the blocks, side by side, belongs
    flags: list[str] = []
    if numbers:
        names = inputs if len(inputs) == 1 else [inputs[j] for j, _ in numbers]
        values = graph.beside(names, "numbers")
        missing = graph.apply("IsNaN", values, name="missing")
        blocks.append(_standardised(graph, values, missing, [column for _, column in numbers]))
        places += [int(starts[j]) for j, _ in numbers]
        if marked := [i for i, (_, column) in enumerate(numbers) if column.indicator]:
            chosen = graph.constant(np.array(marked, dtype=np.int64), "columns_with_missing")
            flags.append(graph.apply("Gather", missing, chosen, name="indicators", axis=1))
            places += [int(starts[numbers[i][0]]) + 1 for i in marked]
    for j, column in enumerate(columns):
        if isinstance(column, CategoryColumn):
            flags.append(_one_hot(graph, inputs[j], column))
            places += range(int(starts[j]), int(starts[j]) + len(column.levels))
    if flags:
        together = graph.beside(flags, "flags")
        blocks.append(graph.apply("Cast", together, name="indicated", to=TensorProto.FLOAT))
    encoded = graph.beside(blocks, "blocks")
    if places == sorted(places):
        return encoded
    order = graph.constant(np.argsort(places).astype(np.int64), "order")
    return graph.apply("Gather", encoded, order, name="encoded", axis=1)


def _columns(encoder: TableEncoder | PassThrough) -> tuple[NumberColumn | CategoryColumn | None, ...]:
    """How each column is encoded; None: not at all."""
    if isinstance(encoder, TableEncoder):
        return encoder.columns_
    return (None,) * len(encoder.feature_names_in_)


def _standardised(graph: GraphBuilder, values: str, missing: str, columns: list[NumberColumn]) -> str:
    """(value - mean) / scale of the filled columns, in doubles as the encoder computes it, as floats."""
    fill = graph.constant(np.array([[column.fill for column in columns]]), "fill")
    mean = graph.constant(np.array([[column.mean for column in columns]]), "mean")
    # A constant column is encoded as zeros, which is what a division by infinity gives.
    scale = graph.constant(np.array([[column.scale or np.inf for column in columns]]), "scale")
    filled = graph.apply("Where", missing, fill, values, name="filled")
    centred = graph.apply("Sub", filled, mean, name="centred")
    scaled = graph.apply("Div", centred, scale, name="scaled")
    return graph.apply("Cast", scaled, name="standardised", to=TensorProto.FLOAT)


def _one_hot(graph: GraphBuilder, value: str, column: CategoryColumn) -> str:
    """Booleans (rows, levels); all false where training did not see the category."""
    codes = {level: code for code, level in enumerate(column.levels)}
    if MISSING in codes:
        codes = dict.fromkeys(MISSING_TEXT, codes[MISSING]) | codes
    found = graph.apply(
        "LabelEncoder",
        value,
        name="code",
        domain="ai.onnx.ml",
        keys_strings=list(codes),
        values_int64s=list(codes.values()),
        default_int64=-1,
    )
    levels = graph.constant(np.arange(len(column.levels), dtype=np.int64)[np.newaxis], "levels")
    return graph.apply("Equal", found, levels, name="level")
