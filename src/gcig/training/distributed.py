"""Training one network with several processes or GPUs, started by torchrun.

The module stays as it is: DistributedDataParallel gives wrong gradients for losses that differentiate inside
their forward pass. All processes hold the same rows and draw the same mini-batches; each computes the part of
its own rows, and one flat all-reduce adds the gradients. See `gcig.core.processes` for joined statistics.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gcig._validation import InputError
from gcig.core.processes import Group

_PATIENCE = timedelta(minutes=10)  # after which processes that wait for one that died give up
_CURRENT: ContextVar[Group | None] = ContextVar("current", default=None)


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of torch.distributed's default group."""

    rank: int
    size: int

    def add(self, values: Tensor) -> None:
        """Replace values by their sum over all processes."""
        dist.all_reduce(values)


@contextmanager
def all_processes() -> Iterator[Group]:
    """Let every fit inside the block train one network with all processes that torchrun started.

    Each process runs the same code with the same data and gets the same model; save it in the process whose
    rank is 0. Processes on GPUs use one each, over NCCL; others use gloo.

    Yields
    ------
    Group
        ``rank`` and ``size``.

    Examples
    --------
    In a script that ``torchrun --nproc-per-node 4 script.py`` starts::

        with all_processes() as processes:
            model = gcig.FairXClassifier(random_state=0).fit(X, y, sensitive_features=a)
        if processes.rank == 0:
            model.save("model/")
    """
    if not is_started_by_torchrun() and not dist.is_initialized():
        raise InputError(
            "Several processes are started by torchrun, but this process was not. Run it with: torchrun "
            "--nproc-per-node N ..."
        )
    ours = not dist.is_initialized()
    if ours:
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, timeout=_PATIENCE)
    group = ProcessGroup(dist.get_rank(), dist.get_world_size())
    token = _CURRENT.set(group)
    try:
        yield group
    finally:
        _CURRENT.reset(token)
        if ours:
            dist.destroy_process_group()


def is_started_by_torchrun() -> bool:
    """Return whether torchrun, or a program with the same environment, started this process."""
    return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()


def current_group() -> Group | None:
    """Return the processes that train together; None if this process trains alone."""
    return _CURRENT.get()


def add_gradients(parameters: list[nn.Parameter], group: Group | None) -> None:
    """Replace the gradients by their sums over all processes: one message, if they are one flat tensor."""
    if group is None:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            group.add(parameter.grad)


def shared_seed(seed: int) -> int:
    """Return the seed of the first process, with which all processes draw the same numbers."""
    group = _CURRENT.get()
    if group is None:
        return seed
    value = torch.tensor(seed if group.rank == 0 else 0, dtype=torch.int64)
    if torch.cuda.is_available() and dist.get_backend() == "nccl":
        value = value.cuda()
    group.add(value)
    return int(value)
