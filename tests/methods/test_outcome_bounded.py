import math

import numpy as np
import pytest
import torch
from torch import nn

import gcig
from gcig.core.batch import GroupedBatch
from gcig.methods.adversarial import AdversarialClassifier
from gcig.methods.lagrangian import LagrangianClassifier
from gcig.methods.outcome_bounded import (
    RateCheckpointSelector,
    cell_members,
    cell_rates,
    excess,
    gaps,
)
from gcig.methods.unconstrained import UnconstrainedClassifier
from gcig.metrics import group_rates
from tables import gaps as gaps_of
from tables import make_biased


def make_rows(n=300, n_groups=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return GroupedBatch(
        torch.randn(n, 2, generator=generator),
        torch.randint(2, (n,), generator=generator),
        torch.randint(n_groups, (n,), generator=generator),
    )


class Fixed(nn.Module):
    """A network whose logit is one of its columns, moved."""

    def __init__(self, column=0, shift=0.0):
        super().__init__()
        self.column, self.shift = column, shift

    def forward(self, inputs):
        return inputs[:, self.column] + self.shift


def test_rates_are_those_of_the_metrics():
    rows = make_rows()
    positive = rows.inputs[:, 0] >= 0
    rates = cell_rates(positive.double(), cell_members(rows, 3).double())
    found = group_rates(rows.labels.numpy(), positive.long().numpy(), sensitive_features=rows.groups.numpy())
    assert rates[0].tolist() == pytest.approx([group.fpr for group in found.values()])
    assert rates[1].tolist() == pytest.approx([group.tpr for group in found.values()])


def test_weights_count_in_rates():
    rows = GroupedBatch(torch.zeros(3, 1), torch.ones(3, dtype=torch.int64), torch.tensor([0, 0, 1]))
    members = cell_members(rows, 2, torch.tensor([3.0, 1.0, 5.0]))
    assert members[:, 2:].tolist() == [[3.0, 0.0], [1.0, 0.0], [0.0, 5.0]]
    assert cell_rates(torch.tensor([1.0, 0.0, 1.0]), members)[1].tolist() == [0.75, 1.0]


def test_gaps_and_their_excess():
    rates = torch.tensor([[0.1, 0.4, 0.2], [0.55, 0.5, 0.6]])
    assert gaps(rates).tolist() == pytest.approx([0.3, 0.1])
    assert excess(rates, 0.05) == pytest.approx(0.25 + 0.05)
    assert excess(rates, 0.2) == pytest.approx(0.1)
    assert excess(rates, 0.31) == 0.0


def made_for(network, max_gap=0.05, **parameters):
    """Rows on which column 0 predicts the label alike in both groups, and column 1 that of group 1 only."""
    n = 400
    labels, groups = torch.arange(n) % 2, torch.arange(n) // 2 % 2
    sign = 2.0 * labels - 1
    inputs = torch.stack(
        [torch.where(torch.arange(n) % 10 < 8, sign, -sign), torch.where(groups == 1, sign, -1.0)], 1
    )
    rows = GroupedBatch(inputs, labels, groups)
    return RateCheckpointSelector(network, rows[300:], rows[:300], 2, max_gap, max_epochs=8, **parameters)


def test_an_epoch_that_meets_the_bound_ranks_first():
    fair, unfair = Fixed(column=0), Fixed(column=1)
    judge = made_for(fair)
    met = judge(5)
    judge.network = unfair
    missed = judge(6)
    assert met.metrics["tpr_gap"] == met.metrics["fpr_gap"] == 0
    assert met.criterion == pytest.approx(1 - met.metrics["val_auc"])
    assert (missed.metrics["tpr_gap"], missed.metrics["fpr_gap"]) == (1, 0)
    assert missed.criterion == pytest.approx(1 + (1 - 0.05))
    assert met.metrics["val_log_loss"] > 0


def test_a_model_that_predicts_everyone_alike_does_not_meet_the_bound():
    judge = made_for(Fixed(column=0))
    judge(1)
    judge.network = Fixed(column=0, shift=5.0)
    collapsed = judge(4)
    assert collapsed.metrics["tpr_gap"] == collapsed.metrics["fpr_gap"] == 0
    judge.network = Fixed(column=1)
    assert collapsed.criterion > judge(5).criterion


@pytest.mark.parametrize(("cut", "gap"), [(0.0, 1.0), (math.log(3.0), 0.0)])
def test_decisions_are_made_at_the_cut(cut, gap):
    assert made_for(Fixed(column=1), cut=cut)(5).metrics["tpr_gap"] == gap


def test_the_first_quarter_is_not_returned_to():
    judge = made_for(Fixed())
    assert [judge(epoch).eligible for epoch in range(1, 9)] == [False] + [True] * 7


def test_rates_are_those_of_all_rows_and_auc_that_of_validation():
    rows = make_rows(200, 2)
    judge = RateCheckpointSelector(Fixed(), rows[:50], rows[50:], 2, 0.0, max_epochs=1)
    found = judge(1).metrics
    positive = (rows.inputs[:, 0] >= 0).long().numpy()
    rates = group_rates(rows.labels.numpy(), positive, sensitive_features=rows.groups.numpy())
    assert found["tpr_gap"] == pytest.approx(abs(rates["0"].tpr - rates["1"].tpr))
    positives = rows.inputs[:50, 0][rows.labels[:50] == 1]
    negatives = rows.inputs[:50, 0][rows.labels[:50] == 0]
    assert found["val_auc"] == pytest.approx((positives[:, None] > negatives).float().mean().item())


# --- Both methods of this kind -------------------------------------------------------------------------

QUICK = {"max_epochs": 8, "hidden_sizes": (16,), "device": "cpu", "random_state": 0}
DATA = make_biased()
both = pytest.mark.parametrize("method", [AdversarialClassifier, LagrangianClassifier])


def fitted(method, **parameters):
    return method(**{**QUICK, **parameters}).fit(DATA.X, DATA.y, **DATA.by)


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


@both
def test_its_rates_are_those_of_its_predictions(method):
    model = fitted(method, threshold=0.4)
    found = group_rates(DATA.y, model.predict(DATA.X), sensitive_features=DATA.groups)
    assert model.rates_[0].tolist() == pytest.approx([found[group].fpr for group in model.groups_])
    assert model.rates_[1].tolist() == pytest.approx([found[group].tpr for group in model.groups_])
    assert model.met_ == bool((np.ptp(model.rates_, axis=1) <= model.max_gap).all())


@both
def test_history_the_epoch_that_was_kept_and_what_is_saved(method, tmp_path):
    sharpness = {"sharpness": "learned"} if method is AdversarialClassifier else {}
    model = fitted(method, **sharpness)
    term = "adversary" if method is AdversarialClassifier else "constraint"
    assert list(model.history_.columns) == [
        *("epoch", "prediction", term, "total"),
        *("val_log_loss", "val_auc", "tpr_gap", "fpr_gap"),
    ]
    kept = model.history_[model.history_["epoch"] == model.n_epochs_].iloc[0]
    # The kept network is that epoch's: its rates over the rows of fit are the ones that were judged.
    assert np.ptp(model.rates_[1]) == pytest.approx(kept["tpr_gap"], abs=1e-6)
    assert np.ptp(model.rates_[0]) == pytest.approx(kept["fpr_gap"], abs=1e-6)
    model.save(tmp_path / "model")
    twin = gcig.load(tmp_path / "model")
    for name in ("rates_", *method.fitted_attributes):
        assert np.array_equal(getattr(twin, name), getattr(model, name))
    assert (twin.met_, twin.n_epochs_, twin.sharpness) == (model.met_, model.n_epochs_, model.sharpness)
    assert twin.history_.equals(model.history_)
    assert np.array_equal(twin.predict_proba(DATA.X), model.predict_proba(DATA.X))


@both
def test_without_early_stopping_the_last_epoch_is_kept(method):
    model = fitted(method, early_stopping=False, max_epochs=3)
    assert model.n_epochs_ == 3
    assert "val_auc" not in model.history_
