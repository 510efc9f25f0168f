"""The hand-written pass against autograd through a plain chain of the same formula."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from gcig.core.layered import LayeredNetwork
from gcig.core.numerics import sharpness
from gcig.engine.penalty import secant_penalty
from gcig.engine.scratch import Scratch
from gcig.engine.secant_pass import SecantRule
from torch import Tensor, nn

ACTIVATIONS: list[Callable[[], nn.Module]] = [
    nn.SiLU,
    nn.GELU,
    nn.Tanh,
    nn.Softplus,
    nn.ELU,
    nn.ReLU,
    nn.LeakyReLU,
]
COLUMNS = 7
Problem = tuple[nn.Sequential, Tensor, Tensor, Tensor, Tensor]


def make_net(kind: Callable[[], nn.Module], hidden: tuple[int, ...], bias: bool = True) -> nn.Sequential:
    sizes = (COLUMNS, *hidden)
    steps: list[nn.Module] = []
    for below, units in zip(sizes, hidden, strict=False):
        steps += [nn.Linear(below, units, bias=bias), kind()]
    return nn.Sequential(*steps, nn.Linear(hidden[-1], 1, bias=bias)).double()


def make_problem(
    kind: Callable[[], nn.Module] = nn.SiLU,
    hidden: tuple[int, ...] = (6, 5),
    groups: int = 2,
    n: int = 11,
    bias: bool = True,
    seed: int = 0,
) -> Problem:
    """A network, rows, labels, baselines, and weights of the rows."""
    torch.manual_seed(seed)
    net = make_net(kind, hidden, bias)
    inputs = torch.randn(n, COLUMNS, dtype=torch.float64)
    labels = torch.randint(0, 3, (n,))
    baselines = torch.randn(3, groups, COLUMNS, dtype=torch.float64)
    return net, inputs, labels, baselines, torch.randn(n, dtype=torch.float64)


def recognise(net: nn.Module) -> LayeredNetwork:
    network = LayeredNetwork.recognise(net)
    assert network is not None
    return network


def plain_attributions(net: nn.Sequential, inputs: Tensor, references: Tensor, rule: SecantRule) -> Tensor:
    """By ordinary operations, one segment at a time; references and attributions (groups, n, columns)."""
    network = recognise(net)
    total = torch.zeros_like(references)
    for k in range(rule.n_segments):
        ends = [torch.lerp(references, inputs, (k + step) / rule.n_segments) for step in (0, 1)]
        slopes = []
        for weight, bias, activation in zip(
            network.weights, network.biases, network.activations, strict=False
        ):
            before = [nn.functional.linear(end, weight, bias) for end in ends]
            (ends[0], first, _), (ends[1], last, _) = (activation.derivatives(z) for z in before)
            run, rise = before[1] - before[0], ends[1] - ends[0]
            blend = 2 / sharpness(inputs.dtype, smooth=activation.smooth)
            slopes.append((rise * run + blend * (first + last) / 2) / (run * run + blend))
        chain = network.weights[-1][0]
        for weight, slope in zip(reversed(network.weights[:-1]), reversed(slopes), strict=True):
            chain = (slope * chain) @ weight
        total = total + chain / rule.n_segments
    return (inputs - references) * total


def plain_disparity(net: nn.Sequential, inputs: Tensor, references: Tensor, rule: SecantRule) -> Tensor:
    """The disparities (n,)."""
    attributions = plain_attributions(net, inputs, references, rule)
    order = 1 if rule.norm == "l1" else 2
    norms = torch.linalg.vector_norm(attributions, order, dim=-1, keepdim=True)
    points = attributions / (norms + rule.eps)
    pairs = torch.combinations(torch.arange(len(points)))
    squares = [(points[g] - points[h]).square().sum(-1) for g, h in pairs.tolist()]
    return torch.stack(squares).mean(0).sqrt()


def plain_penalty(problem: Problem, rule: SecantRule) -> Tensor:
    net, inputs, labels, baselines, weights = problem
    return plain_disparity(net, inputs, baselines[labels].transpose(0, 1), rule) @ weights


def gradient(value: Tensor, net: nn.Module) -> list[Tensor]:
    found = torch.autograd.grad(value, list(net.parameters()), allow_unused=True)
    return [
        torch.zeros_like(p) if part is None else part for p, part in zip(net.parameters(), found, strict=True)
    ]


def assert_same(found: list[Tensor], expected: list[Tensor], tolerance: float = 1e-10) -> None:
    scale = max(float(part.abs().max()) for part in expected)
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=tolerance * scale)


def call(problem: Problem, rule: SecantRule, **options: object) -> tuple[Tensor, Tensor, Tensor]:
    net, inputs, labels, baselines, weights = problem
    return secant_penalty(recognise(net), inputs, labels, baselines, weights, rule, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("hidden", [(6,), (6, 5), (6, 5, 4)], ids=str)
@pytest.mark.parametrize(
    ("kind", "as_on_a_gpu"), [*((kind, False) for kind in ACTIVATIONS), (nn.SiLU, True), (nn.ReLU, True)]
)
def test_value_and_gradient_over_groups_segments_and_norms(
    kind: Callable[[], nn.Module], as_on_a_gpu: bool, hidden: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if as_on_a_gpu:  # other operations, with the same results
        monkeypatch.setattr(Tensor, "is_cuda", property(lambda _: True), raising=False)
    for groups in (2, 3, 7):
        for n_segments in (1, 2, 3):
            for norm in ("l1", "l2"):
                problem = make_problem(kind, hidden, groups)
                rule = SecantRule(n_segments, norm)
                penalty, disparity, norms = call(problem, rule)
                expected = plain_penalty(problem, rule)
                torch.testing.assert_close(penalty, expected, rtol=1e-11, atol=1e-13)
                torch.testing.assert_close(disparity @ problem[4], expected.detach(), rtol=1e-11, atol=1e-13)
                assert norms.shape == (groups, 11)
                assert not disparity.requires_grad
                assert_same(gradient(penalty * 2.5, problem[0]), gradient(expected * 2.5, problem[0]))


def test_gradient_by_finite_differences() -> None:
    problem = make_problem(nn.SiLU, (6, 5), 3)
    rule = SecantRule(2)
    parts = gradient(call(problem, rule)[0], problem[0])
    with torch.no_grad():
        for parameter, part in zip(problem[0].parameters(), parts, strict=True):
            direction, start = torch.randn_like(parameter), parameter.clone()
            values = []
            for step in (1e-6, -1e-6):
                parameter.copy_(start + step * direction)
                values.append(call(problem, rule)[0])
            parameter.copy_(start)
            slope = (values[0] - values[1]) / 2e-6
            torch.testing.assert_close((part * direction).sum(), slope, rtol=1e-6, atol=1e-7)


def test_layers_of_different_kinds_and_without_biases() -> None:
    problem = make_problem(bias=False)
    problem[0][3] = nn.ReLU()
    rule = SecantRule(2)
    assert_same(
        gradient(call(problem, rule)[0], problem[0]), gradient(plain_penalty(problem, rule), problem[0])
    )


@pytest.mark.parametrize("n_segments", [1, 3])
def test_chunks_change_nothing_but_rounding(n_segments: int) -> None:
    problem, rule = make_problem(n=100), SecantRule(n_segments)
    whole, parts = call(problem, rule), call(problem, rule, max_bytes=1)
    for left, right in zip(whole, parts, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-14)
    assert_same(gradient(parts[0], problem[0]), gradient(whole[0], problem[0]), 1e-12)


def test_scratch_is_reused_and_never_leaks_into_results() -> None:
    scratch, rule = Scratch(), SecantRule(2)
    sizes = [5, 11, 3, 11, *range(20, 40), 11]  # more shapes than are kept
    problems = [make_problem(n=n, seed=seed) for seed, n in enumerate(sizes)]
    kept = [call(problem, rule, scratch=scratch) for problem in problems]
    for problem, result in zip(problems, kept, strict=True):
        fresh = call(problem, rule)
        torch.testing.assert_close(result[1], fresh[1], rtol=0, atol=0)
        torch.testing.assert_close(result[2], fresh[2], rtol=0, atol=0)
        assert_same(gradient(result[0], problem[0]), gradient(fresh[0], problem[0]), 1e-15)
    single = [(p[0].float(), p[1].float(), p[2], p[3].float(), p[4].float()) for p in problems[:1]]
    assert call(single[0], rule, scratch=scratch)[0].dtype == torch.float32


def test_scratch_is_not_copied_or_pickled() -> None:
    scratch = Scratch()
    call(make_problem(), SecantRule(), scratch=scratch)
    assert not vars(copy.deepcopy(scratch))["_storage"]
    assert len(pickle.dumps(scratch)) < 200


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_disparity_has_a_gradient_of_zero(groups: int, norm: str, dtype: torch.dtype) -> None:
    net, inputs, labels, baselines, weights = make_problem(groups=groups)
    same = baselines[:, :1].expand_as(baselines).contiguous()
    inputs[0] = same[labels[0], 0]  # and one row whose attributions are all zero
    problem = (net.to(dtype), inputs.to(dtype), labels, same.to(dtype), weights.to(dtype))
    penalty, disparity, _ = call(problem, SecantRule(norm=norm))
    assert disparity.max() < 1e-6
    parts = gradient(penalty, net)
    assert all(part.isfinite().all() for part in parts)
    # What rounding leaves pulls the groups in opposite directions.
    largest = max(float(part.abs().max()) for part in parts)
    assert largest < (1e-3 if dtype == torch.float32 else 1e-9)


@pytest.mark.parametrize("kind", [nn.SiLU, nn.ReLU])
@pytest.mark.parametrize("shift", [0.0, 1e-7, 1e-4, 1e-2])
def test_short_runs_in_single_precision(kind: Callable[[], nn.Module], shift: float) -> None:
    net, inputs, labels, baselines, weights = make_problem(kind)
    # One group's baseline is, or nearly is, the row, for every row.
    inputs = baselines[labels, 0] + shift * inputs
    rule = SecantRule(eps=1e-2)
    expected = gradient(call((net, inputs, labels, baselines, weights), rule)[0], net)
    single = copy.deepcopy(net).float()
    problem = (single, inputs.float(), labels, baselines.float(), weights.float())
    found = [part.double() for part in gradient(call(problem, rule)[0], single)]
    assert_same(found, expected, 2e-3)


def test_segments_that_a_unit_does_not_move_over() -> None:
    """A run of exactly zero in one unit of many: its slope is the derivative, as in double precision."""
    net, inputs, labels, baselines, weights = make_problem()
    with torch.no_grad():
        net[0].weight[0] = 0
        net[2].weight[1] = 0
    rule = SecantRule()
    expected = gradient(call((net, inputs, labels, baselines, weights), rule)[0], net)
    assert_same(expected, gradient(plain_penalty((net, inputs, labels, baselines, weights), rule), net))
    single = copy.deepcopy(net).float()
    problem = (single, inputs.float(), labels, baselines.float(), weights.float())
    found = [part.double() for part in gradient(call(problem, rule)[0], single)]
    assert_same(found, expected, 2e-3)


def test_frozen_parameters() -> None:
    problem = make_problem()
    net, rule = problem[0], SecantRule()
    expected = gradient(call(problem, rule)[0], net)
    net[0].requires_grad_(False)
    penalty = call(problem, rule)[0]
    penalty.backward()
    assert net[0].weight.grad is None
    torch.testing.assert_close(net[2].weight.grad, expected[2], rtol=0, atol=0)
    net.requires_grad_(False)
    assert not call(problem, rule)[0].requires_grad


def test_autocast_does_not_reach_inside() -> None:
    problem, rule = make_problem(), SecantRule()
    single = (problem[0].float(), problem[1].float(), problem[2], problem[3].float(), problem[4].float())
    expected = call(single, rule)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = call(single, rule)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
