import json
import pickle
import warnings
from datetime import date, datetime
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from gcig._arguments import InputError, InputWarning
from gcig.tables.encoding import TableEncoder, UnseenValuesWarning, looks_like_identifier


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, 200),
            "sex": rng.choice(["Female", "Male"], 200),
            "income": np.where(rng.random(200) < 0.1, np.nan, rng.lognormal(size=200)),
            "job": pd.Categorical(np.where(rng.random(200) < 0.1, None, rng.choice(list("abc"), 200))),
            "member": rng.random(200) < 0.3,
        }
    )


def test_names_origin_and_kinds_follow_the_table(people):
    encoder = TableEncoder()
    encoded = encoder.fit_transform(people)
    assert encoder.feature_names_in_ == ("age", "sex", "income", "job", "member")
    assert encoder.encoded_names_ == (
        *("age", "sex=Female", "sex=Male", "income", "income=missing"),
        *("job=a", "job=b", "job=c", "job=<missing>", "member"),
    )
    assert encoder.origin_.tolist() == [0, 1, 1, 2, 2, 3, 3, 3, 3, 4]
    assert encoder.origin_.dtype == np.int64
    assert encoder.kinds_ == ("number", "category", "number", "category", "boolean")
    assert encoder.constant_ == ()
    assert encoded.shape == (200, encoder.n_features_out_)
    assert encoded.dtype == np.float32
    assert encoded.flags.c_contiguous


def test_scikit_learn_encodes_the_same(people):
    names = ["age", "income", "member"]
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    table = people.astype({"member": float})
    expected = make_column_transformer((numbers, names), (OneHotEncoder(sparse_output=False), ["sex", "job"]))
    expected = expected.fit(table[:150]).transform(table)
    encoder = TableEncoder().fit(people[:150])
    encoded = encoder.transform(people)
    assert encoder.encoded_names_[4] == "income=missing"
    np.testing.assert_array_equal(encoded[:, 4], people["income"].isna())
    np.testing.assert_allclose(encoded[:, [0, 3, 9, 1, 2, 5, 6, 7, 8]], expected, rtol=1e-6, atol=1e-7)


@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 30), st.integers(1, 3)),
        elements=st.one_of(
            st.just(np.nan),
            st.floats(-1e300, 1e300),
            st.floats(-1, 1).map(lambda v: v * 1e-300),
            st.integers(-2, 2).map(float),
        ),
    )
)
@pytest.mark.filterwarnings("ignore::gcig._arguments.InputWarning")  # constant columns
def test_training_columns_have_mean_zero_and_deviation_one(values):
    encoder = TableEncoder()
    encoded = encoder.fit_transform(values).astype(np.float64)
    assert np.isfinite(encoded).all()
    for j, name in enumerate(encoder.encoded_names_):
        column = encoded[:, j]
        filled = values[:, encoder.origin_[j]]
        filled = np.where(np.isnan(filled), np.nanmedian(filled) if not np.isnan(filled).all() else 0, filled)
        if name.endswith("=missing"):
            np.testing.assert_array_equal(column, np.isnan(values[:, encoder.origin_[j]]))
        elif 0 < np.abs(filled).max() < np.finfo(np.float64).tiny:
            continue  # the deviation of subnormal numbers may not be representable
        elif np.ptp(filled / max(np.abs(filled).max(), 1e-323)) == 0:
            assert not column.any()
        else:
            assert abs(column.mean()) < 1e-5
            np.testing.assert_allclose(column.std(), 1, rtol=1e-5)


def test_a_constant_column_is_always_zero():
    # The computed standard deviation of ten times 0.1 is 1.4e-17, not 0.
    with pytest.warns(InputWarning, match="1 columns have a single value in training .*'rate'"):
        encoder = TableEncoder().fit({"rate": [0.1] * 10, "age": range(10)})
    assert encoder.constant_ == ("rate",)
    assert encoder.transform({"rate": [0.1, 7.0, None], "age": [1, 2, 3]})[:, 0].tolist() == [0, 0, 0]


