"""The experiments on tables with known truth: resumable, and summed up correctly."""

import math

import numpy as np
import pytest
from validation import coverage, detectors, methods, store, summary


def test_a_run_computes_what_is_missing(tmp_path) -> None:
    path, called = tmp_path / "results.jsonl", []

    def compute(x):
        called.append(x)
        return {"square": float(x * x), "undefined": math.nan}

    store.run(path, [{"x": 1}, {"x": 2}], compute)
    store.run(path, [{"x": 1}, {"x": 2}, {"x": 3}], compute)
    assert called == [1, 2, 3]
    assert [each["square"] for each in store.read(path)] == [1, 4, 9]
    assert math.isnan(store.read(path)[0]["undefined"])
    assert (tmp_path / "provenance.json").exists()


def test_a_run_that_is_out_of_time_stops(tmp_path) -> None:
    store.run(tmp_path / "results.jsonl", [{"x": 1}], lambda x: {"x": x}, minutes=-1)
    assert store.read(tmp_path / "results.jsonl") == []


def test_every_case_is_in_the_grid_once_and_the_subset_in_the_full_grid() -> None:
    for grid in (
        lambda full: detectors.grid("design", full=full),
        lambda full: detectors.grid("end", full=full),
        lambda full: methods.grid(full=full),
        lambda full: detectors.stability_grid(full=full),
    ):
        some, every = ([tuple(each.items()) for each in grid(full)] for full in (False, True))
        assert len(set(every)) == len(every)
        assert set(some) < set(every)


@pytest.fixture(scope="module")
def audited():
    """Two audits: a linear model with one standard, and the formula with two."""
    how = {"task": "binary", "n": 1500, "strength": 1.0, "seed": 0}
    trials = [
        {"generator": "shifted", "model": "linear", **how},
        {"generator": "two_weights", "model": "true", **how},
    ]
    return [{"trial": trial, **detectors.detect(**trial)} for trial in trials]


def test_detected_figures_truth_and_verdict(audited) -> None:
    codes = [each["plain"]["code"] for each in audited]
    assert codes == [each["plain"]["truth"]["code"] for each in audited]
    assert codes == ["group_differences", "different_standards"]
    again = [summary.verdict_of(each["plain"], False, 0.05) for each in audited]
    assert again == codes
    assert audited[0]["declared"]["truth"]["code"] == "no_dependence"
    rows = [store._defined(store._plain(each)) for each in audited]  # as they are stored
    table = summary.verdicts(rows)
    plain = table[(table["declaration"] == "none") & (table["material"] == 0.05)]
    assert plain["right"].tolist() == [1.0]
    scored = summary.detectors(rows, least=0).set_index("detector")
    assert scored.loc["varying part", "AUC, design"] == 1
    flags = summary.by_generator(rows, scored.reset_index(), least=0).set_index("generator")
    assert flags.loc["two_weights", "attribute shift"] == 1
    assert set(summary.generators()["half"]) == {"design", "end"}


def test_coverage_counts_intervals_around_the_truth() -> None:
    def row(sample, value, low, high):
        return {
            "trial": {"model": "linear", "groups": 2, "n": 100, "sample": sample},
            "figures": {"reason_gap": [value, low, high, 0.01]},
            "coins": {"reason_gap": [0.0, -0.1, 0.1, 0.04]},
        }

    rows = [row(-1, 0.2, 0.1, 0.3), row(0, 0.2, 0.1, 0.3), row(1, 0.4, 0.3, 0.5)]
    (line,) = coverage.table(rows, least=2).to_dict("records")
    assert (line["samples"], line["coverage"], line["coins p <= 0.05"]) == (2, 0.5, 1.0)
    assert line["truth"] == pytest.approx(0.2)
    assert line["bias"] == pytest.approx(math.sqrt((0.04 + 0.16) / 2) - 0.2)


def test_the_fair_model_is_the_formula_without_its_fault() -> None:
    fair = methods.fair_model("two_weights", "binary")
    assert fair.strength == 0

    class Fair:
        def predict(self, X):
            return np.asarray(methods._decisions(fair, _Rows(X)))

    class _Rows:
        task = "binary"

        def __init__(self, X):
            self.X = X

    assert methods.distance_from_fair(Fair(), "two_weights", "binary") == 0
    assert methods.fair_model("shifted", "binary").strength == 1
