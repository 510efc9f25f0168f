"""AdamW over all parameters of a module as one flat tensor."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from gcig.core.modules import is_recording


@contextmanager
def flat_parameters(module: nn.Module) -> Iterator[list[nn.Parameter]]:
    """Store a module's parameters and gradients as views of one flat tensor each, inside the context.

    An optimizer step, a norm and a reset of the gradient are then one operation each instead of one per
    parameter, which saves most of the time of a step of a small network. Parameters of several types or
    devices are yielded unchanged.

    Yields
    ------
    list of nn.Parameter
        The optimizer's parameters: one flat parameter, or all of them.

    Examples
    --------
    >>> network = nn.Linear(3, 1)
    >>> with flat_parameters(network) as (flat,):
    ...     network(torch.ones(2, 3)).sum().backward()
    ...     flat.grad
    tensor([2., 2., 2., 2.])
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    kinds = {(parameter.dtype, parameter.device) for parameter in parameters}
    if len(kinds) != 1:
        yield parameters
        return
    flat = nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in parameters]))
    flat.grad = torch.zeros_like(flat)
    try:
        for parameter, value, gradient in zip(
            parameters, _views(flat.detach(), parameters), _views(flat.grad, parameters), strict=True
        ):
            parameter.data, parameter.grad = value, gradient
        yield [flat]
    finally:
        # Tensors that share memory cannot be saved one by one.
        for parameter in parameters:
            parameter.data, parameter.grad = parameter.detach().clone(), None


def _views(flat: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    parts = flat.split([parameter.numel() for parameter in parameters])
    return [part.view_as(parameter) for part, parameter in zip(parts, parameters, strict=True)]


@torch.no_grad()
def clip_norm(parameters: list[nn.Parameter], largest: float) -> None:
    """Scale the gradient down to a largest l2 norm: `torch.nn.utils.clip_grad_norm_` in one operation.

    >>> weight = nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> clip_norm([weight], 1.0)
    >>> weight.grad
    tensor([0.6000, 0.8000])
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if len(gradients) != 1:
        nn.utils.clip_grad_norm_(parameters, largest)
        return
    if gradients[0].is_cuda:  # three kernels instead of five
        gradients[0].view(1, -1).renorm_(2, 0, largest)
        return
    norm = torch.linalg.vector_norm(gradients[0])
    # An infinite bound leaves the gradient unchanged.
    gradients[0].mul_((largest / norm).clamp(max=1))


class FlatAdamW:
    """AdamW without the bookkeeping that takes longer than the arithmetic of a small network.

    The update is that of `torch.optim.AdamW` (decoupled weight decay, bias-corrected moments), applied to the
    flat parameter of `flat_parameters`, or to several. On a GPU, the learning rate and the number of steps
    are tensors, so that a recorded step can be replayed with other values; see `gcig.engine.cuda_graph`. A
    schedule may change ``param_groups[0]["lr"]``.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        *,
        learning_rate: float,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": parameters, "lr": learning_rate}]
        self.weight_decay, self.betas, self.eps = weight_decay, betas, eps
        self._moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
        self._n_steps = 0
        self._on_device = all(parameter.is_cuda for parameter in parameters)
        if self._on_device:
            # The fused kernel takes both in single precision.
            scalar = torch.zeros((), dtype=torch.float32, device=parameters[0].device)
            self._rate, self._counts = scalar + learning_rate, [scalar.clone() for _ in parameters]
            self._loaded_rate = learning_rate

    def zero_grad(self) -> None:
        """Set gradients to zero in place, since they may be views."""
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None:
                parameter.grad.zero_()

    @torch.no_grad()
    def load_rate(self) -> None:
        """Copy the learning rate of the schedule to the device; a recorded step reads it there."""
        rate = self.param_groups[0]["lr"]
        if self._on_device and rate != self._loaded_rate:
            self._rate.fill_(rate)
            self._loaded_rate = rate

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters."""
        if self._on_device:
            self._step_on_device()
            return
        self._n_steps += 1
        rate, (decay1, decay2) = self.param_groups[0]["lr"], self.betas
        bias1, bias2 = 1 - decay1**self._n_steps, 1 - decay2**self._n_steps
        for parameter, (first, second) in zip(self.param_groups[0]["params"], self._moments, strict=True):
            gradient = parameter.grad
            if gradient is None:
                continue
            first.lerp_(gradient, 1 - decay1)
            second.mul_(decay2).addcmul_(gradient, gradient, value=1 - decay2)
            if self.weight_decay:
                parameter.mul_(1 - rate * self.weight_decay)
            scale = second.sqrt().mul_(bias2**-0.5).add_(self.eps)
            parameter.addcdiv_(first, scale, value=-rate / bias1)

    def _step_on_device(self) -> None:
        """Update the parameters in one kernel."""
        if not is_recording():
            self.load_rate()
        chosen = [
            (parameter, parameter.grad, *moments, count)
            for parameter, moments, count in zip(
                self.param_groups[0]["params"], self._moments, self._counts, strict=True
            )
            if parameter.grad is not None
        ]
        if not chosen:
            return
        parameters, gradients, first, second, counts = (list(each) for each in zip(*chosen, strict=True))
        torch._foreach_add_(counts, 1)
        torch._fused_adamw_(
            parameters,
            gradients,
            first,
            second,
            [],
            counts,
            lr=self._rate,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=self.weight_decay,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )
