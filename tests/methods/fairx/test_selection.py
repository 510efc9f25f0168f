"""Checkpoint selection: each measurement against a plain loop, and the score of an epoch."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import rankdata, spearmanr
from sklearn.metrics import f1_score, log_loss, roc_auc_score
from torch import nn

from gcig.core.batch import GroupedBatch
from gcig.core.columns import AttributeColumns
from gcig.core.definition import Definition
from gcig.core.references import GroupMembers
from gcig.losses.gcig import GCIGPenalty
from gcig.methods.fairx.distillation import Teacher
from gcig.methods.fairx.selection import (
    CheckpointSelector,
    HeldOut,
    binary_auc,
    make_held_out,
    measure,
)
from gcig.methods.fairx.settings import RATE_TEMPERATURE, FairTraining
from gcig.methods.fairx.weights import Limits, Measured, WeightControl
from gcig.methods.training_data import TrainingData
from gcig.metrics import equalized_odds_gap, gcig_score
from gcig.models.mlp import make_mlp
from gcig.training.loop import Loop

SETTINGS = FairTraining(Loop(max_epochs=4, batch_size=32), lambda_ig=0.5, lambda_fair=0.1, references="mean")
LIMITS = Limits(auc_lost=0.03, columns=4.0, tolerated={"gcig": 0.025, "outcome": 0.025})
ORIGIN = torch.tensor([0, 1, 2, 2, 3, 3])  # numbers, a one-hot block, and the protected attribute
PROTECTED = [AttributeColumns(torch.tensor([4, 5]), torch.tensor([0, 1]))]


def make_rows(n=120, seed=0):
    generator = torch.Generator().manual_seed(seed)
    groups = torch.arange(n) % 2
    inputs = torch.zeros(n, 6)
    inputs[:, :2] = torch.randn(n, 2, generator=generator) + 0.8 * groups.unsqueeze(1)
    inputs[torch.arange(n), 2 + torch.randint(2, (n,), generator=generator)] = 1
    inputs[torch.arange(n), 4 + groups] = 1
    noise = torch.randn(n, generator=generator)
    labels = (inputs @ torch.tensor([1.0, -0.5, 0.7, 0.0, 0.0, 0.4]) + noise > 0.5).long()
    return GroupedBatch(inputs, labels, groups)


TRAINING, ROWS = make_rows(), make_rows(90, seed=1)
HELD_OUT = HeldOut(ROWS, TRAINING, SETTINGS, 2, ORIGIN, PROTECTED)
NETWORK = make_mlp(6, (8, 4), generator=torch.Generator().manual_seed(0)).eval()


def linear(*weights):
    network = nn.Sequential(nn.Linear(6, 1), nn.Flatten(0))
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([weights]))
        network[0].bias.zero_()
    return network


def logits_of(rows, network=NETWORK):
    with torch.no_grad():
        return network(rows)


# --- Measurements ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found():
    return measure(NETWORK, HELD_OUT)


def integrated_gradients(row, reference, steps=400):
    """Return the attributions of original columns by the midpoint rule."""
    shares = (torch.arange(steps) + 0.5).unsqueeze(1) / steps
    points = (reference + shares * (row - reference)).requires_grad_()
    gradient = torch.autograd.grad(NETWORK(points).sum(), points)[0].mean(0)
    return torch.zeros(4).index_add_(0, ORIGIN, (row - reference) * gradient)


def cell(rows, label, group):
    return rows.inputs[(rows.labels == label) & (rows.groups == group)]


def test_utility_and_outcome_gap(found):
    scores, labels = logits_of(ROWS.inputs), ROWS.labels.numpy()
    assert found["auc"] == pytest.approx(roc_auc_score(labels, scores))
    assert found["log_loss"] == pytest.approx(log_loss(labels, torch.sigmoid(scores)), rel=1e-5)
    decisions = (scores >= 0).numpy()
    assert found["f1"] == pytest.approx(f1_score(labels, decisions))
    assert found["decided_alike"] == pytest.approx(max(decisions.mean(), 1 - decisions.mean()))
    gap = equalized_odds_gap(labels, decisions.astype(int), sensitive_features=ROWS.groups.numpy())
    assert found["outcome_gap"] == pytest.approx(gap, abs=1e-6)
    for name, rows in (("soft_outcome_gap", ROWS), ("soft_outcome_gap_training", TRAINING)):
        soft, chances = 0.0, torch.sigmoid(logits_of(rows.inputs) / RATE_TEMPERATURE)
        for label in (0, 1):
            rates = [chances[(rows.labels == label) & (rows.groups == group)].mean() for group in (0, 1)]
            soft += float((rates[0] - rates[1]).abs())
        assert found[name] == pytest.approx(soft, abs=1e-6)


def test_gaps_of_training_rows_are_measured_only_if_they_count():
    unused = replace(HELD_OUT, settings=replace(SETTINGS, lambda_fair=0.0))
    assert "soft_outcome_gap_training" not in measure(NETWORK, unused)
    assert "soft_outcome_gap_training" not in measure(NETWORK, replace(HELD_OUT, rows=TRAINING))


@pytest.mark.parametrize("cut", [-1.0, 0.2])
def test_decisions_are_those_at_the_cut(cut):
    held_out = replace(HELD_OUT, settings=replace(SETTINGS, cut=cut))
    decisions = (logits_of(ROWS.inputs) >= cut).long().numpy()
    gap = equalized_odds_gap(ROWS.labels.numpy(), decisions, sensitive_features=ROWS.groups.numpy())
    assert measure(NETWORK, held_out)["outcome_gap"] == pytest.approx(gap, abs=1e-6)


def test_gcig_and_columns(found):
    disparities, shares = [], []
    for row, label in zip(ROWS.inputs, ROWS.labels, strict=True):
        parts = [integrated_gradients(row, cell(TRAINING, label, g).mean(0)) for g in (0, 1)]
        parts = [part / part.abs().sum() for part in parts]
        disparities.append(float((parts[0] - parts[1]).norm()))
        shares.append(torch.stack(parts).abs().mean(0))
    assert found["gcig"] == pytest.approx(np.mean(disparities), rel=2e-2)
    share = torch.stack(shares).mean(0)
    assert found["columns"] == pytest.approx(float(torch.exp(torch.special.entr(share).sum())), rel=2e-2)
    assert found["completeness"] < 1e-2


def test_a_curved_network_is_measured_with_as_many_steps_as_it_needs():
    network = make_mlp(6, (8, 4), "tanh", generator=torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter *= 3
    fine = replace(HELD_OUT, settings=replace(SETTINGS, n_steps=64))
    assert measure(network, HELD_OUT)["gcig"] == pytest.approx(measure(network, fine)["gcig"], rel=1e-3)


def test_attributions_are_summed_over_blocks_of_columns_but_not_of_other_inputs():
    values = torch.arange(2.0 * 3 * 6).view(2, 3, 6)
    assert torch.equal(
        HELD_OUT._sum(values), torch.stack([values[..., j == ORIGIN].sum(-1) for j in range(4)], dim=-1)
    )
    assert torch.equal(HELD_OUT._sum(values[..., :5]), values[..., :5])  # not the encoder's columns
    pixels = values.view(2, 3, 1, 6)
    assert torch.equal(HELD_OUT._sum(pixels), values)


def test_gcig_is_that_of_the_metrics(found):
    reference = (TRAINING.inputs.numpy(), TRAINING.labels.numpy(), TRAINING.groups.numpy())
    raw = measure(NETWORK, replace(HELD_OUT, origin=torch.arange(6)))["gcig"]
    expected = gcig_score(
        NETWORK,
        ROWS.inputs.numpy(),
        ROWS.labels.numpy(),
        sensitive_features=ROWS.groups.numpy(),
        reference=reference,
        definition=Definition(columns="raw"),
    )
    assert raw == pytest.approx(expected, rel=1e-2)
    assert found["gcig"] != pytest.approx(raw, rel=1e-2)


def test_gcig_relative_to_members(found):
    data = TRAINING
    members = GroupMembers(data.inputs, data.labels, data.groups, n_groups=2, n_members=16).values
    disparities = []
    for row, label in zip(ROWS.inputs[::3], ROWS.labels[::3], strict=True):
        parts = [
            torch.stack([integrated_gradients(row, each, 50) for each in members[label, g]]).mean(0)
            for g in (0, 1)
        ]
        parts = [part / part.abs().sum() for part in parts]
        disparities.append(float((parts[0] - parts[1]).norm()))
    few = replace(HELD_OUT, rows=ROWS[torch.arange(0, 90, 3)])
    assert measure(NETWORK, few)["gcig_members"] == pytest.approx(np.mean(disparities), rel=2e-2)
    assert found["gcig_members"] > 0


def test_members_are_measured_by_one_step_each():
    network = make_mlp(6, (16, 16), "relu", generator=torch.Generator().manual_seed(0)).eval()
    data = TRAINING
    members = GroupMembers(data.inputs, data.labels, data.groups, n_groups=2, n_members=16)
    by_steps = [
        GCIGPenalty(members, origin=ORIGIN, n_steps=n_steps, label_weights="empirical") for n_steps in (1, 2)
    ]
    one, two = (penalty(network, ROWS.inputs, ROWS.labels).item() for penalty in by_steps)
    found = measure(network, HELD_OUT)["gcig_members"]
    assert found == pytest.approx(one, rel=1e-5)
    assert found != pytest.approx(two, rel=1e-4)


@pytest.mark.parametrize("rule", ["right", "midpoint"])
def test_members_are_measured_by_an_accurate_rule_whatever_training_uses(found, rule):
    settings = replace(SETTINGS, rule=rule, n_steps=8)
    other = measure(NETWORK, replace(HELD_OUT, settings=settings))
    assert other["gcig_members"] == found["gcig_members"]
    assert other["completeness"] > found["completeness"]


def test_reference_offset(found):
    scores, offsets = logits_of(TRAINING.inputs), []
    for label in (0, 1):
        for group in (0, 1):
            members = cell(TRAINING, label, group)
            at_mean = logits_of(members.mean(0, keepdim=True))[0]
            offsets.append(float((at_mean - logits_of(members).mean()).abs() / scores.std(correction=0)))
    assert found["reference_offset"] == pytest.approx(np.mean(offsets), rel=1e-4)


def test_reference_offset_of_a_linear_network_is_zero():
    network = linear(1.0, -0.5, 0.3, 0.0, 0.2, 0.0)
    assert measure(network, HELD_OUT)["reference_offset"] == pytest.approx(0, abs=1e-5)


def test_faithfulness(found):
    order = torch.randperm(len(ROWS), generator=torch.Generator().manual_seed(0))
    importance, shares = [], []
    for column in range(4):
        permuted = ROWS.inputs.clone()
        for encoded in (column == ORIGIN).nonzero().flatten():
            permuted[:, encoded] = ROWS.inputs[order, encoded]
        importance.append(float((logits_of(permuted) - logits_of(ROWS.inputs)).abs().mean()))
    for row, label in zip(ROWS.inputs, ROWS.labels, strict=True):
        for group in (0, 1):
            part = integrated_gradients(row, cell(TRAINING, label, group).mean(0), 50)
            shares.append(part.abs() / part.abs().sum())
    ranks = rankdata(importance), rankdata(torch.stack(shares).mean(0))
    assert found["faithfulness"] == pytest.approx(np.corrcoef(*ranks)[0, 1])


def test_attribute_effect(found):
    exchanged = ROWS.inputs.clone()
    exchanged[:, 4:] = 1 - exchanged[:, 4:]
    changed = (logits_of(exchanged) >= 0) != (logits_of(ROWS.inputs) >= 0)
    assert found["attribute_effect"] == pytest.approx(float(changed.double().mean()))
    blind = linear(1.0, -0.5, 0.3, 0.0, 0.0, 0.0)
    assert measure(blind, HELD_OUT)["attribute_effect"] == 0.0
    assert math.isnan(measure(NETWORK, replace(HELD_OUT, protected=PROTECTED[:0]))["attribute_effect"])


def test_attribute_effect_without_a_cut_is_that_of_the_best_f1():
    held_out = replace(HELD_OUT, settings=replace(SETTINGS, cut=None))
    exchanged, cut = ROWS.inputs.clone(), held_out.cut(NETWORK)
    exchanged[:, 4:] = 1 - exchanged[:, 4:]
    changed = (logits_of(exchanged) >= cut) != (logits_of(ROWS.inputs) >= cut)
    assert held_out._attribute_effect(NETWORK) == pytest.approx(float(changed.double().mean()))


def test_a_network_without_reasons_has_no_gcig_and_gives_no_warning():
    found = measure(linear(*[0.0] * 6), HELD_OUT)
    assert math.isnan(found["gcig"])
    assert math.isnan(found["faithfulness"])
    assert found["attribute_effect"] == 0.0


def test_large_held_out_sets_are_measured_on_part_of_their_rows():
    """Each measurement of many rows is that of as many as it takes, evenly spaced."""
    held_out = replace(HELD_OUT, rows=make_rows(600, seed=2))
    members, ranked = (replace(HELD_OUT, rows=held_out.rows.spread(count)) for count in (128, 512))
    shares = torch.tensor([0.4, 0.3, 0.2, 0.1])
    with torch.no_grad():
        assert held_out._gcig_members(NETWORK) == members._gcig_members(NETWORK)
    assert held_out._faithfulness(NETWORK, shares) == ranked._faithfulness(NETWORK, shares)
    many = GroupedBatch(torch.zeros(100_001, 6), torch.arange(100_001) % 2, torch.arange(100_001) // 2 % 2)
    large = replace(HELD_OUT, rows=many, training=many[:100_000])
    assert (len(large.explained), len(large._offset_rows)) == (1024, 8192)
    bounded = replace(large, settings=replace(SETTINGS, max_eo_gap=0.1), training=many)
    assert len(bounded._rate_rows[0]) == 100_000


@pytest.mark.parametrize("group_rows", [3, 2_000, 2_001, 9_999])
def test_rates_of_training_rows_are_those_of_enough_rows_of_every_cell(group_rows):
    groups = (torch.arange(20_000) < group_rows).long()
    rows = GroupedBatch(torch.zeros(20_000, 6), torch.arange(20_000) % 2, groups)
    found, membership = replace(HELD_OUT, training=rows)._rate_rows
    for label in (0, 1):
        for group in (0, 1):
            size = int(((rows.labels == label) & (rows.groups == group)).sum())
            kept = int(((found.labels == label) & (found.groups == group)).sum())
            assert min(size, 1_000) <= kept <= 2_000
            assert int(membership[label, group].sum()) == kept


@pytest.mark.parametrize(("columns", "defined"), [(2, False), (3, True)])
def test_faithfulness_needs_three_columns(columns, defined):
    held_out = replace(HELD_OUT, origin=ORIGIN.clamp(max=columns - 1))
    shares = torch.tensor([0.5, 0.3, 0.2])[:columns]
    assert math.isfinite(held_out._faithfulness(NETWORK, shares)) == defined


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_a_step_of_faithfulness_is_that_of_neighbours_that_swap_ranks(columns):
    held_out = replace(HELD_OUT, origin=ORIGIN.clamp(max=columns - 1))
    ranks = np.arange(columns, dtype=float)
    swapped = ranks.copy()
    swapped[:2] = ranks[:2][::-1]
    lost = 1 - spearmanr(ranks, swapped).statistic if columns > 1 else 0.0
    assert held_out.faithfulness_step == pytest.approx(lost)


def test_held_out_set_of_training_data():
    data = TrainingData(ROWS, TRAINING, ROWS, None, 2, None)
    held_out = make_held_out(data, SETTINGS, ORIGIN.numpy())
    assert held_out.is_held_out
    assert held_out.counts == (int(ROWS.labels.sum()), 90 - int(ROWS.labels.sum()))
    assert torch.equal(held_out.origin, ORIGIN)
    assert [each.columns.tolist() for each in held_out.protected] == [[4, 5]]
    none = make_held_out(replace(data, validation=None), SETTINGS, ORIGIN.numpy())
    assert not none.is_held_out
    assert none.rows is TRAINING


@pytest.mark.parametrize("seed", range(3))
def test_auc_is_that_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    labels, scores = rng.integers(0, 2, 50), rng.integers(0, 10, 50) / 7
    found = binary_auc(torch.tensor(scores), torch.tensor(labels))
    assert found == pytest.approx(roc_auc_score(labels, scores))


def test_auc_of_one_class_is_not_a_number():
    assert math.isnan(binary_auc(torch.tensor([0.1, 0.2]), torch.tensor([1, 1])))


# --- Plain networks ----------------------------------------------------------------------------------


def test_plain_training_is_scored_by_auc():
    selector, none = CheckpointSelector(HELD_OUT, n_epochs=4), WeightControl({})
    for weights in ((1.0, 1.0, 1.0, 0.0, 0.0, 0.0), (-1.0, 0.0, 0.5, 0.0, 0.0, 0.0)):
        selector.recent.clear()
        network = linear(*weights)
        found = selector(network, none, 3)
        assert (
            found.criterion
            == -HELD_OUT.auc(network)
            == -binary_auc(logits_of(ROWS.inputs, network), ROWS.labels)
        )
        assert set(found.metrics) == {"val_log_loss", "val_auc", "val_eo_gap"}
    assert selector.start(none) is None  # an untrained network is not returned to


def test_plain_training_reports_the_gap_of_the_decisions_at_the_cut():
    scores = logits_of(ROWS.inputs)
    cut = float(scores.quantile(0.7))
    at_cut = replace(HELD_OUT, settings=replace(SETTINGS, cut=cut))
    found = CheckpointSelector(at_cut, n_epochs=4)(NETWORK, WeightControl({}), 3).metrics["val_eo_gap"]
    decided = (scores >= cut).long().numpy()
    expected = equalized_odds_gap(ROWS.labels.numpy(), decided, sensitive_features=ROWS.groups.numpy())
    assert found == pytest.approx(expected)
    assert found > 0.01


def test_plain_checkpoints_are_eligible_after_a_quarter_of_the_epochs():
    selector = CheckpointSelector(HELD_OUT, n_epochs=8)
    found = [selector(NETWORK, WeightControl({}), number).eligible for number in range(1, 5)]
    assert found == [False, True, True, True]


def test_scores_are_smoothed_over_an_eighth_of_the_epochs():
    selector = CheckpointSelector(HELD_OUT, n_epochs=24)
    networks = [linear(*row, 0.0, 0.0, 0.0, 0.0) for row in ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (1.0, -1.0))]
    aucs = [HELD_OUT.auc(network) for network in networks]
    found = [-selector(network, WeightControl({}), i).criterion for i, network in enumerate(networks, 1)]
    assert found == pytest.approx([aucs[0], np.mean(aucs[:2]), np.mean(aucs[:3]), np.mean(aucs[1:])])


def test_scores_of_few_epochs_are_not_smoothed():
    selector = CheckpointSelector(HELD_OUT, n_epochs=15)
    networks = [linear(*row, 0.0, 0.0, 0.0, 0.0) for row in ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0))]
    found = [-selector(network, WeightControl({}), i).criterion for i, network in enumerate(networks, 1)]
    assert found == pytest.approx([HELD_OUT.auc(network) for network in networks])


# --- Students ----------------------------------------------------------------------------------------


def control(limits=LIMITS, *, gcig=0.2, outcome=0.05):
    """Return weights at which all of the teacher's GCIG costs 2/3, and all of its outcome gap 1/3."""
    return WeightControl({"gcig": gcig, "outcome": outcome}, limits)


