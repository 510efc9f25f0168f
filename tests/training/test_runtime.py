"""Seeds, random layers, threads, devices, and parameters in one tensor."""

import pytest
import torch
from torch import nn

from gcig._arguments import InputError
from gcig.training.runtime import (
    descend,
    flattened,
    generator_on,
    one_thread,
    own_modes,
    own_random_numbers,
    resolve_batch_size,
    resolve_device,
    resolve_learning_rate,
    seeded_generator,
)

CPU = torch.device("cpu")
ROWS = torch.ones(2000, 4)


class Noise(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


@pytest.mark.parametrize("layer", [nn.Dropout(0.3), nn.RReLU(), nn.AlphaDropout(0.3), Noise()])
def test_draws_depend_on_the_seed_alone(layer):
    before = torch.get_rng_state()
    found = []
    for seed in (7, 7, 8):
        with own_random_numbers(layer, seed, CPU):
            found.append(layer(-ROWS))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert torch.equal(before, torch.get_rng_state())


def test_networks_without_random_layers_draw_nothing():
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(4, 4), nn.SiLU(), nn.BatchNorm1d(4))
    with own_random_numbers(network, 0, CPU):
        inside = torch.rand(3)
    torch.manual_seed(3)
    nn.Linear(4, 4)
    assert torch.equal(inside, torch.rand(3))


def make_network():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 2))
    network[0].bias.requires_grad_(False)
    return network


def test_parameters_in_one_tensor_are_trained_as_by_torch_and_restored():
    x, expected, found = torch.randn(20, 3), make_network(), make_network()
    theirs = torch.optim.AdamW([each for each in expected.parameters() if each.requires_grad], lr=0.1)
    kept = [id(each) for each in found.parameters()]
    with flattened(found) as flat:
        ours = torch.optim.AdamW([flat], lr=0.1)
        assert flat.numel() == 4 * 3 + 2 * 4 + 2
        for _ in range(5):
            descend(flat, ours, found(x).square().mean(), None)
            theirs.zero_grad()
            expected(x).square().mean().backward()
            theirs.step()
    for one, other in zip(found.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other)
        assert one.grad is None
        assert one.is_contiguous()
    assert [id(each) for each in found.parameters()] == kept
    before = found[2].weight.detach().clone()
    with torch.no_grad():
        flat.zero_()  # its parameters have memory of their own again
    assert torch.equal(found[2].weight, before)


def test_parameters_are_restored_after_an_error():
    network = make_network()
    with pytest.raises(KeyboardInterrupt), flattened(network) as flat:
        raise KeyboardInterrupt
    assert network[0].weight.untyped_storage().data_ptr() != flat.untyped_storage().data_ptr()


def test_parameters_of_several_types_are_refused():
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1).double())
    with pytest.raises(ValueError, match=r"differ in type"), flattened(network):
        pass
    assert network[0].weight.dtype == torch.float32


@pytest.mark.parametrize("clip", [None, 0.5, 1e6])
def test_gradients_are_clipped(clip):
    network = nn.Linear(1, 1, bias=False)
    with flattened(network) as flat:
        before = flat.item()
        descend(flat, torch.optim.SGD([flat], lr=1.0), network(torch.tensor([[3.0]])).sum(), clip)
        assert before - flat.item() == pytest.approx(min(3.0, clip or 3.0), rel=1e-5)


def test_the_modes_of_the_caller_do_not_reach_training():
    network, x = nn.Linear(2, 1), torch.ones(1, 2)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16), own_modes(CPU):
        assert network(x).dtype == torch.float32
        assert network(x).requires_grad


def test_a_generator_is_used_where_it_is():
    generator = seeded_generator(0)
    assert generator_on(CPU, generator) is generator
    state = torch.get_rng_state()
    assert torch.equal(
        torch.rand(3, generator=seeded_generator(5)), torch.rand(3, generator=seeded_generator(5))
    )
    assert torch.equal(torch.get_rng_state(), state)


def test_threads_are_put_back_even_after_an_error():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyError), one_thread(CPU):
            {}[torch.get_num_threads()]
        with one_thread(CPU):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_generators_without_a_seed_differ():
    one, other = seeded_generator(None), seeded_generator(None)
    assert not torch.equal(torch.rand(8, generator=one), torch.rand(8, generator=other))


def test_devices():
    assert resolve_device("cpu") == CPU
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert resolve_device(CPU) == CPU
    with pytest.raises(InputError, match=r"device must be 'auto' or .*'gpu'"):
        resolve_device("gpu")
    with pytest.raises(InputError, match=f"device is 'cuda:99'.*{torch.cuda.device_count()} CUDA devices"):
        resolve_device("cuda:99")


def test_automatic_sizes_and_rates():
    sizes = [resolve_batch_size("auto", n) for n in (1, 100, 10_000, 30_000, 10**7)]
    assert sizes == [64, 64, 128, 512, 512]
    assert resolve_batch_size(7, 10**7) == 7
    assert resolve_learning_rate("auto", 64) == pytest.approx(0.002)
    assert resolve_learning_rate("auto", 512) == pytest.approx(0.004)
    assert resolve_learning_rate(0.5, 512) == 0.5
