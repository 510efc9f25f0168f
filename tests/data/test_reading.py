import gzip
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcig._validation import InputError, InputWarning
from gcig.data.reading import open_table
from support.tables_from_files import read_table


def examine(path):
    return open_table(path).read()


@pytest.fixture
def write(tmp_path):
    def write(content, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_separators_and_line_ends_are_found(write, separator, newline):
    lines = ["age sex note", '30 F "a, b; c"', '41 M "x\ty|z"', "", "50 F c"]
    reading = examine(write(newline.join(line.replace(" ", separator) for line in lines)))
    assert reading.written.separator == separator
    assert reading.frame["age"].tolist() == [30, 41, 50]
    assert reading.frame["sex"].tolist() == ["F", "M", "F"]
    assert reading.frame["note"].tolist()[2] == "c"
    assert reading.notes == ()


def test_one_column_needs_no_separator(write):
    assert read_table(write("age\n1\n2\n"))["age"].tolist() == [1, 2]


def test_line_ends_inside_quotes_belong_to_the_entry(write):
    frame = read_table(write('a,b\n"x\ny",1\n"z ""q""",2\n'))
    assert frame["a"].tolist() == ["x\ny", 'z "q"']


def test_columns_are_chosen_and_put_in_order(write):
    path = write("a,b,c\n1,2,3\n")
    assert read_table(path, columns=["c", "a"]).to_dict("list") == {"c": [3], "a": [1]}
    with pytest.raises(InputError, match="has no column 'z'; it has 'a', 'b', 'c'"):
        read_table(path, columns=["a", "z"])


def test_options_override_detection(write):
    path = write("a;b\n1,234;x\n2,345;y\n")
    with pytest.raises(InputError, match="may be thousands or a fraction"):
        read_table(path)
    assert read_table(path, decimal=",")["a"].tolist() == [1.234, 2.345]
    assert read_table(path, decimal=".")["a"].tolist() == [1234, 2345]
    assert list(read_table(write("a;b\nc;d\n"), separator=",").columns) == ["a;b"]
    assert read_table(write("a\nä\n".encode("cp437")), encoding="cp437")["a"].tolist() == ["ä"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"separator": ";;"}, "separator must be one ASCII character"),
        ({"decimal": "x"}, "decimal must be"),
        ({"encoding": "klingon"}, "encoding 'klingon' is unknown"),
        ({"encoding": "ascii"}, "cannot be read as CSV in ascii"),
    ],
)
def test_impossible_options_are_named(write, options, message):
    with pytest.raises(InputError, match=message):
        read_table(write("a\nä\n"), **options)


def test_quoted_decimal_commas_between_commas(write):
    path = write('a,b\n"1,5",2\n"1.001,25",3\n')
    assert read_table(path)["a"].tolist() == ["1,5", "1.001,25"]  # two codes, perhaps
    assert read_table(path, decimal=",")["a"].tolist() == [1.5, 1001.25]


@pytest.mark.parametrize(
    ("entries", "values"),
    [
        (["7.250", "1.500"], [7.25, 1.5]),  # three decimals throughout
        (["1500", "1.500"], [1500, 1.5]),  # thousands would be written 1.500
        (["12", "1.5"], [12, 1.5]),
        (["12", '"1,500"'], [12, 1500]),
    ],
)
def test_points_are_decimal_between_commas(write, entries, values):
    path = write("a,b\n" + "".join(f"{entry},x\n" for entry in entries))
    assert read_table(path)["a"].tolist() == values
    assert open_table(path).find_decimal(["a"], 1) == "."


def test_decimal_commas_with_thousands(write):
    reading = examine(write("a;b;when\n1,5;1.000;01.02.2024\n-2,25;12.500;03.04.2024\n;NA;05.06.2024\n"))
    assert reading.written.decimal == ","
    np.testing.assert_array_equal(reading.frame["a"], [1.5, -2.25, np.nan])
    np.testing.assert_array_equal(reading.frame["b"], [1000, 12500, np.nan])
    assert reading.frame["when"].tolist() == ["01.02.2024", "03.04.2024", "05.06.2024"]


