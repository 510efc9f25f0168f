import json
from dataclasses import replace

import pandas as pd
import pytest

from gcig._arguments import InputError, InputWarning
from gcig.benchmark.comparison import ComparisonResult, compare, compare_tables
from gcig.benchmark.execution import failed_result
from gcig.benchmark.store import RunError
from gcig.benchmark.trials import fold_trials
from gcig.methods.registry import METHODS
from support.fold_results import evaluation, fold
from support.small_runs import QUICK, registered, small_table

TABLE = small_table()
DATA = {"X": TABLE.X, "y": TABLE.y, "sensitive_features": TABLE.sensitive_features}
METHODS_HERE = ["unconstrained", "fairx"]
PARAMETERS = dict.fromkeys(METHODS_HERE, QUICK)


@pytest.fixture(scope="module")
def found():
    return compare(**DATA, methods=METHODS_HERE, folds=3, parameters=PARAMETERS)


def test_a_row_per_method_and_fold(found):
    assert found.frame[["method", "fold"]].values.tolist() == [[m, f] for m in METHODS_HERE for f in range(3)]
    assert found.summary()["folds"].tolist() == [3, 3]
    assert found.pooled()["n_rows"].tolist() == [160, 160]
    assert found.frame["error"].isna().all()


def test_result_has_text_html_and_svg_representations(found):
    assert "FairX" in repr(found)
    assert "±" in repr(found)
    assert found._repr_html_().startswith("<table>")
    assert "FairX" in [point.series for point in found.plot().points]


@pytest.mark.parametrize(("selection_rate", "hollow"), [(0.35, False), (1.0, True)])
def test_a_model_that_decides_everyone_alike_is_hollow(selection_rate, hollow):
    usual, alike = evaluation(), evaluation(auc=0.8, decided_alike=max(selection_rate, 1 - selection_rate))
    results = (fold("unconstrained", 0, usual), fold("fairx", 0, alike))
    points = ComparisonResult(results, ()).plot().points
    assert [point.collapsed for point in points] == [False, hollow]


@pytest.mark.parametrize(("task", "main"), [("classes", "accuracy"), ("number", "r2")])
def test_methods_that_cannot_do_a_task_are_left_out_and_said(task, main):
    table = small_table(400, task=task)
    methods = ["unconstrained", "hardt", "fairx"]
    result = compare(
        table.X,
        table.y,
        sensitive_features=table.sensitive_features,
        methods=methods,
        folds=2,
        parameters=dict.fromkeys(methods, QUICK),
        name="t",
        task=task,
    )
    assert result.left_out == {"t": ["hardt"]}
    assert result.planned == len(result.results) == 4
    assert result.frame["error"].isna().all()
    assert "Hardt" in result.remarks[0]
    assert main in repr(result)
    assert main in result.pareto()
    with pytest.raises(InputError, match="has no method for"):
        compare_tables([table], methods=["hardt"], folds=2)


def test_the_task_is_recognised_from_the_labels():
    table = small_table(task="number")
    quick = {"unconstrained": QUICK}
    found = compare(
        table.X, table.y, sensitive_features=table.sensitive_features, methods=["unconstrained"], folds=2,
        parameters=quick,
    )  # fmt: skip
    assert list(found.tasks.values()) == ["number"]


def test_saving_and_resuming(found, tmp_path):
    again = compare(**DATA, methods=METHODS_HERE, folds=3, parameters=PARAMETERS, out=tmp_path)
    columns = [name for name in found.frame if not name.startswith("fit_seconds")]
    pd.testing.assert_frame_equal(again.frame[columns], found.frame[columns])
    assert {file.name for file in tmp_path.glob("*.*")} == {
        "manifest.json",
        "pooled.csv",
        "provenance.json",
        "results.csv",
        "summary.csv",
    }
    before = (tmp_path / "results.csv").read_bytes()
    compare(**DATA, methods=METHODS_HERE, folds=3, parameters=PARAMETERS, out=tmp_path)
    assert (tmp_path / "results.csv").read_bytes() == before  # times included: nothing was run again
    with pytest.raises(RunError, match=r"configuration .folds, 3 before and 2 now"):
        compare(**DATA, methods=METHODS_HERE, folds=2, parameters=PARAMETERS, out=tmp_path)
    assert json.loads((tmp_path / "provenance.json").read_text())["configuration"]["folds"] == 3


