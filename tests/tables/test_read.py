import gzip
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcig._arguments import InputError
from gcig.tables.read import open_table
from support.tables_from_files import read_table


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
    file = open_table(write(newline.join(line.replace(" ", separator) for line in lines)))
    frame = file.read(file.names)
    assert file.csv.separator == separator
    assert frame["age"].tolist() == [30, 41, 50]
    assert frame["sex"].tolist() == ["F", "M", "F"]
    assert frame["note"].tolist()[2] == "c"
    assert file.notes == []


def test_one_column_needs_no_separator(write):
    assert read_table(write("age\n1\n2\n"))["age"].tolist() == [1, 2]


def test_line_ends_inside_quotes_belong_to_the_entry(write):
    frame = read_table(write('a,b\n"x\ny",1\n"z ""q""",2\n'))
    assert frame["a"].tolist() == ["x\ny", 'z "q"']


def test_columns_can_be_read_next_to_others_with_line_ends(write):
    path = write('a,b\n1,2\n"x\ny",z\n')
    assert open_table(path).read(["a"])["a"].tolist() == ["1", "x\ny"]


def test_every_column_that_is_read_is_doubted(write):
    file = open_table(write("a;b;c\n1.500;1.500;x\n7.250;2.500;y\n"))
    assert file.read(["c"])["c"].tolist() == ["x", "y"]
    for name in "ab":
        with pytest.raises(InputError, match=f"column '{name}'"):
            file.read([name])


def test_columns_are_chosen_and_put_in_order(write):
    path = write("a,b,c\n1,2,3\n")
    assert read_table(path, columns=["c", "a"]).to_dict("list") == {"c": [3], "a": [1]}
    with pytest.raises(InputError, match="has no column 'z'; it has 'a', 'b', 'c'"):
        read_table(path, columns=["a", "z"])


def test_the_decimal_mark_is_not_guessed(write):
    path = write("a;b\n1,234;x\n2,345;y\n")
    with pytest.raises(InputError, match="--decimal ,") as raised:
        read_table(path)
    assert raised.value.column == "a"
    assert read_table(path, columns=["b"])["b"].tolist() == ["x", "y"]  # the other column can be left out
    assert read_table(path, decimal=",")["a"].tolist() == [1.234, 2.345]
    assert read_table(path, kinds={"a": "number"})["a"].tolist() == [1234, 2345]
    assert read_table(path, kinds={"a": "category"})["a"].tolist() == ["1,234", "2,345"]


def test_separator_and_encoding_can_be_named(write):
    assert open_table(write("a;b\nc;d\n"), sep=",").names == ("a;b",)
    assert read_table(write("a\nä\n".encode("cp437")), encoding="cp437")["a"].tolist() == ["ä"]
    assert read_table(write("a\nä\n".encode("utf-16")), encoding="utf-16")["a"].tolist() == ["ä"]
    assert read_table(write("\ufeffa\nä\n"))["a"].tolist() == ["ä"]
    with pytest.raises(InputError) as raised:
        open_table(write("b\na\nä\n".encode("latin-1")))
    assert raised.value.argument == "encoding"
    assert "line 3" in raised.value.message
    with pytest.raises(InputError, match="NUL byte in line 3"):
        open_table(write(b"a\nabc\nd\0\n"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sep": ";;"}, "sep must be one ASCII character"),
        ({"decimal": "x"}, "decimal must be"),
        ({"encoding": "klingon"}, "encoding 'klingon' is unknown"),
        ({"encoding": "ascii"}, "encoding does not fit: line 2"),
    ],
)
def test_impossible_options_are_named(write, options, message):
    with pytest.raises(InputError, match=message):
        read_table(write("a\nä\n"), **options)


@pytest.mark.parametrize(
    "entries",
    [
        ["1,5", "2,25"],
        ["1.001,25", "1,5"],
        ["12", "1,500"],
        ["1 234", "12"],
        ["1'234.5", "2"],
        ["1\u202f234", "2"],
        ["1.000.000", "2"],
    ],
)
def test_a_column_of_numbers_in_another_notation_is_refused(write, entries):
    path = write("a,b\n" + "".join(f'"{entry}",x\n' for entry in entries))
    with pytest.raises(InputError, match=r"--numeric a if .* --categorical a") as raised:
        read_table(path)
    assert raised.value.column == "a"
    with pytest.raises(InputError):
        next(open_table(path).batches(["a"], rows=1))  # before the row that shows it is read
    assert read_table(path, kinds={"a": "category"})["a"].tolist() == entries


