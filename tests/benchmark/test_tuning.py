import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcig.benchmark import tuning
from gcig.benchmark.run_files import RunError
from gcig.benchmark.runner import run_trials
from gcig.benchmark.store import RunStore
from gcig.benchmark.trials import Table, grid, tuning_trials
from gcig.benchmark.tuning import (
    Candidate,
    choose,
    choose_all,
    main,
    parameters_for,
    read_chosen,
    tune,
    write_choices,
    write_chosen,
)
from gcig.methods.registry import METHODS
from support.small_runs import QUICK, BrokenClassifier, registered, small_table

TABLE = small_table()


def candidate(auc, eo_gap=0.1, gcig=0.1, **more):
    return Candidate({}, auc, eo_gap, gcig, **more)


@pytest.mark.parametrize(
    ("candidates", "taken"),
    [
        ([candidate(0.9, 0.3), candidate(0.895, 0.1)], 1),
        ([candidate(0.9, 0.3), candidate(0.889, 0.0)], 0),  # too far below the best
        ([candidate(0.9, 0.3), candidate(0.89, 0.1)], 1),  # just not
        ([candidate(0.9, 0.1, 0.2), candidate(0.9, 0.2, 0.05)], 1),  # the sum counts
        ([candidate(0.9), candidate(0.9)], 0),  # the first of equals
        ([candidate(0.9, 0.3), candidate(0.9, 0.0, 0.0, collapsed=1)], 0),
        ([candidate(0.9, 0.3), candidate(0.9, 0.0, 0.0, failed=1)], 0),
        ([candidate(0.99, 0.0, 0.0, collapsed=1), candidate(0.8, 0.2)], 1),  # nor does it set the best AUC
        ([candidate(0.9, math.nan), candidate(0.9, 0.3)], 1),
        ([candidate(0.9, collapsed=3), candidate(math.nan)], None),
        ([], None),
    ],
)
def test_the_selection_rule(candidates, taken):
    assert choose(candidates) == taken


figures = st.floats(0, 1)


@given(st.lists(st.builds(candidate, figures, figures, figures), min_size=1, max_size=8))
def test_no_candidate_within_the_tolerance_beats_the_chosen_one(candidates):
    taken = candidates[choose(candidates)]
    best = max(each.auc for each in candidates)
    assert taken.auc >= best - 0.01 - 1e-9
    near = [each for each in candidates if each.auc >= best - 0.01]
    assert all(taken.eo_gap + taken.gcig <= each.eo_gap + each.gcig for each in near)


@pytest.mark.parametrize("method", METHODS)
def test_every_candidate_is_in_the_grid_once(method):
    space = METHODS[method].search_space
    candidates = grid(space)
    assert len(candidates) == math.prod(map(len, space.values()))
    assert len({json.dumps(each) for each in candidates}) == len(candidates)
    trials = tuning_trials(TABLE, method)
    assert len(set(trials)) == 3 * len(candidates)
    assert {trial.role for trial in trials} == {"tune"}


@pytest.fixture
def searched(monkeypatch):
    """A method whose grid has two candidates, one of which cannot be fitted."""
    space = {"max_epochs": (0, 30)}
    with registered("searched", METHODS["unconstrained"].estimator) as key:
        METHODS.add(type(METHODS[key])(key, key, METHODS[key].location, space), overwrite=True)
        yield key


def test_tuning_chooses_a_usable_candidate_and_keeps_the_metrics(searched):
    common = {"hidden_sizes": [8], "learning_rate": 0.01}
    (choice,) = tune([TABLE], [searched], repeats=2, common=common)
    assert choice.parameters == {"hidden_sizes": [8], "learning_rate": 0.01, "max_epochs": 30}
    assert choice.fold is None
    assert [each.failed for each in choice.candidates] == [2, 0]
    trials = tuning_trials(TABLE, searched, repeats=2, common={"hidden_sizes": [8], "learning_rate": 0.01})[
        2:
    ]
    aucs = [result.evaluation.auc for result in run_trials(trials, [TABLE])]
    assert choice.candidates[1].auc == pytest.approx(sum(aucs) / 2)
    assert aucs[0] != aucs[1]


def test_nested_tuning_chooses_in_every_fold(searched):
    found = tune([TABLE], [searched], nested=True, n_folds=3, seeds=[4], repeats=1)
    assert [(choice.fold, choice.seed) for choice in found] == [(0, 4), (1, 4), (2, 4)]


