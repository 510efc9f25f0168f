r"""The GCIG penalty: how much the reasons for a mini-batch's rows depend on the group, as a loss.

.. math:: \mathcal L = \sum_{y} \frac{1}{|B_y|} \sum_{i \in B_y} V(x_i; y),

the mini-batch loss of the paper's Algorithm 1. Rows whose attributions are zero have no disparity and are
left out of the means.
"""

import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from gcig.core.attribution import (
    MAX_BYTES,
    Method,
    bytes_per_row,
    compute_attributions,
    training_method,
    warn_of_kinks,
)
from gcig.core.baselines import GroupBaselines
from gcig.core.disparity import EPS, Definition, defined_by_norms, disparity
from gcig.core.fused import Scratch, SecantRule, secant_penalty
from gcig.core.modes import Score, evaluating
from gcig.core.numerics import vector_norm

__all__ = ["GCIGPenalty", "label_row_weights", "sample_rows"]


def label_row_weights(labels: Tensor, label_weights: str, defined: Tensor | None = None) -> Tensor:
    """What each row counts in the penalty, shape (n,).

    ``"sum"`` adds the means of the labels (the paper's loss), ``"equal"`` averages them, ``"empirical"``
    is the mean over all rows. Rows that are not `defined` count nothing.

    >>> label_row_weights(torch.tensor([0, 0, 1]), "sum")
    tensor([0.5000, 0.5000, 1.0000])
    """
    if label_weights == "empirical":
        members = torch.ones(len(labels), 1, device=labels.device)
    else:
        members = one_hot(labels, 2).to(torch.get_default_dtype())
    if defined is not None:
        members = members * defined.unsqueeze(1)
    share = 0.5 if label_weights == "equal" else 1.0
    return (members * (share / members.sum(0).clamp(min=1))).sum(1)


def sample_rows(labels: Tensor, share: float, generator: torch.Generator | None = None) -> Tensor:
    """Positions of a random part of each label's rows, rounded up, so that no label is lost.

    >>> len(sample_rows(torch.tensor([0, 0, 0, 0, 1]), 0.5))
    3
    """
    order = torch.randperm(len(labels), generator=generator).to(labels.device)
    members = one_hot(labels[order])
    rank = (members.cumsum(0) * members).sum(1)
    quota = torch.ceil(share * members.sum(0))[labels[order]]
    return order[rank <= quota]


