"""Attributions against Captum, finite differences and their own promises."""

import captum.attr
import pytest
import torch
from torch import nn

import gcig
from gcig.core import attribution as module_under_test
from gcig.core.attribution import (
    ATTRIBUTIONS,
    RULES,
    GradientTimesInput,
    IntegratedGradients,
    Score,
    choose_steps,
    register_attribution,
    resolve_attribution,
)
from gcig.core.task import TASKS, as_outputs
from support.networks import image_problem, token_problem
from support.problems import Formula, finite_differences, flat_gradient, make_problem

EVERY_TASK = pytest.mark.parametrize("key", list(TASKS))
EVERY_ATTRIBUTION = pytest.mark.parametrize("name", list(ATTRIBUTIONS))


def references_of(problem):
    return problem.baselines().of(problem.y)


def change(score, rows, references):
    """The difference of the scores at row and reference, (references, n)."""
    return (score(rows.unsqueeze(0)) - score(references)).detach()


# --- every attribution ---------------------------------------------------------------------------------


@EVERY_ATTRIBUTION
@EVERY_TASK
def test_of_a_linear_score_it_is_weight_times_difference(name, key):
    problem = make_problem(key, hidden=())
    references = references_of(problem)
    slope = problem.task.contrast(problem.y).double() @ problem.network.last.weight.detach()
    expected = slope * (problem.x - references)
    found = resolve_attribution(name).attribute(problem.score, problem.x, references)
    torch.testing.assert_close(found, expected)
    assert not found.requires_grad


@EVERY_ATTRIBUTION
@EVERY_TASK
def test_if_it_is_complete_it_adds_up_to_the_change_of_the_score(name, key):
    problem, how = make_problem(key), resolve_attribution(name)
    references = references_of(problem)
    if name == "integrated_gradients":
        how = IntegratedGradients(n_steps=16)
    found = how.attribute(problem.score, problem.x, references).sum(-1)
    expected = change(problem.score, problem.x, references)
    error = (found - expected).abs().max() / expected.abs().max()
    assert (error < 1e-6) == how.complete


@EVERY_ATTRIBUTION
@pytest.mark.parametrize("activation", ["silu", "relu"])
def test_rows_do_not_depend_on_each_other(name, activation, monkeypatch):
    problem, how = make_problem("classes", activation=activation), resolve_attribution(name)
    references = references_of(problem)
    whole = how.attribute(problem.score, problem.x, references)
    monkeypatch.setattr(module_under_test, "_BYTES_AT_ONCE", 1)
    torch.testing.assert_close(how.attribute(problem.score, problem.x, references), whole)
    alone = how.attribute(problem.score[5:6], problem.x[5:6], references[:, 5:6])
    torch.testing.assert_close(alone, whole[:, 5:6])


@EVERY_ATTRIBUTION
def test_parameter_gradients_are_those_of_finite_differences(name):
    problem, how = make_problem(n=12, columns=3, hidden=(4, 3)), resolve_attribution(name)
    references = references_of(problem)
    probe = torch.randn(2, 12, 3, generator=torch.Generator().manual_seed(1)).double()

    def value(**options):
        return (how.attribute(problem.score, problem.x, references, **options) * probe).sum()

    found = flat_gradient(value(create_graph=True), problem.network)
    torch.testing.assert_close(found, finite_differences(value, problem.network), rtol=1e-5, atol=1e-6)


@EVERY_ATTRIBUTION
@pytest.mark.parametrize("make", [token_problem, image_problem])
def test_tokens_and_images(name, make):
    network, x, y, _ = make()
    references = x.roll(1, 0).expand(3, *x.shape)
    score = Score.of(network, TASKS["binary"].of(y), y)
    found = resolve_attribution(name).attribute(score, x, references)
    assert found.shape == (3, *x.shape)
    assert network.training
    if name == "integrated_gradients":
        network.eval()
        fine = IntegratedGradients(n_steps=64).attribute(score, x, references)
        expected = change(score, x, references)
        torch.testing.assert_close(fine.flatten(2).sum(-1), expected, rtol=1e-3, atol=1e-3)


@EVERY_ATTRIBUTION
@pytest.mark.parametrize("activation", ["silu", "relu"])
def test_what_torch_is_set_to_does_not_matter(name, activation):
    problem, how = make_problem(activation=activation), resolve_attribution(name)
    references = references_of(problem)
    expected = how.attribute(problem.score, problem.x, references)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            torch.testing.assert_close(how.attribute(problem.score, problem.x, references), expected)
    assert how.attribute(problem.score, problem.x, references, create_graph=True).requires_grad


# --- integrated gradients ------------------------------------------------------------------------------


@EVERY_TASK
@pytest.mark.parametrize(
    ("rule", "method"), [("gauss_legendre", "gausslegendre"), ("midpoint", "riemann_middle")]
)
def test_quadrature_is_that_of_captum(key, rule, method):
    problem = make_problem(key)
    references = references_of(problem)
    contrast = problem.task.contrast(problem.y)

    def scores(rows, contrast):
        return (as_outputs(problem.network(rows), len(rows)) * contrast).sum(1)

    oracle = captum.attr.IntegratedGradients(scores)
    for group, start in enumerate(references):
        expected = oracle.attribute(
            problem.x, start, additional_forward_args=(contrast,), n_steps=7, method=method
        )
        found = IntegratedGradients(rule, 7).attribute(problem.score, problem.x, references)[group]
        torch.testing.assert_close(found, expected.to(found), rtol=1e-5, atol=1e-6)  # its nodes are float32


