"""Blocks of encoded columns, and the columns that reveal the group."""

import pytest
import torch
from torch.nn.functional import one_hot

from gcig.core.columns import find_blocks, protected_attributes


def dummies(codes, n_levels):
    return one_hot(codes, n_levels).double()


def make_numbers(n=60, count=1):
    return torch.randn(n, count, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


ROWS = torch.arange(60)
FIRST, SECOND = dummies(ROWS % 3, 3), dummies(ROWS // 7 % 4, 4)


def blocks_of(*parts, origin=None):
    rows = torch.cat([part.view(60, -1) for part in parts], dim=1)
    return find_blocks(rows, torch.arange(rows.shape[1]) if origin is None else origin).tolist()


def test_dummies_between_numbers_are_one_block():
    assert blocks_of(make_numbers(), FIRST, make_numbers()) == [0, 1, 1, 1, 2]


def test_neighbouring_blocks_are_told_apart():
    assert blocks_of(FIRST, SECOND, FIRST) == [0] * 3 + [1] * 4 + [2] * 3


def test_standardised_dummies_are_recognised():
    scaled = (FIRST - FIRST.mean(0)) / FIRST.std(0)
    assert blocks_of(scaled, make_numbers()) == [0, 0, 0, 1]


@pytest.mark.parametrize("position", [1, 2])
def test_level_that_does_not_occur_may_lie_inside_a_block(position):
    columns = list(FIRST.T)
    columns.insert(position, torch.zeros(60, dtype=torch.float64))
    assert blocks_of(*columns, make_numbers()) == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_constant_columns_begin_no_block(value):
    constant = torch.full((60,), value, dtype=torch.float64)
    assert blocks_of(constant, FIRST, constant) == [0, 1, 1, 1, 2]
    assert blocks_of(constant, constant) == [0, 1]


def test_binary_columns_that_overlap_or_leave_rows_out_stay_apart():
    overlapping = torch.stack([ROWS % 2, ROWS % 3 == 0], dim=1).double()
    assert blocks_of(overlapping) == [0, 1]
    assert blocks_of(FIRST[:, :2], make_numbers()) == [0, 1, 2]  # the reference level was dropped


def test_binary_column_before_a_block_is_not_part_of_it():
    assert blocks_of((ROWS % 2).double(), FIRST) == [0, 1, 1, 1]


def test_one_exception_in_many_rows_separates_columns():
    columns = dummies(torch.arange(100_000) % 2, 2)
    assert find_blocks(columns, torch.arange(2)).tolist() == [0, 0]
    columns[54_321] = 1
    assert find_blocks(columns, torch.arange(2)).tolist() == [0, 1]


def test_one_hot_blocks_of_the_encoder_stay_as_they_are():
    origin = torch.tensor([0, 0, 0, 1, 2, 2, 2])
    assert blocks_of(FIRST, make_numbers(), FIRST, origin=origin) == origin.tolist()
    gaps = torch.tensor([0, 0, 0, 2, 5, 5, 5])
    assert blocks_of(FIRST, make_numbers(), FIRST, origin=gaps) == origin.tolist()


def protected(groups, *parts, origin):
    rows = torch.cat([part.view(len(groups), -1) for part in parts], dim=1)
    found = protected_attributes(rows, groups, torch.tensor(origin))
    return [column for each in found for column in each.columns.tolist()]


def test_categories_and_codes_of_the_group_are_protected():
    groups = ROWS % 2
    fine = dummies(ROWS % 4, 4)  # four levels, each in one group
    parts = (make_numbers(), dummies(groups, 2), groups.double(), fine, FIRST)
    origin = [0, 1, 1, 2, *[3] * 4, *[4] * 3]
    assert protected(groups, *parts, origin=origin) == list(range(1, 8))


def test_columns_that_say_little_about_the_group_are_not_protected():
    groups = ROWS % 2
    nearly = groups.clone()
    nearly[0] = 1
    constant = torch.ones(60, dtype=torch.float64)
    assert protected(groups, nearly.double(), constant, make_numbers(), origin=[0, 1, 2]) == []


def test_values_of_few_rows_reveal_nothing():
    groups = ROWS % 2
    assert protected(groups, (ROWS // 2 + 30 * groups).double(), origin=[0]) == []


@pytest.mark.parametrize(("rows", "found"), [(60, [0]), (59, [])])
def test_ten_rows_per_value_are_enough(rows, found):
    values = ROWS[:rows] % 6  # each value in one of two groups
    assert protected(values % 2, values.double(), origin=[0]) == found


@pytest.mark.parametrize(("n_values", "found"), [(32, [0]), (33, [])])
def test_numbers_of_many_values_are_measurements(n_values, found):
    values = torch.arange(20 * n_values) % n_values
    assert protected(values % 2, values.double(), origin=[0]) == found
    levels = list(range(n_values))
    assert protected(values % 2, dummies(values, n_values), origin=[0] * n_values) == levels


def test_sorted_tables_are_looked_at_as_a_whole():
    groups = (torch.arange(100_000) >= 60_000).long()
    assert protected(groups, (torch.arange(100_000) % 2).double(), groups.double(), origin=[0, 1]) == [1]


def test_crossed_attributes_are_found_one_by_one():
    sex, race = ROWS % 2, ROWS // 2 % 3
    groups = 3 * sex + race
    rows = torch.cat([make_numbers().view(60, -1), dummies(race, 3), sex.double().view(60, 1)], dim=1)
    by_race, by_sex = protected_attributes(rows, groups, torch.tensor([0, 1, 1, 1, 2]))
    assert by_race.columns.tolist() == [1, 2, 3]
    assert by_race.levels.tolist() == [0, 1, 2, 0, 1, 2]
    assert by_sex.columns.tolist() == [4]
    assert by_sex.levels.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_group_without_rows_has_no_level():
    groups = 2 * (ROWS % 2)
    (found,) = protected_attributes(groups.double().view(60, 1), groups, torch.tensor([0]))
    assert found.levels.tolist() == [0, -1, 1]


def test_a_number_with_an_indicator_is_no_category():
    groups = ROWS % 2
    number, indicator = (ROWS % 4).double(), (ROWS % 5 == 0).double()  # each number occurs in one group
    assert protected(groups, number, indicator, origin=[0, 0]) == [0, 1]
