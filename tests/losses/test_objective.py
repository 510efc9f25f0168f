"""Objectives: named terms, engine against autograd, and that every change of a term changes training."""

import math
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from gcig.engine.network_pass import NetworkPass
from gcig.engine.optimizer import flat_parameters
from gcig.losses import gcig as gcig_module
from gcig.losses import objective as objective_module
from gcig.losses import outcome
from gcig.losses import terms as terms_module
from gcig.losses.gcig import GCIGPenalty
from gcig.losses.objective import Objective, ObjectiveGradient, _agree
from gcig.losses.outcome import EqualizedOddsLoss
from gcig.losses.standard_terms import StandardTerms
from gcig.losses.terms import (
    AttributeTerm,
    ColumnTerm,
    ConsistencyTerm,
    MiniBatch,
    OutcomeTerm,
    PredictionTerm,
    ReasonTerm,
    SelectionTerm,
)
from torch import nn
from torch.testing import assert_close

from gcig.core import disparity as core_disparity
from gcig.core.references import GroupBaselines, GroupMembers
from gcig.models.mlp import MLP

N, EXTRA, EXPLAINED = 64, 10, 24
WEIGHTS = {
    "outcome": 0.1,
    "attribute": 0.2,
    "gcig": 0.3,
    "gcig_members": 0.25,
    "consistency": 0.2,
    "column_shortfall": 0.15,
}


