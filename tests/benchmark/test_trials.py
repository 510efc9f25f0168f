import json
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcig._arguments import InputError
from gcig.benchmark.tables import Table
from gcig.benchmark.trials import Trial, select_shard
from gcig.core.definition import Definition
from support.small_runs import one_trial, small_table, small_trials

CHANGES = {
    "dataset": "other",
    "data_hash": "1",
    "method": "dir",
    "variant": "b",
    "parameters": {"lambda_ig": 1.0},
    "fold": 1,
    "n_folds": 4,
    "seed": 1,
    "repeat": 1,
    "definition": Definition(norm="l2"),
    "role": "tune",
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_field_is_in_the_key(name):
    assert one_trial(**{name: CHANGES[name]}).key != one_trial().key


def test_the_key_depends_on_neither_order_nor_process():
    one = one_trial(parameters={"a": 1, "b": (2, 3)})
    assert one == one_trial(parameters={"b": [2, 3], "a": 1})
    code = (
        "from gcig.benchmark.trials import Trial; "
        "print(Trial(dataset='small', data_hash='0', method='fairx', parameters={'a': 1, 'b': [2, 3]}).key)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == one.key


def test_a_trial_survives_json():
    trial = one_trial(parameters={"hidden_sizes": (4, 2)}, definition=Definition(n_steps=8, rule="right"))
    again = Trial.from_dict(json.loads(json.dumps(trial.to_dict())))
    assert again == trial
    assert hash(again) == hash(trial)
    assert again.definition == trial.definition


@pytest.mark.parametrize(
    "wrong",
    [
        {"fold": 5},
        {"fold": -1},
        {"n_folds": 1},
        {"n_folds": 0},
        {"role": "train"},
        {"parameters": {"a": {1}}},
    ],
)
def test_invalid_trials_are_refused(wrong):
    with pytest.raises(InputError):
        one_trial(**wrong)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_parameters_are_finite(number):
    with pytest.raises(InputError, match="plain JSON"):
        one_trial(parameters={"lambda_ig": number})


@given(st.text(max_size=80), st.text(max_size=80))
def test_file_names_are_safe_whatever_the_names(dataset, variant):
    name = one_trial(dataset=dataset, variant=variant).file_name
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
    assert not name.startswith((".", "/"))
    assert name.count(".") == 1
    assert len(name) < 200


def test_similar_names_have_distinct_files():
    assert one_trial(dataset="../a").file_name != one_trial(dataset="/a").file_name


@pytest.mark.parametrize("of", [1, 2, 5, 40])
def test_shards_are_a_partition(of):
    trials = small_trials(small_table(), n_folds=5)
    shards = [select_shard(trials, number, of) for number in range(1, of + 1)]
    assert sorted(c.key for shard in shards for c in shard) == sorted(c.key for c in trials)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_shards_do_not_depend_on_the_order_of_the_trials():
    trials = small_trials(small_table())
    assert select_shard(trials, 1, 2) == select_shard(trials[::-1], 1, 2)


@pytest.mark.parametrize("shard", [(0, 2), (3, 2)])
def test_an_invalid_shard_is_refused(shard):
    with pytest.raises(InputError, match="shard"):
        select_shard([], *shard)


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
    pl = pytest.importorskip("polars")
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
