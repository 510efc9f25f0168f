import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcig.benchmark.runner import run_trials
from gcig.benchmark.store import RunStore
from gcig.benchmark.trials import grid
from gcig.benchmark.tuning import Candidate, choose, choose_all, search_trials, tune
from gcig.methods.registry import METHODS
from support.small_runs import QUICK, BrokenClassifier, registered, small_table

TABLE = small_table()


def candidate(utility, unfairness=0.1, **more):
    return Candidate({}, utility, unfairness, **more)


@pytest.mark.parametrize(
    ("candidates", "taken"),
    [
        ([candidate(0.9, 0.3), candidate(0.895, 0.1)], 1),
        ([candidate(0.9, 0.3), candidate(0.889, 0.0)], 0),  # too far below the best
        ([candidate(0.9, 0.3), candidate(0.89, 0.1)], 1),  # just not
        ([candidate(0.9), candidate(0.9)], 0),  # the first of equals
        ([candidate(0.9, 0.3), candidate(0.9, 0.0, collapsed=1)], 0),
        ([candidate(0.9, 0.3), candidate(0.9, 0.0, failed=1)], 0),
        ([candidate(0.99, 0.0, collapsed=1), candidate(0.8, 0.2)], 1),  # nor does it set the best
        ([candidate(0.9, math.nan), candidate(0.9, 0.3)], 1),
        ([candidate(0.9, collapsed=3), candidate(math.nan)], None),
        ([], None),
    ],
)
def test_the_selection_rule(candidates, taken):
    assert choose(candidates) == taken


figures = st.floats(0, 1)


@given(st.lists(st.builds(candidate, figures, figures), min_size=1, max_size=8))
def test_no_candidate_within_the_tolerance_beats_the_chosen_one(candidates):
    taken = candidates[choose(candidates)]
    best = max(each.utility for each in candidates)
    assert taken.utility >= best - 0.01 - 1e-9
    near = [each for each in candidates if each.utility >= best - 0.01]
    assert all(taken.unfairness <= each.unfairness for each in near)


def test_every_method_has_the_same_number_of_candidates():
    assert len({len(grid(method.search_space)) for method in METHODS.values()}) == 1


@pytest.mark.parametrize("method", METHODS)
def test_every_candidate_is_in_the_grid_once(method):
    space = METHODS[method].search_space
    candidates = grid(space)
    assert len(candidates) == math.prod(map(len, space.values()))
    assert len({json.dumps(each) for each in candidates}) == len(candidates)
    trials = search_trials([TABLE], [method])
    assert len(set(trials)) == 3 * len(candidates)
    assert {trial.role for trial in trials} == {"tune"}
    known = METHODS[method].estimator().get_params(deep=False)
    assert all(set(each) <= set(known) for each in candidates)


def search(tables, methods, store=None, **options):
    """Run a search and apply the rule."""
    return tune(search_trials(tables, methods, **options), tables, store)


@pytest.fixture
def searched(monkeypatch):
    """A method whose grid has two candidates, one of which cannot be fitted."""
    space = {"max_epochs": (0, 30)}
    with registered("searched", METHODS["unconstrained"].estimator) as key:
        own = replace(METHODS["unconstrained"], key=key, label=key, search_space=space)
        METHODS.add(key, own, overwrite=True)
        yield key


def test_tuning_chooses_a_usable_candidate_and_keeps_the_metrics(searched):
    common = {"hidden_sizes": [8], "learning_rate": 0.01}
    (choice,) = search([TABLE], [searched], common=common)
    assert choice.parameters == {"hidden_sizes": [8], "learning_rate": 0.01, "max_epochs": 30}
    assert choice.fold is None
    assert [each.failed for each in choice.candidates] == [3, 0]
    trials = search_trials([TABLE], [searched], common=common)[3:]
    found = [result.evaluation for result in run_trials(trials, [TABLE])]
    assert choice.candidates[1].utility == pytest.approx(sum(each.auc for each in found) / 3)
    gaps = [each.outcome_gap for each in found]  # too few rows for the reason gap
    assert choice.candidates[1].unfairness == pytest.approx(sum(gaps) / 3)
    assert len({each.auc for each in found}) > 1


@pytest.mark.parametrize(("task", "main"), [("classes", "accuracy"), ("number", "r2")])
def test_other_tasks_are_tuned_on_their_own_utility(searched, task, main):
    table = small_table(task=task)
    common = {"hidden_sizes": [8], "learning_rate": 0.01}
    (choice,) = search([table], ["searched", "hardt"], common=common)  # hardt is not defined for it
    trials = search_trials([table], [searched], common=common)[3:]
    found = [result.evaluation[main] for result in run_trials(trials, [table])]
    assert choice.candidates[1].utility == pytest.approx(sum(found) / 3)


def test_nested_tuning_chooses_in_every_fold(searched):
    found = search([TABLE], [searched], tuning="nested", n_folds=3, seeds=[4])
    assert [(choice.fold, choice.seed) for choice in found] == [(0, 4), (1, 4), (2, 4)]


def test_no_tuning_has_no_trials():
    assert search_trials([TABLE], ["hardt"], tuning="none") == []
    assert search([TABLE], ["hardt"], tuning="none") == []


def test_without_a_usable_candidate_the_defaults_are_used_with_a_note():
    with registered("broken", BrokenClassifier):
        (choice,) = search([TABLE], ["broken"])
    assert choice.parameters == {}
    assert "every candidate failed" in choice.note


def test_tuning_resumes(tmp_path, searched):
    store = RunStore.open(tmp_path, tables=[TABLE], configuration={})
    first = search([TABLE], [searched], store)
    stamps = [file.stat().st_mtime_ns for file in sorted((tmp_path / "trials").iterdir())]
    # Compared as text: since Python 3.13, dataclasses with the same NaN differ; a failed candidate has NaN.
    assert repr(search([TABLE], [searched], store)) == repr(first)
    assert [file.stat().st_mtime_ns for file in sorted((tmp_path / "trials").iterdir())] == stamps


def test_choices_do_not_mix_tables_and_methods():
    other = small_table(seed=1, name="other")
    with registered("one", METHODS["unconstrained"].estimator):
        found = search([TABLE, other], ["one", "unconstrained"], common=QUICK)
    assert [(c.dataset, c.method) for c in found] == [
        (t, m) for t in ("small", "other") for m in ("one", "unconstrained")
    ]
    assert [len(c.candidates) for c in found] == [1, 4, 1, 4]
    assert choose_all([], []) == []
