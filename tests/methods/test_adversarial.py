import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.nn.functional import cross_entropy, one_hot

from example_tables import make_biased, make_biased_task, task_gap
from gcig import InputError
from gcig.methods.adversarial import (
    AdversarialClassifier,
    AdversarialRegressor,
    Adversary,
    Debiasing,
    balanced_weights,
    debiased,
)
from gcig.methods.registry import METHODS
from support.games import make_data, make_game

QUICK = {"max_epochs": 8, "hidden_sizes": (16,), "device": "cpu", "random_state": 0}
DATA, TEST = make_biased(), make_biased(seed=1)
TASKS = ["binary", "classes", "number"]


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


def game_of(task, network=None, n=400, n_groups=2, weights=None, **parameters):
    rate = parameters.pop("rate", 0.0)
    more = {"n_warm": parameters.pop("n_warm")} if "n_warm" in parameters else {}
    data = make_data(task, n, n_groups, weights)
    network = network or nn.Linear(3, data.task.n_outputs)
    return make_game(Debiasing, AdversarialClassifier(**parameters), network, data, rate, **more)


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("task", TASKS)
def test_balanced_weights_count_groups_and_labels_alike(task, n_groups):
    game = game_of(task, n_groups=n_groups)
    assert game.balanced.mean().item() == pytest.approx(1.0)
    masses = (game.balanced[:, None, None] * game.members).sum(0)
    assert masses == pytest.approx(np.full(masses.shape, 400 / masses.numel()), rel=1e-4)


def test_balanced_weights_keep_the_proportions_within_a_cell():
    weights = torch.rand(400, generator=torch.Generator().manual_seed(1)) + 0.1
    game = game_of("binary", weights=weights)
    balanced, cell = balanced_weights(game.members), (game.rows.labels == 1) & (game.rows.groups == 0)
    torch.testing.assert_close(balanced[cell] / balanced[cell].sum(), weights[cell] / weights[cell].sum())


def test_of_two_classes_the_adversary_sees_the_papers_inputs_and_the_label():
    adversary = Adversary(1, 2, 3)
    with torch.no_grad():
        adversary.weight.copy_(torch.arange(12.0).view(3, 4))
        adversary.bias.copy_(torch.tensor([0.1, 0.2, 0.3]))
    s, y = torch.tensor([0.5, 0.2]), torch.tensor([0, 1])
    seen = torch.stack([s, s * (1 - y), s * y, y], 1)
    torch.testing.assert_close(adversary(s.unsqueeze(1), y), seen @ adversary.weight.T + adversary.bias)


def test_of_several_cells_it_sees_decisions_by_cell():
    adversary = Adversary(3, 4, 2)
    assert adversary.weight.shape == (2, 3 * (1 + 4) + 3)
    with torch.no_grad():
        adversary.weight.normal_(generator=torch.Generator().manual_seed(0))
    decisions, cells = torch.rand(5, 3), torch.tensor([0, 1, 2, 3, 3])
    products = torch.einsum("nd,nc->ndc", decisions, one_hot(cells, 4).float()).flatten(1)
    seen = torch.cat([decisions, products, one_hot(cells, 4)[:, 1:]], 1)
    torch.testing.assert_close(adversary(decisions, cells), seen @ adversary.weight.T)