def test_all_missing_columns_are_constant():
    with pytest.warns(InputWarning, match="2 columns have a single value"):
        encoder = TableEncoder().fit({"a": [None, None], "b": pd.Categorical([None, None]), "c": [1, 2]})
    assert encoder.encoded_names_ == ("a", "b=<missing>", "c")
    assert encoder.transform({"a": [1.0], "b": [None], "c": [1]}).tolist() == [[0, 1, -1]]


def test_unexpected_missing_numbers_become_the_median(people):
    encoder = TableEncoder().fit(people)
    people = people.astype({"age": float})
    people.loc[[3, 4], "age"] = np.nan
    with pytest.warns(
        InputWarning, match=r"Missing entries in columns that had none in training.*'age' \(2 rows\)"
    ):
        encoded = encoder.transform(people)
    expected = (encoder.columns_[0].fill - encoder.columns_[0].mean) / encoder.columns_[0].scale
    np.testing.assert_allclose(encoded[[3, 4], 0], expected, rtol=1e-6)


def test_unseen_categories_are_zeros_and_are_counted_but_not_shown(people):
    encoder = TableEncoder().fit(people)
    people = people.astype({"sex": object, "job": object})
    people.loc[0, "sex"] = "secret"
    people.loc[[1, 2], "job"] = "z"
    with pytest.warns(InputWarning, match=r"did not see.*'sex' \(1 rows\), 'job' \(2 rows\)") as caught:
        encoded = encoder.transform(people)
    assert "secret" not in str(caught[0].message)
    assert not encoded[0, 1:3].any()
    assert not encoded[1:3, 5:9].any()
    assert encoded[3, 1:3].sum() == 1


def test_an_unexpected_missing_category_is_unseen():
    encoder = TableEncoder().fit({"a": ["x", "y"]})
    with pytest.warns(InputWarning, match=r"'a' \(1 rows\)"):
        assert encoder.transform({"a": [None, "y"]}).tolist() == [[0, 0], [0, 1]]


def test_levels_match_whether_read_as_numbers_or_text():
    encoder = TableEncoder().fit({"code": pd.Categorical([1, 2, 10])})
    assert encoder.encoded_names_ == ("code=1", "code=2", "code=10")
    for column in ([10, 1], [10.0, 1.0], ["10", "1"]):
        assert encoder.transform({"code": column}).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_intervals_are_categories():
    ages = pd.cut(pd.Series([5, 15, 7]), [0, 10, 20])
    assert TableEncoder().fit({"age": ages}).encoded_names_ == ("age=(0, 10]", "age=(10, 20]")


def test_categories_that_differ_by_spaces_are_pointed_out():
    with pytest.warns(InputWarning, match="Column 'sex' of X has 1 categories that differ .* by spaces"):
        TableEncoder().fit({"sex": ["Male", " Male", "Female"]})


def test_text_in_a_column_of_numbers_is_an_error():
    encoder = TableEncoder().fit({"a": [1, 2]})
    with pytest.raises(InputError, match="Column 'a' of X holds text, but in training it held numbers"):
        encoder.transform({"a": ["1", "?"]})
    assert encoder.transform({"a": [True]}).tolist() == [[-1]]


def test_a_value_too_large_for_float32_is_an_error():
    encoder = TableEncoder().fit({"a": [1, 2]})
    with pytest.raises(
        InputError, match="Column 'a' of X holds values that are too far from the training data"
    ):
        encoder.transform({"a": [1e300]})


def test_an_identifier_is_an_error():
    with pytest.raises(InputError, match="Column 'id' of X has 101 categories in 101 rows"):
        TableEncoder().fit({"id": [f"p{i}" for i in range(101)]})
    many = {"city": [f"c{i % 200}" for i in range(300)]}  # two thirds as many as rows: no identifier
    with pytest.warns(InputWarning, match="the 99 most frequent are kept"):
        assert TableEncoder().fit(many).n_features_out_ == 100


