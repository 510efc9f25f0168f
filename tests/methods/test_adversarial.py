import math

import numpy as np
import pytest
import torch
from gcig.engine.optimizer import FlatAdamW
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from gcig._validation import InputError
from gcig.core.batch import GroupedBatch
from gcig.methods.adversarial import (
    AdversarialClassifier,
    AdversarialStep,
    Adversary,
    balanced_weights,
    debiased,
)
from gcig.methods.outcome_bounded import cell_members
from gcig.methods.unconstrained import UnconstrainedClassifier
from gcig.training.loop import Loop
from tables import gaps, make_biased

QUICK = {"max_epochs": 8, "hidden_sizes": (16,), "device": "cpu", "random_state": 0}
DATA, TEST = make_biased(), make_biased(seed=1)


def fitted(data=DATA, **parameters):
    return AdversarialClassifier(**{**QUICK, **parameters}).fit(data.X, data.y, **data.by)


# --- The direction of the predictor --------------------------------------------------------------------

vectors = st.integers(0, 10_000).map(
    lambda seed: torch.randn(2, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
)


@given(vectors, st.floats(0, 10))
def test_the_direction_is_that_of_the_paper(pair, alpha):
    predictor, adversary = pair
    unit = adversary / adversary.norm()
    expected = predictor - unit * (predictor @ unit) - alpha * adversary
    torch.testing.assert_close(debiased(predictor, adversary, alpha), expected)


@given(vectors, st.floats(0.01, 10))
def test_to_first_order_the_adversary_only_loses(pair, alpha):
    predictor, adversary = pair
    moved = -debiased(predictor, adversary, alpha)
    assert moved @ adversary == pytest.approx(alpha * (adversary @ adversary).item())


def test_an_adversary_without_gradient_changes_nothing():
    predictor = torch.tensor([1.0, -2.0])
    assert torch.equal(debiased(predictor, torch.zeros(2), alpha=5.0), predictor)


# --- The adversary -------------------------------------------------------------------------------------


def make_rows(n=400, n_groups=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randint(n_groups, (n,), generator=generator)
    labels = (torch.rand(n, generator=generator) < 0.2 + 0.5 * groups / (n_groups - 1)).long()
    inputs = torch.randn(n, 3, generator=generator)
    inputs[:, 0] += groups
    return GroupedBatch(inputs, labels, groups)


@pytest.mark.parametrize("n_groups", [2, 3])
def test_balanced_weights_count_groups_and_labels_alike(n_groups):
    rows = make_rows(n_groups=n_groups)
    weights = balanced_weights(cell_members(rows, n_groups))
    assert weights.mean().item() == pytest.approx(1.0)
    for y in range(2):
        for g in range(n_groups):
            share = weights[(rows.labels == y) & (rows.groups == g)].sum() / len(rows)
            assert share.item() == pytest.approx(1 / (2 * n_groups), rel=1e-5)


def test_balanced_weights_keep_the_proportions_within_a_cell():
    rows = make_rows()
    given_weights = torch.rand(400, generator=torch.Generator().manual_seed(1)) + 0.1
    weights = balanced_weights(cell_members(rows, 2, given_weights))
    cell = (rows.labels == 1) & (rows.groups == 0)
    share = given_weights[cell] / given_weights[cell].sum()
    torch.testing.assert_close(weights[cell] / weights[cell].sum(), share)


def test_the_adversary_sees_the_papers_inputs_and_the_label():
    adversary = Adversary(3, sharpness=2.0, cut=0.5)
    with torch.no_grad():
        adversary.weight.copy_(torch.arange(12.0).view(3, 4))
        adversary.bias.copy_(torch.tensor([0.1, 0.2, 0.3]))
    z, y = torch.tensor([0.5, 2.0]), torch.tensor([0.0, 1.0])
    s = torch.sigmoid(2.0 * (z - 0.5))
    seen = torch.stack([s, s * y, s * (1 - y), y], 1)
    torch.testing.assert_close(adversary(z, y), seen @ adversary.weight.T + adversary.bias)


def test_a_learned_sharpness_is_one_at_least():
    adversary = Adversary(2, sharpness="learned")
    assert len(list(adversary.parameters())) == 3
    assert len(list(Adversary(2, sharpness=10.0).parameters())) == 2
    with torch.no_grad():
        adversary.extra.fill_(-1.5)
        adversary.weight[:, 0] = torch.tensor([0.0, 1.0])
    z, y = torch.tensor([0.3]), torch.tensor([1.0])
    assert adversary(z, y)[0, 1].item() == pytest.approx(torch.sigmoid(2.5 * z).item())


def make_step(rows, network, weights=None, n_groups=2, learning_rate=2e-3, **parameters):
    chosen = AdversarialClassifier(**parameters)
    adversary = Adversary(n_groups, chosen.sharpness, chosen.cut)
    optimizers = (
        FlatAdamW(list(network.parameters()), learning_rate=learning_rate),
        FlatAdamW(list(adversary.parameters()), learning_rate=chosen.adversary_learning_rate),
    )
    members = cell_members(rows, n_groups, weights)
    loop = Loop(max_epochs=4, batch_size=100)
    return AdversarialStep(network, adversary, optimizers, rows, members, weights, loop, chosen, math.inf)


def test_an_adversary_against_a_fixed_predictor_is_the_best_logistic_regression():
    rows = make_rows(2000)
    network = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[1.0, 0.5, 0.0]]))
    step = make_step(rows, network, sharpness=2.0, learning_rate=0.0, adversary_steps=5)
    everyone = torch.arange(2000)
    for _ in range(200):
        terms = step(everyone)
    scores = network(rows.inputs).detach()
    s, y = torch.sigmoid(2.0 * scores).numpy(), rows.labels.numpy()
    seen = np.stack([s, s * y, s * (1 - y), y], 1)
    weights = balanced_weights(cell_members(rows, 2)).numpy()
    best = LogisticRegression(C=1e6, max_iter=2000).fit(seen, rows.groups.numpy(), sample_weight=weights)
    chances = best.predict_proba(seen)[np.arange(2000), rows.groups.numpy()]
    assert terms["adversary"].item() == pytest.approx(-(weights * np.log(chances)).mean(), abs=1e-3)
    assert terms["adversary"].item() < math.log(2) - 0.01


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_groups", [2, 3])
def test_the_predictor_moves_as_the_paper_says(weighted, n_groups):
    rows = make_rows(n_groups=n_groups)
    weights = torch.rand(400, generator=torch.Generator().manual_seed(1)) + 0.5 if weighted else None
    network = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 1), nn.Flatten(0))
    fixed = {"alpha": 2.0, "warm_up": 0.0, "learning_rate": 0.0, "adversary_learning_rate": 0.0}
    step = make_step(rows, network, weights, n_groups, **fixed)
    with torch.no_grad():
        step.adversary.weight.normal_(generator=torch.Generator().manual_seed(2))
    step.load()
    terms = step(torch.arange(400))

    scores, labels = network(rows.inputs), rows.labels.float()
    prediction = binary_cross_entropy_with_logits(scores, labels, weight=weights)
    told = cross_entropy(step.adversary(scores, labels), rows.groups, reduction="none")
    balanced = balanced_weights(cell_members(rows, n_groups, weights))
    told = (balanced * told).mean()
    parameters = list(network.parameters())

    def flat(loss):
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, retain_graph=True)])

    expected = debiased(flat(prediction), flat(told), 2.0)
    torch.testing.assert_close(torch.cat([p.grad.flatten() for p in parameters]), expected)
    torch.testing.assert_close(terms["prediction"], prediction.detach())
    torch.testing.assert_close(terms["adversary"], told.detach())
    torch.testing.assert_close(terms["total"], (prediction - 2.0 * told).detach())


