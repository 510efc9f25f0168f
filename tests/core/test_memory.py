"""Chunks under a budget: the same values and gradients as in one piece, in any cut."""

import copy
from functools import partial

import pytest
import torch
from gcig.core.layered import LayeredNetwork
from gcig.core.memory import (
    Chunks,
    accumulate,
    compute_attributions,
    memory_budget,
    parameters_of,
    plan_chunks,
)
from gcig.core.quadrature import Integration
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gcig.models.mlp import make_mlp

WHOLE = Chunks(10**9)


def make_problem(activation="silu", n=11, groups=3, columns=4):
    generator = torch.Generator().manual_seed(0)
    module = make_mlp(columns, (6, 5), activation, generator=generator).double()
    inputs = torch.randn(n, columns, generator=generator, dtype=torch.float64)
    references = torch.randn(groups, n, columns, generator=generator, dtype=torch.float64)
    return module, inputs, references


def backward(values, parameters):
    return torch.autograd.grad(values.square().sum(), parameters, allow_unused=True, materialize_grads=True)


def make_method(module, path):
    if path == "general":
        return Integration(None, "gauss_legendre", 5)
    return Integration(LayeredNetwork.recognise(module), path, 4)


@pytest.mark.parametrize("path", ["general", "gauss_legendre", "secant", "romberg"])
@pytest.mark.parametrize("chunks", [Chunks(1), Chunks(4), Chunks(11), Chunks(1, 2), Chunks(3, 5)])
def test_chunked_equals_unchunked_in_value_and_gradient(path, chunks):
    module, inputs, references = make_problem()
    method = make_method(module, path)
    if path != "general":
        chunks = Chunks(chunks.rows)
    parameters = list(module.parameters())
    whole = compute_attributions(module, inputs, references, method, WHOLE, True)
    cut = compute_attributions(module, inputs, references, method, chunks, True)
    torch.testing.assert_close(cut, whole, rtol=1e-12, atol=1e-14)
    for found, expected in zip(backward(cut, parameters), backward(whole, parameters), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13)
    plain = compute_attributions(module, inputs, references, method, chunks, False)
    assert not plain.requires_grad
    torch.testing.assert_close(plain, whole.detach(), rtol=1e-12, atol=1e-14)
    slopes = compute_attributions(module, inputs, references, method, chunks, False, slopes=True)
    torch.testing.assert_close((inputs - references) * slopes, plain, rtol=1e-11, atol=1e-13)


def test_the_score_gets_its_gradient_in_chunks_too():
    module, inputs, references = make_problem()
    backbone, head = nn.Sequential(*list(module)[:4]), nn.Linear(5, 1).double()
    method, parameters = Integration(None, "midpoint", 3), parameters_of(backbone, head)
    assert len(parameters) == 6
    whole, cut = (
        backward(compute_attributions(backbone, inputs, references, method, chunks, True, head), parameters)
        for chunks in (WHOLE, Chunks(2))
    )
    assert cut[-2].abs().sum() > 0
    for found, expected in zip(cut, whole, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13)


def test_the_backward_pass_recomputes_in_evaluation_mode():
    module, inputs, references = make_problem()
    module = nn.Sequential(module[0], nn.BatchNorm1d(6).double(), nn.Dropout(0.5), *list(module)[1:])
    module(inputs)  # statistics to be found unchanged
    statistics = copy.deepcopy(dict(module.named_buffers()))
    method, parameters = Integration(None, "midpoint", 3), list(module.parameters())
    whole, cut = (
        backward(compute_attributions(module, inputs, references, method, chunks, True), parameters)
        for chunks in (WHOLE, Chunks(2))
    )
    for found, expected in zip(cut, whole, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13)
    assert all(torch.equal(value, statistics[name]) for name, value in module.named_buffers())
    assert all(part.training for part in module.modules())


def test_the_backward_pass_recomputes_in_the_precision_of_the_forward_pass():
    module, inputs, references = (each.float() for each in make_problem())
    method, parameters = Integration(None, "midpoint", 3), list(module.parameters())
    gradients = []
    for chunks in (WHOLE, Chunks(2)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            values = compute_attributions(module, inputs, references, method, chunks, True)
        gradients.append(backward(values, parameters))  # outside, as torch recommends
    for found, expected in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-3)


def test_frozen_parameters_get_none():
    module, inputs, references = make_problem()
    module[0].requires_grad_(False)
    values = compute_attributions(
        module, inputs, references, Integration(None, "midpoint", 2), Chunks(3), True
    )
    values.sum().backward()
    assert module[0].weight.grad is None
    assert module[2].weight.grad is not None


