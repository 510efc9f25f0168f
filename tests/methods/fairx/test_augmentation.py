import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gcig.core.batch import GroupedBatch
from gcig.core.references import GroupBaselines
from gcig.methods.fairx.augmentation import fill_up


def table(n=60, shape=(3,), n_groups=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, *shape, generator=generator)
    labels = torch.randint(0, 2, (n,), generator=generator)
    groups = torch.randint(0, n_groups, (n,), generator=generator)
    return GroupedBatch(inputs, labels, groups)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_rows_themselves_come_first_and_unchanged():
    rows = table()
    filled = fill_up(rows, 500, seeded())
    assert len(filled.rows) == len(filled.origins) == 500
    assert torch.equal(filled.rows.inputs[:60], rows.inputs)
    assert torch.equal(filled.origins[:60], torch.arange(60))


@pytest.mark.parametrize("total", [0, 59, 60])
def test_a_table_that_is_large_enough_gets_none(total):
    rows = table()
    filled = fill_up(rows, total, seeded())
    for ours, theirs in zip(vars(filled.rows).values(), vars(rows).values(), strict=True):
        assert torch.equal(ours, theirs)


def test_filling_up_leaves_the_rows_given_alone():
    rows = table()
    before = rows.inputs.clone()
    fill_up(rows, 500, seeded()).rows.inputs.add_(1)
    assert torch.equal(rows.inputs, before)


def test_origins_give_labels_groups_and_whatever_else_belongs_to_a_row():
    rows = table(n_groups=3)
    filled = fill_up(rows, 500, seeded())
    assert torch.equal(filled.rows.labels, rows.labels[filled.origins])
    assert torch.equal(filled.rows.groups, rows.groups[filled.origins])
    assert filled.origins[60:].unique().numel() > 50  # every row may be one


@pytest.mark.parametrize("shape", [(3,), (2, 4), ()], ids=["tables", "windows", "numbers"])
def test_a_made_up_row_lies_between_its_origin_and_one_of_the_same_cell_nearer_to_the_former(shape):
    rows = table(shape=shape, n_groups=3)
    filled = fill_up(rows, 300, seeded())
    points, flat = rows.inputs.double().flatten(1) if shape else rows.inputs.double()[:, None], None
    flat = filled.rows.inputs.double().reshape(300, -1)
    for made_up, origin in zip(flat[60:], filled.origins[60:], strict=True):
        mates = (rows.labels == rows.labels[origin]) & (rows.groups == rows.groups[origin])
        ways = points[mates] - points[origin]
        moved = made_up - points[origin]
        shares = (ways @ moved) / ways.square().sum(1).clamp_min(1e-12)
        error = (moved - shares[:, None] * ways).abs().amax(1)
        fits = (error < 1e-5) & (shares > -1e-5) & (shares < 0.5 + 1e-5)
        assert fits.any()


def test_the_means_of_cells_are_kept():
    rows = table(200)
    filled = fill_up(rows, 50_000, seeded()).rows
    before, after = (
        GroupBaselines.from_data(each.inputs, each.labels, each.groups).values for each in (rows, filled)
    )
    assert (before - after).abs().max() < 0.03  # of columns with a standard deviation of one


def test_cells_stay_as_large_as_they_were():
    rows = table(200)
    filled = fill_up(rows, 50_000, seeded()).rows
    shares = [torch.bincount(2 * each.groups + each.labels) / len(each) for each in (rows, filled)]
    torch.testing.assert_close(shares[0], shares[1], rtol=0, atol=0.01)


@given(n=st.integers(1, 12), n_groups=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=50)
def test_no_cell_is_too_small(n, n_groups, seed):
    rows = table(n, n_groups=n_groups, seed=seed)
    filled = fill_up(rows, 40, seeded(seed)).rows
    for cell in {(int(label), int(group)) for label, group in zip(rows.labels, rows.groups, strict=True)}:
        ours, theirs = (
            each.inputs[(each.labels == cell[0]) & (each.groups == cell[1])] for each in (filled, rows)
        )
        assert (ours >= theirs.amin(0) - 1e-6).all()
        assert (ours <= theirs.amax(0) + 1e-6).all()


def test_equal_generators_give_equal_rows_and_others_do_not():
    rows = table()
    one, again, other = (fill_up(rows, 500, seeded(seed)).rows.inputs for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_the_type_of_the_inputs_is_kept():
    rows = table()
    double = GroupedBatch(rows.inputs.double(), rows.labels, rows.groups)
    assert fill_up(double, 500, seeded()).rows.inputs.dtype == torch.float64
