"""Faults of models in the field, one by one: a clear message, and a state that can be used."""

import math
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError, UndefinedMetricWarning
from torch import nn

import gcig
from gcig._arguments import InputError
from gcig.methods import METHODS
from gcig.methods.fairx.estimator import FairXClassifier
from gcig.methods.fairx.warnings import CollapseWarning
from gcig.methods.unconstrained import UnconstrainedClassifier
from gcig.training.loop import DivergenceError

RNG = np.random.default_rng(0)
SEX = np.array(["f", "m"])[np.arange(200) % 2]
X = RNG.normal(size=(200, 3)) + np.outer(SEX == "m", [0.8, 0, 0])
Y = (X @ [2, 1, -1] + RNG.logistic(size=200) > 0.5).astype(int)
GROUPS = {"sensitive_features": SEX}
QUICK = {
    "max_epochs": 4,
    "batch_size": 32,
    "learning_rate": 0.05,
    "hidden_sizes": (8,),
    "device": "cpu",
    "random_state": 0,
}


class Then(nn.Module):
    """A linear layer and a function of its output."""

    def __init__(self, function, n_outputs=1):
        super().__init__()
        self.linear, self.function = nn.Linear(3, n_outputs), function

    def forward(self, rows):
        return self.function(self.linear(rows))


# --- 21: attributions that are zero everywhere ---------------------------------------------------------


def constant():
    network = nn.Linear(3, 1)
    nn.init.zeros_(network.weight)
    return network.eval()


def test_fault_21_a_model_without_reasons_has_no_gcig_rather_than_gcig_zero():
    with pytest.warns(UndefinedMetricWarning, match="score is the same for all rows"):
        assert math.isnan(gcig.metrics.gcig_score(constant(), X, Y, **GROUPS))
    with pytest.warns(UndefinedMetricWarning, match="score is the same for all rows"):
        found = gcig.evaluate(constant(), X, Y, **GROUPS, n_bootstrap=0)
    assert math.isnan(found.gcig)
    assert math.isnan(found.gcig_chance)
    assert found.undefined_rows == 200


def test_fault_21_single_rows_without_reasons_are_left_out_and_counted():
    model = UnconstrainedClassifier(**QUICK).fit(X, Y, **GROUPS)
    rows = X.copy()
    found = gcig.evaluate(model, rows, Y, **GROUPS, n_bootstrap=0)
    assert found.undefined_rows == 0
    explanation = model.explain(rows, Y)
    assert not np.isnan(explanation.disparity).any()
    # A row that *is* the baseline of a group has nothing to be explained under it.
    model.baselines_[:, 0] = model.encode(rows[:1])
    explanation = model.explain(rows, Y)
    assert np.flatnonzero(np.isnan(explanation.disparity)).tolist() == [0]
    assert "1 rows have vanishing attributions" in repr(explanation)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::gcig.methods.fairx.warnings.BoundWarning")  # four epochs are too few
def test_fault_21_training_goes_on_past_rows_without_reasons():
    same = X.copy()
    same[(SEX == "f") & (Y == 0)] = 0.25  # each of them is the baseline of their cell
    # Chance explains the gaps of so few rows, so that "auto" would not train.
    model = FairXClassifier(**QUICK, preprocessing="none", repair="always").fit(same, Y, **GROUPS)
    assert np.isfinite(model.history_.to_numpy()).all()
    assert np.isfinite(model.predict_proba(same)).all()
    undefined = np.isnan(model.explain(same, Y).disparity)
    assert np.array_equal(undefined, (SEX == "f") & (Y == 0))


# --- 22: modules that cannot be explained, or that are left in training mode ---------------------------


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Then(lambda out: out, n_outputs=2), r"\(2, 2\)"),
        (Then(lambda out: (out > 0).float()), "not differentiable"),
        (Then(lambda out: out.detach()), "not differentiable"),
    ],
    ids=["several outputs", "a step", "detached"],
)
def test_fault_22_modules_without_one_differentiable_logit(module, message):
    with pytest.raises(InputError, match=message):
        gcig.metrics.gcig_score(module, X, Y, **GROUPS)
    model = FairXClassifier.from_module(module, **QUICK)
    with pytest.raises(InputError, match=message):
        model.fit(X, Y, **GROUPS)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_fault_22_two_outputs_are_fine_with_a_score():
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    value = gcig.metrics.gcig_score(module, X, Y, **GROUPS, score=lambda out: out[:, 1] - out[:, 0])
    assert value > 0