def test_digits_in_groups_are_read_if_requested(write):
    path = write('a,b\n"1,234",x\n"-12,345,678.5",y\n$1 200,z\n')
    assert read_table(path, kinds={"a": "number"})["a"].tolist() == [1234, -12345678.5, 1200]
    path = write("a;b\n1.234,5;x\n1.000;y\n")
    assert read_table(path, decimal=",", kinds={"a": "number"})["a"].tolist() == [1234.5, 1000]


@pytest.mark.parametrize(
    ("separator", "entries", "values"),
    [
        (",", ["7.250", "1.500"], [7.25, 1.5]),  # three decimals throughout
        (",", ["1500", "1.500"], [1500, 1.5]),  # thousands would be written 1.500
        (",", ["12", "1.5"], [12, 1.5]),
        (";", ["1.5", "1.500"], [1.5, 1.5]),
        (",", ["12", "1.500"], None),
        (";", ["7.250", "1.500"], None),
        (";", ["1500", "1.500"], None),
    ],
)
def test_a_mark_that_may_separate_thousands_has_to_be_named(write, separator, entries, values):
    path = write(f"a{separator}b\n" + "".join(f"{entry}{separator}x\n" for entry in entries))
    if values is None:
        for kinds in ({}, {"a": "number"}):
            with pytest.raises(InputError, match="thousands or a fraction") as raised:
                read_table(path, kinds=kinds)
            assert raised.value.argument == "decimal"
        values = [float(entry) for entry in entries]
        assert read_table(path, decimal=".")["a"].tolist() == values
    else:
        assert read_table(path)["a"].tolist() == values


def test_text_with_commas_is_text(write):
    assert read_table(write("a;b\n1,5;2\nabout 2,5;3\n"))["a"].tolist() == ["1,5", "about 2,5"]


@pytest.mark.parametrize("kind", ["number", "boolean"])
def test_text_in_a_column_that_was_a_number_names_the_row(write, tmp_path, kind):
    model = SimpleNamespace(encoder_=SimpleNamespace(feature_names_in_=("a",), kinds_=(kind,)))
    entries = ["1", "0", "NA", "", "1"] * 20
    path = write("a,b\n" + "".join(f"{entry},x\n" for entry in entries))
    assert pd.concat(open_table(path, model=model).batches(["a"], rows=7))["a"].isna().sum() == 40
    for text in ("unwell", "7,5" if kind == "number" else "maybe"):
        frame = pd.DataFrame({"a": [*entries, text, "1"], "b": "x"})
        frame.to_csv(path, index=False)
        frame.to_parquet(tmp_path / "t.parquet")
        for file in (path, tmp_path / "t.parquet"):
            with pytest.raises(InputError, match="in row 101 ") as raised:
                list(open_table(file, model=model).batches(["a"], rows=7))
            assert raised.value.column == "a"
            assert text not in str(raised.value)


@pytest.mark.parametrize("token", ["NA", "nan", "NULL", "None", "?", "#N/A"])
def test_missing_tokens_are_missing_only_among_numbers(write, token):
    file = open_table(write(f"n,t,u\n1.5,a,{token}\n{token},{token},{token}\n,,\n"))
    frame = file.read(file.names)
    np.testing.assert_array_equal(frame["n"], [1.5, np.nan, np.nan])
    assert frame["t"].tolist()[:2] == ["a", token]
    assert frame["u"].tolist()[:2] == [token, token]
    assert frame["t"].isna().tolist() == frame["u"].isna().tolist() == [False, False, True]
    assert file.notes == ["column 'n': 1 entries such as NA or ? read as missing"]


@pytest.mark.parametrize("largest", [2**53 + 1, 2**63 - 1, 123456789012345678901])
def test_digits_that_float64_would_lose_are_refused(write, largest):
    path = write(f"id,n\n{largest},1\n{largest - 1},2\nNA,3\n")
    with pytest.raises(InputError, match=r"integers beyond 2\*\*53.*--categorical id") as raised:
        read_table(path)
    assert raised.value.column == "id"
    assert read_table(path, kinds={"id": "category"})["id"].nunique() == 3
    assert open_table(path).read(["n"], unchanged=["id"])["id"].tolist()[0] == str(largest)


