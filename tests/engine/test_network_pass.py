"""Hand-written passes of layered networks against autograd through the readable functions."""

import pytest
import torch
from gcig.core.layered import LayeredNetwork
from gcig.core.paths import cell_secant_attributions
from gcig.engine.network_pass import NetworkPass
from gcig.engine.optimizer import flat_parameters
from torch import nn
from torch.testing import assert_close

from gcig.core.modules import logits

COLUMNS = 5
ACTIVATIONS = {"silu": nn.SiLU, "relu": nn.ReLU, "tanh": nn.Tanh, "softplus": nn.Softplus}


def make_network(hidden=(6, 4), activation="silu", *, hidden_bias=True, bias=True):
    torch.manual_seed(0)
    sizes, steps = (COLUMNS, *hidden), []
    for below, units in zip(sizes, hidden, strict=False):
        steps += [nn.Linear(below, units, bias=hidden_bias), ACTIVATIONS[activation]()]
    return nn.Sequential(*steps, nn.Linear(sizes[-1], 1, bias=bias)).double()


def make_batch(n=9, extra=4, references=2, labels=2, seed=1):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n + extra, COLUMNS, generator=generator, dtype=torch.float64)
    values = torch.randn(labels, references, COLUMNS, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(labels, (n,), generator=generator), values


def weigh(tensor):
    """Return fixed weights: a scalar whose gradient reaches every entry."""
    generator = torch.Generator().manual_seed(7)
    return torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)


def by_autograd(network, inputs, labels, references, n_segments):
    layered = LayeredNetwork.recognise(network)
    scores = logits(network, inputs)
    values = cell_secant_attributions(layered, inputs[: len(labels)], labels, references, n_segments)
    total = (scores * weigh(scores)).sum() + (values * weigh(values)).sum()
    gradients = torch.autograd.grad(
        total, list(network.parameters()), allow_unused=True, materialize_grads=True
    )
    return scores.detach(), values.detach(), gradients


def check_explanation(engine, network, batch, n_segments=1):
    inputs, labels, references = batch
    expected = by_autograd(network, inputs, labels, references, n_segments)
    scores, values = engine.explain(inputs, labels, references)
    assert_close((scores, values), expected[:2], rtol=1e-9, atol=1e-11)
    engine.pull(weigh(scores), weigh(values))
    found = [parameter.grad for parameter in network.parameters()]
    scale = max(float(gradient.abs().max()) for gradient in expected[2])
    assert_close(found, list(expected[2]), rtol=1e-7, atol=1e-8 * scale)


@pytest.mark.parametrize("activation", ["silu", "relu", "tanh"])
@pytest.mark.parametrize(("hidden", "n_segments"), [((6,), 1), ((6, 4), 1), ((6, 4), 3), ((5, 4, 3), 2)])
def test_logits_attributions_and_gradients_are_those_of_autograd(activation, hidden, n_segments):
    network = make_network(hidden, activation)
    with flat_parameters(network):
        check_explanation(NetworkPass(network, n_segments), network, make_batch(), n_segments)


@pytest.mark.parametrize("references", [1, 3, 5, 18], ids="{} references".format)
@pytest.mark.parametrize("labels", [2, 3], ids="{} labels".format)
def test_several_references_per_label(references, labels):
    network = make_network()
    with flat_parameters(network):
        check_explanation(NetworkPass(network), network, make_batch(references=references, labels=labels))


@pytest.mark.parametrize(
    "options", [{"hidden_bias": False}, {"bias": False}, {"hidden_bias": False, "bias": False}]
)
@pytest.mark.parametrize("n_segments", [1, 2])
def test_networks_without_biases(options, n_segments):
    network = make_network(**options)
    with flat_parameters(network):
        check_explanation(NetworkPass(network, n_segments), network, make_batch(), n_segments)


def test_batches_of_several_sizes_share_arrays():
    network = make_network()
    with flat_parameters(network):
        engine = NetworkPass(network)
        for n, extra, references in ((9, 4, 2), (3, 0, 2), (9, 4, 2), (20, 1, 5), (1, 30, 2)):
            check_explanation(engine, network, make_batch(n, extra, references, seed=n))


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("hidden", [(), (6,), (6, 4)], ids=len)
def test_rows_that_are_only_predicted(activation, hidden):
    network = make_network(hidden, activation)
    inputs = make_batch()[0]
    with flat_parameters(network):
        engine = NetworkPass(network)
        scores = engine.predict(inputs)
        engine.pull(weigh(scores))
        found = [parameter.grad.clone() for parameter in network.parameters()]
        expected = logits(network, inputs)
        gradients = torch.autograd.grad((expected * weigh(expected)).sum(), list(network.parameters()))
    assert_close(scores, expected.detach(), rtol=1e-12, atol=1e-12)
    assert_close(found, list(gradients), rtol=1e-10, atol=1e-12)


def tied():
    layer = nn.Linear(COLUMNS, COLUMNS)
    return nn.Sequential(layer, nn.SiLU(), layer, nn.SiLU(), nn.Linear(COLUMNS, 1))


def frozen():
    network = make_network()
    network[0].weight.requires_grad_(False)
    return network


def with_hook(name):
    network = make_network()
    if name == "parameter":
        network[0].weight.register_hook(torch.zeros_like)
    else:
        getattr(network[2], f"register_{name}_hook")(lambda *_: None)
    return network


HOOKS = ("parameter", "forward", "forward_pre", "full_backward", "full_backward_pre")
UNSUITABLE = {
    "tied": tied,
    "frozen": frozen,
    "dropout": lambda: nn.Sequential(nn.Linear(COLUMNS, 4), nn.SiLU(), nn.Dropout(0.5), nn.Linear(4, 1)),
    "norm": lambda: nn.Sequential(nn.Linear(COLUMNS, 4), nn.BatchNorm1d(4), nn.SiLU(), nn.Linear(4, 1)),
    **{f"{name} hook": lambda name=name: with_hook(name) for name in HOOKS},
}


@pytest.mark.parametrize("name", UNSUITABLE)
def test_passes_do_not_apply_to_networks_that_they_would_get_wrong(name):
    network = UNSUITABLE[name]()
    with flat_parameters(network):
        assert not NetworkPass.applies(network, torch.zeros(3, COLUMNS), explains=True)


def test_passes_apply_to_layered_networks_of_tables():
    linear, deep = make_network(()), make_network()
    with flat_parameters(linear), flat_parameters(deep):
        rows = torch.zeros(3, COLUMNS)
        assert NetworkPass.applies(deep, rows, explains=True)
        assert NetworkPass.applies(linear, rows, explains=False)
        assert not NetworkPass.applies(linear, rows, explains=True)
        assert not NetworkPass.applies(deep, torch.zeros(3, 1, COLUMNS), explains=True)
    assert not NetworkPass.applies(deep, rows, explains=True)  # no gradients to write to
