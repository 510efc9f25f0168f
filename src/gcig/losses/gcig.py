r"""The GCIG penalty: how much the reasons for a mini-batch's rows depend on the group, as a loss.

.. math:: \mathcal L = \sum_{y} \frac{1}{|B_y|} \sum_{i \in B_y} V(x_i; y),

the mini-batch loss of the paper's Algorithm 1, where V is the disparity of `gcig.core.disparity`. Rows
without attributions have no disparity and are left out of the means.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from gcig._arguments import check_argument, is_count, is_flag
from gcig.core import disparity
from gcig.core.columns import spread_origin
from gcig.core.definition import EPS, Definition
from gcig.core.memory import Chunks, accumulate, compute_attributions, parameters_of, plan_chunks
from gcig.core.modules import (
    Probe,
    Score,
    is_recording,
    probe,
    refuse_wrapped,
    require_second_derivative,
    untraced,
    warn_of_kinks,
)
from gcig.core.numerics import vector_norm
from gcig.core.paths import cell_secant_attributions
from gcig.core.quadrature import Integration, quadrature, training_integration
from gcig.core.references import GroupBaselines, GroupMembers, indicator
from gcig.engine.node_pass import is_piecewise_linear, node_attributions
from gcig.engine.scratch import Scratch
from gcig.engine.secant_pass import SecantRule
from gcig.losses.objective import fused_penalty

_LABEL_SHARES = {"sum": 1.0, "equal": 0.5, "empirical": 1.0}  # the weight of each label's mean


def label_row_weights(
    labels: Tensor,
    label_weights: str,
    defined: Tensor | None = None,
    *,
    sample_weight: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return each row's weight in the penalty, shape (n,).

    ``"sum"`` adds the means of the labels (the paper's loss), ``"equal"`` averages them, ``"empirical"`` is
    the mean over all rows. Rows that are not `defined` have weight zero. `sample_weight` weights the means.

    >>> label_row_weights(torch.tensor([0, 0, 1]), "sum")
    tensor([0.5000, 0.5000, 1.0000])
    """
    members = label_members(labels, label_weights, sample_weight, dtype)
    if defined is not None:
        members = members * defined.unsqueeze(1)
    return weigh_members(members, _LABEL_SHARES[label_weights])