def test_a_part_of_a_table_repeats_fewer_categories():
    """What the shell accepts on all rows must not fail on the training rows."""
    cities = pd.Series(np.random.default_rng(0).integers(2500, size=1200)).astype(str)
    part = cities.sample(frac=0.75, random_state=0)
    assert 0.8 < part.nunique() / len(part) < 0.95
    assert not looks_like_identifier(cities)
    with pytest.warns(InputWarning, match="the 99 most frequent are kept"):
        TableEncoder().fit(part.to_frame("city"))


def test_rare_categories_share_one_level():
    counts = {f"c{i:03}": 1 + (i * 37) % 150 for i in range(150)}  # 1 to 150 rows, each size once
    cities = [city for city, count in counts.items() for _ in range(count)]
    with pytest.warns(InputWarning, match=r"'city' of X has 150 categories: the 19 most frequent are kept"):
        encoder = TableEncoder(max_levels=20).fit({"city": cities})
    frequent = sorted(sorted(counts, key=counts.get)[-19:])
    assert encoder.encoded_names_ == (*(f"city={name}" for name in frequent), "city=<other>")
    encoded = encoder.transform({"city": [frequent[0], "c000", "never seen"]})  # no warning: both are other
    assert encoded.argmax(axis=1).tolist() == [0, 19, 19]
    assert encoded.sum(axis=1).tolist() == [1, 1, 1]
    with pytest.warns(InputWarning, match="encoded as zeros: 'city'"):
        assert encoder.transform({"city": [None]}).sum() == 0  # training had no missing entries
    assert TableEncoder(max_levels=None).fit({"city": cities}).n_features_out_ == 150
    again = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    np.testing.assert_array_equal(again.encode({"city": cities}), encoder.encode({"city": cities}))


MOMENTS = pd.to_datetime(["1970-01-01", "2024-02-29", "2024-03-01 12:00", None], format="mixed")
DAYS = np.array([0, 19_782, 19_783.5, np.nan])  # since 1970-01-01: 1 March 2024 is day 19,783


@pytest.mark.parametrize(
    "dates",
    [
        MOMENTS,
        MOMENTS.tz_localize("UTC").tz_convert("Asia/Tokyo"),
        ["1970-01-01", "29.02.2024", "2024-03-01T14:00+02:00", None],
        [date(1970, 1, 1), datetime(2024, 2, 29), datetime(2024, 3, 1, 12), None],
        pl.Series([datetime(1970, 1, 1), datetime(2024, 2, 29), datetime(2024, 3, 1, 12), None]),
    ],
)
def test_dates_are_days_whatever_their_type(dates):
    encoder = TableEncoder().fit({"seen": dates})
    assert encoder.kinds_ == ("date",)
    assert encoder.encoded_names_ == ("seen", "seen=missing")
    filled = np.where(np.isnan(DAYS), np.nanmedian(DAYS), DAYS)
    expected = (filled - filled.mean()) / filled.std()
    np.testing.assert_allclose(encoder.transform({"seen": dates})[:, 0], expected, rtol=1e-6)
    (text,) = encoder.transform({"seen": ["2024-02-29"]})
    np.testing.assert_allclose(text, [expected[1], 0], rtol=1e-6)


def test_dates_are_never_categories_nor_numbers():
    encoder = TableEncoder().fit({"seen": ["2024-01-01", "2024-02-01", "2024-01-01"], "n": [1, 2, 3]})
    for wrong, found in (([20240101], "numbers"), (["soon"], "text in 1 of 1 rows")):
        with pytest.raises(InputError, match=f"'seen' of X holds {found}, but in training it held dates"):
            encoder.transform({"seen": wrong, "n": [1]})
    with pytest.raises(InputError, match="'n' of X holds dates, but in training it held numbers"):
        encoder.transform({"seen": ["2024-01-01"], "n": pd.to_datetime(["2024-01-01"])})
    with pytest.raises(InputError, match="day and month could be exchanged"):
        TableEncoder().fit({"seen": ["01/02/2024", "03/02/2024"]})
    with pytest.raises(InputError, match="held categories"):
        TableEncoder().fit({"a": ["x", "y"]}).transform({"a": pd.to_datetime(["2024-01-01"])})


