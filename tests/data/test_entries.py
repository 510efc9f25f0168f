"""Kinds of columns, and batches that together equal the whole table."""

import itertools

import numpy as np
import pandas as pd
import pytest

from gcig._validation import InputError
from gcig.data.entries import column_kind, merge_kinds, unify_types
from gcig.data.reading import open_table
from support.tables_from_files import read_table

KINDS = ("empty", "boolean", "flag", "number", "text")


def whole(path, columns, **options) -> pd.DataFrame:
    file = open_table(path)
    decimal = file.find_decimal(columns, 3)
    return pd.concat(file.batches(columns, decimal=decimal, rows=3, **options), ignore_index=True)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([None, None], "empty"),
        ([True, False], "boolean"),
        ([True, None], "flag"),
        ([1, 2], "number"),
        ([1.5, None], "number"),
        (["a", None], "text"),
        (["a", "b"], "text"),
    ],
)
def test_kinds(cells, kind: str) -> None:
    assert column_kind(pd.Series(cells)) == kind


def test_merging_is_symmetric_associative_and_idempotent() -> None:
    for a, b in itertools.product(KINDS, KINDS):
        assert merge_kinds(a, a) == a
        assert merge_kinds(a, b) == merge_kinds(b, a)
        for c in KINDS:
            assert merge_kinds(merge_kinds(a, b), c) == merge_kinds(a, merge_kinds(b, c))


def test_csv_batches_equal_the_whole_table(tmp_path) -> None:
    path = tmp_path / "t.csv"
    table = pd.DataFrame(
        {"n": [1, 2, None, 4, 5, 6, 7], "t": ["a", " b ", "NA", None, "c", "d", "e"], "f": np.arange(7) / 3}
    )
    table.to_csv(path, index=False)
    expected, found = read_table(path).astype(object), whole(path, ["n", "t", "f"]).astype(object)
    # Older versions of pandas write missing text as None or as NaN.
    pd.testing.assert_frame_equal(found.where(found.notna(), None), expected.where(expected.notna(), None))


def test_forced_text_stays_text(tmp_path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("code\n01\n02\n 3 \n\nx\n")
    found = whole(path, ["code"], texts={"code"})
    assert found["code"].tolist() == ["01", "02", "3", "x"]


def test_decimal_commas_are_seen_in_the_first_batch(tmp_path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b\n" + "1,5;2\n" * 5)
    assert whole(path, ["a", "b"])["a"].tolist() == [1.5] * 5


def test_parquet_categories_are_text(tmp_path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "t.parquet"
    table = pd.DataFrame({"c": pd.Categorical(list("aabbbcc")), "n": range(7)})
    table.to_parquet(path)
    found = whole(path, ["n", "c"])
    assert found["c"].astype(str).tolist() == list("aabbbcc")
    assert found.columns.tolist() == ["n", "c"]


def test_missing_columns_and_damaged_files(tmp_path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "t.parquet"
    pd.DataFrame({"a": range(100)}).to_parquet(path)
    with pytest.raises(InputError, match="no column 'b'"):
        whole(path, ["b"])


def test_flags_are_numbers_in_every_batch() -> None:
    kinds = {"x": "flag", "y": "number"}
    found = unify_types(pd.DataFrame({"x": [True, False], "y": [None, None]}), kinds)
    assert found.dtypes.tolist() == [np.float64, np.float64]
    assert found["x"].tolist() == [1, 0]
