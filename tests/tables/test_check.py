import pickle
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from gcig._arguments import InputError, InputWarning
from gcig.tables.check import (
    check_cells,
    check_features,
    check_groups,
    check_labels,
    check_sample_weight,
    match_columns,
    warn_if_sensitive_in,
)
from gcig.tables.frames import check_lengths, level_codes

COLUMNS = {"age": [30.0, None, 41.0], "job": ["clerk", "nurse", None], "member": [True, False, True]}


class Wrapped:
    """Neither a frame nor an array, but NumPy can read it."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype=dtype)


# --- features -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame(COLUMNS),
        pd.DataFrame(COLUMNS).convert_dtypes(),
        pd.DataFrame(COLUMNS).astype({"job": "category"}),
        pl.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS, schema_overrides={"job": pl.Categorical}),
        pa.table(COLUMNS),
        pa.table(COLUMNS).to_pandas(types_mapper=pd.ArrowDtype),
        COLUMNS,
        {
            "age": pl.Series(COLUMNS["age"]),
            "job": pd.Series(COLUMNS["job"]),
            "member": np.array(COLUMNS["member"]),
        },
    ],
    ids=[
        "pandas",
        "nullable",
        "categorical",
        "polars",
        "polars-categorical",
        "arrow",
        "arrow-types",
        "dict",
        "mixed",
    ],
)
def test_every_kind_of_table_gives_the_same_columns(table):
    frame = check_features(table)
    assert list(frame.columns) == ["age", "job", "member"]
    np.testing.assert_array_equal(frame["age"].to_numpy(dtype=float), [30.0, np.nan, 41.0])
    assert frame["member"].dtype == bool
    codes, levels = level_codes(frame["job"])
    assert levels == ("clerk", "nurse")
    assert codes.tolist() == [0, 1, -1]


@pytest.mark.parametrize(
    "table", [[[1, "a"], [2, "b"]], [(1, "a"), (2, "b")], np.array([[1, "a"], [2, "b"]], object)]
)
def test_rows_without_names_get_names_and_keep_their_types(table):
    frame = check_features(table)
    assert list(frame.columns) == ["x0", "x1"]
    assert frame["x0"].dtype == np.int64
    assert frame["x1"].tolist() == ["a", "b"]


def test_anything_that_numpy_can_read_is_a_table():
    assert check_features(Wrapped([[1.0, 2.0]])).shape == (1, 2)


def test_names_that_are_not_text_become_text():
    assert list(check_features(pd.DataFrame([[1, 2]], columns=[7, "b"])).columns) == ["7", "b"]


@pytest.mark.parametrize(
    ("values", "expected", "dtype"),
    [
        ([1, 2], [1, 2], "int64"),
        ([1, None], [1.0, np.nan], "float64"),
        ([1, 2.5], [1.0, 2.5], "float64"),
        ([Decimal("1.5"), None], [1.5, np.nan], "float64"),
        ([True, None], [1.0, np.nan], "boolean"),
        ([True, False], [True, False], "bool"),
        ([True, 2], [1, 2], "int64"),
        ([np.float32(0.5), pd.NA], [0.5, np.nan], "float64"),
        ([None, None], [np.nan, np.nan], "float64"),
    ],
)
def test_object_columns_of_numbers_are_numbers(values, expected, dtype):
    column = check_features(pd.DataFrame({"a": pd.Series(values, dtype=object)}))["a"]
    assert column.dtype == dtype
    np.testing.assert_array_equal(column.to_numpy(np.float64), np.array(expected, np.float64))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.zeros((0, 3)), r"0 sample\(s\) \(shape=\(0, 3\)\) while a minimum of 1 is required"),
        (np.zeros((12, 0)), r"0 feature\(s\) \(shape=\(12, 0\)\) while a minimum of 1 is required\."),
        ({}, r"0 sample\(s\)"),
        (np.zeros(3), "Reshape your data"),
        (np.zeros((2, 2, 2)), r"expected 2D data, got 3D data \(ndarray of shape \(2, 2, 2\)\)"),
        (3.5, "expected 2D data, got 0D"),
        ("adult.csv", "not the name of a column"),
        ([1, 2, 3], "Reshape your data"),
        (pd.Series([1, 2]), r"X\.iloc\[\[0\]\] is one row"),
        ([[1, 2], [3]], "rows of different lengths, from 1 to 2 entries"),
        ({"a": [1, 2], "b": [1]}, r"inconsistent numbers of samples: X\['a'\] has 2, X\['b'\] has 1"),
        ({"a": [1], "b": 2}, "has no rows"),
        (torch.ones(2, 2, requires_grad=True), "X of type Tensor cannot be converted into an array"),
        (sparse.csr_array((10**6, 10**6)), r"sparse matrix of shape .* takes 7451 GiB"),
        ([{"a": 1}, {"b": 1}], "rows with different columns: 1 of 2 differ"),
        (pl.LazyFrame({"a": [1]}), r"Call \.collect\(\) first"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "several columns called 'a'"),
        (pd.DataFrame([[1, 2]], columns=["1", 1]), "several columns called '1'"),
        (pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), "several columns of the same name"),
        ({"when": pd.to_timedelta(["1 day"])}, "dates or times"),
        ({"a": pd.Series([1, "1"], dtype=object)}, "Column 'a' of X mixes numbers and text"),
        ({"a": pd.Categorical([1, "1"])}, "Column 'a' of X mixes numbers and text"),
        (np.array([[b"a"]]), "pass numbers or text"),
        (np.array([[1j]], dtype=object), "Complex data not supported"),
        (pl.DataFrame({"a": [{"x": 1}]}), "Column 'a' of X holds entries of type Struct"),
        (pl.DataFrame({"a": [[1], [2]]}), "Column 'a' of X holds entries of type List"),
        (pl.DataFrame({"a": [2**60, None]}), "integers beyond"),
        (pd.DataFrame({"a": [{1}, {2}]}), "Column 'a' of X holds entries of type set"),
    ],
)
def test_unusable_tables_are_named(table, message):
    with pytest.raises(InputError, match=message):
        check_features(table)


def test_a_nested_entry_is_also_a_type_error():
    with pytest.raises(TypeError, match=r"argument must be .* string.* number"):
        check_features(np.array([[{"foo": "bar"}], [1.0]], dtype=object))


def test_messages_do_not_repeat_entries():
    secret = "Jane Roe"
    with pytest.raises(InputError) as caught:
        check_features({"name": pd.Series([secret, 3], dtype=object)})
    assert secret not in str(caught.value)


# --- columns at prediction ------------------------------------------------------------------------------


def test_reordered_columns_are_put_in_order():
    frame = check_features(pd.DataFrame({"b": [1], "a": [2]}))
    assert match_columns(frame, ("a", "b")).to_dict("list") == {"a": [2], "b": [1]}


def test_other_names_are_listed():
    frame = check_features(pd.DataFrame({"a": [1], "z": [2]}))
    with pytest.raises(InputError, match="should match those that were passed during fit") as caught:
        match_columns(frame, ("a", "b"))
    assert "unseen at fit time:\n- z\n" in str(caught.value)
    assert "yet now missing:\n- b\n" in str(caught.value)


def test_arrays_are_matched_by_position():
    frame = check_features(np.ones((2, 3)))
    with pytest.raises(InputError, match="X has 3 features, but Model is expecting 4 features as input"):
        match_columns(frame, ("x0", "x1", "x2", "x3"), model="Model")
    with pytest.warns(InputWarning, match="does not have valid feature names"):
        assert list(match_columns(frame, ("a", "b", "c")).columns) == ["a", "b", "c"]


# --- labels ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        ([0, 1, 1], (0, 1)),
        ([-1, 1, 1], (-1, 1)),
        ([False, True, True], (False, True)),
        (["no", "yes", "yes"], ("no", "yes")),
        (np.array([0.0, 1.0, 1.0], dtype=np.float16), (0.0, 1.0)),
        (np.array(["no", "yes", "yes"]), ("no", "yes")),
        (np.array([0, 1, 1], dtype=object), (0, 1)),
        (pd.Series([0, 1, 1], dtype="Int64"), (0, 1)),
        (pd.Categorical(["no", "yes", "yes"], categories=["yes", "no", "maybe"]), ("no", "yes")),
        (pl.Series(["no", "yes", "yes"]), ("no", "yes")),
        (pa.chunked_array([["no", "yes"], ["yes"]]), ("no", "yes")),
    ],
)
def test_two_values_are_two_classes_and_the_second_is_positive(y, classes):
    labels = check_labels(y, n_rows=3)
    assert labels.codes.dtype == np.int64
    assert labels.codes.tolist() == [0, 1, 1]
    assert labels.classes == classes
    assert [type(c) for c in labels.classes] == [type(c) for c in classes]


@pytest.mark.parametrize(
    "y", [np.array([[0], [1]]), pd.DataFrame({"y": [0, 1]}), pl.DataFrame({"y": [0, 1]})]
)
def test_a_column_vector_is_flattened_with_the_given_warning(y):
    with pytest.warns(FutureWarning, match="A column-vector y was passed when a 1d array was expected"):
        assert check_labels(y, warning=FutureWarning).codes.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed, but the target y is None"),
        ([], r"0 sample\(s\)"),
        (np.zeros((2, 2)), "y should be a 1d array, got an array of shape"),
        ([0.3, 0.7], "Unknown label type: continuous"),
        ([0, np.inf], "contains infinity"),
        (np.array([0, 1j]), "Complex data not supported"),
        (range(100), "y has 100 classes. Only binary"),
        (["yes", " yes"], "y holds both ' yes' and 'yes'"),
        ([[0], [1, 2]], "rows of different lengths"),
    ],
)
def test_unusable_labels_are_named(y, message):
    with pytest.raises(InputError, match=message):
        check_labels(y)


def test_labels_of_a_trained_model_may_be_of_one_class_but_not_new():
    assert check_labels([1.0, 1.0], classes=(0, 1)).codes.tolist() == [1, 1]
    with pytest.raises(
        InputError, match=r"1 labels that were not in training \('maybe'\).*'no', 'yes', of type str"
    ):
        check_labels(["maybe", "no"], classes=("no", "yes"))


# --- groups ---------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["a", "b", "NA", "None", "ä"]), min_size=2, max_size=30))
def test_codes_point_back_to_the_values(values):
    if len(set(values)) == 1:
        with pytest.raises(InputError, match="one group only"):
            check_groups(values, n_rows=len(values))
        return
    groups = check_groups(values, n_rows=len(values))
    assert [groups.names[code] for code in groups.codes] == values
    assert list(groups.names) == sorted(groups.names)


def test_several_columns_are_crossed():
    frame = pd.DataFrame({"sex": ["F", "M", "F", "M"], "race": ["x", "x", "y", "x"]})
    groups = check_groups(frame, n_rows=4)
    assert groups.names == ("sex=F & race=x", "sex=F & race=y", "sex=M & race=x")
    assert groups.codes.tolist() == [0, 2, 1, 2]
    assert groups.attribute == "sex & race"
    assert check_groups(frame.to_numpy(), n_rows=4).names[0] == "group0=F & group1=x"


def test_numbers_are_sorted_as_numbers_and_named_alike_as_integers_and_floats():
    assert check_groups([10, 9, 10], n_rows=3).names == ("9", "10")
    assert check_groups(np.array([0.0, 1.0]), n_rows=2, names=("0", "1")).codes.tolist() == [0, 1]


def test_the_attribute_is_the_name_of_the_column():
    assert check_groups(pd.Series(["a", "b"], name="sex"), n_rows=2).attribute == "sex"
    assert check_groups(pl.Series("sex", ["a", "b"]), n_rows=2).attribute == "sex"
    assert check_groups(["a", "b"], n_rows=2).attribute == "group"


def test_groups_of_training_keep_their_codes():
    groups = check_groups(["b", "b"], n_rows=2, names=("a", "b", "c"))
    assert groups.codes.tolist() == [1, 1]
    assert groups.names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "sensitive_features is None"),
        ("sex", "not the name of a column"),
        (pd.DataFrame(index=range(4)), "has no columns"),
        (["a", "b"], "X has 4 rows, sensitive_features has 2"),
        ([0.5, np.inf, 1, 2], "infinity"),
        (
            {"sex": ["F", "M"] * 2, "id": [1, 2, 3, None]},
            "Column 'id' of sensitive_features contains NaN or None in 1 of 4 rows",
        ),
    ],
)
def test_unusable_groups_are_named(values, message):
    with pytest.raises(InputError, match=message):
        check_groups(values, n_rows=4)


def test_many_crossed_groups_are_an_error_too():
    frame = pd.DataFrame({"a": np.arange(400) % 20, "b": np.arange(400) // 20})
    with pytest.raises(InputError, match="400 groups"):
        check_groups(frame, n_rows=400)


# --- cells, weights, lengths ----------------------------------------------------------------------------


def test_cells_are_counted():
    labels = check_labels([0, 0, 0, 1, 1, 1, 1, 0, 0])
    groups = check_groups(list("aaabbaabb"), n_rows=9)
    assert check_cells(labels, groups, minimum=2).tolist() == [[3, 2], [2, 2]]
    with pytest.raises(InputError, match=r"at least 3 rows.*\(label 0, group 'b'\), \(label 1, group 'a'\)"):
        check_cells(labels, groups, minimum=3)


def test_weights_are_copied_as_floats():
    weight = np.array([1, 0, 2])
    checked = check_sample_weight(weight, 3)
    assert checked is not None
    assert checked.dtype == np.float64
    checked[0] = 7
    assert weight[0] == 1
    assert check_sample_weight(None, 3) is None


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1, 2], r"one number per row \(3,\), got shape \(2,\)"),
        (np.ones((3, 1)), r"got shape \(3, 1\)"),
        (["a", "b", "c"], "one number per row"),
        ([1, np.nan, 1], "finite"),
        ([1, -1, 1], "not negative"),
        ([0, 0, 0], "sample_weight .* zero"),
        ([0, 1, 0], "only one class is left"),
    ],
)
def test_unusable_weights_are_named(weight, message):
    with pytest.raises(InputError, match=message):
        check_sample_weight(weight, 3, labels=check_labels([0, 1, 0]))


def test_any_input_with_rows_has_a_length():
    inputs = {
        "X": {"a": [1, 2]},
        "y": pl.Series([0, 1]),
        "groups": pa.table({"a": [1, 2]}),
        "w": Wrapped([1, 2]),
    }
    assert check_lengths(**inputs, nothing=None) == 2
    assert check_lengths() == 0


def test_a_sparse_matrix_has_rows():
    assert check_lengths(X=sparse.dok_array((2, 3)), y=[0, 1]) == 2


def test_equal_indexes_agree_and_arrays_have_none():
    X, y = pd.DataFrame({"a": [1, 2]}, index=[5, 3]), pd.Series([0, 1], index=[5, 3])
    assert check_lengths(X=X, y=y, groups=np.array([0, 1])) == 2


# --- the sensitive column in X --------------------------------------------------------------------------


def test_a_column_that_follows_from_the_group_is_named_and_others_are_not():
    rng = np.random.default_rng(0)
    race = rng.choice(["x", "y", "z"], 3000)
    frame = pd.DataFrame(
        {
            "code": pd.Series(race).map({"x": 3, "y": 1, "z": 2}),
            "is_x": race == "x",
            "age": rng.normal(size=3000),
        }
    )
    frame["constant"] = 1
    frame["late"] = np.where(np.arange(3000) < 2999, frame["code"], 9)  # differs in the last row alone
    with pytest.warns(
        InputWarning, match=r"X has columns that reveal the protected attribute \(race\): 'code', 'is_x'"
    ):
        warn_if_sensitive_in(frame, check_groups(pd.Series(race, name="race"), n_rows=3000))


def test_no_warning_without_such_a_column():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = pd.DataFrame({"a": [1, 2, 3, 4], "s": ["p", "q", "q", "p"]})
        assert warn_if_sensitive_in(frame, check_groups(list("ffmm"), n_rows=4)) is None


# --- messages with fields -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "is wrong."),
        ({"argument": "y"}, "y is wrong."),
        ({"column": "age"}, "Column 'age' is wrong."),
        ({"argument": "X", "column": "age"}, "Column 'age' of X is wrong."),
    ],
)
@pytest.mark.parametrize("kind", [InputError, InputWarning])
def test_a_message_is_composed_from_its_fields(kind, fields, expected):
    message = kind("is wrong.", **fields)
    assert str(message) == expected
    assert (message.argument, message.column) == (fields.get("argument"), fields.get("column"))
    restored = pickle.loads(pickle.dumps(message))
    assert (str(restored), vars(restored)) == (expected, vars(message))


def test_another_interface_spells_the_argument_in_its_own_way():
    error = InputError("is wrong.", argument="y")
    assert error.phrase({"y": "the target"}.__getitem__) == "The target is wrong."
    assert error.phrase("--{}".format) == "--y is wrong."
