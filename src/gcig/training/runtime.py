"""Seeds, random layers, threads, devices and the settings of torch that a fit changes and restores."""

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import accumulate

import torch
from torch import Tensor, nn

from gcig._arguments import InputError

CLIP_NORM = 5.0  # numerical guard: ordinary gradients have a smaller norm, so it only stops outliers


def resolve_device(device: str | torch.device) -> torch.device:
    """Return the torch device; ``"auto"`` is a CUDA device if there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            f"must be 'auto' or a torch device such as 'cpu', not {device!r}.", argument="device"
        ) from error
    if resolved.type == "cuda" and (resolved.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"is {str(device)!r}, but torch finds {torch.cuda.device_count()} CUDA devices here. Use 'auto' "
            "to take a CUDA device if there is one.",
            argument="device",
        )
    try:
        torch.empty(0, device=resolved)
    except (RuntimeError, NotImplementedError, AssertionError) as error:
        raise InputError(
            f"is {str(device)!r}, which this build of torch does not have. Use 'auto' or 'cpu'.",
            argument="device",
        ) from error
    return resolved


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


@contextmanager
def flattened(module: nn.Module) -> Iterator[nn.Parameter]:
    """Join the trainable parameters of a module in one tensor, of which they are views meanwhile.

    A step of the optimizer is then a few operations instead of a few per parameter. Modules whose parameters
    differ in type or device cannot be joined.
    """
    own = [each for each in module.parameters() if each.requires_grad]
    if len({(each.dtype, each.device) for each in own}) > 1:
        raise ValueError(
            "the module's parameters differ in type or device, so they cannot be trained together. Convert "
            "the module with module.to(torch.float32), or module.to(device)."
        )
    flat = nn.Parameter(torch.cat([each.detach().flatten() for each in own]))
    flat.grad = torch.zeros_like(flat)
    starts = accumulate((each.numel() for each in own), initial=0)
    for each, start in zip(own, starts, strict=False):
        part = slice(start, start + each.numel())
        each.data, each.grad = flat.data[part].view_as(each), flat.grad[part].view_as(each)
    try:
        yield flat
    finally:
        for each in own:
            each.data, each.grad = each.data.clone(), None


def descend(flat: nn.Parameter, optimizer: torch.optim.Optimizer, loss: Tensor, clip: float | None) -> None:
    """Take a step down the gradient of the loss, whose norm is clipped; nothing waits for a GPU."""
    assert flat.grad is not None
    flat.grad.zero_()
    loss.backward()
    if clip is not None:
        norm = torch.linalg.vector_norm(flat.grad)
        flat.grad.mul_((clip / (norm + 1e-6)).clamp_max(1.0))
    optimizer.step()


def generator_on(device: torch.device, generator: torch.Generator) -> torch.Generator:
    """Return a generator on a device: the given one if it is there, else a new one that it seeds.

    Numbers that are drawn on the device itself need not be copied to it.
    """
    if generator.device.type == device.type:
        return generator
    seed = int(torch.randint(2**62, (), generator=generator))
    return torch.Generator(device).manual_seed(seed)


@contextmanager
def own_modes(device: torch.device) -> Iterator[None]:
    """Turn gradients on and autocast off in this thread, whatever the caller has set.

    The process's default dtype is not changed, because other threads may rely on it: training states the type
    of every tensor that it creates.
    """
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device.type, enabled=False):
        yield


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """Use one CPU thread: fastest for small networks, and the same bits on machines of any size.

    Torch keeps the number per thread, but a new thread starts with the number that any thread set last. A
    thread that starts during a fit of another thread finds 1, and gets the number from before that fit back.
    """
    if device.type != "cpu":
        yield
        return
    before = _ONE_THREAD.enter()
    try:
        yield
    finally:
        _ONE_THREAD.leave(before)


class _ThreadCount:
    """The number of threads that torch used before any of the fits that run now."""

    def __init__(self) -> None:
        self._lock, self._n_fits, self._before = threading.Lock(), 0, 1

    def enter(self) -> int:
        """Use one thread; return the number to restore."""
        with self._lock:
            own = torch.get_num_threads()
            if self._n_fits == 0:
                self._before = own if own > 1 else _process_count()
            self._n_fits += 1
            torch.set_num_threads(1)
            return self._before if own == 1 else own

    def leave(self, before: int) -> None:
        """Restore the number of threads."""
        with self._lock:
            self._n_fits -= 1
            torch.set_num_threads(before)


def _process_count() -> int:
    """Return the number of threads that torch uses in new threads.

    A thread that first asked torch while a fit ran in another one keeps the single thread of that fit.
    """
    with ThreadPoolExecutor(1) as fresh:
        return fresh.submit(torch.get_num_threads).result()


_ONE_THREAD = _ThreadCount()


# Fits that must seed the process's generator, one at a time.
_PROCESS_GENERATOR = threading.RLock()
# Layers of torch that draw random numbers, in training or when they are built.
_RANDOM = (
    nn.modules.dropout._DropoutNd,
    nn.modules.lazy.LazyModuleMixin,
    nn.RReLU,
    nn.RNNBase,
    nn.FractionalMaxPool2d,
    nn.FractionalMaxPool3d,
    nn.MultiheadAttention,
    nn.Transformer,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)


@contextmanager
def own_random_numbers(module: nn.Module | None, seed: int, device: torch.device) -> Iterator[None]:
    """Let a network draw random numbers that depend on the seed alone.

    None stands for networks of this package, which are not random. If there are layers that draw, or may
    draw, random numbers, the process's generators are seeded, and restored at the end; only one such fit runs
    at a time, and other threads should not draw from torch's generator meanwhile.
    """
    if module is None or all(map(_is_fixed, module.modules())):
        yield
        return
    cuda = [device] if device.type == "cuda" else []
    with _PROCESS_GENERATOR, torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(seed)
        with torch.cuda.device(device) if cuda else nullcontext():
            if cuda:
                torch.cuda.manual_seed(seed)
            yield


def _is_fixed(part: nn.Module) -> bool:
    """Return whether a part of a network is known to draw no random numbers."""
    known = type(part).__module__.startswith(("torch.nn.modules.", "gcig."))
    return known and not isinstance(part, _RANDOM)
