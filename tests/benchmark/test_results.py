import io
import json
import math
import random
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gcig.benchmark.execution import failed_result
from gcig.benchmark.results import (
    csv_text,
    pooled,
    results_frame,
    summary,
)
from gcig.benchmark.runner import run_trials
from gcig.benchmark.store import Manifest, provenance
from gcig.metrics.measure import MEASURES
from gcig.metrics.predictions import evaluate_predictions
from support.small_runs import small_table, small_trials

TABLE = small_table()
TRIALS = small_trials(TABLE, ("unconstrained", "hardt"))


@pytest.fixture(scope="module")
def results():
    return run_trials(TRIALS, [TABLE])


def test_every_measure_is_a_column_in_the_order_of_the_registry(results):
    frame = results_frame(results)
    measured = [each.name for each in results[0].evaluation.figures]
    assert list(frame.columns[:4]) == ["dataset", "method", "fold", "seed"]
    columns = [name for name in frame.columns if name in measured]
    assert sorted(columns) == sorted(measured)
    assert columns == [name for name in MEASURES if name in measured]
    first = frame.iloc[0]
    assert first["auc"] == results[0].evaluation.auc
    assert json.loads(first["parameters"]) == dict(TRIALS[0].parameters)


def test_the_file_does_not_depend_on_the_order_of_the_results(results):
    shuffled = list(results)
    random.Random(0).shuffle(shuffled)
    text = csv_text(results_frame(results))
    assert csv_text(results_frame(shuffled)) == text
    read = pd.read_csv(io.StringIO(text))
    assert read["gcig"].tolist() == results_frame(results)["gcig"].tolist()  # to the last bit


def test_failed_trials_have_a_row_without_metrics(results):
    failed = failed_result(TRIALS[0], "no luck")
    frame = results_frame([failed, *results[1:]])
    row = frame[frame["error"].notna()].iloc[0]
    assert math.isnan(row["auc"])
    assert pd.isna(row["collapsed"])
    means = summary(frame).set_index("method")
    assert means.loc["unconstrained", ["folds", "failed"]].tolist() == [2, 1]
    rest = [r.evaluation.auc for r in results[1:3]]
    assert means.loc["unconstrained", "auc"] == pytest.approx(sum(rest) / 2)


def test_frames_without_results_and_with_failures_only():
    assert list(results_frame([]).columns[:4]) == ["dataset", "method", "fold", "seed"]
    only = [failed_result(trial, "no") for trial in TRIALS]
    assert summary(results_frame(only))["failed"].tolist() == [3, 3]
    assert pooled(only)["n_rows"].tolist() == [0, 0]


def test_deviations_are_sample_standard_deviations(results):
    aucs = pd.Series([r.evaluation.auc for r in results[:3]])
    row = summary(results_frame(results)).iloc[0]
    assert row["method"] == "unconstrained"
    assert row["auc_sd"] == pytest.approx(aucs.std(ddof=1))


def test_pooled_metrics_are_computed_over_all_rows(results):
    found = pooled(results).set_index("method").loc["unconstrained"]
    together = pd.concat([pd.DataFrame(dict(r.predictions)) for r in results[:3]])
    expected = evaluate_predictions(
        together["label"].astype(int),
        together["score"],
        sensitive_features=together["group"].astype(int),
        y_expected=together["prediction"],
    )
    assert found["n_rows"] == len(TABLE.y)
    for name in ("eo_gap", "eo_noise_floor", "auc", "f1"):
        assert found[name] == pytest.approx(getattr(expected, name))


def test_pooled_metrics_are_averaged_over_seeds(results):
    other = run_trials(small_trials(TABLE, ("unconstrained",), seed=1), [TABLE])
    one, two = pooled(results[:3])["eo_gap"][0], pooled(other)["eo_gap"][0]
    assert one != two
    assert pooled([*results[:3], *other])["eo_gap"][0] == pytest.approx((one + two) / 2)


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1+1", "-a", "@sum", "\t=1"])
def test_names_that_look_like_formulas_are_guarded(results, name):
    hostile = [replace(results[0], dataset=name, variant=name, error=name)]
    text = csv_text(results_frame(hostile))
    trials = pd.read_csv(pd.io.common.StringIO(text), dtype=str).iloc[0]
    assert trials["dataset"] == trials["variant"] == trials["error"] == f"'{name}"


def test_provenance_is_complete_and_anonymous():
    content = provenance(TRIALS, Manifest.current({}, {"folds": 3}))
    assert content["data"] == {"small": TABLE.sha256}
    assert content["threads"] == 1
    assert content["folds"] == [3]
    assert {"torch", "numpy", "gcig", "python"} <= set(content["versions"])
    import getpass
    import os
    import socket

    text = json.dumps(content)
    assert socket.gethostname() not in text
    assert os.path.expanduser("~") + "/" not in text
    assert getpass.getuser() not in text.split('"')


@pytest.mark.parametrize("task", ["classes", "number"])
def test_pooled_figures_of_other_tasks(task):
    table = small_table(task=task)
    found = run_trials(small_trials(table, ("unconstrained",)), [table])
    assert [each.error for each in found] == [None] * 3
    row = pooled(found).iloc[0]
    assert row["n_rows"] == len(table.y)
    main = {"classes": "accuracy", "number": "r2"}[task]
    if task == "classes":
        right = [np.asarray(r.predictions["label"]) == np.asarray(r.predictions["prediction"]) for r in found]
        assert row[main] == pytest.approx(np.concatenate(right).mean())
    assert math.isfinite(row[main])
    assert "outcome_gap" in row
    assert main in results_frame(found)
