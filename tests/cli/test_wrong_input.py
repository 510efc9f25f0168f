"""Wrong arguments and wrong files: one line that says what to do, and exit code 2."""

import gzip
import json

import pytest

from example_tables import QUICK_FLAGS, ROLE_FLAGS, make_raw_loans

SECRET = "Jane Doe 1971"  # an entry of the table; it must never appear in a message
CLEAN = [*ROLE_FLAGS, "--drop", "id", *QUICK_FLAGS]


def csv(frame, path, **how):
    frame.to_csv(path, index=False, **how)
    return path


@pytest.fixture
def secret_loans():
    """Loans in which every identifier is a name."""
    loans = make_raw_loans(80)
    loans["id"] = [f"{SECRET} {i}" for i in range(len(loans))]
    return loans


def check(result, words):
    code, out, err = result
    errors = [line for line in err.splitlines() if not line.startswith("gcig: warning: ")]
    assert code == 2
    assert out == ""
    assert len(errors) == 1
    assert errors[0].startswith("gcig: error: ")
    assert words in errors[0]
    assert len(errors[0]) < 450
    assert "Traceback" not in err
    assert SECRET not in err


ARGUMENTS = {
    "no such command": (["trian"], "Did you mean 'train'?"),
    "a command far off": (["xyzzy"], "No such command 'xyzzy'"),
    "no file": (["train"], "Missing argument 'FILE'. See `gcig train --help`."),
    "no target": (["train", "x.csv", "--sensitive", "sex", "--out", "m"], "Missing option '--target'"),
    "no sensitive": (["train", "x.csv", "--target", "y", "--out", "m"], "Missing option '--sensitive'"),
    "no out": (["train", "x.csv", "--target", "y", "--sensitive", "s"], "Missing option '--out'"),
    "misspelt option": (["train", "x.csv", "--tarjet", "y"], "--target"),
    "no value": (["demo", "--seed"], "'--seed' requires an argument. See `gcig"),
    "an argument too many": (["predict", "m", "x.csv", "more"], "unexpected extra argument"),
    "a word for a number": (["demo", "--seed", "one"], "'one' is not a valid integer"),
    "a fraction for a seed": (["demo", "--seed", "1.5"], "'1.5' is not a valid integer"),
    "a word for a limit": (
        ["audit", "m", "x.csv", "--max-gcig", "low"],
        "--max-gcig must be a number, not 'low'. See `gcig audit",
    ),
    "no number for a limit": (["audit", "m", "x.csv", "--max-gcig", "nan"], "must be a number, not 'nan'"),
    "two limits": (
        ["audit", "m", "x.csv", "--max-gcig", "1", "--max-gcig=2"],
        "--max-gcig is given twice, but takes one value.",
    ),
    "a negative seed": (["demo", "--seed", "-1"], "0<=x"),
    "one fold": (["demo", "--folds", "1"], "2<=x"),
    "no such dataset": (["demo", "--dataset", "adlt"], "Did you mean 'adult'?"),
    "no such card": (["datasets", "adlt"], "Did you mean 'adult'?"),
    "no such attribute": (
        ["demo", "--dataset", "bank", "--sensitive", "sex"],
        "--sensitive 'sex' is not a protected attribute of dataset 'bank'. Available: age, marital",
    ),
    "no such method": (["demo", "--methods", "fairy"], "Did you mean 'fairx'?"),
    "an empty list of methods": (["demo", "--methods", ","], "There are: unconstrained"),
    "seeds that are none": (["compare", "loans.csv", "--seeds", "a,b"], "numbers such as 0,1,2"),
    "a shard that is none": (["compare", "loans.csv", "--shard", "5/4"], "such as 1/4"),
    "no shell": (["completion", "tcsh"], "'bash', 'zsh', 'fish'"),
    "no report": (["report", "nowhere"], "There is no nowhere"),
}


