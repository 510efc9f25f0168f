import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from example_tables import make_loans
from gcig._arguments import InputError, InputWarning
from gcig.core.references import Rows
from gcig.methods.training_data import resample, split_rows
from gcig.tables.check import check_table
from gcig.tables.splitting import hold_out_rows

LOANS = make_loans(200)
CPU = torch.device("cpu")


def checked(sample_weight=None, class_weight=None, *, y=LOANS.y, groups=LOANS.sex):
    return check_table(LOANS.X, y, groups, sample_weight, class_weight=class_weight)


def prepared(table, fraction=0.2, seed=0):
    """Return the rows, those for training, and those held out; a row's first entry is twice its number."""
    encoded = np.arange(len(table.frame) * 2, dtype=np.float32).reshape(-1, 2)
    held_out = hold_out_rows(table, fraction, seed)
    return split_rows(table, encoded, torch.tensor(table.labels.codes), CPU, held_out)


def test_a_checked_table_has_codes_and_names():
    table = checked()
    assert table.labels.classes == (0, 1)
    assert table.groups.names == ("female", "male")
    assert np.array_equal(table.labels.codes, LOANS.y)
    assert np.array_equal(table.groups.codes, LOANS.sex == "male")
    assert table.weights is None


def test_groups_are_required():
    with pytest.raises(InputError, match=r"sensitive_features is missing: fit needs the group of every row"):
        checked(groups=None)


def test_lengths_and_indexes_must_agree():
    with pytest.raises(InputError, match="y has 199"):
        checked(y=LOANS.y[:-1])
    with pytest.raises(InputError, match="indexes of X and sensitive_features disagree"):
        checked(groups=LOANS.sex.sample(frac=1, random_state=0))


def test_the_group_among_the_columns_is_warned_of():
    with pytest.warns(InputWarning, match="reveal the protected attribute .*'sex'"):
        check_table(LOANS.X.assign(sex=LOANS.sex), LOANS.y, LOANS.sex, None)


def test_rows_of_weight_zero_are_left_out():
    weights = np.ones(200)
    weights[::5] = 0
    counted = np.flatnonzero(weights)
    table = checked(weights)
    pd.testing.assert_frame_equal(table.frame, LOANS.X.iloc[counted])
    assert np.array_equal(table.labels.codes, LOANS.y.iloc[counted])
    assert np.array_equal(table.groups.codes, LOANS.sex.iloc[counted] == "male")
    assert table.weights.tolist() == [1.0] * len(counted)


def test_a_cell_whose_rows_all_have_weight_zero_is_empty():
    weights = ~((LOANS.y == 1) & (LOANS.sex == "male"))
    with pytest.warns(InputWarning, match=r"No rows in \(label 1, group 'male'\)"):
        checked(weights.astype(float))


def test_groups_that_share_no_label_are_refused():
    with pytest.raises(InputError, match="No label occurs in two groups"):
        checked(y=(LOANS.sex == "male").astype(int))


def test_balanced_classes_have_scikit_learns_weights():
    table = checked(class_weight="balanced")
    expected = compute_class_weight("balanced", classes=np.array([0, 1]), y=LOANS.y)
    assert np.allclose(table.weights, expected[LOANS.y])


def test_balanced_classes_weigh_the_same_after_sample_weights():
    weights = np.random.default_rng(0).uniform(0.5, 2, 200)
    table = checked(weights, "balanced")
    assert table.weights[LOANS.y == 0].sum() == pytest.approx(table.weights[LOANS.y == 1].sum())


def test_class_weights_by_name_multiply_sample_weights():
    answers = LOANS.y.map({0: "no", 1: "yes"})
    table = checked(np.full(200, 2.0), {"yes": 3.0}, y=answers)
    assert np.array_equal(table.weights, np.where(LOANS.y == 1, 6.0, 2.0))


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ({2: 1.0}, "classes that y does not have: 2; y has 0, 1"),
        ({"1": 1.0}, "classes that y does not have: '1'"),
    ],
)
def test_other_class_weights_are_refused(class_weight, message):
    with pytest.raises(InputError, match=message):
        checked(class_weight=class_weight)


