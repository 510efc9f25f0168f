r"""Outcome fairness as a loss: soft rates of groups, compared pair by pair.

A *condition* selects rows by their label, and a *cell* is one group under one condition. The soft rate
of a cell is the mean of :math:`\sigma(\text{logit})` over its rows,

.. math::

    r_{c,g} = \frac{\sum_i m_{c,g,i}\, \sigma(z_i)}{\sum_i m_{c,g,i}}, \qquad
    L = \sum_c \frac{1}{|P_c|} \sum_{(g, h) \in P_c} |r_{c,g} - r_{c,h}|,

where :math:`P_c` holds the unordered pairs of groups that both have rows in the batch. Cells without
rows drop out; a batch without any pair has loss 0 and gradient 0.
"""

from typing import Final

import torch
from torch import Tensor, nn


def cell_membership(groups: Tensor, conditions: Tensor, n_groups: int) -> Tensor:
    """Weight of every row in every (condition, group) cell.

    Parameters
    ----------
    groups : Tensor of integers, shape (n,)
        Group of each row, 0 to ``n_groups - 1``; a row with any other number is in no cell.
    conditions : Tensor, shape (conditions, n)
        Weight of each row under each condition: 0 where the condition does not hold.
    n_groups : int
        Number of groups.

    Returns
    -------
    Tensor, shape (conditions, n_groups, n)

    Examples
    --------
    >>> cell_membership(torch.tensor([0, 1, 1]), torch.ones(1, 3), n_groups=2)
    tensor([[[1., 0., 0.],
             [0., 1., 1.]]])
    """
    in_group = groups == torch.arange(n_groups, device=groups.device).unsqueeze(1)
    return conditions.unsqueeze(1) * in_group


def rate_disparity(logits: Tensor, membership: Tensor) -> Tensor:
    """Mean absolute difference of soft rates over pairs of groups, summed over conditions.

    This is the whole loss once the cells are known. A training loop computes the membership of all
    rows once (`OutcomeLoss.membership`) and passes the columns of each mini-batch,
    ``membership[..., rows]``: counts and empty cells are those of the columns given.

    Parameters
    ----------
    logits : Tensor, shape (n,) or (n, 1)
    membership : Tensor, shape (conditions, groups, n)
        Non-negative weights, as from `cell_membership`; never differentiated.

    Returns
    -------
    Tensor, scalar, float32 or wider

    Examples
    --------
    >>> membership = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]])
    >>> rate_disparity(torch.zeros(3), membership)
    tensor(0.)
    """
    logits = _as_vector(logits, "logits")
    if membership.ndim != 3 or membership.shape[-1] != logits.shape[0]:
        raise ValueError(
            f"membership must have shape (conditions, groups, {logits.shape[0]}), one column per logit; "
            f"got {tuple(membership.shape)}"
        )
    device_type = logits.device.type
    if torch.is_autocast_enabled(device_type):
        # Autocast would take the means in half precision, where rates differ by rounding alone.
        with torch.autocast(device_type, enabled=False):
            return _rate_disparity(logits, membership)
    return _rate_disparity(logits, membership)


def _rate_disparity(logits: Tensor, membership: Tensor) -> Tensor:
    dtype = torch.promote_types(logits.dtype, torch.float32)
    probability = torch.sigmoid(logits.to(dtype))
    membership = membership.detach().to(dtype)
    totals = membership.sum(-1, keepdim=True)
    mean = membership / totals  # times a vector: its mean over each cell; 0 / 0 = NaN for an empty cell
    if membership.shape[1] == 2:
        # The same number as below. The one pair is formed before the product, outside the graph: half
        # as many operations to differentiate, which is what a small batch pays for.
        contrast = (mean[:, 0] - mean[:, 1]).nan_to_num_(0.0)
        return torch.mv(contrast, probability).abs().sum()
    rates = mean.nan_to_num_(0.0) @ probability
    present = totals.sign()
    n_present = present.sum(1, keepdim=True)
    pair_weights = present * present.mT / (n_present * (n_present - 1)).clamp_(min=1)
    return ((rates.unsqueeze(-1) - rates.unsqueeze(-2)).abs() * pair_weights).sum()