def test_without_a_usable_candidate_the_defaults_are_used_with_a_note():
    with registered("broken", BrokenClassifier):
        (choice,) = tune([TABLE], ["broken"], repeats=1)
    assert choice.parameters == {}
    assert "every candidate failed" in choice.note


def test_tuning_resumes(tmp_path, searched):
    store = RunStore.open(tmp_path, tables=[TABLE], configuration={})
    first = tune([TABLE], [searched], store, repeats=1)
    stamps = [store.stamp(trial) for trial, _ in store.entries()]
    assert tune([TABLE], [searched], store, repeats=1) == first
    assert [store.stamp(trial) for trial, _ in store.entries()] == stamps


def test_the_command_tunes_and_writes_what_was_chosen(tmp_path, searched, monkeypatch, capsys):
    monkeypatch.setattr(tuning, "FOLDER", tmp_path / "chosen")
    asked = f"--datasets german --methods {searched} --repeats 1 --quiet --out".split()
    main([*asked, str(tmp_path / "run")])
    assert capsys.readouterr().out == 'german searched: {"max_epochs":30,"threshold":"f1"}\n'
    files = write_choices(RunStore(tmp_path / "run"), folder=tmp_path / "chosen")
    assert [file.name for file in files] == ["german.json"]
    content = read_chosen("german", folder=tmp_path / "chosen")
    german = Table.shipped("german")
    assert content["data_hash"] == german.sha256
    entry = content["methods"][searched]
    assert entry["versions"]["torch"]
    assert [each["parameters"]["max_epochs"] for each in entry["candidates"]] == [0, 30]
    assert [each["auc"] is None for each in entry["candidates"]] == [True, False]
    expected = {"max_epochs": 30, "threshold": "f1"}
    assert parameters_for(german, searched, folder=tmp_path / "chosen") == expected
    changed = replace(german, X=german.X.iloc[:, 1:])
    assert parameters_for(changed, searched, folder=tmp_path / "chosen") == {}


def test_an_unfinished_search_is_not_written(tmp_path, searched):
    asked = {"kind": "tuning", "common": {}, "repeats": 2}
    store = RunStore.open(tmp_path, tables=[TABLE], configuration=asked)
    with pytest.raises(RunError, match="not finished for: any method"):
        write_choices(store, folder=tmp_path / "chosen")
    tune([TABLE], [searched], store, repeats=1, common={})
    with pytest.raises(RunError, match="not finished for: small searched"):
        write_choices(store, folder=tmp_path / "chosen")
    assert not (tmp_path / "chosen").exists()


def test_a_bad_name_ends_the_command_with_one_line(tmp_path):
    with pytest.raises(SystemExit, match="error: name 'germn' is not a registered dataset"):
        main(["--datasets", "germn", "--out", str(tmp_path)])


def test_methods_that_were_tuned_before_are_kept(tmp_path):
    one = {"data_hash": "a", "rule": "r", "split": "s", "methods": {"dir": {"parameters": {"x": 1}}}}
    two = {**one, "methods": {"fairx": {"parameters": {"y": 2}}}}
    write_chosen("d", one, folder=tmp_path)
    write_chosen("d", two, folder=tmp_path)
    assert set(read_chosen("d", folder=tmp_path)["methods"]) == {"dir", "fairx"}
    write_chosen("d", {**two, "data_hash": "b"}, folder=tmp_path)
    assert set(read_chosen("d", folder=tmp_path)["methods"]) == {"fairx"}


@pytest.mark.parametrize("name", ["../d", "a/b", ""])
def test_a_name_cannot_leave_the_folder(tmp_path, name):
    folder = tmp_path / "chosen"
    (tmp_path / "d.json").write_text('{"methods": {"fairx": {"parameters": {"x": 1}}}}')
    assert read_chosen(name, folder=folder) == {}
    if name:
        with pytest.raises(RunError, match="cannot be used as a file name"):
            write_chosen(name, {"methods": {}}, folder=folder)


def test_choices_do_not_mix_tables_and_methods():
    other = small_table(seed=1, name="other")
    with registered("one", METHODS["unconstrained"].estimator):
        found = tune([TABLE, other], ["one", "unconstrained"], repeats=1, common=QUICK)
    assert [(c.dataset, c.method) for c in found] == [
        (t, m) for t in ("small", "other") for m in ("one", "unconstrained")
    ]
    assert [len(c.candidates) for c in found] == [1, 3, 1, 3]
    assert choose_all([], []) == []


def test_ctrl_c_ends_the_command_with_one_line(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "tune", interrupted)
    with pytest.raises(SystemExit, match="Finished trials are kept"):
        main(["--datasets", "german", "--out", str(tmp_path)])