def make_selector(settings=SETTINGS, network=NETWORK):
    held_out = replace(HELD_OUT, settings=settings)
    teacher = Teacher(network, measure(network, held_out), ROWS.inputs, auc_error=0.02)
    return CheckpointSelector(held_out, 4, teacher)


def epoch(auc_lost=0.0, columns=9.0, *, left=(0.5, 0.5), gcig=0.1, outcome=0.1, excess=0.0):
    values = {"gcig": gcig, "outcome": outcome}
    return Measured(auc_lost, columns, values, dict(zip(values, left, strict=True)), excess)


def scores_of(*epochs, settings=SETTINGS, weights=None):
    """Return the criterion of each epoch, scored by a selector of its own: nothing is smoothed."""
    held_out = replace(HELD_OUT, settings=settings)
    return [CheckpointSelector(held_out, 4)._criterion(each, weights or control()) for each in epochs]


def test_within_the_limits_the_fairest_epoch_is_best():
    found = scores_of(epoch(left=(0.2, 0.4)), epoch(left=(0.4, 0.4)), epoch(0.005, 5.0, left=(0.9, 0.9)))
    assert found == pytest.approx([0.8 / 3, 0.4, 0.9])


def test_an_outcome_gap_within_noise_scores_alike():
    assert scores_of(epoch(left=(0.4, 0.1))) == scores_of(epoch(left=(0.4, 0.25)))


