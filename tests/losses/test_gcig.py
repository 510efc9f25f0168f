"""The penalty against Algorithm 1 in loops, its gradient against finite differences, and its options."""

import copy
import gc
import itertools
import math
import pickle
import weakref

import pytest
import torch
from gcig.core.disparity import defined_rows, disparity, sum_blocks
from gcig.core.numerics import sharpness, vector_norm
from gcig.core.quadrature import quadrature
from gcig.losses.gcig import GCIGPenalty, label_members, label_row_weights, sample_rows, weigh_members
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call

from gcig.core.attribution import attributions
from gcig.core.modules import KinkWarning
from gcig.core.references import GroupBaselines, GroupMembers
from gcig.models.mlp import make_mlp

NORMS = pytest.mark.parametrize("norm", ["l1", "l2"])
# One set of options for each way the penalty is computed.
PATHS = {
    "fused": {},
    "layered": {"rule": "gauss_legendre"},
    "general": {"fast": False},
    "layered, chunked": {"rule": "gauss_legendre", "max_bytes": 20_000},
    "general, chunked": {"fast": False, "max_bytes": 20_000},
    "general, part by part": {"fast": False, "max_bytes": 1},
}
# Torch's compiler uses what torch has deprecated.
COMPILES = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", r"ignore:The \.grad attribute:UserWarning"
)
EVERY_PATH = pytest.mark.parametrize("path", list(PATHS))


class Problem:
    """A network, rows with labels and groups, and their baselines."""

    def __init__(
        self, hidden=(6, 5), activation="silu", groups=2, n=30, columns=4, seed=0, dtype=torch.float64
    ):
        generator = torch.Generator().manual_seed(seed)
        self.module = make_mlp(columns, hidden, activation, generator=generator).to(dtype)
        with torch.no_grad():  # larger than at initialisation, so that paths are well curved
            for parameter in self.module.parameters():
                parameter *= 2
        self.x = torch.randn(n, columns, generator=generator).to(dtype)
        order = torch.randperm(n, generator=generator)
        self.y, self.g = (torch.arange(n) % 2)[order], (torch.arange(n) // 2 % groups)[order]
        self.baselines = GroupBaselines.from_data(self.x, self.y, self.g)

    def penalty(self, **options):
        return GCIGPenalty(copy.deepcopy(self.baselines), **options)

    def value(self, **options):
        return self.penalty(**options)(self.module, self.x, self.y)

    def gradient(self, loss=None, **options):
        return flat_gradient(self.value(**options) if loss is None else loss, self.module)


def flat_gradient(loss, module):
    parts = torch.autograd.grad(loss, list(module.parameters()), allow_unused=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in parts])


def algorithm_1(problem, rule, norm="l1"):
    """Disparities, row by row, group by group, node by node."""
    values = []
    for row, label in zip(problem.x, problem.y, strict=True):
        units = []
        for start in problem.baselines.values[label]:
            slope = torch.zeros_like(row)
            for node, weight in zip(rule.nodes, rule.weights, strict=True):
                point = (start + node * (row - start)).requires_grad_()
                slope += weight * torch.autograd.grad(problem.module(point.unsqueeze(0)).sum(), point)[0]
            vector = (row - start) * slope
            units.append(vector / (vector.abs().sum() if norm == "l1" else vector.square().sum().sqrt()))
        squares = [(a - b).square().sum() for a, b in itertools.combinations(units, 2)]
        values.append((sum(squares) / len(squares)).sqrt())
    return torch.stack(values)


def combine(values, labels, label_weights):
    means = [values[labels == label].mean() for label in (0, 1)]
    return {"sum": sum(means), "equal": sum(means) / 2, "empirical": values.mean()}[label_weights]


# --- value -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("groups", "norm"), [(2, "l1"), (2, "l2"), (3, "l1"), (7, "l2")])
@pytest.mark.parametrize("fast", [True, False])
def test_equals_algorithm_1(groups, norm, fast):
    problem = Problem(groups=groups, n=4 * groups + 3)
    expected = combine(algorithm_1(problem, quadrature("right", 8), norm), problem.y, "sum")
    found = problem.value(rule="right", n_steps=8, norm=norm, fast=fast)
    assert found.item() == pytest.approx(expected.item(), rel=1e-9)


@pytest.mark.parametrize(
    ("path", "label_weights"),
    [
        ("fused", "sum"),
        ("fused", "equal"),
        ("fused", "empirical"),
        ("layered, chunked", "equal"),
        ("general", "empirical"),
        ("general, part by part", "sum"),
    ],
)
def test_label_weights(path, label_weights):
    problem = Problem(n=15)
    options = {"fast": True, "rule": "auto"} | PATHS[path]
    rule = "secant" if path == "fused" else "gauss_legendre"
    n_steps = 1 if path == "fused" else 2
    found = attributions(
        problem.module, problem.x, problem.baselines.of(problem.y), rule=rule, n_steps=n_steps
    )
    expected = combine(disparity(found.values), problem.y, label_weights)
    value = problem.value(label_weights=label_weights, **options)
    assert value.item() == pytest.approx(expected.item(), rel=1e-9)


@settings(max_examples=25)
@given(
    hidden=st.lists(st.integers(1, 6), max_size=3),
    activation=st.sampled_from(["silu", "relu", "tanh"]),
    groups=st.integers(2, 7),
    extra=st.integers(0, 20),
    columns=st.integers(1, 6),
    n_steps=st.integers(1, 3),
    norm=st.sampled_from(["l1", "l2"]),
    seed=st.integers(0, 2**31),
)
def test_fused_and_explicit_agree_for_any_shape(
    hidden, activation, groups, extra, columns, n_steps, norm, seed
):
    problem = Problem(hidden, activation, groups, 4 * groups + extra, columns, seed)
    found = problem.value(rule="secant", n_steps=n_steps, norm=norm)
    references = problem.baselines.of(problem.y)
    values = attributions(
        problem.module, problem.x, references, rule="secant", n_steps=n_steps, create_graph=True
    ).values
    weights = label_row_weights(
        problem.y, "sum", defined_rows(vector_norm(values.detach(), "l1")), dtype=torch.float64
    )
    expected = disparity(values, norm=norm) @ weights
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    if columns > 1:  # a single column's disparity is flat: 0 or 2
        gradient = problem.gradient(expected)
        torch.testing.assert_close(
            problem.gradient(found), gradient, rtol=1e-6, atol=1e-6 * gradient.norm().item()
        )