def test_rows_can_be_dicts_and_matrices_sparse():
    encoder = TableEncoder().fit({"age": [20, 40, None], "sex": ["F", None, "M"]})
    table = encoder.transform({"age": [40, None], "sex": ["F", None]})
    np.testing.assert_array_equal(encoder.transform({"age": 40, "sex": "F"}), table[:1])
    rows = [{"age": 40, "sex": "F"}, {"sex": None, "age": None}]
    np.testing.assert_array_equal(encoder.transform(rows), table)
    dense = np.array([[0.0, 3.0], [0.0, 0.0], [5.0, 0.0]])
    expected = TableEncoder().fit_transform(dense)
    for kind in (sparse.csr_matrix, sparse.csc_array, sparse.coo_array):
        np.testing.assert_array_equal(TableEncoder().fit_transform(kind(dense)), expected)
    columns = pd.DataFrame.sparse.from_spmatrix(sparse.csr_matrix(dense), columns=["x0", "x1"])
    np.testing.assert_array_equal(TableEncoder().fit_transform(columns), expected)


def test_the_encoder_is_a_transformer_of_scikit_learn(people):
    encoder = TableEncoder().set_output(transform="pandas")
    frame = encoder.fit_transform(people)
    assert list(frame.columns) == list(encoder.get_feature_names_out()) == list(encoder.encoded_names_)
    assert frame.index.equals(people.index)
    np.testing.assert_array_equal(frame.to_numpy(), encoder.encode(people))
    pipeline = make_pipeline(TableEncoder(n_bins=3), LogisticRegression())
    pipeline.set_params(tableencoder__max_levels=5).fit(people, people["sex"])
    assert clone(pipeline)[0].get_params() == {"max_levels": 5, "n_bins": 3}
    for wrong in ({"n_bins": -1}, {"max_levels": 1}, {"max_levels": 2.5}, {"n_bins": None}):
        with pytest.raises(InputError, match=f"{next(iter(wrong))} must be an integer"):
            TableEncoder(**wrong).fit(people)


def test_tables_of_other_kinds_encode_the_same(people):
    encoder = TableEncoder().fit(people)
    columns = {
        name: people[name].astype(object).where(people[name].notna(), None).tolist() for name in people
    }
    reordered = pl.DataFrame(columns).select(["member", "job", "income", "sex", "age"])
    np.testing.assert_array_equal(encoder.transform(reordered), encoder.transform(people))


def test_the_input_is_not_modified(people):
    before = people.copy(deep=True)
    TableEncoder().fit_transform(people)
    pd.testing.assert_frame_equal(people, before)


def test_json_restores_the_encoder_exactly(people):
    encoder = TableEncoder().fit(people)
    stored = encoder.to_dict()
    assert json.loads(json.dumps(stored)) == stored
    again = TableEncoder.from_dict(json.loads(json.dumps(stored)))
    assert again.columns_ == encoder.columns_
    assert again.encoded_names_ == encoder.encoded_names_
    assert again.kinds_ == encoder.kinds_
    np.testing.assert_array_equal(again.origin_, encoder.origin_)
    np.testing.assert_array_equal(again.transform(people), encoder.transform(people))