def test_more_than_a_negligible_loss_of_auc_has_a_price():
    little, some, much = scores_of(epoch(0.01), epoch(0.02), epoch(0.03))
    assert little == pytest.approx(0.5)
    assert (some - little, much - some) == (pytest.approx(0.04), pytest.approx(0.04))


def test_what_exceeds_the_tolerance_has_a_price():
    plain, excessive = scores_of(epoch(), epoch(excess=0.1))
    assert excessive - plain == pytest.approx(0.5)


def test_only_terms_that_are_used_count():
    reasons = scores_of(epoch(left=(0.3, math.inf)), weights=control(outcome=0.0))
    outcomes = scores_of(epoch(left=(math.inf, 0.6)), weights=control(gcig=0.0))
    assert (*reasons, *outcomes) == pytest.approx((0.2, 0.2))


def test_a_larger_weight_prefers_fairer_epochs():
    fairer, better = epoch(0.03, left=(0.1, 1.0)), epoch(0.0, left=(0.16, 1.0))
    small, large = (scores_of(fairer, better, weights=control(gcig=weight)) for weight in (0.2, 2.0))
    assert small[0] > small[1]
    assert large[0] < large[1]


def test_an_epoch_beyond_the_limits_scores_worse_than_any_within():
    kept = scores_of(epoch(0.03, 4.0, left=(3.0, 3.0)))
    broken = scores_of(epoch(0.031, left=(0.0, 0.0)), epoch(columns=3.9, left=(0.0, 0.0)))
    assert max(kept) < min(broken)


