"""The examples of ``docs/theory.rst``, recomputed with the functions of the package."""

import math

import pytest
import torch
from torch import nn

from gcig.core.attribution import attributions
from gcig.core.disparity import disparity, normalise
from gcig.metrics import equalized_odds_gap

DOUBLE = {"dtype": torch.float64}


class Formula(nn.Module):
    """Module that evaluates a formula of the rows."""

    def __init__(self, formula):
        super().__init__()
        self.formula = formula

    def forward(self, rows):
        return self.formula(rows)


def integrated_gradients(formula, rows, references):
    """Return attributions of shape (references, rows, columns); exact for polynomials up to degree 8."""
    paths = references[:, None].expand(-1, *rows.shape)
    return attributions(Formula(formula), rows, paths, rule="gauss_legendre", n_steps=4).values


def row_disparities(formula, rows, cells):
    """Return the disparity of each row; attributions are averaged over the references in each cell."""
    return disparity(torch.stack([integrated_gradients(formula, rows, cell).mean(0) for cell in cells]))


def column(*values):
    return torch.tensor(values, **DOUBLE)[:, None]


def mean_of(cell):
    return cell.mean(0, keepdim=True)


@pytest.fixture
def random():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def cells(random):
    """The members of a cell of each of two groups, on three columns."""
    return torch.randn(2, 20, 3, generator=random, **DOUBLE) + torch.tensor([[[0.0]], [[0.7]]])


def cubic(rows):
    return rows[:, 0] * rows[:, 1] - 0.3 * rows[:, 2] ** 3 + rows[:, 1]


def test_the_difference_of_attributions_adds_up_to_the_difference_of_logits_at_the_references(cells):
    means = cells.mean(1)
    found = integrated_gradients(cubic, cells[0], means)
    expected = cubic(means[1:]) - cubic(means[:1])
    torch.testing.assert_close((found[0] - found[1]).sum(-1), expected.expand(20))
    shares = normalise(found)
    bound = (shares[0].sum(-1) - shares[1].sum(-1)).abs() / math.sqrt(3)
    assert (disparity(found) >= bound - 1e-9).all()
    assert (disparity(found) <= 2).all()


def test_scale_and_offset_of_the_logit_do_not_matter(cells):
    means = cells.mean(1)
    plain = disparity(integrated_gradients(cubic, cells[0], means))
    other = disparity(integrated_gradients(lambda rows: 5 * cubic(rows) - 2, cells[0], means))
    torch.testing.assert_close(plain, other)


def test_a_constant_moved_into_a_one_hot_block_changes_raw_attributions_but_not_their_sum():
    rows = torch.eye(3, **DOUBLE)
    means = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]], **DOUBLE)
    weights = torch.tensor([1.0, -2.0, 0.5], **DOUBLE)
    plain = integrated_gradients(lambda x: x @ weights, rows, means)
    moved = integrated_gradients(lambda x: x @ (weights + 4) - 4, rows, means)
    torch.testing.assert_close(rows @ weights, rows @ (weights + 4) - 4)
    assert not torch.allclose(plain, moved)
    torch.testing.assert_close(plain.sum(-1), moved.sum(-1))


def test_a_linear_model_has_a_closed_form(cells, random):
    weights, means = torch.randn(3, generator=random, **DOUBLE), cells.mean(1)
    found = integrated_gradients(lambda rows: rows @ weights, cells[0], means)
    torch.testing.assert_close(found, weights * (cells[0] - means[:, None]))
    torch.testing.assert_close(found[0] - found[1], (weights * (means[1] - means[0])).expand(20, 3))
    beyond = (means[0] + 2.5 * (means[1] - means[0]))[None]  # on the line, not between the references
    assert float(disparity(integrated_gradients(lambda rows: rows @ weights, beyond, means))) < 1e-9


def test_one_column_scores_twice_the_share_of_rows_between_the_means():
    values = row_disparities(lambda x: x[:, 0], column(-1, 0.5, 2, 3), (column(0), column(1)))
    assert values.tolist() == pytest.approx([0, 2, 0, 0])
    assert float(values.mean()) == pytest.approx(0.5)


@pytest.mark.parametrize("copies", [1, 2, 5])
def test_copies_of_a_column_divide_its_disparity_by_the_root_of_their_number(copies):
    cells = [column(at).expand(-1, copies) for at in (0.0, 1.0)]
    found = row_disparities(lambda x: x.mean(1), column(0.5).expand(-1, copies), cells)
    assert float(found) == pytest.approx(2 / math.sqrt(copies))


def test_members_and_means_agree_for_linear_models_before_and_after_normalising_the_average(cells, random):
    weights = torch.randn(3, generator=random, **DOUBLE)
    each = integrated_gradients(lambda rows: rows @ weights, cells[0], cells[1])
    mean = integrated_gradients(lambda rows: rows @ weights, cells[0], mean_of(cells[1]))[0]
    torch.testing.assert_close(each.mean(0), mean)
    assert not torch.allclose(normalise(each).mean(0), normalise(mean))


