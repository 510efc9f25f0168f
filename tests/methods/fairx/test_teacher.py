import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gcig.methods.fairx.selection import binary_auc
from gcig.methods.fairx.teacher import Teacher, expected_auc


def by_pairs(scores, probabilities):
    """Over all pairs: the chance that the first is positive, the second negative, and they are in order."""
    order = np.sign(np.subtract.outer(scores, scores)) / 2 + 0.5
    chance = np.outer(probabilities, 1 - probabilities)
    return (order * chance).sum() / chance.sum()


@pytest.mark.parametrize("seed", range(5))
def test_the_expected_auc_is_the_chance_that_a_pair_is_in_order(seed):
    rng = np.random.default_rng(seed)
    scores, probabilities = rng.permutation(40) / 7, rng.random(40)
    found = expected_auc(torch.tensor(scores), torch.tensor(probabilities))
    assert found == pytest.approx(by_pairs(scores, probabilities), rel=1e-12)


@given(st.lists(st.booleans(), min_size=2, max_size=30), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_of_rows_that_are_sure_it_is_the_auc(labels, random):
    scores = torch.tensor(random.sample(range(100), len(labels)), dtype=torch.float32)
    found = expected_auc(scores, torch.tensor(labels, dtype=torch.float32))
    expected = binary_auc(scores, torch.tensor(labels, dtype=torch.int64))
    assert found == pytest.approx(expected, nan_ok=True)


def test_equal_rows_do_not_change_it():
    scores, probabilities = torch.tensor([0.3, -1.0, 2.0]), torch.tensor([0.4, 0.2, 0.7])
    twice = expected_auc(scores.repeat(2), probabilities.repeat(2))
    assert twice == pytest.approx(expected_auc(scores, probabilities))


def test_no_scores_are_better_than_the_probabilities_themselves():
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.rand(50, generator=generator)
    best = expected_auc(probabilities, probabilities)
    others = [expected_auc(torch.rand(50, generator=generator), probabilities) for _ in range(20)]
    assert best > max(others)
    assert expected_auc(-probabilities, probabilities) == pytest.approx(1 - best)


# --- Teachers and students ---------------------------------------------------------------------------

WITNESSES = torch.randn(400, 4, generator=torch.Generator().manual_seed(1))


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 1))


def teacher(auc=0.8, error=0.04, net=None):
    return Teacher(net or network(), {"auc": auc}, WITNESSES, error)


def noisy_copy(net, size):
    copy = network()
    copy.load_state_dict(net.state_dict())
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in copy.parameters():
            parameter += size * torch.randn_like(parameter)
    return copy


def test_its_probabilities_are_those_of_the_network_when_it_predicts():
    sure = teacher()
    sure.network.train()
    found = sure.probabilities(WITNESSES)
    assert found.shape == (400,)
    assert sure.network.training
    assert torch.equal(found, sure.network.eval()(WITNESSES).squeeze(1).sigmoid())
    assert not found.requires_grad
    assert torch.equal(found, sure.expected)


def test_the_teacher_itself_loses_nothing():
    sure = teacher()
    assert sure.auc_lost(sure.network, 0.8) == 0.0


def test_the_more_a_student_differs_the_more_it_loses():
    sure = teacher()
    lost = [sure.auc_lost(noisy_copy(sure.network, size), 0.8) for size in (0.0, 0.1, 0.4, 2.0)]
    assert lost == sorted(lost)
    assert lost[0] == 0
    assert lost[2] > 0.001


def test_a_student_that_says_the_opposite_loses_all():
    sure = teacher()
    opposite = noisy_copy(sure.network, 0.0)
    with torch.no_grad():
        opposite[3].weight.neg_()
    assert sure.auc_lost(opposite, 0.8) == pytest.approx(2 * sure.best_auc - 1)


def test_scale_and_shift_of_the_logits_cost_nothing():
    sure = teacher()
    other = noisy_copy(sure.network, 0.0)
    with torch.no_grad():
        other[3].weight.mul_(0.1)
        other[3].bias.add_(1)
    assert sure.auc_lost(other, 0.8) == pytest.approx(0.0, abs=1e-4)


def test_labels_count_where_they_say_more_than_noise():
    sure = teacher(auc=0.8, error=0.04)
    assert sure.auc_lost(sure.network, 0.795) == 0.0  # half of what is forgiven
    assert sure.auc_lost(sure.network, 0.75) == pytest.approx(0.8 - 0.75 - 0.01)
    assert sure.auc_lost(sure.network, 0.99) == 0.0  # a higher AUC by labels does not make up


def test_labels_of_one_class_say_nothing():
    sure = teacher(auc=math.nan)
    assert sure.auc_lost(sure.network, math.nan) == 0.0
    assert sure.auc_lost(noisy_copy(sure.network, 2.0), math.nan) > 0


def test_the_student_is_asked_as_it_predicts_and_left_in_its_mode():
    sure = teacher()
    student = noisy_copy(sure.network, 0.1).train()
    assert sure.auc_lost(student, 0.8) == sure.auc_lost(student, 0.8)  # dropout is off
    assert student.training
