r"""Outcome losses: differences of soft decision rates between groups.

A *condition* selects rows by their label, and a *cell* is one group under one condition. The soft rate
of a cell is the mean of :math:`\sigma((z - c) / T)` over its rows,

.. math::

    r_{c,g} = \frac{\sum_i m_{c,g,i}\, \sigma((z_i - c) / T)}{\sum_i m_{c,g,i}}, \qquad
    L = \sum_c \frac{1}{|P_c|} \sum_{(g, h) \in P_c} |r_{c,g} - r_{c,h}|,

where c is the logit from which a row is decided positive and :math:`P_c` are the unordered pairs of groups
that both have rows. With c = 0 and T = 1 (the paper's) the rates are means of probabilities; with a small T
they are the rates of the decisions. Cells without rows are left out; a batch without any pair has loss 0 and
gradient 0.
"""

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import huber_loss

from gcig._arguments import check_argument, is_count, is_flag, is_number
from gcig.core.modules import is_recording

_SHARP = 1e6  # scales logits so that the soft decision is a hard one


def cell_membership(groups: Tensor, conditions: Tensor, n_groups: int) -> Tensor:
    """Return the weight of every row in every (condition, group) cell.

    Parameters
    ----------
    groups : Tensor of integers, shape (n,)
        The group of each row, from 0 to ``n_groups - 1``; a row with any other number is in no cell.
    conditions : Tensor of shape (conditions, n)
        The weight of each row under each condition: 0 if the condition does not hold.
    n_groups : int

    Returns
    -------
    Tensor of shape (conditions, n_groups, n)

    Examples
    --------
    >>> cell_membership(torch.tensor([0, 1, 1]), torch.ones(1, 3), n_groups=2)
    tensor([[[1., 0., 0.],
             [0., 1., 1.]]])
    """
    in_group = groups == torch.arange(n_groups, device=groups.device).unsqueeze(1)
    return conditions.unsqueeze(1) * in_group


def rate_disparity(logits: Tensor, membership: Tensor) -> Tensor:
    """Return the mean absolute difference of soft rates over pairs of groups, summed over conditions.

    A training loop may compute the membership of all rows once (`OutcomeLoss.membership`) and pass the
    columns of each mini-batch, ``membership[..., rows]``.

    Parameters
    ----------
    logits : Tensor of shape (n,) or (n, 1)
    membership : Tensor of shape (conditions, groups, n)
        Non-negative weights, as from `cell_membership`; not differentiated.

    Returns
    -------
    Tensor of shape ()
        In single precision or better.

    Examples
    --------
    >>> membership = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]])
    >>> rate_disparity(torch.zeros(3), membership)
    tensor(0.)
    """
    return pairwise_gap(*soft_rates(logits, membership))


def soft_rates(logits: Tensor, membership: Tensor) -> tuple[Tensor, Tensor]:
    """Return the soft rates (conditions, groups), 0 for cells without rows, and which cells have rows.

    >>> soft_rates(torch.zeros(2), torch.tensor([[[1.0, 1.0], [0.0, 0.0]]]))
    (tensor([[0.5000, 0.0000]]), tensor([[1., 0.]]))
    """
    logits = _as_vector(logits, "logits")
    if membership.ndim != 3 or membership.shape[-1] != logits.shape[0]:
        raise ValueError(
            f"membership must have shape (conditions, groups, {logits.shape[0]}), one column per logit, "
            f"not {tuple(membership.shape)}"
        )
    device_type = logits.device.type
    if torch.is_autocast_enabled(device_type):
        # Autocast would compute the means in half precision, in which rates differ by rounding alone.
        with torch.autocast(device_type, enabled=False):
            return _soft_rates(logits, membership)
    return _soft_rates(logits, membership)


def _soft_rates(logits: Tensor, membership: Tensor) -> tuple[Tensor, Tensor]:
    dtype = torch.promote_types(logits.dtype, torch.float32)
    membership = membership.detach().to(dtype)
    totals = membership.sum(-1)
    selected = membership @ torch.sigmoid(logits.to(dtype))
    return selected / totals.clamp(min=torch.finfo(dtype).tiny), totals.sign()


def pairwise_gap(rates: Tensor, present: Tensor, smoothness: float = 0.0) -> Tensor:
    """Return the mean absolute difference over pairs of groups that are present, summed over conditions.

    Differences below `smoothness` are squared (Huber's loss), so the gradient vanishes as the rates become
    equal.
    """
    if rates.shape[1] == 2:
        differences, pair_weights = rates[:, 0] - rates[:, 1], present.prod(1)
    else:
        n_present = present.sum(1, keepdim=True).unsqueeze(-1)
        differences = rates.unsqueeze(-1) - rates.unsqueeze(-2)
        pair_weights = present.unsqueeze(1) * present.unsqueeze(2)
        pair_weights = pair_weights / (n_present * (n_present - 1)).clamp_min(1)
    if not smoothness:
        return (differences.abs() * pair_weights).sum()
    sizes = huber_loss(differences, torch.zeros_like(differences), reduction="none", delta=smoothness)
    return (sizes * pair_weights).sum() / smoothness