NUMBER = {"name": "a", "kind": "number", "fill": 0.0, "mean": 0.0, "scale": 1.0, "indicator": False}


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"columns": []},
        {"columns": 3},
        {"columns": [NUMBER, NUMBER]},
        {"columns": [{**NUMBER, "mean": float("nan")}]},
        {"columns": [{**NUMBER, "mean": "0"}]},
        {"columns": [{**NUMBER, "scale": -1.0}]},
        {"columns": [{**NUMBER, "kind": "text"}]},
        {"columns": [{**NUMBER, "indicator": 1}]},
        {"columns": [{**NUMBER, "more": 1}]},
        {"columns": [{**NUMBER, "name": 1}]},
        {"columns": [{**NUMBER, "name": []}]},
        {"columns": [{"name": "a", "kind": "category", "levels": []}]},
        {"columns": [{"name": "a", "kind": "category", "levels": ["x", "x"]}]},
        {"columns": [{"name": "a", "kind": "category", "levels": "xy"}]},
        {"columns": [{"name": "a", "kind": "category", "levels": [1, 2]}]},
        {"columns": ["a"]},
    ],
)
def test_an_edited_file_is_refused(stored):
    with pytest.raises(InputError, match="Not a stored encoder"):
        TableEncoder.from_dict(stored)


def test_transform_before_fit_is_an_error():
    with pytest.raises(RuntimeError, match="not fitted yet"):
        TableEncoder().transform([[1]])


def test_predicting_one_row_of_training_is_silent(people):
    encoder = TableEncoder().fit(people)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(encoder.transform(people[:1]), encoder.transform(people)[:1])


def test_the_warning_of_unseen_values_counts_rows_per_column():
    encoder = TableEncoder().fit({"sex": ["F", "M"]})
    with pytest.warns(UnseenValuesWarning) as caught:
        encoder.transform({"sex": ["F", "x"]})
    warning = pickle.loads(pickle.dumps(caught[0].message))
    assert warning.rows == {"sex": 1}
    assert str(warning) == f"{warning.treatment}: 'sex' (1 rows)."


# --- Bins --------------------------------------------------------------------------------------------


def test_bins_rise_from_zero_to_one_between_their_edges():
    values = np.concatenate([np.zeros(50), np.arange(1.0, 51.0)])
    encoder = TableEncoder(n_bins=4)
    encoded = encoder.fit_transform(pd.DataFrame({"gain": values, "flag": values > 10}))
    (edges,) = (column.edges for column in encoder.columns_ if column.edges)  # two values need no bins
    assert edges == (0.0, 1.0, 13.25, 25.5, 37.75, 50.0)  # zero, which half of the rows have, is one edge
    assert encoder.encoded_names_[:3] == ("gain", "gain:0..1", "gain:1..13.25")
    assert encoder.origin_.tolist() == [0] * 6 + [1]
    for j, (low, high) in enumerate(pairwise(edges), start=1):
        expected = [min(1.0, max(0.0, (value - low) / (high - low))) for value in values]
        assert np.allclose(encoded[:, j], expected)
    assert encoder.transform(pd.DataFrame({"gain": [99.0], "flag": [True]}))[0, 1:6].tolist() == [1.0] * 5


def test_bins_of_missing_numbers_are_those_of_the_median():
    encoder = TableEncoder(n_bins=3)
    encoded = encoder.fit_transform({"age": [20.0, np.nan, 40.0, 60.0]})
    assert encoded[1, 1] == 1
    assert np.array_equal(encoded[1, 2:], encoded[2, 2:])


def test_json_restores_bins():
    table = {"age": [20, 30, 40, 60], "job": ["a", "b", "a", "b"]}
    encoder = TableEncoder(n_bins=3).fit(table)
    restored = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert restored.to_dict() == encoder.to_dict()
    assert np.array_equal(restored.transform(table), encoder.transform(table))
    stored = encoder.to_dict()
    stored["columns"][0]["edges"] = [30.0, 20.0]
    with pytest.raises(InputError, match="'age' has values that no encoder writes"):
        TableEncoder.from_dict(stored)
    assert "edges" not in TableEncoder().fit(table).to_dict()["columns"][0]