class PatchNetwork(nn.Module):
    """A small convolutional network."""

    def __init__(self):
        super().__init__()
        self.convolution, self.top = nn.Conv1d(2, 3, 2), nn.Linear(3, 1)

    def forward(self, x):
        return self.top(torch.tanh(self.convolution(x)).mean(2))


def explain_in_loops(module, x, y, references, rule, origin=None):
    """Attributions averaged over members and summed over blocks, path by path."""
    groups = []
    for group in range(references.shape[1]):
        rows = []
        for row, label in zip(x, y, strict=True):
            paths = []
            for start in references[label, group]:
                slope = torch.zeros_like(row)
                for node, weight in zip(rule.nodes, rule.weights, strict=True):
                    point = (start + node * (row - start)).requires_grad_()
                    outputs = module(point.unsqueeze(0)).sum()
                    slope = slope + weight * torch.autograd.grad(outputs, point, create_graph=True)[0]
                paths.append(((row - start) * slope).flatten())
            values = torch.stack(paths).mean(0)
            if origin is not None:
                values = torch.stack([values[origin == block].sum() for block in origin.unique()])
            rows.append(values)
        groups.append(torch.stack(rows))
    return torch.stack(groups)


ORIGIN = torch.tensor([0, 1, 1, 0])


@pytest.mark.parametrize("origin", [None, ORIGIN], ids=["columns", "blocks"])
@pytest.mark.parametrize("n_members", [None, 3], ids=["means", "members"])
@pytest.mark.parametrize(
    "options",
    [{}, {"fast": False}, {"fast": False, "max_bytes": 1}, {"max_bytes": 2_000}],
    ids=["layered", "general", "general, part by part", "layered, chunked"],
)
def test_members_and_blocks_equal_loops(options, n_members, origin):
    problem = Problem(n=12)
    data = (problem.x, problem.y, problem.g)
    references = problem.baselines if n_members is None else GroupMembers(*data, n_members=n_members)
    penalty = GCIGPenalty(references, origin=origin, rule="midpoint", n_steps=2, **options)
    value = penalty(problem.module, problem.x, problem.y)
    starts = references.values.unsqueeze(2) if n_members is None else references.values
    values = explain_in_loops(problem.module, problem.x, problem.y, starts, quadrature("midpoint", 2), origin)
    expected = combine(disparity(values), problem.y, "sum")
    assert value.item() == pytest.approx(expected.item(), rel=1e-9)
    torch.testing.assert_close(problem.gradient(value), problem.gradient(expected), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("origin", [None, ORIGIN], ids=["columns", "blocks"])
def test_secants_of_members_and_blocks_equal_those_of_single_references(origin):
    problem = Problem()
    references = GroupMembers(problem.x, problem.y, problem.g, n_members=4)
    value = GCIGPenalty(references, origin=origin)(problem.module, problem.x, problem.y)
    starts = references.values.flatten(1, 2).transpose(0, 1)[:, problem.y]
    values = attributions(
        problem.module, problem.x, starts, rule="secant", n_steps=1, create_graph=True
    ).values
    values = values.unflatten(0, (2, 4)).mean(1)
    values = values if origin is None else sum_blocks(values, origin, 2)
    expected = combine(disparity(values), problem.y, "sum")
    assert value.item() == pytest.approx(expected.item(), rel=1e-9)
    torch.testing.assert_close(problem.gradient(value), problem.gradient(expected), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("max_bytes", [1 << 28, 1])
def test_members_of_a_convolutional_network(max_bytes):
    problem = Problem(n=12, columns=8)
    torch.manual_seed(0)
    module, x = PatchNetwork().double(), problem.x.view(-1, 2, 4)
    references = GroupMembers(x, problem.y, problem.g, n_members=3)
    penalty = GCIGPenalty(references, max_bytes=max_bytes)
    value = penalty(module, x, problem.y)
    values = explain_in_loops(module, x, problem.y, references.values, quadrature("gauss_legendre", 2))
    expected = combine(disparity(values), problem.y, "sum")
    assert value.item() == pytest.approx(expected.item(), rel=1e-9)
    torch.testing.assert_close(
        flat_gradient(value, module), flat_gradient(expected, module), rtol=1e-7, atol=1e-10
    )


def test_groups_draw_new_members():
    problem = Problem()
    penalty = GCIGPenalty(GroupMembers(problem.x, problem.y, problem.g, n_members=2))
    before = penalty.references.values.clone()
    penalty(problem.module, problem.x, problem.y)
    assert torch.equal(penalty.references.values, before)
    penalty(problem.module, problem.x, problem.y, problem.g)
    assert not torch.equal(penalty.references.values, before)


def test_known_attributions_are_compared_as_they_are():
    problem = Problem()
    penalty = problem.penalty()
    values = penalty.reduce(penalty.attribute(problem.module, problem.x, problem.y, problem.baselines.values))
    value = penalty(problem.module, problem.x, problem.y, attributions=values)
    assert value.item() == pytest.approx(problem.value().item(), rel=1e-9)


@pytest.mark.parametrize("shape", [(2, 5, 5), (6, 3)], ids=["image", "sequence"])
def test_inputs_of_any_shape(shape):
    width = torch.Size(shape).numel()
    problem = Problem(columns=width)
    x = problem.x.view(-1, *shape)
    module = nn.Sequential(nn.Flatten(), *problem.module)
    penalty = GCIGPenalty(GroupBaselines.from_data(x, problem.y, problem.g))
    expected = problem.value(rule="gauss_legendre", n_steps=2)
    assert penalty(module, x, problem.y).item() == pytest.approx(expected.item(), rel=1e-9)


@pytest.mark.parametrize("hidden", [(64,), (64, 32)], ids=len)
def test_the_training_default_is_as_accurate_as_the_papers_rule(hidden):
    """At initialisation; what training does to it is measured by `make bench`."""
    problem = Problem(hidden, n=200, columns=20)
    with torch.no_grad():
        for parameter in problem.module.parameters():
            parameter /= 2
    references = problem.baselines.of(problem.y)

    def error(**options):
        found = disparity(attributions(problem.module, problem.x, references, **options).values)
        return ((found - limit).abs() / limit).mean()

    limit = disparity(
        attributions(problem.module, problem.x, references, rule="midpoint", n_steps=512).values
    )
    assert error(rule="secant", n_steps=1) < error(rule="right", n_steps=16)
    assert error(rule="gauss_legendre", n_steps=2) < error(rule="right", n_steps=16)


# --- gradient ----------------------------------------------------------------------------------------


class Penalised(nn.Module):
    """A penalty of a module as a function of the module's parameters."""

    def __init__(self, penalty, module):
        super().__init__()
        self.penalty, self.module = penalty, module

    def forward(self, x, y):
        return self.penalty(self.module, x, y)


@EVERY_PATH
@pytest.mark.parametrize(("norm", "groups", "hidden"), [("l1", 2, (4, 3)), ("l2", 2, ()), ("l1", 3, (5,))])
def test_gradcheck(path, norm, groups, hidden):
    problem = Problem(hidden, "silu", groups, n=9 if groups == 2 else 12, columns=3)
    whole = Penalised(problem.penalty(norm=norm, **PATHS[path]), problem.module)
    names = [f"module.{name}" for name, _ in problem.module.named_parameters()]
    tensors = [parameter.detach().clone().requires_grad_() for parameter in problem.module.parameters()]

    def function(*values):
        return functional_call(whole, dict(zip(names, values, strict=True)), (problem.x, problem.y))

    # Chunks are compared with the whole elsewhere: a random projection of their Jacobian will do.
    assert torch.autograd.gradcheck(function, tensors, fast_mode="max_bytes" in PATHS[path])


@pytest.mark.parametrize(
    ("activation", "n_steps"), [("relu", 1), ("leaky_relu", 2), ("tanh", 3), ("softplus", 1), ("sigmoid", 2)]
)
def test_gradcheck_of_secants(activation, n_steps):
    problem = Problem((4, 3), activation, n=9, columns=3, seed=3)
    whole = Penalised(problem.penalty(rule="secant", n_steps=n_steps), problem.module)
    names = [f"module.{name}" for name, _ in problem.module.named_parameters()]
    tensors = [parameter.detach().clone().requires_grad_() for parameter in problem.module.parameters()]

    def function(*values):
        return functional_call(whole, dict(zip(names, values, strict=True)), (problem.x, problem.y))

    assert torch.autograd.gradcheck(function, tensors, atol=1e-4)


def finite_differences(value, module, step=1e-6):
    """Central differences of a function of the parameters, which are left as they were."""
    slopes = []
    with torch.no_grad():
        for parameter in module.parameters():
            flat = parameter.view(-1)
            for index in range(len(flat)):
                kept = flat[index].item()
                flat[index] = kept + step
                above = value()
                flat[index] = kept - step
                below = value()
                flat[index] = kept
                slopes.append((above - below) / (2 * step))
    return torch.tensor(slopes, dtype=torch.float64)


def relative_error(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("hidden", [(5,), (4, 3)], ids=len)
def test_gradient_is_that_of_the_converged_value(hidden):
    problem = Problem(hidden, "silu", n=10, columns=3)
    converged = problem.penalty(rule="gauss_legendre", n_steps=24, fast=False)
    expected = finite_differences(
        lambda: converged(problem.module, problem.x, problem.y).item(), problem.module
    )
    tolerance = 0.15 if len(hidden) > 1 else 1e-5
    assert relative_error(problem.gradient(), expected) < tolerance
    assert relative_error(problem.gradient(n_steps=16), expected) < 1e-3
    assert relative_error(problem.gradient(rule="romberg", n_steps=8), expected) < 1e-5
    assert relative_error(problem.gradient(rule="gauss_legendre", n_steps=12), expected) < 1e-5
    assert relative_error(problem.gradient(fast=False, n_steps=12), expected) < 1e-5


def exact_relu_slope(parameters, x, start):
    """The mean gradient along a path of a ReLU network with two hidden layers, piece by linear piece."""
    first, first_bias, second, second_bias, last, _ = parameters
    at_start, rate = first @ start + first_bias, first @ (x - start)

    def second_layer(position):
        return second @ torch.relu(at_start + position * rate) + second_bias

    cuts = {0.0, 1.0, *(position for position in (-at_start / rate).tolist() if 0 < position < 1)}
    for low, high in itertools.pairwise(sorted(cuts)):
        ends = zip(second_layer(low).tolist(), second_layer(high).tolist(), strict=True)
        cuts |= {low + (high - low) * a / (a - b) for a, b in ends if a * b < 0}
    slope = torch.zeros_like(x)
    for low, high in itertools.pairwise(sorted(cuts)):
        middle = (low + high) / 2
        lower, upper = at_start + middle * rate > 0, second_layer(middle) > 0
        slope += (high - low) * (first.T @ (lower * (second.T @ (upper * last[0]))))
    return slope


@pytest.fixture(scope="module")
def relu_problem():
    """A deep ReLU network, its exact penalty, and the gradient of that by finite differences."""
    problem = Problem((5, 4), "relu", n=10, columns=3, seed=5)

    def value():
        parameters = [parameter.detach() for parameter in problem.module.parameters()]
        values = [
            torch.stack(
                [
                    (row - start) * exact_relu_slope(parameters, row, start)
                    for row, start in zip(problem.x, starts, strict=True)
                ]
            )
            for starts in problem.baselines.of(problem.y)
        ]
        values = torch.stack(values)
        assert defined_rows(vector_norm(values, "l1")).all()
        return combine(disparity(values), problem.y, "sum").item()

    return problem, value(), finite_differences(value, problem.module)


def test_secants_have_the_right_gradient_for_deep_relu_networks(relu_problem):
    problem, value, gradient = relu_problem
    errors = {}
    for n_steps in (1, 16, 512):
        found = problem.value(rule="secant", n_steps=n_steps)
        errors[n_steps] = relative_error(problem.gradient(found), gradient)
    assert found.item() == pytest.approx(value, rel=1e-3)
    assert errors[512] < 0.02
    assert errors[16] < 0.3
    assert errors[1] < 1


def test_quadrature_has_the_wrong_gradient_for_deep_relu_networks_and_says_so(relu_problem):
    problem, value, gradient = relu_problem
    errors = []
    for n_steps in (64, 1024):
        for fast in (True, False):
            with pytest.warns(KinkWarning, match="does not converge"):
                found = problem.value(rule="midpoint", n_steps=n_steps, fast=fast)
            slope = problem.gradient(found)
            errors.append(relative_error(slope, gradient))
            assert not slope[15:20].any()  # the first layer's biases, which do matter:
    assert gradient[15:20].any()
    assert found.item() == pytest.approx(value, rel=1e-2)
    assert min(errors) > 0.3


def test_kinks_are_warned_of_once(recwarn):
    problem = Problem(activation="relu")
    penalty = problem.penalty(rule="midpoint")
    for _ in range(3):
        penalty(problem.module, problem.x, problem.y)
    assert [warning.category for warning in recwarn] == [KinkWarning]


@EVERY_PATH
def test_the_output_bias_gets_no_gradient(path):
    problem = Problem()
    assert problem.gradient(**PATHS[path])[-1] == 0


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("options", [{"rule": "gauss_legendre"}, {"fast": False}], ids=["layered", "general"])
@pytest.mark.parametrize("max_bytes", [1, 5_000, 50_000])
def test_chunked_equals_unchunked(options, max_bytes, groups):
    problem = Problem(groups=groups, n=33)
    whole, cut = problem.value(**options), problem.value(max_bytes=max_bytes, **options)
    torch.testing.assert_close(cut, whole, rtol=1e-12, atol=0)
    torch.testing.assert_close(problem.gradient(cut), problem.gradient(whole), rtol=1e-9, atol=1e-12)


def test_the_engine_is_used_for_mini_batches_with_rows_without_reasons():
    """Its comparison with the readable penalty leaves out the same rows."""
    problem = Problem()
    baselines = problem.baselines.values
    problem.x[0], problem.x[4] = baselines[problem.y[0], 0], baselines[problem.y[4], 1]
    penalty = GCIGPenalty(problem.baselines)
    value = penalty(problem.module, problem.x, problem.y)
    assert penalty.agreement[1]
    assert penalty.n_undefined == 2
    readable = GCIGPenalty(problem.baselines, fast=False, n_steps=64)(problem.module, problem.x, problem.y)
    assert value.item() == pytest.approx(readable.item(), rel=2e-2)


@pytest.mark.parametrize("weighted", [False, True])
def test_each_member_in_chunks_equals_the_mean_over_single_members(weighted):
    problem = Problem(groups=2, n=33)
    pool = problem.x + 0.1  # nobody is their own reference
    members = GroupMembers(pool, problem.y, problem.g, n_members=3)
    weights = torch.rand(33, generator=torch.Generator().manual_seed(0)).double() if weighted else None

    def value(references, **options):
        penalty = GCIGPenalty(references, fast=False, n_steps=8, **options)
        return penalty(problem.module, problem.x, problem.y, sample_weight=weights)

    whole = value(members, each_member=True)
    cut = value(members, each_member=True, max_bytes=5_000)
    torch.testing.assert_close(cut, whole, rtol=1e-12, atol=0)
    single = [value(GroupBaselines(members.values[:, :, i])) for i in range(3)]
    torch.testing.assert_close(whole, torch.stack(single).mean(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("weighted", [False, True])
def test_each_member_leaves_out_the_pairs_of_row_and_member_that_have_no_reasons(weighted):
    """A row at one of its references is compared relative to the other members alone."""
    problem = Problem(n=12)
    members = GroupMembers(problem.x + 0.1, problem.y, problem.g, n_members=3)
    problem.x[0] = members.values[problem.y[0], 1, 2]
    weights = torch.arange(1.0, 13.0).double() if weighted else None
    penalty = GCIGPenalty(members, each_member=True, fast=False, n_steps=8)
    value = penalty(problem.module, problem.x, problem.y, sample_weight=weights)
    undefined = (members.values[problem.y[0], 1] == problem.x[0]).all(1)  # the member may be drawn again
    assert penalty.n_undefined == undefined.sum() > 0
    sums, totals = torch.zeros(2).double(), torch.zeros(2).double()
    for i in range(3):
        starts = members.values[:, :, i].transpose(0, 1)[:, problem.y]
        values = attributions(problem.module, problem.x, starts, n_steps=8, fast=False).values
        own = torch.ones(12).double() if weights is None else weights.clone()
        own[0] = 0 if undefined[i] else own[0]
        sums.index_add_(0, problem.y, own * disparity(values).detach().nan_to_num())
        totals.index_add_(0, problem.y, own)
    torch.testing.assert_close(value.detach(), (sums / totals).sum(), rtol=1e-9, atol=0)


@pytest.mark.parametrize("options", [{}, {"fast": False}, {"fast": False, "max_bytes": 5_000}])
def test_frozen_layers_get_no_gradient(options):
    problem = Problem()
    expected = problem.gradient(**options)
    problem.module[0].requires_grad_(False)
    problem.value(**options).backward()
    assert problem.module[0].weight.grad is None
    found = torch.cat([parameter.grad.flatten() for parameter in problem.module[2].parameters()])
    torch.testing.assert_close(found, expected[30 : 30 + len(found)], rtol=1e-9, atol=1e-12)


# --- zero disparity and zero attributions ------------------------------------------------------------


@EVERY_PATH
@pytest.mark.parametrize(("norm", "groups"), [("l1", 2), ("l2", 3), ("l1", 7)])
def test_identical_groups_have_no_penalty_and_a_finite_gradient(path, norm, groups):
    problem = Problem(groups=groups)
    same = problem.baselines.values[:, :1].expand(-1, groups, -1)
    penalty = GCIGPenalty(GroupBaselines(same), norm=norm, **PATHS[path])
    value = penalty(problem.module, problem.x, problem.y)
    assert value.item() == pytest.approx(0, abs=1e-7)
    assert flat_gradient(value, problem.module).isfinite().all()
    assert penalty.n_undefined == 0


@EVERY_PATH
def test_a_model_of_one_column_has_no_penalty_and_a_finite_gradient(path):
    problem = Problem((6, 5), "tanh")
    with torch.no_grad():
        problem.module[0].weight[:, 1:] = 0
    # All attributions are multiples of the first unit vector; where signs agree the disparity is 0.
    problem.x[:, 0] = problem.baselines.values[..., 0].max() + problem.x[:, 0].abs() + 0.1
    value = problem.value(**PATHS[path])
    assert value.item() == pytest.approx(0, abs=1e-6)
    assert problem.gradient(value).isfinite().all()


@EVERY_PATH
@NORMS
def test_rows_without_attributions_are_left_out_and_counted(path, norm):
    problem = Problem(n=40)
    kept = torch.ones(40, dtype=torch.bool)
    for row in (3, 17):  # at the baseline of one group
        problem.x[row] = problem.baselines.values[problem.y[row], row % 2]
        kept[row] = False
    penalty = problem.penalty(norm=norm, **PATHS[path])
    value = penalty(problem.module, problem.x, problem.y)
    assert penalty.n_undefined == 2
    others = problem.penalty(norm=norm, **PATHS[path])
    expected = others(problem.module, problem.x[kept], problem.y[kept])
    assert others.n_undefined == 0
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=0)
    torch.testing.assert_close(problem.gradient(value), problem.gradient(expected), rtol=1e-8, atol=1e-11)


@EVERY_PATH
def test_a_batch_without_any_defined_row_has_no_penalty(path):
    problem = Problem()
    with torch.no_grad():
        problem.module[-2].weight.zero_()
    penalty = problem.penalty(**PATHS[path])
    value = penalty(problem.module, problem.x, problem.y)
    assert value.item() == 0
    assert penalty.n_undefined == 30
    assert not problem.gradient(value).any()


@EVERY_PATH
def test_a_batch_of_one_label(path):
    problem = Problem()
    rows = problem.y == 0
    value = problem.penalty(**PATHS[path])(problem.module, problem.x[rows], problem.y[rows])
    both = problem.value(**PATHS[path])
    other = problem.penalty(**PATHS[path])(problem.module, problem.x[~rows], problem.y[~rows])
    assert (value + other).item() == pytest.approx(both.item(), rel=1e-9)


@pytest.mark.parametrize("label_weights", ["sum", "equal", "empirical"])
def test_labels_that_are_no_codes_are_refused(label_weights):
    with pytest.raises(ValueError, match="y must be int64 codes from 0 to 1"):
        label_members(torch.tensor([-1, 1]), label_weights)


def test_a_label_without_rows_counts_nothing_at_any_weight():
    members = label_members(torch.tensor([1, 1]))
    assert weigh_members(members, 500.0).tolist() == [250.0, 250.0]


@EVERY_PATH
def test_an_empty_batch(path):
    problem = Problem()
    assert problem.penalty(**PATHS[path])(problem.module, problem.x[:0], problem.y[:0]).item() == 0


@EVERY_PATH
def test_a_diverged_network_shows(path):
    problem = Problem()
    with torch.no_grad():
        problem.module[0].weight[0, 0] = math.nan
    assert problem.value(**PATHS[path]).isnan()


# --- options -----------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 1), min_size=1, max_size=60), st.sampled_from([0.125, 0.25, 0.5, 0.75]))
def test_sampled_rows_are_a_part_of_each_label(labels, share):
    y = torch.tensor(labels)
    rows = sample_rows(y, share, torch.Generator().manual_seed(0))
    assert len(set(rows.tolist())) == len(rows)
    for label in (0, 1):
        assert (y[rows] == label).sum() == math.ceil(share * labels.count(label))


def test_every_row_is_sampled_as_often_as_its_labels_others():
    y = torch.tensor([0] * 12 + [1] * 4)
    generator = torch.Generator().manual_seed(0)
    counts = torch.zeros(16)
    for _ in range(2000):
        counts[sample_rows(y, 0.25, generator)] += 1
    assert (counts / 2000 - 0.25).abs().max() < 0.05


def test_a_part_of_the_rows_is_right_on_average():
    problem = Problem(n=24)
    penalty = problem.penalty(rows=0.25, random_state=0)
    with torch.no_grad():
        values = torch.stack([penalty(problem.module, problem.x, problem.y) for _ in range(600)])
    whole = problem.value().item()
    error = (values.std() / 600**0.5).item()
    assert values.std() > 0
    assert abs(values.mean().item() - whole) < 4 * error
    assert error < 0.05 * whole


@pytest.mark.parametrize("every", [2, 5])
def test_every_kth_call_counts_k_times(every):
    problem = Problem()
    penalty = problem.penalty(every=every)
    values = [penalty(problem.module, problem.x, problem.y).item() for _ in range(3 * every)]
    whole = problem.value().item()
    expected = [every * whole if index % every == 0 else 0.0 for index in range(3 * every)]
    assert values == pytest.approx(expected)
    assert sum(values) / len(values) == pytest.approx(whole)


def test_calls_that_skip_still_update_the_baselines():
    problem = Problem()
    penalty, always = problem.penalty(every=3), problem.penalty()
    for start in range(0, 30, 10):
        rows = slice(start, start + 10)
        for each in (penalty, always):
            each(problem.module, problem.x[rows], problem.y[rows], problem.g[rows])
    assert torch.equal(penalty.baselines.values, always.baselines.values)


@pytest.mark.parametrize("path", ["fused", "general, chunked"])
def test_random_pairs_are_unbiased_for_the_squared_disparity(path):
    problem = Problem(groups=4, n=16)
    x, y = problem.x[:1], problem.y[:1]  # one row: the penalty is its disparity
    penalty = problem.penalty(pairs="random", random_state=0, **PATHS[path])
    with torch.no_grad():
        draws = [round(penalty(problem.module, x, y).item() ** 2, 12) for _ in range(300)]
    distinct = sorted(set(draws))
    assert len(distinct) == 6  # pairs of four groups
    assert max(abs(draws.count(value) - 50) for value in distinct) < 30
    whole = problem.penalty(**PATHS[path])(problem.module, x, y).item() ** 2
    assert sum(distinct) / 6 == pytest.approx(whole, rel=1e-6)


def test_a_random_pair_does_not_depend_on_the_number_of_columns():
    problem = Problem(groups=3, columns=2, n=12)
    penalty = problem.penalty(pairs="random", random_state=0)
    values = {round(penalty(problem.module, problem.x[:1], problem.y[:1]).item(), 12) for _ in range(40)}
    assert len(values) == 3  # pairs of three groups


def test_a_pair_of_two_groups_is_all_of_them():
    problem = Problem()
    assert problem.value(pairs="random").item() == problem.value().item()


@pytest.mark.parametrize("options", [{"rows": 0.3}, {"pairs": "random"}])
def test_random_state_reproduces(options):
    problem = Problem(groups=5)

    def draw(seed):
        penalty = problem.penalty(random_state=seed, **options)
        return [penalty(problem.module, problem.x, problem.y).item() for _ in range(5)]

    torch.manual_seed(0)
    first = draw(1)
    assert first == draw(1)
    assert first != draw(2)
    state = torch.get_rng_state()
    draw(1)
    assert torch.equal(torch.get_rng_state(), state)  # the global generator is left alone


def test_options_are_recorded():
    options = {"norm": "l2", "rule": "right", "n_steps": 16, "rows": 0.5, "every": 2, "pairs": "random"}
    definition = Problem().penalty(**options, label_weights="equal").definition
    recorded = definition.to_dict()
    assert {name: recorded[name] for name in options} == options
    assert recorded["label_weights"] == "equal"
    assert recorded["columns"] == "raw"
    assert Problem().penalty(origin=ORIGIN).definition.columns == "original"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, r"rows must be in \(0, 1\], not 0"),
        ({"every": 0}, "every must be an integer of at least 1"),
        ({"pairs": "few"}, "pairs must be one of"),
        ({"norm": "max"}, "norm must be one of"),
        ({"rule": "left"}, "rule must be one of"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Problem().penalty(**options)


@pytest.mark.parametrize("label_weights", ["sum", "equal", "empirical"])
def test_row_weights_in_double_precision(label_weights):
    y = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    values = torch.linspace(0, 1, 7, dtype=torch.float64)
    weights = label_row_weights(y, label_weights, dtype=torch.float64)
    assert weights @ values == pytest.approx(combine(values, y, label_weights).item(), rel=1e-14)
    defined = torch.tensor([True, False, True, True, False, False, True])
    weights = label_row_weights(y, label_weights, defined, dtype=torch.float64)
    expected = combine(values[defined], y[defined], label_weights)
    assert weights @ values == pytest.approx(expected.item(), rel=1e-14)


# --- what users do with it ---------------------------------------------------------------------------


def test_baselines_are_updated_before_the_loss():
    problem = Problem()
    penalty, by_hand = problem.penalty(), problem.penalty()
    value = penalty(problem.module, problem.x[:12], problem.y[:12], problem.g[:12])
    by_hand.baselines.update(problem.x[:12], problem.y[:12], problem.g[:12])
    expected = by_hand(problem.module, problem.x[:12], problem.y[:12])
    assert value.item() == expected.item()
    assert value.item() != problem.penalty()(problem.module, problem.x[:12], problem.y[:12]).item()


@EVERY_PATH
def test_labels_may_be_floats_and_booleans(path):
    problem = Problem()
    values = {
        problem.penalty(**PATHS[path])(problem.module, problem.x, y).item()
        for y in (problem.y, problem.y.double(), problem.y.bool())
    }
    assert len(values) == 1


@pytest.mark.parametrize("options", [{}, {"fast": False}])
def test_mistakes_are_named(options):
    problem = Problem()
    penalty = problem.penalty(**options)
    with pytest.raises(ValueError, match=r"y must have shape \(30,\), one label per row of x, not \(30, 1\)"):
        penalty(problem.module, problem.x, problem.y.unsqueeze(1))
    with pytest.raises(ValueError, match=r"rows of the references' shape \(4,\), not \(3,\)"):
        penalty(problem.module, problem.x[:, :3], problem.y)
    with pytest.raises(ValueError, match="y must be int64 codes from 0 to 1"):
        penalty(problem.module, problem.x, problem.y + 1)
    with pytest.raises(ValueError, match="groups must be int64 codes from 0 to 1"):
        penalty(problem.module, problem.x, problem.y, problem.g + 1)


@pytest.mark.parametrize("max_bytes", [1 << 28, 5_000])
def test_dropout_and_batch_norm_do_not_disturb(max_bytes):
    problem = Problem()
    layers = list(problem.module)
    module = nn.Sequential(layers[0], nn.BatchNorm1d(6), layers[1], nn.Dropout(0.5), *layers[2:]).double()
    module(problem.x)
    buffers = copy.deepcopy(dict(module.named_buffers()))
    penalty = problem.penalty(max_bytes=max_bytes)
    value = penalty(module, problem.x, problem.y)
    gradient = flat_gradient(value, module)
    assert all(part.training for part in module.modules())
    assert all(torch.equal(kept, buffers[name]) for name, kept in module.named_buffers())
    again = penalty(module.eval(), problem.x, problem.y)
    assert value.item() == again.item()
    assert torch.equal(gradient, flat_gradient(again, module))


@pytest.mark.parametrize("max_bytes", [1 << 28, 5_000])
def test_several_outputs_need_a_score(max_bytes):
    problem = Problem()
    module = nn.Sequential(*list(problem.module)[:4], nn.Linear(5, 2).double())
    with pytest.raises(ValueError, match=r"one logit per row.*pass score="):
        problem.penalty()(module, problem.x, problem.y)
    penalty = problem.penalty(score=lambda out: out[:, 1] - out[:, 0], rule="midpoint", max_bytes=max_bytes)
    value = penalty(module, problem.x, problem.y)
    single = nn.Linear(5, 1).double()
    with torch.no_grad():
        single.weight[0], single.bias[0] = module[4].weight[1] - module[4].weight[0], 0.0
    expected = problem.penalty(rule="midpoint")(
        nn.Sequential(*list(module)[:4], single), problem.x, problem.y
    )
    assert value.item() == pytest.approx(expected.item(), rel=1e-9)
    weight = torch.autograd.grad(value, module[4].weight)[0]
    torch.testing.assert_close(weight[0], -weight[1])
    assert weight.any()


def test_a_column_of_logits_is_as_good_as_a_row():
    problem = Problem()
    column = nn.Sequential(*list(problem.module)[:-1])
    assert column(problem.x).shape == (30, 1)
    for options in ({}, {"fast": False}):
        found = problem.penalty(**options)(column, problem.x, problem.y)
        assert found.item() == problem.value(**options).item()


def test_a_module_without_gradients_is_refused():
    class Counted(nn.Module):
        def forward(self, x):
            return (x > 0).sum(1).to(x.dtype)

    problem = Problem()
    with pytest.raises(ValueError, match="does not depend differentiably on its inputs"):
        problem.penalty()(Counted(), problem.x, problem.y)


@EVERY_PATH
def test_no_graph_where_none_is_wanted(path):
    problem = Problem()
    expected = problem.value(**PATHS[path])
    assert expected.requires_grad
    for off in (torch.no_grad(), torch.inference_mode()):
        with off:
            value = problem.penalty(**PATHS[path])(problem.module, problem.x * 1, problem.y)
        assert not value.requires_grad
        assert value.item() == pytest.approx(expected.item(), rel=1e-12)


@EVERY_PATH
def test_gradients_accumulate(path):
    problem = Problem()
    penalty = problem.penalty(**PATHS[path])
    halves = [slice(0, 15), slice(15, 30)]
    expected = sum(
        flat_gradient(penalty(problem.module, problem.x[h], problem.y[h]), problem.module) for h in halves
    )
    # Both forward passes before either backward pass: no pass may overwrite what another one needs.
    losses = [penalty(problem.module, problem.x[h], problem.y[h]) for h in halves]
    for loss in losses:
        (0.5 * loss).backward()
    found = torch.cat(
        [
            (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).flatten()
            for parameter in problem.module.parameters()
        ]
    )
    torch.testing.assert_close(found, 0.5 * expected, rtol=1e-10, atol=1e-13)


@EVERY_PATH
def test_sum_with_another_loss(path):
    problem = Problem()
    plain = problem.module(problem.x).square().mean()
    expected = problem.gradient(plain) + 0.2 * problem.gradient(**PATHS[path])
    loss = problem.module(problem.x).square().mean() + 0.2 * problem.value(**PATHS[path])
    torch.testing.assert_close(problem.gradient(loss), expected, rtol=1e-9, atol=1e-12)


@EVERY_PATH
def test_inference_mode_does_not_prevent_training(path):
    problem = Problem()
    penalty = problem.penalty(**PATHS[path])
    with torch.inference_mode():
        value = penalty(problem.module, problem.x, problem.y)
    again = penalty(problem.module, problem.x, problem.y)
    assert again.item() == pytest.approx(value.item(), rel=1e-12)
    torch.testing.assert_close(problem.gradient(again), problem.gradient(**PATHS[path]))


@pytest.mark.parametrize("hidden", [(6,), (6, 5)], ids=len)
def test_autocast_leaves_layered_networks_in_full_precision(hidden):
    problem = Problem(hidden, dtype=torch.float32)
    for options in ({}, {"rule": "gauss_legendre"}):
        expected = problem.value(**options)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = problem.value(**options)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(problem.gradient(found), problem.gradient(expected))


@pytest.mark.parametrize("max_bytes", [1 << 28, 5_000])
def test_autocast_of_other_modules_is_close(max_bytes):
    problem = Problem(dtype=torch.float32)
    expected = problem.value(fast=False)
    gradient = problem.gradient(expected)
    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("cpu", dtype=dtype):
            found = problem.value(fast=False, max_bytes=max_bytes)
        assert found.dtype == torch.float32
        assert found.item() == pytest.approx(expected.item(), rel=0.02)
        error = relative_error(problem.gradient(found), gradient)
        assert error < {torch.float16: 0.02, torch.bfloat16: 1}[dtype]


@EVERY_PATH
def test_single_precision_is_close_to_double(path):
    double, single = Problem(), Problem(dtype=torch.float32)
    assert single.value(**PATHS[path]).item() == pytest.approx(double.value(**PATHS[path]).item(), rel=1e-4)
    error = relative_error(single.gradient(**PATHS[path]).double(), double.gradient(**PATHS[path]))
    assert error < 2e-3


def test_columns_are_the_blocks_of_the_origin():
    penalty = Problem().penalty(origin=ORIGIN)
    assert penalty.n_columns == 2
    assert penalty.blocks.tolist() == [[1, 0], [0, 1], [0, 1], [1, 0]]
    assert (Problem().penalty().n_columns, Problem().penalty().blocks) == (None, None)
    kept = {"references.values", "references.n_empty", "n_undefined"}
    assert penalty.state_dict().keys() == kept  # the origin is a setting, not a state


def test_the_gradient_by_hand_is_that_of_the_l1_norm_and_of_no_subclass():
    class Own(GCIGPenalty):
        pass

    problem = Problem()
    assert problem.penalty().is_standard
    assert problem.penalty(origin=ORIGIN).is_standard
    assert not problem.penalty(norm="l2").is_standard
    assert not Own(problem.baselines).is_standard


def test_state_dict_holds_the_moving_averages():
    problem = Problem()
    penalty = problem.penalty()
    penalty(problem.module, problem.x[:9], problem.y[:9], problem.g[:9])
    twin = problem.penalty()
    assert not torch.equal(twin.baselines.values, penalty.baselines.values)
    twin.load_state_dict(penalty.state_dict())
    assert torch.equal(twin.baselines.values, penalty.baselines.values)
    assert torch.equal(twin.baselines.n_empty, penalty.baselines.n_empty)
    assert (
        twin(problem.module, problem.x, problem.y).item()
        == penalty(problem.module, problem.x, problem.y).item()
    )
    assert not list(penalty.parameters())


@pytest.mark.parametrize("path", ["fused", "layered", "general, chunked"])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda penalty: pickle.loads(pickle.dumps(penalty))])
def test_copies_behave_like_the_original(path, duplicate):
    problem = Problem(groups=3)
    penalty = problem.penalty(rows=0.5, every=2, random_state=0, **PATHS[path])
    for _ in range(3):
        penalty(problem.module, problem.x, problem.y)
    twin = duplicate(penalty)
    assert twin.definition == penalty.definition
    for _ in range(3):
        found, expected = (each(problem.module, problem.x, problem.y).item() for each in (twin, penalty))
        assert found == expected
    twin.baselines.update(problem.x[:9], problem.y[:9], problem.g[:9])
    assert not torch.equal(twin.baselines.values, penalty.baselines.values)


def test_one_penalty_serves_several_modules():
    problem, other = Problem(), Problem((3,), seed=1)
    penalty = problem.penalty(fast=False)
    for module in (problem.module, other.module, problem.module):
        found = penalty(module, problem.x, problem.y)
        assert found.item() == problem.penalty(fast=False)(module, problem.x, problem.y).item()


def test_modules_are_not_kept_alive():
    problem = Problem()
    penalty = problem.penalty(fast=False)
    penalty(problem.module, problem.x, problem.y)
    seen = weakref.ref(problem.module)
    del problem.module
    gc.collect()
    assert seen() is None


@pytest.mark.slow
@COMPILES
@pytest.mark.parametrize(("hidden", "activation"), [((6,), "relu"), ((6, 5), "silu"), ((6, 5), "relu")])
def test_torch_compile_of_layered_networks_is_one_graph(hidden, activation):
    torch.compiler.reset()
    problem = Problem(hidden, activation, dtype=torch.float32)
    penalty, eager = problem.penalty(), problem.penalty()

    def loss(x, y, g):
        return problem.module(x).square().mean() + 0.2 * penalty(problem.module, x, y, g)

    compiled = torch.compile(loss, fullgraph=True)
    for _ in range(3):
        found = compiled(problem.x, problem.y, problem.g)
        plain = problem.module(problem.x).square().mean()
        expected = plain + 0.2 * eager(problem.module, problem.x, problem.y, problem.g)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(problem.gradient(found), problem.gradient(expected), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(penalty.baselines.values, eager.baselines.values)


@pytest.mark.slow
@COMPILES
@pytest.mark.parametrize(
    "options",
    [
        {"fast": False},
        {"rows": 0.5},
        {"every": 2},
        {"pairs": "random"},
        {"max_bytes": 5_000},
        {"max_bytes": 5_000, "rule": "midpoint"},
    ],
    ids=str,
)
def test_torch_compile_falls_back_to_eager_code(options):
    torch.compiler.reset()
    problem = Problem(groups=3, dtype=torch.float32)
    penalty, eager = (problem.penalty(random_state=0, **options) for _ in range(2))
    compiled = torch.compile(lambda x, y: penalty(problem.module, x, y) + problem.module(x).mean())
    for _ in range(4):
        found = compiled(problem.x, problem.y)
        expected = eager(problem.module, problem.x, problem.y) + problem.module(problem.x).mean()
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(problem.gradient(found), problem.gradient(expected), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@COMPILES
@pytest.mark.parametrize("options", [{}, {"fast": False}, {"fast": False, "max_bytes": 5_000}], ids=str)
@pytest.mark.parametrize("in_place", [True, False])
def test_compiled_modules_are_explained(options, in_place):
    """Compiled code has no second derivatives."""
    torch.compiler.reset()
    problem = Problem(dtype=torch.float32)
    expected = problem.value(**options)
    gradient = problem.gradient(expected)
    if in_place:
        problem.module.compile()
        module = problem.module
    else:
        module = torch.compile(problem.module)
    module(problem.x).sum().backward()
    found = problem.penalty(**options)(module, problem.x, problem.y)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(problem.gradient(found), gradient)


@pytest.mark.parametrize("activation", ["silu", "relu"])
def test_training_lowers_the_disparity(activation):
    problem = Problem(activation=activation, n=200, dtype=torch.float32)
    penalty = problem.penalty()
    optimizer = torch.optim.Adam(problem.module.parameters(), lr=0.01)
    before = penalty(problem.module, problem.x, problem.y).item()
    for _ in range(60):
        optimizer.zero_grad()
        penalty(problem.module, problem.x, problem.y).backward()
        optimizer.step()
    assert penalty(problem.module, problem.x, problem.y).item() < 0.6 * before


@pytest.mark.parametrize("fast", [True, False])
def test_a_row_of_weight_two_counts_as_two(fast):
    torch.manual_seed(0)
    x, y = torch.randn(12, 4, dtype=torch.float64), torch.arange(12) % 2
    net = nn.Sequential(nn.Linear(4, 6), nn.SiLU(), nn.Linear(6, 1)).double()
    baselines = GroupBaselines.from_data(x, y, torch.arange(12) // 2 % 2)
    penalty = GCIGPenalty(baselines, fast=fast, n_steps=4 if not fast else "auto")
    weights = torch.ones(12)
    weights[:3] = 2
    twice = torch.cat([torch.arange(12), torch.arange(3)])
    weighted, repeated = penalty(net, x, y, sample_weight=weights), penalty(net, x[twice], y[twice])
    torch.testing.assert_close(weighted, repeated)
    for ours, theirs in zip(
        torch.autograd.grad(weighted, net.parameters(), allow_unused=True),
        torch.autograd.grad(repeated, net.parameters(), allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("activation", ["silu", "relu"])
def test_rounding_in_single_precision(activation, monkeypatch):
    """Secants blend slopes more in single precision; rounding itself changes a gradient by less than 1e-5."""
    generator = torch.Generator().manual_seed(0)
    network = make_mlp(12, (16, 8), activation, generator=generator)
    x, codes = torch.randn(64, 12, generator=generator), torch.arange(64)

    def gradient(dtype):
        module, rows = copy.deepcopy(network).to(dtype), x.to(dtype)
        penalty = GCIGPenalty(GroupBaselines.from_data(rows, codes % 2, codes // 2 % 2))
        parts = torch.autograd.grad(penalty(module, rows, codes % 2), list(module.parameters())[:-1])
        return torch.cat([part.flatten().double() for part in parts])

    def distance(expected):
        return float((gradient(torch.float32) - expected).norm() / expected.norm())

    assert distance(gradient(torch.float64)) < 4e-5
    single = {smooth: sharpness(torch.float32, smooth=smooth) for smooth in (True, False)}
    for room in ("gcig.core.paths", "gcig.engine.secant_pass"):
        monkeypatch.setattr(f"{room}.sharpness", lambda _, *, smooth: single[smooth])
    assert distance(gradient(torch.float64)) < 1e-5
