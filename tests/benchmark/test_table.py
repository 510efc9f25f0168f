import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest

from gcig._validation import InputError
from gcig.benchmark.table import Table
from support.small_runs import small_table


def test_the_hash_is_of_the_content_and_not_of_the_name():
    assert small_table(name="a").sha256 == small_table(name="b").sha256
    assert pickle.loads(pickle.dumps(small_table())).sha256 == small_table().sha256


def change_number(table):
    X = table.X.copy()
    X.loc[3, "income"] += 1e-9
    return X, table.y, table.sensitive_features


def change_text(table):
    X = table.X.copy()
    X.loc[3, "town"] = "elsewhere"
    return X, table.y, table.sensitive_features


def rename_column(table):
    return table.X.rename(columns={"town": "city"}), table.y, table.sensitive_features


def change_label(table):
    y = table.y.copy()
    y[3] = 1 - y[3]
    return table.X, y, table.sensitive_features


def change_group(table):
    groups = table.sensitive_features.copy()
    groups[3] = "x"
    groups[4:30] = "x"
    return table.X, table.y, groups


@pytest.mark.parametrize("change", [change_number, change_text, rename_column, change_label, change_group])
def test_every_change_of_the_content_changes_the_hash(change):
    table = small_table()
    X, y, groups = change(table)
    assert Table.of(X, y, sensitive_features=groups).sha256 != table.sha256


def test_the_hash_does_not_depend_on_the_container_type():
    table = small_table()
    held = pl.DataFrame({name: table.X[name].to_list() for name in table.X})
    again = Table.of(held, table.y.tolist(), sensitive_features=table.sensitive_features.tolist())
    assert again.sha256 == table.sha256
    shifted = Table.of(
        table.X.astype({"town": "category"}).set_index(np.arange(5, 165)),
        table.y.set_axis(np.arange(5, 165)),
        sensitive_features=table.sensitive_features.set_axis(np.arange(5, 165)),
    )
    assert shifted.sha256 == table.sha256


def test_a_table_without_a_name_is_called_by_its_hash():
    table = small_table(name=None)
    assert table.name == f"table-{table.sha256[:8]}"


def test_shipped_tables_are_named_by_what_was_chosen():
    names = [
        Table.shipped("german").name,
        Table.shipped("german", "age").name,
        Table.shipped("german", include_sensitive=False).name,
    ]
    assert names == ["german", "german-age", "german-without-sex"]


def test_several_attributes_are_crossed():
    table = small_table()
    groups = pd.DataFrame({"sex": table.sensitive_features, "town": table.X["town"]})
    crossed = Table.of(table.X, table.y, sensitive_features=groups)
    assert crossed.attribute == "sex & town"
    assert len(crossed.groups.names) == 6


def test_a_label_that_a_group_lacks_is_refused():
    table = small_table()
    with pytest.raises(InputError, match="label"):
        Table.of(
            table.X,
            (table.sensitive_features == "f").astype(int),
            sensitive_features=table.sensitive_features,
        )
