from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcig._arguments import InputError
from gcig.tables.read import open_table
from support.tables_from_files import read_table

KINDS = {"age": "number", "owner": "boolean", "job": "category"}


def model_of(kinds):
    """Return a model that was trained on columns of these kinds."""
    return SimpleNamespace(
        encoder_=SimpleNamespace(feature_names_in_=tuple(kinds), kinds_=tuple(kinds.values()))
    )


@pytest.fixture
def write(tmp_path):
    def to_file(text, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return to_file


def whole(path, kinds=KINDS, passed=(), rows=2, **notation):
    file = open_table(path, model=model_of(kinds), **notation)
    parts = list(file.parts(list(kinds), passed, rows=rows))
    assert all(len(inputs) <= rows for inputs, _ in parts)
    inputs = pd.concat([inputs for inputs, _ in parts])
    assert inputs.index.tolist() == list(range(file.n_rows))
    return inputs, pd.concat([texts for _, texts in parts])


def test_columns_have_the_types_of_training_in_every_part(write):
    path = write("job,age,owner,id\n07,1,true,a\n 8 ,2.5,False,b\nx,NA,,c\n,,1,d\nNA,3,0,e\n")
    inputs, _ = whole(path)
    assert inputs.columns.tolist() == list(KINDS)
    np.testing.assert_array_equal(inputs["age"], [1, 2.5, np.nan, np.nan, 3])
    np.testing.assert_array_equal(inputs["owner"].astype(float), [1, 0, np.nan, 1, 0])
    assert inputs["job"].fillna("missing").tolist() == ["07", "8", "x", "missing", "NA"]


def test_passed_columns_are_unchanged(write):
    path = write('id,age\n 007 ,1\n"a, ""b""",2\n,3\nNA,4\n')
    _, passed = whole(path, {"age": "number"}, ["id"])
    assert passed["id"].tolist() == [" 007 ", 'a, "b"', "", "NA"]


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.floats(-1e6, 1e6).map(lambda v: round(v, 3))),
            st.sampled_from(["a", "b b", "NA", "é", "x,y", 'q"q']),
        ),
        min_size=1,
        max_size=25,
    ),
    st.sampled_from([1, 3, 100]),
    st.sampled_from([(",", "."), (";", ","), ("\t", "."), ("|", ",")]),
)
def test_parts_together_are_the_table(tmp_path_factory, rows, at_once, marks):
    separator, decimal = marks
    frame = pd.DataFrame({"age": [1.5, *(r[0] for r in rows)], "job": ["z", *(r[1] for r in rows)]})
    frame["age"] = frame["age"].astype(float)
    path = tmp_path_factory.mktemp("tables") / "table.csv"
    frame.to_csv(path, index=False, sep=separator, decimal=decimal)
    inputs, _ = whole(
        path, {"age": "number", "job": "category"}, rows=at_once, sep=separator, decimal=decimal
    )
    assert len(inputs) == len(frame)
    expected = read_table(path, sep=separator, decimal=decimal)
    np.testing.assert_array_equal(inputs["age"], expected["age"])
    assert inputs["job"].tolist() == expected["job"].tolist()


def test_missing_columns_are_named(write):
    with pytest.raises(InputError, match="no column 'age'; it has 'job'"):
        next(open_table(write("job\na\n")).parts(["age"]))


def test_parquet_keeps_the_types_of_passed_columns(tmp_path):
    frame = pd.DataFrame(
        {
            "age": [1.0, np.nan, 3.0],
            "job": pd.Categorical(["a", None, "b"]),
            "id": pd.array([7, None, 9], dtype="Int64"),
        }
    )
    frame.to_parquet(tmp_path / "table.parquet")
    stream = open_table(tmp_path / "table.parquet")
    assert (stream.n_rows, stream.names) == (3, ("age", "job", "id"))
    parts = list(stream.parts(["age", "job"], ["id"], rows=2))
    assert [len(inputs) for inputs, _ in parts] == [2, 1]
    assert {str(texts["id"].dtype) for _, texts in parts} == {"int64[pyarrow]"}
    assert parts[1][0].index.tolist() == [2]
    np.testing.assert_array_equal(parts[0][0]["age"], [1, np.nan])


@pytest.mark.parametrize("form", ["csv", "parquet", "feather"])
def test_memory_does_not_grow_with_the_table(tmp_path, monkeypatch, form):
    """A block is all that is held: a table four times as long peaks at about the same size."""
    monkeypatch.setattr("gcig.tables.files._BLOCK_BYTES", 2**16)
    peaks = []
    for rows in (40_000, 640_000):
        path = tmp_path / f"{rows}.{form}"
        frame = pd.DataFrame({"age": np.arange(rows) % 97 + 0.25, "job": "clerk"})
        how = {"csv": {"index": False}, "parquet": {"row_group_size": 5_000}, "feather": {"chunksize": 5_000}}
        getattr(frame, f"to_{form}")(path, **how[form])
        before, held, count = pa.total_allocated_bytes(), [], 0
        for part in open_table(path).batches(["age", "job"], rows=1_000):
            held.append(pa.total_allocated_bytes() - before)
            count += len(part)
        peaks.append(max(held))
        assert count == rows
    assert peaks[1] < 1.5 * peaks[0] + 2**20
