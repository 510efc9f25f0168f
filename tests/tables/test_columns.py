"""One column model: what is encoded leads back to entries, and entries to what a model takes."""

import numpy as np
import pandas as pd
import pytest

from gcig._arguments import InputError
from gcig.adapters.entries import TableEncoding
from gcig.tables.columns import OTHER, CategoryColumn, NumberColumn
from gcig.tables.encoding import TableEncoder

MOMENTS = pd.to_datetime(["2024-02-29 12:30:00.123456", "1969-12-31 00:00:00.000001", None])
TABLES = {
    "numbers": pd.DataFrame({"a": [1.0, 2.5, np.nan], "b": [3, 4, 5]}),
    "dates": pd.DataFrame({"a": MOMENTS}),
    "true and false": pd.DataFrame({"a": [True, False, True], "b": pd.array([True, None, False], "boolean")}),
    "text": pd.DataFrame({"a": ["f", "m", None], "b": ["2024-01-01", "x", "y"]}),
    "categorical": pd.DataFrame({"a": pd.Categorical(["b", None, "a"], categories=["c", "b", "a"])}),
    "numbers as categories": pd.DataFrame({"a": pd.Categorical([3, 1, 3])}),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_table_that_is_encoded_can_be_decoded(table):
    encoding = TableEncoding.learn([table])
    again = encoding.decode(encoding.entries(encoding.encode(table)))
    assert list(again.columns) == list(table.columns)
    for name in table:
        missing = table[name].isna()
        assert again[name].isna().equals(missing)
        assert (again[name][~missing] == table[name][~missing]).all()
    if "categorical" in table:
        assert again.dtypes.equals(table.dtypes)


def test_a_standardised_number_leads_back_to_itself():
    frame = pd.DataFrame({"a": [20.0, 40.0, np.nan, 60.0]})
    encoder = TableEncoder(n_bins=2).fit(frame)
    (column,) = encoder.columns_
    np.testing.assert_allclose(column.entries(encoder.encode(frame)), frame["a"], rtol=1e-6)


def test_the_mean_of_a_category_is_its_share_and_its_entry_the_most_frequent():
    column = CategoryColumn.of(["f", "m"], missing=True)
    encoded = np.zeros((4, column.width))
    assert column.write(pd.Series(["m", "m", "f", None]), encoded) == 0
    assert encoded.mean(axis=0).tolist() == [0.25, 0.5, 0.25]
    assert column.entries(encoded.mean(axis=0, keepdims=True)).tolist() == [1.0]
    assert column.decode(np.array([0.0, 2.0]))[0] == "f"


def test_categories_without_a_level_share_one():
    column = CategoryColumn("category", ("a", OTHER))
    encoded = np.zeros((2, 2))
    assert column.write(pd.Series(["a", "z"]), encoded) == 0
    assert encoded.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("kind", "values"), [("number", ["x"]), ("boolean", ["yes"]), ("date", [3]), ("date", ["soon"])]
)
def test_another_kind_of_column_is_an_error_that_names_it(kind, values):
    column = NumberColumn(kind, fill=0.0, mean=0.0, scale=1.0, indicator=False)
    with pytest.raises(InputError) as raised:
        column.read(pd.Series(values, name="income"))
    assert raised.value.column == "income"
    assert str(values[0]) not in str(raised.value).split()


def test_what_the_rows_of_learning_did_not_have_is_an_error():
    encoding = TableEncoding.learn([pd.DataFrame({"a": [1.0, 2.0], "b": ["f", "m"]})])
    for column, row in {"a": {"a": [None], "b": ["f"]}, "b": {"a": [1.0], "b": ["x"]}}.items():
        with pytest.raises(InputError) as raised:
            encoding.encode(pd.DataFrame(row, columns=["a", "b"]).astype({"a": float}))
        assert raised.value.column == column
