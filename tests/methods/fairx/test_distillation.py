"""Distillation: the teacher, and the points at which its predictions are kept."""

import math

import pytest
import torch
from torch import nn

from gcig.core.batch import GroupedBatch, TrainingRows
from gcig.core.references import GroupBaselines
from gcig.methods.fairx.distillation import BatchSource, Teacher
from gcig.methods.fairx.selection import binary_auc
from gcig.models.mlp import make_mlp

PROTECTED = torch.tensor([3, 4])  # a one-hot block that is the group


def make_data(n=40, n_groups=2, *, weighted=True):
    generator = torch.Generator().manual_seed(0)
    labels, groups = torch.arange(n) % 2, torch.arange(n) // 2 % n_groups
    inputs = torch.randn(n, 5, generator=generator)
    inputs[:, 3:] = torch.stack([groups == 0, groups > 0], dim=1).float()
    weights = torch.arange(1.0, n + 1) / n if weighted else None
    return TrainingRows(GroupedBatch(inputs, labels, groups), labels.float(), weights)


def make_teacher(dropout=0.0, auc=0.8):
    network = make_mlp(5, (8, 4), dropout=dropout, generator=torch.Generator().manual_seed(1))
    rows = torch.randn(200, 5, generator=torch.Generator().manual_seed(2))
    return Teacher(network, {"auc": auc}, rows, auc_error=0.04)


def make_source(data, teacher=None, n_groups=2, *, protected=PROTECTED, n_explained=4):
    rows = data.rows
    means = GroupBaselines.from_data(rows.inputs, rows.labels, rows.groups, n_groups=n_groups).values
    return BatchSource(
        make_mlp(5, (8, 4)),
        data,
        n_groups,
        n_explained=n_explained,
        teacher=teacher,
        means=means,
        protected=protected,
        generator=torch.Generator().manual_seed(3),
    )


# --- The teacher -------------------------------------------------------------------------------------


def test_teacher_predicts_in_evaluation_mode():
    teacher = make_teacher(dropout=0.5)
    teacher.network.train()
    first, again = (teacher.logits(teacher.comparison_rows) for _ in range(2))
    assert torch.equal(first, again)
    assert not first.requires_grad
    torch.testing.assert_close(teacher.probabilities, torch.sigmoid(first))


def test_nothing_is_lost_by_the_teacher_itself():
    teacher = make_teacher()
    assert teacher.auc_lost(teacher.network, auc=0.8) == 0.0


def test_loss_of_auc_by_the_teachers_probabilities_is_that_of_labels_drawn_from_them():
    teacher, student = make_teacher(), make_mlp(5, (8, 4), generator=torch.Generator().manual_seed(9))
    copies = 4000
    drawn = torch.bernoulli(
        teacher.probabilities.repeat(copies), generator=torch.Generator().manual_seed(0)
    ).long()
    with torch.no_grad():
        scores = [net.eval()(teacher.comparison_rows).repeat(copies) for net in (teacher.network, student)]
    expected = binary_auc(scores[0], drawn) - binary_auc(scores[1], drawn)
    assert teacher.auc_lost(student, auc=0.8) == pytest.approx(expected, abs=2e-3)


def test_loss_of_auc_by_labels_counts_if_it_is_larger_by_more_than_noise():
    teacher = make_teacher()
    assert teacher.auc_lost(teacher.network, auc=0.7) == pytest.approx(0.1 - 0.02)
    assert teacher.auc_lost(teacher.network, auc=0.795) == 0.0
    assert teacher.auc_lost(teacher.network, auc=math.nan) == 0.0


# --- Mini-batches ------------------------------------------------------------------------------------


def test_without_a_teacher_a_batch_has_its_rows_alone():
    data = make_data()
    batch = make_source(data, n_explained=9)(torch.tensor([5, 1, 30]))
    assert torch.equal(batch.inputs, data.rows.inputs[[5, 1, 30]])
    assert torch.equal(batch.targets, torch.tensor([1.0, 1.0, 0.0]))
    assert torch.equal(batch.weights, data.weights[[5, 1, 30]])
    assert batch.n_explained == 3
    assert batch.pairs is None


def test_positions_past_the_last_row_start_again():
    data = make_data()
    batch = make_source(data)(torch.tensor([3, 43, 83]))
    assert torch.equal(batch.inputs, data.rows.inputs[[3, 3, 3]])


