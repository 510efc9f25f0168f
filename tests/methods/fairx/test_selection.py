"""What an epoch is worth: its AUC to a plain network, fairness within limits to one that is taught."""

import math

import pytest
import torch
from torch import nn

from gcig.core.batch import GroupedBatch
from gcig.methods.fairx.selection import Judge, binary_auc, measure
from gcig.methods.fairx.settings import FairTraining
from gcig.methods.fairx.teacher import Teacher
from gcig.methods.fairx.weights import Bounded, Fixed, Limits, Measured, WeightControl
from gcig.training.loop import Loop

SETTINGS = FairTraining(Loop(max_epochs=4, batch_size=32), lambda_ig=0.5, lambda_fair=0.1)
LIMITS = Limits(auc_lost=0.03, columns=4.0)


def rows(n=80):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(n, 3, generator=generator)
    groups = torch.arange(n) % 2
    inputs[:, 0] += groups
    labels = (inputs.sum(1) + 0.5 * torch.randn(n, generator=generator) > 0.5).long()
    return GroupedBatch(inputs, labels, groups)


ROWS = rows()


def network(*weights):
    net = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([weights]))
        net[0].bias.zero_()
    return net


def control(limits=LIMITS, **weights):
    return WeightControl({"gcig": Fixed(0.5, 0.4), "outcome": Fixed(0.1, 0.25), **weights}, limits)


def make_judge(settings=SETTINGS, *, net=None):
    net = net or network(1.0, 1.0, 1.0)
    teacher = Teacher(net, measure(net, ROWS, ROWS, settings, 2), ROWS.inputs, error=0.02)
    return Judge(ROWS, ROWS, settings, 2, teacher)


def epoch(auc_lost=0.0, columns=9.0, *, left=(0.5, 0.5), gcig=0.1, outcome=0.1):
    return Measured(
        auc_lost,
        columns,
        {"gcig": gcig, "outcome": outcome},
        dict(zip(("gcig", "outcome"), left, strict=True)),
    )


def worth(*epochs, settings=SETTINGS, weights=None):
    """The criterion of each; a judge sees them one after the other only where the settings smooth."""
    return [make_judge(settings)._criterion(each, weights or control()) for each in epochs]


# --- Plain networks ----------------------------------------------------------------------------------


def test_a_plain_network_is_worth_its_auc():
    judge, none = Judge(ROWS, ROWS, SETTINGS, 2), WeightControl({})
    for weights in ((1.0, 1.0, 1.0), (1.0, 0.0, 0.0), (-1.0, 0.0, 0.5)):
        judge.recent.clear()
        net = network(*weights)
        found = judge(net, none, 3)
        assert found.criterion == -binary_auc(net(ROWS.inputs), ROWS.labels)
        assert set(found.metrics) == {"val_log_loss", "val_auc", "val_eo_gap"}


def test_a_plain_network_is_judged_once_it_has_settled():
    settings = FairTraining(Loop(max_epochs=8, batch_size=32))
    judge = Judge(ROWS, ROWS, settings, 2)
    found = [judge(network(1.0, 1.0, 1.0), WeightControl({}), number).eligible for number in range(1, 5)]
    assert found == [False, True, True, True]


def test_one_epoch_alone_is_mostly_noise():
    judge = Judge(ROWS, ROWS, FairTraining(Loop(max_epochs=24, batch_size=32)), 2)
    nets = [network(1.0, 1.0, 1.0), network(1.0, 0.0, 0.0), network(0.0, 0.0, 1.0), network(0.0, 1.0, 0.0)]
    aucs = [binary_auc(net(ROWS.inputs), ROWS.labels) for net in nets]
    found = [-judge(net, WeightControl({}), number).criterion for number, net in enumerate(nets, start=1)]
    means = [aucs[0], sum(aucs[:2]) / 2, sum(aucs[:3]) / 3, sum(aucs[1:]) / 3]
    assert found == pytest.approx(means)


# --- Taught networks ---------------------------------------------------------------------------------


def test_within_the_limits_the_fairest_is_best():
    found = worth(epoch(left=(0.2, 0.4)), epoch(left=(0.4, 0.4)), epoch(0.005, 5.0, left=(0.9, 0.9)))
    assert found == pytest.approx([0.8 / 3, 0.4, 0.9])  # GCIG counts twice


def test_an_outcome_gap_within_noise_is_not_worth_less():
    assert worth(epoch(left=(0.4, 0.1))) == worth(epoch(left=(0.4, 0.25)))


def test_auc_has_a_price_where_more_than_a_little_is_lost():
    little, some, much = worth(epoch(0.01), epoch(0.02), epoch(0.03))
    assert little == pytest.approx(0.5)
    assert (some - little, much - some) == (pytest.approx(0.04), pytest.approx(0.04))


def test_only_terms_that_are_used_count():
    assert worth(epoch(left=(0.2, math.inf)), epoch(left=(math.inf, 0.6))) == pytest.approx([0.2, 0.6])