def test_each_seed_gives_another_partition():
    result = compare(
        **DATA, methods=["unconstrained"], folds=2, seeds=[0, 7], parameters={"unconstrained": QUICK}
    )
    assert result.frame["seed"].tolist() == [0, 0, 7, 7]
    positions = [set(each.predictions["position"]) for each in result.results]
    assert positions[0] != positions[2]


@pytest.mark.slow
def test_all_methods_are_compared_by_default():
    parameters = {**dict.fromkeys(METHODS, QUICK), "agarwal": {**QUICK, "max_iter": 2}}
    result = compare_tables([TABLE], folds=2, parameters=parameters)
    assert result.summary()["method"].tolist() == list(METHODS)
    assert result.frame["error"].isna().all()


@pytest.mark.parametrize("tuning", ["split", "nested"])
def test_given_parameters_override_tuned_ones(tuning):
    space = {"max_epochs": (0, 30), "learning_rate": (0.01,)}
    with registered("searched", METHODS["unconstrained"].estimator) as key:
        METHODS.add(key, replace(METHODS[key], label=key, search_space=space), overwrite=True)
        result = compare(**DATA, methods=[key], folds=2, tuning=tuning, parameters={key: {"patience": 9}})
    assert set(result.frame["parameters"]) == {'{"learning_rate":0.01,"max_epochs":30,"patience":9}'}
    assert [choice.fold for choice in result.choices] == ([None] if tuning == "split" else [0, 1])


def comparison_of(figures):
    """A comparison whose folds have the given (auc, eo_gap, gcig, collapsed) by method."""
    trials, results = [], []
    for method, (auc, eo_gap, gcig, collapsed) in figures.items():
        for trial in fold_trials(TABLE, method, {}, n_folds=2):
            alike = {"decided_alike": 1.0} if method == "agarwal" else {}
            measured = evaluation(auc, gcig, eo_gap, collapsed=collapsed, **alike)
            trials.append(trial)
            results.append(
                replace(failed_result(trial, ""), error=None, evaluation=measured, fit_seconds=1.0)
            )
    return ComparisonResult(tuple(results), tuple(trials))


def test_pareto_front_holds_undominated_methods():
    result = comparison_of(
        {
            "unconstrained": (0.9, 0.2, 0.2, False),
            "dir": (0.89, 0.21, 0.2, False),  # beaten by the first
            "fairx": (0.89, 0.1, 0.05, False),
            "lagrangian": (0.5, 0.0, 0.0, True),  # collapsed
            "agarwal": (0.95, 0.0, 0.0, False),  # decides everyone alike
            "hardt": (0.95, 0.0, 0.01, False),  # no rank in GCIG, and it beats none
        }
    )
    assert result.pareto()["method"].tolist() == ["unconstrained", "fairx"]
    assert "2 collapsed" in repr(result)
    assert comparison_of({"fairx": (0.5, 0.0, 0.0, True)}).pareto().empty


def test_hostile_table_names_are_harmless(tmp_path):
    name = "../<script>=cmd"
    result = compare(
        **DATA,
        methods=["unconstrained"],
        folds=2,
        parameters={"unconstrained": QUICK},
        out=tmp_path / "run",
        name=name,
    )
    both = ComparisonResult((*result.results, *comparison_of({"dir": (0.9, 0.1, 0.1, False)}).results), ())
    assert "<script>" not in both._repr_html_()
    assert "&lt;script&gt;" in both._repr_html_()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert all(path.parent == tmp_path / "run" / "trials" for path in tmp_path.rglob("*unconstrained*"))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"methods": ["fairx", "nothing"]}, "methods: there is no method 'nothing'"),
        ({"methods": "fairx"}, "list of names"),
        ({"methods": []}, "list of names"),
        ({"parameters": {"nothing": {}}}, "parameters: there is no method"),
        ({"tuning": "always"}, "tuning must be"),
    ],
)
def test_arguments_are_checked(wrong, words):
    with pytest.raises(InputError, match=words):
        compare(**DATA, **wrong)


def test_a_sensitive_column_among_the_inputs_causes_a_warning():
    X = TABLE.X.assign(sex=TABLE.sensitive_features)
    with pytest.warns(InputWarning, match="reveal the protected attribute"):
        compare(
            X,
            TABLE.y,
            sensitive_features=TABLE.sensitive_features,
            methods=["unconstrained"],
            folds=2,
            parameters={"unconstrained": QUICK},
        )
