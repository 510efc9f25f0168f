"""Relatives of the reason gap from the literature, from the same table of attributions.

Both are about the attributions of the members of the groups. By the antisymmetry of complete attributions,
minus the mean over people of the explanations relative to a member is the member's explanation relative to
these people, who have the same label.
"""

import math

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gcig._arrays import Codes, Floats
from gcig.core.explained import Block
from gcig.metrics.measure import Estimate, measure
from gcig.metrics.table import TableView
from gcig.metrics.utility import roc_auc

_SHUFFLES = 19
_LEAST_ROWS = 40


def member_attributions(block: Block) -> Floats:
    """Return the explanation of each reference relative to the people of its label, (references, columns)."""
    people = (block.people_weights / block.people_weights.sum()).view(1, -1, 1)
    found: Floats = -(block.attributions * people).sum(1).double().cpu().numpy()
    return found


@measure("table", section="reasons", sets=("procedural",))
def mean_attribution_gap(view: TableView) -> Estimate:
    """Mean-attribution gap: How far the groups' mean attributions lie apart among people with the same label,
    in units of the spread of the score (Begley et al., 2020). Equal means can hide differences that cancel.
    """
    return view.estimate(mean_attributions)


def mean_attributions(view: TableView) -> float:
    """Return the sum over columns of the absolute difference of two groups' mean attributions given the
    label,
    averaged over pairs of groups and labels.
    """
    total, mass = 0.0, 0.0
    for share, means, weights in view.group_means():
        centre = (means * (weights / weights.sum()).view(1, -1, 1)).sum(1)  # (groups, columns)
        first, second = torch.triu_indices(len(centre), len(centre), 1)
        total += share * float((centre[first] - centre[second]).abs().sum(-1).mean())
        mass += share
    return total / mass if mass else math.nan


@measure("table", section="reasons", sets=("procedural",), high=1.0)
def equal_treatment(view: TableView) -> Estimate:
    """Equal treatment: Held-out AUC with which a logistic regression reads the group from the attributions of
    people with the same label (Mougan et al., 2023); 0.5 is equal treatment. It sees only what is linear in
    the attributions, and does not say how much of the score differs.
    """
    blocks = [
        (block.share, member_attributions(block), view.groups[block.references].cpu().numpy())
        for block in view.compared.blocks
    ]
    rng = np.random.default_rng(view.seed)
    value = _mean_auc(blocks)
    null = [_mean_auc([(share, x, _permuted(g, rng)) for share, x, g in blocks]) for _ in range(_SHUFFLES)]
    known = [each for each in null if not math.isnan(each)]
    chance = float(np.quantile(known, 0.95)) if known else math.nan
    p = (1 + sum(each >= value for each in known)) / (1 + len(known)) if known else math.nan
    return Estimate(value, p=p, chance=chance)


def _permuted(groups: Codes, rng: np.random.Generator) -> Codes:
    known, found = groups >= 0, groups.copy()
    found[known] = rng.permutation(groups[known])
    return found


def _mean_auc(blocks: list[tuple[float, Floats, Codes]]) -> float:
    """Return the mean over labels of the held-out AUC of the group."""
    found = [(share, held_out_auc(x[g >= 0], g[g >= 0])) for share, x, g in blocks]
    found = [(share, area) for share, area in found if not math.isnan(area)]
    total = sum(share for share, _ in found)
    return sum(share * area for share, area in found) / total if total else math.nan


def held_out_auc(values: Floats, groups: Codes) -> float:
    """Return the AUC of a logistic regression of groups on values (n, columns), fitted on every other row.

    Of more than two groups, the mean over groups of the AUC of each against the others.
    """
    train, test = slice(0, None, 2), slice(1, None, 2)
    codes = np.unique(groups)
    if len(groups) < _LEAST_ROWS or len(codes) < 2 or len(np.unique(groups[train])) < len(codes):
        return math.nan
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)).fit(
        values[train], groups[train]
    )
    if len(codes) == 2:
        return roc_auc((groups[test] == codes[1]).astype(np.int64), model.decision_function(values[test]))
    scores = model.predict_proba(values[test])
    areas = [roc_auc((groups[test] == code).astype(np.int64), scores[:, k]) for k, code in enumerate(codes)]
    return float(np.nanmean(areas))
