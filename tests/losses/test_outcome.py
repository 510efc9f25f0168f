"""The outcome terms against brute force, their gradients, and batches with missing cells."""

from itertools import combinations

import pytest
import torch
from gcig.losses.outcome import (
    OUTCOME_LOSSES,
    DemographicParityLoss,
    EqualizedOddsLoss,
    EqualOpportunityLoss,
    pairwise_gap,
    rate_disparity,
)
from hypothesis import given, settings
from hypothesis import strategies as st

CONDITIONS = {"equalized_odds": [[0], [1]], "equal_opportunity": [[1]], "demographic_parity": [[0, 1]]}
NAMES = pytest.mark.parametrize("name", list(OUTCOME_LOSSES))


def make_batch(n=60, n_groups=2, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, generator=generator, dtype=dtype)
    labels = torch.randint(0, 2, (n,), generator=generator)
    groups = torch.randint(0, n_groups, (n,), generator=generator)
    return logits, labels, groups


def brute_force(name, logits, labels, groups, weights=None):
    """Loops over conditions, groups and pairs, with Python floats."""
    rows = list(
        zip(
            torch.sigmoid(logits).tolist(),
            labels.tolist(),
            groups.tolist(),
            [1.0] * len(logits) if weights is None else weights.tolist(),
            strict=True,
        )
    )
    loss = 0.0
    for wanted in CONDITIONS[name]:
        rates = []
        for group in set(groups.tolist()):
            cell = [(p, w) for p, y, g, w in rows if g == group and y in wanted and w > 0]
            if cell:
                rates.append(sum(p * w for p, w in cell) / sum(w for _, w in cell))
        gaps = [abs(a - b) for a, b in combinations(rates, 2)]
        loss += sum(gaps) / len(gaps) if gaps else 0.0
    return loss


@NAMES
@pytest.mark.parametrize("n_groups", [1, 2, 3, 7])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_brute_force(name, n_groups, weighted):
    logits, labels, groups = make_batch(n_groups=n_groups)
    weights = torch.rand(60, generator=torch.Generator().manual_seed(1)).double() if weighted else None
    loss = OUTCOME_LOSSES[name]()(logits, labels, groups, sample_weight=weights)
    assert loss.item() == pytest.approx(brute_force(name, logits, labels, groups, weights), abs=1e-14)
    assert loss.shape == ()


@NAMES
@settings(max_examples=60)
@given(
    rows=st.lists(
        st.tuples(
            st.floats(-30, 30), st.integers(0, 1), st.integers(0, 4), st.sampled_from([0.0, 0.5, 1.0, 3.0])
        ),
        min_size=1,
        max_size=25,
    )
)
def test_any_batch_equals_brute_force_with_finite_gradient(name, rows):
    logits, labels, groups, weights = (torch.tensor(column) for column in zip(*rows, strict=True))
    logits = logits.double().requires_grad_()
    loss = OUTCOME_LOSSES[name]()(logits, labels, groups, sample_weight=weights)
    expected = brute_force(name, logits.detach(), labels, groups, weights)
    assert loss.item() == pytest.approx(expected, abs=1e-12)
    loss.backward()
    assert logits.grad.isfinite().all()
    assert not logits.grad[weights == 0].any()


@NAMES
@pytest.mark.parametrize("n_groups", [2, 3, 7])
def test_gradients(name, n_groups):
    logits, labels, groups = make_batch(n=40, n_groups=n_groups, seed=3)
    loss = OUTCOME_LOSSES[name](n_groups=n_groups)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, labels, groups), logits)
    assert torch.autograd.gradgradcheck(lambda z: loss(z, labels, groups), logits)


def test_known_values():
    logits = torch.tensor([0.1, 0.3, 0.9, 0.4], dtype=torch.float64).logit()
    labels, groups = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    assert EqualizedOddsLoss()(logits, labels, groups).item() == pytest.approx(0.2 + 0.5)
    assert EqualOpportunityLoss()(logits, labels, groups).item() == pytest.approx(0.5)
    assert DemographicParityLoss()(logits, labels, groups).item() == pytest.approx(0.15)