class OutcomeLoss(nn.Module):
    """Base of the outcome terms: a subclass says which rows its conditions select.

    Parameters
    ----------
    n_groups : int, optional
        Number of groups; by default the largest group number of each call plus one, which gives the
        same value. Give it under ``torch.compile``, where shapes must not depend on values.
    """

    def __init__(self, n_groups: int | None = None) -> None:
        super().__init__()
        if n_groups is not None and n_groups < 1:
            raise ValueError(f"n_groups must be at least 1; got {n_groups}")
        self.n_groups = n_groups

    def conditions(self, labels: Tensor) -> Tensor:
        """Weights (conditions, n) of the rows with the given float labels under each condition."""
        raise NotImplementedError

    def membership(self, labels: Tensor, groups: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
        """Membership (conditions, groups, n) of rows in cells, for `rate_disparity`.

        Values are checked, which waits for the device; not under ``torch.compile``.
        """
        labels, groups = _as_vector(labels, "labels"), _as_vector(groups, "groups")
        _check_rows("groups", groups, "labels", labels)
        if groups.is_floating_point() or groups.is_complex() or groups.dtype == torch.bool:
            raise TypeError(f"groups must be integers from 0 to n_groups - 1; got {groups.dtype}")
        if sample_weight is not None:
            sample_weight = _as_vector(sample_weight, "sample_weight")
            _check_rows("sample_weight", sample_weight, "labels", labels)
        if not torch.compiler.is_compiling():
            _check_values(labels, groups, sample_weight, self.n_groups)
        n_groups = self.n_groups
        if n_groups is None:
            n_groups = int(groups.max()) + 1 if groups.numel() else 1
        dtype = torch.float32 if sample_weight is None else sample_weight.dtype
        conditions = self.conditions(labels.to(torch.promote_types(dtype, torch.float32)))
        if sample_weight is not None:
            conditions = conditions * sample_weight
        return cell_membership(groups, conditions, n_groups)

    def forward(
        self, logits: Tensor, labels: Tensor, groups: Tensor, *, sample_weight: Tensor | None = None
    ) -> Tensor:
        """Loss of a batch.

        Parameters
        ----------
        logits : Tensor, shape (n,) or (n, 1)
        labels : Tensor of 0 and 1, shape (n,) or (n, 1)
        groups : Tensor of integers from 0, shape (n,) or (n, 1)
        sample_weight : Tensor, shape (n,) or (n, 1), optional
            Non-negative weights of the rows in the means.
        """
        _check_rows("labels", _as_vector(labels, "labels"), "logits", _as_vector(logits, "logits"))
        return rate_disparity(logits, self.membership(labels, groups, sample_weight=sample_weight))

    def extra_repr(self) -> str:
        """Arguments, for ``repr``."""
        return "" if self.n_groups is None else f"n_groups={self.n_groups}"


class EqualizedOddsLoss(OutcomeLoss):
    """Gaps in the soft true positive rate and in the soft false positive rate, added.

    Examples
    --------
    Group 0 is scored higher than group 1, by 1/4 among the negatives and by 1/4 among the positives:

    >>> import torch
    >>> logits = torch.tensor([0.50, 0.25, 0.75, 0.50]).logit()
    >>> labels, groups = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    >>> EqualizedOddsLoss()(logits, labels, groups)
    tensor(0.5000)
    """

    def conditions(self, labels: Tensor) -> Tensor:
        """Weights of the negatives and of the positives, shape (2, n)."""
        return torch.stack((1 - labels, labels))


class EqualOpportunityLoss(OutcomeLoss):
    """Gap in the soft true positive rate: `EqualizedOddsLoss` on the rows with label 1.

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([0.50, 0.25, 0.75, 0.50]).logit()
    >>> labels, groups = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    >>> EqualOpportunityLoss()(logits, labels, groups)
    tensor(0.2500)
    """

    def conditions(self, labels: Tensor) -> Tensor:
        """Weights of the positives, shape (1, n)."""
        return labels.unsqueeze(0)


class DemographicParityLoss(OutcomeLoss):
    """Gap in the mean score over all rows of a group; the labels play no part.

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([0.50, 0.25, 0.75, 0.50]).logit()
    >>> labels, groups = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    >>> DemographicParityLoss()(logits, labels, groups)
    tensor(0.2500)
    """

    def conditions(self, labels: Tensor) -> Tensor:
        """Weights of all rows, shape (1, n)."""
        return torch.ones_like(labels).unsqueeze(0)


OUTCOME_LOSSES: Final[dict[str, type[OutcomeLoss]]] = {
    "equalized_odds": EqualizedOddsLoss,
    "equal_opportunity": EqualOpportunityLoss,
    "demographic_parity": DemographicParityLoss,
}


def _as_vector(values: Tensor, name: str) -> Tensor:
    if not isinstance(values, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor; got {type(values).__name__}: use torch.as_tensor")
    if values.ndim == 2 and values.shape[1] == 1:
        return values.squeeze(1)
    if values.ndim != 1:
        raise ValueError(f"{name} must have shape (n,) or (n, 1); got {tuple(values.shape)}")
    return values


def _check_rows(name: str, values: Tensor, other_name: str, other: Tensor) -> None:
    if values.shape[0] != other.shape[0]:
        raise ValueError(
            f"{name} and {other_name} must have the same number of rows; "
            f"got {values.shape[0]} and {other.shape[0]}"
        )
    if values.device != other.device:
        raise ValueError(
            f"{name} and {other_name} must be on one device; got {values.device} and {other.device}"
        )


def _check_values(labels: Tensor, groups: Tensor, sample_weight: Tensor | None, n_groups: int | None) -> None:
    if labels.numel() == 0:
        return
    if not torch.equal(labels * labels, labels):  # only 0 and 1 are their own squares
        raise ValueError("labels must be 0 or 1; other values were found")
    lowest, highest = (int(bound) for bound in groups.aminmax())
    if lowest < 0 or (n_groups is not None and highest >= n_groups):
        last = "n_groups - 1" if n_groups is None else n_groups - 1
        raise ValueError(f"groups must be from 0 to {last}; found {lowest} to {highest}")
    if sample_weight is not None and not ((sample_weight >= 0) & sample_weight.isfinite()).all():
        raise ValueError("sample_weight must be finite and not negative; other values were found")
