import json
import math
import re

import numpy as np
import pandas as pd
import pytest

import gcig
from example_tables import QUICK_FLAGS, ROLE_FLAGS, make_raw_loans
from gcig.records import Evaluation


@pytest.fixture
def train(shell, loans_csv, tmp_path):
    """Train on the loans with further arguments, into a new folder."""

    def run(*more, roles=ROLE_FLAGS, out=tmp_path / "model"):
        return (*shell("train", loans_csv, *roles, "--drop", "id", "--out", out, *QUICK_FLAGS, *more), out)

    return run


def test_training_writes_a_model_and_reports(train, loans):
    code, out, err, folder = train("--test-size", "0.4", "--budget", "0")
    assert code == 0
    assert err == ""  # --quiet
    assert {path.name for path in folder.iterdir()} >= {"model.json", "report.json"}
    model = gcig.load(folder)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.groups_ == ("female", "male")
    assert list(model.encoder_.feature_names_in_) == ["income", "job", "owner", "race"]
    assert set(model.predict(loans[["income", "job", "owner", "race"]])) <= {"no", "yes"}
    for word in (
        "held-out rows",
        "Unconstrained",
        "FairX",
        "Reason gap ",
        "Outcome gap ",
        "AUC ",
    ):
        assert word in out


def test_the_report_describes_the_run(train):
    _, out, _, folder = train("--json", "--test-size", "0.4", "--seed", "3")
    report = json.loads((folder / "report.json").read_text())
    assert json.loads(out) == report
    assert report["split"] == {"train": 144, "test": 96, "seed": 3}
    target = {"column": "approved", "classes": ["no", "yes"], "favourable": ["yes"]}
    assert report["target"] == target
    assert report["sensitive"] == ["sex"]
    roles = {column["name"]: column["role"] for column in report["data"]["columns"]}
    assert (roles["id"], roles["sex"], roles["approved"], roles["job"]) == (
        "dropped",
        "protected",
        "target",
        "input",
    )
    assert [model["method"] for model in report["models"]] == ["unconstrained", "fairx"]
    for model in report["models"]:
        evaluation = Evaluation.from_dict(model["evaluation"])
        assert evaluation.n_rows == 96
        assert "reason_gap_shapley" not in evaluation
        assert model["parameters"]["random_state"] == 3


def test_robustness_adds_other_attributions_and_references(train):
    _, _, _, folder = train("--robustness", "--test-size", "0.8", "--min-cell", "1")
    report = json.loads((folder / "report.json").read_text())
    for model in report["models"]:
        evaluation = Evaluation.from_dict(model["evaluation"])
        assert math.isfinite(evaluation.reason_gap_shapley)
        assert math.isfinite(evaluation.reason_gap_means)


@pytest.mark.filterwarnings("ignore::gcig.tables.encoding.UnseenValuesWarning")
def test_members_are_held_out_rows(train, tmp_path):
    """The saved rows and the saved model are enough to repeat the figures of the report."""
    _, _, _, folder = train("--test-size", "0.8", "--min-cell", "1", "--save-test", tmp_path / "test.csv")
    report = json.loads((folder / "report.json").read_text())
    found = Evaluation.from_dict(report["models"][-1]["evaluation"])
    held = pd.read_csv(tmp_path / "test.csv", keep_default_na=False, na_values=[""])
    names = ["income", "job", "owner", "race"]
    expected = gcig.evaluate(
        gcig.load(folder), held[names], held["approved"], sensitive_features=held["sex"], min_cell=1
    )
    for name in ("reason_gap", "gcig_members"):
        assert found[name] == pytest.approx(expected[name], rel=1e-6)


def test_the_reading_of_every_column_is_described(shell, loans_csv, tmp_path, loans):
    arguments = [a for a in QUICK_FLAGS if a != "--quiet"]
    code, _, err = shell("train", loans_csv, *ROLE_FLAGS, "--out", tmp_path / "m", *arguments, "--drop", "id")
    assert code == 0
    lines = {line.split()[0]: line for line in err.splitlines() if line.strip()}
    assert "not used" in lines["id"]
    assert "number, 1 missing" in lines["income"]
    assert "text, 4 categories, 1 missing" in lines["job"]
    assert "true or false" in lines["owner"]
    assert "'female' (120), 'male' (120); not an input" in lines["sex"]
    assert "1 is 'yes'" in lines["approved"]
    assert "180 rows for training; 60 held out" in err
    assert not any(cell in err for cell in loans["id"])
    assert not any(f"{cell:.2f}" in err for cell in loans["income"].dropna())


def test_the_positive_class_need_not_come_last_in_the_alphabet(train, loans):
    roles = ["--target", "approved", "--positive", "no", "--sensitive", "sex"]
    _, _, _, folder = train(roles=roles, out=train()[3].with_name("other"))
    other = gcig.load(folder)
    assert other.classes_.tolist() == ["yes", "no"]
    found = gcig.evaluate(
        other,
        loans[list(other.encoder_.feature_names_in_)],
        loans["approved"],
        sensitive_features=loans["sex"],
    )
    assert found.auc > 0.5  # it would be under one half were the classes mixed up


