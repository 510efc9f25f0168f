import math
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from gcig.methods.fairx.step import FairStep
from sklearn.metrics import roc_auc_score
from torch import nn

from gcig.core.batch import GroupedBatch
from gcig.core.definition import Definition
from gcig.core.references import GroupBaselines
from gcig.data.encoding import TableEncoder
from gcig.losses.outcome import OUTCOME_LOSSES
from gcig.methods.fairx.selection import binary_auc, measure
from gcig.methods.fairx.settings import FairTraining
from gcig.methods.fairx.training import train_fairly
from gcig.metrics import equalized_odds_gap, gcig_score
from gcig.models.mlp import make_mlp
from gcig.training.loop import DivergenceError, Loop
from gcig.training.runtime import seeded_generator
from tables import make_loans

LOANS = make_loans(400)


def batch(loans=LOANS):
    x = torch.from_numpy(TableEncoder().fit_transform(loans.X))
    groups = torch.tensor(np.unique(loans.sex, return_inverse=True)[1])
    return GroupedBatch(x, torch.tensor(loans.y.to_numpy()), groups)


ROWS = batch()
N_INPUTS = ROWS.inputs.shape[1]
TRAINING, HELD = ROWS[torch.arange(0, 300)], ROWS[torch.arange(300, 400)]
SETTINGS = FairTraining(Loop(max_epochs=4, batch_size=32), learning_rate=0.02)
PLAINLY = replace(SETTINGS, loop=Loop(max_epochs=40, batch_size=32))  # as teachers of few rows are trained


def trained(
    settings=SETTINGS, *, seed=0, data=TRAINING, validation=None, network=None, is_trained=False, **options
):
    generator = seeded_generator(seed)
    network = network or make_mlp(N_INPUTS, (8, 4), generator=generator)
    found = train_fairly(
        network, data, settings, generator=generator, validation=validation, trained=is_trained, **options
    )
    return network, found


def scores_of(network, rows=HELD):
    with torch.no_grad():
        return network.eval()(rows.inputs)


@pytest.mark.parametrize("seed", range(5))
def test_auc_is_that_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    labels, scores = rng.integers(0, 2, 50), rng.integers(0, 10, 50) / 7
    assert binary_auc(torch.tensor(scores), torch.tensor(labels)) == pytest.approx(
        roc_auc_score(labels, scores)
    )


def test_auc_of_one_class_is_not_a_number():
    assert math.isnan(binary_auc(torch.tensor([0.1, 0.2]), torch.tensor([1, 1])))


def test_cross_entropy_alone_learns():
    network, found = trained()
    assert binary_auc(scores_of(network), HELD.labels) > 0.85
    assert found.weights == {"gcig": 0.0, "outcome": 0.0}
    assert set(found.outcome.history[0].terms) == {"prediction", "total"}
    assert found.plain == {}


def test_the_gcig_term_lowers_gcig():
    plain, _ = trained()
    fair, found = trained(replace(SETTINGS, lambda_ig=0.15, loop=Loop(8, 32)))
    before, after = (measure(net, HELD, TRAINING, SETTINGS, 2) for net in (plain, fair))
    assert after["gcig"] < 0.8 * before["gcig"]
    assert after["auc"] > 0.75
    assert set(found.outcome.history[0].terms) == {"prediction", "gcig", "total"}


@pytest.mark.parametrize("outcome", ["equalized_odds", "equal_opportunity", "demographic_parity"])
def test_the_outcome_term_lowers_the_gap_that_it_is_named_after(outcome):
    settings = replace(SETTINGS, outcome=outcome)
    plain, _ = trained(settings)
    fair, found = trained(replace(settings, lambda_fair=2.0, loop=Loop(8, 32)))
    loss = OUTCOME_LOSSES[outcome](2)
    before, after = (
        float(loss(scores_of(net, TRAINING), TRAINING.labels, TRAINING.groups)) for net in (plain, fair)
    )
    assert after < 0.5 * before
    assert set(found.outcome.history[0].terms) == {"prediction", "outcome", "total"}


def test_the_total_is_the_weighted_sum_of_the_terms():
    settings = replace(SETTINGS, lambda_ig=0.3, lambda_fair=0.2, loop=Loop(3, 32))
    for epoch in trained(settings)[1].outcome.history:
        terms = epoch.terms
        expected = terms["prediction"] + 0.3 * terms["gcig"] + 0.2 * terms["outcome"]
        assert terms["total"] == pytest.approx(expected, rel=1e-5)


