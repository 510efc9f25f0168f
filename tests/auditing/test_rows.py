"""Described rows of a linear model by hand, columns that reveal the group, and neighbours by a plain loop."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from gcig.adapters import Outputs
from gcig.auditing.rows import _as_text, find_neighbours, revealing_columns

RNG = np.random.default_rng(0)
PEOPLE = pd.DataFrame(
    {
        "pay": np.where(np.arange(80) % 9 == 0, np.nan, RNG.normal(size=80).round(1)),
        "job": np.where(np.arange(80) % 7 == 0, None, RNG.choice(["a", "b", "c"], 80)),
        "owner": RNG.random(80) < 0.5,
        "same": 3.0,
        "empty": np.nan,
    }
)
GROUPS, ACCEPTED = RNG.integers(0, 3, 80), RNG.integers(0, 2, 80)


def distance(one: pd.Series, other: pd.Series, spans: dict[str, float]) -> float:
    """Gower's distance, entry by entry."""
    total = 0.0
    for name in PEOPLE:
        a, b = one[name], other[name]
        if pd.isna(a) or pd.isna(b):
            total += pd.isna(a) != pd.isna(b)
        elif name in spans:
            total += min(1.0, abs(a - b) / spans[name])
        else:
            total += a != b
    return total / PEOPLE.shape[1]


def test_neighbours_are_the_nearest_of_a_plain_loop() -> None:
    rows, others = PEOPLE[:5], PEOPLE[5:].reset_index(drop=True)
    groups, accepted = GROUPS[5:], ACCEPTED[5:]
    spans = {"pay": float(np.ptp(np.nanquantile(others["pay"], [0.05, 0.95]))), "same": 1.0}
    found = find_neighbours(rows, others, groups, accepted, [0, 2])
    for i in range(5):
        assert set(found[i]) == {(0, 0), (0, 1), (2, 0), (2, 1)}
        for (group, decision), (place, apart) in found[i].items():
            assert (groups[place], accepted[place]) == (group, decision)
            own = np.flatnonzero((groups == group) & (accepted == decision))
            expected = [distance(rows.iloc[i], others.iloc[j], spans) for j in own]
            assert apart == pytest.approx(min(each for each in expected if each > 0))


def test_rows_that_are_the_same_are_no_neighbours() -> None:
    one, zeros = PEOPLE[:1], np.zeros(2, dtype=np.int64)
    assert find_neighbours(one, pd.concat([one, one]), zeros, zeros, [0]) == [{}]
    assert find_neighbours(one, PEOPLE[1:3], zeros, zeros, [1]) == [{}]  # nobody of that group


def test_the_distance_in_a_single_column_is_its_difference() -> None:
    people = pd.DataFrame({"pay": [0.0, *np.linspace(0, 10, 101)]})
    zeros = np.zeros(101, dtype=np.int64)
    found = find_neighbours(people[:1], people[1:], zeros, 1 - zeros, [0])
    assert found == [{(0, 1): (1, pytest.approx(0.1 / 9))}]  # nine tenths of the range are counted


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "missing"),
        (math.nan, "missing"),
        (pd.NaT, "missing"),
        (0.12345678, "0.123457"),
        (2.0, "2"),
        (7, "7"),
        (pd.Timestamp("2018-09-08"), "2018-09-08"),
        (pd.Timestamp("2018-09-08 07:30"), "2018-09-08 07:30:00"),
    ],
)
def test_entries_as_text(value: object, text: str) -> None:
    assert _as_text(value) == text


def test_columns_that_reveal_the_group() -> None:
    table = PEOPLE.assign(code=np.array(["x", "y", "z"])[GROUPS])
    assert revealing_columns(table, GROUPS) == {"code"}


# --- described rows ------------------------------------------------------------------------------------

X = RNG.normal(size=(40, 3)) + np.outer(np.arange(40) % 2, [1.0, 0.0, 0.5])
LABELS = (np.arange(40) // 2 + RNG.integers(0, 2, 40)) % 2
MODEL = LogisticRegression().fit(X, LABELS)
WEIGHTS = MODEL.coef_[0]
OUTPUTS = Outputs(np.array([0.2, 0.5, 0.9, 0.1]), np.array([0.0, 0.5, 1.0, 0.49]))