def test_several_protected_attributes_are_crossed(train):
    code, _, _, folder = train("--sensitive", "race")
    assert code == 0
    model = gcig.load(folder)
    assert len(model.groups_) == 4
    assert "sex=female & race=a" in model.groups_
    assert list(model.encoder_.feature_names_in_) == ["income", "job", "owner"]


@pytest.mark.filterwarnings("default")
def test_the_protected_attribute_can_be_kept(train):
    _, _, err, folder = train("--keep-sensitive")
    assert "sex" in gcig.load(folder).encoder_.feature_names_in_
    assert "The table has columns that reveal the protected attribute" in err
    assert err.count("reveal the protected attribute") == 1  # although two models were trained


def test_an_exceeded_limit_is_exit_code_1(train):
    code, out, _, folder = train("--max-gcig", "0.000001")
    assert code == 1
    assert "is above 1e-06" in out
    assert json.loads((folder / "report.json").read_text())["passed"] is False
    assert gcig.load(folder).max_reason_gap is None  # limits of the gate are no bounds of training


def test_limits_of_other_methods_are_checked_at_the_end(train):
    code, out, _, folder = train("--method", "unconstrained", "--test-size", "0.4", "--max-eo-gap", "1.9")
    assert code == 0
    assert "Quality" not in out  # there is nothing to compare it with
    assert gcig.load(folder).method_key == "unconstrained"


def test_the_four_fifths_ratio_is_of_the_favourable_class(train):
    _, usual, _, folder = train("--method", "unconstrained")
    report = json.loads((folder / "report.json").read_text())
    before = Evaluation.from_dict(report["models"][0]["evaluation"])
    _, turned, _, _ = train("--method", "unconstrained", "--favourable", "no", "--overwrite")
    report = json.loads((folder / "report.json").read_text())
    found = Evaluation.from_dict(report["models"][0]["evaluation"])
    refused = [1 - rate for rate in found.selection_rate_groups.values()]
    assert found.selection_rate_ratio == pytest.approx(min(refused) / max(refused))
    assert found.selection_rate_ratio != before.selection_rate_ratio
    assert report["target"]["favourable"] == ["no"]
    assert "favourable: no" in (folder / "report.html").read_text()
    assert gcig.load(folder).favourable_ == "no"  # audits need no option
    assert "--favourable" not in usual + turned
    assert "--favourable is 'maybe', but the classes are" in train("--favourable", "maybe", "--overwrite")[2]


def test_parameters_reach_the_estimator(train):
    weights = ("--budget", "0.05", "--repair", "always", "--legitimate", "income", "--references", "means")
    _, _, _, folder = train(*weights, "--threshold", "f1")
    model = gcig.load(folder)
    assert (model.budget, model.repair, model.threshold, model.max_epochs) == (0.05, "always", "f1", 2)
    assert (model.references, model.legitimate) == ("means", ["income"])
    plain, _ = json.loads((folder / "report.json").read_text())["models"]
    assert plain["parameters"]["threshold"] == "f1"  # both decide by the same rule


def test_the_same_seed_gives_the_same_model(train):
    first, second = (train("--json", out=train()[3].with_name(name))[1] for name in "ab")
    assert json.loads(first)["models"] == json.loads(second)["models"]


def test_only_a_model_is_replaced(train, tmp_path):
    folder = train()[3]
    before = (folder / "report.json").read_text()
    assert train("--seed", "1")[0] == 2  # the folder exists
    assert (folder / "report.json").read_text() == before
    assert train("--seed", "1", "--overwrite")[0] == 0
    assert (folder / "report.json").read_text() != before
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("cat")
    code, out, err, _ = train(out=tmp_path / "photos")
    assert (code, out) == (2, "")
    assert "not replaced" in err
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


def test_held_out_rows_can_be_saved(train, tmp_path, loans):
    train("--save-test", tmp_path / "test.csv")
    saved = pd.read_csv(tmp_path / "test.csv")
    assert len(saved) == 60
    assert set(saved["id"]) < set(loans["id"])
    assert saved.columns.tolist() == loans.columns.tolist()
    folder = tmp_path / "another"
    assert train("--save-test", folder / "test.csv", out=folder)[0] == 0
    assert (folder / "test.csv").is_file()


def test_the_path_for_held_out_rows_is_checked_before_training(train, tmp_path):
    code, out, err, folder = train("--save-test", tmp_path / "nowhere" / "test.csv")
    assert (code, out) == (2, "")
    assert "there is no folder" in err
    assert not folder.exists()


def test_the_command_line_overrides_options_from_a_file(shell, loans_csv, tmp_path):
    config = tmp_path / "train.toml"
    config.write_text(
        f'file = "{loans_csv}"\nout = "{tmp_path / "model"}"\ntarget = "approved"\npositive = "yes"\n'
        'sensitive = ["sex", "race"]\ndrop = "id"\nepochs = 1\nseed = 7\nbudget = 0.2\n'
        'device = "cpu"\nquiet = true\n"test-size" = 0.5\n'
    )
    code, out, _ = shell("train", "--config", config, "--epochs", "2", "--json")
    assert code == 0
    report = json.loads(out)
    parameters = report["models"][-1]["parameters"]
    assert (parameters["max_epochs"], parameters["random_state"], parameters["budget"]) == (2, 7, 0.2)
    assert report["sensitive"] == ["sex", "race"]
    assert report["split"]["test"] == 120