def test_beyond_the_limits_the_smallest_loss_is_best():
    less, more = scores_of(epoch(0.05, left=(0.9, 0.9)), epoch(0.10, left=(0.1, 0.1)))
    assert less < more
    many, few = scores_of(epoch(columns=3.5, left=(0.9, 0.9)), epoch(columns=1.0, left=(0.1, 0.1)))
    assert many < few
    assert scores_of(epoch(0.05))[0] < scores_of(epoch(0.05, columns=3.5))[0]


def test_columns_are_the_fewer_of_the_last_epoch_and_the_recent_mean():
    selector, weights = CheckpointSelector(HELD_OUT, n_epochs=16), control()
    assert selector._criterion(epoch(columns=9.0), weights) < 1e9
    assert selector._criterion(epoch(columns=3.9), weights) > 1e9


@pytest.mark.parametrize("references", ["mean", "members", "both"])
def test_a_student_is_compared_with_its_teacher(references):
    settings = replace(SETTINGS, references=references)
    selector, weights = make_selector(settings), control(Limits(auc_lost=1.0))
    student = make_mlp(6, (8, 4), generator=torch.Generator().manual_seed(5)).eval()
    found, plain = selector(student, weights, 1), selector.teacher.measured
    now = measure(student, selector.held_out)
    assert {name: found.metrics[f"val_{name}"] for name in now} == pytest.approx(now, nan_ok=True)
    assert found.metrics["val_auc_lost"] == selector.teacher.auc_lost(student, now["auc"])
    kinds = {"mean": ["gcig"], "members": ["gcig_members"], "both": ["gcig", "gcig_members"]}[references]
    left = np.mean([now[kind] / plain[kind] for kind in kinds])
    before, after = (
        (each["soft_outcome_gap"] + each["soft_outcome_gap_training"]) / 2 for each in (plain, now)
    )
    expected = (2 * left + max(after / max(before, selector.held_out.outcome_noise), 0.25)) / 3
    expected += 4 * max(0.0, found.metrics["val_auc_lost"] - 1 / 3)
    expected += 0.3 * (0.6 - 1 / 4)  # the first of four epochs
    if references == "both":  # measurements worse than the teacher's have a price
        worse = {
            "reference_offset": now["reference_offset"] - plain["reference_offset"] - 0.13,
            "faithfulness": plain["faithfulness"] - now["faithfulness"] - 0.12,
            "attribute_effect": now["attribute_effect"] - plain["attribute_effect"] - 0.005,
        }
        expected += 5 * sum(max(0.0, value) for value in worse.values())
    assert found.criterion == pytest.approx(expected)
    used = {name: found.metrics[f"weight_{name}"] for name in ("gcig", "outcome")}
    assert used == weights.values(1) == {"gcig": 0.2, "outcome": 0.05}
    assert 1 in weights.history  # the weights were adapted


