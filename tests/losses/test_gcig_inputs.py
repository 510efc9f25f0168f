"""The penalty of sequences and images: attention that is differentiated twice, and groups of inputs."""

import pytest
import torch
from gcig.core.disparity import disparity
from gcig.losses.gcig import GCIGPenalty
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from gcig.core.attribution import attributions
from gcig.core.references import GroupBaselines, GroupMembers
from support.networks import image_problem, token_problem


class OnceDifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values):
        ctx.save_for_backward(values)
        return values.square()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_values):
        return 2 * d_values * ctx.saved_tensors[0]


class OnceDifferentiableNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)

    def forward(self, x):
        return OnceDifferentiable.apply(self.linear(x))


def gradient(loss, module):
    return torch.cat(
        [
            part.flatten()
            for part in torch.autograd.grad(
                loss, list(module.parameters()), allow_unused=True, materialize_grads=True
            )
        ]
    )


def test_fused_attention_alone_has_no_second_derivative():
    queries = torch.randn(1, 1, 5, 8, requires_grad=True)
    (slope,) = torch.autograd.grad(
        scaled_dot_product_attention(queries, queries, queries).sum(), queries, create_graph=True
    )
    with pytest.raises(RuntimeError, match="is not implemented"):
        torch.autograd.grad(slope.square().sum(), queries)


def test_transformers_are_trained_on_their_attributions():
    module, x, y, groups = token_problem()
    penalty = GCIGPenalty(GroupBaselines.from_data(x, y, groups))
    found = gradient(penalty(module, x, y), module)
    step, direction = 1e-5, torch.randn_like(found)
    start = nn.utils.parameters_to_vector(module.parameters()).detach()
    values = []
    for sign in (1, -1):
        nn.utils.vector_to_parameters(start + sign * step * direction, module.parameters())
        values.append(penalty(module, x, y).item())
    assert float(found @ direction) == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-5)


def test_a_module_without_second_derivatives_is_refused_with_advice_but_can_be_measured():
    x, y, groups = torch.randn(12, 4), torch.arange(12) % 2, torch.arange(12) // 2 % 2
    module, baselines = OnceDifferentiableNetwork(), GroupBaselines.from_data(x, y, groups)
    with pytest.raises(RuntimeError, match=r"no second derivative.*use plain operations"):
        GCIGPenalty(baselines)(module, x, y)
    with pytest.raises(RuntimeError, match="no second derivative"):
        attributions(module, x, baselines.of(y), create_graph=True)
    with torch.no_grad():
        assert GCIGPenalty(baselines)(module, x, y).item() >= 0


@pytest.mark.parametrize("members", [False, True], ids=["means", "members"])
@pytest.mark.parametrize("kind", ["tokens", "patches"])
def test_groups_of_inputs_equal_loops(kind, members):
    module, x, y, groups = token_problem() if kind == "tokens" else image_problem()
    if kind == "tokens":
        origin = torch.arange(x.shape[1]).unsqueeze(1)
    else:
        down, across = torch.meshgrid(torch.arange(6) // 3, torch.arange(6) // 2, indexing="ij")
        origin = 3 * down + across
    references = (
        GroupMembers(x, y, groups, n_members=2) if members else GroupBaselines.from_data(x, y, groups)
    )
    found = GCIGPenalty(references, origin=origin, label_weights="empirical")(module, x, y)

    starts = references.values if members else references.values.unsqueeze(2)
    spread = origin.expand(x.shape[1:])
    sums = torch.zeros(2, len(x), int(origin.max()) + 1, dtype=x.dtype)
    for group in range(2):
        for member in range(starts.shape[2]):
            start = starts[y, group, member].unsqueeze(0)
            values = attributions(module, x, start, rule="gauss_legendre", n_steps=2).values[0]
            for index in range(sums.shape[-1]):
                sums[group, :, index] += values[:, spread == index].sum(1) / starts.shape[2]
    assert found.item() == pytest.approx(float(disparity(sums).mean()), rel=1e-9)


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        (torch.arange(7), r"shape of a row, \(5, 4\), or one that broadcasts to it, not \(7,\)"),
        (torch.arange(4.0), "integers from 0"),
        (torch.arange(4) - 1, "integers from 0"),
    ],
)
def test_impossible_groups_of_inputs_are_refused(origin, message):
    _, x, y, groups = token_problem()
    with pytest.raises(ValueError, match=message):
        GCIGPenalty(GroupBaselines.from_data(x, y, groups), origin=origin)


def test_references_on_another_device_are_refused():
    module, x, y, groups = token_problem()
    penalty = GCIGPenalty(GroupBaselines.from_data(x, y, groups)).to("meta")
    with pytest.raises(ValueError, match=r"x is on cpu, but .* on meta: .*penalty\.to\('cpu'\)"):
        penalty(module, x, y)
