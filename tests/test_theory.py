"""The examples of ``docs/theory.rst`` and ``docs/reason_gap.rst``, recomputed with the package."""

import math

import pytest
import torch
from torch import nn

from gcig.core.attribution import IntegratedGradients, Score
from gcig.core.gap import reason_gap, spread
from gcig.core.gcig import disparity, normalise
from gcig.core.task import Binary, Classes
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
    score = Score.of(Formula(formula), Binary(), torch.ones(len(rows)))
    return IntegratedGradients("gauss_legendre", 4).attribute(score, rows, paths)


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


def squared_parts(explanations, groups, *, sampled=False):
    """Return the squared reason gap and its squared varying part of one label; references are in order."""
    member = torch.eye(2, **DOUBLE)[:, groups]
    cells = torch.zeros(explanations.shape[1], dtype=torch.long)
    return [float(each) for each in reason_gap(explanations, member, cells, sampled=sampled)]


@pytest.mark.parametrize(("strength", "expected"), [(0, 1), (1, 0.497), (10, 0.098), (100, 0.011)])
def test_explanations_that_cancel_lower_gcig_but_not_the_reason_gap(strength, expected):
    rows = torch.tensor([[v, s, s] for v in (-2.0, 0.0, 0.0, 2.0) for s in (-1.0, 1.0)], **DOUBLE)
    means = torch.stack([rows[:4].mean(0), rows[4:].mean(0)])

    def formula(x):
        return x[:, 0] + strength * (x[:, 1] - x[:, 2])

    torch.testing.assert_close(formula(rows), rows[:, 0])
    found = integrated_gradients(formula, rows, means)
    assert float(disparity(found).mean()) == pytest.approx(expected, abs=5e-4)
    assert squared_parts(found, [0, 1]) == pytest.approx([4, 0], abs=1e-9)


def test_columns_of_a_difference_of_explanations_add_up_to_the_same_for_everyone(cells):
    found = integrated_gradients(cubic, cells[0], cells[1])
    expected = cubic(cells[1]) - cubic(cells[1]).mean()
    torch.testing.assert_close((found.mean(0) - found).sum(-1), expected[:, None].expand(20, 20))


def additive(rows):
    return rows[:, 0] ** 3 - 2 * rows[:, 1] + rows[:, 2] ** 2


@pytest.mark.parametrize("sampled", [False, True])
def test_the_varying_part_of_an_additive_model_is_zero(cells, sampled):
    people, references = cells[0, :10], torch.cat([cells[0, 10:], cells[1]])
    groups = [0] * 10 + [1] * 20
    gap, varying = squared_parts(integrated_gradients(additive, people, references), groups, sampled=sampled)
    assert gap > 0.01
    assert abs(varying) < 1e-12
    _, of_interaction = squared_parts(
        integrated_gradients(cubic, people, references), groups, sampled=sampled
    )
    assert abs(of_interaction) > 1e-6


def test_the_gap_is_the_common_part_and_the_varying_part(cells):
    found = integrated_gradients(cubic, cells[0], cells.mean(1))
    difference = found[0] - found[1]
    common = float(difference.mean(0).square().sum())
    rest = float((difference - difference.mean(0)).square().sum(1).mean())
    gap, varying = squared_parts(found, [0, 1])
    assert gap == pytest.approx(common + rest)
    assert varying == pytest.approx(rest * 20 / 19)  # the degree of freedom that the mean takes


def test_one_standard_has_no_varying_part_and_two_standards_have_nothing_else():
    values = torch.linspace(-2, 2, 50, **DOUBLE)
    rows = torch.stack([values.repeat(2), column(-1, 1).flatten().repeat_interleave(50)], 1)
    means = torch.stack([rows[:50].mean(0), rows[50:].mean(0)])
    for formula, shown in (
        (lambda x: x.sum(1), [1.26, 0]),
        (lambda x: (2 + x[:, 1]) * x[:, 0], [0.63, 0.63]),
    ):
        found = integrated_gradients(formula, rows, means) / spread(formula(rows))
        squares = squared_parts(found, [0, 1])
        assert [max(0, each) ** 0.5 for each in squares] == pytest.approx(shown, abs=5e-3)
    expected = torch.stack([-rows[:, 0], rows[:, 0]], 1)
    torch.testing.assert_close(integrated_gradients(formula, rows, means).diff(dim=0)[0], -expected)


def test_the_estimate_without_products_with_itself_is_zero_on_average_if_groups_do_not_differ(random):
    members = torch.randn(2000, 2, 6, 3, generator=random, **DOUBLE)  # samples, groups, references, columns
    groups = [0] * 6 + [1] * 6
    person = torch.zeros(1, 3, **DOUBLE)
    estimates, naive = [], []
    for sample in members:
        found = person - sample.flatten(0, 1)[:, None]  # explanations of x_1 + x_2 + x_3
        estimates.append(squared_parts(found, groups, sampled=True)[0])
        naive.append(squared_parts(torch.stack([found[:6].mean(0), found[6:].mean(0)]), [0, 1])[0])
    standard_error = float(torch.tensor(estimates).std()) / math.sqrt(2000)
    assert abs(sum(estimates) / 2000) < 4 * standard_error
    assert sum(naive) / 2000 == pytest.approx(3 * 2 / 6, rel=0.1)  # columns x groups / references


def test_the_score_of_a_class_ignores_what_all_outputs_share_and_classes_that_nobody_has(random):
    labels = torch.tensor([0, 1, 1, 2, 0, 1])
    task = Classes.of(labels, n_classes=4)  # nobody has class 3
    outputs = torch.randn(6, 4, generator=random)
    score = task.score(outputs, labels)
    torch.testing.assert_close(task.score(outputs + torch.randn(6, 1, generator=random), labels), score)
    torch.testing.assert_close(task.score(outputs + torch.tensor([0.0, 0, 0, 7]), labels), score)
    two = Classes.of(torch.tensor([0, 1, 1]))
    logit = outputs[:3, 1] - outputs[:3, 0]
    torch.testing.assert_close(
        two.score(outputs[:3, :2], torch.tensor([0, 1, 1])), logit * torch.tensor([-1, 1, 1])
    )
