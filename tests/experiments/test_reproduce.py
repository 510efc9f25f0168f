"""One small reproduction from end to end: a synthetic dataset, two folds, two epochs."""

import html
import json
import shutil
from dataclasses import asdict, replace
from threading import Thread

import numpy as np
import pandas as pd
import pytest

import gcig
from gcig._validation import InputError
from gcig.benchmark.store import RunError
from gcig.data.datasets.spec import ProtectedAttribute
from gcig.experiments import comparison, design, measurements, rendering, run_folder
from gcig.experiments.chapters import chapters
from gcig.experiments.figures import draw
from gcig.experiments.rendering import publish, restructured_text, write_documentation
from gcig.experiments.reproduce import report, reproduce
from gcig.experiments.run_folder import Request, read

pytest.importorskip("matplotlib")

NAME = "tiny-reproduction"
QUICK = {"max_epochs": 2, "hidden_sizes": [8], "batch_size": 128}
METHODS = ["unconstrained", "fairx-paper", "fairx"]
ASKED = {"datasets": [NAME], "methods": METHODS, "folds": 2, "parameters": QUICK, "tuning": "none"}


def load() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], 160)
    income = rng.normal(size=160) + (sex == "m")
    paid = income + rng.normal(size=160) > 0.5
    return pd.DataFrame({"income": income, "debt": rng.normal(size=160), "sex": sex, "paid": paid})


@pytest.fixture(scope="module", autouse=True)
def dataset():
    spec = gcig.DatasetSpec(
        name=NAME, load=load, target="paid", positive=True, protected=(ProtectedAttribute("sex"),)
    )
    gcig.register_dataset(spec, overwrite=True)
    yield
    from gcig.data.datasets import registry

    registry._SPECS._entries.pop(NAME)
    registry._LOADED.pop(NAME, None)


def draw_one(figure, kind):
    return draw(figure, kind) if figure.title.startswith("Outcome") else b""