class OutcomeLoss(nn.Module):
    """Base class of outcome losses; a subclass defines the `conditions` that select rows.

    Parameters
    ----------
    n_groups : int, optional
        The number of groups; by default the largest group number of each call plus one, which gives the
        same value. ``torch.compile`` and `momentum` need it, since shapes must not depend on values.
    cut : float
        The logit from which a row is decided positive.
    temperature : float
        The width of the smoothed decision, in logits.
    momentum : float
        The share of the past in a running average of the rates. The value and the direction of the loss are
        then those of the averages, which are far less noisy than the rates of a mini-batch; the gradient is
        taken through the rates of the mini-batch. 0 uses the mini-batch alone.
    of_decisions : bool
        Whether the value is that of decisions rather than of soft rates, which then only carry the gradient:
        the loss is 0 if the decisions are fair, whatever the soft rates are.
    smoothness : float
        The difference of two rates below which the loss is quadratic.
    validate : bool
        Whether to check labels, groups and weights in every call, which takes as long as the loss itself.
    """

    def __init__(
        self,
        n_groups: int | None = None,
        *,
        cut: float = 0.0,
        temperature: float = 1.0,
        momentum: float = 0.0,
        of_decisions: bool = False,
        smoothness: float = 0.0,
        validate: bool = True,
    ) -> None:
        super().__init__()
        if n_groups is not None:
            check_argument("n_groups", n_groups, "at least 1", lambda value: is_count(value, 1))
        check_argument("cut", cut, "a finite number", is_number)
        check_argument(
            "temperature", temperature, "a positive number", lambda value: is_number(value) and value > 0
        )
        check_argument(
            "momentum",
            momentum,
            "at least 0 and less than 1",
            lambda value: is_number(value) and 0 <= value < 1,
        )
        check_argument(
            "smoothness", smoothness, "a number >= 0", lambda value: is_number(value) and value >= 0
        )
        for name, flag in (("of_decisions", of_decisions), ("validate", validate)):
            check_argument(name, flag, "True or False", is_flag)
        if momentum and n_groups is None:
            raise ValueError("momentum needs n_groups: the averages of all groups are kept between calls")
        self.n_groups, self.cut, self.temperature = n_groups, cut, temperature
        self.momentum, self.smoothness, self.validate = momentum, smoothness, validate
        self.of_decisions = of_decisions
        # The averages, and 1 for the cells that have had rows; both (conditions, groups).
        self._average: tuple[Tensor, Tensor] | None = None

    def conditions(self, labels: Tensor) -> Tensor:
        """Return the weights (conditions, n) of rows under each condition, given their labels as floats."""
        raise NotImplementedError

    def membership(self, labels: Tensor, groups: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
        """Return the membership (conditions, groups, n) of rows in cells, for `rate_disparity`.

        Values are checked, which synchronises the device, unless the operations are recorded.
        """
        labels, groups = _as_vector(labels, "labels"), _as_vector(groups, "groups")
        _check_rows("groups", groups, "labels", labels)
        if groups.is_floating_point() or groups.is_complex() or groups.dtype == torch.bool:
            raise TypeError(f"groups must be integers from 0 to n_groups - 1, not {groups.dtype}")
        if sample_weight is not None:
            sample_weight = _as_vector(sample_weight, "sample_weight")
            _check_rows("sample_weight", sample_weight, "labels", labels)
        if self.validate and not is_recording():
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
        """Return the loss of a batch.

        Parameters
        ----------
        logits : Tensor of shape (n,) or (n, 1)
        labels : Tensor of 0 and 1, shape (n,) or (n, 1)
        groups : Tensor of integers from 0, shape (n,) or (n, 1)
        sample_weight : Tensor of shape (n,) or (n, 1), optional
            Non-negative weights of the rows in the means.
        """
        _check_rows("labels", _as_vector(labels, "labels"), "logits", _as_vector(logits, "logits"))
        return self.of_rates(logits, self.membership(labels, groups, sample_weight=sample_weight))

    def of_rates(self, logits: Tensor, membership: Tensor) -> Tensor:
        """Return the loss of logits whose `membership` is known."""
        rates, present = soft_rates((logits - self.cut) / self.temperature, membership)
        values, known = self.follow(rates.detach(), present, logits.detach(), membership)
        return pairwise_gap(values + (rates - rates.detach()), known, self.smoothness)

    def follow(
        self, rates: Tensor, present: Tensor, logits: Tensor, membership: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the rates whose gap is the loss, and which cells have them.

        They are the soft rates, or those of decisions, and with momentum their running averages, which are
        updated with the mini-batch.
        """
        if self.of_decisions:
            rates, _ = soft_rates((logits - self.cut) * _SHARP, membership)
        if not self.momentum:
            return rates, present
        average, known = self.start_averages(rates)
        # The first rate of a cell is its average. All in place, so that a recorded step can be repeated.
        average.copy_(torch.lerp(average, rates, present * (1 - self.momentum * known)))
        known.copy_(torch.maximum(known, present))
        return average, known

    def start_averages(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return the running averages, and which cells have had rows: none at first."""
        if self._average is None or self._average[0].dtype != like.dtype:
            self._average = torch.zeros_like(like), torch.zeros_like(like)
        return self._average

    def extra_repr(self) -> str:
        """Return the arguments for ``repr``."""
        given = {"n_groups": self.n_groups, "cut": self.cut, "temperature": self.temperature}
        defaults = {"n_groups": None, "cut": 0.0, "temperature": 1.0}
        return ", ".join(f"{name}={value}" for name, value in given.items() if value != defaults[name])


class EqualizedOddsLoss(OutcomeLoss):
    """The gap in soft true positive rates plus the gap in soft false positive rates.

    Examples
    --------
    Group 0 has higher scores than group 1, by 1/4 among the negatives and by 1/4 among the positives:

    >>> import torch
    >>> logits = torch.tensor([0.50, 0.25, 0.75, 0.50]).logit()
    >>> labels, groups = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    >>> EqualizedOddsLoss()(logits, labels, groups)
    tensor(0.5000)
    """

    def conditions(self, labels: Tensor) -> Tensor:
        """Return the weights (2, n) of negatives and positives."""
        return torch.stack((1 - labels, labels))


class EqualOpportunityLoss(OutcomeLoss):
    """The gap in soft true positive rates: `EqualizedOddsLoss` on the rows with label 1.

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([0.50, 0.25, 0.75, 0.50]).logit()
    >>> labels, groups = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    >>> EqualOpportunityLoss()(logits, labels, groups)
    tensor(0.2500)
    """

    def conditions(self, labels: Tensor) -> Tensor:
        """Return the weights (1, n) of the positives."""
        return labels.unsqueeze(0)


class DemographicParityLoss(OutcomeLoss):
    """The gap in soft selection rates over all rows of a group; labels are not used.

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([0.50, 0.25, 0.75, 0.50]).logit()
    >>> labels, groups = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    >>> DemographicParityLoss()(logits, labels, groups)
    tensor(0.2500)
    """

    def conditions(self, labels: Tensor) -> Tensor:
        """Return the weights (1, n) of all rows."""
        return torch.ones_like(labels).unsqueeze(0)


OUTCOME_LOSSES: Final[dict[str, type[OutcomeLoss]]] = {
    "equalized_odds": EqualizedOddsLoss,
    "equal_opportunity": EqualOpportunityLoss,
    "demographic_parity": DemographicParityLoss,
}


def _as_vector(values: Tensor, name: str) -> Tensor:
    if not isinstance(values, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, not {type(values).__name__}; use torch.as_tensor")
    if values.ndim == 2 and values.shape[1] == 1:
        return values.squeeze(1)
    if values.ndim != 1:
        raise ValueError(f"{name} must have shape (n,) or (n, 1), not {tuple(values.shape)}")
    return values


def _check_rows(name: str, values: Tensor, other_name: str, other: Tensor) -> None:
    if values.shape[0] != other.shape[0]:
        raise ValueError(
            f"{name} and {other_name} must have the same number of rows, "
            f"not {values.shape[0]} and {other.shape[0]}"
        )
    if values.device != other.device:
        raise ValueError(
            f"{name} and {other_name} must be on one device, not {values.device} and {other.device}"
        )


def _check_values(labels: Tensor, groups: Tensor, sample_weight: Tensor | None, n_groups: int | None) -> None:
    if labels.numel() == 0:
        return
    if not torch.equal(labels * labels, labels):  # only 0 and 1 are their own squares
        raise ValueError("labels must be 0 or 1, but contain other values")
    lowest, highest = (int(bound) for bound in groups.aminmax())
    if lowest < 0 or (n_groups is not None and highest >= n_groups):
        last = "n_groups - 1" if n_groups is None else n_groups - 1
        raise ValueError(f"groups must lie between 0 and {last}, but range from {lowest} to {highest}")
    if sample_weight is not None and not ((sample_weight >= 0) & sample_weight.isfinite()).all():
        raise ValueError("sample_weight must be finite and not negative, but contains other values")