def test_parquet_is_read_too(shell, loans, tmp_path):
    loans.to_parquet(tmp_path / "loans.parquet")
    out = tmp_path / "model"
    assert (
        shell("train", tmp_path / "loans.parquet", *ROLE_FLAGS, "--drop", "id", "--out", out, *QUICK_FLAGS)[0]
        == 0
    )
    assert gcig.load(out).groups_ == ("female", "male")


@pytest.mark.parametrize(("values", "classes"), [((0, 1), [0, 1]), ((False, True), [False, True])])
def test_plain_labels_need_no_positive_value(shell, tmp_path, values, classes):
    loans = make_raw_loans()
    loans["approved"] = (loans["approved"] == "yes").map({False: values[0], True: values[1]})
    loans.to_csv(tmp_path / "loans.csv", index=False)
    roles = ["--target", "approved", "--sensitive", "sex", "--drop", "id"]
    assert shell("train", tmp_path / "loans.csv", *roles, "--out", tmp_path / "m", *QUICK_FLAGS)[0] == 0
    assert gcig.load(tmp_path / "m").classes_.tolist() == classes


def test_few_held_out_rows_cause_a_warning(train):
    _, _, err, _ = train("--test-size", "0.02")
    assert re.search(r"gcig: warning: \d+ held-out rows? with label '(yes|no)' in group '(fe)?male'", err)
    assert "larger --test-size" in err


def test_a_random_sample_of_the_rows(shell, tmp_path):
    frame = make_raw_loans(4000)
    frame.to_parquet(tmp_path / "loans.parquet")
    test = tmp_path / "test.csv"
    arguments = ["--drop", "id", *QUICK_FLAGS, "--json", "--test-size", "0.2", "--save-test", test]
    code, out, _ = shell(
        "train",
        tmp_path / "loans.parquet",
        *ROLE_FLAGS,
        *arguments,
        "--out",
        tmp_path / "m",
        "--sample-rows",
        1000,
    )
    assert code == 0
    report = json.loads(out)
    assert report["data"]["rows"] == 1000
    assert report["split"] == {"train": 800, "test": 200, "seed": 0}
    assert report["data"]["notes"] == ["a random sample of 1,000 of its 4,000 rows is used"]
    held_out = pd.read_csv(test, keep_default_na=False, na_values=[""]).set_index("id")
    expected = frame.set_index("id").loc[held_out.index]
    assert held_out["income"].tolist() == pytest.approx(expected["income"].tolist(), nan_ok=True, abs=0)
    assert held_out["sex"].tolist() == expected["sex"].tolist()


@pytest.mark.parametrize("task", ["classes", "number"])
def test_other_tasks_are_recognised_trained_measured_and_predicted(shell, loans, tmp_path, task):
    rng = np.random.default_rng(0)
    noise = loans["income"].fillna(40) + 5 * rng.normal(size=len(loans))
    target = noise if task == "number" else pd.cut(noise, 3, labels=["low", "=middle", "high"]).astype(str)
    path, out = tmp_path / "t.csv", tmp_path / "m"
    loans.assign(level=target).drop(columns=["approved", "race", "id"]).to_csv(path, index=False)
    roles = ["--target", "level", "--sensitive", "sex"]
    flags = [flag for flag in QUICK_FLAGS if flag != "--quiet"]
    code, _, err = shell("train", path, *roles, "--out", out, *flags)
    assert code in (0, 1), err  # a quick model may have collapsed
    assert ("Task: numbers" if task == "number" else "Task: 3 classes") in err
    report = json.loads((out / "report.json").read_text())
    assert report["task"] == task
    evaluation = Evaluation.from_dict(report["models"][-1]["evaluation"])
    assert {"classes": "accuracy", "number": "r2"}[task] in evaluation
    assert report["verdict"]["code"]
    code, _, err = shell("predict", out, path, "--out", tmp_path / "p.csv", "--quiet")
    assert code == 0, err
    predicted = pd.read_csv(tmp_path / "p.csv")
    assert len(predicted) == len(loans)
    if task == "classes":
        assert set(predicted["decision"]) <= {"low", "'=middle", "high"}  # no cell is a formula
        assert predicted["probability"].between(0, 1).all()
    else:
        assert predicted["prediction"].notna().all()


def test_three_values_name_the_choices(shell, loans_csv, tmp_path):
    arguments = [
        "train",
        loans_csv,
        "--target",
        "job",
        "--sensitive",
        "sex",
        "--out",
        tmp_path / "m",
        "--task",
        "binary",
    ]
    code, _, err = shell(*arguments)
    assert code == 2
    assert "--task classes" in err
    assert "--rest" in err
