"""The epoch loop: history, early stopping, divergence, schedules and mini-batches."""

import math
import pickle
from itertools import islice

import pytest
import torch
from torch import nn

from gcig.training.loop import DivergenceError, Epoch, Loop, Outcome, Validation, batches, train
from gcig.training.runtime import seeded_generator

CPU = torch.device("cpu")


class Counter(nn.Module):
    """A parameter that every step raises by one: its value is the number of steps."""

    def __init__(self):
        super().__init__()
        self.steps = nn.Parameter(torch.zeros(()))

    def step(self, rows):  # noqa: ARG002 (what a step is given)
        with torch.no_grad():
            self.steps += 1
        return {"prediction": torch.tensor(2.0), "total": self.steps.detach().clone()}


def run(state, step=None, *, max_epochs=4, n_rows=10, batch_size=5, validate=None, **options):
    optimizer = torch.optim.SGD(state.parameters(), lr=1.0)
    loop = Loop(
        max_epochs,
        batch_size,
        options.pop("patience", None),
        schedule=options.pop("schedule", "constant"),
        steps_per_epoch=options.pop("steps_per_epoch", None),
    )
    return train(
        step or state.step,
        state,
        optimizer,
        n_rows=n_rows,
        loop=loop,
        generator=seeded_generator(0),
        device=CPU,
        validate=validate,
        **options,
    )


def test_without_validation_the_last_epoch_is_kept():
    counter = Counter()
    outcome = run(counter, max_epochs=3)
    assert outcome.best_epoch == 3
    assert counter.steps == 6


def test_history_holds_means_over_batches_and_validation_metrics():
    outcome = run(Counter(), max_epochs=2, validate=lambda n: Validation(-n, {"val_auc": n / 10}))
    assert [epoch.to_dict() for epoch in outcome.history] == [
        {"epoch": 1, "prediction": 2.0, "total": 1.5, "val_auc": 0.1},
        {"epoch": 2, "prediction": 2.0, "total": 3.5, "val_auc": 0.2},
    ]


def test_a_term_that_is_not_in_every_batch_is_averaged_over_those_it_is_in():
    calls = iter(range(100))

    def step(rows):
        terms = {"total": torch.tensor(1.0)}
        return {**terms, "gcig": torch.tensor(6.0)} if next(calls) % 2 else terms

    assert run(Counter(), step, max_epochs=1).history[0].terms == {"total": 1.0, "gcig": 6.0}


def test_training_returns_to_the_epoch_with_the_lowest_criterion():
    counter, criteria = Counter(), {1: 3.0, 2: 1.0, 3: 2.0, 4: 2.0}
    outcome = run(counter, validate=lambda n: Validation(criteria[n]))
    assert outcome.best_epoch == 2
    assert counter.steps == 4
    assert len(outcome.history) == 4


def test_patience_stops_training():
    outcome = run(Counter(), max_epochs=50, patience=3, validate=lambda n: Validation(abs(n - 5.0)))
    assert outcome.best_epoch == 5
    assert len(outcome.history) == 8


def test_epochs_that_are_not_eligible_are_neither_kept_nor_waited_for():
    counter = Counter()
    outcome = run(
        counter,
        max_epochs=8,
        patience=1,
        validate=lambda n: Validation(float(n), eligible=n >= 6),
    )
    assert outcome.best_epoch == 6
    assert counter.steps == 12


def test_where_no_epoch_is_eligible_the_last_one_is_kept():
    counter = Counter()
    outcome = run(counter, max_epochs=3, validate=lambda _: Validation(0.0, eligible=False))
    assert outcome.best_epoch == 3
    assert counter.steps == 6


def test_a_criterion_that_is_not_a_number_is_never_the_best():
    counter = Counter()
    criteria = {1: 5.0, 2: math.nan, 3: 4.0, 4: math.nan}
    assert run(counter, validate=lambda n: Validation(criteria[n])).best_epoch == 3


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_puts_the_last_good_epoch_back(value):
    counter = Counter()

    def step(rows):
        terms = counter.step(rows)
        return {**terms, "gcig": torch.tensor(value if counter.steps > 4 else 1.0)}

    with pytest.raises(
        DivergenceError, match=r"in epoch 3: the loss was not finite .*gcig.*epoch 2"
    ) as found:
        run(counter, step)
    assert counter.steps == 4
    assert found.value.epoch == 2
    assert [epoch.number for epoch in found.value.outcome.history] == [1, 2]


