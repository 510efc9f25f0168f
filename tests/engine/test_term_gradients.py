"""Hand-written values and gradients of the standard terms against autograd through the readable ones."""

import pytest
import torch
from gcig.engine.term_gradients import pull_pairwise_gap
from gcig.losses.gcig import GCIGPenalty
from gcig.losses.outcome import OUTCOME_LOSSES, pairwise_gap
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
from torch.testing import assert_close

from gcig.core.references import GroupBaselines, GroupMembers
from gcig.models.mlp import MLP

N, EXTRA, EXPLAINED, COLUMNS, MEMBERS = 40, 12, 9, 6, 3


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make_batch(n_groups=2, *, weighted=False, paired=True):
    labels = torch.arange(N) % 2
    groups = torch.randint(n_groups, (N,), generator=torch.Generator().manual_seed(1))
    positions = torch.arange(5)
    return MiniBatch(
        MLP(COLUMNS, (4,)).double(),
        random(N + EXTRA, COLUMNS),
        labels,
        groups,
        targets=random(N + EXTRA, seed=2).sigmoid(),
        weights=random(N + EXTRA, seed=3).exp() if weighted else None,
        pairs=torch.stack([positions, positions + N]) if paired else None,
        n_explained=EXPLAINED,
    )


def make_reasons(batch, n_groups, origin=None):
    """Return every term that compares attributions, and the references in the order of the attributions."""
    rows = (batch.inputs[:N], batch.labels, batch.groups)
    means = GroupBaselines.from_data(*rows, n_groups=n_groups)
    members = GroupMembers(*rows, n_groups=n_groups, n_members=MEMBERS)
    of_mean, of_members = (GCIGPenalty(each, origin=origin).double() for each in (means, members))
    each_member = GCIGPenalty(members, origin=origin, each_member=True).double()
    terms = {
        "gcig": ReasonTerm(of_mean),
        "gcig_members": ReasonTerm(of_members),
        "gcig_each_member": ReasonTerm(each_member),
        "consistency": ConsistencyTerm(of_mean, of_members),
        "column_shortfall": ColumnTerm(of_mean, 7.0),
        "shortfall_of_members": ColumnTerm(of_members, 9.0),
    }
    return terms, [means, members]


def check(terms, batch, logits, attributions=None, references=()):
    """Compare values and gradients of some terms, each with a weight of its own."""
    standard = StandardTerms(terms)
    assert standard.terms.keys() == terms.keys()
    weights = {name: 0.5 + place for place, name in enumerate(terms)}
    found = standard.pull(batch, logits, attributions, references, weights)
    leaf = batch.__dict__["logits"] = logits.clone().requires_grad_()
    leaves = [leaf]
    if attributions is not None:
        leaves.append(attributions.clone().requires_grad_())
        sizes = [each.values.flatten(1, -2).shape[1] for each in references]
        parts = dict(zip(map(id, references), leaves[1].split(sizes), strict=True))
        for penalty in {each for term in terms.values() for each in term.penalties}:
            batch.known[id(penalty)] = penalty.reduce(parts[id(penalty.references)])
    expected = {name: term(batch) for name, term in terms.items()}
    total = sum(weights[name] * value for name, value in expected.items())
    gradients = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
    assert found.values.keys() == expected.keys()
    for name, value in expected.items():
        assert_close(found.values[name], value.detach(), rtol=1e-9, atol=1e-12, msg=name)
    assert_close(found.d_logits, gradients[0], rtol=1e-8, atol=1e-11)
    if attributions is not None:
        assert_close(found.d_attributions, gradients[1], rtol=1e-7, atol=1e-10)
    return found.values


