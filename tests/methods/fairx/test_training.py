"""Training of FairX: the teacher, the student, and the weights of its terms."""

import math
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

from gcig.core.batch import GroupedBatch, TrainingRows
from gcig.core.columns import AttributeColumns, find_blocks
from gcig.core.references import GroupBaselines
from gcig.data.encoding import TableEncoder
from gcig.losses.objective import Objective
from gcig.losses.outcome import OUTCOME_LOSSES
from gcig.methods.fairx import training
from gcig.methods.fairx.distillation import BatchSource
from gcig.methods.fairx.selection import HeldOut, binary_auc, measure
from gcig.methods.fairx.settings import RATE_TEMPERATURE, FairTraining
from gcig.methods.fairx.training import train_fairly
from gcig.methods.fairx.weights import LARGEST, WeightControl, standard_error_of_auc
from gcig.models.mlp import make_mlp
from gcig.training.loop import DivergenceError, Loop
from gcig.training.runtime import seeded_generator
from tables import make_loans


def make_batch(loans):
    encoder = TableEncoder()
    x = torch.from_numpy(encoder.fit_transform(loans.X))
    groups = torch.tensor(np.unique(loans.sex, return_inverse=True)[1])
    return GroupedBatch(x, torch.tensor(loans.y.to_numpy()), groups), torch.from_numpy(encoder.origin_)


ROWS, ORIGIN = make_batch(make_loans(400))
N_INPUTS = ROWS.inputs.shape[1]
TRAINING, HELD = ROWS[torch.arange(0, 300)], ROWS[torch.arange(300, 400)]
SETTINGS = FairTraining(Loop(max_epochs=8, batch_size=32), learning_rate=0.02, max_auc_drop=0.03)
FAIR = replace(SETTINGS, lambda_ig=0.2, lambda_fair=0.1)
PLAIN = replace(SETTINGS, loop=Loop(max_epochs=16, batch_size=32))  # as long as the teacher of FAIR


@pytest.fixture(autouse=True)
def _short_epochs(monkeypatch):
    """Repeat the rows of small tables twice per epoch instead of up to 8,000 rows."""
    monkeypatch.setattr(training, "_MIN_EPOCH_ROWS", 600)


def make_held_out(settings=SETTINGS, *, rows=HELD, data=TRAINING, n_groups=2, protected=()):
    return HeldOut(rows, data, settings, n_groups, ORIGIN, protected)


def run(
    settings=SETTINGS,
    *,
    seed=0,
    data=TRAINING,
    held=HELD,
    network=None,
    weights=None,
    targets=None,
    n_groups=2,
    protected=(),
    **options,
):
    """Train; `held` None holds nothing out."""
    generator = seeded_generator(seed)
    network = network or make_mlp(data.inputs.shape[1], (8, 4), generator=generator)
    rows = TrainingRows(data, data.labels if targets is None else targets, weights)
    held_out = make_held_out(
        settings, rows=data if held is None else held, data=data, n_groups=n_groups, protected=protected
    )
    return network, train_fairly(network, rows, settings, generator=generator, held_out=held_out, **options)


def scores_of(network, rows=HELD):
    with torch.no_grad():
        return network.eval()(rows.inputs)


@pytest.fixture(scope="module")
def plain():
    network, _ = run(PLAIN)
    return network


@pytest.fixture(scope="module")
def fair():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "_MIN_EPOCH_ROWS", 600)
        return run(FAIR)


# --- What training achieves --------------------------------------------------------------------------


def test_cross_entropy_alone_learns():
    network, found = run(held=None)
    assert binary_auc(scores_of(network), HELD.labels) > 0.85
    assert found.weights == {"gcig": 0.0, "outcome": 0.0}
    assert set(found.outcome.history[0].terms) == {"prediction", "total"}
    assert found.plain == {}


def test_reasons_become_fairer_and_predictions_stay():
    network, found = run(replace(FAIR, loop=Loop(32, 32)))
    held_out = make_held_out()
    now = measure(network, held_out)
    assert now["gcig"] < 0.75 * found.plain["gcig"]
    assert now["gcig_members"] < 0.9 * found.plain["gcig_members"]
    # What `Teacher.auc_lost` allows for by labels.
    noise = standard_error_of_auc(found.plain["auc"], *held_out.counts) / 2
    assert now["auc"] > found.plain["auc"] - FAIR.max_auc_drop - noise