@pytest.mark.parametrize(("origin", "step"), [(ORIGIN, 0.2), (torch.arange(6), 0.12)])
def test_deterioration_counts_from_its_tolerance_on(origin, step):
    """With few columns, faithfulness may fall by the step of two columns that swap ranks."""
    selector = make_selector(replace(SETTINGS, references="both"))
    selector = replace(selector, held_out=replace(selector.held_out, origin=origin))
    plain = {**selector.teacher.measured, "faithfulness": 0.9, "auc_lost": 0.0}
    for name, change, tolerated in (
        ("reference_offset", 0.3, 0.13),
        ("faithfulness", -0.3, step),
        ("attribute_effect", 0.3, 0.005),
    ):
        teacher = replace(selector.teacher, measured=plain)
        worse = selector._compare({**plain, name: plain[name] + change}, teacher)
        assert worse.excess == pytest.approx(0.3 - tolerated), name
    assert selector._compare(plain, teacher).excess == 0


def test_epochs_are_mature_after_three_fifths():
    selector = replace(make_selector(), n_epochs=5)
    found = [selector(NETWORK, control(Limits(auc_lost=1.0)), epoch) for epoch in (2, 3, 4)]
    assert [each.mature for each in found] == [False, True, True]
    assert found[0].criterion - found[1].criterion == pytest.approx(0.3 * 0.2)