@NAMES
def test_group_names_do_not_matter(name):
    logits, labels, groups = make_batch(n_groups=5)
    renamed = torch.tensor([3, 0, 4, 1, 2])[groups]
    loss = OUTCOME_LOSSES[name]()
    assert loss(logits, labels, renamed).item() == pytest.approx(
        loss(logits, labels, groups).item(), abs=1e-14
    )


def test_two_group_path_equals_the_general_one():
    logits, labels, groups = make_batch()
    two = EqualizedOddsLoss(n_groups=2).membership(labels, groups)
    three = EqualizedOddsLoss(n_groups=3).membership(labels, groups)
    assert two.shape == (2, 2, 60)
    assert three.shape == (2, 3, 60)
    assert rate_disparity(logits, two).item() == pytest.approx(
        rate_disparity(logits, three).item(), abs=1e-14
    )


@pytest.mark.parametrize("n_groups", [2, 3])
def test_an_empty_cell_drops_out(n_groups):
    logits, labels, groups = make_batch(n_groups=n_groups)
    labels[groups == 0] = 0  # group 0 has no positives
    loss = EqualizedOddsLoss(n_groups)(logits, labels, groups).item()
    rates = [logits[(labels == 0) & (groups == g)].sigmoid().mean() for g in range(n_groups)]
    negatives = sum(abs(a - b) for a, b in combinations(rates, 2)) / (n_groups * (n_groups - 1) / 2)
    rates = [logits[(labels == 1) & (groups == g)].sigmoid().mean() for g in range(1, n_groups)]
    positives = abs(rates[0] - rates[1]) if n_groups == 3 else 0.0
    assert loss == pytest.approx(float(negatives + positives), abs=1e-14)


@NAMES
@pytest.mark.parametrize("n_groups", [1, 2, 4])
@pytest.mark.parametrize("n", [0, 1, 5])
def test_without_pairs_the_loss_is_zero_with_a_graph(name, n_groups, n):
    logits = torch.linspace(-3, 3, n).requires_grad_()
    loss = OUTCOME_LOSSES[name](n_groups)(logits, torch.arange(n) % 2, torch.zeros(n, dtype=torch.long))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(logits.grad, torch.zeros(n))


@NAMES
def test_equal_rates_have_zero_gradient_and_extreme_logits_a_finite_one(name):
    logits = torch.zeros(8, requires_grad=True)
    labels, groups = torch.arange(8) % 2, torch.arange(8) // 2 % 2
    OUTCOME_LOSSES[name]()(logits, labels, groups).backward()
    assert not logits.grad.any()
    extreme = torch.tensor([1e4, -1e4] * 4, requires_grad=True)
    OUTCOME_LOSSES[name]()(extreme, labels, groups).backward()
    assert extreme.grad.isfinite().all()


def test_columns_of_a_membership_made_once_give_the_loss_of_a_mini_batch():
    logits, labels, groups = make_batch(n=200, n_groups=3)
    loss = EqualizedOddsLoss(n_groups=3)
    membership = loss.membership(labels, groups)
    for rows in torch.randperm(200, generator=torch.Generator().manual_seed(0)).split(64):
        expected = loss(logits[rows], labels[rows], groups[rows])
        assert torch.equal(rate_disparity(logits[rows], membership[..., rows]), expected)


def test_column_vectors_and_label_types_are_equal():
    logits, labels, groups = make_batch(dtype=torch.float32)
    loss = EqualizedOddsLoss()
    expected = loss(logits, labels, groups)
    assert torch.equal(loss(logits[:, None], labels[:, None], groups[:, None]), expected)
    for dtype in (torch.bool, torch.int8, torch.uint8, torch.float32, torch.float64):
        assert torch.equal(loss(logits, labels.to(dtype), groups), expected)
    assert torch.equal(loss(logits, labels, groups.to(torch.uint8)), expected)