@settings(max_examples=60)
@given(
    n_steps=st.integers(1, 9),
    groups=st.integers(2, 7),
    columns=st.integers(1, 50),
    point_bytes=st.integers(1, 10**6),
    max_bytes=st.integers(1, 10**8),
)
def test_plans_fit_or_are_as_small_as_can_be(n_steps, groups, columns, point_bytes, max_bytes):
    references = torch.empty(groups, 1, columns, device="meta")
    rows, parts = plan_chunks(
        Integration(None, "midpoint", n_steps), references, 1000, max_bytes, point_bytes
    )
    assert rows >= 1
    assert 1 <= parts <= n_steps
    assert parts == 1 or rows == 1
    nodes = -(-n_steps // parts)
    needed = rows * groups * (nodes * point_bytes + 40 * columns)
    assert needed <= max_bytes or (rows == 1 and nodes == 1)


def test_chunks_are_as_large_as_the_bound_allows():
    """A row takes 240 bytes under both groups, and 200 more at each of the four nodes."""
    references = torch.empty(2, 1, 3, device="meta")
    plan = partial(plan_chunks, Integration(None, "midpoint", 4), references, 1000, point_bytes=100)
    found = {most: tuple(plan(max_bytes=most)) for most in (10_400, 10_399, 1039, 640, 639, 1)}
    assert found == {10_400: (10, 1), 10_399: (9, 1), 1039: (1, 2), 640: (1, 2), 639: (1, 4), 1: (1, 4)}
    assert plan() == (2**28 // 1040, 1)


def test_chunks_of_a_layered_network_are_planned_from_its_units():
    """Twelve units take 768 bytes under each group at each of two nodes; paths have no parts."""
    references = torch.empty(2, 1, 3, device="meta")
    integration = Integration(LayeredNetwork.recognise(make_mlp(3, (6, 5))), "secant", 1)
    found = [tuple(plan_chunks(integration, references, 1000, most)) for most in (33_120, 33_119, 1)]
    assert found == [(10, 1), (9, 1), (1, 1)]


def test_a_gpu_is_asked_for_its_memory_only_if_much_is_needed(monkeypatch):
    asked, state = [], {"mem_get_info": (3 << 30, 8 << 30), "memory_reserved": 2 << 30}
    state["memory_allocated"] = 1 << 30
    for name in state:
        monkeypatch.setattr(torch.cuda, name, lambda _, name=name: asked.append(name) or state[name])
    budget = partial(memory_budget, torch.device("cuda"))
    assert (budget(1 << 28), budget(1 << 40, max_bytes=7)) == (1 << 28, 7)
    assert memory_budget(torch.device("cpu"), 1 << 40) == 1 << 28
    assert asked == []
    assert budget((1 << 28) + 1) == 2 << 30  # half of what is free, or reserved and not in use
    state["mem_get_info"] = (0, 8 << 30)
    state["memory_reserved"] = 1 << 30
    assert budget(1 << 40) == 1 << 28


def test_the_memory_of_a_gpu_is_compared_with_that_of_all_rows(monkeypatch):
    """A row takes 1040 bytes, as above."""
    asked = []
    monkeypatch.setattr("gcig.core.memory.memory_budget", lambda *given: asked.append(given[1]) or 2**28)
    references = torch.empty(2, 1, 3, device="meta")
    plan_chunks(Integration(None, "midpoint", 4), references, 1000, point_bytes=100)
    assert asked == [1_040_000]


@pytest.mark.parametrize(("rows", "calls"), [(11, 1), (10, 4)])
def test_only_rows_that_do_not_fit_are_computed_again(rows, calls):
    module, inputs, references = make_problem()
    seen = []
    module.register_forward_hook(lambda *_: seen.append(1))
    values = compute_attributions(
        module, inputs, references, Integration(None, "midpoint", 2), Chunks(rows), True
    )
    values.sum().backward()
    assert len(seen) == calls


def test_slices_cover_all_rows_once():
    assert Chunks(4).slices(10) == [slice(0, 4), slice(4, 8), slice(8, 10)]
    assert Chunks(4).slices(0) == [slice(0, 0)]


def test_sums_are_accumulated_with_their_gradient():
    weight = torch.tensor([1.0, 2.0], requires_grad=True)
    frozen = torch.tensor(3.0)
    rows = torch.arange(10.0).view(5, 2)

    def share(part):
        products = rows[part] @ weight
        return (frozen * products.square()).sum(), products.detach()

    slices = Chunks(2).slices(5)
    total, products = accumulate(share, slices, [weight, frozen])
    assert torch.equal(products, rows @ weight.detach())
    expected = (3 * (rows @ weight).square()).sum()
    assert total.item() == pytest.approx(expected.item())
    (found,) = torch.autograd.grad(0.5 * total, weight)
    torch.testing.assert_close(found, torch.autograd.grad(0.5 * expected, weight)[0])
    with torch.no_grad():
        assert not accumulate(share, slices, [weight])[0].requires_grad
