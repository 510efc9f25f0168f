"""A small reproduction from end to end: synthetic tables with the datasets' names, two folds, two epochs."""

import doctest
import json
import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from reproduction.cost import GROUPS, STEPS, measure_cost, rule_name
from reproduction.experiments import EXPERIMENTS, Plan, weighted
from reproduction.pages import csv_table, draw, markdown_table, publish
from reproduction.results import Results
from reproduction.run import make_trials, run

from gcig.benchmark.tables import Table
from gcig.methods.registry import METHODS
from reproduction import experiments, pages
from reproduction import run as running

ROOT = Path(__file__).parents[2]
PLAN = Plan(
    ("german", "compas-paper", "compas"),
    ("unconstrained", "dir", "hardt", "fairx-paper", "fairx"),
    n_folds=2,
    repeats={"german": 2},
    quick=True,
)
SHORT = {"max_epochs": 2, "hidden_sizes": [8], "batch_size": 128}


def small_tables():
    found = []
    for name in PLAN.datasets:
        rng = np.random.default_rng(len(name))
        sex = pd.Series(rng.choice(["f", "m"], 160), name="sex")
        income = rng.normal(size=160) + (sex == "m")
        X = pd.DataFrame({"income": income, "debt": rng.normal(size=160)})
        y = (income + rng.normal(size=160) > 0.5).astype(int)
        found.append(Table.of(X, y, sensitive_features=sex, name=name))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduction") / "run"
    run(folder, PLAN, tables=small_tables(), parameters=SHORT)
    return folder


def test_results_have_one_row_per_fit(folder):
    frame = pd.read_csv(folder / "results.csv")
    assert frame.groupby("dataset").size().to_dict() == {"german": 20, "compas-paper": 10, "compas": 10}
    assert frame["error"].isna().all()
    assert json.loads(frame["parameters"][0])["max_epochs"] == 2
    ablated = pd.read_csv(folder / "results_ablation.csv")
    assert len(ablated) == 2 * sum(each.parameters is not None for each in EXPERIMENTS["ablation"])
    stored = json.loads((folder / "provenance.json").read_text())
    assert stored["threads"] == 1
    assert len(stored["commit"].removesuffix("-dirty")) in (0, 40)
    assert Plan.read(folder) == replace(PLAN, repeats={"german": 2})


def test_a_finished_run_is_not_repeated(folder):
    before = (folder / "results.csv").read_bytes()
    stamps = {file.name: file.stat().st_mtime_ns for file in (folder / "trials").iterdir()}
    run(folder, PLAN, tables=small_tables(), parameters=SHORT)
    assert (folder / "results.csv").read_bytes() == before
    assert {file.name: file.stat().st_mtime_ns for file in (folder / "trials").iterdir()} == stamps


def test_a_quick_run_has_a_page_without_claims(folder):
    text = draw(folder).read_text("utf-8")
    assert "This is a quick run" in text
    assert "RQ3, ablation" in text
    assert "claims are replicated" not in text
    assert 'class="system-message"' not in text  # an error of docutils
    for name in ("trade_off", "comparison", "correlation"):
        assert f"figures/{name}.svg" in text
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_published_results_have_no_predictions(folder, tmp_path):
    run_folder = shutil.copytree(folder, tmp_path / "run")
    (run_folder / "measured").mkdir()
    target = tmp_path / "published"
    (target / "tables").mkdir(parents=True)
    publish(run_folder, target)
    assert {file.name for file in target.iterdir()} == {
        *("results.csv", "results_ablation.csv", "pooled.csv", "request.json", "chosen_parameters.json"),
        *("provenance.json", "measured", "figures"),
    }
    assert len(Results.read(target).frames["comparison"]) == 40


def test_failed_fits_are_named_on_the_page(tmp_path, monkeypatch):
    def fail(self, X, y, **other):
        raise ValueError("no luck")

    monkeypatch.setattr(METHODS["dir"].estimator, "fit", fail)
    results = run(tmp_path, replace(PLAN, repeats={}), tables=small_tables(), parameters=SHORT)
    assert len(results.failures) == 6  # each dataset and fold once
    assert draw(tmp_path).read_text().count("no luck") == 6