@pytest.mark.parametrize("outcome", OUTCOME_LOSSES)
def test_outcome_term_lowers_the_gap_that_it_is_named_after(outcome, plain):
    settings = replace(SETTINGS, outcome=outcome, lambda_fair=2.0, loop=Loop(16, 32))
    network, found = run(settings, held=None)
    loss = OUTCOME_LOSSES[outcome](2, temperature=RATE_TEMPERATURE)
    before, after = (
        float(loss(scores_of(net, TRAINING), TRAINING.labels, TRAINING.groups)) for net in (plain, network)
    )
    assert after < 0.6 * before
    assert set(found.outcome.history[0].terms) == {"prediction", "selection", "outcome", "total"}


# --- Terms and weights -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("references", "terms"),
    [
        ("mean", {"gcig", "column_shortfall"}),
        ("members", {"gcig_members", "gcig_each_member", "column_shortfall"}),
        ("both", {"gcig", "gcig_members", "gcig_each_member", "consistency", "column_shortfall"}),
    ],
)
def test_total_is_the_weighted_sum_of_the_terms(references, terms):
    settings = replace(FAIR, references=references, max_auc_drop=1.0, loop=Loop(8, 64))
    _, found = run(settings)
    control = WeightControl({"gcig": 0.2, "outcome": 0.1}, references=references)
    weights = {"prediction": 1.0, **control.term_weights(progress=1)}
    for epoch in found.outcome.history[2:]:  # in the first ones the weights grow from step to step
        values = epoch.terms
        assert set(values) == {"prediction", "selection", "outcome", "total"} | terms
        expected = sum(weights[name] * value for name, value in values.items() if name != "total")
        assert values["total"] == pytest.approx(expected, rel=1e-4)


def test_weights_are_ramped_up_without_a_held_out_set():
    _, found = run(replace(FAIR, loop=Loop(14, 64)), held=None)
    assert found.outcome.best_epoch == len(found.outcome.history) == 6  # two fifths of the epochs
    assert found.weights == {"gcig": 0.2, "outcome": 0.1}
    assert not found.braked
    _, short = run(replace(FAIR, lambda_ig=9.0, loop=Loop(2, 64)), held=None)
    assert short.weights == pytest.approx({"gcig": 9.0, "outcome": 0.1})  # one epoch takes the whole ramp


def test_a_student_is_trained_in_stages():
    generator = seeded_generator(0)
    network = make_mlp(N_INPUTS, (8, 4), generator=generator)
    student = training.Student.of_teacher(
        network,
        TrainingRows(TRAINING, TRAINING.labels),
        replace(FAIR, references="mean", max_auc_drop=1.0),
        generator=generator,
        held_out=make_held_out(FAIR),
    )
    first = student.train({"gcig": 0.1, "outcome": 0.1}, n_epochs=2)
    second = student.train({"gcig": 1.0, "outcome": 0.1}, n_epochs=2, start=first)
    assert first.weights == {"gcig": 0.1, "outcome": 0.1}
    assert second.weights["gcig"] > 0.1
    assert second.measured["gcig"] < first.measured["gcig"] < student.teacher.measured["gcig"]
    assert first.within_limits
    assert second.within_limits
    again = student.train({"gcig": 1.0, "outcome": 0.1}, n_epochs=1)  # from the teacher
    assert len(again.outcome.history) == 1
    assert not all(
        torch.equal(a, b) for a, b in zip(again.state.values(), second.state.values(), strict=True)
    )


@pytest.mark.parametrize(("n", "fall"), [(4, 0.2), (5, 0.1)])
def test_a_swap_is_what_rank_correlation_loses_by_it(n, fall):
    order = torch.arange(n).numpy()
    swapped = [1, 0, *range(2, n)]
    held_out = replace(make_held_out(), origin=torch.arange(n))
    assert (
        held_out.faithfulness_step
        == pytest.approx(1 - spearmanr(order, swapped).statistic)
        == pytest.approx(fall)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("term", "value"), [("lambda_ig", "gcig"), ("lambda_fair", "soft_outcome_gap")], ids=["gcig", "outcome"]
)
def test_a_larger_weight_does_not_end_with_a_larger_value_of_its_term(term, value):
    rows, _ = make_batch(make_loans(2000))  # rates of 100 held-out rows are mostly noise
    data, held = rows[torch.arange(0, 1500)], rows[torch.arange(1500, 2000)]
    found = []
    for weight in (0.03, 0.1, 0.3, 1.0, 3.0, LARGEST):
        settings = replace(FAIR, **{term: weight}, loop=Loop(40, 32), max_auc_drop=0.012)
        _, trained = run(settings, data=data, held=held)
        kept = trained.outcome.history[trained.outcome.best_epoch - 1].metrics
        found.append(kept[f"val_{value}"] if trained.outcome.best_epoch else trained.plain[value])
    assert all(after <= 1.1 * before for before, after in pairwise(found)), found
    assert found[-1] < found[0]