@NAMES
@pytest.mark.parametrize("n_groups", [2, 3])
def test_half_precision_and_autocast_compute_in_float32(name, n_groups):
    logits, labels, groups = make_batch(n=2000, n_groups=n_groups, dtype=torch.float32)
    loss = OUTCOME_LOSSES[name]()
    half = logits.bfloat16()
    expected = loss(half.double(), labels, groups).item()
    assert loss(half, labels, groups).dtype == torch.float32
    assert loss(half, labels, groups).item() == pytest.approx(expected, abs=1e-6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = loss(logits, labels, groups)
    assert torch.equal(inside, loss(logits, labels, groups))


@NAMES
@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0:RuntimeWarning")  # torch's own
def test_compiles_to_one_graph(name, n_groups):
    logits, labels, groups = make_batch(n_groups=n_groups)
    logits.requires_grad_()
    loss = OUTCOME_LOSSES[name](n_groups=n_groups)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert compiled(logits, labels, groups).item() == pytest.approx(
        loss(logits, labels, groups).item(), abs=1e-14
    )
    (gradient,) = torch.autograd.grad(compiled(logits, labels, groups), logits)
    (expected,) = torch.autograd.grad(loss(logits, labels, groups), logits)
    torch.testing.assert_close(gradient, expected)


def test_has_no_state():
    loss = EqualizedOddsLoss(n_groups=3)
    assert not list(loss.parameters())
    assert not loss.state_dict()
    assert repr(loss) == "EqualizedOddsLoss(n_groups=3)"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"logits": torch.zeros(4, 2)},
            ValueError,
            r"logits must have shape \(n,\) or \(n, 1\), not \(4, 2\)",
        ),
        (
            {"logits": torch.zeros(5)},
            ValueError,
            "labels and logits must have the same number of rows, not 4 and 5",
        ),
        ({"groups": torch.zeros(3).long()}, ValueError, "groups and labels .* not 3 and 4"),
        ({"groups": torch.zeros(4)}, TypeError, "groups must be integers .* torch.float32"),
        (
            {"groups": torch.tensor([0, 1, 2, 1])},
            ValueError,
            "groups must lie between 0 and 1, but range from 0 to 2",
        ),
        (
            {"groups": torch.tensor([0, 1, -1, 1])},
            ValueError,
            "groups must lie between 0 and 1, but range from -1 to 1",
        ),
        ({"labels": torch.tensor([0, 1, 2, 1])}, ValueError, "labels must be 0 or 1"),
        ({"labels": torch.tensor([0, 1, 0.5, 1])}, ValueError, "labels must be 0 or 1"),
        ({"labels": torch.tensor([0, 1, torch.nan, 1])}, ValueError, "labels must be 0 or 1"),
        ({"labels": [0, 1, 0, 1]}, TypeError, "labels must be a torch.Tensor, not list"),
        ({"labels": torch.zeros(4, device="meta")}, ValueError, "labels and logits must be on one device"),
        ({"sample_weight": torch.tensor([1, 1, -1, 1])}, ValueError, "sample_weight must be finite"),
        ({"sample_weight": torch.tensor([1, 1, torch.inf, 1])}, ValueError, "sample_weight must be finite"),
        ({"sample_weight": torch.ones(3)}, ValueError, "sample_weight and labels .* not 3 and 4"),
    ],
)
def test_errors_name_the_argument(change, error, message):
    batch = {
        "logits": torch.zeros(4),
        "labels": torch.tensor([0, 1, 0, 1]),
        "groups": torch.tensor([0, 0, 1, 1]),
    }
    with pytest.raises(error, match=message):
        EqualizedOddsLoss(n_groups=2)(**(batch | change))


def test_other_errors():
    with pytest.raises(ValueError, match="n_groups must be at least 1, not 0"):
        EqualizedOddsLoss(n_groups=0)
    with pytest.raises(ValueError, match=r"membership must have shape \(conditions, groups, 4\)"):
        rate_disparity(torch.zeros(4), torch.ones(4, 4))
    with pytest.raises(
        ValueError, match="groups must lie between 0 and n_groups - 1, but range from -2 to 0"
    ):
        EqualizedOddsLoss()(torch.zeros(2), torch.zeros(2), torch.tensor([-2, 0]))


