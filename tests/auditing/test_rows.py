"""Described rows of a linear model by hand, columns that reveal the group, and neighbours by a plain loop."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from gcig.adapters import Outputs, adapt
from gcig.auditing.rows import RowDescriber, _as_text, find_neighbours, revealing_columns
from gcig.auditing.sources import Batch
from gcig.core.definition import Definition
from gcig.metrics.reasons import Comparison
from gcig.metrics.sample import EncodedRows, Sample

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
ROWS = EncodedRows(X[:4], np.array([0, 1, 1, 0]), np.array([0, -1] * 2), np.array([7, 8, 9, 4]), None)
OUTPUTS = Outputs(np.array([0.2, 0.5, 0.9, 0.1]), np.array([0.0, 0.5, 1.0, 0.49]))


def describer(**settings) -> RowDescriber:
    adapted = adapt(MODEL, X)
    sample = Sample.check(adapted, X, LABELS, np.array(["f", "m"])[np.arange(40) % 2], None, None)
    comparison = Comparison.prepare(
        adapted, sample.baselines, Definition(), sample.rows, 40, compared=sample.compared
    )
    return RowDescriber(comparison, ("f", "m"), ("no", "yes"), **settings)


def describe(by: RowDescriber, table=X[:4], **settings):
    return by.describe(Batch(table, None, ROWS, list("abcd")), OUTPUTS, **settings)


def test_rows_of_a_linear_model_are_described_by_its_products() -> None:
    by = describer(threshold=0.8, shows_groups=True)
    for i, row in enumerate(describe(by, table=X.reshape(40, 3, 1)[:4])):
        references = by.comparison.baselines[ROWS.labels[i]]
        values = WEIGHTS * (ROWS.inputs[i] - references)
        logit = float(ROWS.inputs[i] @ WEIGHTS + MODEL.intercept_[0])
        assert (row.row, row.position, row.role) == ("abcd"[i], ROWS.positions[i], "")
        assert (row.score, row.label, row.label_source) == (
            OUTPUTS.scores[i],
            ["no", "yes"][ROWS.labels[i]],
            "given",
        )
        assert (row.decision, row.favourable) == (("yes", True) if i in (1, 2) else ("no", False))
        assert row.group == ["f", None][i % 2]
        assert row.logit == pytest.approx(logit)
        assert row.margin == pytest.approx(logit - math.log(4))
        expected = references @ WEIGHTS + MODEL.intercept_[0]
        assert row.references == pytest.approx(dict(zip("fm", expected, strict=True)))
        units = values / np.abs(values).sum(axis=1, keepdims=True)
        squares = np.square(units[0] - units[1])
        assert row.disparity == pytest.approx(math.sqrt(squares.sum()))
        spread = np.abs(values[0] - values[1])
        assert [each.column for each in row.columns] == [f"x{j}" for j in np.argsort(-spread)]
        for each in row.columns:
            j = int(each.column[1])
            assert each.attributions == pytest.approx({"f": values[0, j], "m": values[1, j]})
            assert each.difference == pytest.approx(spread[j])
            assert each.share == pytest.approx(squares[j] / squares.sum())
            assert each.value == ""


def test_entries_are_those_of_the_table_unless_they_are_hidden() -> None:
    table = pd.DataFrame({"x0": [1.5, None, 2.0, 3.0], "x1": list("pqrs")})
    found = describe(describer(favourable=0, hidden=frozenset({"x1"})), table=table)
    assert [row.favourable for row in found] == [True, False, False, True]
    entries = [{each.column: each.value for each in row.columns} for row in found]
    assert [each["x0"] for each in entries] == ["1.5", "missing", "2", "3"]
    assert all((each["x1"], each["x2"]) == ("not shown", "") for each in entries)


def test_neighbours_have_a_role_and_a_group_and_no_position() -> None:
    found = describe(describer(), roles=["one", "two", "three", "four"])
    assert [(row.position, row.role, row.group) for row in found] == [
        (-1, "one", "f"),
        (-1, "two", None),
        (-1, "three", "f"),
        (-1, "four", None),
    ]


def test_rows_without_names_are_named_by_position_and_their_group_is_hidden() -> None:
    found = describer().describe(Batch(X[:4], None, ROWS), OUTPUTS)
    assert [row.row for row in found] == ["7", "8", "9", "4"]
    assert all(row.group is None for row in found)


def test_known_attributions_are_used_and_ties_ordered_by_size() -> None:
    values = np.array([[[1.0, 5.0, -2.0]] * 4, [[1.0, 5.0, -2.0]] * 4])
    first = describe(describer(), values=values)[0]
    assert [each.column for each in first.columns] == ["x1", "x2", "x0"]  # no column differs
    assert first.references == pytest.approx(dict.fromkeys("fm", first.logit - 4.0))
    assert first.disparity == 0
    assert all(math.isnan(each.share) for each in first.columns)


def test_rows_of_a_label_without_references_have_no_reasons() -> None:
    by = describer()
    unknown = by.comparison.baselines.copy()
    unknown[1] = np.nan
    found = describe(replace(by, comparison=replace(by.comparison, baselines=unknown)))
    assert [math.isnan(row.disparity) for row in found] == [False, True, True, False]
    assert math.isnan(found[1].columns[0].difference)