def test_alpha_is_raised_in_even_steps():
    rows = make_rows()
    step = make_step(rows, nn.Linear(3, 1), alpha=3.0, warm_up=0.5)
    seen = []
    for _ in range(16):  # four epochs of four mini-batches
        step.load()
        seen.append(step.alpha)
    assert seen == pytest.approx([3.0 * min(1.0, (i + 1) / 8) for i in range(16)])


def test_parameters_that_play_no_part_do_not_move():
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(3, 1), nn.Parameter(torch.ones(2))
            self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)

        def forward(self, inputs):
            return self.used(inputs)[:, 0] + self.frozen.sum()

    rows, network = make_rows(), Partly()
    before = network.used.weight.clone()
    make_step(rows, network)(torch.arange(100))
    assert network.unused.tolist() == network.frozen.tolist() == [1.0, 1.0]
    assert not torch.equal(network.used.weight, before)


# --- The estimator -------------------------------------------------------------------------------------


def eo_gap(model, data=TEST):
    return gaps(model.predict(data.X).astype(float), data.y, data.groups)["eo"]


@pytest.mark.parametrize("sharpness", [10.0, "learned"])
def test_it_closes_most_of_the_gap_at_little_cost(sharpness):
    plain = UnconstrainedClassifier(**QUICK).fit(DATA.X, DATA.y, **DATA.by)
    model = fitted(max_epochs=16, sharpness=sharpness)
    assert eo_gap(model) < 0.5 * eo_gap(plain)
    auc = [roc_auc_score(TEST.y, each.decision_function(TEST.X)) for each in (plain, model)]
    assert auc[1] > auc[0] - 0.03


def test_three_groups():
    data, test = (make_biased(3000, seed=seed, groups=("a", "b", "c")) for seed in range(2))
    plain = UnconstrainedClassifier(**QUICK).fit(data.X, data.y, **data.by)
    model = fitted(data, max_epochs=16)
    assert model.rates_.shape == (2, 3)
    assert eo_gap(model, test) < 0.6 * eo_gap(plain, test)


def test_in_the_end_the_adversary_is_no_better_than_chance():
    model = fitted(early_stopping=False, max_epochs=16)
    assert model.history_["adversary"].iloc[-1] > math.log(2) - 0.005


def test_seeds_work_and_the_global_generator_is_left_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, again, other = fitted(), fitted(), fitted(random_state=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(first.decision_function(TEST.X), again.decision_function(TEST.X))
    assert not np.array_equal(first.decision_function(TEST.X), other.decision_function(TEST.X))


WRONG = {
    "alpha": [-1.0, math.inf, "3"],
    "max_gap": [-0.1, 1.5, None],
    "warm_up": [-0.1, 1.1],
    "adversary_learning_rate": [0, "auto"],
    "adversary_steps": [0, 1.5, True],
    "sharpness": [0, "sharp", None],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]])
def test_parameters_that_cannot_be_used_are_named(name, value):
    with pytest.raises(InputError, match=rf"^{name} must be .*, not .*\.$"):
        fitted(**{name: value})
