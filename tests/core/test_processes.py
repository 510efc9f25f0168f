"""Sums over several processes, played by threads: each has a context, and thus a group, of its own."""

import threading

import pytest
import torch

from gcig.core.processes import anywhere, joined, joined_group, joined_mean, joining


class Threads:
    """One member of a group whose others run in other threads."""

    def __init__(self, rank, size, barrier, parts):
        self.rank, self.size, self._barrier, self._parts = rank, size, barrier, parts

    def add(self, values):
        self._parts[self.rank] = values.clone()
        self._barrier.wait(timeout=30)
        values.copy_(sum(self._parts.values()))
        self._barrier.wait(timeout=30)


def run_joined(function, size=3):
    """Return what a function of the rank returns in each member of a group."""
    barrier, parts, found = threading.Barrier(size), {}, {}

    def work(rank):
        with joining(Threads(rank, size, barrier, parts)):
            found[rank] = function(rank)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return [found[rank] for rank in range(size)]


def test_the_sum_is_that_of_all_and_its_gradient_that_of_the_own_part():
    def work(rank):
        own = torch.tensor([1.0, 10.0]) * (rank + 1)
        own.requires_grad_(rank < 2)
        total = joined(own)
        if rank < 2:
            total.square().sum().backward()
        return total.detach(), own.detach(), own.grad

    for rank, (total, own, grad) in enumerate(run_joined(work)):
        assert total.tolist() == [6, 60]
        assert own.tolist() == [rank + 1, 10 * (rank + 1)]  # not changed in place
        assert grad is None if rank == 2 else grad.tolist() == [12, 120]


def test_a_sum_of_constants_is_a_constant():
    assert not any(run_joined(lambda _: joined(torch.ones(2)).requires_grad))


@pytest.mark.parametrize("true_at", [None, 0, 2])
def test_a_condition_that_holds_anywhere(true_at):
    found = run_joined(lambda rank: anywhere(rank == true_at, torch.zeros(1)))
    assert found == [true_at is not None] * 3


def test_the_mean_is_over_the_rows_of_all_however_many_each_has():
    rows = torch.arange(12.0).reshape(6, 2)
    parts = [rows[:1], rows[1:3], rows[3:]]
    for found in run_joined(lambda rank: joined_mean(parts[rank])):
        assert found.item() == pytest.approx(rows.mean().item())
    for found in run_joined(lambda rank: joined_mean(parts[rank], 0)):
        torch.testing.assert_close(found, rows.mean(0))


def test_a_process_alone_keeps_its_values():
    values = torch.ones(3)
    assert joined_group() is None
    assert joined(values) is values
    assert anywhere(True, values)
    assert not anywhere(False, values)
    assert joined_mean(torch.tensor([[1.0, 3.0], [5.0, 7.0]]), 0).tolist() == [3, 5]


def test_the_group_is_left_after_an_error():
    group = Threads(0, 1, threading.Barrier(1), {})

    def fail():
        with joining(group):
            assert joined_group() is group
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert joined_group() is None