@pytest.mark.parametrize(("arguments", "words"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_wrong_arguments(shell, arguments, words):
    check(shell(*arguments), words)


TRAINING = {
    "a column that is not there": (["--target", "aproved"], "Did you mean 'approved'?"),
    "no column at all like it": (["--target", "zzz"], "It has: id, income"),
    "a protected column not there": (["--sensitive", "Sexx"], "Did you mean 'sex'?"),
    "a dropped column not there": (["--drop", "idd"], "Did you mean 'id'?"),
    "two roles": (["--drop", "sex"], "named twice (--sensitive and --drop)"),
    "the target is protected": (["--sensitive", "approved"], "named twice (--target and --sensitive)"),
    "a positive value not there": (["--positive", "maybe"], "it has 'no', 'yes'"),
    "many classes": (["--target", "job", "--positive", "clerk"], "--positive 'clerk' --rest"),
    "measurements as target": (["--target", "income", "--positive", "1"], "--task number"),
    "no measurement is shown": (["--target", "income", "--positive", "1"], "--positive 'VALUE' --rest"),
    "an identifier as group": (["--sensitive", "number"], "80 different values (at most 50)"),
    "nothing left": (["--drop", "id,income,job,owner,race,number"], "no column is left"),
    "a threshold of 2": (["--threshold", "2"], "0<x<1"),
    "a threshold of nan": (["--threshold", "nan"], "between 0 and 1"),
    "no such limit": (["--max-gcigg", "0"], "Did you mean 'gcig'?"),
    "a negative weight": (["--budget", "-1"], "x>=0"),
    "an infinite weight": (["--budget", "inf"], "finite"),
    "all rows held out": (["--test-size", "1"], "0<x<1"),
    "no epochs": (["--epochs", "0"], "x>=1"),
    "no such device": (["--device", "quantum"], "--device must be 'auto'"),
    "a device not here": (["--device", "cuda:99"], "--device is 'cuda:99', but torch finds"),
    "no such training method": (["--method", "hart"], "Did you mean 'hardt'?"),
    "a weight that is FairX's": (["--method", "hardt", "--budget", "1"], "--budget: not available for"),
    "two characters between cells": (["--sep", ";;"], "one ASCII character"),
    "a strange decimal mark": (["--decimal", "x"], "'.' or ','"),
    "no such encoding": (["--encoding", "klingon"], "try 'utf-8'"),
    "no config": (["--config", "nowhere.toml"], "name a TOML file"),
}


@pytest.mark.parametrize(("more", "words"), TRAINING.values(), ids=TRAINING)
def test_wrong_arguments_of_training(shell, secret_loans, tmp_path, more, words):
    path = csv(secret_loans.assign(number=range(80)), tmp_path / "loans.csv")
    names = {"--target", "--positive", "--sensitive", "--drop"} & set(more)
    roles = ["--target", "approved", "--positive", "yes", "--sensitive", "sex", "--drop", "id"]
    kept = [
        word
        for option, value in zip(roles[::2], roles[1::2], strict=True)
        if option not in names or (option == "--sensitive" and more == ["--sensitive", "approved"])
        for word in (option, value)
    ]
    if more == ["--drop", "sex"]:
        kept = [word for word in roles if word not in ("--drop", "id")]
    check(shell("train", path, *kept, "--out", tmp_path / "m", "--quiet", *more), words)
    assert not (tmp_path / "m").exists()


def missing_label(loans):
    loans.loc[3, "approved"] = None
    return loans


def missing_group(loans):
    loans.loc[3, "sex"] = None
    return loans


def infinite(loans):
    loans.loc[3, "income"] = float("inf")
    return loans


def lonely(loans):
    """One person is the only one of a label in a group."""
    women = loans["sex"] == "female"
    loans.loc[women, "approved"] = "no"
    loans.loc[0, "approved"] = "yes"
    return loans


def huge(loans):
    loans["income"] = [2**60 + i for i in range(len(loans))]
    return loans


TABLES = {
    "missing labels": (missing_label, "'approved' is empty in 1 of 80 rows"),
    "missing groups": (missing_group, "'sex' is empty in 1 of 80 rows"),
    "infinity": (infinite, "contains infinity (inf) in column 'income'"),
    "a cell of one row": (lonely, "(label 'yes', group 'female')"),
    "one class": (lambda loans: loans.assign(approved="yes"), "one value only"),
    "one group": (lambda loans: loans.assign(sex="female"), "has only one value"),
    "huge integers": (huge, "If it is an identifier, drop it"),
    "one row": (lambda loans: loans.head(1), "one value only"),
}


@pytest.mark.parametrize(("change", "words"), TABLES.values(), ids=TABLES)
def test_wrong_tables(shell, secret_loans, tmp_path, change, words):
    path = csv(change(secret_loans), tmp_path / "loans.csv")
    check(shell("train", path, *CLEAN, "--out", tmp_path / "m"), words)


def test_a_target_of_one_number(shell, secret_loans, tmp_path):
    path = csv(secret_loans.assign(owed=5.0), tmp_path / "loans.csv")
    roles = ["--target", "owed", "--sensitive", "sex", "--drop", "id,approved", "--task", "number"]
    check(shell("train", path, *roles, *QUICK_FLAGS, "--out", tmp_path / "m"), "one value only")


def test_a_target_of_three_words_is_not_offered_as_a_number(shell, secret_loans, tmp_path):
    labels = [("low", "middle", "high")[i % 3] for i in range(len(secret_loans))]
    path = csv(secret_loans.assign(approved=labels), tmp_path / "loans.csv")
    roles = ["--target", "approved", "--positive", "high", "--sensitive", "sex", "--drop", "id"]
    result = shell("train", path, *roles, *QUICK_FLAGS, "--out", tmp_path / "m")
    check(result, "--positive 'high' --rest")
    assert "--task number" not in result[2]


def test_identifiers_among_the_inputs(shell, tmp_path):
    loans = make_raw_loans(400)
    loans["id"] = [f"{SECRET} {i}" for i in range(len(loans))]
    path = csv(loans, tmp_path / "loans.csv")
    words = "column 'id' has 400 categories in 400 rows: it looks like an identifier"
    check(shell("train", path, *ROLE_FLAGS, *QUICK_FLAGS, "--out", tmp_path / "m"), words)


def ragged(path, loans):
    lines = csv(loans, path).read_text().splitlines()
    path.write_text("\n".join([*lines[:3], lines[3] + ",more", *lines[4:]]))


def duplicated(path, loans):
    path.write_text(csv(loans, path).read_text().replace("job", "income", 1))


def open_quote(path, loans):
    lines = csv(loans, path).read_text().splitlines()
    first, _, last = lines[-1].rpartition(",")
    path.write_text("\n".join([*lines[:-1], f'{first},"{last}']))


def in_two_marks(path, _):
    path.write_text("a;b;id;approved;sex\n" + "1,5;2.5;x;yes;f\n2,5;3.5;y;no;m\n" * 20)


FILES = {
    "no file": (lambda *_: None, "There is no file"),
    "a folder": (lambda path, _: path.mkdir(), "is a folder, not a table"),
    "an empty file": (lambda path, _: path.write_text(""), "is empty"),
    "a header alone": (lambda path, _: path.write_text("a,b\n"), "no rows"),
    "a damaged gzip file": (
        lambda path, _: path.write_bytes(gzip.compress(b"a,b\n1,2\n")[:-9]),
        "damaged gzip file",
    ),
    "an Excel file": (lambda path, _: path.write_bytes(b"PK\x03\x04xx"), "save the table as CSV"),
    "NUL bytes": (lambda path, _: path.write_bytes(b"a,b\n1,\0\n"), "NUL byte in line 2"),
    "a ragged row": (ragged, "row 3 (below the header): 8 fields, but the header has 7"),
    "an open quote": (open_quote, "Is a quote left open?"),
    "no header": (lambda path, _: path.write_text("1.5,2\n2.5,3\n"), "header line with the column names"),
    "a name twice": (duplicated, "several columns called 'income'"),
    "both decimal marks": (in_two_marks, "--decimal , if these are decimal commas"),
}


@pytest.mark.parametrize(("write", "words"), FILES.values(), ids=FILES)
@pytest.mark.parametrize("command", ["train", "predict"])
def test_wrong_files(shell, model, secret_loans, tmp_path, command, write, words):
    path = tmp_path / "table.csv"
    write(path, secret_loans)
    if command == "train":
        check(shell("train", path, *CLEAN, "--out", tmp_path / "m"), words)
    elif "--decimal" not in words:  # its columns are not those of the model
        check(shell("predict", model, path), words)


def test_a_parquet_name_with_other_content(shell, model, tmp_path):
    (tmp_path / "new.parquet").write_text("a,b\n1,2\n")
    check(shell("predict", model, tmp_path / "new.parquet"), "not a Parquet file")
    (tmp_path / "new.parquet").write_bytes(b"PAR1 and then nothing")
    check(shell("predict", model, tmp_path / "new.parquet"), "damaged Parquet file")


PREDICTING = {
    "an id not there": (["--id", "ID"], "Did you mean 'id'?"),
    "a group not there": (["--sensitive", "gender"], "It has: id"),
    "a strange format": (["--out", "x.xlsx"], ".csv or .parquet"),
    "a folder not there": (["--out", "no/such/x.csv"], "there is no folder"),
    "no rows at once": (["--rows-at-once", "0"], "x>=1"),
}


@pytest.mark.parametrize(("more", "words"), PREDICTING.values(), ids=PREDICTING)
def test_wrong_arguments_of_prediction(shell, model, loans_csv, more, words):
    check(shell("predict", model, loans_csv, *more), words)


def test_files_that_do_not_fit_the_model(shell, model, secret_loans, tmp_path):
    path = csv(secret_loans.drop(columns="income"), tmp_path / "new.csv")
    check(shell("predict", model, path), "lacks 1 of the 3 columns that the model was trained with: 'income'")
    path = csv(secret_loans.assign(income=SECRET), tmp_path / "new.csv")
    check(
        shell("predict", model, path),
        "holds text in row 1 (below the header), but in training it held numbers",
    )
    path = csv(secret_loans.assign(probability=1), tmp_path / "new.csv")
    check(shell("predict", model, path, "--keep"), "--id instead of --keep")
    check(shell("predict", model, path, "--out", path, "--overwrite"), "is the input itself")


def test_groups_that_training_did_not_have(shell, repaired, secret_loans, tmp_path):
    path = csv(secret_loans.assign(sex="other"), tmp_path / "new.csv")
    check(shell("predict", repaired, path, "--sensitive", "sex"), "not in training: 'other'")


def test_folders_that_are_not_models(shell, model, loans_csv, tmp_path):
    check(shell("predict", tmp_path / "nowhere", loans_csv), "does not exist")
    check(shell("predict", loans_csv, loans_csv), "is a file, not a folder")
    check(shell("predict", tmp_path, loans_csv), "is missing: the folder is not a complete saved model")
    check(shell("report", tmp_path), "holds nothing to draw")
    edited = tmp_path / "edited"
    edited.mkdir()
    for file in model.iterdir():
        (edited / file.name).write_bytes(file.read_bytes())
    (edited / "model.json").write_text("{}")
    check(shell("predict", edited, loans_csv), "model.json does not describe a saved gcig model")


CONFIGS = {
    "a name nobody knows": ("targett = 'y'", "there is no option 'targett'. Did you mean 'target'?"),
    "not TOML": ("target approved", "is not valid TOML"),
    "a section": ("[train]\ntarget = 'y'", "there is no option 'train'"),
    "a table for a value": ("target = {a = 1}", "is a section"),
    "a word for a number": ("seed = 'many'", "'many' is not a valid integer"),
    "a number for a flag": ("quiet = 3", "must be true or false"),
    "true for a number": ("seed = true", "not true or false"),
    "a config in a config": ("config = 'x.toml'", "there is no option 'config'"),
}


@pytest.mark.parametrize(("text", "words"), CONFIGS.values(), ids=CONFIGS)
def test_wrong_configs(shell, loans_csv, tmp_path, text, words):
    config = tmp_path / "train.toml"
    config.write_text(text)
    check(shell("train", loans_csv, *CLEAN, "--out", tmp_path / "m", "--config", config), words)


def test_text_without_a_positive_value(shell, loans_csv, tmp_path):
    words = "has the values 'no' and 'yes': choose with --positive which is 1"
    roles = ["--target", "approved", "--sensitive", "sex"]
    check(shell("train", loans_csv, *roles, "--out", tmp_path / "m", "--quiet"), words)


def test_reports_of_other_files(shell, tmp_path):
    (tmp_path / "x.json").write_text("[1, 2]")
    check(shell("report", tmp_path / "x.json"), "holds no JSON object")
    (tmp_path / "x.json").write_text("{]")
    check(shell("report", tmp_path / "x.json"), "is not JSON")
    (tmp_path / "x.json").write_text(json.dumps({"a": 1}))
    check(shell("report", tmp_path / "x.json"), "not the JSON of an audit")


def test_cells_with_fewer_rows_than_folds_are_found_before_a_comparison(shell, secret_loans, tmp_path):
    few = secret_loans[(secret_loans["sex"] == "male") | (secret_loans["approved"] == "yes")]
    path, out = csv(few, tmp_path / "loans.csv"), tmp_path / "run"
    flags = [*ROLE_FLAGS, "--drop", "id", "--out", out]
    check(shell("compare", path, *flags, "--quiet"), "at least 5 rows (of weight above zero) in each group")
    assert not out.exists()
