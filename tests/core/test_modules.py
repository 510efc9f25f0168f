"""Modules in evaluation mode, and probes."""

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

import gcig
from gcig.core.modules import (
    KinkWarning,
    check_trainable,
    differentiating,
    evaluating,
    running_eagerly,
)


def test_every_part_goes_back_to_the_mode_it_was_in():
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Sequential(nn.Dropout(), nn.Linear(3, 1)))
    net[1].eval()  # a frozen BatchNorm in a module that trains
    before = [part.training for part in net.modules()]
    with evaluating(net):
        assert not any(part.training for part in net.modules())
    assert [part.training for part in net.modules()] == before
    assert before.count(False) == 1


def test_modes_are_restored_after_an_error():
    net = nn.Sequential(nn.Dropout())
    with pytest.raises(RuntimeError, match="inside"), evaluating(net):
        raise RuntimeError("inside")
    assert net.training
    assert net[0].training


def test_the_last_of_several_callers_restores_the_kernels_of_attention():
    """Callers that leave in another order than they entered, as threads do."""
    fused = torch.backends.cuda.flash_sdp_enabled
    first, second = (differentiating(nn.Linear(2, 1), twice=True) for _ in range(2))
    assert fused()
    for enter_or_leave, expected in (
        (first.__enter__, False),
        (second.__enter__, False),
        (lambda: first.__exit__(None, None, None), False),
        (lambda: second.__exit__(None, None, None), True),
    ):
        enter_or_leave()
        assert fused() == expected
    with differentiating(nn.Linear(2, 1), twice=False):
        assert fused()


class Applied(nn.Module):
    """An activation as a function: no module says what it is."""

    def __init__(self, function):
        super().__init__()
        self.first, self.function = nn.Linear(6, 8), function

    def forward(self, x):
        return self.function(self.first(x)).square().sum(1)


def max_pool(z):
    return functional.max_pool1d(z.unsqueeze(1), 2).flatten(1)


KINKED = [
    torch.relu,
    functional.leaky_relu,
    functional.relu6,
    functional.hardtanh,
    functional.hardswish,
    functional.hardshrink,
    functional.softshrink,
    functional.selu,
    lambda z: functional.elu(z, alpha=0.5),
    lambda z: functional.rrelu(z, training=False),
    lambda z: functional.prelu(z, torch.tensor(0.1)),
    lambda z: functional.threshold(z, 0.1, 0.0),
    max_pool,
]
SMOOTH = [
    functional.silu,
    functional.gelu,
    torch.tanh,
    torch.sigmoid,
    functional.softplus,
    functional.elu,
    lambda z: functional.celu(z, alpha=0.5),
    lambda z: functional.layer_norm(z, (8,)),
    lambda z: torch.softmax(z, 1),
]


def check(module, points, kinks=True):
    check_trainable(module, lambda each: module(each[0]).view(1, -1), points.unsqueeze(0), kinks=kinks)


@pytest.mark.parametrize(
    ("function", "kinked"), [*((f, True) for f in KINKED), *((f, False) for f in SMOOTH)]
)
def test_kinks_are_warned_of(function, kinked, recwarn):
    check(Applied(function), torch.randn(2, 6))
    assert [each.category for each in recwarn] == [KinkWarning] * kinked
    recwarn.clear()
    check(Applied(function), torch.randn(2, 6), kinks=False)
    assert not recwarn.list


def test_checking_leaves_no_trace():
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.SiLU(), nn.Dropout(), nn.Linear(4, 1))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = torch.get_rng_state()
    check(module, torch.zeros(5, 3))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(part.training for part in module.modules())
    assert all(parameter.grad is None for parameter in module.parameters())


class OnceDifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values):
        ctx.save_for_backward(values)
        return values.square()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_values):
        return 2 * d_values * ctx.saved_tensors[0]


@pytest.mark.parametrize("function", [OnceDifferentiable.apply, functional.hardsigmoid])
def test_a_module_without_second_derivatives_is_refused_with_advice(function):
    with pytest.raises(RuntimeError, match=r"no second derivative.*use plain operations"):
        check(Applied(function), torch.randn(2, 6))


@pytest.mark.parametrize("name", ["_compiled_call_impl", "_orig_mod"])
def test_modules_with_a_compiled_part_are_run_eagerly(name, monkeypatch):
    module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    monkeypatch.setattr(torch.compiler, "set_stance", lambda stance: stance)
    assert running_eagerly(module) != "force_eager"
    object.__setattr__(module[1], name, object())
    assert running_eagerly(module) == "force_eager"


@pytest.fixture
def one_process(tmp_path):
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("wrap", [nn.parallel.DistributedDataParallel, fully_shard])
def test_modules_that_average_gradients_over_processes_are_refused(wrap, inside):
    mesh = {"mesh": init_device_mesh("cpu", (1,))} if wrap is fully_shard else {}
    net = wrap(nn.Sequential(nn.Linear(2, 1)), **mesh)
    x, y = torch.randn(8, 2), torch.arange(8) % 2
    penalty = gcig.GCIGPenalty(gcig.GroupBaselines.from_data(x, y, torch.arange(8) // 4))
    with pytest.raises(ValueError, match=r"docs/howto/own_loop\.rst"):
        penalty(nn.Sequential(net, nn.Identity()) if inside else net, x, y)


def test_a_compiled_module_has_the_penalty_of_the_plain_one():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.SiLU(), nn.Linear(3, 1))
    x, y = torch.randn(8, 2), torch.arange(8) % 2
    penalty = gcig.GCIGPenalty(gcig.GroupBaselines.from_data(x, y, torch.arange(8) // 4))
    compiled = penalty(torch.compile(net, backend="eager"), x, y)
    assert compiled.item() > 0
    torch.testing.assert_close(compiled, penalty(net, x, y))