def test_running_rates_of_decisions_are_fair_if_decisions_are():
    """The soft rates of the groups differ, their decisions do not: only the soft rates carry a gradient."""
    logits = torch.tensor([2.0, 0.1, 0.1, 2.0, -3.0, -0.1], requires_grad=True)
    labels, groups = torch.tensor([1, 1, 0, 1, 0, 0]), torch.tensor([0, 0, 0, 1, 0, 1])
    decided = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    loss = EqualizedOddsLoss(2, temperature=0.3, momentum=0.5, of_decisions=True)
    fpr = decided[[2, 4]].mean() - decided[5]
    assert loss(logits, labels, groups).item() == pytest.approx(float(fpr))
    loss(logits, labels, groups).backward()
    assert logits.grad[[2, 4, 5]].abs().sum() > 0
    soft = EqualizedOddsLoss(2, temperature=0.3, momentum=0.5)
    assert soft(logits, labels, groups).item() != pytest.approx(float(fpr))
    higher = EqualizedOddsLoss(2, cut=1.0, momentum=0.5, of_decisions=True)
    others = torch.tensor([2.0, 2.0, 0.1, 2.0, -3.0, -0.1])  # above the cut are the three rows with label 1
    assert higher(others, labels, groups).item() == 0


def test_running_rates_are_averages_whose_gradient_is_that_of_the_mini_batch():
    """A cell without rows keeps its average, and the first rate of a cell is its average."""
    loss, label = DemographicParityLoss(3, momentum=0.75), torch.ones(2)
    first = torch.tensor([0.2, 0.6], dtype=torch.float64).logit()
    assert loss(first, label, torch.tensor([0, 1])).item() == pytest.approx(0.4)
    logits = torch.tensor([0.4, 0.9], dtype=torch.float64).logit().requires_grad_()
    value = loss(logits, label, torch.tensor([0, 2]))
    rates = [0.75 * 0.2 + 0.25 * 0.4, 0.6, 0.9]
    assert value.item() == pytest.approx(sum(abs(a - b) for a, b in combinations(rates, 2)) / 3)
    value.backward()
    assert logits.grad.tolist() == pytest.approx([-2 / 3 * 0.4 * 0.6, 2 / 3 * 0.9 * 0.1])


def test_cut_and_temperature_move_and_sharpen_the_decision():
    logits, labels, groups = make_batch()
    found = EqualizedOddsLoss(cut=0.5, temperature=0.2)(logits, labels, groups)
    assert found.item() == pytest.approx(EqualizedOddsLoss()((logits - 0.5) / 0.2, labels, groups).item())
    assert repr(EqualizedOddsLoss(cut=0.5, temperature=0.2)) == "EqualizedOddsLoss(cut=0.5, temperature=0.2)"


def test_differences_under_the_smoothness_count_quadratically():
    two, three = torch.tensor([[0.5, 0.4]]), torch.tensor([[0.5, 0.4, 0.1]])
    assert pairwise_gap(two, torch.ones(1, 2), 0.2).item() == pytest.approx(0.1**2 / (2 * 0.2))
    expected = (0.025 + (0.4 - 0.1) + (0.3 - 0.1)) / 3
    assert pairwise_gap(three, torch.ones(1, 3), 0.2).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": 0.0}, "temperature must be a positive number, not 0.0"),
        ({"temperature": float("inf")}, "temperature must be a positive number, not inf"),
        ({"momentum": 1.0}, "momentum must be at least 0 and less than 1, not 1.0"),
        ({"momentum": -0.1}, "momentum must be at least 0"),
        ({"momentum": 0.5}, "momentum needs n_groups"),
    ],
)
def test_impossible_options_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        EqualizedOddsLoss(**wrong)


def test_values_are_not_checked_if_that_is_switched_off():
    assert EqualizedOddsLoss(1, validate=False)(torch.zeros(1), torch.tensor([3]), torch.tensor([0])) == 0


def test_membership_has_as_many_groups_as_the_largest_code_says():
    labels, groups = torch.tensor([0, 1, 1]), torch.tensor([0, 2, 1])
    assert EqualizedOddsLoss().membership(labels, groups).shape == (2, 3, 3)
    assert EqualizedOddsLoss(5).membership(labels, groups).shape == (2, 5, 3)
    assert EqualizedOddsLoss().membership(labels[:0], groups[:0]).shape == (2, 1, 0)
