import json

import pytest
import torch
from torch import nn

from gcig._arguments import InputError
from gcig.methods.networks import (
    Affine,
    MixtureOfOutputs,
    architecture_of,
    copy_checked,
    heaviest,
    needs_module,
    restore_network,
    with_affine,
)
from gcig.models.mlp import MLP, make_mlp


class Applied(nn.Module):
    """A linear layer followed by a function."""

    def __init__(self, function, n_outputs=1):
        super().__init__()
        self.linear, self.function = nn.Linear(3, n_outputs), function

    def forward(self, rows):
        return self.function(self.linear(rows))


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(3, 1),
        nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)),
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.ReLU(), nn.Linear(4, 1)),
    ],
    ids=["(n, 1)", "(n,)", "BatchNorm and dropout"],
)
def test_a_copy_with_the_same_weights_and_modes(module):
    before = {name: value.clone() for name, value in module.state_dict().items()}
    network = copy_checked(module, 3)
    assert network is not module
    assert all(part.training for part in network.modules())
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])
        assert value.data_ptr() != module.state_dict()[name].data_ptr()


def test_frozen_layers_are_fine_as_long_as_something_can_be_trained():
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    module[0].requires_grad_(False)
    assert not copy_checked(module, 3)[0].weight.requires_grad


@pytest.mark.parametrize(
    ("module", "n_inputs", "message"),
    [
        (nn.Linear(4, 1), 3, "module does not take rows of 3 numbers.*shapes"),
        (nn.Linear(3, 2), 3, r"gave \(2, 2\) for 2 rows.*b - a"),
        (Applied(torch.sum), 3, r"one logit per row.*gave \(\)"),
        (Applied(lambda out: (out, out)), 3, "one logit per row.*gave tuple"),
        (Applied(lambda out: out.detach()), 3, "not differentiable"),
        (Applied(lambda out: (out > 0).float()), 3, "not differentiable"),
        (nn.Flatten(0), 1, "no parameters that require gradients"),
        (nn.Linear(3, 1).requires_grad_(False), 3, "no parameters that require gradients"),
        (nn.Linear(3, 1).double(), 3, r"float32 parameters.*module\.float\(\)"),
        ("resnet", 3, "must be a torch.nn.Module, not a str"),
        (nn.Linear, 3, "must be a torch.nn.Module, not a type"),
    ],
)
def test_other_modules_are_refused_with_the_reason(module, n_inputs, message):
    with pytest.raises(InputError, match=message):
        copy_checked(module, n_inputs)


def test_an_error_of_the_users_own_code_is_passed_on():
    def fail(out):
        raise KeyError("no such table")

    with pytest.raises(InputError, match="KeyError: 'no such table'") as found:
        copy_checked(Applied(fail), 3)
    assert isinstance(found.value.__cause__, KeyError)


# --- Storage ------------------------------------------------------------------------------------------


def test_a_network_of_this_package_is_rebuilt():
    network = make_mlp(3, (4,), "gelu", dropout=0.1)
    architecture = json.loads(json.dumps(architecture_of(network)))
    twin = restore_network(architecture, network.state_dict(), None)
    assert not twin.training
    x = torch.randn(5, 3)
    assert torch.equal(twin(x), network.eval()(x))


class Doubled(MLP):
    def forward(self, rows):
        return 2 * super().forward(rows)


@pytest.mark.parametrize("network", [Doubled(3, (4,)), nn.Linear(3, 1)], ids=["subclass", "other"])
def test_a_network_with_other_code_has_no_architecture(network):
    assert architecture_of(network) is None


def test_a_users_network_is_copied_and_gets_the_stored_weights():
    stored, given = nn.Linear(3, 1), nn.Linear(3, 1)
    before = given.weight.detach().clone()
    found = restore_network(None, stored.state_dict(), given)
    assert torch.equal(found.weight, stored.weight)
    assert torch.equal(given.weight, before)


def test_a_missing_or_different_network_is_refused():
    state = nn.Linear(3, 1).state_dict()
    with pytest.raises(InputError, match=r"module is missing.*gcig\.load\(path, module="):
        restore_network(None, state, None)
    with pytest.raises(InputError, match="module does not have the architecture of the stored network"):
        restore_network(None, state, nn.Linear(4, 1))


def test_a_mixture_is_rebuilt_with_its_weights():
    mixture = MixtureOfOutputs([make_mlp(3, (4,)), make_mlp(3, (2,))], [1.0, 3.0])
    architecture = json.loads(json.dumps(architecture_of(mixture)))
    assert not needs_module(architecture)
    twin = restore_network(architecture, mixture.state_dict(), None)
    x = torch.randn(5, 3)
    assert torch.equal(twin(x), mixture.eval()(x))


def test_a_mixture_of_a_users_networks_needs_the_module():
    mixture = MixtureOfOutputs([nn.Linear(3, 1), nn.Linear(3, 1)], [1.0, 1.0])
    assert needs_module(architecture_of(mixture))
    with pytest.raises(InputError, match="module is missing"):
        restore_network(architecture_of(mixture), mixture.state_dict(), None)
    twin = restore_network(architecture_of(mixture), mixture.state_dict(), nn.Linear(3, 1))
    x = torch.randn(5, 3)
    assert torch.equal(twin(x), mixture(x))


def test_a_mixture_takes_weights_that_are_scaled_and_refuses_others():
    networks = [nn.Linear(2, 1), nn.Linear(2, 1)]
    mixture = MixtureOfOutputs(networks, [2.0, 6.0])
    assert mixture.weights.tolist() == [0.25, 0.75]
    for weights in ([1.0], [1.0, 0.0], [1.0, -1.0]):
        with pytest.raises(ValueError, match="2 networks need as many positive weights"):
            MixtureOfOutputs(networks, weights)


@pytest.mark.parametrize("shape", [(3, 1), (3, 2)])
def test_a_mixture_of_any_number_of_outputs_is_the_mean(shape):
    networks, x = [nn.Linear(*shape), nn.Linear(*shape)], torch.randn(5, 3)
    mixed = MixtureOfOutputs(networks, [1.0, 3.0])(x)
    torch.testing.assert_close(mixed, 0.25 * networks[0](x) + 0.75 * networks[1](x))


def test_training_continues_with_the_heaviest_network_of_a_mixture_in_its_units():
    networks, x = [make_mlp(3, (4,)), make_mlp(3, (2,))], torch.randn(5, 3)
    expected = 2 * networks[1](x) + 1
    mixture = MixtureOfOutputs(networks, [1.0, 3.0])
    assert heaviest(mixture) is networks[1]
    scaled = with_affine(mixture, 2.0, torch.ones(1))
    assert isinstance(scaled, Affine)
    torch.testing.assert_close(heaviest(scaled)(x), expected)
    assert heaviest(networks[0]) is networks[0]


@pytest.mark.parametrize("module", [make_mlp(3, (4,)), nn.Linear(3, 2), nn.Linear(3, 1)])
def test_outputs_are_scaled_shifted_and_stored(module):
    x = torch.randn(5, 3)
    shift = torch.arange(1.0, 1 + (module(x).shape[-1] if module(x).dim() > 1 else 1))
    expected = 2 * module(x) + shift
    scaled = with_affine(module, 2.0, shift)
    torch.testing.assert_close(scaled(x), expected)
    given = None if isinstance(module, MLP) else module
    twin = restore_network(architecture_of(scaled), scaled.state_dict(), given)
    torch.testing.assert_close(twin(x), expected)
