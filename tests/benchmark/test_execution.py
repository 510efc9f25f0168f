from itertools import product

import numpy as np
import pytest
import torch

from gcig.benchmark.execution import fit_seed, run_trial, split_rows
from gcig.benchmark.store import RunError
from gcig.benchmark.trials import Trial
from gcig.core.definition import Definition
from gcig.methods.registry import METHODS
from gcig.metrics.predictions import evaluate_predictions
from support.small_runs import QUICK, BrokenClassifier, one_trial, registered, small_table, small_trials

TABLE = small_table()


def trial_of(table=TABLE, **changes):
    given = {"dataset": table.name, "data_hash": table.sha256, "method": "unconstrained", "parameters": QUICK}
    return Trial(**{**given, "n_folds": 3, **changes})


@pytest.mark.parametrize("method", METHODS)
def test_stored_predictions_reproduce_the_metrics(method):
    parameters = QUICK if method != "agarwal" else {**QUICK, "max_iter": 2}
    result = run_trial(trial_of(method=method, parameters=parameters), TABLE)
    assert result.error is None
    columns = {name: np.asarray(values) for name, values in result.predictions.items()}
    again = evaluate_predictions(
        columns["label"].astype(int),
        columns["score"],
        sensitive_features=columns["group"].astype(int),
        y_expected=columns["prediction"],
        min_cell=1,
    )
    for name in ("auc", "f1", "eo_gap", "accuracy"):
        assert getattr(again, name) == pytest.approx(getattr(result.evaluation, name), abs=1e-12), name
    assert np.array_equal(columns["label"], TABLE.y.to_numpy()[columns["position"].astype(int)])
    assert result.fit_seconds > 0


def test_folds_test_every_row_once():
    tested = np.concatenate([split_rows(trial_of(fold=fold), TABLE)[1] for fold in range(3)])
    assert sorted(tested) == list(range(len(TABLE.y)))


def test_tuning_on_one_split_leaves_a_fifth_untouched():
    train, validation = split_rows(trial_of(role="tune", n_folds=0), TABLE)
    assert len(train) / 160 == pytest.approx(0.6, abs=0.02)
    assert len(validation) / 160 == pytest.approx(0.2, abs=0.02)
    assert not set(train) & set(validation)
    again = split_rows(trial_of(role="tune", n_folds=0, repeat=2), TABLE)
    assert np.array_equal(train, again[0])


def test_nested_tuning_never_sees_the_test_rows():
    for fold in range(3):
        train, test = split_rows(trial_of(fold=fold), TABLE)
        fitted, judged = split_rows(trial_of(fold=fold, role="tune"), TABLE)
        assert set(fitted) | set(judged) == set(train)
        assert not set(fitted) & set(judged)
        assert not (set(fitted) | set(judged)) & set(test)


def test_seeds_of_fits_differ_between_folds_and_not_between_methods():
    numbers = product(range(3), repeat=3)
    seeds = {fit_seed(one_trial(fold=fold, seed=seed, repeat=repeat)) for fold, seed, repeat in numbers}
    assert len(seeds) == 27
    assert fit_seed(one_trial(method="dir")) == fit_seed(one_trial(method="fairx"))


def test_results_do_not_depend_on_the_number_of_threads():
    threads = torch.get_num_threads()
    trial = small_trials(TABLE)[-1]
    first = run_trial(trial, TABLE)
    torch.set_num_threads(2)
    try:
        second = run_trial(trial, TABLE)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert first.evaluation == second.evaluation
    assert first.predictions == second.predictions


def test_parameters_and_definition_reach_the_estimator():
    definition = Definition(norm="l2")
    result = run_trial(trial_of(method="fairx", definition=definition), TABLE)
    assert result.evaluation.definition["norm"] == "l2"
    assert result.parameters == QUICK
    assert run_trial(trial_of(parameters={"max_epochs": 0}), TABLE).error.startswith("InputError: max_epochs")
    assert "no_such" in run_trial(trial_of(parameters={"no_such": 1}), TABLE).error


def test_an_error_is_one_line_of_the_result():
    with registered("broken", BrokenClassifier):
        result = run_trial(trial_of(method="broken"), TABLE)
    assert result.evaluation is None
    assert result.error == "ArithmeticError: a first line and a second"


def test_an_unknown_method_is_a_failed_trial():
    assert "no method 'nothing'" in run_trial(trial_of(method="nothing"), TABLE).error


def test_warnings_are_recorded_and_not_shown(recwarn):
    X = TABLE.X.assign(copy_of_sex=TABLE.sensitive_features)
    table = type(TABLE).of(X, TABLE.y, sensitive_features=TABLE.sensitive_features, name="leaky")
    result = run_trial(trial_of(table), table)
    assert any("reveal the protected attribute" in warning for warning in result.warnings)
    assert not recwarn.list


def test_a_table_with_other_rows_is_refused():
    with pytest.raises(RunError, match="other rows"):
        run_trial(trial_of(), small_table(seed=1))


def test_tuning_keeps_no_predictions():
    assert run_trial(trial_of(role="tune", n_folds=0), TABLE).predictions == {}
