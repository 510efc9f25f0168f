"""The length of a student's training, and the parameters of the user that it follows."""

import numpy as np
import pytest
import torch
from torch import nn

import gcig
from gcig.methods.fairx.student import student_loop
from gcig.methods.fairx.tuning import TUNING
from gcig.training.loop import Loop


@pytest.mark.parametrize(
    ("n_rows", "batch_size", "epochs", "size", "steps"),
    [
        (100_000, "auto", 100, TUNING.batch_size, TUNING.steps),
        (100_000, "auto", 10, TUNING.batch_size, TUNING.steps / 4),  # in proportion to max_epochs=40
        (100_000, 64, 40, 64, TUNING.steps),
        (256, "auto", 40, TUNING.batch_size, TUNING.passes),
        (10, "auto", 1, TUNING.batch_size, 1),
    ],
)
def test_steps_depend_on_epochs_and_on_the_rows_only_if_they_are_few(n_rows, batch_size, epochs, size, steps):
    loop = student_loop(Loop(epochs, 512), batch_size, n_rows)
    assert loop.batch_size == size
    assert loop.max_epochs * loop.steps_per_epoch == pytest.approx(steps, rel=0.1)


def test_a_student_learns_at_the_rate_of_the_user():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 3, generator=generator)
    groups, y = (x[:, 0] > 0).long().numpy(), (x @ torch.tensor([1.0, 1.0, -1.0]) > 0).long().numpy()
    network = nn.Sequential(nn.Linear(3, 1))
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[2.0, 2.0, -2.0]]))
    moved = []
    for rate in (1e-12, "auto"):
        model = gcig.FairXClassifier.from_module(
            network, learning_rate=rate, weight_decay=0.0, repair="always", max_epochs=8, random_state=0
        )
        model.fit(x.numpy(), np.asarray(y), sensitive_features=groups)
        moved.append(float(abs(model.budget_used_)))
    assert moved[1] > 2 * moved[0]  # the shift that keeps the share of decisions moves a little as well
