"""What is gathered for a mini-batch against what is computed of its rows."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import one_hot

from gcig.core.batch import GroupedBatch
from gcig.losses.gcig import label_members
from gcig.losses.outcome import OUTCOME_LOSSES
from gcig.methods.fairx.row_table import RowTable
from gcig.methods.fairx.settings import FairTraining
from gcig.training.loop import Loop

GENERATOR = torch.Generator().manual_seed(0)
N_GROUPS = 3
ROWS = GroupedBatch(
    torch.randn(30, 4, generator=GENERATOR),
    torch.randint(2, (30,), generator=GENERATOR),
    torch.randint(N_GROUPS, (30,), generator=GENERATOR),
)
TARGETS, WEIGHTS = torch.rand(2, 30, generator=GENERATOR)
PLAIN = FairTraining(Loop(max_epochs=1, batch_size=8), learning_rate=0.01)
FAIR = replace(PLAIN, lambda_ig=0.1, lambda_fair=0.1)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
def test_a_batch_is_that_of_its_rows(weights):
    table = RowTable(ROWS, TARGETS, weights, FAIR, N_GROUPS)
    for rows in (torch.tensor([5, 0, 29]), torch.arange(8), torch.tensor([7, 8, 9])):
        found, own = table.of(rows), None if weights is None else weights[rows]
        labels, groups = ROWS.labels[rows], ROWS.groups[rows]
        assert torch.equal(found.targets, TARGETS[rows])
        assert (found.weights is None) if own is None else torch.equal(found.weights, own)
        membership = OUTCOME_LOSSES[FAIR.outcome](N_GROUPS).membership(labels, groups, sample_weight=own)
        assert torch.equal(found.members.T, membership.flatten(0, 1))
        assert torch.equal(found.cells.T, one_hot(labels * N_GROUPS + groups, 2 * N_GROUPS).float())
        assert torch.equal(found.label_members, label_members(labels, sample_weight=own))


def test_only_what_the_terms_need():
    found = RowTable(ROWS, TARGETS, None, PLAIN, N_GROUPS).of(torch.arange(4))
    assert found[1:] == (None, None, None, None)
