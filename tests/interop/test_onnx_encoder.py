"""The encoder inside an exported graph gives the very numbers of `TableEncoder`, whatever the table."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcig._arguments import InputWarning
from gcig.tables.encoding import TableEncoder

onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
from gcig.methods.onnx_export import ROWS, encode_rows, table_inputs  # noqa: E402 (needs onnx)
from gcig.methods.onnx_graph import GraphBuilder  # noqa: E402 (needs onnx)

N_TRAINING, N_NEW = 6, 5
# Of numbers next to zero the squares vanish, and so do the deviations that others are divided by.
floats = st.floats(-1e6, 1e6, allow_nan=False).map(lambda value: round(value, 6))
numbers = st.one_of(st.none(), st.integers(-1000, 1000), floats)
words = st.one_of(st.none(), st.sampled_from(["a", "b ", "é", "0", "A", "<missing>"]))


@st.composite
def tables(draw):
    """Training and new rows of the same columns."""
    n = N_TRAINING + N_NEW
    columns = {}
    for j in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["number", "word", "flag"]))
        cells = {"number": numbers, "word": words, "flag": st.booleans()}[kind]
        values = draw(st.lists(cells, min_size=n, max_size=n))
        dtype = {"number": float, "word": object, "flag": bool}[kind]
        columns[f"{kind}{j}"] = pd.Series(values, dtype=dtype)
    table = pd.DataFrame(columns)
    empty = [name for name in table if table[name].dtype == object and table[name][:N_TRAINING].isna().all()]
    table.loc[0, empty] = "a"  # a column without a single cell has no type
    return table.iloc[:N_TRAINING], table.iloc[N_TRAINING:]


def run_encoder(encoder, table):
    inputs = table_inputs(encoder, named=True)
    graph = GraphBuilder(value.name for value in inputs)
    encoded = encode_rows(graph, encoder, [value.name for value in inputs])
    output = onnx.helper.make_tensor_value_info(
        encoded, onnx.TensorProto.FLOAT, [ROWS, encoder.n_features_out_]
    )
    body = onnx.helper.make_graph(graph.nodes, "encoder", inputs, [output], graph.constants)
    versions = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    model = onnx.helper.make_model(body, opset_imports=versions, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    types = {each.name: object if "string" in each.type else np.float64 for each in session.get_inputs()}
    feed = {name: table[name].to_numpy().astype(types[name]).reshape(-1, 1) for name in types}
    return session.run(None, feed)[0]


@settings(max_examples=60)
@given(tables())
def test_every_cell_is_encoded_alike(parts):
    training = parts[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        for n_bins in (0, 3):
            encoder = TableEncoder(n_bins, max_levels=3).fit(training)
            for table in parts:
                np.testing.assert_array_equal(run_encoder(encoder, table), encoder.transform(table))