def label_members(
    labels: Tensor,
    label_weights: str = "sum",
    sample_weight: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return each row's membership in the means that the penalty consists of, shape (n, means)."""
    dtype = dtype or torch.get_default_dtype()
    members = indicator(labels, 2, "y", dtype)
    if label_weights == "empirical":
        members = members.sum(1, keepdim=True)
    return members if sample_weight is None else members * sample_weight.to(dtype).unsqueeze(1)


def weigh_members(members: Tensor, share: float) -> Tensor:
    """Return each row's weight in the sum of the means of (n, means), each mean counted `share` times."""
    inverse = members.sum(0).clamp_min(torch.finfo(members.dtype).tiny).reciprocal_()
    # An empty mean has a huge inverse; multiplied by `share` first it could overflow, and infinity times no
    # row is NaN.
    weights = torch.mv(members, inverse)
    return weights if share == 1 else weights.mul_(share)


def sample_rows(labels: Tensor, share: float, generator: torch.Generator | None = None) -> Tensor:
    """Return the positions of a random part of each label's rows, rounded up to keep every label.

    >>> len(sample_rows(torch.tensor([0, 0, 0, 0, 1]), 0.5))
    3
    """
    order = torch.randperm(len(labels), generator=generator).to(labels.device)
    members = one_hot(labels[order])
    rank = (members.cumsum(0) * members).sum(1)
    quota = torch.ceil(share * members.sum(0))[labels[order]]
    return order[rank <= quota]


class GCIGPenalty(nn.Module):
    """Penalty on the disparity of group counterfactual attributions, for any training loop.

    To change the penalty, subclass it and override `attribute` (how rows are explained) or `compare` (how
    explanations are compared).

    Parameters
    ----------
    references : GroupBaselines or GroupMembers
        The reference points: the mean of each cell, or members of it, over which attributions are averaged.
    origin : Tensor of integers, optional
        The group of inputs that each entry of a row belongs to, from 0: attributions are summed over each
        group before they are compared. Its shape is that of a row, or one that broadcasts to it: the original
        column of each encoded column, shape (columns,); the token of each embedding, ``torch.arange(tokens)
        .unsqueeze(1)``; the patch or superpixel of each pixel, shape (height, width), for all channels. By
        default the entries are compared as they are.
    each_member : bool
        Compare the groups relative to one member of each at a time, rather than relative to all of them on
        average: reasons are then alike relative to single people as well.
    norm : {"l1", "l2"}
        The norm by which attributions are divided.
    rule, n_steps : str, int or "auto"
        The integration rule; ``rule="right", n_steps=16`` is the paper's. The default is one secant segment
        for layered networks (exact for one hidden layer; two segments if more than two hidden layers have
        kinks), and two Gauss-Legendre nodes for any other module.
    rows : float
        The share of each label's rows that is explained, drawn anew in each call.
    every : int
        Explain only in every k-th call, and multiply that call's penalty by k.
    pairs : {"all", "random"}
        Compare all groups, or one random pair per call: cheaper for many groups, and unbiased for the squared
        disparity (not for the disparity).
    label_weights : {"sum", "equal", "empirical"}
        How the labels' means are combined.
    eps : float
        Added to the norms.
    fast : bool
        Whether layered networks take their fast paths.
    max_bytes : int, optional
        Bound on the memory of forward and backward pass together; by default half of the free memory of a
        GPU, or 256 MB on a CPU.
    score : callable, optional
        Maps the module's output to one logit per row, if it gives something else.
    random_state : int, optional
        Seed of the rows and pairs that are drawn.

    Attributes
    ----------
    definition : Definition
        The choices above.
    n_undefined : Tensor of shape ()
        How many rows were left out so far because one of their attributions is zero.

    Examples
    --------
    >>> x, y, groups = torch.randn(64, 5), torch.arange(64) % 2, torch.arange(64) // 2 % 2
    >>> net = nn.Sequential(nn.Linear(5, 8), nn.SiLU(), nn.Linear(8, 1))
    >>> penalty = GCIGPenalty(GroupBaselines.from_data(x, y, groups))
    >>> loss = 0.2 * penalty(net, x, y)
    >>> loss.backward()
    """

    n_undefined: Tensor
    origin: Tensor | None
    blocks: Tensor | None

    def __init__(
        self,
        references: GroupBaselines | GroupMembers,
        *,
        origin: Tensor | None = None,
        each_member: bool = False,
        norm: str = "l1",
        rule: str = "auto",
        n_steps: int | str = "auto",
        rows: float = 1.0,
        every: int = 1,
        pairs: str = "all",
        label_weights: str = "sum",
        eps: float = EPS,
        fast: bool = True,
        max_bytes: int | None = None,
        score: Score | None = None,
        random_state: int | None = None,
    ) -> None:
        super().__init__()
        self.definition = Definition(
            norm=norm,
            rule=rule,
            n_steps=n_steps,
            columns="raw" if origin is None else "original",
            label_weights=label_weights,
            eps=eps,
            rows=rows,
            every=every,
            pairs=pairs,
        )
        for name, flag in (("each_member", each_member), ("fast", fast)):
            check_argument(name, flag, "True or False", is_flag)
        if max_bytes is not None:
            check_argument("max_bytes", max_bytes, "a positive integer", lambda n: is_count(n, 1, 2**63))
        if random_state is not None:
            check_argument("random_state", random_state, "an integer >= 0", lambda n: is_count(n, 0, 2**63))
        if score is not None:
            check_argument("score", score, "a function of the module's output", callable)
        if origin is not None:
            check_argument("origin", origin, "a tensor", lambda given: isinstance(given, Tensor))
        self.references = references
        values = references.values
        if origin is not None:
            origin = spread_origin(origin, values.shape[values.dim() - self._row_dim :]).to(values.device)
        self.each_member = each_member and self.n_members > 1
        self.register_buffer("origin", origin, persistent=False)
        self.n_columns: int | None = None
        self.register_buffer("blocks", None, persistent=False)
        if origin is not None:
            self.n_columns = int(origin.max()) + 1
            self.blocks = disparity.block_matrix(origin, self.n_columns)
        self.fast, self.max_bytes, self.score = fast, max_bytes, score
        self.register_buffer("n_undefined", torch.zeros((), dtype=torch.int64, device=values.device))
        self.scratch = Scratch()
        self._n_calls = 0
        self._generator = torch.Generator()
        if random_state is not None:
            self._generator.manual_seed(random_state)
        self.agreement: tuple[Any, bool] | None = None  # (module, whether the engine reproduces the penalty)
        self._probed: tuple[Any, Probe] | None = None
        self._warned = False

    def __getstate__(self) -> dict[str, Any]:
        # Weak references cannot be pickled, and what they cache is cheap to compute again.
        return {**self.__dict__, "_probed": None, "agreement": None}

    def forward(
        self,
        module: nn.Module,
        x: Tensor,
        y: Tensor,
        groups: Tensor | None = None,
        sample_weight: Tensor | None = None,
        attributions: Tensor | None = None,
        row_weights: Tensor | None = None,
    ) -> Tensor:
        """Return the penalty of a mini-batch.

        Parameters
        ----------
        module : nn.Module
            Maps (n, ...) to one logit per row.
        x : Tensor of shape (n, ...)
        y : Tensor of shape (n,)
            Labels, 0 or 1.
        groups : Tensor of shape (n,), optional
            If given, the references are updated first: moving averages follow the mini-batch, as in
            Algorithm 1; members are drawn anew.
        sample_weight : Tensor of shape (n,), optional
            The weight of each row in its label's mean; the references are not weighted.
        attributions : Tensor of shape (groups, n, columns), optional
            The rows' attributions, if they are known; all rows are then compared.
        row_weights : Tensor of shape (n,), optional
            The result of `row_weights` for these rows, if it is known; used with `attributions`.
        """
        self._check(x, y)
        refuse_wrapped(module)
        y, every = y.long(), self.definition.every
        if attributions is not None:
            return self.value(attributions, y, sample_weight, row_weights)
        if groups is not None:
            self.references.update(x, y, groups.long())
        if every > 1 and not untraced(self._is_due)():
            return x.new_zeros(())
        if self.definition.rows < 1:
            chosen = untraced(sample_rows)(y, self.definition.rows, self._generator)
            x, y = x[chosen], y[chosen]
            sample_weight = None if sample_weight is None else sample_weight[chosen]
        if not len(x):
            return x.new_zeros(())
        x, references = x.detach(), self._compared_references().to(x.dtype)
        fused = fused_penalty(self, module, x, y, references, sample_weight)
        loss = self.readable(module, x, y, references, sample_weight) if fused is None else fused
        return loss * every if every > 1 else loss

    def attribute(self, module: nn.Module, x: Tensor, y: Tensor, references: Tensor) -> Tensor:
        """Return the attributions of rows from every reference of their labels.

        Parameters
        ----------
        x : Tensor of shape (n, ...)
        y : Tensor of shape (n,)
        references : Tensor of shape (labels, groups, ...) or (labels, groups, members, ...)

        Returns
        -------
        Tensor of shape (groups, n, columns), or (groups x members, n, columns)
        """
        if references.dim() > x.dim() + 1:
            references = references.flatten(1, 2)
        integration = self.integration(module, x)
        if is_fusible(integration):
            assert integration.network is not None
            return cell_secant_attributions(integration.network, x, y, references, integration.n_steps)
        by_group = references.transpose(0, 1)
        probed = self._probe(module, integration, by_group)
        chunks = plan_chunks(integration, by_group, len(x), self.max_bytes, probed.n_bytes)
        create_graph = torch.is_grad_enabled()
        network = integration.network
        if network is not None and is_piecewise_linear(network) and len(x) <= chunks.rows:
            rule = quadrature(integration.rule, integration.n_steps)
            return node_attributions(network, x, by_group[:, y], rule)
        return compute_attributions(
            module, x, by_group[:, y], integration, chunks, create_graph, self.score
        ).flatten(2)

    def reduce(self, attributions: Tensor) -> Tensor:
        """Sum attributions over blocks and average them over members, shape (groups, n, columns).

        With `each_member` they are not averaged: shape (groups, members x n, columns).
        """
        if self.blocks is not None:
            # Much faster than additions by index, whose gradient is a selection of columns.
            attributions = attributions @ self.blocks.to(attributions.dtype)
        elif self.origin is not None and self.n_columns is not None:
            attributions = disparity.sum_blocks(attributions, self.origin, self.n_columns)
        if self.n_members > 1:
            by_member = attributions.unflatten(0, (-1, self.n_members))
            attributions = by_member.flatten(1, 2) if self.each_member else by_member.mean(1)
        return attributions

    def normalise(self, attributions: Tensor) -> Tensor:
        """Return attributions divided by their norm."""
        return disparity.normalise(attributions, norm=self.definition.norm, eps=self.definition.eps)

    def value(
        self,
        attributions: Tensor,
        y: Tensor,
        sample_weight: Tensor | None = None,
        row_weights: Tensor | None = None,
    ) -> Tensor:
        """Return the penalty of reduced attributions (groups, n, columns): compare, and average by label.

        `row_weights` are used as they are if every row has attributions; see `forward`.
        """
        norms = vector_norm(attributions.detach(), "l1")
        copies = self.n_members if self.each_member else 1
        if is_recording() or not disparity.all_defined(norms):
            defined = disparity.defined_rows(norms)
            self.n_undefined += (~defined).sum()
            if copies > 1:
                y = y.repeat(copies)
                sample_weight = None if sample_weight is None else sample_weight.repeat(copies)
            weights = self.row_weights(attributions, y, sample_weight, defined)
        else:
            weights = self.row_weights(attributions, y, sample_weight) if row_weights is None else row_weights
            if copies > 1:
                weights = (weights / copies).repeat(copies)
        return torch.dot(self.compare(attributions), weights)

    @property
    def baselines(self) -> GroupBaselines | GroupMembers:
        """The references, by the paper's name."""
        return self.references

    @property
    def n_members(self) -> int:
        """References per group, over which attributions are averaged."""
        return getattr(self.references, "n_members", 1)

    @property
    def _row_dim(self) -> int:
        """The number of dimensions of a row; those of the references are the label, the group, the member."""
        return self.references.values.dim() - (3 if isinstance(self.references, GroupMembers) else 2)

    @property
    def is_plain(self) -> bool:
        """True if each cell has one reference and columns are compared as they are."""
        return self.n_members == 1 and self.origin is None

    @property
    def is_standard(self) -> bool:
        """True if `gcig.engine.term_gradients` has its gradient: no subclass, l1 norm, sums as a product."""
        summed = self.origin is None or self.blocks is not None
        return type(self) is GCIGPenalty and self.definition.norm == "l1" and summed

    def compare(self, attributions: Tensor) -> Tensor:
        """Return the disparity (n,) of attributions (groups, n, columns)."""
        return disparity.disparity(attributions, norm=self.definition.norm, eps=self.definition.eps)

    def readable(
        self, module: nn.Module, x: Tensor, y: Tensor, references: Tensor, sample_weight: Tensor | None
    ) -> Tensor:
        """Return the penalty of all rows by autograd: attribute, compare, and average by label."""
        integration = self.integration(module, x)
        compute = self._by_autograd if integration.network is not None else untraced(self._by_autograd)
        return compute(module, integration, x, y, references, sample_weight)

    def integration(self, module: nn.Module, x: Tensor) -> Integration:
        """Return how paths are integrated for a module and rows like these."""
        return training_integration(
            module,
            rule=self.definition.rule,
            n_steps=self.definition.n_steps,
            fast=self.fast and self.score is None,
            tabular=x.dim() == 2,
        )

    def secant_rule(self, integration: Integration) -> SecantRule:
        """Return the definition in the form of the engine."""
        return SecantRule(integration.n_steps, self.definition.norm, self.definition.eps)

    def row_weights(
        self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None, defined: Tensor | None = None
    ) -> Tensor:
        """Return the weight of each row's disparity."""
        return label_row_weights(
            y, self.definition.label_weights, defined, sample_weight=sample_weight, dtype=x.dtype
        )

    def over_defined_rows(self, compute: Callable[[Tensor | None], tuple[Tensor, Tensor]]) -> Tensor:
        """Return a penalty over defined rows, in a second pass if the first one finds undefined rows."""
        penalty, norms = compute(None)
        if disparity.all_defined(norms):
            return penalty
        defined = disparity.defined_rows(norms)
        self.n_undefined += (~defined).sum()
        return compute(defined)[0]

    def engine_segments(self, module: nn.Module, x: Tensor) -> int | None:
        """Return the segments per path if the engine can compute the attributions of a module, else None."""
        if type(self).attribute is not GCIGPenalty.attribute or self.definition.pairs != "all":
            return None
        integration = self.integration(module, x)
        return integration.n_steps if is_fusible(integration) else None

    def _by_autograd(
        self,
        module: nn.Module,
        integration: Integration,
        x: Tensor,
        y: Tensor,
        references: Tensor,
        sample_weight: Tensor | None,
    ) -> Tensor:
        indicator(y, 2, "y")  # rejects other labels before they are used as indices
        each = references.flatten(1, 2) if references.dim() > x.dim() + 1 else references
        by_group = each.transpose(0, 1)
        probed = self._probe(module, integration, by_group)
        if torch.is_grad_enabled():
            require_second_derivative(probed)
        if not (self._warned or torch.compiler.is_compiling()):
            warn_of_kinks(integration, probed.kinked)
            self._warned = True
        chunks = plan_chunks(integration, by_group, len(x), self.max_bytes, probed.n_bytes)

        def explain(rows: slice) -> tuple[Tensor, Tensor]:
            values = self.reduce(self.attribute(module, x[rows], y[rows], references))
            disparities, norms = self.compare(values), vector_norm(values.detach(), "l1")
            if self.each_member:
                by_member = disparities.unflatten(0, (self.n_members, -1))
                return by_member.mean(0), norms.unflatten(1, (self.n_members, -1)).amin(1)
            return disparities, norms

        if len(x) > chunks.rows:
            return untraced(self._in_chunks)(explain, module, x, y, chunks, sample_weight)
        values = self.reduce(self.attribute(module, x, y, references))
        return self.value(values, y, sample_weight)

    def _in_chunks(
        self,
        explain: Callable[[slice], tuple[Tensor, Tensor]],
        module: nn.Module,
        x: Tensor,
        y: Tensor,
        chunks: Chunks,
        sample_weight: Tensor | None,
    ) -> Tensor:
        def compute(defined: Tensor | None) -> tuple[Tensor, Tensor]:
            weights = self.row_weights(x, y, sample_weight, defined)

            def share(rows: slice) -> tuple[Tensor, Tensor]:
                disparities, norms = explain(rows)
                return torch.dot(disparities, weights[rows]), norms

            return accumulate(share, chunks.slices(len(weights)), parameters_of(module, self.score))

        return self.over_defined_rows(compute)

    def _check(self, x: Tensor, y: Tensor) -> None:
        values = self.references.values
        if values.device != x.device:
            raise ValueError(
                f"x is on {x.device}, but the references are on {values.device}: move them with "
                f"penalty.to({str(x.device)!r})"
            )
        expected = values.shape[-(x.dim() - 1) :]
        if x.shape[1:] != expected:
            raise ValueError(
                f"x must hold rows of the references' shape {tuple(expected)}, not {tuple(x.shape[1:])}"
            )
        if y.shape != x.shape[:1]:
            raise ValueError(f"y must have shape ({len(x)},), one label per row of x, not {tuple(y.shape)}")

    def _is_due(self) -> bool:
        self._n_calls += 1
        return (self._n_calls - 1) % self.definition.every == 0

    def _compared_references(self) -> Tensor:
        """Return the references (labels, groups, ...) of the groups that are compared in this call."""
        values = self.references.values
        if self.definition.pairs == "random" and values.shape[1] > 2:
            return values[:, untraced(self._draw_pair)(values.shape[1]).to(values.device)]
        return values

    def _draw_pair(self, n_groups: int) -> Tensor:
        return torch.randperm(n_groups, generator=self._generator)[:2]

    def _probe(self, module: nn.Module, integration: Integration, by_group: Tensor) -> Probe:
        """Probe a module off the fast paths, and keep the result: a probe costs as much as a small step."""
        if integration.network is not None:
            return Probe(0, False)
        known = self._probed  # another thread may replace it
        if known is None or known[0]() is not module:
            known = self._probed = weakref.ref(module), probe(module, by_group[0], self.score)
        return known[1]


def is_fusible(integration: Integration) -> bool:
    """Return whether one secant pass per mini-batch applies: a layered network with hidden layers."""
    network = integration.network
    return network is not None and network.n_hidden > 0 and integration.rule == "secant"