def test_teacher_is_measured_on_the_training_rows_without_a_held_out_set():
    network = make_mlp(N_INPUTS, (8, 4), generator=seeded_generator(0))
    teacher, _ = run(PLAIN, network=deepcopy(network), held=None)
    _, found = run(FAIR, network=network, held=None)
    expected = measure(teacher, make_held_out(rows=TRAINING))
    assert found.plain == pytest.approx(expected, rel=1e-6, nan_ok=True)
    assert "column_shortfall" in found.outcome.history[0].terms


def test_a_kept_epoch_comes_with_its_own_weights(fair):
    _, found = fair
    kept = found.outcome.history[found.outcome.best_epoch - 1].metrics
    assert found.weights == {name: kept[f"weight_{name}"] for name in ("gcig", "outcome")}


def test_protected_columns_may_not_be_used_more_than_by_the_teacher():
    group = TRAINING.groups.unsqueeze(1).float(), HELD.groups.unsqueeze(1).float()
    data, held = (
        GroupedBatch(torch.cat([rows.inputs, extra], 1), rows.labels, rows.groups)
        for rows, extra in zip((TRAINING, HELD), group, strict=True)
    )
    origin = torch.cat([ORIGIN, torch.tensor([5])])
    network = make_mlp(N_INPUTS + 1, (8, 4), generator=seeded_generator(0))
    protected = [AttributeColumns(torch.tensor([N_INPUTS]), torch.tensor([0, 1]))]
    settings = replace(FAIR, lambda_fair=1.0)
    _, found = train_on(data, held, origin, protected, network, settings)
    assert all(epoch.terms["attribute"] >= 0 for epoch in found.outcome.history)
    now = measure(network, HeldOut(held, data, settings, 2, origin, protected))
    assert now["attribute_effect"] <= found.plain["attribute_effect"] + 0.03


def train_on(data, held, origin, protected, network, settings):
    held_out = HeldOut(held, data, settings, 2, origin, protected)
    found = train_fairly(
        network,
        TrainingRows(data, data.labels),
        settings,
        generator=seeded_generator(0),
        held_out=held_out,
    )
    return network, found


def test_too_few_columns_are_penalised_and_training_backs_off(monkeypatch):
    monkeypatch.setattr(training, "_KEPT_COLUMNS", 2.0)  # more than there are
    monkeypatch.setattr(training, "_WANTED_COLUMNS", 2.0)
    _, found = run(replace(FAIR, loop=Loop(4, 64)))
    assert all(epoch.terms["column_shortfall"] > 0 for epoch in found.outcome.history)
    assert found.braked


def test_objective_can_be_changed():
    seen = []

    def customise(objective):
        seen.append(objective)
        return objective.with_term("size", lambda batch: batch.logits.square().mean(), weight=5.0)

    small, found = run(replace(FAIR, max_auc_drop=1.0), customise=customise)
    usual, _ = run(replace(FAIR, max_auc_drop=1.0))
    assert isinstance(seen[0], Objective)
    assert len(seen) == 1  # the teacher is trained without it
    assert found.outcome.history[0].terms["size"] > 0
    assert scores_of(small).abs().mean() < 0.8 * scores_of(usual).abs().mean()


# --- The held-out set --------------------------------------------------------------------------------


def test_history_has_all_measurements(fair):
    _, found = fair
    measured = set(measure(fair[0], make_held_out(FAIR)))
    assert set(found.plain) == measured
    expected = {f"val_{name}" for name in measured} | {"val_auc_lost", "weight_gcig", "weight_outcome"}
    assert set(found.outcome.history[0].metrics) == expected