def test_decimal_commas_and_decimal_points_are_an_error(write):
    with pytest.raises(
        InputError, match="has decimal commas in column 'a', but decimal points in column 'b'"
    ):
        read_table(write("a;b\n1,5;2.5\n"))


def test_text_with_commas_is_text(write):
    reading = examine(write("a;b\n1,5;2\nabout 2,5;3\n"))
    assert reading.written.decimal is None
    assert reading.frame["a"].tolist() == ["1,5", "about 2,5"]


def test_quoted_thousands_are_numbers(write):
    assert read_table(write('a,b\n"1,234",x\n"12,345,678.5",y\n'))["a"].tolist() == [1234, 12345678.5]


@pytest.mark.parametrize("token", ["NA", "nan", "NULL", "None", "?", "#N/A"])
def test_missing_tokens_are_missing_only_among_numbers(write, token):
    reading = examine(write(f"n,t\n1.5,a\n{token},{token}\n,\n"))
    np.testing.assert_array_equal(reading.frame["n"], [1.5, np.nan, np.nan])
    assert reading.frame["t"].tolist()[:2] == ["a", token]
    assert reading.frame["t"].isna().tolist() == [False, False, True]
    assert reading.notes == ("column 'n': 1 entries such as NA or ? among numbers read as missing",)


def test_digits_that_float64_would_lose_stay_text(write):
    assert read_table(write("id\n123456789012345678901\n123456789012345678902\nNA\n"))["id"].nunique() == 3


def test_uniform_spaces_are_removed_with_a_note(write):
    reading = examine(write("age, sex\n 39, F\n 40, M\n 41, \n"))
    assert list(reading.frame.columns) == ["age", "sex"]
    assert reading.frame["sex"].tolist()[:2] == ["F", "M"]
    assert reading.frame["sex"].isna().tolist() == [False, False, True]
    assert reading.frame["age"].tolist() == [39, 40, 41]
    assert reading.notes == ("column 'sex': spaces around 3 entries removed",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"a,b\n", "a header line but no rows"),
        (b"a,b,a\n1,2,3\n", "several columns called 'a'"),
        (b"a, a\n1,2\n", "several columns called 'a'"),
        (b"a,,c\n1,2,3\n", "column 2 has no name"),
        (b",b\nx,2\ny,3\n", "the first column has no name"),
        (b"5.1,3.5,setosa\n4.9,3.0,setosa\n", "first line holds numbers"),
        (
            b"a,b\n1,2,3\n4,5,6\n",
            "line 2: 3 fields, but the header has 2.* The header lacks the name of one column",
        ),
        (b'a,b\n1,"2\n3,4\n', "cannot be read as CSV|fields, but the header"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"PK\x03\x04", "Excel"),
    ],
)
def test_broken_files_are_named(write, content, message):
    with pytest.raises(InputError, match=message):
        read_table(write(content))


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(InputError, match=r"There is no file .*nowhere\.csv"):
        read_table(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="is a folder"):
        read_table(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        read_table(tmp_path / ("x" * 300))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="POSIX pipes")
def test_pipes_and_devices_are_not_opened(tmp_path):
    """Files are read twice, and a pipe without a writer would be waited for."""
    os.mkfifo(tmp_path / "t.csv")
    for path in (tmp_path / "t.csv", Path(os.devnull)):
        with pytest.raises(InputError, match="is a pipe or a device, not a file"):
            read_table(path)


def test_a_saved_index_is_dropped(tmp_path):
    frame = pd.DataFrame({"a": [1.5, 2.5], "b": ["x", "y"]})
    frame.to_csv(tmp_path / "t.csv")
    with pytest.warns(InputWarning, match="row numbers without a name, was dropped"):
        pd.testing.assert_frame_equal(read_table(tmp_path / "t.csv"), frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_table(tmp_path / "t.csv", columns=["a"])["a"].tolist() == [1.5, 2.5]


CELLS = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8).map(str.strip),
    st.sampled_from(['"', ",", ";", "a,b", "NA", "None", "ä", "x\ny"]),
)


