"""The outcome terms against fairret, an independent library of fairness losses."""

from itertools import combinations

import pytest
import torch
from gcig.losses.outcome import DemographicParityLoss, EqualizedOddsLoss, EqualOpportunityLoss

statistic = pytest.importorskip("fairret.statistic")
violation = pytest.importorskip("fairret.loss")


def make_batch(n_groups):
    generator = torch.Generator().manual_seed(n_groups)
    logits = torch.randn(300, 1, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 2, (300, 1), generator=generator).double()
    groups = torch.randint(0, n_groups, (300,), generator=generator)
    one_hot = torch.nn.functional.one_hot(groups, n_groups).double()
    return logits, labels, groups, one_hot


def mean_gap(rates):
    gaps = [abs(a - b) for a, b in combinations(rates.flatten().tolist(), 2)]
    return sum(gaps) / len(gaps)


@pytest.mark.parametrize("n_groups", [2, 3, 7])
def test_rates_are_those_of_fairret(n_groups):
    logits, labels, groups, one_hot = make_batch(n_groups)
    scores = logits.sigmoid()
    true_positive = mean_gap(statistic.TruePositiveRate()(scores, one_hot, labels))
    false_positive = mean_gap(statistic.FalsePositiveRate()(scores, one_hot, labels))
    positive = mean_gap(statistic.PositiveRate()(scores, one_hot))
    loss = EqualizedOddsLoss()(logits, labels, groups)
    assert loss.item() == pytest.approx(true_positive + false_positive, abs=1e-12)
    assert EqualOpportunityLoss()(logits, labels, groups).item() == pytest.approx(true_positive, abs=1e-12)
    assert DemographicParityLoss()(logits, labels, groups).item() == pytest.approx(positive, abs=1e-12)


def test_for_two_groups_value_and_gradient_are_those_of_a_scaled_norm_loss():
    # fairret penalises sum_g |r_g / r - 1| with r the overall rate. It lies between the two groups'
    # rates, so r times that penalty is the absolute difference of the two.
    logits, labels, groups, one_hot = make_batch(2)
    theirs = torch.zeros(())
    for rate in (statistic.TruePositiveRate(), statistic.FalsePositiveRate()):
        overall = rate.overall_statistic(logits.sigmoid(), labels)
        theirs = theirs + overall.squeeze() * violation.NormLoss(rate)(logits, one_hot, labels)
    ours = EqualizedOddsLoss()(logits, labels, groups)
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-12)
    torch.testing.assert_close(torch.autograd.grad(ours, logits), torch.autograd.grad(theirs, logits))
