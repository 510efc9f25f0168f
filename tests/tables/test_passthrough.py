import numpy as np
import pandas as pd
import pytest

from gcig._arguments import InputError, InputWarning
from gcig.tables.encoding import TableEncoder
from gcig.tables.passthrough import PassThrough

TABLE = pd.DataFrame({"a": [1.5, 2.5], "b": [3, 4], "c": [True, False]})


def test_numbers_are_unchanged():
    encoded = PassThrough().fit(TABLE).encode(TABLE)
    assert encoded.dtype == np.float32
    assert encoded.tolist() == [[1.5, 3.0, 1.0], [2.5, 4.0, 0.0]]


def test_it_has_the_attributes_of_the_table_encoder():
    encoder = PassThrough().fit(TABLE)
    numbers = TableEncoder().fit(TABLE)
    for name in ("feature_names_in_", "encoded_names_", "n_features_out_"):
        assert getattr(encoder, name) == getattr(numbers, name)
    assert encoder.origin_.tolist() == numbers.origin_.tolist()


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int16, np.uint8])
def test_arrays_are_copied_and_never_written_to(kind):
    rows = np.ones((4, 2), dtype=kind)
    rows.flags.writeable = False
    encoded = PassThrough().fit(rows).encode(rows)
    assert encoded.flags.writeable
    assert encoded.flags.c_contiguous
    assert not np.shares_memory(encoded, rows)


def test_columns_are_put_in_the_order_of_training():
    encoder = PassThrough().fit(TABLE)
    assert np.array_equal(encoder.encode(TABLE[["c", "a", "b"]]), encoder.encode(TABLE))
    pl = pytest.importorskip("polars")
    assert np.array_equal(encoder.encode(pl.from_pandas(TABLE)), encoder.encode(TABLE))
    with pytest.warns(InputWarning, match="matched by position"):
        assert np.array_equal(encoder.encode(TABLE.to_numpy(float)), encoder.encode(TABLE))


def test_other_columns_are_refused():
    encoder = PassThrough().fit(TABLE)
    with pytest.raises(InputError, match="now missing:\n- c"):
        encoder.encode(TABLE[["a", "b"]])
    with pytest.raises(InputError, match=r"X has 2 features, but .* expecting 3"):
        encoder.encode(np.zeros((1, 2)))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["x", "y"], "'wrong'.*Encode them first"),
        (pd.Categorical(["x", "y"]), "columns that are not numbers"),
        ([1.0, np.nan], r"missing values \(NaN\), .*: 'wrong'"),
        ([1.0, 1e39], "too large for float32, .*: 'wrong'"),
        ([1.0, np.inf], "infinity"),
    ],
    ids=["text", "category", "missing", "huge", "infinite"],
)
def test_only_finite_numbers_are_accepted(column, message):
    wrong = TABLE.assign(wrong=column)
    with pytest.raises(InputError, match=message):
        PassThrough().fit(wrong)
    with pytest.raises(InputError, match=message):
        PassThrough().fit(TABLE.assign(wrong=[0.0, 1.0])).encode(wrong)


def test_it_is_restored_from_plain_values():
    encoder = PassThrough().fit(TABLE)
    twin = PassThrough.from_dict(encoder.to_dict())
    assert twin.feature_names_in_ == encoder.feature_names_in_
    assert np.array_equal(twin.encode(TABLE), encoder.encode(TABLE))


@pytest.mark.parametrize(
    "stored",
    [
        {},
        [],
        {"feature_names": []},
        {"feature_names": "ab"},
        {"feature_names": [1]},
        {"feature_names": ["a", "a"]},
    ],
    ids=str,
)
def test_other_plain_values_are_refused(stored):
    with pytest.raises(InputError, match="Not a stored encoder"):
        PassThrough.from_dict(stored)


def test_transform_before_fit_is_an_error():
    with pytest.raises(RuntimeError, match="not fitted"):
        PassThrough().encode(TABLE)