def test_an_adversary_against_a_fixed_predictor_is_the_best_logistic_regression():
    network = nn.Linear(3, 1)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[1.0, 0.5, 0.0]]))
    game = game_of("binary", network, 2000, sharpness=2.0, adversary_steps=5)
    everyone = torch.arange(2000)
    for _ in range(200):
        terms = game(everyone)
    s = torch.sigmoid(2.0 * network(game.rows.inputs)[:, 0]).detach().numpy()
    y, groups = game.rows.labels.numpy(), game.rows.groups.numpy()
    seen = np.stack([s, s * y, s * (1 - y), y], 1)
    weights = game.balanced.numpy()
    best = LogisticRegression(C=1e6, max_iter=2000).fit(seen, groups, sample_weight=weights)
    chances = best.predict_proba(seen)[np.arange(2000), groups]
    assert terms["adversary"].item() == pytest.approx(-(weights * np.log(chances)).mean(), abs=1e-3)
    assert terms["adversary"].item() < math.log(2) - 0.01


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("task", TASKS)
def test_the_predictor_moves_as_the_paper_says(task, weighted, n_groups):
    weights = torch.rand(400, generator=torch.Generator().manual_seed(1)) + 0.5 if weighted else None
    n_outputs = 3 if task == "classes" else 1
    network = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, n_outputs))
    game = game_of(task, network, n_groups=n_groups, weights=weights, alpha=2.0, n_warm=0.0)
    game.of_adversary.param_groups[0]["lr"] = 0.0
    with torch.no_grad():
        game.adversary.weight.normal_(generator=torch.Generator().manual_seed(2))
    outputs, rows = network(game.rows.inputs), game.rows
    loss = game.task.loss(outputs, rows.labels) * (1.0 if weights is None else weights)
    decisions = game.task.soft_decisions(outputs, 1 / 5.0)
    inferred = cross_entropy(game.adversary(decisions, game.cells), rows.groups, reduction="none")
    inferred = (game.balanced * inferred).mean()
    parameters = list(network.parameters())

    def flat(loss):
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, retain_graph=True)])

    expected = debiased(flat(loss.mean()), flat(inferred), 2.0)
    terms = game(torch.arange(400))
    torch.testing.assert_close(torch.cat([p.grad.flatten() for p in parameters]), expected)
    torch.testing.assert_close(terms["prediction"], loss.mean().detach())
    torch.testing.assert_close(terms["adversary"], inferred.detach())
    torch.testing.assert_close(terms["total"], (loss.mean() - 2.0 * inferred).detach())


def test_alpha_is_raised_in_even_steps():
    game = game_of("binary", alpha=3.0, n_warm=8)
    terms = [game(torch.arange(100)) for _ in range(16)]
    alphas = [float((each["prediction"] - each["total"]) / each["adversary"]) for each in terms]
    assert alphas == pytest.approx([3.0 * min(1.0, (i + 1) / 8) for i in range(16)], rel=1e-4)


def test_parameters_that_play_no_part_do_not_move():
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(3, 1), nn.Parameter(torch.ones(2))
            self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)

        def forward(self, inputs):
            return self.used(inputs)[:, 0] + self.frozen.sum()

    network = Partly()
    before = network.used.weight.clone()
    game_of("binary", network, rate=0.1)(torch.arange(100))
    assert network.unused.tolist() == network.frozen.tolist() == [1.0, 1.0]
    assert not torch.equal(network.used.weight, before)


# --- The estimators ------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_it_closes_most_of_the_gap_at_a_stated_cost(task):
    data, test = make_biased_task(task), make_biased_task(task, seed=1)
    estimators = [METHODS[key].estimator_for(task) for key in ("unconstrained", "adversarial")]
    plain, model = (each(**{**QUICK, "max_epochs": 24}).fit(data.X, data.y, **data.by) for each in estimators)
    assert task_gap(model, test) < 0.6 * task_gap(plain, test)
    assert model.score(test.X, test.y) > plain.score(test.X, test.y) - 0.05


@pytest.mark.parametrize("outcome", ["equal_opportunity", "demographic_parity"])
def test_the_chosen_gap_is_closed(outcome):
    plain, model = fitted(alpha=0.0, max_epochs=16), fitted(outcome=outcome, max_epochs=16)
    assert task_gap(model, TEST, outcome) < 0.5 * task_gap(plain, TEST, outcome)


def test_an_outcome_that_the_task_does_not_define_is_refused():
    data = make_biased_task("number", 200)
    with pytest.raises(InputError, match="'equalized_odds', 'demographic_parity'") as error:
        AdversarialRegressor(**QUICK, outcome="equal_opportunity").fit(data.X, data.y, **data.by)
    assert error.value.argument == "outcome"


def test_three_groups():
    data, test = (make_biased(3000, seed=seed, groups=("a", "b", "c")) for seed in range(2))
    plain, model = fitted(data, alpha=0.0, max_gap=1.0), fitted(data, max_epochs=16)
    assert model.rates_.shape == (2, 3, 1)
    assert task_gap(model, test) < 0.6 * task_gap(plain, test)


def test_in_the_end_the_adversary_is_no_better_than_chance():
    model = fitted(early_stopping=False, max_epochs=16)
    assert model.history_["adversary"].iloc[-1] > math.log(2) - 0.005


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