def test_a_part_is_held_out_of_every_cell():
    everything, training, validation = prepared(checked())
    assert len(training) + len(validation) == len(everything) == 200
    rows = torch.cat([training.inputs, validation.inputs])
    assert torch.equal(rows[rows[:, 0].argsort()], everything.inputs)
    for label in (0, 1):
        for group in (0, 1):
            whole, held = (
                int(((part.labels == label) & (part.groups == group)).sum())
                for part in (everything, validation)
            )
            assert held == pytest.approx(0.2 * whole, abs=1)


def test_labels_groups_and_weights_stay_with_their_rows():
    weights = np.random.default_rng(0).uniform(0.5, 2, 200)
    everything, *parts = prepared(checked(weights))
    assert torch.allclose(everything.weights, torch.tensor(weights / weights.mean(), dtype=torch.float32))
    for part in parts:
        rows = (part.inputs[:, 0] / 2).long()
        assert torch.equal(part.labels, everything.labels[rows])
        assert torch.equal(part.groups, everything.groups[rows])
        assert torch.equal(part.weights, everything.weights[rows])


def test_the_split_follows_the_seed():
    one, again, other = (prepared(checked(), seed=seed)[2].inputs for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_without_a_fraction_all_rows_are_trained_on():
    everything, training, validation = prepared(checked(), fraction=None)
    assert validation is None
    assert torch.equal(training.inputs, everything.inputs)


def test_the_unit_of_weights_does_not_matter():
    weights = np.random.default_rng(0).uniform(0.5, 2, 200)
    assert torch.equal(prepared(checked(weights))[0].weights, prepared(checked(2 * weights))[0].weights)


@pytest.mark.parametrize("fraction", [0.05, 0.5, 0.95])
def test_training_keeps_a_row_of_every_cell(fraction):
    y, groups = [0, 0, 0, 1, 1, 1] * 2, ["a"] * 6 + ["b"] * 6
    _, training, _ = prepared(check_table(LOANS.X[:12], y, groups, None), fraction)
    cells = set(zip(training.labels.tolist(), training.groups.tolist(), strict=True))
    assert len(cells) == 4


def test_numbers_are_held_out_evenly():
    numbers = np.random.default_rng(0).normal(size=200)
    table = check_table(LOANS.X, numbers, LOANS.sex, None, numbers=True)
    _, training, validation = prepared(table, fraction=0.5)
    gap = np.quantile(training.labels, [0.1, 0.5, 0.9]) - np.quantile(validation.labels, [0.1, 0.5, 0.9])
    assert np.abs(gap).max() < 0.4


def test_too_few_rows_to_hold_out_give_a_warning():
    with pytest.warns(InputWarning, match="One row only"):
        table = check_table([[1.0], [2.0], [3.0], [4.0]], [0, 1, 0, 1], ["a", "a", "b", "b"], None)
    with pytest.warns(InputWarning, match=r"4 rows are too few to hold out.*trained on all rows"):
        _, training, validation = prepared(table)
    assert validation is None
    assert len(training) == 4


def test_rows_are_repeated_in_proportion_to_their_weights():
    rng = np.random.default_rng(0)
    weights = torch.from_numpy(rng.uniform(0, 3, 1000))
    rows = Rows(torch.zeros(1000, 1), torch.arange(1000), torch.zeros(1000), weights)
    counts = torch.bincount(resample(rows).labels, minlength=1000)
    assert counts.sum() == 1000
    assert (counts - weights / weights.mean()).abs().max() <= 1
    assert resample(rows).weights is None
    whole = Rows(rows.inputs, rows.labels, rows.groups)
    assert resample(whole) is whole