@given(st.lists(st.tuples(CELLS, CELLS, st.floats(-1e9, 1e9)), min_size=1, max_size=20))
def test_tables_written_by_pandas_are_read_back(tmp_path_factory, rows):
    frame = pd.DataFrame(rows, columns=["a", "b", "n"])
    frame[["a", "b"]] = "t" + frame[["a", "b"]] + "t"  # text, whatever was drawn
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    frame.to_csv(path, index=False)
    read = read_table(path)
    assert read["a"].tolist() == frame["a"].tolist()
    assert read["b"].tolist() == frame["b"].tolist()
    np.testing.assert_allclose(read["n"], frame["n"], rtol=1e-15)


# --- requested kinds ------------------------------------------------------------------------------------

MESSY = "code;when;amount;n\n007;01/02/2024;1,5;1\n010;13/02/2024;unknown;2\n;;2,25;3\n"
KINDS = {"code": "category", "when": "date dmy", "amount": "number"}


@pytest.mark.parametrize("form", ["csv", "parquet", "feather"])
def test_requested_kinds_hold_whole_in_batches_and_in_parts(write, tmp_path, form):
    if form != "csv":
        pytest.importorskip("pyarrow")
    path = write(MESSY)
    if form != "csv":
        frame = pd.read_csv(path, sep=";", dtype={"code": str, "amount": str})
        frame = frame.assign(amount=frame["amount"].str.replace(",", "."))
        path = tmp_path / f"table.{form}"
        getattr(frame, f"to_{form}")(path)
    file = open_table(path, kinds=KINDS)
    reading = file.read()
    assert any("1 entries that are not numbers" in note for note in reading.notes)
    batched = pd.concat(file.batches(["code", "when", "amount"], decimal=",", rows=2), ignore_index=True)
    trained = {"code": "category", "when": "date", "amount": "number"}
    parts = pd.concat([part.inputs for part in file.parts(trained, rows=2)])
    for frame in (reading.frame, batched, parts):
        assert frame["code"].tolist()[:2] == ["007", "010"]
        assert frame["code"].isna().tolist() == [False, False, True]
        assert frame["when"].dt.strftime("%m-%d").tolist()[:2] == ["02-01", "02-13"]
        np.testing.assert_array_equal(frame["amount"].to_numpy(float), [1.5, np.nan, 2.25])


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ({"when": "date mdy"}, "'when' has 1 entries of 3 that are not dates written as month/day/year"),
        ({"when": "date"}, "'when' has 2 entries of 3 that are not dates written as YYYY-MM-DD"),
        ({"when": "number"}, "'when' has 2 entries of 3 that are not numbers"),
        ({"when": "text"}, "kinds must be one of"),
        ({"who": "date"}, "has no column 'who'"),
    ],
)
def test_requests_that_do_not_fit_are_refused(write, kinds, message):
    with pytest.raises(InputError, match=message):
        open_table(write(MESSY), kinds=kinds).read()


# --- gzip and Feather -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["table.csv.gz", "table.csv"])  # the content decides, not the name
def test_a_gzip_file_is_read_like_its_content(write, name):
    content = "id;income;city\n1;1,5;Köln\n2;2,5;Bonn\n3;;Köln\n".encode("cp1252")
    plain = open_table(write(content, "plain.csv"))
    packed = open_table(write(gzip.compress(content), name))
    assert packed.format == "CSV (gzip)"
    assert (packed.n_rows, packed.names) == (3, ("id", "income", "city"))
    pd.testing.assert_frame_equal(packed.read().frame, plain.read().frame)
    kinds = {"income": "number", "city": "category"}
    parts = (file.parts(kinds, ["id"], rows=2) for file in (packed, plain))
    for one, other in zip(*parts, strict=True):
        pd.testing.assert_frame_equal(one.inputs, other.inputs)
        pd.testing.assert_frame_equal(one.passed, other.passed)


def test_a_plain_file_named_gz_is_read_and_a_torn_gzip_file_is_refused(write):
    assert read_table(write("a,b\n1,2\n", "table.csv.gz"))["b"].tolist() == [2]
    with pytest.raises(InputError, match="damaged gzip file"):
        read_table(write(gzip.compress(b"a,b\n" + bytes(range(48, 122)) * 99)[:-20], "torn.csv.gz"))