def test_validation_adds_metrics_and_a_plain_network_to_compare_with():
    settings = replace(SETTINGS, lambda_ig=0.3, lambda_fair=0.1)
    _, found = trained(settings, validation=HELD)
    expected = {
        "val_log_loss",
        "val_auc",
        "val_auc_lost",
        "val_eo_gap",
        "val_gcig",
        "val_columns",
        "val_outcome",
        "weight_gcig",
        "weight_outcome",
        "completeness",
    }
    assert set(found.outcome.history[0].metrics) == expected
    gaps = {"outcome_gap", "soft_outcome_gap"}
    assert set(found.plain) == {"auc", "decided_alike", "gcig", "columns", "completeness", *gaps}
    assert found.plain["auc"] > 0.85


def test_the_history_tells_what_the_kept_network_is_like():
    settings = replace(SETTINGS, lambda_ig=0.3, lambda_fair=0.1)
    network, found = trained(settings, validation=HELD)
    kept = found.outcome.history[found.outcome.best_epoch - 1].metrics
    now = measure(network, HELD, TRAINING, settings, 2)
    assert kept["val_auc"] == pytest.approx(now["auc"])
    assert kept["val_gcig"] == pytest.approx(now["gcig"], rel=1e-4)
    assert kept["val_eo_gap"] == pytest.approx(now["outcome_gap"])


def test_what_is_measured_agrees_with_the_metrics():
    network, _ = trained()
    found = measure(network, HELD, TRAINING, SETTINGS, 2)
    decisions = (scores_of(network) >= 0).long()
    gap = equalized_odds_gap(HELD.labels.numpy(), decisions.numpy(), sensitive_features=HELD.groups.numpy())
    reference = (TRAINING.inputs.numpy(), TRAINING.labels.numpy(), TRAINING.groups.numpy())
    gcig = gcig_score(
        network,
        HELD.inputs.numpy(),
        HELD.labels.numpy(),
        sensitive_features=HELD.groups.numpy(),
        reference=reference,
        definition=Definition(norm="l1"),
    )
    assert found["auc"] == pytest.approx(roc_auc_score(HELD.labels, scores_of(network)))
    assert found["outcome_gap"] == pytest.approx(gap, abs=1e-6)
    assert found["gcig"] == pytest.approx(gcig, rel=1e-2)


def test_the_gap_is_that_of_decisions_at_the_cut():
    network, _ = trained()
    scores = scores_of(network)
    for cut in (-1.0, 0.7):
        found = measure(network, HELD, TRAINING, replace(SETTINGS, cut=cut), 2)
        expected = equalized_odds_gap(
            HELD.labels.numpy(), (scores >= cut).long().numpy(), sensitive_features=HELD.groups.numpy()
        )
        assert found["outcome_gap"] == pytest.approx(expected, abs=1e-6)