def test_whatever_keeps_to_the_limits_is_better_than_whatever_does_not():
    kept = worth(epoch(0.03, 4.0, left=(3.0, 3.0)))
    broken = worth(epoch(0.031, left=(0.0, 0.0)), epoch(columns=3.9, left=(0.0, 0.0)))
    assert max(kept) < min(broken)


def test_where_no_epoch_keeps_to_the_limits_the_one_that_loses_least_is_best():
    less, more = worth(epoch(0.05, left=(0.9, 0.9)), epoch(0.10, left=(0.1, 0.1)))
    assert less < more
    many, few = worth(epoch(columns=3.5, left=(0.9, 0.9)), epoch(columns=1.0, left=(0.1, 0.1)))
    assert many < few
    assert worth(epoch(0.05))[0] < worth(epoch(0.05, columns=3.5))[0]


def test_bounds_come_before_fairness_and_limits_before_bounds():
    weights = control(gcig=Bounded(0.05, target=0.5, start=0), outcome=Bounded(0.2, target=0.1, start=0))
    met, unmet, both, broken = worth(
        epoch(0.03, 4.0, gcig=0.05, outcome=0.2, left=(3.0, 3.0)),
        epoch(gcig=0.06, outcome=0.2, left=(0.0, 0.0)),
        epoch(gcig=0.06, outcome=0.3, left=(0.0, 0.0)),
        epoch(0.031, gcig=0.05, outcome=0.2, left=(0.0, 0.0)),
        weights=weights,
    )
    assert met < unmet < both < broken
    nearer, farther = worth(epoch(gcig=0.06), epoch(gcig=0.2), weights=weights)
    assert nearer < farther


def test_columns_are_judged_by_the_fewer_of_now_and_lately():
    settings = FairTraining(Loop(max_epochs=16, batch_size=32), lambda_ig=0.5, lambda_fair=0.1)
    judge, weights = make_judge(settings), control()
    assert judge._criterion(epoch(columns=9.0), weights) < 1000
    assert judge._criterion(epoch(columns=3.9), weights) > 1000


def test_a_taught_network_is_compared_with_its_teacher():
    judge, weights = make_judge(), control(Limits(auc_lost=0.03))
    found = judge(network(0.8, 1.0, 1.0), weights, 1)
    lost, teacher = found.metrics["val_auc_lost"], judge.teacher.measured
    assert 0 < lost < 0.01
    gcig, outcome = found.metrics["val_gcig"], found.metrics["val_outcome"]
    gap = max(teacher["soft_outcome_gap"], judge.outcome_noise)
    assert found.criterion == pytest.approx((2 * gcig / teacher["gcig"] + max(outcome / gap, 0.25)) / 3)
    assert 1 in weights.past  # the weights have heard of it
    used = {
        name.removeprefix("weight_"): v for name, v in found.metrics.items() if name.startswith("weight_")
    }
    assert used == weights.values(1) == {"gcig": 0.5, "outcome": 0.1}


def test_the_teacher_itself_has_everything_left():
    judge = make_judge()
    found = judge(judge.teacher.network, control(Limits(0.03)), 1)
    assert 2 / 3 < found.criterion <= 1  # its outcome gap may be within noise
    assert found.metrics["val_auc_lost"] == 0
    assert found.eligible
    assert make_judge().start(control(Limits(0.03))) == pytest.approx(found.criterion)


def test_a_plain_network_may_not_be_returned_to_before_it_is_trained():
    assert Judge(ROWS, ROWS, SETTINGS, 2).start(control()) is None


def test_a_slight_gap_of_the_teacher_is_no_measure():
    judge = make_judge()
    metrics = {
        "val_auc_lost": 0.0,
        "val_gcig": 0.1,
        "val_columns": 3.0,
        "val_eo_gap": 0.0,
        "val_outcome": 0.01,
    }
    judge.teacher.measured["soft_outcome_gap"] = 0.001
    left = judge._compare(metrics, judge.teacher).left["outcome"]
    assert left == pytest.approx(0.01 / judge.outcome_noise)
    assert 0.05 < judge.outcome_noise < 0.2


def test_terms_that_are_not_used_have_nothing_to_do():
    settings = FairTraining(Loop(max_epochs=4, batch_size=32), lambda_fair=0.1)
    judge = make_judge(settings)
    found = judge(network(0.5, 1.0, 1.0), control(Limits(0.03, 0.0)), 1)
    assert "val_gcig" not in found.metrics
    assert judge._compare(found.metrics, judge.teacher).left["gcig"] == math.inf
    assert math.isfinite(found.criterion)


def test_a_network_without_reasons_is_worth_little_and_no_error():
    settings = FairTraining(Loop(max_epochs=4, batch_size=32), lambda_ig=0.5)
    judge = make_judge(settings)
    found = judge(network(0.0, 0.0, 0.0), control(), 1)
    assert math.isnan(found.metrics["val_gcig"])
    assert not found.criterion < 1
