import numpy as np
import pytest
import torch
from torch import nn

import gcig
from example_tables import gaps as gaps_of
from example_tables import make_biased, make_biased_task, task_gap
from gcig.core.references import Rows
from gcig.core.task import Binary
from gcig.methods.adversarial import AdversarialClassifier
from gcig.methods.lagrangian import LagrangianClassifier
from gcig.methods.outcome_bounded import BoundedEpochs, measure_rates, members_of_cells
from gcig.methods.registry import METHODS
from gcig.methods.unconstrained import UnconstrainedClassifier
from support.games import data_of, make_data, make_rows


class Fixed(nn.Module):
    """A network whose output is one of its columns, moved."""

    def __init__(self, column=0, shift=0.0):
        super().__init__()
        self.column, self.shift = column, shift

    def forward(self, inputs):
        return inputs[:, self.column] + self.shift


# --- Rates ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["binary", "classes", "number"])
def test_rates_and_gaps_are_those_of_the_definition(task):
    data = make_data(task, 600, n_groups=3)
    rows, decisions = data.all, data.task.decisions(torch.randn(600, data.task.n_outputs))
    rates, gaps, gap = measure_rates(decisions, data, "equalized_odds")
    cells, n_cells, weight = data.task.outcome_cells(rows.labels, "equalized_odds")
    for c in range(n_cells):
        means = [decisions[(cells == c) & (rows.groups == g)].mean(0) for g in range(3)]
        torch.testing.assert_close(rates[c], torch.stack(means))
        pairs = [data.task.distance_of_rates(a - b) for a in means for b in means]
        assert gaps[c] == pytest.approx(float(max(pairs)), abs=1e-6)
    assert gap == pytest.approx(weight * float(gaps.sum()))


def test_weights_count_in_rates():
    labels, groups = torch.ones(3, dtype=torch.int64), torch.tensor([0, 0, 1])
    rows = Rows(torch.zeros(3, 1), labels, groups, torch.tensor([3.0, 1.0, 5.0]))
    members = members_of_cells(rows, Binary(), 2)
    assert members[:, 1].tolist() == [[3.0, 0.0], [1.0, 0.0], [0.0, 5.0]]
    decisions = torch.tensor([[1.0], [0.0], [1.0]])
    rates, gaps, gap = measure_rates(decisions, data_of(rows, Binary()), "equalized_odds")
    assert rates[1, :, 0].tolist() == [0.75, 1.0]
    assert (gaps.tolist(), gap) == ([0.0, 0.25], 0.25)


def test_rows_in_no_cell_count_nowhere():
    rows, task = make_rows("binary")
    members = members_of_cells(rows, task, 2, "equal_opportunity")
    assert members.shape == (64, 1, 2)
    assert torch.equal(members.sum((1, 2)), rows.labels.float())


# --- Choosing an epoch ----------------------------------------------------------------------------------


def made_for(network, max_gap=0.05, cut=0.0):
    """Rows on which column 0 predicts the label alike in both groups, and column 1 that of group 1 only."""
    n = 400
    labels, groups = torch.arange(n) % 2, torch.arange(n) // 2 % 2
    sign = 2.0 * labels - 1
    inputs = torch.stack(
        [torch.where(torch.arange(n) % 10 < 8, sign, -sign), torch.where(groups == 1, sign, -1.0)], 1
    )
    rows = Rows(inputs, labels, groups)
    data = data_of(rows, Binary(cut), validation=rows[300:])
    return BoundedEpochs(network, data, "equalized_odds", max_gap, max_epochs=8)


def test_an_epoch_that_meets_the_bound_ranks_first():
    select = made_for(Fixed(column=0))
    met = select(5)
    select.network = Fixed(column=1)
    missed = select(6)
    assert met.metrics["outcome_gap"] == 0
    assert met.criterion == pytest.approx(1 - met.metrics["val_auc"])
    assert missed.metrics["outcome_gap"] == 1
    assert missed.criterion == pytest.approx(1 + (1 - 0.05))
    assert met.metrics["val_log_loss"] > 0


