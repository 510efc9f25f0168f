"""Attributions as users ask for them: automatic, complete, in any mode, under any budget."""

import copy

import pytest
import torch
from gcig.core.paths import general_attributions
from gcig.core.quadrature import RULES, quadrature
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gcig.core import attribution
from gcig.core.attribution import attributions, choose_integration
from gcig.core.modules import KinkWarning
from gcig.core.references import GroupBaselines
from gcig.models.mlp import ACTIVATIONS, make_mlp

SMOOTH = [name for name in ACTIVATIONS if name not in {"relu", "leaky_relu"}]
DEPTHS = pytest.mark.parametrize("hidden", [(), (8,), (8, 6), (6, 5, 4)], ids=len)


def make_problem(hidden=(8, 6), activation="silu", groups=2, n=20, columns=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    module = make_mlp(columns, hidden, activation, generator=generator).to(dtype)
    inputs = torch.randn(n, columns, generator=generator).to(dtype)
    references = torch.randn(groups, n, columns, generator=generator).to(dtype)
    return module, inputs, references


def converged(module, inputs, references, n_nodes=2000):
    return general_attributions(module, inputs, references, quadrature("midpoint", n_nodes))


@DEPTHS
@pytest.mark.parametrize("activation", SMOOTH)
@pytest.mark.parametrize("fast", [True, False])
def test_smooth_networks_are_complete_to_a_millionth(hidden, activation, fast):
    module, inputs, references = make_problem(hidden, activation)
    found = attributions(module, inputs, references, tolerance=1e-6, fast=fast)
    assert found.residual.shape == (2, 20)
    # ELU's second derivative jumps, so that quadrature needs many nodes; secants are complete anyway.
    assert found.residual.max() < (1e-6 if activation != "elu" or fast else 1e-4)
    assert found.residual.max() < 1e-8 or not fast
    change = module(inputs) - module(references.flatten(0, 1)).view(2, -1)
    residual = (found.values.sum(-1) - change.detach()).abs()
    torch.testing.assert_close(found.residual, residual, rtol=0, atol=1e-14)


@DEPTHS
@pytest.mark.parametrize("activation", ["silu", "relu", "tanh"])
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-3])
def test_the_automatic_mode_keeps_its_tolerance(hidden, activation, fast, tolerance):
    module, inputs, references = make_problem(hidden, activation, n=30)
    found = attributions(module, inputs, references, tolerance=tolerance, fast=fast)
    limit = converged(module, inputs, references)
    error = (found.values - limit).abs().sum(-1) / limit.abs().sum(-1)
    assert error.mean() <= tolerance or (not fast and activation == "relu" and found.n_steps == 256)


def test_steps_that_creep_are_not_taken_for_converged():
    module, inputs, references = make_problem()
    found = attributions(module, inputs, references, rule="right", tolerance=1e-2)
    limit = converged(module, inputs, references)
    assert ((found.values - limit).abs().sum(-1) / limit.abs().sum(-1)).mean() <= 1e-2
    assert 16 <= found.n_steps < 256


@pytest.mark.parametrize(
    ("hidden", "activation", "rule", "exact"),
    [
        ((), "silu", "secant", True),
        ((8,), "silu", "secant", True),
        ((8,), "relu", "secant", True),
        ((8, 6), "silu", "romberg", False),
        ((8, 6), "relu", "secant", False),
    ],
)
def test_rule_and_exactness_are_reported(hidden, activation, rule, exact):
    module, inputs, references = make_problem(hidden, activation)
    found = attributions(module, inputs, references)
    assert (found.rule, found.exact) == (rule, exact)
    assert found.n_steps == 1 or not exact
    general = attributions(module, inputs, references, fast=False)
    assert (general.rule, general.exact) == ("gauss_legendre", False)


def watch(monkeypatch, name):
    """Return a list of the arguments with which a function is called from now on."""
    function, calls = getattr(attribution, name), []
    monkeypatch.setattr(attribution, name, lambda *given, **by: calls.append(given) or function(*given, **by))
    return calls


DOUBLED = {2**k for k in range(9)}


@pytest.mark.parametrize(
    ("fast", "steps"), [(True, DOUBLED), (False, DOUBLED | {3 * 2**k for k in range(7)})]
)
def test_steps_are_raised_up_to_256(monkeypatch, fast, steps):
    module, inputs, references = make_problem(n=3)
    calls = watch(monkeypatch, "compute_attributions")
    found = choose_integration(module, inputs, references, tolerance=-1.0, fast=fast)
    assert [each[3].n_steps for each in calls] == sorted(steps)
    assert found.n_steps == 256


