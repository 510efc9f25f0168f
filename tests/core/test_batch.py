import pytest
import torch

from gcig.core.batch import GroupedBatch, TrainingRows


def make_batch(n=5):
    return GroupedBatch(torch.arange(2.0 * n).view(n, 2), torch.arange(n) % 2, torch.arange(n) // 2)


@pytest.mark.parametrize(
    "rows", [slice(1, 4), torch.tensor([4, 0]), torch.tensor([True, False] * 2 + [True])]
)
def test_rows_keep_their_label_and_group(rows):
    batch = make_batch()
    part = batch[rows]
    numbers = torch.arange(5)[rows]
    assert len(part) == len(numbers)
    assert torch.equal(part.inputs, 2.0 * numbers.unsqueeze(1) + torch.tensor([0.0, 1.0]))
    assert torch.equal(part.labels, numbers % 2)
    assert torch.equal(part.groups, numbers // 2)


@pytest.mark.parametrize("name", ["labels", "groups"])
@pytest.mark.parametrize(
    "codes",
    [
        torch.zeros(4, dtype=torch.int64),
        torch.zeros(5, 1, dtype=torch.int64),
        torch.zeros(5),
        torch.zeros(5).bool(),
    ],
)
def test_codes_of_another_length_or_type_are_refused(name, codes):
    given = {"labels": torch.zeros(5).long(), "groups": torch.zeros(5).long(), name: codes}
    with pytest.raises(ValueError, match=rf"{name} must be an int64 tensor of shape \(5,\)"):
        GroupedBatch(torch.zeros(5, 2), **given)


def test_inputs_may_have_any_shape():
    batch = GroupedBatch(torch.zeros(3, 1, 8, 8), torch.zeros(3).long(), torch.zeros(3).long())
    assert batch[:2].inputs.shape == (2, 1, 8, 8)


def test_moves_to_a_device():
    moved = make_batch().to("meta")
    assert {moved.inputs.device.type, moved.labels.device.type, moved.groups.device.type} == {"meta"}


@pytest.mark.parametrize(("count", "expected"), [(2, [0, 2]), (3, [0, 1, 3]), (4, [0, 1, 2, 3]), (5, None)])
def test_some_rows_are_evenly_spaced(count, expected):
    batch = make_batch()
    found = batch.spread(count)
    assert found is batch if expected is None else (found.inputs[:, 0] / 2).tolist() == expected


def test_batches_are_joined_in_order():
    joined = GroupedBatch.join([make_batch(2), make_batch(3)])
    assert joined.labels.tolist() == [0, 1, 0, 1, 0]
    assert joined.groups.tolist() == [0, 0, 0, 0, 1]
    assert joined.inputs[:, 0].tolist() == [0, 2, 0, 2, 4]


def test_rows_of_an_epoch_are_those_of_the_stream_if_there_is_one():
    class Stream:
        rows_per_epoch = 1_000

    rows = TrainingRows(make_batch(), torch.zeros(5))
    streamed = TrainingRows(make_batch(), torch.zeros(5), stream=Stream())
    assert (len(rows), rows.rows_per_epoch) == (5, 5)
    assert (len(streamed), streamed.rows_per_epoch) == (5, 1_000)
