"""A table as people have it: codes of digits, dates, junk among numbers, free text and coded groups."""

import json
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import gcig
from example_tables import QUICK_FLAGS
from gcig.cli import main
from gcig.tables.read import open_table

COLUMNS = ("--categorical", "postcode", "--numeric", "income", "--date", "opened=dmy")
ROLES = ("--target", "paid", "--sensitive", "sex", "--group-names", "1=male,2=female")


@pytest.fixture(scope="module")
def messy(tmp_path_factory):
    rng = np.random.default_rng(0)
    n = 400
    sex, born = (
        rng.integers(1, 3, n),
        pd.Timestamp("1960-01-01") + pd.to_timedelta(rng.integers(0, 9999, n), "D"),
    )
    income = rng.normal(30, 8, n).round(1)
    table = pd.DataFrame(
        {
            "sex": sex,
            "postcode": [f"{code:05}" for code in rng.integers(0, 150, n)],
            "income": np.where(rng.random(n) < 0.05, "unknown", income.astype(str)),
            "opened": born.strftime("%d/%m/%Y"),
            "born": born.strftime("%Y-%m-%d"),
            "remark": [f"called {number} times, wrote {number}" for number in range(n)],
            "paid": (income + 3 * (sex == 1) + rng.normal(0, 4, n) > 32).astype(int),
        }
    )
    path = tmp_path_factory.mktemp("messy") / "loans.csv.gz"
    table.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def folder(messy, tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "model"
    arguments = ["train", str(messy), *ROLES, *COLUMNS, "--text-drop", "--out", str(out), *QUICK_FLAGS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that rare postcodes are grouped
        assert main(arguments) == 0
    return out


def test_columns_are_read_as_requested_and_the_model_remembers(messy, folder, shell):
    model = gcig.load(folder)
    kinds = dict(zip(model.encoder_.feature_names_in_, model.encoder_.kinds_, strict=True))
    assert kinds == {"postcode": "category", "income": "number", "opened": "date", "born": "date"}
    assert model.groups_ == ("female", "male")
    names = model.encoder_.encoded_names_
    assert "postcode=<other>" in names
    assert "income=missing" in names
    assert sum(name.startswith("postcode=") for name in names) == 100
    assert any(name.startswith("postcode=000") for name in names)  # leading zeros are kept
    read_as = {
        each["name"]: each for each in json.loads((folder / "report.json").read_text())["data"]["columns"]
    }
    assert read_as["remark"]["role"] == "dropped"
    assert read_as["born"]["read_as"] == "date, as days"
    assert "the 99 most frequent are kept separate" in read_as["postcode"]["read_as"]
    assert "'male' (" in read_as["sex"]["read_as"]


def test_predictions_and_audits_take_the_same_file_and_options(messy, folder, shell, tmp_path):
    out = tmp_path / "decided.csv"
    assert shell("predict", folder, messy, *COLUMNS, "--out", out, "--quiet")[0] == 0
    table = pd.read_csv(messy, dtype={"postcode": str})
    frame = table.assign(
        income=pd.to_numeric(table["income"], errors="coerce"),
        opened=pd.to_datetime(table["opened"], format="%d/%m/%Y"),
    )
    model = gcig.load(folder)
    expected = model.predict_proba(frame[list(model.feature_names_in_)])[:, 1]
    np.testing.assert_allclose(pd.read_csv(out)["probability"], expected, atol=1e-6)
    code, text, _ = shell("audit", folder, messy, *ROLES, *COLUMNS, "--max-gcig", 5)
    assert code == 0
    assert "groups of sex: female, male" in text
    assert text.splitlines()[-1].startswith("passed: GCIG")


def test_a_person_of_the_file_is_explained(messy, folder, shell):
    code, text, _ = shell("explain", folder, messy, "--row", 3, *ROLES, *COLUMNS)
    assert code == 0
    assert "vs female" in text
    assert "postcode" in text


def test_a_model_remembers_how_its_file_was_read(messy, shell, tmp_path):
    model, out = tmp_path / "model", tmp_path / "decided.csv"
    options = (*ROLES, *COLUMNS, "--text-drop", "--favourable", "0", *QUICK_FLAGS)
    assert shell("train", messy, *options, "--out", model)[0] == 0
    assert gcig.load(model).favourable_ == 0
    assert shell("predict", model, messy, "--out", out, "--quiet")[0] == 0
    given = tmp_path / "given.csv"
    assert shell("predict", model, messy, *COLUMNS, "--out", given, "--quiet")[0] == 0
    assert out.read_bytes() == given.read_bytes()
    roles = ("--target", "paid", "--sensitive", "sex")
    subject = json.loads(shell("audit", model, messy, *roles, "--json")[1])["subject"]
    assert subject["favourable"] == ["0"]
    groups = json.loads(shell("audit", model, messy, *roles, "--json", "--favourable", "1")[1])
    assert groups["subject"]["favourable"] == ["1"]
    assert [each["group"] for each in groups["evaluation"]["groups"]] == ["female", "male"]
    explained = json.loads(shell("explain", model, messy, "--row", 3, *roles, "--json")[1])
    assert (explained["favourable"], explained["groups"]) == ("0", ["female", "male"])
    assert json.loads(shell("explain", model, messy, "--row", 3, "--json")[1])["favourable"] == "0"
    shifted = pd.read_csv(messy, dtype=str).assign(income=lambda table: table["income"].str.replace(".", ","))
    shifted.to_csv(tmp_path / "commas.csv", index=False)
    code, _, err = shell("predict", model, tmp_path / "commas.csv")
    assert (code, "with another decimal mark than '.'" in err) == (2, True)


def test_without_options_nothing_is_guessed(messy, folder, shell, tmp_path):
    train = ("train", messy, "--target", "paid", "--sensitive", "sex", *QUICK_FLAGS, "--out", tmp_path / "m")
    code, _, err = shell(*train)
    assert code == 2
    assert "column 'income' holds numbers, but 1 of its" in err
    assert "--numeric income reads those as missing" in err
    code, _, err = shell(*train, "--numeric", "income")
    assert code == 2
    assert "column 'remark' has 400 categories in 400 rows" in err
    assert "--text-drop" in err
    train += ("--numeric", "income")
    code, _, err = shell(*train, "--text-drop")
    assert code == 2
    assert "'opened'" in err
    assert "--date opened=dmy" in err
    code, _, err = shell(*train, "--text-drop", "--date", "opened=mdy")
    assert code == 2
    assert "not dates written as month/day/year" in err
    code, _, err = shell(*train, "--group-names", "3=other")
    assert code == 2
    assert "no value '3' (--group-names). It has: 1, 2." in err
    for option in (("--group-names", "male"), ("--categorical", "income")):
        assert shell(*train, *option)[0] == 2


def test_numbers_stored_as_text_in_parquet_are_named(shell, tmp_path):
    codes = np.random.default_rng(0).integers(0, 9999, 200)
    table = pd.DataFrame(
        {"postcode": [f"{code:05}" for code in codes], "sex": codes % 2, "paid": codes // 2 % 2}
    )
    path = tmp_path / "t.parquet"
    table.to_parquet(path)
    train = ("train", path, "--target", "paid", "--sensitive", "sex", *QUICK_FLAGS, "--out", tmp_path / "m")
    code, _, err = shell(*train)
    assert code == 2
    assert (
        "column 'postcode' is stored as text, but all its values are numbers. --numeric postcode reads" in err
    )
    code, _, err = shell(*train, "--date", "postcode=ymd")
    assert code == 2
    assert "'postcode=ymd' must end in =dmy or =mdy." in err


def test_numbers_with_a_sign_are_read_if_requested(shell, tmp_path):
    rng = np.random.default_rng(0)
    pay, rate = rng.integers(-5000, 90_000, 200), rng.uniform(0, 20, 200).round(1)
    table = pd.DataFrame({"pay": pay, "rate": rate, "sex": rng.choice(["f", "m"], 200)})
    table["paid"] = (pay + rng.normal(0, 9000, 200) > 40_000).astype(int)
    signed = table.assign(
        pay=[f"{'-' if each < 0 else ''}${abs(each):,}" for each in pay], rate=[f"{each} %" for each in rate]
    )
    paths = tmp_path / "plain.csv", tmp_path / "signed.csv"
    table.to_csv(paths[0], index=False)
    signed.to_csv(paths[1], index=False)
    roles = ("--target", "paid", "--sensitive", "sex", *QUICK_FLAGS)
    code, _, err = shell("train", paths[1], *roles, "--out", tmp_path / "m")
    assert code == 2
    assert "column 'pay' holds numbers with a currency or percent sign. --numeric pay reads them" in err
    assert shell("train", paths[1], *roles, "--numeric", "pay,rate", "--out", tmp_path / "signed")[0] == 0
    assert shell("train", paths[0], *roles, "--out", tmp_path / "plain")[0] == 0
    answers = [shell("predict", tmp_path / path.stem, path)[1] for path in paths]
    assert answers[0] == answers[1]
    signed.assign(pay=signed["pay"].str.replace("$", "€", n=1).where(pay % 2 == 0, signed["pay"])).to_csv(
        paths[1]
    )
    code, _, err = shell("train", paths[1], *roles, "--numeric", "pay", "--out", tmp_path / "m")
    assert code == 2
    assert "Column 'pay'" in err
    assert "has numbers with different signs ($ €). Convert them to one unit first." in err


def test_a_note_names_columns_with_leading_zeros(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("postcode,age,share\n01234,40,0.5\n10115,05,0\n20095,7,1\n")
    assert [note.partition(" has")[0] for note in open_table(path).notes] == [
        "column 'postcode'",
        "column 'age'",
    ]
    assert not open_table(path, kinds={"postcode": "category", "age": "number"}).notes


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_money_with_decimal_commas_or_as_decimals(shell, tmp_path, suffix):
    cents = np.random.default_rng(0).integers(0, 10**6, 200)
    decimals = [Decimal(int(value)) / 100 for value in cents]
    amounts = [str(value).replace(".", ",") for value in decimals] if suffix == ".csv" else decimals
    table = pd.DataFrame(
        {"amount": amounts, "sex": cents % 2, "paid": (cents + cents % 7 * 10**5 > 8 * 10**5).astype(int)}
    )
    path, out = tmp_path / f"t{suffix}", tmp_path / "m"
    table.to_csv(path, index=False) if suffix == ".csv" else table.to_parquet(path)
    train = ("train", path, "--target", "paid", "--sensitive", "sex", *QUICK_FLAGS, "--out", out)
    if suffix == ".csv":
        code, _, err = shell(*train)
        assert code == 2
        assert "Column 'amount'" in err
        assert "--decimal , if these are decimal commas" in err
        train += ("--decimal", ",")
    shell(*train)
    assert gcig.load(out).encoder_.columns_[0].mean == pytest.approx(cents.mean() / 100, rel=0.1)
    code, printed, err = shell("predict", out, path)
    assert (code, len(printed.splitlines())) == (0, 201), err


def test_a_result_that_exists_is_replaced_only_if_asked(messy, folder, shell, tmp_path):
    out = tmp_path / "decided.csv"
    out.write_text("mine")
    code, _, err = shell("predict", folder, messy, *COLUMNS, "--out", out)
    assert code == 2
    assert "exists already: choose another name, or replace it with --overwrite" in err
    assert out.read_text() == "mine"
    assert shell("predict", folder, messy, *COLUMNS, "--out", out, "--overwrite", "--quiet")[0] == 0
    code, _, err = shell("train", messy, *ROLES, *COLUMNS, "--out", folder, *QUICK_FLAGS)
    assert code == 2
    assert "--overwrite" in err


def test_training_within_its_limits_says_passed(messy, shell, tmp_path):
    limits = ("--max-gcig", 5, "--max-eo-gap", 5, "--method", "unconstrained", "--min-cell", 1)
    code, text, _ = shell(
        "train", messy, *ROLES, *COLUMNS, "--text-drop", *limits, "--epochs", 8, "--out", tmp_path / "m"
    )
    assert code == 0
    assert "Passed: GCIG" in text
    assert "is at most 5; Equalized odds gap" in text