def test_history_describes_the_kept_network(fair):
    network, found = fair
    kept = found.outcome.history[found.outcome.best_epoch - 1].metrics
    for name, value in measure(network, make_held_out()).items():
        assert kept[f"val_{name}"] == pytest.approx(value, rel=1e-4, nan_ok=True)


def test_equal_seeds_give_equal_bits(fair):
    again, other = (scores_of(run(FAIR, seed=seed)[0]) for seed in (0, 1))
    assert torch.equal(scores_of(fair[0]), again)
    assert not torch.equal(again, other)


def test_validation_rows_may_lack_a_cell():
    some = HELD[torch.nonzero((HELD.groups == 0) | (HELD.labels == 0)).flatten()]
    _, found = run(replace(FAIR, loop=Loop(2, 64)), held=some)
    without = ("val_attribute_effect",)  # there is no protected column
    for epoch in found.outcome.history:
        assert all(math.isfinite(value) for name, value in epoch.to_dict().items() if name not in without)


# --- The teacher -------------------------------------------------------------------------------------


def test_teacher_is_the_network_that_plain_training_gives():
    network = make_mlp(N_INPUTS, (8, 4), generator=seeded_generator(0))
    teacher, _ = run(PLAIN, network=deepcopy(network))
    _, found = run(FAIR, network=network)
    assert found.plain == pytest.approx(measure(teacher, make_held_out(FAIR)), nan_ok=True)


def test_student_starts_at_the_teacher_and_learns_its_probabilities(monkeypatch):
    sources = []

    class Recorded(BatchSource):
        def __init__(self, network, data, *rest, **options):
            start = [parameter.detach().clone() for parameter in network.parameters()]
            super().__init__(network, data, *rest, **options)
            sources.append((start, self.data, options))

    monkeypatch.setattr(training, "BatchSource", Recorded)
    weights = torch.rand(300, generator=torch.Generator().manual_seed(0)) + 0.5
    weights /= weights.mean()
    network = make_mlp(N_INPUTS, (8, 4), generator=seeded_generator(0))
    teacher, _ = run(PLAIN, network=deepcopy(network), weights=weights)
    run(FAIR, network=network, weights=weights)
    _, (untaught, lesson, options), (start, data, more) = sources
    assert "teacher" not in options
    assert torch.equal(lesson.targets, TRAINING.labels)
    assert not torch.equal(untaught[0], start[0])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(start, teacher.parameters(), strict=True))
    torch.testing.assert_close(data.targets, scores_of(teacher, TRAINING).sigmoid())
    assert torch.equal(data.weights, weights)
    assert more["n_explained"] == 8  # a quarter of a mini-batch
    assert more["protected"] is None


def test_large_table_has_a_teacher_of_as_many_epochs(monkeypatch):
    monkeypatch.setattr(training, "_MIN_EPOCH_ROWS", 300)
    network = make_mlp(N_INPUTS, (8, 4), generator=seeded_generator(0))
    teacher, _ = run(network=deepcopy(network))
    _, found = run(replace(SETTINGS, lambda_fair=0.1), network=network)
    assert found.plain == pytest.approx(measure(teacher, make_held_out(FAIR)), nan_ok=True)


@pytest.mark.parametrize("trained", [True, None])
def test_network_that_predicts_already_is_its_own_teacher(plain, trained):
    network, found = run(FAIR, network=deepcopy(plain), trained=trained)
    assert found.plain == measure(plain, make_held_out(FAIR)) | {
        "attribute_effect": pytest.approx(math.nan, nan_ok=True)
    }
    assert not torch.equal(scores_of(network), scores_of(plain))


def test_network_that_does_not_predict_yet_is_trained_first():
    _, found = run(replace(FAIR, loop=Loop(4, 32)), trained=None)
    assert found.plain["auc"] > 0.8


def test_targets_of_a_given_teacher_are_learned():
    upside_down = 1.0 - TRAINING.labels.float()
    network, found = run(replace(FAIR, loop=Loop(4, 32)), targets=upside_down, held=None)
    assert found.plain["auc"] < 0.2
    assert binary_auc(scores_of(network), HELD.labels) < 0.3


# --- Rows and networks of all kinds ------------------------------------------------------------------


