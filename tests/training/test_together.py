"""Fits whose networks are trained as one batched model."""

import threading
import time
import warnings
from functools import partial

import numpy as np
import pytest
import torch

import gcig
from gcig.benchmark.backends import LocalBackend, _teams
from gcig.benchmark.execution import run_trial, run_trials_together
from gcig.benchmark.trials import Table, fold_trials
from gcig.losses.stacked import StackedGradient
from gcig.methods.unconstrained import UnconstrainedClassifier
from gcig.training.together import run_together, running_seconds, team_size
from support.small_runs import count_team


@pytest.fixture(scope="module")
def german():
    return gcig.load_dataset("german")


@pytest.fixture
def stacked(monkeypatch):
    """The numbers of networks of all stacked steps."""
    found = []
    compute = StackedGradient.__call__
    monkeypatch.setattr(
        StackedGradient, "__call__", lambda self, rows: found.append(len(rows)) or compute(self, rows)
    )
    return found


def fit(estimator, data, seed, **options):
    model = estimator(device="cpu", random_state=seed, **options)
    return model.fit(data.X, data.y, sensitive_features=data.sensitive_features)


def test_plain_networks_are_those_trained_alone(german, stacked):
    """They stop at different epochs; learning rates differ."""
    fits = [
        partial(fit, UnconstrainedClassifier, german, seed, max_epochs=12, patience=2, learning_rate=rate)
        for seed, rate in enumerate((2e-3, 4e-3, 8e-3))
    ]
    together, alone = run_together(fits), [each() for each in fits]
    assert set(stacked) >= {3, 2}
    assert len({model.n_epochs_ for model in alone}) > 1
    for one, other in zip(together, alone, strict=True):
        assert one.n_epochs_ == other.n_epochs_
        np.testing.assert_allclose(
            one.decision_function(german.X), other.decision_function(german.X), atol=1e-4
        )
        np.testing.assert_allclose(one.history_.to_numpy(), other.history_.to_numpy(), atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_students_are_trained_together(german, stacked):
    """Teachers agree up to rounding. A student starts at its teacher, where some terms have kinks."""
    weights = ({"lambda_ig": 0.1}, {"lambda_ig": 0.4}, {"lambda_fair": 0.2})
    fits = [
        partial(fit, gcig.FairXClassifier, german, seed, max_epochs=3, **each)
        for seed, each in enumerate(weights)
    ]
    together, alone = run_together(fits), [each() for each in fits]
    assert stacked[-1] == 3  # a teacher may have stopped before the others
    for one, other in zip(together, alone, strict=True):
        assert one.plain_["auc"] == pytest.approx(other.plain_["auc"], abs=1e-6)
        assert one.history_.columns.tolist() == other.history_.columns.tolist()
        assert one.history_["val_auc"].iloc[-1] == pytest.approx(other.history_["val_auc"].iloc[-1], abs=0.03)
        assert one.history_["gcig"].iloc[-1] == pytest.approx(other.history_["gcig"].iloc[-1], rel=0.2)


def test_other_networks_are_trained_one_by_one(german, stacked):
    fits = [partial(fit, UnconstrainedClassifier, german, 0, max_epochs=2, hidden_sizes=(n,)) for n in (4, 5)]
    for one, other in zip(run_together(fits), [each() for each in fits], strict=True):
        np.testing.assert_array_equal(one.decision_function(german.X), other.decision_function(german.X))
    assert stacked == []


def test_a_fit_that_fails_does_not_stop_the_others(german):
    ended = []

    def fail():
        raise ValueError("no such table")

    def succeed(seed):
        ended.append(fit(UnconstrainedClassifier, german, seed, max_epochs=2))

    with pytest.raises(ValueError, match="no such table"):
        run_together([partial(succeed, 0), fail, partial(succeed, 1)])
    assert len(ended) == 2
    assert team_size() == 1


def test_an_error_of_the_batched_step_reaches_every_fit(german, monkeypatch):
    def fail(self, rows):
        raise ValueError("out of memory")

    monkeypatch.setattr(StackedGradient, "__call__", fail)
    fits = [partial(fit, UnconstrainedClassifier, german, seed, max_epochs=2) for seed in (0, 1)]
    with pytest.raises(RuntimeError, match="together failed: out of memory"):
        run_together(fits)


def test_an_interrupt_ends_all_fits(german, monkeypatch):
    ended = []

    class Thread(threading.Thread):
        def join(self):
            if not ended:
                ended.append("interrupted")
                raise KeyboardInterrupt
            super().join()

    def work(seed):
        try:
            fit(UnconstrainedClassifier, german, seed, max_epochs=100_000, patience=100_000)
        except BaseException as error:
            ended.append(type(error))
            raise

    monkeypatch.setattr("gcig.training.together.threading.Thread", Thread)
    with pytest.raises(KeyboardInterrupt):
        run_together([partial(work, seed) for seed in range(2)])
    # A fit that has not begun by then never does.
    assert ended in (["interrupted"] + n * [KeyboardInterrupt] for n in (1, 2))


def test_the_clock_of_a_fit_stands_still_while_others_run():
    def work():
        start = running_seconds()
        time.sleep(0.1)
        return running_seconds() - start

    assert run_together([work] * 4) == pytest.approx([0.1] * 4, abs=0.05)


def test_networks_with_mini_batches_of_other_sizes_are_not_stacked(german, stacked):
    """All have nine mini-batches."""

    def work(n_rows, batch_size):
        model = UnconstrainedClassifier(device="cpu", random_state=0, max_epochs=1, batch_size=batch_size)
        groups = german.sensitive_features[:n_rows]
        model.fit(german.X[:n_rows], german.y[:n_rows], sensitive_features=groups)

    run_together([partial(work, *sizes) for sizes in ((1000, 100), (1000, 100), (600, 60))])
    assert set(stacked) == {2}


def test_warnings_outside_a_trial_are_shown():
    with pytest.warns(UserWarning, match="of no trial"):
        run_trials_together([partial(warnings.warn, "of no trial"), lambda: None])


def test_one_fit_runs_at_a_time(german):
    running, most = set(), []

    class Watched(UnconstrainedClassifier):
        def train_network(self, *given):
            running.add(threading.get_ident())
            most.append(len(running))
            return super().train_network(*given)

    run_together([partial(fit, Watched, german, seed, max_epochs=1) for seed in range(3)])
    assert most == [1, 2, 3]  # each began once the one before it waited


@pytest.fixture(scope="module")
def table():
    return Table.shipped("german")


def run_both(table, method, **options):
    trials = fold_trials(table, method, options, n_folds=3)
    return run_trials_together([partial(run_trial, each, table) for each in trials]), [
        run_trial(each, table) for each in trials
    ]


@pytest.mark.slow
def test_a_comparison_is_the_one_by_one_comparison_within_fold_noise(table, stacked):
    for method in ("unconstrained", "hardt", "dir", "fairx"):
        together, alone = run_both(table, method, max_epochs=20)
        assert set(stacked) == {3}
        for measure in ("auc", "f1", "gcig", "eo_gap"):
            found, expected = (
                np.array([getattr(each.evaluation, measure) for each in results])
                for results in (together, alone)
            )
            assert abs(found.mean() - expected.mean()) <= max(expected.std(ddof=1), 1e-3)


def test_trials_keep_their_own_warnings_and_errors(table, monkeypatch):
    train = UnconstrainedClassifier.train_network

    def warn(self, *given):
        warnings.warn(f"before {self.random_state}", stacklevel=1)
        outcome = train(self, *given)
        warnings.warn(f"after {self.random_state}", stacklevel=1)
        return outcome

    monkeypatch.setattr(UnconstrainedClassifier, "train_network", warn)
    threads, show = torch.get_num_threads(), warnings.showwarning
    together, alone = run_both(table, "unconstrained", max_epochs=2)
    assert [each.warnings for each in together] == [each.warnings for each in alone]
    assert all(len(each.warnings) == 2 for each in together)
    failed, _ = run_both(table, "unconstrained", max_epochs=2, hidden_sizes=[0])
    assert all("hidden_sizes" in each.error for each in failed)
    assert (torch.get_num_threads(), warnings.showwarning) == (threads, show)


def test_trials_on_a_gpu_are_grouped_by_method_and_table(table, monkeypatch):
    on_cpu = fold_trials(table, "fairx", {}, n_folds=3)
    on_gpu = [
        trial
        for method in ("fairx", "hardt")
        for seed in (0, 1)
        for trial in fold_trials(table, method, {"device": "cuda:0"}, n_folds=20, seed=seed)
    ]
    tables = {table.name: table}
    teams = _teams([*on_cpu, *on_gpu], tables)
    assert [len(team) for team in teams] == [1, 1, 1, 25, 15, 25, 15]
    assert {each for team in teams for each in team} == {*on_cpu, *on_gpu}
    for rows, expected in ((4 * len(table.y), 4), (len(table.y) - 1, 1)):  # large tables do not fit at once
        monkeypatch.setattr("gcig.benchmark.backends._TEAM_ROWS", rows)
        assert {len(team) for team in _teams(on_gpu, tables)} == {expected}


def test_no_team_is_larger_than_the_share_of_a_process(table):
    trials = fold_trials(table, "fairx", {"device": "cuda"}, n_folds=12)
    for jobs, expected in ((1, 12), (4, 3), (12, 1), (20, 1)):
        assert {len(team) for team in _teams(trials, {table.name: table}, jobs=jobs)} == {expected}


def test_worker_processes_run_teams_and_repeat_a_killed_team_one_by_one(table):
    trials = fold_trials(table, "hardt", {"device": "cuda"}, n_folds=4)
    found = dict(LocalBackend(2).run(trials, {table.name: table}, count_team))
    assert [found[trial] for trial in trials] == [1, 1, 2, 2]


def test_the_local_backend_runs_teams_in_this_process(table, monkeypatch):
    trials = fold_trials(table, "hardt", {"device": "cuda"}, n_folds=4)
    sizes = []

    def work(trial, _):
        sizes.append(team_size())
        return trial.fold

    found = list(LocalBackend().run(trials, {table.name: table}, work))
    assert found == [(trial, trial.fold) for trial in trials]
    assert sizes == [4] * 4
