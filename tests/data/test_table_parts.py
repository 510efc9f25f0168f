import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcig._validation import InputError
from gcig.data.reading import open_table
from support.tables_from_files import read_table

KINDS = {"age": "number", "owner": "boolean", "job": "category"}


@pytest.fixture
def write(tmp_path):
    def to_file(text, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return to_file


def whole(stream, kinds=KINDS, passed=(), rows=2):
    parts = list(stream.parts(kinds, passed, rows=rows))
    assert all(len(part.inputs) <= rows for part in parts)
    inputs = pd.concat([part.inputs for part in parts])
    assert inputs.index.tolist() == list(range(len(inputs)))
    return inputs, pd.concat([part.passed for part in parts])


def test_columns_have_the_types_of_training_in_every_part(write):
    path = write("job,age,owner,id\n07,1,true,a\n 8 ,2.5,False,b\nx,NA,,c\n,,1,d\nNA,3,0,e\n")
    inputs, _ = whole(open_table(path))
    assert inputs.columns.tolist() == list(KINDS)
    np.testing.assert_array_equal(inputs["age"], [1, 2.5, np.nan, np.nan, 3])
    np.testing.assert_array_equal(inputs["owner"].astype(float), [1, 0, np.nan, 1, 0])
    assert inputs["job"].fillna("missing").tolist() == ["07", "8", "x", "missing", "NA"]


def test_passed_columns_are_unchanged(write):
    path = write('id,age\n 007 ,1\n"a, ""b""",2\n,3\nNA,4\n')
    _, passed = whole(open_table(path), {"age": "number"}, ["id"])
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
    stream = open_table(path, separator=separator, decimal=decimal)
    assert stream.n_rows == len(frame)
    inputs, _ = whole(stream, {"age": "number", "job": "category"}, rows=at_once)
    expected = read_table(path, separator=separator, decimal=decimal)
    np.testing.assert_array_equal(inputs["age"], expected["age"])
    assert inputs["job"].tolist() == expected["job"].tolist()


def test_decimal_commas_are_found_in_a_later_part(write):
    path = write("age;job\n1;a\n2;b\n3,5;c\n")
    inputs, _ = whole(open_table(path), {"age": "number", "job": "category"})
    assert inputs["age"].tolist() == [1, 2, 3.5]


def test_text_among_numbers_stays_text(write):
    path = write("age\n1\n2\nold\n")
    parts = list(open_table(path).parts({"age": "number"}, rows=2))
    assert parts[0].inputs["age"].dtype == np.float64
    assert parts[1].inputs["age"].tolist() == ["old"]


def test_other_encodings_are_noted(write):
    stream = open_table(write("job\nZürich\n".encode("latin-1")))
    assert "line 2 is not UTF-8" in stream.notes[0]
    assert whole(stream, {"job": "category"})[0]["job"].tolist() == ["Zürich"]


def test_a_character_across_two_blocks_is_still_utf8(write, monkeypatch):
    monkeypatch.setattr("gcig.data.formats._BLOCK", 3)
    assert open_table(write("job\nab\u00e9\u20ac\n")).notes == ()
    with pytest.raises(InputError, match="NUL byte in line 3"):
        open_table(write(b"job\nabc\nd\0\n"))
    stream = open_table(write(b"job\nabc\nd\xe9\n"))
    assert "line 3 is not UTF-8" in stream.notes[0]


def test_a_character_that_is_cut_off_is_not_utf8(write):
    assert "line 2 is not UTF-8" in open_table(write(b"job\nab\xc3")).notes[0]


def test_missing_columns_are_named(write):
    with pytest.raises(InputError, match="no column 'age'; it has 'job'"):
        next(open_table(write("job\na\n")).parts({"age": "number"}))


def test_parquet_keeps_the_types_of_passed_columns(tmp_path):
    pytest.importorskip("pyarrow")
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
    parts = list(stream.parts({"age": "number", "job": "category"}, ["id"], rows=2))
    assert [len(part.inputs) for part in parts] == [2, 1]
    assert {str(part.passed["id"].dtype) for part in parts} == {"int64[pyarrow]"}
    assert parts[1].inputs.index.tolist() == [2]
    np.testing.assert_array_equal(parts[0].inputs["age"], [1, np.nan])


def test_memory_does_not_grow_with_the_table(tmp_path, monkeypatch):
    """A part is all that is held: a table four times as long peaks at the same size."""
    monkeypatch.setattr("gcig.data.formats._BLOCK", 2**14)
    peaks = []
    for rows in (10_000, 40_000):
        path = tmp_path / f"{rows}.csv"
        path.write_text("age,job\n" + "1.25,clerk\n" * rows)
        tracemalloc.start()
        count = sum(
            len(part.inputs)
            for part in open_table(path).parts({"age": "number", "job": "category"}, rows=1_000)
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert count == rows
    assert peaks[1] < 1.5 * peaks[0]
