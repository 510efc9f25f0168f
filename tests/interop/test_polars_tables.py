"""polars frames and series give what pandas gives, from fit to audit."""

import dataclasses

import numpy as np
import polars as pl
import pytest

import gcig
from example_tables import QUICK_CREDIT, fitted_credit, load_credit
from gcig.auditing import audit
from gcig.metrics import equalized_odds_gap, gcig_score, group_rates


@pytest.fixture(scope="module")
def credit():
    return load_credit()


def as_polars(column):
    if column.dtype.kind in "ib":
        return pl.Series(column.to_numpy())
    if column.dtype.kind == "f":
        return pl.Series(column.to_numpy()).fill_nan(None)
    return pl.Series([None if cell is None else str(cell) for cell in column])


@pytest.fixture(scope="module")
def in_polars(credit):
    """Return the table in polars, with its nulls, categoricals and booleans."""
    X, y, sex = credit
    table = pl.DataFrame({name: as_polars(X[name]) for name in X})
    table = table.with_columns(pl.col("purpose").cast(pl.Categorical))
    housing = table["housing"].unique().sort().to_list()
    table = table.with_columns(pl.col("housing").cast(pl.Enum(housing)))
    return table, pl.Series("y", y.to_numpy()), pl.Series("sex", sex.astype(str).to_list())


def test_the_table_has_polars_own_types(in_polars):
    table, *_ = in_polars
    assert table.null_count().sum_horizontal().item() > 0
    assert {pl.Categorical, pl.Enum, pl.Boolean, pl.String, pl.Float64, pl.Int64} <= {
        type(dtype) if not isinstance(dtype, type) else dtype for dtype in table.dtypes
    }


def test_fit_predict_and_explain(credit, in_polars):
    X, *_ = credit
    table, y, sex = in_polars
    model = gcig.FairXClassifier(**QUICK_CREDIT).fit(table, y, sensitive_features=sex)
    assert np.array_equal(model.predict_proba(table), fitted_credit().predict_proba(X))
    turned = table.select(reversed(table.columns))
    assert np.array_equal(model.predict(turned), model.predict(table))
    assert np.array_equal(
        model.explain(table[:9], y[:9]).disparity, fitted_credit().explain(X[:9], y.to_numpy()[:9]).disparity
    )


def test_metrics(credit, in_polars):
    X, y, sex = credit
    table, y_polars, sex_polars = in_polars
    model = fitted_credit()
    decided = model.predict(X)
    weights = np.linspace(1, 2, len(X))
    expected = equalized_odds_gap(y, decided, sensitive_features=sex, sample_weight=weights)
    found = equalized_odds_gap(
        y_polars, pl.Series(decided), sensitive_features=sex_polars, sample_weight=pl.Series(weights)
    )
    assert found == expected
    crossed = pl.DataFrame({"sex": sex_polars, "young": table["age"] <= 30})
    rates = group_rates(y_polars, decided, sensitive_features=crossed)
    assert len(rates) == 4
    assert gcig_score(model, table, y_polars, sensitive_features=sex_polars) == gcig_score(
        model, X, y, sensitive_features=sex
    )


def test_evaluation(credit, in_polars):
    X, y, sex = credit
    table, y_polars, sex_polars = in_polars
    model = fitted_credit()
    expected = gcig.evaluate(model, X, y, sensitive_features=sex, n_bootstrap=20)
    assert gcig.evaluate(model, table, y_polars, sensitive_features=sex_polars, n_bootstrap=20) == expected


def test_audit(credit, in_polars):
    X, y, sex = credit
    table, y_polars, sex_polars = in_polars
    few = {"n_bootstrap": 20}
    ours = audit(fitted_credit(), table, y_polars, sensitive_features=sex_polars, **few).record
    expected = audit(fitted_credit(), X, y, sensitive_features=sex, **few).record
    assert ours.evaluation == expected.evaluation
    # The content is the same, whoever holds it.
    same = {"data_sha256": expected.subject.data_sha256, "created": expected.subject.created}
    assert dataclasses.replace(ours.subject, **same) == expected.subject


def test_a_lazy_frame_is_refused_with_the_way_out(in_polars):
    table, *_ = in_polars
    with pytest.raises(ValueError, match=r"\.collect\(\) first"):
        fitted_credit().predict(table.lazy())