def test_parameters_that_the_last_step_breaks_are_found_though_the_loss_was_finite():
    counter = Counter()

    def step(rows):
        terms = counter.step(rows)
        with torch.no_grad():
            if counter.steps == 4:
                counter.steps.fill_(math.inf)
        return {"total": terms["total"]}

    with pytest.raises(DivergenceError, match="parameters were not finite") as found:
        run(counter, step, max_epochs=2)
    assert counter.steps == 2
    assert found.value.epoch == 1


def test_divergence_in_the_first_epoch_gives_the_state_from_before_training():
    counter = Counter()
    with pytest.raises(DivergenceError, match="from before training") as found:
        run(counter, lambda rows: {"total": counter.step(rows)["total"] + math.nan})
    assert counter.steps == 0
    assert found.value.epoch == 0


def test_buffers_may_hold_infinity():
    counter = Counter()
    counter.register_buffer("mask", torch.tensor([0.0, -math.inf]))
    assert run(counter, max_epochs=2).best_epoch == 2


def test_divergence_survives_pickling():
    error = DivergenceError("too far", Outcome((Epoch(1, {"total": 0.5}, {}),), 1))
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.epoch, copy.outcome) == ("too far", 1, error.outcome)


def test_the_learning_rate_follows_a_cosine():
    rates = []
    counter = Counter()
    optimizer = torch.optim.SGD(counter.parameters(), lr=8.0)

    def step(rows):
        rates.append(optimizer.param_groups[0]["lr"])
        return counter.step(rows)

    train(
        step,
        counter,
        optimizer,
        n_rows=1,
        loop=Loop(max_epochs=100, batch_size=1),
        generator=seeded_generator(0),
        device=CPU,
    )
    assert rates[0] == pytest.approx(8.0)
    assert rates[50] == pytest.approx(4.04)
    assert rates[-1] == pytest.approx(0.08, rel=0.05)
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize(("n_rows", "batch_size"), [(1, 64), (64, 64), (65, 64), (1000, 64)])
def test_every_pass_has_every_row_once_in_batches_of_nearly_equal_sizes(n_rows, batch_size):
    stream, per_pass = batches(n_rows, batch_size, seeded_generator(0), CPU), math.ceil(n_rows / batch_size)
    for _ in range(3):
        found = list(islice(stream, per_pass))
        assert sorted(torch.cat(found).tolist()) == list(range(n_rows))
        sizes = [len(rows) for rows in found]
        assert max(sizes) <= batch_size
        assert max(sizes) - min(sizes) <= 1


def test_batches_change_from_pass_to_pass_and_not_from_run_to_run():
    one, other = (batches(50, 10, seeded_generator(3), CPU) for _ in range(2))
    first = torch.cat(list(islice(one, 5)))
    assert torch.equal(first, torch.cat(list(islice(other, 5))))
    assert not torch.equal(first, torch.cat(list(islice(one, 5))))


def test_an_epoch_may_have_another_number_of_steps_than_a_pass():
    counter, seen = Counter(), []

    def step(rows):
        seen.extend(rows.tolist())
        return counter.step(rows)

    outcome = run(counter, step, max_epochs=4, n_rows=12, batch_size=4, steps_per_epoch=2)
    assert counter.steps == 8
    assert len(outcome.history) == 4
    assert sorted(seen[:12]) == sorted(seen[12:24]) == list(range(12))


def test_progress_goes_to_standard_error(capsys):
    run(Counter(), max_epochs=2, progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "Training: 1 of 2 epochs, total 1.5",
        "Training: 2 of 2 epochs, total 3.5",
    ]


def test_without_progress_nothing_is_printed(capsys):
    run(Counter(), max_epochs=2)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar_that_is_closed_when_training_fails(monkeypatch):
    tqdm = pytest.importorskip("tqdm")
    bars = []

    class Bar(tqdm.tqdm):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            bars.append(self)

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    counter = Counter()

    def step(rows):
        return {"total": counter.step(rows)["total"] * (math.nan if counter.steps > 2 else 1.0)}

    with pytest.raises(DivergenceError):
        run(counter, step, progress=True)
    assert [bar.n for bar in bars] == [1]
    assert bars[0].disable  # what tqdm sets on a bar that is closed
