"""Faults 31, 32, 35 and 42: how a file writes its values, and values that look like something else."""

import warnings

import numpy as np
import pandas as pd
import pytest

import gcig
from example_tables import QUICK, make_loans
from gcig.methods.registry import METHODS

ROLES = ["--target", "approved", "--positive", "yes", "--sensitive", "sex"]
LOANS = make_loans(200)


def income_table(n=200, seed=0):
    """Return a table whose only informative column is an income of about 3000."""
    rng = np.random.default_rng(seed)
    income = rng.normal(3000, 800, n).round(2)
    approved = np.where(income + rng.normal(0, 300, n) > 3000, "yes", "no")
    return pd.DataFrame(
        {
            "income": income,
            "rate": rng.normal(size=n).round(4),
            "sex": ["f", "m"] * (n // 2),
            "approved": approved,
        }
    )


@pytest.fixture(scope="module")
def comma_model(tmp_path_factory):
    """Return a model trained on a file with semicolons and decimal commas, and the file."""
    from gcig.cli import main

    folder = tmp_path_factory.mktemp("commas")
    path = folder / "train.csv"
    income_table().to_csv(path, sep=";", decimal=",", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = ["--out", str(folder / "model"), "--method", "unconstrained", "--epochs", "4", "-q"]
        main(["train", str(path), *ROLES, "--decimal", ",", *out])
    return folder / "model"


def write(path, text):
    path.write_text(text)
    return path


def probability(shell, model, path, *more):
    code, out, err = shell("predict", model, path, *more)
    assert code == 0, err
    return [float(line.split(",")[0]) for line in out.splitlines()[1:]]


# --- 31: a file to predict that writes numbers differently ---------------------------------------------


def test_fault_31_the_decimal_mark_is_that_of_training(shell, comma_model, tmp_path):
    assert gcig.load(comma_model).csv_format_.decimal == ","
    assert gcig.load(comma_model).csv_format_.separator == ";"
    whole = probability(shell, comma_model, write(tmp_path / "a.csv", "income;rate\n3000;1\n"))
    same = probability(shell, comma_model, write(tmp_path / "b.csv", "income;rate\n3000,0;1\n"))
    assert whole == same


@pytest.mark.parametrize(
    "text",
    ["income;rate\n3.000;1\n", "income;rate\n3000.5;1\n", "income,rate\n3000,1\n", "income\trate\n3000\t1\n"],
    ids=["points before three digits", "decimal points", "commas between entries", "tabs between entries"],
)
@pytest.mark.parametrize("command", ["predict", "audit"])
def test_fault_31_a_file_that_contradicts_training_is_refused(shell, comma_model, tmp_path, text, command):
    path = write(tmp_path / "new.csv", text)
    more = []
    if command == "audit":
        header, row = text.splitlines()
        mark = next(mark for mark in ";,\t" if mark in header)
        rows = [mark.join([row, "fm"[i % 2], ["no", "yes"][i % 3 % 2]]) for i in range(60)]
        write(path, "\n".join([mark.join([header, "sex", "approved"]), *rows]) + "\n")
        more = ROLES
    code, out, err = shell(command, comma_model, path, *more)
    assert (code, out) == (2, "")
    separator = text[len("income")]
    if separator == ";":
        assert "Column 'income'" in err
        assert "in row 1 (below the header), but in training it held numbers" in err
        assert "--decimal . sets the mark" in err
    else:
        assert "--sep must be set" in err
        assert "the model was trained on has ';'" in err
    if command == "predict":
        assert len(probability(shell, comma_model, path, "--decimal", ".")) == 1


def test_fault_31_parts_of_any_size_are_read_alike(shell, comma_model, tmp_path):
    """The first rows are whole numbers; a decimal comma comes late."""
    rows = ["3000;1"] * 60 + ["2999,5;1"] + ["3000;1"] * 60
    path = write(tmp_path / "new.csv", "income;rate\n" + "\n".join(rows) + "\n")
    found = [probability(shell, comma_model, path, "--rows-at-once", str(n)) for n in (7, 50, 1000)]
    assert found[0] == found[1] == found[2]


def test_fault_31_a_model_of_python_reads_decimal_points_unless_told_otherwise(shell, tmp_path):
    table = income_table()
    model = METHODS["unconstrained"].estimator(**QUICK)
    model.fit(table[["income", "rate"]], table["approved"], sensitive_features=table["sex"])
    model.save(tmp_path / "m")
    numbers = ["3.000"] * 100 + ["2.999,5"] + ["3000"]
    path = write(tmp_path / "new.csv", "income;rate\n" + "".join(f"{n};1\n" for n in numbers))
    code, _, err = shell("predict", tmp_path / "m", path, "--quiet")
    assert (code, "--decimal must be set" in err or "in row 101" in err) == (2, True), err
    notation = ["--decimal", ",", "--numeric", "income"]
    for rows in ("1", "10", "1000"):
        found = probability(shell, tmp_path / "m", path, *notation, "--rows-at-once", rows)
        assert found[0] == found[-1]


# --- 32: thousands that only some values show ------------------------------------------------------------


@pytest.mark.parametrize(
    ("small", "large", "mark"),
    [("989", "1.001", ";"), ("989", "1,001", ";"), ("-12", "-1.250", "\t"), ("989", "1.001", ",")],
)
def test_fault_32_thousands_that_only_some_values_show(shell, tmp_path, small, large, mark):
    rows = [f"{[small, large][i % 2]};{'fm'[i // 2 % 2]};{['no', 'yes'][i % 3 % 2]}" for i in range(80)]
    text = "income;sex;approved\n" + "\n".join(rows) + "\n"
    path = write(tmp_path / "t.csv", text.replace(";", mark))
    flags = [*ROLES, "--out", tmp_path / "m", "--method", "unconstrained", "--epochs", "1"]
    code, _, err = shell("train", path, *flags)
    assert code == 2
    assert "'income'" in err
    if "." in large:
        assert "--decimal must be set" in err
        assert "thousands or a fraction" in err
    other = "," if "." in large else "."
    code, _, err = shell("train", path, *flags, "--decimal", other)
    assert (code, "--numeric income" in err) == (2, True)
    assert shell("train", path, *flags, "--decimal", other, "--numeric", "income")[0] in (0, 1)
    model = gcig.load(tmp_path / "m")
    assert model.csv_format_.decimal == other
    assert model.encoder_.columns_[0].scale > 5  # 0.5 if the mark started a fraction


def test_fault_32_thousands_are_read_if_requested_and_fractions_if_the_mark_is_named(shell, tmp_path):
    rows = [f"{['989', '1.001'][i % 2]};{'fm'[i // 2 % 2]};{['no', 'yes'][i % 3 % 2]}" for i in range(80)]
    path = write(tmp_path / "t.csv", "income;sex;approved\n" + "\n".join(rows) + "\n")
    flags = [*ROLES, "--out", tmp_path / "m", "--method", "unconstrained", "--epochs", "1", "--decimal", "."]
    assert shell("train", path, *flags)[0] in (0, 1)
    assert gcig.load(tmp_path / "m").encoder_.columns_[0].mean == pytest.approx(495, abs=20)


def test_fault_32_another_column_shows_the_decimal_mark(shell, tmp_path):
    rows = [f"{['989', '1.001'][i % 2]};0.5;{'fm'[i // 2 % 2]};{['no', 'yes'][i % 3 % 2]}" for i in range(80)]
    path = write(tmp_path / "t.csv", "income;rate;sex;approved\n" + "\n".join(rows) + "\n")
    flags = [*ROLES, "--out", tmp_path / "m", "--method", "unconstrained", "--epochs", "1", "-q"]
    assert shell("train", path, *flags)[0] in (0, 1)
    assert gcig.load(tmp_path / "m").encoder_.columns_[0].mean < 990
    path.write_text(path.read_text().replace("0.5", "0,5"))
    code, _, err = shell("train", path, *flags, "--overwrite")
    assert (code, "--decimal must be set" in err) == (2, True)


# --- 35: groups that look alike ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        ("Jos\xe9", "Jose\u0301", r"'Jose\\u0301' and 'Jos\\xe9'"),
        ("male", "ma\u200ble", r"'male' and 'ma\\u200ble'"),
        ("male", "ma\xadle", r"'male' and 'ma\\xadle'"),
        ("male", "\uff4dale", r"'male' and '\\uff4dale'"),
        ("male", "male\xa0", "differ only by spaces"),
        ("male", "m\u0430le", r"'male' and 'm\\u0430le'"),
        ("male", "male\ufe0f", r"'male' and 'male\\ufe0f'"),
        ("O'Neil", "O\u2019Neil", r"O\\u2019Neil"),
    ],
    ids=[
        "decomposed accent",
        "zero width",
        "soft hyphen",
        "full width",
        "no-break space",
        "cyrillic letter",
        "variation selector",
        "apostrophe",
    ],
)
def test_fault_35_groups_that_look_alike_are_an_error(one, other, shown):
    groups = np.array([one, other, "third"])[np.arange(200) % 3]
    with pytest.raises(gcig.InputError, match=shown):
        METHODS["unconstrained"].estimator(**QUICK).fit(LOANS.X, LOANS.y, sensitive_features=groups)
    with pytest.raises(gcig.InputError, match=shown):
        gcig.metrics.equalized_odds_gap(LOANS.y, LOANS.y, sensitive_features=groups)