@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
def test_many_secants_are_captums_integral_of_kinks(activation):
    problem = make_problem(activation=activation, n=8)
    references = references_of(problem)
    oracle = captum.attr.IntegratedGradients(problem.network)
    expected = oracle.attribute(problem.x, references[1], n_steps=20_000, method="riemann_middle")
    found = IntegratedGradients(n_steps=2000).attribute(problem.score, problem.x, references)[1]
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-3 * float(expected.abs().max()))


@pytest.mark.parametrize("rule", [*RULES, "secant"])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_rule_becomes_complete(rule, seed):
    problem = make_problem(n=6, seed=seed)
    references = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(seed)).double()
    expected = change(problem.score, problem.x, references)
    errors = [
        (IntegratedGradients(rule, n).attribute(problem.score, problem.x, references).sum(-1) - expected)
        .abs()
        .max()
        for n in (4, 64)
    ]
    scale = float(expected.abs().max())
    assert errors[1] < (0.1 if rule == "right" else 2e-3) * scale
    assert errors[1] <= errors[0] + 1e-9
    assert rule != "secant" or errors[0] < 1e-7 * scale


def test_two_nodes_are_as_accurate_as_the_papers_sixteen():
    problem = make_problem(hidden=(64, 32), n=200, columns=10)
    references = references_of(problem)
    fine, two, sixteen = (
        IntegratedGradients(rule, n).attribute(problem.score, problem.x, references)
        for rule, n in (("gauss_legendre", 32), ("auto", 2), ("right", 16))
    )
    assert (two - fine).abs().sum() < (sixteen - fine).abs().sum()


@pytest.mark.parametrize("tolerance", [1e-2, 1e-5])
@pytest.mark.parametrize("activation", ["silu", "relu"])
def test_steps_are_chosen_for_a_tolerance(tolerance, activation):
    problem = make_problem(activation=activation)
    references = references_of(problem)
    how = choose_steps(IntegratedGradients(n_steps=1), problem.score, problem.x, references, tolerance)
    fine = IntegratedGradients(n_steps=256).attribute(problem.score, problem.x, references)
    found = how.attribute(problem.score, problem.x, references)
    assert (found - fine).abs().sum() <= 2 * tolerance * fine.abs().sum() or how.n_steps == 256


# --- scores and errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["(n,)", "(n, 1)"])
def test_modules_with_one_output_may_give_either_shape(shape):
    problem = make_problem()
    network = nn.Sequential(problem.network, nn.Unflatten(0, (-1, 1)))
    score = Score.of(network if shape == "(n, 1)" else problem.network, problem.task, problem.y)
    assert score(problem.x.unsqueeze(0)).shape == (1, 48)


@pytest.mark.parametrize(("task", "outputs"), [("binary", 2), ("classes", 1), ("classes", 2), ("number", 3)])
def test_outputs_that_do_not_fit_the_task_are_refused(task, outputs):
    problem = make_problem(task)
    score = Score.of(nn.Linear(4, outputs).double(), problem.task, problem.y)
    with pytest.raises(ValueError, match=rf"gives {outputs} outputs.*has {problem.task.n_outputs}"):
        score(problem.x.unsqueeze(0))


@EVERY_ATTRIBUTION
def test_a_module_without_gradients_is_refused(name):
    problem = make_problem()
    score = Score.of(Formula(lambda x: x.detach().sum(1)), problem.task, problem.y)
    with pytest.raises(ValueError, match="does not depend differentiably on its inputs"):
        resolve_attribution(name).attribute(score, problem.x, references_of(problem))


def test_secants_of_other_modules_and_unknown_rules_are_refused():
    problem = make_problem()
    score = Score.of(Formula(lambda x: x.square().sum(1)), problem.task, problem.y)
    for rule, message in (("secant", "needs a chain of linear layers"), ("romberg", "rule must be one of")):
        with pytest.raises(ValueError, match=message):
            IntegratedGradients(rule).attribute(score, problem.x, references_of(problem))


def test_an_attribution_of_ones_own_is_used_by_penalties(monkeypatch):
    class Doubled(GradientTimesInput):
        def attribute(self, score, rows, references, *, create_graph=False):
            return 2 * super().attribute(score, rows, references, create_graph=create_graph)

    monkeypatch.setattr(ATTRIBUTIONS, "data", dict(ATTRIBUTIONS.data))
    register_attribution("doubled", Doubled)
    problem = make_problem()
    options = {"references": "means", "random_state": 0}
    values = [
        gcig.ReasonGapPenalty(problem.baselines(), attribution=how, scale=scale, **options)(
            problem.network, problem.x, problem.y
        ).item()
        for how, scale in (("doubled", 2.0), ("gradient_times_input", 1.0), (Doubled(), 2.0))
    ]
    assert values == pytest.approx([values[0]] * 3)
    with pytest.raises(KeyError, match=r"no attribution 'tripled'.*doubled"):
        gcig.GCIGPenalty(problem.baselines(), attribution="tripled")
    with pytest.raises(ValueError, match="already registered"):
        gcig.register_attribution("doubled", Doubled)