def test_a_preference_replaces_the_score_within_the_limits():
    """What exceeds the tolerance still has its price; an early epoch has none, but is not eligible."""
    settings = replace(SETTINGS, references="both")
    selector = replace(make_selector(settings), prefer=lambda found: found["auc"])
    measured = {**selector.teacher.measured, "auc_lost": 0.0}
    measured["reference_offset"] += 0.23
    compared = selector._compare(measured, selector.teacher)
    found = selector._criterion(compared, control(Limits(auc_lost=0.03)), measured)
    assert found == pytest.approx(measured["auc"] + 5 * 0.1)
    early = replace(selector)(NETWORK, control(Limits(auc_lost=1.0)), 1)
    assert early.criterion == pytest.approx(measured["auc"])
    assert not early.eligible
    assert replace(selector)(NETWORK, control(Limits(auc_lost=1.0)), selector.n_epochs).eligible


def test_a_preference_sees_means_over_the_last_epochs():
    selector = replace(make_selector(), prefer=lambda found: found["auc"], n_epochs=16)  # a window of two
    found = [selector._average({"auc": auc}) for auc in (0.6, 0.8, 0.4)]
    assert [each["auc"] for each in found] == pytest.approx([0.6, 0.7, 0.6])


def test_the_teacher_itself_has_everything_left():
    selector = make_selector()
    found = selector(selector.teacher.network, control(Limits(0.03)), 4)
    assert 2 / 3 < found.criterion <= 1  # its outcome gap may be within noise
    assert found.metrics["val_auc_lost"] == 0
    assert found.eligible
    assert make_selector().start(control(Limits(0.03))) == pytest.approx(found.criterion)


