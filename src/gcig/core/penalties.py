r"""Penalties on how much explanations depend on the group, for any training loop and any task.

`GCIGPenalty` is the paper's formula, `ReasonGapPenalty` the one to recommend: it cannot be lowered by larger
explanations that cancel, and it lowers different standards as well.

A penalty explains rows relative to every reference, so for a large module (a CNN, a transformer) one call
costs as much as ten or twenty plain steps if all rows are explained. ``rows="auto"`` explains every row of a
network below a million parameters, and 32 otherwise.
"""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gcig._arguments import check_argument, is_count
from gcig.core.attribution import RULES, Attribution, IntegratedGradients, Score, resolve_attribution
from gcig.core.columns import spread_origin
from gcig.core.definition import EPS, NON_NEGATIVE, POSITIVE
from gcig.core.gap import gaps_by_kind, smooth_root
from gcig.core.gcig import column_matrix, defined_rows, disparity, vector_norm
from gcig.core.modules import check_trainable, refuse_wrapped
from gcig.core.references import REFERENCES, GroupBaselines, References, check_labels, reference_kinds
from gcig.core.secants import Chain

_FEW_PARAMETERS, _ROWS_OF_LARGE = 1_000_000, 32  # the definition of rows="auto"


class _Penalty(nn.Module):
    """Attributions of the rows of a mini-batch relative to references."""

    _warns: ClassVar[bool] = True  # of kinks
    matrix: Tensor | None

    def __init__(
        self,
        baselines: GroupBaselines,
        *,
        origin: Tensor | None,
        attribution: str | Attribution,
        rule: str,
        n_steps: int | str,
        rows: int | str,
        random_state: int | None,
    ) -> None:
        super().__init__()
        check_argument("rows", rows, "'auto', 'all' or a positive integer", _is_rows)
        rules = ("auto", "secant", *RULES)
        check_argument("rule", rule, f"one of {list(rules)}", rules.__contains__)
        if origin is not None:
            check_argument("origin", origin, "a tensor", lambda value: isinstance(value, Tensor))
        check_argument("n_steps", n_steps, "'auto' or a positive integer", _is_steps)
        if random_state is not None:
            check_argument("random_state", random_state, "an integer >= 0", lambda n: is_count(n, 0, 2**63))
        self.baselines, self.rows = baselines, rows
        steps = 2 if isinstance(n_steps, str) else n_steps
        self.attribution: Attribution = resolve_attribution(attribution)
        if attribution == "integrated_gradients":
            self.attribution = IntegratedGradients(rule, steps)
        matrix = None
        if origin is not None:
            matrix = column_matrix(spread_origin(origin, baselines.values.shape[2:])).to(baselines.values)
        self.register_buffer("matrix", matrix, persistent=False)
        self._generator = torch.Generator()
        if random_state is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(random_state)
        self._checked: int | None = None

    def _prepare(
        self, module: nn.Module, x: Tensor, y: Tensor, groups: Tensor | None, weights: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Check a mini-batch, update the means, and choose the rows that are explained."""
        refuse_wrapped(module)
        if y.shape != (len(x),) or x.shape[1:] != self.baselines.values.shape[2:]:
            raise ValueError(
                f"x must have shape (n, {', '.join(map(str, self.baselines.values.shape[2:]))}) and y (n,), "
                f"not {tuple(x.shape)} and {tuple(y.shape)}"
            )
        for name, values in (("groups", groups), ("sample_weight", weights)):
            if values is not None and values.shape != y.shape:
                raise ValueError(f"{name} must have shape ({len(y)},), not {tuple(values.shape)}")
        check_labels(self.baselines.task, y)
        if groups is not None:
            self.baselines.update(x, y, groups)
        limit = self._limit(module)
        if limit is not None and len(x) > limit:
            chosen = torch.randperm(len(x), generator=self._generator)[:limit].to(x.device)
            x, y, weights = x[chosen], y[chosen], None if weights is None else weights[chosen]
        if self._checked != id(module) and len(x):
            score = Score.of(module, self.baselines.task, y[:2])
            check_trainable(
                module, score, x[:2].unsqueeze(0), kinks=self._warns and not self._takes_secants(module, x)
            )
            self._checked = id(module)
        return x, y, weights

    def _takes_secants(self, module: nn.Module, x: Tensor) -> bool:
        """Return whether the parameter gradient of attributions is right for activations with kinks."""
        how = self.attribution
        secants = isinstance(how, IntegratedGradients) and how.rule in ("auto", "secant")
        return secants and x.dim() == 2 and Chain.recognise(module, any_activation=True) is not None

    def _limit(self, module: nn.Module) -> int | None:
        if isinstance(self.rows, int):
            return self.rows
        size = sum(parameter.numel() for parameter in module.parameters())
        return None if self.rows == "all" or size < _FEW_PARAMETERS else _ROWS_OF_LARGE

    def attribute(self, module: nn.Module, x: Tensor, y: Tensor, references: Tensor) -> Tensor:
        """Return attributions (references, n, columns) of rows relative to references of each."""
        score, references = Score.of(module, self.baselines.task, y), references.to(x)
        values = self.attribution.attribute(score, x, references, create_graph=torch.is_grad_enabled())
        values = values.flatten(2)
        return values if self.matrix is None else values @ self.matrix.to(values.dtype)


class GCIGPenalty(_Penalty):
    r"""The paper's penalty: the disparity of normalised explanations relative to the groups' means.

    .. math:: \mathcal L = \sum_{y} \frac{1}{|B_y|} \sum_{i \in B_y} V(x_i; y),

    the mini-batch loss of Algorithm 1; with K classes, or bins of a number, each mean counts 2 / K. Rows with
    vanishing attributions are left out, and rows are compared among the groups that have a reference for
    their label; a row with fewer than two is left out as well.

    Parameters
    ----------
    baselines : GroupBaselines
    origin : Tensor of integers, optional
        The group of inputs that each entry of a row belongs to, from 0: attributions are summed over each
        group before they are compared. Its shape is that of a row, or one that broadcasts to it: the original
        column of each encoded column, shape (columns,); the token of each embedding, ``torch.arange(tokens)
        .unsqueeze(1)``; the patch of each pixel, shape (height, width). By default entries are compared as
        they are.
    norm : {"l1", "l2"}
        The norm by which attributions are divided.
    attribution : str or Attribution
        A name of `gcig.core.attribution.ATTRIBUTIONS`, or an object with `attribute`.
    rule, n_steps : str, int or "auto"
        Of integrated gradients; ``rule="right", n_steps=16`` is the paper's. The default is two
        Gauss-Legendre nodes, or two secants for chains with ReLU.
    rows : "auto", "all" or int
        How many rows of a mini-batch are explained, drawn anew in each call; ``"auto"`` are all rows of a
        network below a million parameters, and 32 otherwise.
    label_weights : {"sum", "equal", "empirical"}
        How the labels' means are combined.
    eps : float
        Added to the norms.
    random_state : int, optional
        Seed of the rows that are drawn.

    Attributes
    ----------
    n_undefined : int
        How many rows were left out in the last call.

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
        origin: Tensor | None = None,
        norm: str = "l1",
        attribution: str | Attribution = "integrated_gradients",
        rule: str = "auto",
        n_steps: int | str = "auto",
        rows: int | str = "auto",
        label_weights: str = "sum",
        eps: float = EPS,
        random_state: int | None = None,
    ) -> None:
        super().__init__(
            baselines,
            origin=origin,
            attribution=attribution,
            rule=rule,
            n_steps=n_steps,
            rows=rows,
            random_state=random_state,
        )
        check_argument("norm", norm, "'l1' or 'l2'", ("l1", "l2").__contains__)
        choices = ("sum", "equal", "empirical")
        check_argument("label_weights", label_weights, f"one of {list(choices)}", choices.__contains__)
        check_argument("eps", eps, *POSITIVE)
        self.norm, self.label_weights, self.eps, self.n_undefined = norm, label_weights, eps, 0

    def forward(
        self,
        module: nn.Module,
        x: Tensor,
        y: Tensor,
        groups: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Return the penalty of a mini-batch.

        Parameters
        ----------
        module : nn.Module
            Maps (n, ...) to outputs (n,), (n, 1) or (n, K).
        x : Tensor of shape (n, ...)
        y : Tensor of shape (n,)
            Codes of classes, or numbers.
        groups : Tensor of shape (n,), optional
            If given, the moving averages of the means first follow the mini-batch, as in Algorithm 1.
        sample_weight : Tensor of shape (n,), optional
            The weight of each row in its label's mean.
        """
        x, y, sample_weight = self._prepare(module, x, y, groups, sample_weight)
        if not len(x):
            return x.new_zeros(())
        values = self.attribute(module, x, y, self.baselines.of(y))
        cells = self.baselines.task.cells(y)
        norms = vector_norm(values.detach(), "l1")
        present = None if self.baselines.all_defined else self.baselines.defined[cells].T  # (groups, n)
        spread = disparity(values, norm=self.norm, eps=self.eps, defined=present)
        if present is None:
            defined = defined_rows(norms)
        else:
            several = present.sum(0) > 1
            defined = defined_rows(norms.masked_fill(~present, math.inf), norms[present].median()) & several
        self.n_undefined = int((~defined).sum())
        weights = defined.to(spread.dtype)
        if sample_weight is not None:
            weights = weights * sample_weight.to(weights)
        return torch.where(defined, spread, 0.0) @ self._row_weights(cells, weights)

    def _row_weights(self, cells: Tensor, weights: Tensor) -> Tensor:
        """Return each row's weight in the sum of the labels' means."""
        if self.label_weights == "empirical":
            return weights / weights.sum().clamp_min(EPS)
        mass = torch.zeros(self.baselines.task.n_cells, dtype=weights.dtype, device=weights.device)
        mass = mass.index_add_(0, cells, weights)
        share = (2 if self.label_weights == "sum" else 1) / self.baselines.task.n_cells
        return share * weights / mass.clamp_min(EPS)[cells]


class ReasonGapPenalty(_Penalty):
    """The reason gap relative to means and members, and its varying part: the penalty to recommend.

    It is the sum over the kinds of references of the gap plus `standards_weight` times its varying part, both
    in units of `scale`. Keep the scale fixed: take the spread of the scores of the network before training
    on the penalty, ``baselines.task.spread(outputs)``, because a network whose scores shrink would lower the
    gap without being fairer, and one whose scores grow would not.

    Parameters
    ----------
    baselines : GroupBaselines
    scale : float
        The unit of the gap.
    standards_weight : float
        Weight of the varying part, which is 0 for every model that applies one standard additively.
    references : str
        ``"both"``, ``"means"``, ``"members"`` or a registered kind.
    floor : float
        The square of the gap below which its root is linear: so small a gap is not worth a steep gradient.
    origin, attribution, rule, n_steps, rows, random_state
        As in `GCIGPenalty`; the attribution has to be complete for a varying part.

    Examples
    --------
    >>> x, y, groups = torch.randn(64, 5), torch.randn(64), torch.arange(64) // 2 % 2
    >>> net = nn.Sequential(nn.Linear(5, 8), nn.SiLU(), nn.Linear(8, 1))
    >>> penalty = ReasonGapPenalty(GroupBaselines.from_data(x, y, groups), scale=1.0, random_state=0)
    >>> penalty(net, x, y).backward()
    """

    def __init__(
        self,
        baselines: GroupBaselines,
        *,
        scale: float = 1.0,
        standards_weight: float = 2.0,
        references: str = "both",
        floor: float = 1e-3,
        origin: Tensor | None = None,
        attribution: str | Attribution = "integrated_gradients",
        rule: str = "auto",
        n_steps: int | str = "auto",
        rows: int | str = "auto",
        random_state: int | None = None,
    ) -> None:
        super().__init__(
            baselines,
            origin=origin,
            attribution=attribution,
            rule=rule,
            n_steps=n_steps,
            rows=rows,
            random_state=random_state,
        )
        check_argument("scale", scale, *POSITIVE)
        check_argument("standards_weight", standards_weight, *NON_NEGATIVE)
        check_argument("floor", floor, *POSITIVE)
        self.scale, self.standards_weight, self.floor = scale, standards_weight, floor
        self.kinds: dict[str, References] = {
            kind: REFERENCES[kind](baselines.rows) for kind in reference_kinds(references)
        }

    def forward(self, module: nn.Module, x: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """Return the penalty of a mini-batch; arguments as in `GCIGPenalty`."""
        x, y, sample_weight = self._prepare(module, x, y, None, sample_weight)
        if not len(x):
            return x.new_zeros(())
        total = x.new_zeros(())
        cells = self.baselines.task.cells(y)
        here = cells.to(self.baselines.rows.inputs.device)  # members stay where they are
        references = {name: kind.of(here, self._generator).flatten(0, 1) for name, kind in self.kinds.items()}
        values = self.attribute(module, x, y, torch.cat(list(references.values())))
        parts = values.split([len(each) for each in references.values()])
        by_kind = dict(zip(references, parts, strict=True))
        gaps = gaps_by_kind(by_kind, self.kinds, self.baselines, cells, self.scale, sample_weight)
        for gap, varying in gaps.values():
            total = total + smooth_root(gap, self.floor)
            if self.attribution.complete:
                total = total + self.standards_weight * smooth_root(varying, self.floor)
        return total


def _is_rows(value: Any) -> bool:
    return value in ("auto", "all") if isinstance(value, str) else is_count(value, 1)


def _is_steps(value: Any) -> bool:
    return value == "auto" if isinstance(value, str) else is_count(value, 1, 10_001)
