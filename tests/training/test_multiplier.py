"""Multipliers: monotone in the error, within their bounds, and able to hold a quantity at its limit."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gcig.training.objective import Multiplier

ERRORS = st.lists(st.floats(-3, 3), min_size=1, max_size=30)


def run(errors, start=1.0, **options):
    multiplier = Multiplier(start, **{"rate": 0.1, **options})
    values = []
    for error in errors:
        multiplier.update(torch.tensor(error))
        values.append(multiplier.value.item())
    return values


@given(errors=ERRORS, larger=st.floats(0, 2), kick=st.sampled_from([0.0, 1.0]))
def test_larger_errors_never_give_a_smaller_value(errors, larger, kick):
    pairs = zip(run(errors, kick=kick), run([each + larger for each in errors], kick=kick), strict=True)
    assert all(one <= other * (1 + 1e-5) for one, other in pairs)


@given(errors=ERRORS)
def test_without_an_error_it_stays_and_with_one_it_moves_by_at_most_the_rate(errors):
    assert run([0.0, 0.0], start=0.7) == pytest.approx([0.7, 0.7])
    steps = torch.tensor([1.0, *run(errors)]).log().diff()
    expected = 0.1 * torch.tensor(errors).clamp(-1, 1)
    torch.testing.assert_close(steps, expected, rtol=0, atol=1e-5)


def test_bounds():
    assert run([1.0] * 200)[-1] == pytest.approx(1e3)
    values = run([-1.0] * 200 + [1.0] * 10)
    assert values[199] == pytest.approx(1e-3)
    assert values[-1] == pytest.approx(1e-3 * 2.71828, rel=1e-3)  # it does not wind up


@pytest.mark.parametrize("start", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("kick", [0.0, 1.0])
def test_it_holds_a_quantity_at_its_limit(start, kick):
    """A quantity that falls with the weight and follows it slowly, measured with noise."""
    generator, limit, state = torch.Generator().manual_seed(0), 0.2, torch.tensor(1.0)
    multiplier, seen = Multiplier(start, rate=0.05, kick=kick), []
    for _ in range(3000):
        state = state + 0.05 * (1 / (1 + multiplier.value) - state)
        multiplier.update((state + 0.01 * torch.randn((), generator=generator)) / limit - 1)
        seen.append(state.item())
    assert torch.tensor(seen[-300:]).mean().item() == pytest.approx(limit, rel=0.05)
    assert multiplier.value.item() == pytest.approx(4.0, rel=0.2)  # 1 / (1 + 4) is the limit


def test_the_default_dtype_changes_nothing():
    torch.set_default_dtype(torch.float64)
    try:
        assert Multiplier(1.0, rate=0.1).value.dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
