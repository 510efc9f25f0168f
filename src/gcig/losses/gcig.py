r"""The GCIG penalty: how much the reasons for a mini-batch's rows depend on the group, as a loss.

.. math:: \mathcal L = \sum_{y} \frac{1}{|B_y|} \sum_{i \in B_y} V(x_i; y),

the mini-batch loss of the paper's Algorithm 1. Rows whose attributions are zero have no disparity and are
left out of the means.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from gcig.core.attribution import MAX_BYTES
from gcig.core.definition import EPS, Definition
from gcig.core.disparity import all_defined, defined_rows, disparity
from gcig.core.memory import Chunks, accumulate, compute_attributions, parameters_of, plan_chunks
from gcig.core.method import Method, training_method
from gcig.core.modules import Score, untraced
from gcig.core.numerics import vector_norm
from gcig.core.paths import cell_secant_attributions
from gcig.core.probing import Probe, probe, warn_of_kinks
from gcig.core.references import GroupBaselines, indicator
from gcig.engine.objective_pass import Objective, Pulled, objective_gradient, secant_objective
from gcig.engine.penalty import secant_penalty
from gcig.engine.scratch import Scratch
from gcig.engine.secant_pass import Gradient, Layers, SecantPass, SecantRule

__all__ = ["GCIGPenalty", "label_members", "label_row_weights", "sample_rows", "weigh_members"]


_SHARES = {"sum": 1.0, "equal": 0.5, "empirical": 1.0}  # what each mean counts


def label_row_weights(
    labels: Tensor,
    label_weights: str,
    defined: Tensor | None = None,
    *,
    sample_weight: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """What each row counts in the penalty, shape (n,).

    ``"sum"`` adds the means of the labels (the paper's loss), ``"equal"`` averages them, ``"empirical"``
    is the mean over all rows. Rows that are not `defined` count nothing. `sample_weight` weighs the means.

    >>> label_row_weights(torch.tensor([0, 0, 1]), "sum")
    tensor([0.5000, 0.5000, 1.0000])
    """
    members = label_members(labels, label_weights, sample_weight, dtype)
    if defined is not None:
        members = members * defined.unsqueeze(1)
    return weigh_members(members, _SHARES[label_weights])


def label_members(
    labels: Tensor,
    label_weights: str = "sum",
    sample_weight: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Which mean each row is part of, and with what weight: shape (n, means)."""
    dtype = dtype or torch.get_default_dtype()
    members = indicator(labels, 2, "y").to(dtype)
    if label_weights == "empirical":
        members = members.sum(1, keepdim=True)
    return members if sample_weight is None else members * sample_weight.to(dtype).unsqueeze(1)


def weigh_members(members: Tensor, share: float) -> Tensor:
    """What each row counts in the sum of the means of (n, means), each counted `share` times."""
    inverse = members.sum(0).clamp_(min=torch.finfo(members.dtype).tiny).reciprocal_()
    # An empty mean has a huge inverse, which times `share` might be infinite, and that times no row is NaN.
    return torch.mv(members, inverse).mul_(share)


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
        segment for layered networks (exact where there is one hidden layer), two where more than two hidden
        layers have kinks, two Gauss-Legendre nodes for any other module.
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

    Attributes
    ----------
    definition : Definition
        The choices above.
    n_undefined : Tensor of shape ()
        How many rows were left out so far because an attribution of theirs is zero.

    Examples
    --------
    >>> x, y, groups = torch.randn(64, 5), torch.arange(64) % 2, torch.arange(64) // 2 % 2
    >>> net = nn.Sequential(nn.Linear(5, 8), nn.SiLU(), nn.Linear(8, 1))
    >>> penalty = GCIGPenalty(GroupBaselines.from_data(x, y, groups))
    >>> loss = 0.2 * penalty(net, x, y)
    >>> loss.backward()
    """

    n_undefined: Tensor

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
            columns="raw",
            label_weights=label_weights,
            eps=eps,
            rows=rows,
            every=every,
            pairs=pairs,
        )
        self.baselines = baselines
        self.fast, self.max_bytes, self.score = fast, max_bytes, score
        self.register_buffer("n_undefined", torch.zeros((), dtype=torch.int64))
        self._n_calls = 0
        self._generator = torch.Generator()
        if random_state is not None:
            self._generator.manual_seed(random_state)
        self._scratch = Scratch()
        self._found: tuple[Any, Probe] | None = None
        self._warned = False

    def __getstate__(self) -> dict[str, Any]:
        # What was found out about a module is not worth keeping, and weak references cannot be pickled.
        return {**self.__dict__, "_found": None}

    def forward(
        self,
        module: nn.Module,
        x: Tensor,
        y: Tensor,
        groups: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
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
        sample_weight : Tensor of shape (n,), optional
            What each row counts in its label's mean; the baselines are not weighted.
        """
        self._check(x, y)
        y, every = y.long(), self.definition.every
        if groups is not None:
            self.baselines.update(x, y, groups.long())
        if every > 1 and not untraced(self._is_due)():
            return x.new_zeros(())
        if self.definition.rows < 1:
            chosen = untraced(sample_rows)(y, self.definition.rows, self._generator)
            x, y = x[chosen], y[chosen]
            sample_weight = None if sample_weight is None else sample_weight[chosen]
        loss = self.of_rows(module, x, y, sample_weight)
        return loss * every if every > 1 else loss

    def of_rows(self, module: nn.Module, x: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """The penalty of exactly these rows, with the baselines as they are."""
        if not len(x):
            return x.new_zeros(())
        x, baselines = x.detach(), self._compared_baselines().to(x.dtype)
        method = self._method(module, x)
        if _fusible(method) and not self._traceable(method, x, baselines):
            return untraced(self._fused)(method, x, y, baselines, sample_weight)
        explicit = self._explicit if method.network is not None else untraced(self._explicit)
        return explicit(module, method, x, y, baselines, sample_weight)

    def _traceable(self, method: Method, x: Tensor, baselines: Tensor) -> bool:
        """Whether a compiler is at work that makes better code of the explicit chain, and all rows fit."""
        if not torch.compiler.is_compiling():
            return False
        return len(x) <= plan_chunks(method, baselines.transpose(0, 1), self.max_bytes).rows

    def joint(
        self, module: nn.Module, x: Tensor, y: Tensor, outer: Callable[[Tensor], Tensor], weight: float
    ) -> Objective | None:
        """A loss on all rows' logits plus `weight` times the penalty of the first len(y) rows, in one pass.

        The forward pass is shared and no graph of the network is built. It exists for layered networks
        without active dropout; None where it does not apply, or where rows turn out to have no attributions,
        and the terms have to be computed one by one.
        """
        method = self._joint_method(module, x)
        if method is None or method.network is None:
            return None
        found = secant_objective(
            method.network,
            x,
            y,
            self._compared_baselines().to(x.dtype),
            weight * self._weigh(x, y),
            self._secant_rule(method),
            outer,
            n_explained=len(y),
            scratch=self._scratch,
        )
        return found if all_defined(found.norms) else None

    def joint_rule(self, module: nn.Module, x: Tensor) -> SecantRule | None:
        """How rows are explained in one pass with their predictions; None where that does not apply."""
        method = self._joint_method(module, x)
        return None if method is None else self._secant_rule(method)

    def joint_pass(self, layers: Layers, rule: SecantRule, n_rows: int, n_explained: int) -> SecantPass:
        """What `joint_gradient` works in; its `inputs` are to be filled, the explained rows first."""
        baselines = self._compared_baselines()
        return SecantPass(layers, n_explained, n_rows - n_explained, baselines, rule, self._scratch)

    def joint_gradient(
        self,
        work: SecantPass,
        labels: Tensor,
        members: Tensor,
        weight: float,
        outer: Pulled,
        inner: Pulled | None = None,
    ) -> tuple[Objective, Gradient] | None:
        """What `joint` computes, and its gradient, outside any graph: the cheapest way to train.

        Parameters
        ----------
        work : SecantPass
            From `joint_pass`, with its rows.
        labels : Tensor of shape (n,)
            Of the rows that are explained.
        members : Tensor of shape (n, means)
            From `label_members`.
        outer : callable
            Maps logits to a loss and to the loss's gradient.
        inner : callable, optional
            Maps attributions to another term of the loss and to its gradient.
        """
        work.load(labels, self._compared_baselines())
        weights = weigh_members(members, weight * _SHARES[self.definition.label_weights])
        objective, gradient = objective_gradient(work, weights, outer, inner)
        return (objective, gradient) if all_defined(objective.norms) else None

    def _joint_method(self, module: nn.Module, x: Tensor) -> Method | None:
        method = self._method(module, x)
        dropping = module.training and any(isinstance(part, nn.Dropout) for part in module.modules())
        return None if dropping or torch.compiler.is_compiling() or not _fusible(method) else method

    def _secant_rule(self, method: Method) -> SecantRule:
        return SecantRule(method.n_steps, self.definition.norm, self.definition.eps)

    def _method(self, module: nn.Module, x: Tensor) -> Method:
        return training_method(
            module,
            rule=self.definition.rule,
            n_steps=self.definition.n_steps,
            fast=self.fast and self.score is None,
            tabular=x.dim() == 2,
        )

    def _check(self, x: Tensor, y: Tensor) -> None:
        expected = self.baselines.values.shape[2:]
        if x.shape[1:] != expected:
            raise ValueError(
                f"x must hold rows of the baselines' shape {tuple(expected)}, not {tuple(x.shape[1:])}"
            )
        if y.shape != x.shape[:1]:
            raise ValueError(
                f"y must have shape ({len(x)},), one label for each row of x, not {tuple(y.shape)}"
            )

    def _is_due(self) -> bool:
        self._n_calls += 1
        return (self._n_calls - 1) % self.definition.every == 0

    def _compared_baselines(self) -> Tensor:
        """The baselines of the groups that are compared in this call: (labels, groups, ...)."""
        values = self.baselines.values
        if self.definition.pairs == "random" and values.shape[1] > 2:
            return values[:, untraced(self._draw_pair)(values.shape[1]).to(values.device)]
        return values

    def _draw_pair(self, n_groups: int) -> Tensor:
        return torch.randperm(n_groups, generator=self._generator)[:2]

    def _weigh(
        self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None, defined: Tensor | None = None
    ) -> Tensor:
        """What each row's disparity counts."""
        return label_row_weights(
            y, self.definition.label_weights, defined, sample_weight=sample_weight, dtype=x.dtype
        )

    def _fused(
        self, method: Method, x: Tensor, y: Tensor, baselines: Tensor, sample_weight: Tensor | None
    ) -> Tensor:
        network = method.network
        assert network is not None
        rule = self._secant_rule(method)

        def compute(defined: Tensor | None) -> tuple[Tensor, Tensor]:
            weights = self._weigh(x, y, sample_weight, defined)
            penalty, _, norms = secant_penalty(network, x, y, baselines, weights, rule, scratch=self._scratch)
            return penalty, norms

        return self._over_defined(compute)

    def _explicit(
        self,
        module: nn.Module,
        method: Method,
        x: Tensor,
        y: Tensor,
        baselines: Tensor,
        sample_weight: Tensor | None,
    ) -> Tensor:
        indicator(y, 2, "y")  # refuses other labels, before they are used to index
        by_group = baselines.transpose(0, 1)
        found = self._probe(module, by_group[0]) if method.network is None else Probe(0, False)
        if not (self._warned or torch.compiler.is_compiling()):
            warn_of_kinks(method, found.kinked)
            self._warned = True
        chunks = plan_chunks(method, by_group, self.max_bytes, found.n_bytes)
        explain = _Explain(module, method, chunks, x, y, by_group, self.definition, self.score)
        if len(x) > chunks.rows:
            return untraced(self._chunked)(explain, sample_weight)
        disparities, norms = explain(slice(0, len(x)))
        defined = defined_rows(norms)
        self.n_undefined += (~defined).sum()
        return torch.dot(disparities, self._weigh(x, y, sample_weight, defined))

    def _chunked(self, explain: "_Explain", sample_weight: Tensor | None) -> Tensor:
        def compute(defined: Tensor | None) -> tuple[Tensor, Tensor]:
            weights = self._weigh(explain.inputs, explain.labels, sample_weight, defined)

            def share(rows: slice) -> tuple[Tensor, Tensor]:
                disparities, norms = explain(rows)
                return torch.dot(disparities, weights[rows]), norms

            return accumulate(share, explain.chunks.slices(len(weights)), explain.parameters())

        return self._over_defined(compute)

    def _over_defined(self, compute: Callable[[Tensor | None], tuple[Tensor, Tensor]]) -> Tensor:
        """Which rows are defined shows after a pass; where some are not, a second one leaves them out."""
        penalty, norms = compute(None)
        if all_defined(norms):
            return penalty
        defined = defined_rows(norms)
        self.n_undefined += (~defined).sum()
        return compute(defined)[0]

    def _probe(self, module: nn.Module, points: Tensor) -> Probe:
        """Probing a module costs as much as a small step, so its answer is kept."""
        if self._found is None or self._found[0]() is not module:
            self._found = weakref.ref(module), probe(module, points, self.score)
        return self._found[1]


@dataclass(frozen=True)
class _Explain:
    """Disparities of some rows, and the l1 norms of their attributions."""

    module: nn.Module
    method: Method
    chunks: Chunks
    inputs: Tensor
    labels: Tensor
    baselines: Tensor  # (groups, labels, ...)
    definition: Definition
    score: Score | None

    def __call__(self, rows: slice) -> tuple[Tensor, Tensor]:
        inputs, labels = self.inputs[rows], self.labels[rows]
        if _fusible(self.method):
            network, n_segments = self.method.network, self.method.n_steps
            assert network is not None
            values = cell_secant_attributions(
                network, inputs, labels, self.baselines.transpose(0, 1), n_segments
            )
        else:
            starts, create_graph = self.baselines[:, labels], torch.is_grad_enabled()
            values = compute_attributions(
                self.module, inputs, starts, self.method, self.chunks, create_graph, self.score
            ).flatten(2)
        disparities = disparity(values, norm=self.definition.norm, eps=self.definition.eps)
        return disparities, vector_norm(values.detach(), "l1")

    def parameters(self) -> list[Tensor]:
        return parameters_of(self.module, self.score)


def _fusible(method: Method) -> bool:
    """Whether the hand-written pass applies."""
    return method.network is not None and method.network.n_hidden > 0 and method.rule == "secant"
