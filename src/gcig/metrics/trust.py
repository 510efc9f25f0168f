"""Numbers that say whether GCIG can be trusted: reference offset, faithfulness and attribute effect.

The effective number of columns, the fourth, is `gcig.core.disparity.effective_columns`. The functions take
tensors; `gcig.metrics.trust_figures` applies them to any model.
"""

import math
from collections.abc import Callable, Sequence

import torch
from scipy.stats import spearmanr
from torch import Tensor

from gcig.core.columns import AttributeColumns

_POINTS_AT_ONCE = 2**22  # numbers of permuted rows in one call of the score
_MIN_COLUMNS = 3  # a rank correlation of fewer columns says nothing


def reference_offset(
    at_references: Tensor, scores: Tensor, cells: Tensor, weights: Tensor | None = None
) -> float:
    """Return how far the logit at the references is from that of the cells that they stand for.

    It is ``|logit at the reference - mean logit of its cell|`` in standard deviations of the logit, averaged
    over the cells that have rows. From about 0.5 on, references are unlike the rows of their cells.

    Parameters
    ----------
    at_references : Tensor of shape (cells,)
        The logits at the references.
    scores, cells : Tensor of shape (n,)
        The logits of rows, and the cell of each.
    weights : Tensor of shape (n,), optional
        The number of rows that each row stands for.

    Examples
    --------
    >>> scores, cells = torch.tensor([0.0, 2.0, 4.0, 6.0]), torch.tensor([0, 0, 1, 1])
    >>> reference_offset(torch.tensor([1.0, 5.0]), scores, cells)
    0.0
    """
    counts = torch.bincount(cells, minlength=len(at_references))
    sums = torch.zeros_like(at_references).index_add_(0, cells, scores.to(at_references))
    gaps = (at_references - sums / counts.clamp_min(1)).abs()[counts > 0]
    spread = _deviation(scores, torch.ones_like(scores) if weights is None else weights)
    return float(gaps.mean()) / spread if spread > 0 else math.nan


def _deviation(scores: Tensor, weights: Tensor) -> float:
    """Return the standard deviation of weighted scores, with the total weight as the divisor."""
    shares = weights / weights.sum()
    return float((shares * (scores - (shares * scores).sum()).square()).sum().sqrt())


def permutation_importance(
    score: Callable[[Tensor], Tensor], rows: Tensor, blocks: Tensor, order: Tensor
) -> Tensor:
    """Return the mean absolute change of the logit if the columns of one block are permuted, shape (blocks,).

    Parameters
    ----------
    score : callable
        Maps rows (m, columns) to logits (m,).
    rows : Tensor of shape (n, columns)
    blocks : Tensor of shape (columns,)
        The original column of each.
    order : Tensor of shape (n,)
        A permutation of the rows.
    """
    before, shuffled, found = score(rows), rows[order], []
    for some in torch.arange(int(blocks.max()) + 1).split(max(1, _POINTS_AT_ONCE // max(1, rows.numel()))):
        chosen = blocks.unsqueeze(0) == some.to(blocks.device).unsqueeze(1)
        permuted = torch.where(chosen.unsqueeze(1), shuffled, rows)
        changed = score(permuted.flatten(0, 1)).view(len(some), -1)
        found.append((changed - before).abs().mean(1))
    return torch.cat(found)


def faithfulness(shares: Tensor, importance: Tensor) -> float:
    """Return the rank correlation between the columns' shares of the attributions and their importance.

    NaN for fewer than three columns, or if one of the two is constant. Under about 0.6 the reasons that are
    compared are not what the model uses.

    >>> faithfulness(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([2.0, 1.0, 0.1]))
    1.0
    """
    if len(shares) < _MIN_COLUMNS or any(bool((each == each[0]).all()) for each in (shares, importance)):
        return math.nan
    return float(spearmanr(shares.cpu().numpy(), importance.cpu().numpy()).statistic)


def exchange_columns(
    rows: Tensor, groups: Tensor, donors: Tensor, donor_groups: Tensor, columns: Tensor, seed: int = 0
) -> Tensor:
    """Return rows whose given columns are those of a random donor of another group.

    Rows without a donor of another group stay as they are.
    """
    generator = torch.Generator().manual_seed(seed)
    copies = rows.clone()
    for group in groups.unique().tolist():
        own = (groups == group).nonzero().flatten()
        others = (donor_groups != group).nonzero().flatten()
        if len(others):
            chosen = others[torch.randint(len(others), (len(own),), generator=generator).to(others.device)]
            copies[own.unsqueeze(1), columns] = donors[chosen][:, columns]
    return copies


def exchange_attributes(
    rows: Tensor,
    groups: Tensor,
    donors: Tensor,
    donor_groups: Tensor,
    attributes: Sequence[AttributeColumns],
) -> list[Tensor]:
    """Return versions of the rows with each protected attribute exchanged, and with all of them.

    The columns of one attribute are those of a random donor of another level; all of them together, those of
    a donor of another group. A single attribute gives one version.
    """
    versions = [
        exchange_columns(
            rows, each.levels[groups], donors, each.levels[donor_groups], each.columns, seed=place
        )
        for place, each in enumerate(attributes)
    ]
    if len(attributes) > 1:
        columns = torch.cat([each.columns for each in attributes])
        versions.append(exchange_columns(rows, groups, donors, donor_groups, columns))
    return versions


def attribute_effect(
    before: Tensor, after: Sequence[Tensor], cut: float, weights: Tensor | None = None
) -> float:
    """Return the share of decisions that any version of the rows changes.

    With ``after`` the logits of the versions of `exchange_attributes`, it is the effect of the protected
    attributes on decisions: of any one of them, or of all together.

    >>> attribute_effect(torch.tensor([0.3, -0.2]), [torch.tensor([-0.1, -0.4])], cut=0.0)
    0.5
    """
    changed = torch.stack([(before >= cut) != (each >= cut) for each in after]).any(0).double()
    return float(changed.mean() if weights is None else (changed * weights).sum() / weights.sum())