def test_targets_of_all_points_are_the_teachers_probabilities():
    data, teacher = make_data(), make_teacher()
    learned = TrainingRows(data.rows, torch.sigmoid(teacher.logits(data.rows.inputs)), data.weights)
    batch = make_source(learned, teacher)(torch.arange(20))
    torch.testing.assert_close(batch.targets, torch.sigmoid(teacher.logits(batch.inputs)))
    assert len(batch.inputs) == len(batch.targets) == len(batch.weights) == 20 + 7 + 2
    assert len(batch.labels) == len(batch.groups) == 20


def on_segment(point, start, ends):
    """Return whether a point lies between a row and one of some references."""
    direction = ends - start
    share = ((point - start) * direction).sum(1) / direction.square().sum(1).clamp_min(1e-12)
    near = (start + share.unsqueeze(1) * direction - point).abs().amax(1) < 1e-5
    return bool((near & (share > -1e-5) & (share < 1 + 1e-5)).any())


def test_points_lie_between_rows_and_references_of_their_label():
    data = make_data()
    source, rows = make_source(data, make_teacher(), protected=None), data.rows
    batch = source(torch.arange(40))
    ends = torch.cat([rows.inputs, source.means.flatten(0, 1)])
    labels = torch.cat([rows.labels, torch.tensor([0, 0, 1, 1])])
    points, weights = batch.inputs[40:], batch.weights[40:]
    assert len(points) == 14
    towards_mean = 0
    for point, weight in zip(points, weights, strict=True):
        start = int(torch.argmin((data.weights - weight).abs()))  # weights name their rows
        label = rows.labels[start]
        assert on_segment(point, rows.inputs[start], ends[labels == label])
        towards_mean += on_segment(point, rows.inputs[start], source.means[label])
    assert 0 < towards_mean < 20


@pytest.mark.parametrize("n_groups", [2, 3])
def test_exchanged_rows_differ_in_the_protected_columns_alone(n_groups):
    data, teacher = make_data(n_groups=n_groups), make_teacher()
    batch = make_source(data, teacher, n_groups)(torch.arange(40))
    rows, copies = batch.pairs
    assert torch.equal(rows, torch.arange(4))
    before, after = batch.inputs[rows], batch.inputs[copies]
    assert torch.equal(before[:, :3], after[:, :3])
    assert (after[:, 3:].sum(1) == 1).all()
    if n_groups == 2:
        assert torch.equal(after[:, 3:], 1 - before[:, 3:])
    torch.testing.assert_close(batch.targets[copies], torch.sigmoid(teacher.logits(after)))
    assert torch.equal(batch.weights[copies], data.weights[rows])


def test_without_protected_columns_there_are_no_pairs():
    batch = make_source(make_data(weighted=False), make_teacher(), protected=None)(torch.arange(20))
    assert batch.pairs is None
    assert batch.weights is None


def test_a_cell_of_one_row_is_drawn_from():
    rows = make_data().rows
    groups = torch.zeros(40, dtype=torch.int64)
    groups[[0, 1]] = 1  # one row of each label
    data = TrainingRows(GroupedBatch(rows.inputs, rows.labels, groups), rows.labels.float())
    source = make_source(data, make_teacher())
    for _ in range(20):
        assert torch.isfinite(source(torch.arange(40)).inputs).all()


def test_batches_are_reproducible():
    data, teacher = make_data(), make_teacher()
    one, again = (make_source(data, teacher)(torch.arange(40)).inputs for _ in range(2))
    assert torch.equal(one, again)


def test_rows_of_other_shapes_are_interpolated():
    labels, groups = torch.arange(16) % 2, torch.arange(16) // 2 % 2
    images = torch.randn(16, 2, 3, generator=torch.Generator().manual_seed(0))
    data = TrainingRows(GroupedBatch(images, labels, groups), labels.float())
    network = nn.Sequential(nn.Flatten(), nn.Linear(6, 1), nn.Flatten(0))
    teacher = Teacher(network, {"auc": 0.5}, images, auc_error=0.1)
    batch = make_source(data, teacher, protected=None)(torch.arange(16))
    assert batch.inputs.shape == (22, 2, 3)