@pytest.mark.parametrize(("n", "rows"), [(255, 255), (256, 128), (400, 134)])
def test_steps_are_chosen_on_at_least_128_rows(monkeypatch, n, rows):
    module, inputs, references = make_problem(n=n)
    calls = watch(monkeypatch, "compute_attributions")
    choose_integration(module, inputs, references, tolerance=1.0)
    assert {len(each[1]) for each in calls} == {rows}


class HalfSquare(nn.Module):
    """The right Riemann sum of n steps from 0 to 1 is off by 1 / (n + 1) of its value."""

    def forward(self, x):
        return 0.5 * x[:, 0].square()


@pytest.mark.parametrize(("tolerance", "steps"), [(0.0799, 12), (0.0401, 24), (0.0399, 32)])
def test_the_right_rule_allows_for_the_error_that_remains(tolerance, steps):
    found = choose_integration(
        HalfSquare(), torch.ones(1, 1), torch.zeros(1, 1, 1), rule="right", tolerance=tolerance
    )
    assert found.n_steps == steps


def test_chunks_without_a_graph_fit_into_the_cache(monkeypatch):
    module, inputs, references = make_problem()
    calls = watch(monkeypatch, "plan_chunks")

    def bound(**options):
        calls.clear()
        attributions(module, inputs, references, n_steps=2, **options)
        return calls[0][3]

    cache = 1 << 25
    assert [bound(), bound(max_bytes=1 << 30), bound(max_bytes=1000)] == [cache, cache, 1000]
    assert bound(create_graph=True) is bound(fast=False) is None


def test_tighter_tolerances_take_more_steps():
    module, inputs, references = make_problem()
    steps = [attributions(module, inputs, references, tolerance=t).n_steps for t in (1e-1, 1e-4, 1e-8)]
    assert steps[0] < steps[1] < steps[2]


@pytest.mark.parametrize("rule", list(RULES))
@pytest.mark.parametrize("fast", [True, False])
def test_a_given_rule_is_used_as_given(rule, fast):
    module, inputs, references = make_problem()
    found = attributions(module, inputs, references, rule=rule, n_steps=3, fast=fast)
    expected = general_attributions(module, inputs, references, quadrature(rule, 3))
    torch.testing.assert_close(found.values, expected, rtol=1e-11, atol=1e-13)
    assert (found.rule, found.n_steps) == (rule, 3)
    with torch.no_grad():
        change = module(inputs) - module(references.flatten(0, 1)).view(2, -1)
    torch.testing.assert_close(found.residual, (expected.sum(-1) - change).abs(), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("n_steps", [2, 3, 6])
def test_steps_of_the_automatic_rule_may_be_any_number(n_steps):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 5), nn.SiLU(), nn.Linear(5, 4), nn.SiLU(), nn.Linear(4, 1))
    found = attributions(module, torch.randn(4, 3), torch.randn(2, 4, 3), n_steps=n_steps)
    assert (found.rule, found.n_steps) == ("romberg" if n_steps == 2 else "secant", n_steps)


def test_a_rule_that_is_named_is_not_replaced_for_its_number_of_steps():
    module, inputs, references = make_mlp(3, (5, 4)), torch.randn(4, 3), torch.randn(2, 4, 3)
    with pytest.raises(ValueError, match="must be a power of two for rule='romberg', not 3"):
        attributions(module, inputs, references, rule="romberg", n_steps=3)
    general = nn.Sequential(module, nn.Unflatten(0, (-1, 1)))  # no layered network: there are no secants
    assert attributions(general, inputs, references, n_steps=3).rule == "gauss_legendre"


@pytest.mark.parametrize("groups", [2, 3, 7])
@pytest.mark.parametrize("fast", [True, False])
def test_every_group_as_if_it_were_alone(groups, fast):
    module, inputs, references = make_problem(groups=groups)
    together = attributions(module, inputs, references, rule="midpoint", n_steps=4, fast=fast).values
    for group in range(groups):
        alone = attributions(module, inputs, references[group : group + 1], rule="midpoint", n_steps=4).values
        torch.testing.assert_close(together[group], alone[0], rtol=1e-11, atol=1e-13)


