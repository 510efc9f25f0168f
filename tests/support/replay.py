"""Recorded training steps without a GPU: the operations of a step, repeated on the same memory.

A CUDA graph repeats operations, not Python: a number is repeated as it was, and a value cannot be read. The
recordings of this module do the same on a CPU.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch
from gcig.engine import cuda_graph
from torch.utils._python_dispatch import TorchDispatchMode

# Operations that wait for the device, or copy from the memory of the CPU.
FORBIDDEN = {"_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "unique2"}


class Operations(TorchDispatchMode):
    """Operations in the order of their execution, with their arguments and results."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if function._schema.name.removeprefix("aten::") in FORBIDDEN:
            raise RuntimeError(f"{function} cannot be recorded")
        results = function(*arguments, **(options or {}))
        if not any(
            each.alias_info is not None for each in function._schema.returns
        ):  # views stay as they are
            self.calls.append((function, arguments, options or {}, results))
        elif function._schema.is_mutable:
            self.calls.append((function, arguments, options or {}, None))
        return results

    def repeat(self):
        """Execute the operations again, and write the results where they were."""
        for function, arguments, options, before in self.calls:
            results = function(*arguments, **options)
            for old, new in zip(_tensors(before), _tensors(results), strict=False):
                old.copy_(new)


def _tensors(results):
    found = results if isinstance(results, tuple | list) else [results]
    return [each for each in found if isinstance(each, torch.Tensor)]


class ReplayedStep:
    """`gcig.engine.cuda_graph.RecordedStep` on a CPU."""

    n_repeated = 0

    def __init__(self, step, load, generators=()):  # noqa: ARG002 (the same interface)
        self.step, self.load, self.recordings = step, load, {}

    def __call__(self, rows):
        kind = (len(rows), self.load())
        if kind not in self.recordings:
            self.recordings[kind] = None
            return self.run(rows)
        if self.recordings[kind] is None:
            own = rows.clone()
            with Operations() as operations, recording():
                terms = self.run(own)
            self.recordings[kind] = operations, own, terms
        else:
            operations, own, terms = self.recordings[kind]
            own.copy_(rows)
            with torch.no_grad():
                operations.repeat()
            ReplayedStep.n_repeated += 1
        return {name: value.clone() for name, value in terms.items()}

    def run(self, rows):
        with cuda_graph._forking():
            return self.step(rows)


class ExecutedStep(ReplayedStep):
    """A step that is run without a recording."""

    def __call__(self, rows):
        self.load()
        return self.run(rows)


_STATE = {"recording": False}


@contextmanager
def recording() -> Iterator[None]:
    _STATE["recording"] = True
    try:
        yield
    finally:
        _STATE["recording"] = False


@contextmanager
def emulated_device(step_class) -> Iterator[None]:
    """Let training believe that tensors are on a GPU, and record its steps as `step_class` does."""
    ReplayedStep.n_repeated = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "is_cuda", property(lambda _: True), raising=False)
        patch.setattr("gcig.core.modules.torch.cuda.is_available", lambda: True)
        patch.setattr("gcig.core.modules.torch.cuda.is_current_stream_capturing", lambda: _STATE["recording"])
        adam = sys.modules["torch.optim.adam"]  # the package has a function of this name
        patch.setattr(adam, "_get_capturable_supported_devices", lambda *_, **__: ["cpu"])
        # A CUDA build of torch would look for a stream, and fails on a machine without a driver.
        patch.setattr(torch.accelerator, "current_accelerator", lambda *_, **__: None)
        patch.setattr(cuda_graph, "RecordedStep", step_class)
        patch.setattr(cuda_graph, "_stream", lambda _: _Stream())
        patch.setattr(torch.cuda, "current_stream", _Stream)
        patch.setattr(torch.cuda, "stream", lambda _: nullcontext())
        yield


class _Stream:
    def wait_stream(self, other):
        """Do nothing: there is one order of operations."""