def test_fault_35_groups_that_differ_by_case_are_a_warning():
    groups = np.array(["Male", "male", "female"])[np.arange(200) % 3]
    with pytest.warns(gcig.InputWarning, match="upper and lower case: 'Male' and 'male'"):
        gcig.metrics.equalized_odds_gap(LOANS.y, LOANS.y, sensitive_features=groups)


def test_fault_35_categories_that_look_alike_are_a_warning():
    jobs = np.array(["caf\xe9", "cafe\u0301"])[np.arange(200) % 3 % 2]
    with pytest.warns(gcig.InputWarning, match=r"'cafe\\u0301' and 'caf\\xe9'"):
        METHODS["unconstrained"].estimator(**QUICK).fit(LOANS.X.assign(job=jobs), LOANS.y, **LOANS.groups)


def test_fault_35_in_a_file(shell, tmp_path):
    table = income_table().assign(sex=["Jos\xe9", "Jose\u0301"] * 100)
    table.to_csv(tmp_path / "t.csv", index=False)
    code, _, err = shell("train", tmp_path / "t.csv", *ROLES, "--out", tmp_path / "m")
    assert code == 2
    assert "The protected attribute" in err
    assert r"'Jos\xe9'" in err


# --- 42: values that look like something else -----------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, bool])
def test_fault_42_masked_entries_are_missing(dtype):
    numbers = np.ma.array(LOANS.numbers.astype(dtype), mask=False)
    numbers[:20, 0] = np.ma.masked
    plain = pd.DataFrame(LOANS.numbers.astype(dtype)).astype(object if dtype != np.float32 else dtype)
    plain.iloc[:20, 0] = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gcig.InputWarning)
        fits = [
            METHODS["unconstrained"].estimator(**QUICK).fit(X, LOANS.y, **LOANS.groups)
            for X in (numbers, plain.to_numpy(object))
        ]
        np.testing.assert_array_equal(
            fits[0].predict_proba(numbers), fits[1].predict_proba(plain.to_numpy(object))
        )
    assert fits[0].encoder_.columns_[0].indicator


