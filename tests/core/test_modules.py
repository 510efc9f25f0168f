"""Evaluation mode and back, and one logit per row."""

import pytest
import torch
from torch import nn

from gcig.core.modules import evaluating, logits, running_eagerly, untraced


def test_every_part_goes_back_to_the_mode_it_was_in():
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Sequential(nn.Dropout(), nn.Linear(3, 1)))
    net[1].eval()  # a frozen BatchNorm in a module that trains
    before = [part.training for part in net.modules()]
    with evaluating(net):
        assert not any(part.training for part in net.modules())
    assert [part.training for part in net.modules()] == before
    assert before.count(False) == 1


def test_modes_are_restored_after_an_error():
    net = nn.Sequential(nn.Dropout())
    with pytest.raises(RuntimeError, match="inside"), evaluating(net):
        raise RuntimeError("inside")
    assert net.training
    assert net[0].training


def test_a_score_that_is_a_module_is_evaluated_too():
    net, head = nn.Linear(2, 2), nn.Sequential(nn.Dropout(), nn.Linear(2, 1))
    with evaluating(net, head):
        assert not head[0].training
    assert head[0].training


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_one_logit_a_row(shape):
    assert logits(nn.Identity(), torch.arange(4.0).view(shape)).tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("shape", [(4, 2), (4, 1, 1), (2,), ()])
def test_other_outputs_are_refused_with_a_way_out(shape):
    class Fixed(nn.Module):
        def forward(self, x):
            return x.new_zeros(shape)

    with pytest.raises(
        ValueError, match=r"one logit per row, shape \(4,\) or \(4, 1\), but gave .*pass score="
    ):
        logits(Fixed(), torch.zeros(4, 3))


def test_score_picks_the_logit():
    outputs = torch.tensor([[1.0, 4.0], [2.0, 2.0]])
    assert logits(nn.Identity(), outputs, lambda out: out[:, 1] - out[:, 0]).tolist() == [3.0, 0.0]


def test_plain_modules_and_functions_are_left_as_they_are():
    assert untraced(len) is len
    with running_eagerly(nn.Linear(2, 1)) as nothing:
        assert nothing is None


@pytest.mark.parametrize("name", ["_compiled_call_impl", "_orig_mod"])
def test_modules_with_a_compiled_part_are_run_eagerly(name, monkeypatch):
    module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    monkeypatch.setattr(torch.compiler, "set_stance", lambda stance: stance)
    assert running_eagerly(module) != "force_eager"
    object.__setattr__(module[1], name, object())
    assert running_eagerly(module) == "force_eager"