TERMS = {
    "prediction": PredictionTerm(),
    "selection": SelectionTerm(cut=0.3, temperature=0.4),
    "attribute": AttributeTerm(cut=0.3, temperature=0.4),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", TERMS)
def test_terms_of_logits(name, weighted):
    values = check({name: TERMS[name]}, make_batch(weighted=weighted), 2 * random(N + EXTRA, seed=5))
    assert values[name] > 0


def test_attribute_without_pairs_is_zero():
    terms = {"attribute": TERMS["attribute"], "prediction": PredictionTerm()}
    assert check(terms, make_batch(paired=False), random(N + EXTRA))["attribute"] == 0


def test_attribute_at_its_limits_has_the_gradient_of_the_readable_term():
    """Every student starts there, at the teacher's weights."""
    batch = make_batch()
    logits = torch.logit(batch.targets)
    assert check({"attribute": TERMS["attribute"]}, batch, logits)["attribute"] == 0
    check({"attribute": TERMS["attribute"]}, batch, 0.5 * logits)


def test_large_logits_do_not_overflow():
    check({"prediction": PredictionTerm()}, make_batch(), 1e3 * random(N + EXTRA))


@pytest.mark.parametrize("kind", OUTCOME_LOSSES)
@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize(
    "options",
    [{}, {"smoothness": 0.05}, {"momentum": 0.9}, {"momentum": 0.9, "of_decisions": True, "smoothness": 0.1}],
    ids=str,
)
def test_outcome_terms(kind, n_groups, options):
    """In the second mini-batch, the averages of the first one count; a group has no rows there."""
    by_hand, readable = (
        OUTCOME_LOSSES[kind](n_groups, cut=0.2, temperature=0.3, **options) for _ in range(2)
    )
    standard = StandardTerms({"outcome": OutcomeTerm(by_hand)})
    for step, weighted in enumerate((False, True)):
        batch, logits = make_batch(n_groups, weighted=weighted), random(N + EXTRA, seed=6 + step)
        if step:
            batch.groups = batch.groups.clamp(max=n_groups - 2)
        found = standard.pull(batch, logits, None, (), {"outcome": 2.0})
        leaf = batch.__dict__["logits"] = logits.requires_grad_()
        expected = OutcomeTerm(readable)(batch)
        (gradient,) = torch.autograd.grad(2 * expected, leaf, allow_unused=True, materialize_grads=True)
        assert_close(found.values["outcome"], expected.detach())
        assert_close(found.d_logits, gradient)


def test_gap_of_many_groups_and_its_gradient():
    rates = random(3, 5).sigmoid().requires_grad_()
    present = torch.tensor([[1.0, 1, 1, 1, 1], [1, 0, 1, 0, 1], [0, 0, 1, 0, 0]], dtype=torch.float64)
    for smoothness in (0.0, 0.1):
        expected = pairwise_gap(rates, present, smoothness)
        (gradient,) = torch.autograd.grad(expected, rates)
        value, found = pull_pairwise_gap(rates.tolist(), present.tolist(), smoothness)
        assert value == pytest.approx(expected.item())
        assert_close(torch.tensor(found, dtype=torch.float64).view(3, 5), gradient)


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("origin", [None, torch.tensor([0, 1, 1, 2, 2, 2])], ids=["raw", "blocks"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("undefined", [False, True])
def test_terms_of_attributions(n_groups, origin, weighted, undefined):
    batch = make_batch(n_groups, weighted=weighted)
    terms, references = make_reasons(batch, n_groups, origin)
    attributions = random(n_groups * (1 + MEMBERS), EXPLAINED, COLUMNS, seed=8)
    if undefined:
        attributions[n_groups + 1, 3] = 0.0  # a row that is one of the members
        terms = {
            name: terms[name] for name in ("gcig", "gcig_members", "gcig_each_member", "column_shortfall")
        }
    values = check(terms, batch, random(N + EXTRA), attributions, references)
    assert all(value > 0 for value in values.values())
    # The row was counted by hand and by the readable term.
    assert terms["gcig_each_member"].penalty.n_undefined == (2 if undefined else 0)


@pytest.mark.parametrize("names", [("gcig",), ("consistency",), ("column_shortfall", "gcig_members")])
def test_some_terms_of_attributions(names):
    batch = make_batch()
    terms, references = make_reasons(batch, 2)
    attributions = random(2 + 2 * MEMBERS, EXPLAINED, COLUMNS, seed=9)
    check({name: terms[name] for name in names}, batch, random(N + EXTRA), attributions, references)


def test_equal_explanations_have_no_gradient():
    batch = make_batch()
    terms, references = make_reasons(batch, 2)
    attributions = random(1, EXPLAINED, COLUMNS).expand(2 + 2 * MEMBERS, -1, -1).contiguous()
    values = check({"gcig": terms["gcig"]}, batch, random(N + EXTRA), attributions, references)
    assert values["gcig"] == 0


def test_terms_whose_penalties_differ_are_not_standard():
    terms, references = make_reasons(make_batch(), 2)
    others = {
        "norm": ReasonTerm(GCIGPenalty(references[0], norm="l2")),
        "columns": ReasonTerm(GCIGPenalty(references[0], origin=torch.tensor([0, 1, 1, 2, 2, 2]))),
        "labels": ReasonTerm(GCIGPenalty(references[0], label_weights="equal")),
        "many groups": OutcomeTerm(OUTCOME_LOSSES["equalized_odds"](20)),
        "own": lambda batch: batch.logits.mean(),
    }
    assert StandardTerms({**terms, **others}).terms.keys() == terms.keys()
