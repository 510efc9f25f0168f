"""Seeds, threads, devices and the settings of torch that a fit changes and restores."""

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from gcig._validation import InputError


def resolve_device(device: str | torch.device) -> torch.device:
    """Return the torch device; ``"auto"`` is a CUDA device if there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            f"must be 'auto' or a torch device such as 'cpu', not {device!r}.", argument="device"
        ) from error
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"is {str(device)!r}, but torch finds {torch.cuda.device_count()} CUDA devices here. Use 'auto' "
            "to take a CUDA device if there is one.",
            argument="device",
        )
    return found


def resolve_batch_size(batch_size: int | str, n_rows: int) -> int:
    """Return the batch size; ``"auto"`` is a power of two near a 64th of the rows, between 64 and 512.

    >>> [resolve_batch_size("auto", n) for n in (500, 5_000, 30_000, 10**6)]
    [64, 64, 512, 512]
    """
    if batch_size != "auto":
        return int(batch_size)
    return int(2 ** round(math.log2(min(512, max(64, n_rows / 64)))))


def resolve_learning_rate(learning_rate: float | str, batch_size: int, width: int = 64) -> float:
    """Return the learning rate; ``"auto"`` is 0.002 for 64 rows per batch, 0.004 for 512 (cube root).

    The few weights of networks narrower than 64 units have to move further, at up to four times that rate.

    >>> [round(resolve_learning_rate("auto", 64, width), 4) for width in (256, 64, 16, 1)]
    [0.002, 0.002, 0.004, 0.008]
    """
    if learning_rate != "auto":
        return float(learning_rate)
    rate: float = 2e-3 * (batch_size / 64) ** (1 / 3)
    return rate * min(4.0, max(1.0, math.sqrt(64 / width)))


def seeded_generator(seed: int | None) -> torch.Generator:
    """Return a new generator, so training neither uses nor advances torch's global one."""
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator


def generator_on(device: torch.device, generator: torch.Generator) -> torch.Generator:
    """Return a generator of a device: the given one if it is there, else one that is seeded by it.

    Numbers that are drawn on the device itself need not be copied to it.
    """
    if generator.device.type == device.type:
        return generator
    seed = int(torch.randint(2**62, (), generator=generator))
    return torch.Generator(device).manual_seed(seed)


@contextmanager
def isolated_seed(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators, from which dropout draws, and restore them afterwards."""
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(seed)
        with torch.cuda.device(device) if cuda else nullcontext():
            if cuda:
                torch.cuda.manual_seed(seed)
            yield


@contextmanager
def own_modes(device: torch.device) -> Iterator[None]:
    """Turn gradients on and autocast off, in single precision, whatever the caller has set torch to."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_default_dtype(dtype)


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """Use one CPU thread: fastest for small networks, and the same bits on machines of any size."""
    threads = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