def test_fault_42_masked_labels_and_groups_are_an_error():
    model = METHODS["unconstrained"].estimator(**QUICK)
    labels = np.ma.array(LOANS.y.to_numpy(), mask=np.arange(200) < 3)
    with pytest.raises(gcig.InputError, match="y contains NaN or None in 3 of 200 rows"):
        model.fit(LOANS.X, labels, **LOANS.groups)
    groups = np.ma.array(LOANS.sex.to_numpy(str), mask=np.arange(200) < 3)
    with pytest.raises(gcig.InputError, match="sensitive_features contains NaN or None in 3 of 200"):
        model.fit(LOANS.X, LOANS.y, sensitive_features=groups)


def test_fault_42_a_column_of_true_and_false_with_blanks(shell, tmp_path):
    owner = np.array(["True", "False", ""])[np.arange(200) % 3]
    income_table().assign(owner=owner).to_csv(tmp_path / "t.csv", index=False)
    flags = [*ROLES, "--out", tmp_path / "m", "--method", "unconstrained", "--epochs", "1", "-q"]
    assert shell("train", tmp_path / "t.csv", *flags)[0] in (0, 1)
    encoder = gcig.load(tmp_path / "m").encoder_
    assert dict(zip(encoder.feature_names_in_, encoder.kinds_, strict=True))["owner"] == "boolean"
    assert len(probability(shell, tmp_path / "m", tmp_path / "t.csv", "--rows-at-once", "1")) == 200


def test_fault_42_integers_beyond_float64_among_fractions(shell, tmp_path):
    table = income_table()
    income = [*map(str, table["income"][:-1]), "1" + "0" * 30]
    table.assign(income=income).to_csv(tmp_path / "t.csv", index=False)
    flags = [*ROLES, "--out", tmp_path / "m", "--method", "unconstrained", "--epochs", "1", "-q"]
    _, _, err = shell("train", tmp_path / "t.csv", *flags)
    assert "Column 'income' of the table has 1 rows so far from the others" in err
    assert gcig.load(tmp_path / "m").encoder_.kinds_[0] == "number"
    assert len(probability(shell, tmp_path / "m", tmp_path / "t.csv")) == 200


def test_fault_42_integers_beyond_float64_alone_may_be_identifiers():
    with pytest.raises(gcig.InputError, match=r"integers beyond 2\*\*53"):
        METHODS["unconstrained"].estimator(**QUICK).fit(
            LOANS.X.assign(age=[10**30 + i for i in range(200)]), LOANS.y, **LOANS.groups
        )


@pytest.mark.parametrize("n_outliers", [1, 3])
def test_fault_42_outliers_hide_a_column(n_outliers):
    income = LOANS.X["income"].copy()
    income.iloc[7 : 7 + n_outliers] = 1e300
    with pytest.warns(gcig.InputWarning, match=f"'income' of X has {n_outliers} rows so far from the others"):
        METHODS["unconstrained"].estimator(**QUICK).fit(
            LOANS.X.assign(income=income), LOANS.y, **LOANS.groups
        )


@pytest.mark.parametrize("draw", ["normal", "lognormal", "exponential", "standard_cauchy"])
def test_fault_42_ordinary_columns_cause_no_warning(draw):
    values = getattr(np.random.default_rng(0), draw)(size=200)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        METHODS["unconstrained"].estimator(**QUICK).fit(
            LOANS.X.assign(income=values), LOANS.y, **LOANS.groups
        )
    assert not [each for each in caught if issubclass(each.category, gcig.InputWarning)]