def test_moving_averages_stay_near_the_means(fair):
    _, found = fair
    means = GroupBaselines.from_data(TRAINING.inputs, TRAINING.labels, TRAINING.groups).values
    assert found.ema_baselines.shape == means.shape
    assert not torch.equal(found.ema_baselines, means)
    assert (found.ema_baselines - means).abs().max() < 0.5


def test_sample_weights_count(plain):
    weights = torch.where(TRAINING.labels == 1, 6.0, 1.0)
    weighted, _ = run(PLAIN, weights=weights / weights.mean())
    assert scores_of(weighted).mean() > scores_of(plain).mean() + 0.5


def test_a_weight_of_zero_takes_a_row_out_of_the_cross_entropy():
    labels = TRAINING.labels.clone()
    labels[::3] = 1 - labels[::3]
    weights = torch.ones(len(labels))
    weights[::3] = 0
    right, _ = run(weights=weights, held=None)
    wrong, _ = run(weights=weights, held=None, data=GroupedBatch(TRAINING.inputs, labels, TRAINING.groups))
    assert torch.equal(scores_of(right), scores_of(wrong))


def test_tiny_cells_do_not_give_nan():
    rows, _ = make_batch(make_loans(300))
    groups = torch.zeros(300, dtype=torch.int64)
    groups[[int(torch.nonzero(rows.labels == label)[i]) for label in (0, 1) for i in (0, 1)]] = 1
    rows = GroupedBatch(rows.inputs, rows.labels, groups)
    network, found = run(replace(FAIR, lambda_fair=0.3, loop=Loop(4, 16)), data=rows, held=HELD)
    assert torch.isfinite(scores_of(network)).all()
    assert all(math.isfinite(value) for epoch in found.outcome.history for value in epoch.terms.values())
    assert torch.isfinite(found.ema_baselines).all()


def test_several_groups():
    rows, _ = make_batch(make_loans(400, groups=("a", "b", "c", "d")))
    data, held = rows[torch.arange(0, 300)], rows[torch.arange(300, 400)]
    _, found = run(replace(FAIR, loop=Loop(4, 64)), data=data, held=held, n_groups=4)
    assert found.ema_baselines.shape == (2, 4, N_INPUTS)
    assert found.outcome.history[-1].metrics["val_gcig"] < found.plain["gcig"]


class Convolution(nn.Module):
    """A network that no engine knows."""

    def __init__(self):
        super().__init__()
        self.filters = nn.Conv1d(1, 4, 3, padding=1)
        self.out = nn.Linear(4 * N_INPUTS, 1)

    def forward(self, rows):
        return self.out(torch.tanh(self.filters(rows.unsqueeze(1))).flatten(1)).flatten()


NETWORKS = {
    "BatchNorm and dropout": lambda: nn.Sequential(
        nn.Linear(N_INPUTS, 8), nn.BatchNorm1d(8), nn.SiLU(), nn.Dropout(0.2), nn.Linear(8, 1)
    ),
    "one hidden layer of ReLU": lambda: nn.Sequential(nn.Linear(N_INPUTS, 8), nn.ReLU(), nn.Linear(8, 1)),
    "linear": lambda: nn.Sequential(nn.Linear(N_INPUTS, 1)),
    "convolution": Convolution,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_any_network_is_trained(name):
    torch.manual_seed(0)
    network = NETWORKS[name]()
    start = {key: value.clone() for key, value in network.state_dict().items()}
    _, found = run(replace(FAIR, loop=Loop(8, 64), max_auc_drop=0.012), network=network)
    last = found.outcome.history[-1].metrics
    assert last["val_auc"] > 0.75
    assert last["val_gcig"] < found.plain["gcig"]
    assert all(not torch.equal(value, start[key]) for key, value in network.state_dict().items())


def test_teacher_that_diverges_leaves_the_network_as_it_was():
    network = make_mlp(N_INPUTS, (8, 4), generator=seeded_generator(0))
    before = [parameter.detach().clone() for parameter in network.parameters()]
    with pytest.raises(DivergenceError, match="without any fairness term, training diverged") as found:
        run(replace(FAIR, learning_rate=1e9), network=network)
    assert found.value.epoch == 0
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), before, strict=True))


def test_threads_and_generators_are_left_alone():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    run(replace(FAIR, loop=Loop(2, 64)))
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_blocks_of_the_example_are_those_of_the_encoder():
    assert torch.equal(find_blocks(ROWS.inputs, ORIGIN), ORIGIN)
