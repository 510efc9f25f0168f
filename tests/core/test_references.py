"""Cell means and moving averages against loops over cells; members that are drawn."""

import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gcig.core.references import (
    CellSums,
    GroupBaselines,
    GroupMembers,
    _identity_on,
    cell_sums,
    indicator,
    medoid,
    modal_member,
    typical_members,
)


def make_rows(n=40, groups=2, shape=(3,), seed=0, dtype=torch.float64):
    """Every cell has a row as long as n is at least twice the number of groups."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, *shape, generator=generator, dtype=dtype)
    order = torch.randperm(n, generator=generator)
    return x, (torch.arange(n) % 2)[order], (torch.arange(n) // 2 % groups)[order]


SHAPES = st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple)


@given(st.integers(0, 12), st.integers(2, 5), SHAPES, st.integers(0, 2**31))
def test_sums_equal_a_loop_over_cells(n, groups, shape, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, *shape, generator=generator, dtype=torch.float64)
    y = torch.randint(2, (n,), generator=generator)
    g = torch.randint(groups, (n,), generator=generator)
    found = cell_sums(x, y, g, n_groups=groups)
    assert found.sums.shape == found.means.shape == (2, groups, *shape)
    for label in range(2):
        for group in range(groups):
            rows = x[(y == label) & (g == group)]
            assert found.counts[label, group] == len(rows)
            torch.testing.assert_close(found.sums[label, group], rows.sum(0), rtol=0, atol=1e-13)
            mean = rows.mean(0) if len(rows) else torch.zeros(shape, dtype=torch.float64)
            torch.testing.assert_close(found.means[label, group], mean, rtol=0, atol=1e-13)


def test_means_of_more_rows_than_are_summed_at_once():
    x, y, g = make_rows(9000)
    found = GroupBaselines.from_data(x, y, g)
    torch.testing.assert_close(found.values, cell_sums(x, y, g, n_groups=2).means, rtol=1e-12, atol=1e-14)


def test_lengths_that_differ_are_named():
    x, y, g = make_rows(8)
    with pytest.raises(ValueError, match="one entry per row, not 8, 7 and 8"):
        GroupBaselines.from_data(x, y[:7], g)


def test_autocast_does_not_round_the_means():
    x, y, g = make_rows(dtype=torch.float32)
    inside, outside = (GroupBaselines.from_data(x, y, g, rate=1.0) for _ in range(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside.update(3 * x, y, g)
    outside.update(3 * x, y, g)
    assert torch.equal(inside.values, outside.values)


@pytest.mark.parametrize("groups", [2, 3])
def test_a_batch_with_all_cells_moves_them_as_one_without_some_does(groups):
    x, y, g = make_rows(groups=groups, dtype=torch.float32)
    baselines = GroupBaselines.from_data(x, y, g, rate=0.3)
    start = baselines.values.clone()
    sums = baselines.update(2 * x, y, g)
    torch.testing.assert_close(baselines.values, start.lerp(sums.means, 0.3))
    assert not baselines.n_empty.any()
    moved = baselines.values.clone()
    some = (y == 0) | (g == 0)
    sums = baselines.update(3 * x[some], y[some], g[some])
    torch.testing.assert_close(baselines.values[0], moved[0].lerp(sums.means[0], 0.3))
    assert torch.equal(baselines.values[1, 1:], moved[1, 1:])
    assert baselines.n_empty.tolist() == [[0] * groups, [0] + [1] * (groups - 1)]


def test_sums_of_two_processes_add_up_to_those_of_one():
    x, y, g = make_rows(41, groups=3)
    both = cell_sums(x[:17], y[:17], g[:17], n_groups=3) + cell_sums(x[17:], y[17:], g[17:], n_groups=3)
    one = cell_sums(x, y, g, n_groups=3)
    torch.testing.assert_close(both.means, one.means, rtol=1e-13, atol=1e-13)
    assert torch.equal(both.counts, one.counts)
    with pytest.raises(TypeError):
        one + 1


@pytest.mark.parametrize("name", ["labels", "groups"])
@pytest.mark.parametrize("code", [-1, 2])
def test_codes_out_of_range_do_not_end_up_in_another_cell(name, code):
    x, y, g = make_rows(8)
    codes = {"labels": y, "groups": g}
    codes[name][y.argmin() if code == 2 else y.argmax()] = code
    with pytest.raises(ValueError, match=f"{name} must be int64 codes from 0 to 1"):
        cell_sums(x, codes["labels"], codes["groups"], n_groups=2)


@pytest.mark.parametrize("shape", [(3,), (1, 4, 4), (5, 2)])
def test_start_from_the_means_of_all_rows(shape):
    x, y, g = make_rows(60, groups=7, shape=shape)
    baselines = GroupBaselines.from_data(x, y, g)
    assert baselines.values.shape == (2, 7, *shape)
    assert baselines.n_groups == 7
    for label in range(2):
        for group in range(7):
            expected = x[(y == label) & (g == group)].mean(0)
            torch.testing.assert_close(baselines.values[label, group], expected, rtol=1e-12, atol=1e-14)
    assert baselines.rate == 0.1  # as documented


def test_means_of_many_single_precision_rows_keep_their_digits():
    x, y, g = make_rows(4000, dtype=torch.float32)
    x = 1e4 + x
    found = GroupBaselines.from_data(x, y, g).values
    expected = torch.stack(
        [
            torch.stack([x[(y == label) & (g == group)].double().mean(0) for group in range(2)])
            for label in range(2)
        ]
    )
    assert found.dtype == torch.float32
    assert torch.equal(found, expected.float())


def test_an_empty_cell_has_no_baseline_to_start_from():
    x, y, g = make_rows(20)
    with pytest.raises(ValueError, match=r"no rows in the \(label, group\) cells \[\(0, 2\), \(1, 2\)\]"):
        GroupBaselines.from_data(x, y, g, n_groups=3)


@pytest.mark.parametrize("rate", [0.0, 0.1, 1.0])
def test_updates_equal_a_loop_over_cells(rate):
    x, y, g = make_rows(90, groups=3)
    baselines = GroupBaselines.from_data(x, y, g, rate=rate)
    expected, n_empty = baselines.values.clone(), torch.zeros(2, 3, dtype=torch.int64)
    for start in range(0, 90, 6):  # six rows cannot fill six cells for long
        part = slice(start, start + 6)
        baselines.update(x[part], y[part], g[part])
        for label in range(2):
            for group in range(3):
                rows = x[part][(y[part] == label) & (g[part] == group)]
                if len(rows):
                    mean = rows.mean(0)
                    expected[label, group] = (1 - rate) * expected[label, group] + rate * mean
                else:
                    n_empty[label, group] += 1
    torch.testing.assert_close(baselines.values, expected, rtol=1e-12, atol=1e-14)
    assert torch.equal(baselines.n_empty, n_empty)
    assert n_empty.sum() > 0


def test_a_cell_that_is_always_empty_stays_as_it_is():
    x, y, g = make_rows(30)
    baselines = GroupBaselines.from_data(x, y, g)
    before = baselines.values.clone()
    rows = (y == 1) & (g == 0)
    for _ in range(5):
        baselines.update(x[rows], y[rows], g[rows])
    for cell in [(0, 0), (0, 1), (1, 1)]:
        assert torch.equal(baselines.values[cell], before[cell])
    assert baselines.n_empty.tolist() == [[5, 5], [0, 5]]
    assert baselines.values.isfinite().all()


def test_two_processes_that_add_their_sums_stay_equal_to_one():
    x, y, g = make_rows(64)
    one = GroupBaselines.from_data(x, y, g, rate=0.3)
    many = copy.deepcopy(one)
    for start in range(0, 64, 16):
        rows, first, second = (slice(start + a, start + b) for a, b in [(0, 16), (0, 5), (5, 16)])
        one.update(x[rows], y[rows], g[rows])
        parts = [cell_sums(x[part], y[part], g[part], n_groups=2) for part in (first, second)]
        many.update_from(parts[0] + parts[1])
    torch.testing.assert_close(many.values, one.values, rtol=1e-13, atol=1e-15)


def test_update_returns_its_sums():
    x, y, g = make_rows(12)
    baselines = GroupBaselines.from_data(x, y, g)
    sums = baselines.update(x, y, g)
    assert isinstance(sums, CellSums)
    assert sums.counts.sum() == 12


def test_nothing_is_differentiated_through_them():
    x, y, g = make_rows(12)
    x.requires_grad_()
    baselines = GroupBaselines.from_data(x, y, g)
    baselines.update(x * 2, y, g)
    assert not baselines.values.requires_grad
    assert not list(baselines.parameters())


def test_the_baselines_of_each_rows_label_under_every_group():
    x, y, g = make_rows(20, groups=3, shape=(2, 2))
    baselines = GroupBaselines.from_data(x, y, g)
    found = baselines.of(y)
    assert found.shape == (3, 20, 2, 2)
    for group in range(3):
        for row in range(20):
            assert torch.equal(found[group, row], baselines.values[y[row], group])


def test_saved_loaded_pickled_and_copied_with_their_state():
    x, y, g = make_rows(20)
    baselines = GroupBaselines.from_data(x, y, g)
    baselines.update(x[:3], y[:3], g[:3])
    loaded = GroupBaselines(torch.zeros_like(baselines.values))
    loaded.load_state_dict(baselines.state_dict())
    for twin in (loaded, copy.deepcopy(baselines), pickle.loads(pickle.dumps(baselines))):
        assert torch.equal(twin.values, baselines.values)
        assert torch.equal(twin.n_empty, baselines.n_empty)
        twin.update(x, y, g)
        assert not torch.equal(twin.values, baselines.values)


def test_whole_numbers_have_baselines_that_are_not():
    x = torch.tensor([[1], [2], [4], [4], [0], [1], [2], [2]])
    y, g = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), torch.tensor([0, 0, 1, 1, 0, 0, 1, 1])
    baselines = GroupBaselines.from_data(x, y, g)
    assert baselines.values.flatten().tolist() == [1.5, 4.0, 0.5, 2.0]
    baselines.update(x, y, g)


@pytest.mark.parametrize("shape", [(2, 2), (2, 1, 4)])
def test_fewer_than_two_groups_are_refused(shape):
    with pytest.raises(ValueError, match="at least two groups"):
        GroupBaselines(torch.zeros(shape))


@pytest.mark.parametrize("rate", [-0.1, 1.5, float("nan")])
def test_a_rate_out_of_range_is_refused(rate):
    with pytest.raises(ValueError, match=r"rate must be in \[0, 1\]"):
        GroupBaselines(torch.zeros(2, 2, 3), rate=rate)


def test_repr_says_what_they_are_for():
    assert "labels=2, groups=3, inputs=(4,), rate=0.1" in repr(GroupBaselines(torch.zeros(2, 3, 4)))


def as_set(rows):
    return {tuple(row) for row in rows.flatten(1).tolist()}


@pytest.mark.parametrize("shape", [(3,), (2, 2)])
def test_members_are_rows_of_their_cell_and_all_are_drawn(shape):
    x, y, g = make_rows(n=30, groups=3, shape=shape)
    members = GroupMembers(x, y, g, n_members=4, random_state=1)
    assert members.values.shape == (2, 3, 4, *shape)
    drawn = {(label, group): set() for label in range(2) for group in range(3)}
    for _ in range(40):
        for label, group in drawn:
            drawn[label, group] |= as_set(members.values[label, group])
        members.update(x, y, g)
    for (label, group), rows in drawn.items():
        assert rows == as_set(x[(y == label) & (g == group)])


def test_each_member_of_a_cell_is_as_likely_as_the_others():
    x = torch.arange(12.0).unsqueeze(1)
    y, g = torch.tensor([0, 1] * 6), torch.tensor([0] * 8 + [1] * 4)
    members = GroupMembers(x, y, g, n_members=16)
    counts = torch.zeros(12)
    for _ in range(500):
        counts += torch.bincount(members.values.long().flatten(), minlength=12)
        members.update(x, y, g)
    expected = torch.where(g == 0, 0.25, 0.5) * 16 * 500
    assert ((counts - expected).abs() < 5 * expected.sqrt()).all()


def test_seed_determines_the_members():
    data = make_rows()
    first, same, other = (GroupMembers(*data, random_state=seed) for seed in (1, 1, 2))
    assert torch.equal(first.values, same.values)
    assert not torch.equal(first.values, other.values)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copies_of_members_draw_as_the_original_does(duplicate):
    data = make_rows()
    members = GroupMembers(*data, n_members=5)
    members.update(*data)
    twin = duplicate(members)
    for _ in range(3):
        assert torch.equal(twin.values, members.values)
        twin.update(*data)
        assert not torch.equal(twin.values, members.values)
        members.update(*data)


def test_deepcopy_shares_the_pool_and_follows_the_type_of_a_module():
    data = make_rows()
    members = GroupMembers(*data)
    twin = copy.deepcopy(members).float()
    assert twin._pool is members._pool
    twin.update(*data)
    assert twin.values.dtype == torch.float32
    assert members.values.dtype == torch.float64
    assert not members.state_dict()


def test_members_of_an_empty_cell_are_refused():
    x, y, g = make_rows()
    with pytest.raises(ValueError, match=r"no rows in the \(label, group\) cells \[\(1, 1\)\]"):
        GroupMembers(x, y, torch.where(y == 1, 0, g))


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("codes", [[0, 2, 1, 2], [2], [0, 0], []])
def test_indicators_of_codes(codes, on_gpu, monkeypatch):
    if on_gpu:
        monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True), raising=False)
    found = indicator(torch.tensor(codes, dtype=torch.int64), 3, "labels", torch.float64)
    assert found.tolist() == [[float(code == column) for column in range(3)] for code in codes]


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("codes", [[0, 3], [-1, 2], [3, 3], [-1]])
def test_codes_out_of_range_are_refused(codes, on_gpu, monkeypatch):
    """On a GPU before they are used as indices, where they would end the process."""
    if on_gpu:
        monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True), raising=False)
        monkeypatch.setattr("gcig.core.references._identity_on", None)
    with pytest.raises(ValueError, match="labels must be int64 codes from 0 to 2"):
        indicator(torch.tensor(codes), 3, "labels")


def test_a_matrix_that_was_made_in_inference_mode_can_be_trained_with():
    with torch.inference_mode():
        assert not _identity_on(torch.device("cpu"), 7, torch.float64).is_inference()


def test_a_mini_batch_counts_a_tenth_by_default():
    x, y, g = make_rows(8)
    assert GroupBaselines.from_data(x, y, g).rate == GroupBaselines(torch.zeros(2, 2, 3)).rate == 0.1


# --- Typical members ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), (2, 2)])
def test_typical_members_are_rows_of_their_cell_and_the_first_is_nearest_to_the_mean(shape):
    x, y, groups = make_rows(60, shape=shape)
    typical = typical_members(x, y, groups, n_groups=2)
    assert typical.shape == (2, 2, 2)
    for label in range(2):
        for group in range(2):
            own = ((y == label) & (groups == group)).nonzero().flatten()
            assert set(typical[label, group].tolist()) <= set(own.tolist())
            rows = x[own].flatten(1)
            distances = [float((row - rows.mean(0)).square().sum()) for row in rows]
            assert typical[label, group, 0] == own[distances.index(min(distances))]


def test_the_modal_member_has_the_most_frequent_categories_and_numbers_near_the_median():
    red, blue = [1.0, 0.0], [0.0, 1.0]
    members = torch.tensor([[*blue, 0.0], [*red, 9.0], [*red, 0.2], [*red, -8.0], [*blue, 0.1]])
    origin = torch.tensor([0, 0, 1])
    assert modal_member(members, origin) == 2  # red, and nearly the median of the numbers, 0.1
    assert modal_member(members[:1], origin) == 0
    members = torch.tensor([[0.0, 1, 0], [1.0, 0, 1], [1.1, 1, 0], [9.0, 0, 1], [1.2, 1, 0]])
    assert modal_member(members, torch.tensor([0, 1, 1])) == 2  # the median and the mode
    assert medoid(members) == 4  # the mean is (2.46, 0.6, 0.4)
    assert modal_member(torch.ones(3, 2)) == 0  # columns without spread


def test_the_modal_member_has_the_mode_of_a_block_of_many_categories():
    codes = torch.tensor([0, 3, 1, 3, 2, 3, 0])
    members = torch.nn.functional.one_hot(codes, 4).double()
    assert modal_member(members, torch.zeros(4, dtype=torch.int64)) == 1  # the first of the most frequent


def test_a_number_a_quarter_of_a_deviation_from_the_median_is_not_usual():
    first = torch.tensor([-7.0, -6, -1, -1, -1, 0, 1, 1, 1, 6, 7])  # the deviation is 4, the median 0
    second = torch.tensor([0.0, 9, -7, -6, 6, 1.8, 0.6, 7, -8, -9, -1.2])
    assert modal_member(torch.stack([first, second], 1)) == 5  # or 6, if its 1 were usual as well


def test_typical_members_come_first_in_every_draw():
    x, y, groups = make_rows(60)
    typical = typical_members(x, y, groups, n_groups=2)
    members = GroupMembers(x, y, groups, n_members=4, typical=typical)
    drawn = []
    for _ in range(5):
        assert torch.equal(members.values[:, :, :2], x[typical])
        drawn.append(members.values[:, :, 2:].clone())
        members.update(x, y, groups)
    assert not all(torch.equal(drawn[0], other) for other in drawn[1:])
    few = GroupMembers(x, y, groups, n_members=1, typical=typical)
    assert torch.equal(few.values[:, :, 0], x[typical[..., 0]])


@pytest.mark.parametrize("seed", range(5))
def test_numbers_are_usual_within_a_quarter_of_a_deviation_from_the_median(seed):
    numbers = torch.randn(21, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    distances = (numbers - numbers.median(0).values).abs() / numbers.std(0, correction=0)
    usual = (distances < 0.25).sum(1)
    best = min((usual == usual.max()).nonzero().flatten().tolist(), key=lambda i: float(distances[i].sum()))
    assert modal_member(numbers) == best