@settings(max_examples=25)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    n=st.integers(0, 4),
    groups=st.integers(1, 4),
    rule=st.sampled_from(list(RULES)),
    max_bytes=st.integers(1, 100_000),
)
def test_attributions_have_the_shape_of_the_inputs(shape, n, groups, rule, max_bytes):
    generator = torch.Generator().manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(shape).numel(), 3), nn.Tanh(), nn.Linear(3, 1))
    inputs = torch.randn(n, *shape, generator=generator)
    references = torch.randn(groups, n, *shape, generator=generator)
    found = attributions(module, inputs, references, rule=rule, n_steps=2, max_bytes=max_bytes)
    assert found.values.shape == references.shape
    assert found.residual.shape == (groups, n)
    whole = attributions(module, inputs, references, rule=rule, n_steps=2)
    torch.testing.assert_close(found.values, whole.values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("rule", ["auto", "gauss_legendre", "midpoint"])
def test_chunked_equals_unchunked(fast, rule):
    module, inputs, references = make_problem()
    found = []
    for max_bytes in (1 << 28, 20_000, 1):
        result = attributions(
            module, inputs, references, rule=rule, create_graph=True, fast=fast, max_bytes=max_bytes
        )
        gradient = torch.autograd.grad(result.values.square().sum(), module[0].weight)[0]
        found.append((result.values, gradient, result.residual))
    for small in found[1:]:
        torch.testing.assert_close(small, found[0], rtol=1e-10, atol=1e-13)


def test_no_graph_unless_asked_for():
    module, inputs, references = make_problem()
    for fast in (True, False):
        assert not attributions(module, inputs, references, fast=fast).values.requires_grad
        with torch.no_grad():
            found = attributions(module, inputs, references, fast=fast, create_graph=True)
        assert found.values.requires_grad
        assert not found.residual.requires_grad


@pytest.mark.parametrize("fast", [True, False])
def test_works_where_gradients_are_switched_off(fast):
    module, inputs, references = make_problem()
    expected = attributions(module, inputs, references, fast=fast).values
    for off in (torch.no_grad(), torch.inference_mode()):
        with off:
            found = attributions(module, inputs * 1, references * 1, fast=fast).values
        torch.testing.assert_close(found.clone(), expected)


class Normalised(nn.Sequential):
    """BatchNorm and Dropout in all their training glory."""

    def __init__(self):
        super().__init__(
            nn.Linear(5, 8), nn.BatchNorm1d(8), nn.SiLU(), nn.Dropout(0.5), nn.Linear(8, 1), nn.Flatten(0)
        )


@pytest.mark.parametrize("create_graph", [True, False])
@pytest.mark.parametrize("max_bytes", [1 << 28, 1000])
def test_dropout_and_batch_norm_do_not_disturb(create_graph, max_bytes):
    _, inputs, references = make_problem()
    module = Normalised().double()
    module(inputs)
    module[3].eval()
    buffers = copy.deepcopy(dict(module.named_buffers()))
    found = attributions(
        module, inputs, references, n_steps=4, create_graph=create_graph, max_bytes=max_bytes
    )
    if create_graph:
        found.values.sum().backward()
    assert module.training
    assert module[1].training
    assert not module[3].training
    assert all(torch.equal(value, buffers[name]) for name, value in module.named_buffers())
    expected = attributions(module.eval(), inputs, references, n_steps=4)
    torch.testing.assert_close(found.values.detach(), expected.values)
    alone = attributions(module.train(), inputs[:1], references[:, :1], n_steps=4)
    torch.testing.assert_close(found.values[:, :1].detach(), alone.values)


def test_dropout_does_not_keep_a_network_from_its_fast_path():
    module, inputs, references = make_problem((8,))
    dropping = nn.Sequential(module[0], module[1], nn.Dropout(0.9), *list(module)[2:])
    found = attributions(dropping, inputs, references)
    assert found.exact
    torch.testing.assert_close(found.values, attributions(module, inputs, references).values)
    assert found.residual.max() < 1e-9


def test_several_outputs_need_a_score():
    _, inputs, references = make_problem()
    module = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    with pytest.raises(ValueError, match=r"one logit per row.*pass score="):
        attributions(module, inputs, references)
    found = attributions(module, inputs, references, score=lambda out: out[:, 2] - out[:, 0], tolerance=1e-8)
    last = copy.deepcopy(module[2])
    single = nn.Linear(6, 1).double()
    with torch.no_grad():
        single.weight[0], single.bias[0] = last.weight[2] - last.weight[0], last.bias[2] - last.bias[0]
    expected = attributions(nn.Sequential(module[0], module[1], single), inputs, references)
    torch.testing.assert_close(found.values, expected.values, rtol=1e-6, atol=1e-7)


def test_references_of_another_shape_are_refused():
    module, inputs, references = make_problem()
    with pytest.raises(ValueError, match=r"references must have shape \(groups, 20, 5\).*not \(20, 5\)"):
        attributions(module, inputs, references[0])


@pytest.mark.parametrize("n_steps", [0, "many"])
@pytest.mark.parametrize("rule", ["secant", "right"])
def test_impossible_steps_are_refused(rule, n_steps):
    module, inputs, references = make_problem()
    with pytest.raises(ValueError, match="n_steps must be a positive integer"):
        attributions(module, inputs, references, rule=rule, n_steps=n_steps)


def test_secants_are_refused_off_the_fast_path():
    module, inputs, references = make_problem()
    with pytest.raises(ValueError, match="rule='secant' needs a layered network"):
        attributions(module, inputs, references, rule="secant", fast=False)


def test_a_module_without_gradients_is_refused():
    class Counted(nn.Module):
        def forward(self, x):
            return (x > 0).sum(1).to(x.dtype)

    _, inputs, references = make_problem()
    with pytest.raises(ValueError, match="does not depend differentiably on its inputs"):
        attributions(Counted(), inputs, references)


def test_kinks_are_warned_of_where_a_gradient_is_wanted():
    module, inputs, references = make_problem(activation="relu")
    attributions(module, inputs, references, rule="midpoint", n_steps=4)
    attributions(module, inputs, references, create_graph=True)
    with pytest.warns(KinkWarning):
        attributions(module, inputs, references, rule="midpoint", n_steps=4, create_graph=True)
    with pytest.warns(KinkWarning):
        attributions(module, inputs, references, n_steps=4, fast=False, create_graph=True)


def test_a_row_at_its_baseline_has_no_attributions():
    module, inputs, _ = make_problem()
    for fast in (True, False):
        found = attributions(module, inputs, inputs.expand(2, -1, -1), fast=fast)
        assert not found.values.any()
        assert found.values.isfinite().all()


def test_autocast_leaves_layered_networks_in_full_precision():
    module, inputs, references = make_problem(dtype=torch.float32)
    expected = attributions(module, inputs, references)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = attributions(module, inputs, references, n_steps=expected.n_steps)
        general = attributions(module, inputs, references, n_steps=expected.n_steps, fast=False)
    torch.testing.assert_close(found.values, expected.values)
    assert general.values.dtype == torch.float32
    error = (general.values - expected.values).norm() / expected.values.norm()
    assert 0 < error < 0.02


def test_the_probe_looks_at_few_rows_under_the_budget():
    """Choosing steps must not take more memory than the computation may."""
    seen = []

    class Watched(nn.Sequential):
        def forward(self, x):
            seen.append(len(x))
            return super().forward(x)

    module, inputs, references = make_problem(n=1000)
    watched = Watched(*module)
    choose_integration(watched, inputs, references, tolerance=1e-12)
    assert max(seen) > 1000
    seen.clear()
    choose_integration(watched, inputs, references, tolerance=1e-12, max_bytes=100_000)
    assert max(seen) < 100


@pytest.mark.parametrize("rule", ["secant", "romberg", "midpoint"])
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("max_bytes", [1 << 28, 5_000])
def test_references_that_are_expanded_to_all_rows(rule, fast, max_bytes):
    if rule != "midpoint" and not fast:
        pytest.skip("secants are for the fast path")
    module, inputs, references = make_problem()
    expanded = references[:, :1].expand(-1, 20, -1)
    found = []
    for starts in (expanded, expanded.contiguous()):
        result = attributions(
            module,
            inputs,
            starts,
            rule=rule,
            n_steps=4,
            fast=fast,
            create_graph=True,
            max_bytes=max_bytes,
        )
        gradient = torch.autograd.grad(result.values.square().sum(), module[0].weight)[0]
        plain = attributions(module, inputs, starts, rule=rule, n_steps=4, fast=fast, max_bytes=max_bytes)
        found.append((result.values.detach(), gradient, result.residual, plain.values, plain.residual))
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found[0][0], found[0][3], rtol=1e-10, atol=1e-12)
    assert found[0][0].is_contiguous()


def test_baselines_feed_attributions():
    module, inputs, _ = make_problem(n=40)
    labels, groups = torch.arange(40) % 2, torch.arange(40) // 2 % 3
    baselines = GroupBaselines.from_data(inputs, labels, groups)
    found = attributions(module, inputs, baselines.of(labels))
    assert found.values.shape == (3, 40, 5)
    assert found.residual.max() < 1e-4