class Problem:
    """Training rows, the mini-batches made of them, and an objective with every term."""

    def __init__(self, n_groups=2, *, weighted=False, origin=None, dtype=torch.float32):
        generator = torch.Generator().manual_seed(3)
        self.n_groups, self.origin = n_groups, origin
        self.inputs = torch.randn(N + EXTRA, 5, generator=generator).to(dtype)
        self.labels = torch.randint(0, 2, (N,), generator=generator)
        self.groups = torch.randint(0, n_groups, (N,), generator=generator)
        self.targets = torch.rand(N + EXTRA, generator=generator).to(dtype)
        self.weights = torch.rand(N + EXTRA, generator=generator).to(dtype) + 0.1 if weighted else None

    def batch(self, module, rows):
        """Return a mini-batch of rows and all synthetic points; the first points are paired with rows."""
        count, chosen = len(rows), torch.cat([rows, torch.arange(N, N + EXTRA)])
        positions = torch.arange(min(EXTRA, count) // 2)
        targets = self.targets[chosen]
        targets[positions + count] = targets[
            positions
        ]  # the teacher's decisions do not depend on the attribute
        return MiniBatch(
            module,
            self.inputs[chosen],
            self.labels[rows],
            self.groups[rows],
            targets,
            None if self.weights is None else self.weights[chosen],
            pairs=torch.stack([positions, positions + count]),
            n_explained=min(EXPLAINED, count),
        )

    def objective(self, penalty_class=GCIGPenalty, loss=EqualizedOddsLoss, **options):
        data = (self.inputs[:N], self.labels, self.groups)
        means = GroupBaselines.from_data(*data, rate=0.05)
        members = GroupMembers(*data, n_members=3, random_state=0)
        of_mean, of_members = (
            penalty_class(references, origin=self.origin, **options) for references in (means, members)
        )
        return Objective(
            {
                "prediction": PredictionTerm(),
                "outcome": OutcomeTerm(loss(self.n_groups)),
                "attribute": AttributeTerm(cut=0.1, temperature=0.3),
                "gcig": ReasonTerm(of_mean),
                "gcig_members": ReasonTerm(of_members),
                "consistency": ConsistencyTerm(of_mean, of_members),
                "column_shortfall": ColumnTerm(of_mean, 5.0),
            }
        )

    def steps(self, objective, network=None, *, engine=True, weights=WEIGHTS, sizes=(N,)):
        """Return terms and flat gradients of mini-batches, and whether the engine computed them."""
        if network is None:
            torch.manual_seed(0)
            network = MLP(5, (8, 4)).to(self.inputs.dtype)
        terms, gradients = [], []
        with flat_parameters(network) as (flat,):
            gradient = ObjectiveGradient(objective, network, lambda rows: self.batch(network, rows), N)
            if not engine:
                gradient.engine = None
            for size in sizes:
                terms.append(gradient(torch.arange(size), weights))
                gradients.append(flat.grad.clone())
        return terms, gradients, gradient.engine is not None

    def gradient(self, objective, network=None, **options):
        _, (found,), by_engine = self.steps(objective, network, **options)
        return found, by_engine


def without(*names):
    return {name: weight for name, weight in WEIGHTS.items() if name not in names}


CASES = {
    "default": ({}, {}),
    "weighted": ({"weighted": True}, {}),
    "three groups": ({"n_groups": 3}, {}),
    "blocks": ({"origin": torch.tensor([0, 0, 1, 2, 2])}, {}),
    "means": ({}, {"weights": without("gcig_members", "consistency")}),
    "members": ({}, {"weights": without("gcig", "consistency", "column_shortfall")}),
    "outcome": ({}, {"weights": {"outcome": 0.1}}),
    "prediction": ({}, {"weights": {}}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("activation", ["silu", "relu"])
def test_engine_and_autograd_agree(case, activation):
    made, options = CASES[case]
    problem = Problem(**made, dtype=torch.float64)
    found = []
    for engine in (True, False):
        torch.manual_seed(0)
        network = MLP(5, (8, 4), activation=activation).double()
        found.append(
            problem.steps(problem.objective(), network, engine=engine, sizes=(48, 7, 48, 20), **options)
        )
    (terms, gradients, by_engine), (expected_terms, expected, by_autograd) = found
    assert by_engine
    assert not by_autograd
    assert_close(terms, expected_terms, rtol=1e-7, atol=1e-9)
    assert_close(gradients, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("case", ["default", "outcome", "members"])
def test_a_graph_of_each_term_gives_the_gradient_of_one_graph(case, monkeypatch):
    """Recorded steps differentiate every term in a branch of its own."""
    made, options = CASES[case]
    problem = Problem(**made, dtype=torch.float64)
    terms, gradients, _ = problem.steps(problem.objective(), **options)
    monkeypatch.setattr(objective_module, "forks", lambda: True)
    in_branches, of_branches, by_engine = problem.steps(problem.objective(), **options)
    assert by_engine
    assert_close(in_branches, terms)
    assert_close(of_branches, gradients)


def test_a_term_without_gradient_has_a_branch_too(monkeypatch):
    problem = Problem(dtype=torch.float64)
    objective = problem.objective().with_term("constant", lambda batch: batch.inputs.sum(), weight=2.0)
    terms, gradients, _ = problem.steps(objective)
    monkeypatch.setattr(objective_module, "forks", lambda: True)
    again = problem.objective().with_term("constant", objective.terms["constant"], weight=2.0)
    in_branches, of_branches, by_engine = problem.steps(again)
    assert by_engine
    assert_close(in_branches, terms)
    assert_close(of_branches, gradients)
    assert_close(terms[0]["constant"], problem.inputs.sum())


def test_steps_are_recorded_on_a_gpu_with_their_weights_in_one_tensor_per_set_of_terms(monkeypatch):
    problem, network = Problem(), MLP(5, (8, 4))
    objective = problem.objective()
    with flat_parameters(network):
        gradient = ObjectiveGradient(objective, network, lambda rows: problem.batch(network, rows), N)
        assert not gradient.can_be_recorded  # on a CPU
        monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True), raising=False)
        assert gradient.can_be_recorded
        names = gradient.load(WEIGHTS)
        vector = gradient._vectors[names]
        assert_close(vector, torch.tensor(list(objective.active_weights(WEIGHTS).values())))
        assert gradient.load({**WEIGHTS, "gcig": 0.7}) == names
        assert gradient._vectors[names] is vector  # a recorded step reads it again
        assert float(vector[names.index("gcig")]) == pytest.approx(0.7)
        gradient.load({"gcig": 0.5})
        assert len(gradient._vectors) == 2
        gradient.engine = None
        assert not gradient.can_be_recorded


@pytest.mark.parametrize(("max_bytes", "readable"), [(64 * 3728, True), (64 * 3728 - 1, False)])
def test_a_compiled_penalty_is_readable_if_its_rows_fit_into_memory(max_bytes, readable, monkeypatch):
    problem = Problem()
    data = (problem.inputs[:N], problem.labels, problem.groups)
    penalty = GCIGPenalty(GroupBaselines.from_data(*data), max_bytes=max_bytes)
    arguments = MLP(5, (8, 4)), *data[:2], penalty.references.values, None
    chosen = []
    monkeypatch.setattr(objective_module, "untraced", lambda function: lambda *_: chosen.append(function))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert objective_module.fused_penalty(penalty, *arguments) is None
    assert chosen == ([] if readable else [objective_module._fused_penalty])


def test_weights_may_be_a_tensor():
    problem = Problem()
    objective, batch = problem.objective(), problem.batch(MLP(5, (8, 4)), torch.arange(20))
    names = list(objective.active_weights(WEIGHTS))
    vector = torch.arange(1.0, len(names) + 1)
    found = objective(batch, WEIGHTS, vector)
    assert_close(found["total"], sum(vector[i] * found[name] for i, name in enumerate(names)))


def test_an_objective_is_recorded_only_if_every_term_says_that_it_can_be():
    objective = Problem().objective().with_term("selection", SelectionTerm(0.0, 1.0), weight=1.0)
    assert objective.can_be_recorded
    assert not objective.with_term("size", lambda batch: batch.logits.mean(), weight=1.0).can_be_recorded


def test_results_agree_relative_to_the_largest_of_them():
    """Losses that are not numbers agree with losses that are not numbers either."""
    large, zero, nan = torch.tensor(100.0), torch.tensor(0.0), torch.tensor(math.nan)
    assert _agree({"a": large, "b": zero + 0.9e-3}, {"a": large, "b": zero})
    assert not _agree({"a": large, "b": zero + 1.1e-3}, {"a": large, "b": zero})
    assert _agree({"a": torch.stack([large, zero + 0.9e-3])}, {"a": torch.stack([large, zero])})
    assert _agree({"a": nan, "b": zero}, {"a": nan, "b": zero})
    assert not _agree({"a": zero}, {"a": nan})
    assert not _agree({"a": zero, "b": zero}, {"a": zero})
    assert not _agree({"a": zero + 1, "b": nan}, {"a": zero, "b": torch.tensor(math.inf)})


@pytest.mark.parametrize("engine", [True, False])
def test_total_is_the_weighted_sum_of_the_terms(engine):
    problem = Problem()
    (terms,), _, _ = problem.steps(problem.objective(), engine=engine)
    assert terms.keys() == {"prediction", *WEIGHTS, "total"}
    assert all(value > 0 for value in terms.values())
    expected = terms["prediction"] + sum(weight * terms[name] for name, weight in WEIGHTS.items())
    assert_close(terms["total"], expected)


def test_targets_train_predictions_and_labels_choose_references():
    problem, other = Problem(), Problem()
    other.targets = 1 - other.targets
    (terms,), _, _ = problem.steps(problem.objective())
    (changed,), _, _ = other.steps(other.objective())
    assert terms["prediction"] != changed["prediction"]
    assert all(terms[name] == changed[name] for name in WEIGHTS)


def test_row_without_attributions_is_left_out_and_counted():
    problem = Problem(dtype=torch.float64)
    found = []
    for engine in (True, False):
        objective = problem.objective()
        penalty = objective.terms["gcig"].penalty
        penalty.references.rate = 0.0
        penalty.references.values[problem.labels[0], 0] = problem.inputs[0]  # the row is its own reference
        found.append(problem.gradient(objective, engine=engine, weights=without("gcig_members"))[0])
        assert penalty.n_undefined == 1
    assert_close(*found, rtol=1e-6, atol=1e-9)


# --- terms -------------------------------------------------------------------------------------------


def small_batch():
    codes = torch.zeros(3, dtype=torch.int64)
    return MiniBatch(nn.Linear(2, 1), torch.ones(3, 2), codes, codes, torch.zeros(3))


def test_terms_without_weight_are_not_computed():
    objective = Objective({"prediction": PredictionTerm(), "other": lambda _: 1 / 0})
    assert objective(small_batch(), {"other": 0.0}).keys() == {"prediction", "total"}


def test_terms_must_be_scalars():
    objective = Objective({"logits": lambda batch: batch.logits}, {"logits": 1.0})
    with pytest.raises(ValueError, match=r"term 'logits' must return a scalar, not shape \(3,\)"):
        objective(small_batch(), {})


def test_with_term_adds_and_replaces():
    objective = Objective({"prediction": PredictionTerm()})
    with pytest.raises(ValueError, match="needs a weight"):
        objective.with_term("size", lambda batch: batch.logits.mean())
    larger = objective.with_term("size", lambda batch: batch.logits.square().mean(), weight=0.5)
    assert larger.weights == {"size": 0.5}
    assert larger.with_term("prediction", lambda batch: batch.logits.mean()).weights == {"size": 0.5}
    assert list(objective.terms) == ["prediction"]


@pytest.mark.parametrize("wrong", [{"terms": {"total": PredictionTerm()}}, {"weights": {"a": float("nan")}}])
def test_wrong_objectives_are_refused(wrong):
    with pytest.raises(ValueError, match=r"total|finite"):
        Objective(**{"terms": {"prediction": PredictionTerm()}, **wrong})


def test_attribute_term_is_zero_within_its_limits_and_without_pairs():
    batch, term = small_batch(), AttributeTerm(cut=1.0, temperature=2.0)
    assert term(batch) == 0
    soft = torch.tensor([0.5, 0.75, 0.25], dtype=torch.float64)  # decisions of a row and of two copies
    batch.__dict__["logits"] = (1 + 2 * torch.logit(soft)).requires_grad_()
    batch.pairs = torch.tensor([[0, 0], [1, 2]])
    batch.targets = torch.sigmoid(1 + 2 * torch.logit(torch.tensor([0.5, 0.6, 0.5], dtype=torch.float64)))
    value = term(batch)
    assert value.item() == pytest.approx((0.25 + 0.25) / 2 - (0.1 + 0.0) / 2)
    value.backward()
    slope = 0.75 * 0.25 / 2 / 2  # of a soft decision, and of the mean of two pairs
    assert batch.logits.grad.tolist() == pytest.approx([0.0, slope, -slope])
    batch.targets = torch.sigmoid(1 + 2 * torch.logit(torch.tensor([0.5, 0.9, 0.2], dtype=torch.float64)))
    assert term(batch) == 0  # the teacher's decisions depend on the attribute even more


def test_the_attribute_term_of_decisions_counts_them_and_has_the_gradient_of_smoothed_ones():
    batch, term = small_batch(), AttributeTerm(cut=0.5, temperature=2.0, of_decisions=True)
    assert term(batch) == 0
    batch.__dict__["logits"] = torch.tensor([0.4, 0.6, 0.3], dtype=torch.float64).requires_grad_()
    batch.pairs = torch.tensor([[0, 0], [1, 2]])
    batch.targets = torch.full((3,), 0.9, dtype=torch.float64)
    value = term(batch)
    assert value.item() == pytest.approx(0.5)  # one of two decisions changes; for the teacher none does
    value.backward()
    found, batch.__dict__["logits"] = batch.logits.grad, batch.logits.detach().clone().requires_grad_()
    AttributeTerm(cut=0.5, temperature=2.0)(batch).backward()
    assert found.tolist() == pytest.approx(batch.logits.grad.tolist())
    batch.targets = torch.sigmoid(torch.tensor([0.4, 0.6, 0.3], dtype=torch.float64))
    assert term(batch) == 0
    # A limit replaces the teacher's share of decisions.
    limited = AttributeTerm(cut=0.5, temperature=2.0, of_decisions=True, most=0.3)
    assert limited(batch).item() == pytest.approx(0.2)


def test_consistency_is_zero_for_equal_references_and_holds_members_fixed():
    problem = Problem(dtype=torch.float64)
    network = MLP(5, (8, 4)).double()
    batch = problem.batch(network, torch.arange(N))
    objective = problem.objective()
    penalty = objective.terms["gcig"].penalty
    assert ConsistencyTerm(penalty, penalty)(batch) == 0
    term = objective.terms["consistency"]
    leaves = [batch.attributions(each).detach().requires_grad_() for each in term.penalties]
    batch.known = {id(each): leaf for each, leaf in zip(term.penalties, leaves, strict=True)}
    of_mean, of_members = torch.autograd.grad(term(batch), leaves, allow_unused=True)
    assert of_mean.any()
    assert of_members is None


def test_column_term_is_inactive_with_enough_columns():
    problem = Problem()
    few = problem.objective()
    few.terms["column_shortfall"] = ColumnTerm(few.terms["gcig"].penalty, 0.5)
    (terms,), (gradient,), _ = problem.steps(few)
    assert terms["column_shortfall"] == 0
    expected, _ = problem.gradient(problem.objective(), weights=without("column_shortfall"))
    assert_close(gradient, expected)


# --- references and engine ---------------------------------------------------------------------------


def count_calls(monkeypatch, owner, name):
    calls, original = [], getattr(owner, name)

    def counted(*args, **options):
        calls.append(args)
        return original(*args, **options)

    monkeypatch.setattr(owner, name, counted)
    return calls


def test_references_that_penalties_share_follow_each_batch_once(monkeypatch):
    problem = Problem()
    objective = problem.objective()
    means = objective.terms["gcig"].penalty.references
    shared = objective.with_term("other", ReasonTerm(GCIGPenalty(means, norm="l2")), weight=0.1)
    calls = count_calls(monkeypatch, GroupBaselines, "update")
    problem.steps(shared, sizes=(20, 20, 20))
    assert len(calls) == 3


def test_engine_explains_for_terms_of_any_name(monkeypatch):
    problem = Problem()
    known = problem.objective().terms
    renamed = Objective({"prediction": known["prediction"], "mine": known["gcig"]}, {"mine": 0.3})
    calls = count_calls(monkeypatch, NetworkPass, "explain")
    found, by_engine = problem.gradient(renamed, weights={})
    assert by_engine
    assert len(calls) == 2  # the comparison with autograd, and the step
    expected, _ = problem.gradient(problem.objective(), weights={"gcig": 0.3})
    assert_close(found, expected)


def test_engine_explains_only_for_terms_that_count(monkeypatch):
    problem = Problem()
    calls = count_calls(monkeypatch, NetworkPass, "explain")
    problem.gradient(problem.objective(), weights={"gcig": 0.0, "outcome": 0.1})
    assert len(calls) == 1  # the comparison with autograd


def test_plain_training_needs_no_graph(monkeypatch):
    problem = Problem(weighted=True)
    calls = count_calls(monkeypatch, NetworkPass, "train_on_cross_entropy")
    plain, _ = problem.gradient(Objective({"prediction": PredictionTerm()}), weights={})
    assert len(calls) == 2  # the comparison with autograd, and the step
    own, _ = problem.gradient(Objective({"prediction": OwnPrediction()}), weights={})
    assert len(calls) == 2  # another term may have another gradient
    assert_close(own, 2 * plain)


def test_a_penalty_is_compared_with_the_engine_once_for_each_network(monkeypatch):
    problem = Problem()
    penalty = GCIGPenalty(GroupBaselines.from_data(problem.inputs[:N], problem.labels, problem.groups))
    calls = count_calls(monkeypatch, GCIGPenalty, "readable")
    networks = [MLP(5, (8, 4)), MLP(5, (4, 2))]
    for network, known in zip([*networks[:1] * 3, *networks[1:] * 2], (1, 1, 1, 2, 2), strict=True):
        penalty(network, problem.inputs[:N], problem.labels)
        assert len(calls) == known


class OwnPrediction(PredictionTerm):
    def __call__(self, batch):
        return 2 * super().__call__(batch)


def test_term_that_does_not_name_its_penalty_goes_through_autograd():
    problem = Problem(dtype=torch.float64)
    objective = problem.objective()
    term = objective.terms["gcig"]
    hidden = Objective({"prediction": PredictionTerm(), "gcig": lambda batch: term(batch)})
    term.penalty.references.rate = 0.0
    found, by_engine = problem.gradient(hidden)
    assert not by_engine
    named = Objective({"prediction": PredictionTerm(), "gcig": term})
    expected, by_engine = problem.gradient(named)
    assert by_engine
    assert_close(found, expected, rtol=1e-6, atol=1e-9)


class OwnOutcome(EqualizedOddsLoss):
    """A loss that may compute anything."""


@pytest.mark.parametrize(("loss", "standard"), [(EqualizedOddsLoss(8), True), (EqualizedOddsLoss(9), False)])
def test_outcomes_of_few_groups_are_standard_unless_a_class_is_ones_own(loss, standard):
    assert bool(StandardTerms({"outcome": OutcomeTerm(loss)}).terms) == standard
    assert not StandardTerms({"outcome": OutcomeTerm(OwnOutcome(loss.n_groups))}).terms


def test_a_penalty_that_is_compared_with_another_kind_is_not_standard():
    problem = Problem()
    term = ReasonTerm(
        GCIGPenalty(GroupBaselines.from_data(problem.inputs[:N], problem.labels, problem.groups))
    )
    assert list(StandardTerms({"gcig": term}).terms) == ["gcig"]
    assert not StandardTerms({"own": SimpleNamespace(penalties=[object()]), "gcig": term}).terms


def test_attributions_that_no_term_uses_have_no_gradient():
    problem, network = Problem(), MLP(5, (4,))
    standard = StandardTerms(problem.objective().terms)
    batch, attributions = problem.batch(network, torch.arange(N)), torch.ones(2, EXPLAINED, 5)
    logits = network(batch.inputs).detach()
    for given, expected in ((attributions, torch.zeros_like(attributions)), (None, None)):
        pulled = standard.pull(batch, logits, given, [], {"prediction": 1.0})
        assert_close(pulled.d_attributions, expected)
        assert pulled.d_logits.any()


def tied():
    layer = nn.Linear(5, 5)
    return nn.Sequential(layer, nn.SiLU(), layer, nn.SiLU(), nn.Linear(5, 1), nn.Flatten(0))


def hooked():
    network = MLP(5, (8,))
    network[0].weight.register_hook(torch.zeros_like)
    return network


def frozen():
    network = MLP(5, (8,))
    network[0].weight.requires_grad_(False)
    return network


def with_dropout():
    return nn.Sequential(nn.Linear(5, 4), nn.SiLU(), nn.Dropout(0.5), nn.Linear(4, 1), nn.Flatten(0))


@pytest.mark.parametrize("make", [tied, hooked, frozen, with_dropout])
def test_networks_that_the_engine_would_get_wrong_go_through_autograd(make):
    problem = Problem(dtype=torch.float64)
    network = make().double()
    plain = deepcopy(network)
    objective, twin = problem.objective(), problem.objective()
    torch.manual_seed(1)
    gradient, by_engine = problem.gradient(objective, network)
    assert not by_engine
    batch = problem.batch(plain, torch.arange(N))
    for penalty in twin.penalties():
        penalty.references.update(batch.inputs[:N], batch.labels, batch.groups)
    torch.manual_seed(1)
    twin(batch, WEIGHTS)["total"].backward()
    expected = [parameter.grad.flatten() for parameter in plain.parameters() if parameter.requires_grad]
    if make is hooked:  # copies have no hooks
        expected[0].zero_()
    assert_close(gradient, torch.cat(expected))


# --- every change of a term changes training ---------------------------------------------------------


class SquaredPenalty(GCIGPenalty):
    """A penalty that compares explanations in its own way."""

    def compare(self, attributions):
        return super().compare(attributions).square()


class GradientPenalty(GCIGPenalty):
    """A penalty that explains in its own way: gradients at the row instead of along a path."""

    def attribute(self, module, x, y, references):
        x = x.clone().requires_grad_()
        (slopes,) = torch.autograd.grad(module(x).sum(), x, create_graph=torch.is_grad_enabled())
        references = references.flatten(1, 2) if references.dim() > 3 else references
        return (x.detach() - references.transpose(0, 1)[:, y]) * slopes


class SquaredOdds(EqualizedOddsLoss):
    """An outcome loss of its own."""

    def forward(self, logits, labels, groups, *, sample_weight=None):
        return super().forward(logits, labels, groups, sample_weight=sample_weight).square()


CHANGES = {
    "compare": lambda problem: problem.objective(SquaredPenalty),
    "attribute": lambda problem: problem.objective(GradientPenalty),
    "norm": lambda problem: problem.objective(norm="l2"),
    "outcome loss": lambda problem: problem.objective(loss=SquaredOdds),
    "prediction": lambda problem: problem.objective().with_term(
        "prediction", lambda batch: (batch.logits.sigmoid() - batch.targets).square().mean()
    ),
    "columns": lambda problem: problem.objective().with_term(
        "column_shortfall", lambda batch: batch.logits.abs().mean()
    ),
    "added": lambda problem: problem.objective().with_term(
        "size", lambda batch: batch.logits.square().mean(), weight=0.5
    ),
    "added, of parameters": lambda problem: problem.objective().with_term(
        "decay", lambda batch: sum(each.square().sum() for each in batch.module.parameters()), weight=0.1
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_objective_has_its_own_gradient(change):
    problem = Problem(dtype=torch.float64)
    plain, by_engine = problem.gradient(problem.objective())
    assert by_engine
    found, by_engine = problem.gradient(CHANGES[change](problem))
    assert by_engine == (change not in ("attribute", "added, of parameters"))
    expected, _ = problem.gradient(CHANGES[change](problem), engine=False)
    assert_close(found, expected, rtol=1e-6, atol=1e-8)
    assert not torch.allclose(found, plain, rtol=1e-3)


EDITS = {
    "disparity": core_disparity,
    "normalise": core_disparity,
    "pairwise_gap": outcome,
    "column_shortfall": terms_module,
    "binary_cross_entropy_with_logits": terms_module,
    "cell_secant_attributions": gcig_module,
    "label_row_weights": gcig_module,
}


@pytest.mark.parametrize("edit", EDITS)
def test_edited_function_changes_the_gradient(edit, monkeypatch):
    original = getattr(EDITS[edit], edit)
    problem = Problem(dtype=torch.float64)
    plain, _ = problem.gradient(problem.objective())

    def edited(*args, **options):
        value = original(*args, **options)
        return 1.1 * value + 0.1 * value**3

    monkeypatch.setattr(EDITS[edit], edit, edited)
    found, by_engine = problem.gradient(problem.objective())
    assert by_engine == (edit != "cell_secant_attributions")
    expected, _ = problem.gradient(problem.objective(), engine=False)
    assert_close(found, expected, rtol=1e-6, atol=1e-8)
    assert not torch.allclose(found, plain, rtol=1e-5)


@pytest.mark.parametrize("kind", [AttributeTerm, ColumnTerm])
def test_edit_of_a_term_that_is_zero_at_first_is_found(kind, monkeypatch):
    """Hand-written gradients are also compared on values on which every term counts."""
    problem, network = Problem(dtype=torch.float64), MLP(5, (8, 4)).double()

    def make_batch(rows):
        batch = problem.batch(network, rows)
        return replace(batch, targets=torch.where(torch.arange(len(batch.targets)) < N, 0.9, 0.1).double())

    def standard_terms():
        objective = problem.objective()
        few = ColumnTerm(objective.terms["gcig"].penalty, 1.5)
        objective = objective.with_term("column_shortfall", few)
        first = make_batch(torch.arange(N))
        assert objective.terms["attribute"](first) == few(first) == 0
        with flat_parameters(network):
            return ObjectiveGradient(objective, network, make_batch, N)._standard

    assert standard_terms() is not None
    original = kind.__call__
    monkeypatch.setattr(kind, "__call__", lambda self, batch: 1.1 * original(self, batch))
    assert standard_terms() is None


READABLE = [
    (PredictionTerm, "__call__"),
    (OutcomeTerm, "__call__"),
    (AttributeTerm, "__call__"),
    (ReasonTerm, "__call__"),
    (ConsistencyTerm, "__call__"),
    (ColumnTerm, "__call__"),
    (EqualizedOddsLoss, "forward"),
    (GCIGPenalty, "forward"),
    (GCIGPenalty, "value"),
    (GCIGPenalty, "compare"),
    (GCIGPenalty, "reduce"),
    (GCIGPenalty, "normalise"),
    (core_disparity, "disparity"),
    (terms_module, "column_shortfall"),
]


def raise_error(*args, **options):
    raise RuntimeError("edited")


@pytest.mark.parametrize(("owner", "name"), READABLE)
def test_readable_function_that_raises_stops_training(owner, name, monkeypatch):
    problem = Problem()
    network = MLP(5, (8, 4))
    with flat_parameters(network):
        gradient = ObjectiveGradient(
            problem.objective(), network, lambda rows: problem.batch(network, rows), N
        )
        gradient(torch.arange(N), WEIGHTS)
        monkeypatch.setattr(owner, name, raise_error)  # after engine and autograd were compared
        with pytest.raises(RuntimeError, match="edited"):
            gradient(torch.arange(N), WEIGHTS)


def test_attribution_that_raises_stops_training(monkeypatch):
    problem = Problem()
    monkeypatch.setattr(GCIGPenalty, "attribute", raise_error)
    with pytest.raises(RuntimeError, match="edited"):
        problem.gradient(problem.objective())


def test_edited_disparity_changes_a_penalty_in_a_loop_of_ones_own(monkeypatch):
    problem, network = Problem(), MLP(5, (8, 4))
    data = (problem.inputs[:N], problem.labels)
    baselines = GroupBaselines.from_data(*data, problem.groups)
    before = GCIGPenalty(baselines)(network, *data)
    monkeypatch.setattr(core_disparity, "disparity", lambda values, **_: values.square().sum((0, 2)))
    after = GCIGPenalty(baselines)(network, *data)
    assert before.item() != pytest.approx(after.item())