def test_equal_seeds_give_equal_bits():
    settings = replace(SETTINGS, lambda_ig=0.3, lambda_fair=0.1)
    one, again, other = (scores_of(trained(settings, seed=s, validation=HELD)[0]) for s in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_a_kept_epoch_comes_with_its_own_weights():
    settings = replace(SETTINGS, max_gcig=0.01, max_auc_drop=1.0, loop=Loop(max_epochs=8, batch_size=32))
    _, found = trained(settings, validation=HELD)
    epoch = found.outcome.history[found.outcome.best_epoch - 1]
    expected = epoch.terms["prediction"] + found.weights["gcig"] * epoch.terms["gcig"]
    assert epoch.terms["total"] == pytest.approx(expected, rel=1e-4)


def test_the_teacher_is_the_network_that_plain_training_gives():
    network = make_mlp(N_INPUTS, (8, 4), generator=seeded_generator(0))
    plain, _ = trained(PLAINLY, validation=HELD, network=deepcopy(network))
    _, found = trained(replace(SETTINGS, lambda_ig=0.3, lambda_fair=0.1), validation=HELD, network=network)
    assert found.plain == measure(plain, HELD, TRAINING, SETTINGS, 2)


def test_a_student_starts_as_its_teacher_and_learns_its_probabilities_on_many_rows(monkeypatch):
    taught = []

    class Recorded(FairStep):
        def __init__(self, network, penalty, optimizer, data, weights, *rest, targets, **more):
            start = [parameter.detach().clone() for parameter in network.parameters()]
            taught.append((start, data, weights, targets))
            super().__init__(network, penalty, optimizer, data, weights, *rest, targets=targets, **more)

    monkeypatch.setattr("gcig.methods.fairx.training.FairStep", Recorded)
    weights = torch.rand(300, generator=torch.Generator().manual_seed(0)) + 0.5
    weights /= weights.mean()
    network = make_mlp(N_INPUTS, (8, 4), generator=seeded_generator(0))
    plain, _ = trained(PLAINLY, validation=HELD, network=deepcopy(network), weights=weights)
    settings = replace(SETTINGS, lambda_ig=0.3, lambda_fair=0.1)
    trained(settings, validation=HELD, network=network, weights=weights)
    _, (untaught, few, _, nothing), (start, many, spread, targets) = taught
    assert nothing is None
    assert torch.equal(few.inputs, TRAINING.inputs)
    assert not torch.equal(untaught[0], start[0])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(start, plain.parameters(), strict=True))
    assert len(many) == len(spread) == len(targets) == 8000
    assert torch.equal(many.inputs[:300], TRAINING.inputs)
    assert torch.equal(spread[:300], weights)
    assert float(spread.mean()) == pytest.approx(1, abs=0.05)
    torch.testing.assert_close(targets, scores_of(plain, many).sigmoid())


def test_a_large_table_has_a_teacher_of_as_many_epochs(monkeypatch):
    monkeypatch.setattr("gcig.methods.fairx.training._FILLED", 300)
    network = make_mlp(N_INPUTS, (8, 4), generator=seeded_generator(0))
    plain, _ = trained(SETTINGS, validation=HELD, network=deepcopy(network))
    _, found = trained(replace(SETTINGS, lambda_fair=0.1), validation=HELD, network=network)
    assert found.plain == measure(plain, HELD, TRAINING, SETTINGS, 2)


def test_a_network_that_predicts_already_is_its_own_teacher():
    given, _ = trained(PLAINLY, validation=HELD)
    before = measure(given, HELD, TRAINING, SETTINGS, 2)
    settings = replace(SETTINGS, lambda_ig=0.3, lambda_fair=0.1)
    for already in (True, None):
        network, found = trained(settings, validation=HELD, network=deepcopy(given), is_trained=already)
        assert found.plain == before
        assert not torch.equal(scores_of(network), scores_of(given))


def test_a_network_that_does_not_predict_yet_is_trained_plainly_first():
    network = make_mlp(N_INPUTS, (8, 4), generator=seeded_generator(0))
    _, found = trained(replace(SETTINGS, lambda_fair=0.1), validation=HELD, network=network, is_trained=None)
    assert found.plain["auc"] > 0.8


def test_without_rows_held_out_nobody_is_taught():
    settings = replace(SETTINGS, lambda_ig=0.3, lambda_fair=0.1)
    _, found = trained(settings)
    assert found.plain == {}
    assert found.weights == {"gcig": 0.3, "outcome": 0.1}
    assert not found.braked


def test_a_floor_of_columns_joins_in_where_validation_is_short_of_them(monkeypatch):
    monkeypatch.setattr("gcig.methods.fairx.training._COLUMNS", 2.0)  # more than there are
    settings = replace(SETTINGS, lambda_ig=0.3)
    _, found = trained(settings, validation=HELD)
    first, *later = [epoch.terms for epoch in found.outcome.history]
    assert "column_shortfall" not in first
    assert all(terms["column_shortfall"] > 0 for terms in later)
    assert found.braked


def test_moving_averages_stay_near_the_means_and_are_not_them():
    _, found = trained(replace(SETTINGS, lambda_ig=0.3))
    means = GroupBaselines.from_data(TRAINING.inputs, TRAINING.labels, TRAINING.groups).values
    assert found.ema_baselines.shape == means.shape
    assert not torch.equal(found.ema_baselines, means)
    assert (found.ema_baselines - means).abs().max() < 0.5