def test_uniform_spaces_are_removed_with_a_note(write):
    file = open_table(write("age, sex\n 39, F\n 40, M\n 41, \n"))
    frame = file.read(file.names)
    assert list(frame.columns) == ["age", "sex"]
    assert frame["sex"].tolist()[:2] == ["F", "M"]
    assert frame["sex"].isna().tolist() == [False, False, True]
    assert frame["age"].tolist() == [39, 40, 41]
    assert file.notes == ["column 'sex': spaces around 3 entries removed"]


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
            r"row 1 \(below the header\): 3 fields, but .* The header lacks the name of one column",
        ),
        (b'a,b\n1,"2\n3,4\n', "Is a quote left open"),
        (b'a,b\n1,"2\n3,4', "Is a quote left open"),
        (b'a,b\n"1,2\n3,4\n', "Is a quote left open"),
        (b"a,b\n1,2\n3\n\n4,5\n", r"row 2 .*: 1 field, but the header has 2. This affects 1 of 3 rows"),
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
    file = open_table(tmp_path / "t.csv")
    pd.testing.assert_frame_equal(file.read(file.table_names), frame)
    assert file.notes == ["the saved pandas index, row numbers without a name, was dropped"]


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
    path = write(MESSY)
    if form != "csv":
        frame = pd.read_csv(path, sep=";", dtype={"code": str, "amount": str})
        frame = frame.assign(amount=frame["amount"].str.replace(",", "."))
        path = tmp_path / f"table.{form}"
        getattr(frame, f"to_{form}")(path)
    file = open_table(path, kinds=KINDS, decimal="," if form == "csv" else None)
    assert any("1 entries that are not numbers" in note for note in file.notes)
    whole = file.read(["code", "when", "amount"])
    batched = pd.concat(file.batches(["code", "when", "amount"], rows=2), ignore_index=True)
    for frame in (whole, batched):
        assert frame["code"].tolist()[:2] == ["007", "010"]
        assert frame["code"].isna().tolist() == [False, False, True]
        assert frame["when"].dt.strftime("%m-%d").tolist()[:2] == ["02-01", "02-13"]
        np.testing.assert_array_equal(frame["amount"].to_numpy(float), [1.5, np.nan, 2.25])


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ({"when": "date mdy"}, "'when' .* has 1 entries that are not dates written as month/day/year"),
        ({"when": "date"}, "'when' .* has 2 entries that are not dates written as YYYY-MM-DD"),
        ({"when": "number"}, "'when' .* has 2 entries of 3 that are not numbers"),
        ({"when": "text"}, "kinds must be one of"),
        ({"who": "date"}, "has no column 'who'"),
    ],
)
def test_requests_that_do_not_fit_are_refused(write, kinds, message):
    with pytest.raises(InputError, match=message):
        read_table(write(MESSY), decimal=",", kinds=kinds)


# --- gzip and Feather -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["table.csv.gz", "table.csv"])  # the content decides, not the name
def test_a_gzip_file_is_read_like_its_content(write, name):
    content = "id;income;city\n1;1,5;Köln\n2;2,5;Bonn\n3;;Köln\n".encode("cp1252")
    how = {"encoding": "cp1252", "decimal": ","}
    plain = open_table(write(content, "plain.csv"), **how)
    packed = open_table(write(gzip.compress(content), name), **how)
    assert packed.format == "CSV (gzip)"
    assert (packed.n_rows, packed.names) == (3, ("id", "income", "city"))
    pd.testing.assert_frame_equal(packed.read(packed.names), plain.read(plain.names))
    parts = (file.parts(["income", "city"], ["id"], rows=2) for file in (packed, plain))
    for one, other in zip(*parts, strict=True):
        pd.testing.assert_frame_equal(one[0], other[0])
        pd.testing.assert_frame_equal(one[1], other[1])


def test_a_plain_file_named_gz_is_read_and_a_torn_gzip_file_is_refused(write):
    assert read_table(write("a,b\n1,2\n", "table.csv.gz"))["b"].tolist() == [2]
    with pytest.raises(InputError, match="damaged gzip file"):
        read_table(write(gzip.compress(b"a,b\n" + bytes(range(48, 122)) * 99)[:-20], "torn.csv.gz"))