def left_in_training_mode():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.SiLU(), nn.Dropout(0.5), nn.Linear(8, 1))
    with torch.no_grad():
        network(torch.tensor(X, dtype=torch.float32))
    return network.train()


def test_fault_22_dropout_and_batch_norm_left_in_training_mode_do_not_matter():
    network = left_in_training_mode()
    statistics = network[1].running_mean.clone()
    one, again = (gcig.metrics.gcig_score(network, X, Y, **GROUPS) for _ in range(2))
    assert one == again
    assert one == pytest.approx(gcig.metrics.gcig_score(left_in_training_mode().eval(), X, Y, **GROUPS))
    assert all(part.training for part in network.modules())
    assert torch.equal(network[1].running_mean, statistics)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::gcig.methods.fairx.warnings.BoundWarning")  # four epochs are too few
def test_fault_22_a_trained_model_is_never_left_in_training_mode():
    module = left_in_training_mode()
    model = FairXClassifier.from_module(module, **QUICK, repair="always").fit(X, Y, **GROUPS)
    assert not any(part.training for part in model.module_.modules())
    assert np.array_equal(model.decision_function(X), model.decision_function(X))
    model.module_.train()
    assert np.array_equal(model.decision_function(X), model.decision_function(X))
    assert np.array_equal(model.explain(X).attributions, model.explain(X).attributions)


# --- 23: a loss that diverges --------------------------------------------------------------------------


class Overflows(nn.Module):
    """A network that gives infinity after some training batches."""

    def __init__(self, batches):
        super().__init__()
        self.linear, self.left = constant(), batches

    def forward(self, rows):
        if self.training:
            self.left -= 1
        return self.linear(rows) * (math.inf if self.training and self.left < 0 else 1.0)


def test_fault_23_the_last_good_state_is_kept_and_can_be_used():
    # Without validation 200 rows are 7 batches an epoch; the first is the check of its output.
    settings = {**QUICK, "early_stopping": False, "preprocessing": "none"}
    model = UnconstrainedClassifier(module=Overflows(batches=17), **settings)
    with pytest.raises(
        DivergenceError, match=r"epoch 3.*not finite.*parameters of epoch 2.*predicts"
    ) as found:
        model.fit(X, Y, **GROUPS)
    assert found.value.epoch == 2
    assert model.diverged_
    assert np.isfinite(model.predict_proba(X)).all()
    assert len(model.history_) == 2


def test_fault_23_where_nothing_was_learned_the_model_stays_unfitted():
    model = FairXClassifier(**{**QUICK, "learning_rate": 1e9})
    with pytest.raises(DivergenceError, match=r"learning_rate.*The estimator is as it was before fit"):
        model.fit(X, Y, **GROUPS)
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize("method", METHODS)
def test_fault_23_scores_that_overflow_after_the_last_step_are_a_divergence(method):
    # A single step: its loss is finite, and so are the parameters that it leaves, but not their products.
    one_step = {**QUICK, "max_epochs": 1, "batch_size": 1000, "learning_rate": 1e24, "hidden_sizes": (8, 8)}
    model = METHODS[method].estimator(**one_step)
    with pytest.raises(DivergenceError, match="training diverged"):
        model.fit(X, Y, **GROUPS)
    assert not hasattr(model, "module_")


# --- 24: a model that has collapsed to a constant ------------------------------------------------------


def test_fault_24_a_collapse_is_said_in_training_and_marked_in_results():
    noise = np.random.default_rng(0).permutation(Y)
    with pytest.warns(CollapseWarning, match="the model collapsed: .*the columns say little about y"):
        model = FairXClassifier(**{**QUICK, "learning_rate": 1e-4}).fit(X, noise, **GROUPS)
    assert model.collapsed_
    assert gcig.evaluate(model, X, noise, **GROUPS, n_bootstrap=0).collapsed


def test_fault_24_decisions_that_are_all_alike_are_said_and_marked():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = FairXClassifier(**QUICK, threshold=0.999).fit(X, Y, **GROUPS)
    assert gcig.ThresholdWarning in [each.category for each in caught]
    assert model.decides_alike_
    assert not model.collapsed_
    assert gcig.evaluate(model, X, Y, **GROUPS, n_bootstrap=0).decides_alike


def test_fault_24_a_model_that_predicts_is_not_marked():
    model = FairXClassifier(**QUICK, budget=0).fit(X, Y, **GROUPS)
    assert not model.collapsed_
    assert not gcig.evaluate(model, X, Y, **GROUPS, n_bootstrap=0).collapsed
