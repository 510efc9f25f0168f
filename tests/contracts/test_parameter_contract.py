"""Every parameter of every estimator, with hostile values: accepted, or an `InputError` that names it."""

import decimal
import fractions
import math

import numpy as np
import pandas as pd
import pytest
import torch

import gcig
from example_tables import QUICK, make_loans
from gcig.methods.registry import METHODS

LOANS = make_loans(60)
ESTIMATORS = {
    f"{key}-{task}": METHODS[key].estimator_for(task) for key in METHODS for task in METHODS[key].tasks
}


class NoText:
    def __repr__(self):
        raise RuntimeError("no text")


class NoComparison:
    __hash__ = None

    def __eq__(self, other):
        raise RuntimeError("no comparison")


HOSTILE = [
    None,
    True,
    False,
    *(-1, 0, 7, 2**31, 2**63, 10**400),
    *(1.5, -0.5, 1e308, math.nan, math.inf, -math.inf),
    *(fractions.Fraction(1, 3), decimal.Decimal("NaN"), 1j, np.float64(-1), np.array(3), torch.tensor(1)),
    *("", "x", "auto ", "cuda:99", "meta", "\x00", "x" * 10_000, b"x"),
    *([], [0], [1, -1], [[1]], (64, "a"), {}, {"a": 1}, {0: math.nan}, set(), range(10**9), slice(1)),
    *(np.array([1, 2]), np.array([]), pd.Series([1]), torch.tensor([1.0, 2.0]), pd.DataFrame()),
    *(object(), NoText(), NoComparison(), int, np.random.RandomState, np.random.default_rng(0)),
]


@pytest.mark.parametrize("key", ESTIMATORS)
def test_hostile_values_are_accepted_or_named(key):
    estimator = ESTIMATORS[key]
    for name in estimator().get_params(deep=False):
        for value in HOSTILE:
            model = estimator(**{name: value})
            message = name
            try:
                model.check_parameters()
            except gcig.InputError as error:
                message = str(error)
            assert name in message
            assert len(message) < 600


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "key",
    [
        "unconstrained-binary",
        *(pytest.param(k, marks=pytest.mark.slow) for k in ("lagrangian-binary", "fairx-binary")),
    ],
)
def test_values_that_are_accepted_can_be_fitted(key):
    """The check is complete: what it accepts does not fail later with an error of a library."""
    estimator = ESTIMATORS[key]
    inherited = (
        set()
        if key == "unconstrained-binary"
        else set(ESTIMATORS["unconstrained-binary"]().get_params(deep=False))
    )
    long = {"max_epochs", "patience", "verbose"}
    quick = {**QUICK, "max_epochs": 1, "hidden_sizes": (2,)}
    for name in sorted(set(estimator().get_params(deep=False)) - long - inherited):
        for value in HOSTILE:
            model = estimator(**{**quick, name: value})
            try:
                model.check_parameters()
            except gcig.InputError:
                continue
            message = name
            try:
                model.fit(LOANS.X, LOANS.y, **LOANS.groups)
            except gcig.InputError as error:
                message = str(error)
            except gcig.DivergenceError:
                pass
            assert name in message or name == "preprocessing", (value, message)


@pytest.mark.parametrize(
    ("name", "value"),
    [("random_state", "seed"), ("random_state", -1), ("random_state", 2**32), ("random_state", 1.5)],
)
def test_random_state_through_fit(name, value):
    model = gcig.FairXClassifier(**{**QUICK, name: value})
    with pytest.raises(gcig.InputError, match="random_state must be"):
        model.fit(LOANS.X, LOANS.y, **LOANS.groups)
