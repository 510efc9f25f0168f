import json
import shutil

import pandas as pd
import pytest

from example_tables import ROLE_FLAGS
from gcig.cli.compare import describe_failures
from gcig.records import FoldResult

ONE = ["--methods", "unconstrained", "--folds", "2", "--jobs", "1"]


@pytest.fixture(scope="module")
def run(loans_csv, tmp_path_factory):
    """The folder of a finished comparison."""
    from gcig.cli import main

    out = tmp_path_factory.mktemp("runs") / "run"
    assert main(["compare", str(loans_csv), *ROLE_FLAGS, "--drop", "id", "--out", str(out), *ONE, "-q"]) == 0
    return out


def test_compare_writes_results_and_a_page(run):
    results = pd.read_csv(run / "results.csv")
    assert results["method"].tolist() == ["unconstrained"] * 2
    assert results["dataset"].unique().tolist() == ["loans"]
    page = (run / "report.html").read_text()
    assert "Comparison of methods on loans" in page
    (sha,) = json.loads((run / "manifest.json").read_text())["data"].values()
    assert f"loans, SHA-256 of its rows {sha}" in page
    assert "the methods&#39; defaults" in page


def test_compare_resumes_and_prints_json(shell, loans_csv, run):
    before = {path.name: path.stat().st_mtime_ns for path in (run / "trials").iterdir()}
    arguments = ["--drop", "id", "--out", run, *ONE, "--json"]
    code, out, err = shell("compare", loans_csv, *ROLE_FLAGS, *arguments)
    assert code == 0
    assert "Running trials: 2 of 2 trials, resumed 2" in err
    assert {path.name: path.stat().st_mtime_ns for path in (run / "trials").iterdir()} == before
    found = json.loads(out)
    assert found["summary"][0]["method"] == "unconstrained"
    assert found["failures"] == []
    assert found["page"].endswith("report.html")


def test_a_run_of_other_data_is_refused(shell, loans_csv, run):
    code, out, err = shell("compare", loans_csv, *ROLE_FLAGS, "--out", run, "--drop", "id,race", *ONE, "-q")
    assert (code, out) == (2, "")
    assert "cannot be resumed" in err


def test_report_redraws_a_run(shell, run, tmp_path):
    page = (run / "report.html").read_text()
    (run / "report.html").unlink()
    code, out, _ = shell("report", run)
    assert (code, out) == (0, f"Report:  {run / 'report.html'}\n")
    assert (run / "report.html").read_text() == page
    assert shell("report", run, "--out", tmp_path / "other.html")[0] == 0
    assert (tmp_path / "other.html").read_text() == (run / "report.html").read_text()


def test_report_prints_the_json_of_the_original_command(shell, loans_csv, run, model, tmp_path):
    arguments = ["--drop", "id", "--out", run, *ONE, "--json", "-q"]
    compared = json.loads(shell("compare", loans_csv, *ROLE_FLAGS, *arguments)[1])
    code, out, err = shell("report", run, "--json")
    assert (code, err) == (0, "")
    page = str(run / "report.html")
    expected = {"schema": 1, "kind": "report", "source": str(run), "page": page, "result": compared}
    assert json.loads(out) == expected
    other = tmp_path / "other.html"
    found = json.loads(shell("report", model, "--out", other, "--json")[1])
    assert found["page"] == str(other)
    assert found["result"] == json.loads((model / "report.json").read_text())


def test_shards_share_one_folder(shell, loans_csv, run, tmp_path):
    out = tmp_path / "shards"
    arguments = ["compare", loans_csv, *ROLE_FLAGS, "--drop", "id", "--out", out, *ONE, "-q"]
    code, printed, _ = shell(*arguments, "--shard", "2/2")
    assert code == 0
    assert "2 folds, unfinished: 1 of 2 fits are done" in printed
    assert "undefined" not in printed  # one fold has no deviation
    assert "unfinished: 1 of 2 fits are done" in (out / "report.html").read_text()
    assert "unfinished" not in shell(*arguments, "--shard", "1/2")[1]
    for name in ("results.csv", "summary.csv"):
        one, other = (pd.read_csv(folder / name) for folder in (run, out))
        times = [column for column in one if "seconds" in column]
        pd.testing.assert_frame_equal(one.drop(columns=times), other.drop(columns=times))


def test_report_writes_the_tables_of_shards_that_were_copied_together(shell, run, tmp_path):
    whole = tmp_path / "whole"
    shutil.copytree(run, whole, ignore=shutil.ignore_patterns("*.csv", "*.html", "provenance.json"))
    assert shell("report", whole)[0] == 0
    for name in ("results.csv", "summary.csv", "pooled.csv", "provenance.json"):
        assert (whole / name).read_bytes() == (run / name).read_bytes()
    next((whole / "trials").iterdir()).unlink()
    assert shell("report", whole)[0] == 0
    assert len(pd.read_csv(whole / "results.csv")) == 1
    assert "unfinished: 1 of 2" in (whole / "report.html").read_text()


def test_the_folder_of_a_comparison_is_named_after_its_file(shell, loans_csv, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, printed, _ = shell("compare", loans_csv, *ROLE_FLAGS, "--drop", "id", *ONE, "-q")
    assert code == 0
    assert "Report:  loans-comparison/report.html" in printed


def test_report_redraws_a_model(shell, model):
    page = (model / "report.html").read_text()
    (model / "report.html").unlink()
    assert shell("report", model)[0] == 0
    assert (model / "report.html").read_text() == page
    for words in ("FairX on loans.csv", "held-out rows", "how was the table read"):
        assert words in page


def test_folds_that_failed_are_named():
    fold = FoldResult("t", "fairx", "", {}, 1, 0, None, 0.0, error="the loss was not finite")
    assert describe_failures([fold]) == ["fairx, fold 2, seed 0: the loss was not finite"]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_demo_reports_its_settings_and_its_page(shell, tmp_path):
    out = tmp_path / "demo"
    quick = ["--epochs", "2", "--folds", "2", "--methods", "unconstrained,fairx", "--jobs", "1"]
    code, printed, err = shell("demo", *quick, "--out", out)
    assert code == 0
    assert "German Credit (Statlog): 1,000 rows, 20 columns" in err
    assert "Protected attribute sex" in err
    assert "Unconstrained" in printed
    assert "FairX" in printed
    assert f"Report:  {out / 'report.html'}" in printed
    assert "German Credit" in (out / "report.html").read_text()
    code, printed, err = shell("demo", *quick, "--out", out, "--json", "--quiet")
    assert (code, err) == (0, "")
    found = json.loads(printed)
    assert found["page"] == str(out / "report.html")
    assert [row["method"] for row in found["summary"]] == ["unconstrained", "fairx"]


@pytest.mark.slow
def test_the_whole_demo(shell, tmp_path):
    code, printed, _ = shell("demo", "--out", tmp_path / "demo", "--quiet")
    assert code == 0
    for label in ("Unconstrained", "DIR", "Hardt", "Agarwal", "Lagrangian", "Adversarial", "FairX"):
        assert label in printed