class GCIGPenalty(nn.Module):
    """Penalty on the disparity of group counterfactual attributions, for anyone's own training loop.

    Parameters
    ----------
    baselines : GroupBaselines
        The reference points; part of the penalty's ``state_dict``.
    norm : {"l1", "l2"}
        What attributions are divided by.
    rule, n_steps : str, int or "auto"
        How the path is integrated; ``rule="right", n_steps=16`` is the paper's. By default one secant
        segment for layered networks with smooth activations (exact where there is one hidden layer), two
        for those with kinks, two Gauss-Legendre nodes for any other module.
    rows : float
        The share of each label's rows that is explained, drawn anew in each call.
    every : int
        Explain in every k-th call only, and count that call k times.
    pairs : {"all", "random"}
        Compare all groups, or in each call one random pair of them: cheaper when there are many, and
        unbiased for the squared disparity (not for the disparity).
    label_weights : {"sum", "equal", "empirical"}
        How the labels' means are put together.
    eps : float
        Added to the norms.
    fast : bool
        Whether layered networks take their fast paths.
    max_bytes : int
        Bound on the memory of forward and backward together.
    score : callable, optional
        From the module's output to one logit a row, where it gives something else.
    random_state : int, optional
        Seed of the rows and pairs that are drawn.

    Examples
    --------
    >>> x, y, groups = torch.randn(64, 5), torch.arange(64) % 2, torch.arange(64) // 2 % 2
    >>> net = nn.Sequential(nn.Linear(5, 8), nn.SiLU(), nn.Linear(8, 1))
    >>> penalty = GCIGPenalty(GroupBaselines.from_data(x, y, groups))
    >>> loss = 0.2 * penalty(net, x, y)
    >>> loss.backward()
    """

    def __init__(
        self,
        baselines: GroupBaselines,
        *,
        norm: str = "l1",
        rule: str = "auto",
        n_steps: int | str = "auto",
        rows: float = 1.0,
        every: int = 1,
        pairs: str = "all",
        label_weights: str = "sum",
        eps: float = EPS,
        fast: bool = True,
        max_bytes: int = MAX_BYTES,
        score: Score | None = None,
        random_state: int | None = None,
    ) -> None:
        super().__init__()
        self.definition = Definition(
            norm=norm,
            rule=rule,
            n_steps=n_steps,
            label_weights=label_weights,
            eps=eps,
            rows=rows,
            every=every,
            pairs=pairs,
        )
        self.baselines = baselines
        self.fast, self.max_bytes, self.score = fast, max_bytes, score
        self.n_calls = 0
        self.n_undefined = 0
        self._generator = torch.Generator()
        if random_state is not None:
            self._generator.manual_seed(random_state)
        self._scratch = Scratch()
        self._row_bytes: tuple[Any, int] | None = None
        self._warned = False

    def forward(self, module: nn.Module, x: Tensor, y: Tensor, groups: Tensor | None = None) -> Tensor:
        """The penalty of a mini-batch.

        Parameters
        ----------
        module : nn.Module
            Maps (n, ...) to one logit a row.
        x : Tensor of shape (n, ...)
        y : Tensor of shape (n,)
            Labels, 0 or 1.
        groups : Tensor of shape (n,), optional
            When given, the moving averages of the baselines are updated first, as in Algorithm 1.
        """
        y = y.long()
        if groups is not None:
            self.baselines.update(x, y, groups.long())
        self.n_calls += 1
        if (self.n_calls - 1) % self.definition.every:
            return x.new_zeros(())
        if self.definition.rows < 1:
            chosen = sample_rows(y, self.definition.rows, self._generator)
            x, y = x[chosen], y[chosen]
        loss = self.of_rows(module, x, y)
        return loss * self.definition.every if self.definition.every > 1 else loss

    def of_rows(self, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The penalty of exactly these rows, with the baselines as they are."""
        values = self._compared_baselines().to(x.dtype)
        method = training_method(
            module,
            rule=self.definition.rule,
            n_steps=self.definition.n_steps,
            fast=self.fast and self.score is None,
            tabular=x.dim() == 2,
        )
        if not self._warned:
            warn_of_kinks(module, method)
            self._warned = True
        if _fusible(method):
            return self._fused(method, x, y, values)
        return self._explicit(module, method, x, y, values)

    def _compared_baselines(self) -> Tensor:
        """The baselines of the groups that are compared in this call: (labels, groups, ...)."""
        values = self.baselines.values
        if self.definition.pairs == "random" and values.shape[1] > 2:
            pair = torch.randperm(values.shape[1], generator=self._generator)[:2]
            return values[:, pair.to(values.device)]
        return values

    def _fused(self, method: Method, x: Tensor, y: Tensor, baselines: Tensor) -> Tensor:
        network = method.network
        assert network is not None
        rule = SecantRule(method.n_steps, self.definition.norm, self.definition.eps)
        weights = label_row_weights(y, self.definition.label_weights).to(x.dtype)
        penalty, _, norms = secant_penalty(network, x, y, baselines, weights, rule, scratch=self._scratch)
        defined = defined_by_norms(norms)
        if bool(defined.all()):
            return penalty
        self.n_undefined += int((~defined).sum())
        weights = label_row_weights(y, self.definition.label_weights, defined).to(x.dtype)
        return secant_penalty(network, x, y, baselines, weights, rule, scratch=self._scratch)[0]

    def _explicit(self, module: nn.Module, method: Method, x: Tensor, y: Tensor, baselines: Tensor) -> Tensor:
        references = baselines.transpose(0, 1)[:, y]
        with evaluating(module):
            size = max(1, self.max_bytes // self._bytes_per_row(module, method, references))
            values = compute_attributions(module, x.detach(), references, method, size, True, self.score)
        values = values.flatten(2)
        defined = defined_by_norms(vector_norm(values.detach(), "l1"))
        if not torch.compiler.is_compiling():
            self.n_undefined += int((~defined).sum())
        weights = label_row_weights(y, self.definition.label_weights, defined).to(values.dtype)
        return torch.dot(disparity(values, norm=self.definition.norm, eps=self.definition.eps), weights)

    def _bytes_per_row(self, module: nn.Module, method: Method, references: Tensor) -> int:
        """Probing a module costs as much as a small step, so its answer is kept."""
        if self._row_bytes is None or self._row_bytes[0]() is not module:
            self._row_bytes = weakref.ref(module), bytes_per_row(module, method, references, self.score)
        return self._row_bytes[1]


def _fusible(method: Method) -> bool:
    """Whether the hand-written pass applies; under the compiler the explicit chain is faster."""
    network = method.network
    return (
        network is not None
        and network.n_hidden > 0
        and method.rule == "secant"
        and not torch.compiler.is_compiling()
    )

