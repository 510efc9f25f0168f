"""Common faults of input, one by one: a clear message or a correct result."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from gcig._validation import (
    InputError,
    InputWarning,
    check_cells,
    check_features,
    check_groups,
    check_labels,
    check_lengths,
    match_columns,
    warn_if_sensitive_in,
)
from gcig.data.encoding import TableEncoder
from gcig.data.reading import open_table, read_table
from gcig.data.splitting import k_folds


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "table.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_fault_01_infinity_in_X(bad):
    frame = pd.DataFrame({"age": [1.0, 2.0], "income": [bad, 1.0]})
    with pytest.raises(
        InputError, match=r"X contains infinity \(inf\) in column 'income'\. .* NaN is imputed"
    ):
        check_features(frame)
    encoded = TableEncoder().fit_transform(frame.replace(bad, np.nan).assign(income=[np.nan, 1.0]))
    assert np.isfinite(encoded).all()


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_fault_02_missing_label_or_group(missing):
    with pytest.raises(InputError, match="y contains NaN or None in 1 of 3 rows: drop those rows"):
        check_labels([0, 1, missing])
    with pytest.raises(InputError, match=r"contains NaN or None in 1 of 3 rows: .* 'unknown'"):
        check_groups(["F", "M", missing], n_rows=3)


def test_fault_03_an_empty_table(write):
    with pytest.raises(InputError, match="X is empty"):
        check_features(pd.DataFrame({"a": []}))
    with pytest.raises(InputError, match="is empty"):
        read_table(write(""))
    with pytest.raises(InputError, match="a header line but no rows"):
        read_table(write("a,b\n"))


def test_fault_04_one_row_or_one_feature():
    with pytest.warns(InputWarning, match="single value in training"):
        assert TableEncoder().fit_transform([[3.0, "a"]]).tolist() == [[0, 1]]
    with pytest.raises(InputError, match="only one class"):
        check_labels([1])
    np.testing.assert_allclose(TableEncoder().fit_transform([[1.0], [3.0]]), [[-1], [1]])


def test_fault_05_one_class():
    with pytest.raises(InputError, match=r"y has only one class \('yes'\): a classifier needs rows of two"):
        check_labels(["yes", "yes"])


@pytest.mark.parametrize("y", [[-1, 1], ["bad", "good"], [False, True], [0.0, 1.0]])
def test_fault_06_other_names_for_two_classes(y):
    labels = check_labels(y)
    assert labels.codes.tolist() == [0, 1]
    assert labels.classes == tuple(y)


def test_fault_06_more_than_two_classes():
    with pytest.raises(InputError, match=r"3 classes \(0, 1, 2\)\. Only binary classification is supported"):
        check_labels([0, 1, 2])
    with pytest.raises(InputError, match="Unknown label type: continuous"):
        check_labels([0.1, 0.2, 0.3])


def test_fault_07_one_group():
    with pytest.raises(InputError, match=r"one group only \('F'\): fairness compares at least two"):
        check_groups(["F", "F"], n_rows=2)


def test_fault_08_an_empty_cell():
    y, groups = ["no", "no", "no", "no", "yes", "yes"], ["F", "F", "M", "M", "M", "M"]
    labels, checked = check_labels(y), check_groups(groups, n_rows=6)
    with pytest.raises(InputError, match=r"fewer in \(label 'yes', group 'F'\)\. Merge small groups"):
        check_cells(labels, checked)
    with pytest.raises(InputError, match=r"Too few rows for 5 folds.*\(label no, group F\): 2"):
        k_folds(y, groups)


def test_fault_09_a_cell_of_one_row():
    labels = check_labels([0, 0, 0, 1, 1, 1])
    groups = check_groups(["F", "F", "M", "F", "F", "M"], n_rows=6)
    with pytest.warns(InputWarning, match=r"One row only in \(label 0, group 'M'\).*one person's record"):
        assert check_cells(labels, groups).tolist() == [[2, 1], [2, 1]]


def test_fault_10_an_identifier_as_group():
    with pytest.raises(InputError, match=r"has 500 groups \(at most 50\): it is probably an identifier"):
        check_groups(np.arange(500), n_rows=500)


def test_fault_11_a_constant_column():
    with pytest.warns(InputWarning, match="single value in training .*'country'"):
        encoded = TableEncoder().fit_transform({"country": [7, 7, 7], "age": [1, 2, 3]})
    assert encoded[:, 0].tolist() == [0, 0, 0]
    assert np.isfinite(encoded).all()


def test_fault_12_a_category_or_group_never_seen():
    encoder = TableEncoder().fit({"job": ["a", "b"]})
    with pytest.warns(InputWarning, match=r"Categories that training did not see.*'job' \(1 rows\)"):
        assert encoder.transform({"job": ["z", "b"]}).tolist() == [[0, 0], [0, 1]]
    with pytest.raises(InputError, match="groups that were not in training: 'X'; known are 'F', 'M'"):
        check_groups(["F", "X"], n_rows=2, names=("F", "M"))


def test_fault_13_columns_missing_reordered_or_duplicated():
    encoder = TableEncoder().fit({"a": [0, 2], "b": [10, 30]})
    assert encoder.transform({"b": [30], "a": [0]}).tolist() == [[-1, 1]]
    with pytest.raises(InputError, match="yet now missing:\n- b\n"):
        encoder.transform({"a": [1]})
    with pytest.raises(InputError, match="unseen at fit time:\n- c\n"):
        encoder.transform({"a": [1], "b": [1], "c": [1]})
    with pytest.raises(InputError, match="X has 3 features, but the model is expecting 2 features"):
        match_columns(check_features(np.ones((1, 3))), encoder.feature_names_in_)
    with pytest.raises(InputError, match="several columns called 'a'"):
        check_features(pd.DataFrame([[1, 2]], columns=["a", "a"]))


@pytest.mark.parametrize(("row", "width"), [("4,5", 2), ("4,5,6,7", 4)])
def test_fault_14_a_ragged_row(write, row, width):
    path = write(f"a,b,c\n1,2,3\n{row}\n7,8,9\n")
    with pytest.raises(InputError, match=f"line 3: {width} fields, but the header has 3.* 1 of 3 rows"):
        read_table(path)


def test_fault_14_rows_with_a_name_that_the_header_lacks(write):
    with pytest.raises(
        InputError, match=r"line 2: 3 fields, but the header has 2.* lacks the name of one column"
    ):
        read_table(write("a,b\nr1,1,2\nr2,3,4\n"))


def test_fault_15_semicolons_and_decimal_commas(write):
    reading = open_table(write("age;rate\n30;1,5\n40;2,25\n")).read()
    assert (reading.written.separator, reading.written.decimal) == (";", ",")
    assert reading.frame.to_dict("list") == {"age": [30, 40], "rate": [1.5, 2.25]}


def test_fault_16_a_group_called_NA_or_None(write):
    frame = read_table(write("race,income\nNA,1\nNone,NA\nwhite,3\n"))
    assert check_groups(frame["race"], n_rows=3).names == ("NA", "None", "white")
    np.testing.assert_array_equal(frame["income"], [1, np.nan, 3])


def test_fault_17_the_same_value_with_a_space(write):
    with pytest.raises(InputError, match="holds both ' Male' and 'Male', which differ only by spaces"):
        check_groups([" Male", "Male", "Female"], n_rows=3)
    with pytest.warns(InputWarning, match="Column 'sex' .* with and without spaces around them: 1 entries"):
        frame = read_table(write("sex,age\nMale,1\n Male,2\nFemale,3\n"))
    assert check_groups(frame["sex"], n_rows=3).names == ("Female", "Male")


@pytest.mark.parametrize(
    ("encoding", "found"),
    [("utf-8", "utf-8"), ("utf-8-sig", "utf-8-sig"), ("latin-1", "latin-1"), ("utf-16", "utf-16")],
)
def test_fault_18_encodings(write, encoding, found):
    reading = open_table(write("città,n\nForlì,1\n".encode(encoding))).read()
    assert reading.encoding == found
    assert reading.frame.to_dict("list") == {"città": ["Forlì"], "n": [1]}
    assert reading.notes == (
        ("line 1 is not UTF-8: read as latin-1; if letters look wrong, set the encoding",)
        if encoding == "latin-1"
        else ()
    )


def test_fault_18_windows_signs_and_nul_bytes(write):
    assert read_table(write("price\n5 €\n".encode("cp1252")))["price"].tolist() == ["5 €"]
    assert open_table(write(b"a\n\x81\xe9\n")).read().encoding == "latin-1"
    with pytest.raises(InputError, match="NUL byte in line 2"):
        read_table(write(b"a,b\n1,\x002\n"))


def test_fault_19_unusual_arrays(tmp_path):
    values = np.array([[1.0, 2.0], [3.0, 5.0]])
    expected = TableEncoder().fit_transform(values)
    stored = np.memmap(tmp_path / "x.bin", np.float64, "w+", shape=values.shape)
    stored[:] = values
    stored.flush()
    read_only = np.memmap(tmp_path / "x.bin", np.float64, "r", shape=values.shape)
    for same in (values.astype(object), values.astype(np.float16), values.astype(np.longdouble), read_only):
        np.testing.assert_array_equal(TableEncoder().fit_transform(same), expected)
    with pytest.raises(InputError, match="Complex data not supported"):
        check_features(values + 1j)
    np.testing.assert_array_equal(TableEncoder().fit_transform(sparse.csr_array(values)), expected)
    with pytest.raises(InputError, match="holds entries of type list"):
        check_features(pd.DataFrame({"a": [[1], [2]]}))


@pytest.mark.parametrize(
    "column",
    [
        [2**53 + 1, 0],
        [-(2**53) - 1, 0],
        [10**30, 0],
        np.array([2**63, 0], dtype=np.uint64),
        np.array([-(2**63), 0]),
        pd.array([2**60, None], dtype="Int64"),
    ],
)
def test_fault_19_huge_integers(column):
    with pytest.raises(InputError, match=r"Column 'id' of X holds integers beyond 2\*\*53"):
        check_features({"id": column})
    assert check_features({"id": [2**53, 0]})["id"].tolist() == [2**53, 0]


def test_fault_20_different_lengths():
    with pytest.raises(
        InputError, match="inconsistent numbers of samples: X has 2, y has 3, groups has 2 rows"
    ):
        check_lengths(X=np.ones((2, 2)), y=[0, 1, 0], groups=["a", "b"])
    with pytest.raises(InputError, match="X has 2 rows, y has 3"):
        check_labels([0, 1, 0], n_rows=2)


@pytest.mark.parametrize("index", [[1, 0], [5, 6]])
def test_fault_20_indexes_that_disagree(index):
    X, y = pd.DataFrame({"a": [1, 2]}), pd.Series([0, 1], index=index)
    with pytest.raises(
        InputError, match=r"indexes of X and y disagree.*reset_index\(drop=True\).*y\.loc\[X\.index\]"
    ):
        check_lengths(X=X, y=y)


def test_fault_20_the_sensitive_column_left_in_X():
    sex = pd.Series(["F", "M", "F", "M", "M"], name="sex")
    frame = check_features({"gender": sex.map({"F": 1, "M": 2}), "age": [1, 2, 3, 4, 5]})
    with pytest.warns(
        InputWarning, match=r"X has columns that reveal the protected attribute \(sex\): 'gender'"
    ):
        warn_if_sensitive_in(frame, check_groups(sex, n_rows=5))
