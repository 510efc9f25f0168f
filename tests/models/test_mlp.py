"""The shared network: its layers, its initial weights, its description."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from gcig.models.mlp import ACTIVATIONS, MLP, make_mlp, mlp_from_architecture


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_layers_alternate_and_logits_are_a_vector(activation):
    mlp = make_mlp(5, (8, 4), activation, generator=seeded())
    kinds = [type(layer) for layer in mlp]
    middle = ACTIVATIONS[activation]
    assert kinds == [nn.Linear, middle, nn.Linear, middle, nn.Linear, nn.Flatten]
    assert [(m.in_features, m.out_features) for m in mlp if isinstance(m, nn.Linear)] == [
        (5, 8),
        (8, 4),
        (4, 1),
    ]
    x = torch.randn(7, 5)
    assert mlp(x).shape == (7,)
    assert mlp(x[:1]).shape == (1,)
    assert mlp[1] is not mlp[3]


def test_defaults_are_64_32_silu():
    assert make_mlp(3).architecture() == {
        "n_inputs": 3,
        "hidden_sizes": [64, 32],
        "n_outputs": 1,
        "activation": "silu",
        "dropout": 0.0,
    }


def test_several_outputs_are_columns():
    mlp = make_mlp(5, (8,), n_outputs=3, generator=seeded())
    assert mlp(torch.randn(7, 5)).shape == (7, 3)
    assert mlp.last.out_features == 3


def test_no_hidden_layer_gives_a_linear_model():
    mlp = make_mlp(3, (), generator=seeded())
    linear, _ = mlp
    x = torch.randn(4, 3)
    torch.testing.assert_close(mlp(x), x @ linear.weight[0] + linear.bias)


def test_the_generator_decides_the_weights_and_the_global_one_is_untouched():
    before = torch.get_rng_state()
    one, two, other = (make_mlp(4, generator=seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name])
        assert not torch.equal(value, other.state_dict()[name])


def test_weights_are_those_of_a_chain_of_torch_linears():
    state = torch.get_rng_state()
    try:
        torch.manual_seed(5)
        chain = [nn.Linear(4, 64), nn.Linear(64, 32), nn.Linear(32, 1)]
        torch.manual_seed(5)
        unseeded = make_mlp(4)
    finally:
        torch.set_rng_state(state)
    for mlp in (unseeded, make_mlp(4, generator=seeded(5))):
        for ours, theirs in zip([mlp[0], mlp[2], mlp[4]], chain, strict=True):
            torch.testing.assert_close(ours.weight, theirs.weight)
            torch.testing.assert_close(ours.bias, theirs.bias)


def test_initial_weights_fill_their_range():
    weight = make_mlp(100, (200,), generator=seeded())[0].weight
    assert weight.abs().max() <= 1 / math.sqrt(100)
    assert weight.std().item() == pytest.approx(1 / math.sqrt(300), rel=0.02)


def test_dropout_follows_each_activation_and_acts_in_training_only():
    mlp = make_mlp(3, (16, 8), dropout=0.5, generator=seeded())
    kinds = [type(layer) for layer in mlp]
    assert kinds[:-1] == [nn.Linear, nn.SiLU, nn.Dropout, nn.Linear, nn.SiLU, nn.Dropout, nn.Linear]
    x = torch.randn(50, 3)
    assert not torch.equal(mlp(x), mlp(x))
    mlp.eval()
    assert torch.equal(mlp(x), mlp(x))


def test_everything_trains():
    mlp = make_mlp(3, generator=seeded())
    mlp(torch.randn(10, 3)).sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in mlp.parameters())


def test_description_and_weights_rebuild_the_network_through_json():
    mlp = make_mlp(6, np.array([5, 3]), "gelu", dropout=0.25, generator=seeded()).double().eval()
    before = torch.get_rng_state()
    twin = mlp_from_architecture(json.loads(json.dumps(mlp.architecture())), mlp.state_dict()).eval()
    assert torch.equal(torch.get_rng_state(), before)
    x = torch.randn(9, 6, dtype=torch.float64)
    assert torch.equal(twin(x), mlp(x))
    assert twin.architecture() == mlp.architecture()
    assert all(parameter.requires_grad for parameter in twin.parameters())
    with torch.no_grad():
        twin[0].weight.zero_()
    assert mlp[0].weight.any()  # the twin has its own memory


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_inputs": 4}, "state does not fit"),
        ({"hidden_sizes": [10**9]}, "state does not fit"),  # would be 12 GB if it were allocated
        ({"hidden_sizes": [10**40]}, "state does not fit"),
        ({"hidden_sizes": []}, "state does not fit"),
        ({"hidden_sizes": [1] * 10**6}, "state does not fit 1000000 hidden layers"),  # 6 GB of layers
        ({"hidden_sizes": "64"}, "hidden_sizes must be a sequence"),
        ({"activation": ["silu"]}, "unknown activation"),
        ({"code": "print()"}, "architecture must have the keys"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(change, message):
    mlp = make_mlp(3, (2,))
    with pytest.raises(ValueError, match=message):
        mlp_from_architecture(mlp.architecture() | change, mlp.state_dict())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"activation": "rleu"}, ValueError, "unknown activation 'rleu': did you mean 'relu'?"),
        ({"activation": "SiLU"}, ValueError, "did you mean 'silu'?"),
        ({"activation": "qqq"}, ValueError, "choose from relu, silu, gelu"),
        ({"hidden_sizes": (64, 0)}, ValueError, r"hidden_sizes\[1\] must be a positive integer; got 0"),
        ({"hidden_sizes": (-3,)}, ValueError, r"hidden_sizes\[0\] must be a positive integer; got -3"),
        ({"hidden_sizes": (2.5,)}, TypeError, r"hidden_sizes\[0\] must be a positive integer; got float"),
        ({"hidden_sizes": (True,)}, TypeError, r"hidden_sizes\[0\] must be a positive integer; got True"),
        ({"hidden_sizes": 64}, TypeError, r"hidden_sizes must be a sequence .* got 64"),
        ({"n_inputs": 0}, ValueError, "n_inputs must be a positive integer; got 0"),
        ({"dropout": 1.0}, ValueError, r"dropout must be in \[0, 1\); got 1.0"),
        ({"dropout": math.nan}, ValueError, "dropout must be"),
    ],
)
def test_errors_name_the_argument(arguments, error, message):
    with pytest.raises(error, match=message):
        make_mlp(**({"n_inputs": 3} | arguments))


def test_make_mlp_gives_an_mlp():
    assert isinstance(make_mlp(2), MLP)