@pytest.mark.parametrize("compression", ["lz4", "uncompressed"])
def test_feather_files_are_read_whole_and_in_batches(tmp_path, compression):
    frame = pd.DataFrame({"n": np.arange(10.0), "t": list("abcdefghij"), "c": pd.Categorical(list("xy") * 5)})
    frame.to_feather(tmp_path / "table.feather", compression=compression, chunksize=4)
    file = open_table(tmp_path / "table.feather")
    assert (file.format, file.names, file.n_rows) == ("Feather", ("n", "t", "c"), 10)
    assert file.read(["t", "n"]).to_dict("list") == frame[["t", "n"]].to_dict("list")
    batches = list(file.batches(["c", "n"], rows=3))
    assert max(map(len, batches)) == 3
    joined = pd.concat(batches, ignore_index=True)
    assert joined.to_dict("list") == frame[["c", "n"]].to_dict("list")


def test_a_damaged_feather_file_is_named(write):
    with pytest.raises(InputError, match="damaged Feather file"):
        read_table(write(b"ARROW1\0\0" + bytes(50), "table.feather"))
    with pytest.raises(InputError, match="not a Feather file, although its name says so"):
        read_table(write("a\n1\n", "table.feather"))
    with pytest.raises(InputError, match="version 1"):
        read_table(write(b"FEA1" + bytes(50), "table.feather"))


# --- Parquet --------------------------------------------------------------------------------------------


def test_parquet_is_known_by_its_first_bytes(tmp_path):
    frame = pd.DataFrame({"a": [1, 2], "b": ["NA", None]}, index=[7, 8])
    frame.to_parquet(tmp_path / "table.dat")
    file = open_table(tmp_path / "table.dat")
    frame = read_table(tmp_path / "table.dat")
    assert frame["a"].tolist() == [1, 2]
    assert frame["b"].isna().tolist() == [False, True]
    assert list(frame.columns) == ["a", "b"]
    assert file.notes == ["the saved pandas index, row numbers without a name, was dropped"]
    assert (file.csv, file.format) == (None, "Parquet")
    assert list(read_table(tmp_path / "table.dat", columns=["b"]).columns) == ["b"]


def test_a_named_index_is_a_column(tmp_path):
    pd.DataFrame({"a": [1]}, index=pd.Index([5], name="id")).to_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").to_dict("list") == {"a": [1], "id": [5]}


def test_broken_parquet_is_named(write, tmp_path):
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
    parts = open_table(path).batches(["a"], rows=300)
    np.testing.assert_array_equal(pd.concat(parts)["a"], numbers)


def test_numbers_take_four_bytes_where_training_cannot_notice(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"n": rng.normal(3000, 800, 500), "far": 1e9 + rng.normal(size=500), "k": rng.integers(0, 99, 500)}
    )
    frame.to_parquet(tmp_path / "t.parquet")
    found = open_table(tmp_path / "t.parquet").read(["n", "far", "k"], compact=["n", "far", "k"])
    assert found.dtypes.tolist() == [np.float32, np.float64, np.int32]
    np.testing.assert_allclose(found["n"], frame["n"], rtol=1e-6)
    np.testing.assert_array_equal(found[["far", "k"]], frame[["far", "k"]])


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_chosen_rows_are_read(tmp_path, form):
    frame = pd.DataFrame({"a": range(1000), "t": [f"r{i}" for i in range(1000)]})
    path = tmp_path / f"t.{form}"
    getattr(frame, f"to_{form}")(path, index=False)
    rows = np.array([0, 3, 500, 999])
    found = open_table(path).read(["a"], unchanged=["t"], rows=rows)
    assert found["a"].tolist() == rows.tolist()
    assert found["t"].tolist() == [f"r{i}" for i in rows]


@pytest.mark.slow
def test_half_a_million_rows_are_read_whole(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"n{j}": rng.integers(0, 99, 500_000) for j in range(6)})
    frame["sex"] = rng.choice(["Female", "Male"], len(frame))
    frame.to_csv(tmp_path / "t.csv", index=False)
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.csv"), frame)