def test_a_model_that_predicts_everyone_alike_does_not_meet_the_bound():
    select = made_for(Fixed(column=0))
    select(1)
    select.network = Fixed(column=0, shift=5.0)
    collapsed = select(4)
    assert collapsed.metrics["outcome_gap"] == 0
    select.network = Fixed(column=1)
    assert collapsed.criterion > select(5).criterion


@pytest.mark.parametrize(("cut", "gap"), [(0.0, 1.0), (np.log(3.0), 0.0)])
def test_decisions_are_made_at_the_cut(cut, gap):
    assert made_for(Fixed(column=1), cut=cut)(5).metrics["outcome_gap"] == gap


def test_the_first_quarter_is_not_returned_to():
    select = made_for(Fixed())
    assert [select(epoch).eligible for epoch in range(1, 9)] == [False] + [True] * 7


# --- Both methods of this kind -------------------------------------------------------------------------

QUICK = {"max_epochs": 8, "hidden_sizes": (16,), "device": "cpu", "random_state": 0}
BOTH = [AdversarialClassifier, LagrangianClassifier]
both = pytest.mark.parametrize("method", BOTH)


@both
@pytest.mark.slow
def test_it_halves_a_planted_gap_on_nine_of_ten_seeds(method):
    halved = 0
    for seed in range(10):
        data, test = make_biased(3000, seed=2 * seed), make_biased(3000, seed=2 * seed + 1)
        models = [
            each(max_epochs=24, device="cpu", random_state=seed).fit(data.X, data.y, **data.by)
            for each in (UnconstrainedClassifier, method)
        ]
        decisions = [model.predict(test.X).astype(float) for model in models]
        plain, fair = (gaps_of(each, test.y, test.groups)["eo"] for each in decisions)
        halved += fair <= 0.5 * plain
    assert halved >= 9


@pytest.mark.parametrize("key", ["lagrangian", "adversarial"])
@pytest.mark.parametrize("task", ["binary", "classes", "number"])
def test_its_rates_are_those_of_its_predictions_and_the_epoch_is_the_one_that_was_kept(key, task):
    data = make_biased_task(task, 1000)
    decision = {"threshold": 0.4} if task == "binary" else {}
    model = METHODS[key].estimator_for(task)(**QUICK, **decision).fit(data.X, data.y, **data.by)
    term = "adversary" if key == "adversarial" else "constraint"
    assert list(model.history_.columns)[:4] == ["epoch", "prediction", term, "total"]
    kept = model.history_[model.history_["epoch"] == model.n_epochs_].iloc[0]
    assert kept["outcome_gap"] == pytest.approx(task_gap(model, data), abs=1e-4)
    distances = (
        np.ptp(model.rates_, axis=1)
        if task != "classes"
        else np.abs(np.diff(model.rates_, axis=1)).sum(2) / 2
    )
    assert model.met_ == bool((distances <= model.max_gap).all())


@both
def test_what_is_learned_is_saved(method, tmp_path):
    data = make_biased(600)
    model = method(**QUICK).fit(data.X, data.y, **data.by)
    model.save(tmp_path / "model")
    twin = gcig.load(tmp_path / "model")
    for name in ("rates_", *method.fitted_attributes):
        assert np.array_equal(getattr(twin, name), getattr(model, name))
    assert (twin.met_, twin.n_epochs_) == (model.met_, model.n_epochs_)
    assert np.array_equal(twin.predict_proba(data.X), model.predict_proba(data.X))


@both
def test_without_early_stopping_the_last_epoch_is_kept(method):
    data = make_biased(600)
    model = method(**{**QUICK, "max_epochs": 3}, early_stopping=False).fit(data.X, data.y, **data.by)
    assert model.n_epochs_ == 3
    assert "val_auc" not in model.history_