def test_members_and_means_differ_by_curvature_times_covariance_for_quadratic_models(cells, random):
    half = torch.randn(3, 3, generator=random, **DOUBLE)
    curvature, members = half + half.T, cells[1]

    def quadratic(rows):
        return 0.5 * ((rows @ curvature) * rows).sum(1) + rows[:, 0]

    centred = members - members.mean(0)
    covariance = centred.T @ centred / len(members)
    found = integrated_gradients(quadratic, cells[0], members).mean(0)
    mean = integrated_gradients(quadratic, cells[0], mean_of(members))[0]
    torch.testing.assert_close(found, mean - 0.5 * (curvature * covariance).sum(1).expand(20, 3))
    offset = quadratic(mean_of(members)) - quadratic(members).mean()
    torch.testing.assert_close((found - mean).sum(-1), offset.expand(20))


def outcome_gap(logits, cells):
    """Return the equalized odds gap; logits and cells are ordered by label 1 first, then by group."""
    size = len(logits) // len(cells)
    labels = [label for label, _ in cells for _ in range(size)]
    groups = [group for _, group in cells for _ in range(size)]
    return equalized_odds_gap(labels, (logits > 0).long().numpy(), sensitive_features=groups)


CELLS = [(1, 0), (1, 1), (0, 0), (0, 1)]


def test_equal_error_rates_do_not_imply_equal_reasons():
    first, second = (torch.tensor(rows, **DOUBLE) for rows in ([[3, 0], [1, 0]], [[0, 3], [0, 1]]))
    rows = torch.cat([first, second])
    found = row_disparities(lambda x: x.sum(1), rows, (mean_of(first), mean_of(second)))
    assert found[:2].tolist() == pytest.approx([0.4 * math.sqrt(2), math.sqrt(20) / 3])
    mirrored = row_disparities(lambda x: x.sum(1), -rows, (mean_of(-first), mean_of(-second)))
    assert float(torch.cat([found, mirrored]).mean()) == pytest.approx(1.028, abs=5e-4)
    assert outcome_gap(torch.cat([rows, -rows]).sum(1), CELLS) == 0


def test_equal_reasons_do_not_imply_equal_error_rates():
    first, second = column(0.5, 1.5), column(-1, 3)
    rows = torch.cat([first, second])
    found = row_disparities(lambda x: x[:, 0], rows, (mean_of(first), mean_of(second)))
    assert found.tolist() == [0, 0, 0, 0]
    assert outcome_gap(torch.cat([rows, -rows]).flatten(), CELLS) == pytest.approx(1)


def test_equal_reasons_do_not_imply_counterfactual_fairness():
    flipped = 0
    for label in (1, -1):
        people = label * column(1, 5)
        cells = [people + group for group in (0, 1)]
        found = row_disparities(lambda x: x[:, 0] + 0.5, torch.cat(cells), [mean_of(cell) for cell in cells])
        assert found.tolist() == pytest.approx([0, 0, 0, 0])
        before, after = (cell.flatten() + 0.5 for cell in cells)
        assert (after - before == 1).all()
        flipped += int(((before > 0) != (after > 0)).sum())
    assert flipped == 1


MEMBERS = tuple(
    torch.tensor([[v, s] for v in values for s in (-1.0, 1.0)], **DOUBLE)
    for values in ((-3.0, 1.0), (-1.0, 3.0))
)
ROWS = torch.cat(MEMBERS)
MEANS = tuple(mean_of(cell) for cell in MEMBERS)
PLAIN = 0.4 * math.sqrt(2)


def lifted(strength):
    return lambda rows: rows.sum(1) + strength * (rows[:, 1] ** 2 - 1)


def test_the_plain_model_scores_the_same_with_means_and_members():
    assert float(row_disparities(lifted(0), ROWS, MEANS).mean()) == pytest.approx(PLAIN)
    assert float(row_disparities(lifted(0), ROWS, MEMBERS).mean()) == pytest.approx(PLAIN)


@pytest.mark.parametrize(("strength", "expected"), [(9, 0.219), (99, 0.027), (999, 0.003)])
def test_moving_the_logit_at_the_references_lowers_gcig_without_changing_a_logit(strength, expected):
    torch.testing.assert_close(lifted(strength)(ROWS), lifted(0)(ROWS))
    assert float(row_disparities(lifted(strength), ROWS, MEANS).mean()) == pytest.approx(expected, abs=5e-4)
    assert float(row_disparities(lifted(strength), ROWS, MEMBERS).mean()) == pytest.approx(PLAIN)


def test_flattening_the_model_between_the_references_gives_gcig_0():
    def shrunk(rows):  # attributions of a sum of functions of one column each are differences of these
        return torch.stack([rows[..., 0] - rows[..., 0].clamp(-1, 1), rows[..., 1]], -1)

    def score(cells):
        values = torch.stack([(shrunk(ROWS) - shrunk(cell)[:, None]).mean(0) for cell in cells])
        return float(disparity(values).mean())

    assert score(MEANS) == 0
    assert score(MEMBERS) == pytest.approx((math.sqrt(2) / 4 + 1) / 2)
