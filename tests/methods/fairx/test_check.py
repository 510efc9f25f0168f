"""The check before training: what depends on the group beyond chance, and how often it is wrong."""

import numpy as np
import pytest
import torch

from gcig.core.attribution import IntegratedGradients
from gcig.core.references import Rows
from gcig.core.task import Binary, Classes, Number
from gcig.methods.fairx.check import ALPHA, check_network

LINEAR = torch.nn.Linear(4, 1)
with torch.no_grad():
    LINEAR.weight.copy_(torch.tensor([[1.0, -1.0, 0.5, 0.0]]))
    LINEAR.bias.zero_()


def make_rows(n=600, shift=0.0, seed=0, task="binary"):
    generator = torch.Generator().manual_seed(seed)
    groups = torch.randint(2, (n,), generator=generator)
    inputs = torch.randn(n, 4, generator=generator)
    inputs[:, 0] += shift * groups
    score = LINEAR(inputs).detach()[:, 0] + torch.randn(n, generator=generator)
    return Rows(inputs, score if task == "number" else (score > 0).long(), groups)


def check(rows, task=None, seed=0):
    return check_network(
        LINEAR,
        rows,
        task or Binary(),
        2,
        IntegratedGradients(),
        torch.eye(4),
        outcome="equalized_odds",
        seed=seed,
    )


def test_a_difference_is_seen():
    found = check(make_rows(shift=1.0))
    assert found.reasons.found
    assert found.reasons.value > found.reasons.chance
    assert not found.nothing


def test_coins_are_seldom_called_a_dependence():
    """400 checks of groups drawn by coin: 3 % alarms of both questions together are expected at most."""
    alarms = [not check(make_rows(300, seed=seed), seed=seed).nothing for seed in range(60)]
    assert sum(alarms) <= 6  # 1.8 expected; 7 or more has a probability of 0.2 %


def test_p_values_of_coins_are_uniform():
    p = [check(make_rows(300, seed=seed), seed=seed).reasons.p for seed in range(60)]
    assert 0.35 < np.mean(p) < 0.65


def test_numbers_are_checked_in_bins():
    rows = make_rows(1500, shift=1.5, task="number")
    assert check(rows, Number.of(rows.labels)).reasons.found


def test_classes_are_checked():
    rows = make_rows(1200, shift=1.5)
    network = torch.nn.Linear(4, 3)
    labels = network(rows.inputs).argmax(1)
    rows = Rows(rows.inputs, labels, rows.groups)
    found = check_network(
        network,
        rows,
        Classes.of(labels, n_classes=3),
        2,
        IntegratedGradients(),
        torch.eye(4),
        outcome="equalized_odds",
    )
    assert found.reasons.found


def test_what_could_have_been_seen_falls_with_more_rows():
    small, large = check(make_rows(300)), check(make_rows(3000))
    assert large.reasons.detectable < small.reasons.detectable
    assert large.outcomes.detectable < small.outcomes.detectable


def test_too_few_rows_are_no_evidence():
    found = check(make_rows(40))
    assert not found.reasons.found
    assert np.isnan(found.reasons.p)


def test_the_sentence_says_what_was_seen():
    nothing, something = check(make_rows(seed=3)), check(make_rows(shift=1.0))
    assert str(nothing).startswith("Nothing to repair")
    assert "depend on the group beyond chance" in str(something)
    assert 0 < ALPHA < 0.05


@pytest.mark.parametrize("seed", [0, 1])
def test_a_check_is_repeatable(seed):
    rows = make_rows(shift=0.3)
    assert check(rows, seed=seed) == check(rows, seed=seed)