def test_a_later_stage_starts_from_the_measurements_of_the_one_before():
    selector = make_selector()
    better = {**selector.teacher.measured, "gcig": 0.5 * selector.teacher.measured["gcig"], "auc_lost": 0.0}
    later = replace(selector, first=better)
    assert later.start(control(Limits(0.03))) < make_selector().start(control(Limits(0.03))) - 0.3


def test_a_slight_gap_of_the_teacher_is_replaced_by_noise():
    selector = make_selector()
    gaps = ("soft_outcome_gap", "soft_outcome_gap_training")
    found = {**selector.teacher.measured, "auc_lost": 0.0, **dict.fromkeys(gaps, 0.01)}
    selector.teacher.measured.update(dict.fromkeys(gaps, 0.001))
    left = selector._compare(found, selector.teacher).remaining["outcome"]
    assert left == pytest.approx(0.01 / selector.held_out.outcome_noise)
    assert 0.025 < selector.held_out.outcome_noise < 0.1
    alone = replace(selector.held_out, rows=TRAINING, training=TRAINING)
    assert 0.05 < alone.outcome_noise < 0.2


@pytest.mark.parametrize("alone", [False, True])
def test_noise_is_the_expected_difference_of_two_mean_probabilities(alone):
    """Two rates of n rows whose deviation is 0.2 differ by about 0.2 sqrt(1/n + 1/m)."""
    few = ROWS[torch.arange(90) % 5 > 0]
    few = few[(few.labels == 0) | (few.groups == 1)]  # a cell without rows counts as one row
    held_out = replace(HELD_OUT, rows=TRAINING if alone else few)
    expected = 0.0
    for label in (0, 1):
        sizes = [max(1, len(cell(held_out.rows, label, group))) for group in (0, 1)]
        expected += 0.2 * math.sqrt(1 / sizes[0] + 1 / sizes[1])
    assert held_out.outcome_noise == pytest.approx(expected if alone else expected / 2)


def test_terms_that_are_not_used_have_nothing_left():
    selector = make_selector(replace(SETTINGS, lambda_ig=0.0))
    found = selector(linear(0.5, 1.0, 1.0, 0.0, 0.0, 0.0), control(Limits(1.0, 0.0), gcig=0.0), 1)
    measured = {name.removeprefix("val_"): value for name, value in found.metrics.items()}
    compared = selector._compare(measured, selector.teacher)
    assert compared.remaining["gcig"] == compared.columns == math.inf
    assert math.isfinite(found.criterion)


def test_a_network_without_reasons_scores_worse_than_the_teacher():
    selector = make_selector(replace(SETTINGS, lambda_fair=0.0))
    found = selector(linear(*[0.0] * 6), control(), 1)
    assert math.isnan(found.metrics["val_gcig"])
    assert not found.criterion < 1