def test_the_plan_of_the_paper_and_the_quick_one():
    full, quick = Plan.of(), Plan.of(quick=True)
    assert full.repeats == {"german": 5, "compas-paper": 5, "compas": 5, "adult": 1, "bank": 1}
    assert [full.folds_of(name) for name in full.experiments] == [5, 5, 2, 2]
    assert (quick.experiments, quick.folds_of("comparison")) == (("comparison", "ablation"), 2)
    assert Plan.read(ROOT / "results" / "paper") == full


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_settings_are_distinct_and_understood_by_the_estimators(experiment):
    settings = Plan.of().settings(experiment)
    assert len({(each.method, each.variant) for each in settings}) == len(settings)
    for each in settings:
        parameters = each.parameters or {}
        assert set(parameters) <= set(METHODS[each.method].estimator().get_params(deep=False))


def test_sweeps_share_the_setting_with_both_weights_at_one():
    assert weighted("fairx", "lambda_ig", 1.0).variant == weighted("fairx", "lambda_fair", 1.0).variant
    assert len(Plan.of().settings("sensitivity")) == 2 * 11


def test_changes_are_made_to_the_parameters_of_each_fold():
    tables = {table.name: table for table in small_tables()}
    plan = replace(PLAN, methods=("fairx-paper",), quick=False)
    key = "fairx-paper"
    chosen = {("compas-paper", key, fold): {"lambda_ig": 1.0, "lambda_fair": fold} for fold in range(2)}
    common = {key: {"threshold": "f1"}}
    trials = make_trials(plan, "ablation", tables, chosen, common)
    (second,) = (each for each in trials if each.variant == "ablation prediction+eo" and each.fold == 1)
    assert second.parameters == {"lambda_ig": 0.0, "lambda_fair": 1, "threshold": "f1"}


@pytest.mark.slow
def test_parameters_are_tuned_inside_the_folds(tmp_path, monkeypatch):
    small = {key: replace(m, search_space={"learning_rate": (0.01, 0.02)}) for key, m in METHODS.items()}
    monkeypatch.setattr(METHODS, "data", small)
    monkeypatch.setitem(experiments._FOLDS, "sensitivity", 1)
    row = {"groups": 2, "ratio": 3.0, "low": 2.0, "high": 4.0, "rounds": 1}
    cost = [{**row, "rule": rule_name(steps), "groups": n} for steps in STEPS for n in GROUPS]
    monkeypatch.setattr(running, "measure_cost", lambda: cost)
    plan = replace(PLAN, quick=False, repeats={})
    run(tmp_path, plan, tables=small_tables(), parameters={**SHORT, "max_epochs": 20})
    chosen = json.loads((tmp_path / "chosen_parameters.json").read_text())["chosen"]
    assert [each["fold"] for each in chosen] == [0, 1] * 15
    used = pd.read_csv(tmp_path / "results_ablation.csv")["parameters"].map(json.loads)
    assert {each["learning_rate"] for each in used} <= {0.01, 0.02}
    assert "cannot be tested" in draw(tmp_path).read_text()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::gcig.CollapseWarning", "ignore::gcig.ThresholdWarning")  # one epoch
def test_cost_is_measured_as_ratios():
    found = measure_cost(dataset="german", n_rows=200, epochs=1, rounds=1)
    assert len(found) == len(STEPS) * len(GROUPS)
    assert all(row["low"] <= row["ratio"] <= row["high"] and row["ratio"] > 0 for row in found)


def test_the_documentation_shows_the_committed_results():
    results = Results.read(pages.PUBLISHED)
    shown = pages.PAGE.read_text("utf-8")
    assert pages.page(results, "../results/paper/figures") == shown, "run python -m reproduction.pages"
    readme = pages.README.read_text("utf-8")
    assert pages.readme(results, readme) == readme, "run python -m reproduction.pages"
    for text in (shown, readme):
        assert f"commit {results.code}" in text
    for name in ("trade_off", "comparison", "correlation", "sensitivity_compas-paper"):
        assert (pages.PUBLISHED / "figures" / f"{name}.svg").is_file()


@pytest.mark.parametrize("name", ["claims", "pages", "paper", "results", "statistics"])
def test_examples_in_docstrings(name):
    found = doctest.testmod(import_module(f"reproduction.{name}"))
    assert found.attempted
    assert not found.failed


def test_long_tables_are_split_by_dataset():
    rows = [(name, str(i)) for name in ("german", "adult") for i in range(20)]
    table = pd.DataFrame(rows, columns=["dataset", "i"])
    parts = csv_table(table, "All").split("\n\n..")
    assert [part.splitlines()[0].removeprefix(".. ").strip() for part in parts] == [
        "csv-table:: german: All",
        "csv-table:: adult: All",
    ]
    assert markdown_table(table[:1]) == "| dataset | i |\n| :--- | :--- |\n| german | 0 |"
