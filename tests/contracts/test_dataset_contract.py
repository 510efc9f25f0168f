"""Contract of every registered dataset, shipped or third-party."""

import json

import numpy as np
import pandas as pd
import pytest

import gcig
from gcig.datasets.registry import dataset_spec

DATASETS = gcig.list_datasets()
ATTRIBUTES = [(name, attribute) for name in DATASETS for attribute in dataset_spec(name).offered]


@pytest.fixture(params=DATASETS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_has_the_declared_rows_and_columns(name):
    spec, data = dataset_spec(name), gcig.load_dataset(name)
    assert data.name == name
    assert len(data.X) == len(data.y) == len(data.sensitive_features) == spec.rows
    assert tuple(data.X.columns) == spec.inputs
    assert spec.target not in data.X


def test_labels_are_those_of_the_task_and_named_after_the_target(name):
    data = gcig.load_dataset(name)
    assert data.y.name == dataset_spec(name).target
    assert not data.y.isna().any()
    if data.task == "binary":
        assert data.y.dtype == "int64"
        assert set(data.y.unique()) == {0, 1}
    elif data.task == "classes":
        assert data.y.map(type).eq(str).all()
        assert 2 < data.y.nunique() < 50
    else:
        assert data.task == "number"
        assert data.y.dtype == "float64"
        assert np.isfinite(data.y).all()


def test_inputs_are_numbers_or_categories_without_gaps(name):
    X = gcig.load_dataset(name).X
    assert not X.isna().to_numpy().any()
    for column in X:
        values = X[column]
        assert pd.api.types.is_numeric_dtype(values) or isinstance(values.dtype, pd.CategoricalDtype)
        if isinstance(values.dtype, pd.CategoricalDtype):
            words = values.cat.categories
            assert (words == words.str.strip()).all(), f"{column}: blanks around a category"
            assert len(words) < 50, f"{column}: an identifier, not a category"


def test_no_column_names_a_person(name):
    columns = {column.lower() for column in gcig.load_dataset(name).X}
    assert not columns & {"name", "first", "last", "dob", "id", "c_case_number", "r_case_number"}


@pytest.mark.parametrize(("name", "attribute"), ATTRIBUTES)
def test_every_attribute_gives_named_groups_with_all_labels(name, attribute):
    data = gcig.load_dataset(name, attribute)
    groups = data.sensitive_features
    assert groups.name == attribute
    assert not groups.isna().any()
    assert groups.map(type).eq(str).all()
    assert groups.index.equals(data.X.index)
    assert groups.index.equals(data.y.index)
    y = data.y > data.y.median() if data.task == "number" else data.y
    cells = pd.crosstab(groups, y)
    assert cells.shape[0] >= 2
    assert (cells > 0).to_numpy().all()


@pytest.mark.parametrize(("name", "attribute"), ATTRIBUTES)
def test_include_sensitive_false_drops_just_the_source_columns(name, attribute):
    whole = gcig.load_dataset(name, attribute)
    fewer = gcig.load_dataset(name, attribute, include_sensitive=False)
    dropped = set(dataset_spec(name).attribute(attribute).columns)
    assert dropped
    assert set(whole.X) - set(fewer.X) == dropped
    pd.testing.assert_series_equal(whole.sensitive_features, fewer.sensitive_features)


def test_first_attribute_offered_is_the_default(name):
    spec = dataset_spec(name)
    assert gcig.load_dataset(name).sensitive_features.name == spec.default


def test_all_attributes_at_once_give_a_table(name):
    offered = list(dataset_spec(name).offered)
    features = gcig.load_dataset(name, offered).sensitive_features
    assert list(features.columns) == offered
    for attribute in offered:
        pd.testing.assert_series_equal(
            features[attribute], gcig.load_dataset(name, attribute).sensitive_features
        )


def summary(y, task):
    """What a card says about labels."""
    if task == "classes":
        return {label: (y == label).mean() for label in y.unique()}
    return {"base_rate" if task == "binary" else "mean": y.mean()}


def test_card_counts_match_the_data(name):
    spec, data = dataset_spec(name), gcig.load_dataset(name)
    assert data.card.rows == len(data.X)
    assert data.card.labels == pytest.approx(summary(data.y, data.task))
    for attribute in spec.offered:
        groups = gcig.load_dataset(name, attribute).sensitive_features
        counted = {facts.group: facts.rows for facts in data.card.groups[attribute]}
        assert counted == groups.value_counts().to_dict()
        for facts in data.card.groups[attribute]:
            assert facts.labels == pytest.approx(summary(data.y[groups == facts.group], data.task))


def test_card_states_origin_and_risks(name):
    spec, card = dataset_spec(name), gcig.load_dataset(name).card
    text = " ".join(str(card).split())
    for words in (spec.title, spec.source, spec.licence, spec.citation, *spec.traps, *spec.harms):
        assert words
        assert words in text
    assert spec.traps
    assert spec.harms
    assert spec.sha256
    assert all(len(digest) == 64 for digest in spec.sha256.values())
    assert all(digest in text for digest in spec.sha256.values())


def test_card_survives_json(name):
    card = gcig.load_dataset(name).card
    assert json.loads(json.dumps(card.to_dict())) == card.to_dict()
    assert "<h3>" in card._repr_html_()


def test_callers_cannot_change_the_cached_data(name):
    first = gcig.load_dataset(name)
    before = first.X.copy(), first.y.copy(), first.sensitive_features.copy()
    first.X[first.X.columns[0]] = 0
    first.X.iloc[0, 1] = first.X.iloc[1, 1]
    first.X["extra"] = 0
    first.y.iloc[0] = first.y[first.y != first.y.iloc[0]].iloc[0]
    first.sensitive_features.iloc[0] = "nobody"
    again = gcig.load_dataset(name)
    assert again.X.equals(before[0])
    assert again.y.equals(before[1])
    assert again.sensitive_features.equals(before[2])


def test_repr_names_size_target_and_groups(name):
    data = gcig.load_dataset(name)
    words = repr(data)
    assert f"{len(data.X):,} rows" in words
    assert repr(data.y.name) in words
    assert all(group in words for group in data.sensitive_features.unique())
    assert len(words.splitlines()) <= 6