@pytest.mark.parametrize("compression", ["lz4", "uncompressed"])
def test_feather_files_are_read_whole_and_in_batches(tmp_path, compression):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"n": np.arange(10.0), "t": list("abcdefghij"), "c": pd.Categorical(list("xy") * 5)})
    frame.to_feather(tmp_path / "table.feather", compression=compression, chunksize=4)
    file = open_table(tmp_path / "table.feather")
    assert (file.format, file.names, file.n_rows) == ("Feather", ("n", "t", "c"), 10)
    assert file.read(["t", "n"]).frame.to_dict("list") == frame[["t", "n"]].to_dict("list")
    batches = list(file.batches(["c", "n"], decimal=".", rows=3))
    assert max(map(len, batches)) == 3
    joined = pd.concat(batches, ignore_index=True)
    assert joined.to_dict("list") == frame[["c", "n"]].to_dict("list")


def test_a_damaged_feather_file_is_named(write):
    pytest.importorskip("pyarrow")
    with pytest.raises(InputError, match="damaged Feather file"):
        read_table(write(b"ARROW1\0\0" + bytes(50), "table.feather"))
    with pytest.raises(InputError, match="not a Feather file, although its name says so"):
        read_table(write("a\n1\n", "table.feather"))
    with pytest.raises(InputError, match="version 1"):
        read_table(write(b"FEA1" + bytes(50), "table.feather"))


# --- Parquet --------------------------------------------------------------------------------------------


def test_parquet_is_known_by_its_first_bytes(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"a": [1, 2], "b": ["NA", None]}, index=[7, 8])
    frame.to_parquet(tmp_path / "table.dat")
    reading = examine(tmp_path / "table.dat")
    assert reading.frame["a"].tolist() == [1, 2]
    assert reading.frame["b"].isna().tolist() == [False, True]
    assert list(reading.frame.columns) == ["a", "b"]
    assert reading.notes == ("the saved pandas index was dropped",)
    assert (reading.written, reading.encoding) == (None, None)
    assert list(read_table(tmp_path / "table.dat", columns=["b"]).columns) == ["b"]


def test_a_named_index_is_a_column(tmp_path):
    pytest.importorskip("pyarrow")
    pd.DataFrame({"a": [1]}, index=pd.Index([5], name="id")).to_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").to_dict("list") == {"a": [1], "id": [5]}


def test_broken_parquet_is_named(write, tmp_path):
    pytest.importorskip("pyarrow")
    with pytest.raises(InputError, match="not a Parquet file, although its name says so"):
        read_table(write("a,b\n1,2\n", "t.parquet"))
    with pytest.raises(InputError, match="damaged Parquet file"):
        read_table(write(b"PAR1 and then nothing", "t.parquet"))
    pd.DataFrame({"a": []}).to_parquet(tmp_path / "e.parquet")
    with pytest.raises(InputError, match="no rows"):
        read_table(tmp_path / "e.parquet")
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match="has no column 'z'"):
        read_table(tmp_path / "a.parquet", columns=["z"])


def test_numbers_are_read_to_the_last_digit(write):
    numbers = np.random.default_rng(0).normal(size=2000) * 10.0 ** np.arange(-10, 10).repeat(100)
    path = write("a\n" + "\n".join(map(repr, numbers.tolist())) + "\n", "t.csv")
    np.testing.assert_array_equal(read_table(path)["a"], numbers)
    parts = open_table(path).batches(["a"], decimal=".", rows=300)
    np.testing.assert_array_equal(pd.concat(parts)["a"], numbers)


def test_parquet_without_pyarrow_names_the_extra(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1" + bytes(50) + b"PAR1")
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from gcig.data.reading import open_table\n"
        f"open_table({str(tmp_path / 't.parquet')!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "InputError: Parquet files need pyarrow: pip install 'gcig[big]'" in done.stderr


@pytest.mark.slow
def test_half_a_million_rows_are_read_whole(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"n{j}": rng.integers(0, 99, 500_000) for j in range(6)})
    frame["sex"] = rng.choice(["Female", "Male"], len(frame))
    frame.to_csv(tmp_path / "t.csv", index=False)
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.csv"), frame)