def test_rows_weigh_what_they_are_told_to():
    torch.manual_seed(0)
    weights = torch.where(TRAINING.labels == 1, 6.0, 1.0)
    plain, _ = trained()
    weighted, _ = trained(weights=weights / weights.mean())
    assert scores_of(weighted).mean() > scores_of(plain).mean() + 0.5


def test_a_weight_of_zero_takes_a_row_out_of_the_loss():
    labels = TRAINING.labels.clone()
    labels[::3] = 1 - labels[::3]
    noisy = GroupedBatch(TRAINING.inputs, labels, TRAINING.groups)
    weights = torch.ones(len(labels))
    weights[::3] = 0
    right, _ = trained(replace(SETTINGS, lambda_fair=0.2), weights=weights, data=TRAINING)
    wrong, _ = trained(replace(SETTINGS, lambda_fair=0.2), weights=weights, data=noisy)
    assert torch.equal(scores_of(right), scores_of(wrong))


def test_cells_that_are_empty_in_a_mini_batch_do_not_give_nan():
    rare = make_loans(300)
    groups = torch.zeros(300, dtype=torch.int64)
    groups[[int(np.flatnonzero(rare.y == label)[i]) for label in (0, 1) for i in (0, 1)]] = 1
    rows = batch(rare)
    rows = GroupedBatch(rows.inputs, rows.labels, groups)
    settings = replace(SETTINGS, lambda_ig=0.3, lambda_fair=0.3, loop=Loop(3, 8))
    network, found = trained(settings, data=rows, validation=rows)
    assert torch.isfinite(scores_of(network)).all()
    assert all(math.isfinite(value) for epoch in found.outcome.history for value in epoch.to_dict().values())
    assert torch.isfinite(found.ema_baselines).all()


def test_validation_rows_may_lack_a_cell():
    some = HELD[torch.nonzero((HELD.groups == 0) | (HELD.labels == 0)).flatten()]
    settings = replace(SETTINGS, lambda_ig=0.3, lambda_fair=0.3)
    _, found = trained(settings, validation=some)
    assert all(math.isfinite(value) for epoch in found.outcome.history for value in epoch.to_dict().values())


def test_many_groups():
    rows = batch(make_loans(400, groups=("a", "b", "c", "d")))
    settings = replace(SETTINGS, lambda_ig=0.3, lambda_fair=0.1)
    _, found = trained(settings, data=rows, validation=rows, n_groups=4)
    assert found.ema_baselines.shape == (2, 4, N_INPUTS)
    assert found.outcome.history[-1].metrics["val_gcig"] > 0


@pytest.mark.parametrize(
    "layers",
    [
        lambda: [nn.Linear(N_INPUTS, 8), nn.BatchNorm1d(8), nn.SiLU(), nn.Dropout(0.2), nn.Linear(8, 1)],
        lambda: [nn.Linear(N_INPUTS, 8), nn.ReLU(), nn.Linear(8, 1)],
        lambda: [nn.Linear(N_INPUTS, 1)],
    ],
    ids=["BatchNorm and dropout", "one hidden layer of ReLU", "linear"],
)
def test_any_network_is_trained(layers):
    torch.manual_seed(0)
    network = nn.Sequential(*layers())
    start = {name: value.clone() for name, value in network.state_dict().items()}
    settings = replace(SETTINGS, lambda_ig=0.2, lambda_fair=0.1)
    _, found = trained(settings, network=network, validation=HELD)
    last = found.outcome.history[-1].metrics
    assert last["val_auc"] > 0.8
    assert last["val_gcig"] < found.plain["gcig"]
    assert all(not torch.equal(value, start[name]) for name, value in network.state_dict().items())


def test_a_plain_network_that_diverges_leaves_the_network_as_it_was():
    network = make_mlp(N_INPUTS, (8, 4), generator=seeded_generator(0))
    before = [parameter.detach().clone() for parameter in network.parameters()]
    settings = replace(SETTINGS, lambda_ig=0.3, learning_rate=1e9)
    with pytest.raises(DivergenceError, match="without any fairness term, training diverged") as found:
        trained(settings, network=network, validation=HELD)
    assert found.value.epoch == 0
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), before, strict=True))


def test_threads_and_generators_are_left_alone():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    trained(replace(SETTINGS, lambda_ig=0.3, lambda_fair=0.1), validation=HELD)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