@pytest.fixture(scope="module")
def patched():
    """The experiments on the small dataset, with fewer settings."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ablation", "sensitivity", "design_choices"):
            small = replace(run_folder.EXPERIMENTS[name], datasets=(NAME,))
            patch.setitem(run_folder.EXPERIMENTS, name, small)
        patch.setattr(design, "WEIGHTS", (0.1, 1.0))
        patch.setattr(design, "CHOICES", design.CHOICES[:2])
        patch.setattr(run_folder, "SMALL_REPEATS", 2)
        row = {"groups": 2, "ratio": 3.0, "low": 2.0, "high": 4.0, "rounds": 1}
        rules = map(measurements.rule_name, measurements.STEPS)
        patch.setattr(measurements, "measure_cost", lambda: [{**row, "rule": rule} for rule in rules])
        # Drawing takes longer than all fits together, and one figure suffices to test it.
        patch.setattr(rendering, "draw", draw_one)
        yield patch


@pytest.fixture(scope="module")
def run(tmp_path_factory, patched):
    out = tmp_path_factory.mktemp("reproduction") / "run"
    page = reproduce(out, **ASKED)
    assert page == out / "index.html"
    return out


def test_results_have_one_row_per_fold_and_the_documented_columns(run):
    frame = pd.read_csv(run / "results.csv")
    assert list(frame.columns)[:4] == ["dataset", "method", "fold", "seed"]
    assert frame.groupby("method").size().to_dict() == dict.fromkeys(METHODS, 4)  # two folds, two fits each
    assert sorted(frame["repeat"].unique()) == [0, 1]
    assert frame["error"].isna().all()
    parameters = json.loads(frame["parameters"][0])
    assert parameters["max_epochs"] == 2
    assert len(pd.read_csv(run / "results_ablation.csv")) == 2 * 8
    assert len(pd.read_csv(run / "results_sensitivity.csv")) == 2 * 2 * 3
    assert len(pd.read_csv(run / "results_design_choices.csv")) == 4
    for name in ("ablation", "sensitivity", "design_choices"):
        assert pd.read_csv(run / f"results_{name}.csv")["error"].isna().all()


def test_every_table_and_figure_is_written_in_every_format(run):
    tables = {file.stem for file in (run / "tables").iterdir()}
    assert {"main", "comparison", "wins", "differences", "pooled", "correlation", "ablation"} <= tables
    assert {"claims", "sensitivity", "design_choices", "cost", "contradictions"} <= tables
    assert {"datasets", "t_tests"} <= tables
    assert {file.suffix for file in (run / "tables").iterdir()} == {".md", ".csv", ".tex"}
    figures = {file.name for file in (run / "figures").iterdir()}
    names = ("comparison", "correlation_datasets", "trade_off", f"sensitivity_{NAME}")
    assert figures == {f"{name}.{kind}" for name in names for kind in ("svg", "png")}
    assert (run / "figures" / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_provenance_and_parameters_are_kept(run):
    provenance = json.loads((run / "provenance.json").read_text())
    assert provenance["threads"] == 1
    assert provenance["definitions"][0]["norm"] == "l1"
    assert provenance["versions"]["gcig"] == gcig.__version__
    chosen = json.loads((run / "chosen_parameters.json").read_text())
    assert chosen["common"]["fairx"] == {**QUICK, "threshold": "f1"}
    assert chosen["chosen"] == []


def test_the_page_has_all_chapters_and_no_address(run):
    text = (run / "index.html").read_text()
    unescaped = html.unescape(text)
    for chapter in chapters(read(run)):
        assert chapter.heading in unescaped
    assert 'src="http' not in text
    assert text.count("<svg") > 10


def test_resuming_a_finished_run_changes_nothing(run):
    before = (run / "results.csv").read_bytes()
    stamps = {file.name: file.stat().st_mtime_ns for file in (run / "trials").iterdir()}
    reproduce(run, **ASKED)
    assert (run / "results.csv").read_bytes() == before
    assert {file.name: file.stat().st_mtime_ns for file in (run / "trials").iterdir()} == stamps


def test_published_results_are_drawn_without_the_store(run, tmp_path):
    kept = tmp_path / "published"
    shutil.copytree(
        run, kept, ignore=shutil.ignore_patterns("trials", "claims", "manifest.json", "index.html", "tables")
    )
    page = report(kept)
    assert page.read_text() == (run / "index.html").read_text()
    for file in (run / "tables").iterdir():
        assert (kept / "tables" / file.name).read_bytes() == file.read_bytes()


def test_an_unfinished_run_shows_missing_entries(run, tmp_path):
    part = tmp_path / "part"
    shutil.copytree(run, part)
    for file in (part / "trials").glob("*fairx*"):
        file.unlink()
    report(part)
    text = (part / "tables" / "comparison.md").read_text()
    assert "missing" in text
    assert len(pd.read_csv(part / "results.csv")) == 4


def test_a_narrower_call_later_hides_nothing(run, tmp_path, patched):
    part = tmp_path / "part"
    shutil.copytree(run, part)
    reproduce(part, **{**ASKED, "methods": ["fairx"]})
    for file in (*run.glob("*.csv"), *run.glob("*.json"), *(run / "tables").iterdir()):
        assert (part / file.relative_to(run)).read_bytes() == file.read_bytes(), file.name
    assert (part / "index.html").read_text() == (run / "index.html").read_text()


def test_another_seed_is_added_to_the_first(run, tmp_path, patched):
    more = tmp_path / "more"
    shutil.copytree(run, more)
    reproduce(more, **{**ASKED, "methods": ["unconstrained"]}, seeds=[1])
    counts = pd.read_csv(more / "results.csv").groupby(["method", "seed"]).size().to_dict()
    assert counts == {("unconstrained", 1): 4, **dict.fromkeys(((method, 0) for method in METHODS), 4)}
    assert "(4 of 8 folds)" in (more / "tables" / "main.md").read_text()
    assert json.loads((more / "provenance.json").read_text())["seeds"] == [0, 1]


def test_other_parameters_are_another_run(run, patched):
    with pytest.raises(RunError, match=r"configuration \(parameters"):
        reproduce(run, **{**ASKED, "parameters": {**QUICK, "max_epochs": 3}})


def test_a_measurement_by_another_process_is_not_repeated(tmp_path):
    from gcig.experiments.reproduce import measure_once

    def wait_for_it():
        thread.join(timeout=0.5)
        assert thread.is_alive()  # waits for us
        return [{"by": "first"}]

    thread = Thread(target=measure_once, args=(tmp_path, "cost", lambda: [{"by": "second"}]))

    def first():
        thread.start()
        return wait_for_it()

    measure_once(tmp_path, "cost", first)
    thread.join()
    assert json.loads((tmp_path / "measured" / "cost.json").read_text()) == [{"by": "first"}]


def test_shards_together_are_the_whole(run, tmp_path, patched):
    for number in (1, 2):
        reproduce(tmp_path / "parts", **{**ASKED, "methods": ["unconstrained"]}, shard=(number, 2))
    one, other = (
        pd.read_csv(folder / "results.csv").drop(columns="fit_seconds")
        for folder in (run, tmp_path / "parts")
    )
    pd.testing.assert_frame_equal(one[one["method"] == "unconstrained"].reset_index(drop=True), other)


def test_failed_trials_are_reported(tmp_path, patched, monkeypatch):
    from gcig.methods.registry import METHODS

    def fail(self, X, y, **other):
        raise ValueError("no luck")

    monkeypatch.setattr(METHODS["fairx"].estimator, "fit", fail)
    page = reproduce(tmp_path / "run", **{**ASKED, "methods": ["fairx"]})
    frame = pd.read_csv(tmp_path / "run" / "results.csv")
    assert frame.loc[frame["method"] == "fairx", "error"].str.contains("no luck").all()
    assert page.is_file()
    failures = (tmp_path / "run" / "tables" / "failures.md").read_text()
    assert failures.count("no luck") == 14  # each setting and fold once


@pytest.mark.slow
@pytest.mark.parametrize("tuning", ["split", "nested"])
def test_parameters_are_tuned_in_the_run(tmp_path, patched, monkeypatch, tuning):
    from gcig.methods import registry

    small = {
        key: registry.Method(key, m.label, m.location, {"learning_rate": (0.01, 0.02)})
        for key, m in registry.METHODS.items()
    }
    monkeypatch.setattr(registry.METHODS, "_entries", small)
    enough = {**QUICK, "max_epochs": 20}  # after fewer epochs a candidate may decide everyone alike
    asked = {**ASKED, "methods": ["unconstrained", "fairx"], "parameters": enough}
    reproduce(tmp_path, **{**asked, "tuning": tuning})
    rates = pd.read_csv(tmp_path / "results.csv")["parameters"].map(
        lambda text: json.loads(text)["learning_rate"]
    )
    assert rates.isin([0.01, 0.02]).all()
    report(tmp_path)
    assert len(pd.read_csv(tmp_path / "results.csv")) == 8
    candidates = pd.read_csv(tmp_path / "results_tuning.csv")
    assert len(candidates) == 2 * 2 * (3 if tuning == "split" else 2)  # methods, candidates, fits or folds
    chosen = json.loads((tmp_path / "chosen_parameters.json").read_text())["chosen"]
    assert [each["fold"] for each in chosen] == ([None] * 2 if tuning == "split" else [0, 1] * 2)
    used = pd.read_csv(tmp_path / "results_ablation.csv")["parameters"].map(json.loads)
    assert {each["learning_rate"] for each in used} <= {0.01, 0.02}


def test_quick_is_a_small_version(tmp_path, patched):
    reproduce(tmp_path, **{**ASKED, "folds": 3, "methods": ["unconstrained", "fairx"]}, quick=True)
    assert len(pd.read_csv(tmp_path / "results.csv")) == 4  # two of three folds, one fit each
    assert not (tmp_path / "results_sensitivity.csv").exists()
    with pytest.raises(RunError, match=r"configuration \(quick"):
        reproduce(tmp_path, **{**ASKED, "folds": 3})


def test_the_documentation_page_is_generated_from_the_run(run, tmp_path):
    page = write_documentation(run, tmp_path / "docs" / "reproduction.rst")
    text = page.read_text()
    assert text.startswith("The paper reproduced\n====")
    assert "RQ1, all measures" in text
    assert "figures/comparison.svg" in text
    docutils = pytest.importorskip("docutils.core")
    html5 = pytest.importorskip("docutils.writers.html5_polyglot")
    made = docutils.publish_string(
        text,
        source_path=str(page),
        writer=html5.Writer(),  # a name is accepted only from docutils 0.22 on
        settings_overrides={"halt_level": 2, "report_level": 2},
    )
    assert b"RQ2" in made


def test_published_results_have_no_predictions_in_them(run, tmp_path):
    folder, page, readme = (
        tmp_path / "published",
        tmp_path / "docs" / "reproduction.rst",
        tmp_path / "README.md",
    )
    readme.write_text("before\n<!-- results -->\nold\n<!-- end of results -->\nafter\n")
    publish(run, folder, page, readme)
    assert readme.read_text().startswith("before\n<!-- results -->\n\n| dataset | GCIG: plain |")
    assert f"| {NAME} |" in readme.read_text()
    assert readme.read_text().endswith("<!-- end of results -->\nafter\n")
    assert {file.name for file in folder.iterdir()} == {
        *("results.csv", "results_ablation.csv", "results_sensitivity.csv", "results_design_choices.csv"),
        *("results_variants.csv", "pooled.csv", "request.json", "chosen_parameters.json", "provenance.json"),
        *("measured", "tables", "figures", "index.html"),
    }
    assert "../published/figures/comparison.svg" in page.read_text()
    stale = folder / "tables" / "old.md"
    stale.write_text("")
    publish(run, folder)
    assert not stale.exists()
    with pytest.raises(RunError, match="not a folder of published results"):
        publish(run, tmp_path / "docs")


def test_names_do_not_become_markup():
    from gcig.experiments.chapters import Chapter
    from gcig.report.tables import Table

    hostile = Chapter("h", ["a `b`_ *c* |d|"], {"t": Table(("x_",), [("**bold** <script>",)])})
    text = restructured_text([hostile], figures="f")
    assert r"\*\*bold\*\*" in text
    assert r"a \`b\`\_" in text


def test_requests_are_checked():
    with pytest.raises(InputError, match="folds must be an integer from 2"):
        Request.of(folds=1)
    with pytest.raises(InputError, match="there is no method 'nobody'"):
        Request.of(methods=["nobody"])
    with pytest.raises(ValueError, match="'adlut' is not a registered dataset"):
        Request.of(datasets=["adlut"])
    assert Request.of().datasets == comparison.DATASETS
    with pytest.raises(InputError, match="tuning must be one of"):
        Request.of(tuning="always")
    asked = Request.of(datasets=["german", "adult"], seeds=[1, 2])
    assert Request.from_dict(json.loads(json.dumps(asdict(asked)))) == asked
    assert (asked.expected(), asked.expected("sensitivity")) == (10, 4)
    assert asked.repeats == {"german": run_folder.SMALL_REPEATS, "adult": 1}
    assert Request.of(quick=True).tuning == "none"


def test_a_folder_without_a_reproduction_is_refused(tmp_path):
    with pytest.raises(RunError, match=r"no request\.json"):
        report(tmp_path)
    (tmp_path / "request.json").write_text("[]")
    with pytest.raises(RunError, match="not written by gcig reproduce"):
        report(tmp_path)
