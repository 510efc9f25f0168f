"""Faults 1 to 20: input as it comes, through `fit`, `predict` and the commands."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import gcig
from example_tables import QUICK, ROLE_FLAGS, make_loans
from gcig.methods.registry import METHODS

LOANS = make_loans(120)
X, Y, SEX = LOANS.X, LOANS.y, LOANS.sex
METHOD = ["--method", "unconstrained", "--epochs", "1"]


def fit(X=X, y=Y, groups=SEX, **parameters):
    model = METHODS["unconstrained"].estimator(**{**QUICK, "max_epochs": 1, **parameters})
    return model.fit(X, y, sensitive_features=groups)


@pytest.fixture
def trained(shell, tmp_path):
    """Write a file, train on it and return the exit code, the messages and the model's folder."""

    def train(content, *more):
        path = tmp_path / "table.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        code, _, err = shell("train", path, *ROLE_FLAGS, "--out", tmp_path / "model", *METHOD, *more)
        return code, err, tmp_path / "model"

    return train


def csv(rows=40, header="age,sex,approved", entry=lambda i: f"{20 + i % 7}", mark=","):
    lines = [mark.join([entry(i), "fm"[i % 2], ["no", "yes"][i // 2 % 2]]) for i in range(rows)]
    return "\n".join([header.replace(",", mark), *lines]) + "\n"


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_fault_01_infinity_in_X(bad):
    wrong = X.assign(income=X["income"].where(X.index != 3, bad))
    with pytest.raises(
        gcig.InputError, match=r"contains infinity \(inf\) in column 'income'.*NaN is imputed"
    ):
        fit(wrong)
    model = fit(X.assign(income=X["income"].where(X.index != 3, np.nan)))
    with pytest.raises(gcig.InputError, match="contains infinity"):
        model.predict(wrong)
    assert np.isfinite(model.predict_proba(X.assign(income=np.nan))).all()


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_fault_02_missing_label_or_group(missing):
    for name in ("y", "groups"):
        values = {"y": Y, "groups": SEX}[name].astype(object).copy()
        values.iloc[4] = missing
        with pytest.raises(gcig.InputError, match="contains NaN or None in 1 of 120 rows: drop those rows"):
            fit(**{name: values})


def test_fault_03_an_empty_table(trained):
    with pytest.raises(gcig.InputError, match="X is empty"):
        fit(X[:0], Y[:0], SEX[:0])
    with pytest.raises(gcig.InputError, match="is empty: found array"):
        fit(X[[]])
    for content, words in (("", "is empty"), ("age,sex,approved\n", "a header line but no rows")):
        code, err, _ = trained(content)
        assert code == 2
        assert words in err


def test_fault_04_one_row_or_one_feature():
    with pytest.raises(gcig.InputError, match="only one class"):
        fit(X[:1], Y[:1], SEX[:1])
    model = fit(X[["income"]])
    assert model.predict(X[["income"]][:1]).shape == (1,)


def test_fault_05_one_class():
    with pytest.raises(gcig.InputError, match=r"y has only one class \('yes'\)"):
        fit(y=["yes"] * 120)


@pytest.mark.parametrize("classes", [(-1, 1), ("bad", "good"), (False, True), (0.0, 1.0), (5, 7)])
def test_fault_06_other_names_for_two_classes(classes):
    model = fit(y=np.array(classes)[Y])
    assert model.classes_.tolist() == list(classes)
    assert set(model.predict(X).tolist()) <= set(classes)


def test_fault_06_more_than_two_classes():
    with pytest.raises(gcig.InputError) as raised:
        gcig.FairXPaperClassifier().fit(X, np.arange(120) % 3, sensitive_features=SEX)
    assert raised.value.argument == "y"
    with pytest.raises(gcig.InputError, match=r"60 classes \(at most 50\)"):
        fit(y=np.arange(120) % 60)
    with pytest.raises(gcig.InputError, match="Unknown label type: continuous"):
        fit(y=X["income"])


def test_fault_07_one_group():
    with pytest.raises(gcig.InputError, match=r"one group only \('F'\)"):
        fit(groups=["F"] * 120)


def test_fault_08_an_empty_cell():
    y = np.where(SEX == "female", 0, Y)
    with pytest.warns(gcig.InputWarning, match=r"No rows in \(label 1, group 'female'\).*Merge small groups"):
        fit(y=y)
    with pytest.raises(gcig.InputError, match="No label occurs in two groups"):
        fit(y=(SEX == "female").astype(int))
    y[np.flatnonzero(SEX == "female")[:2]] = 1
    compared = gcig.compare(X, y, sensitive_features=SEX, methods=["unconstrained"])
    assert len(compared.results) == 5
    assert all("Too few rows for 5 folds" in each.error for each in compared.results)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(y=y, batch_size=16)  # most mini-batches lack the cell
        model = gcig.FairXClassifier(**{**QUICK, "max_epochs": 1, "batch_size": 16})
        assert np.isfinite(model.fit(X, y, sensitive_features=SEX).predict_proba(X)).all()


def test_fault_09_a_cell_of_one_row():
    y = np.where(SEX == "female", 0, Y)
    y[np.flatnonzero(SEX == "female")[0]] = 1
    with pytest.warns(gcig.InputWarning, match=r"One row only in \(label 1, group 'female'\).*one person's"):
        fit(y=y)


def test_fault_10_an_identifier_as_group():
    with pytest.raises(gcig.InputError, match=r"has 120 groups \(at most 50\): it is probably an identifier"):
        fit(groups=np.arange(120))


def test_fault_11_a_constant_column():
    with pytest.warns(gcig.InputWarning, match=r"single value in training .*'country'"):
        model = fit(X.assign(country=7))
    assert np.isfinite(model.predict_proba(X.assign(country=8))).all()


def test_fault_12_a_category_or_group_never_seen():
    model = fit()
    with pytest.warns(gcig.InputWarning, match=r"Categories that training did not see.*'job' \(120 rows\)"):
        model.predict(X.assign(job="pilot"))
    hardt = METHODS["hardt"].estimator(**{**QUICK, "max_epochs": 1}).fit(X, Y, sensitive_features=SEX)
    with pytest.raises(gcig.InputError, match="groups that were not in training: 'other'"):
        hardt.predict(X, sensitive_features=["other"] * 120)


def test_fault_13_columns_missing_reordered_or_duplicated():
    model = fit()
    np.testing.assert_array_equal(model.predict_proba(X[X.columns[::-1]]), model.predict_proba(X))
    with pytest.raises(gcig.InputError, match="yet now missing:\n- debt\n"):
        model.predict(X.drop(columns="debt"))
    with pytest.raises(gcig.InputError, match="unseen at fit time:\n- more\n"):
        model.predict(X.assign(more=1))
    with pytest.raises(gcig.InputError, match=r"X has 3 features, but .* is expecting 5 features"):
        model.predict(np.ones((1, 3)))
    with pytest.raises(gcig.InputError, match="several columns called 'age'"):
        fit(pd.concat([X, X[["age"]]], axis=1))


@pytest.mark.parametrize(("row", "width"), [("4,f", 2), ("4,5,f,yes", 4)])
def test_fault_14_a_ragged_row(trained, row, width):
    lines = csv().splitlines()
    lines[2] = row
    code, err, _ = trained("\n".join(lines) + "\n")
    assert code == 2
    assert f"row 2 (below the header): {width} fields, but the header has 3. This affects 1 of 40 rows" in err


def test_fault_15_semicolons_and_decimal_commas(trained):
    content = csv(entry=lambda i: f"{i % 7},5", mark=";")
    code, err, _ = trained(content)
    assert code == 2
    assert "Column 'age'" in err
    assert "--decimal , if these are decimal commas" in err
    code, err, folder = trained(content, "--decimal", ",")
    assert code in (0, 1), err
    assert "semicolons between entries, decimal commas" in err
    assert gcig.load(folder).encoder_.columns_[0].mean < 7


def test_fault_16_a_group_called_NA_or_None(trained):
    text = csv().replace(",f,", ",NA,").replace(",m,", ",None,")
    code, err, folder = trained(text)
    assert code in (0, 1), err
    assert gcig.load(folder).groups_ == ("NA", "None")


def test_fault_17_the_same_value_with_a_space(trained):
    with pytest.raises(gcig.InputError, match="holds both ' male' and 'male', which differ only by spaces"):
        fit(groups=SEX.where(SEX.index > 5, " male"))
    code, err, folder = trained(csv().replace("21,m", "21, m"))
    assert code in (0, 1), err
    assert "'sex' has the same values with and without spaces" in err
    assert gcig.load(folder).groups_ == ("f", "m")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_fault_18_encodings(trained, encoding):
    text = csv(header="età,sex,approved").replace(",f,", ",Forlì,")
    if "utf-8" not in encoding:
        code, err, _ = trained(text.encode(encoding))
        assert code == 2
        assert "--encoding does not fit: line 1" in err
    named = [] if "utf-8" in encoding else ["--encoding", encoding]
    code, err, folder = trained(text.encode(encoding), *named)
    assert code in (0, 1), err
    model = gcig.load(folder)
    assert (model.encoder_.feature_names_in_, model.groups_) == (("età",), ("Forlì", "m"))


def test_fault_18_nul_bytes(trained):
    code, err, _ = trained(csv().encode().replace(b"21,m", b"2\x001,m", 1))
    assert code == 2
    assert "NUL byte in line 3" in err


def test_fault_19_unusual_arrays(tmp_path):
    numbers = LOANS.numbers.astype(np.float16).astype(np.float64)
    expected = fit(numbers).predict_proba(numbers)
    stored = np.memmap(tmp_path / "x.bin", np.float64, "w+", shape=numbers.shape)
    stored[:] = numbers
    stored.flush()
    read_only = np.memmap(tmp_path / "x.bin", np.float64, "r", shape=numbers.shape)
    matrix = sparse.csr_array(numbers)
    for same in (numbers.astype(object), numbers.astype(np.float16), read_only, matrix):
        np.testing.assert_array_equal(fit(same).predict_proba(same), expected)
    with pytest.raises(gcig.InputError, match="Complex data not supported"):
        fit(numbers + 1j)
    with pytest.raises(gcig.InputError, match="holds entries of type list"):
        fit(X.assign(job=[[1]] * 120))
    with pytest.raises(gcig.InputError, match=r"'age' of X holds integers beyond 2\*\*53"):
        fit(X.assign(age=2**60 + np.arange(120)))


def test_fault_20_different_lengths_and_indexes():
    with pytest.raises(gcig.InputError, match="X has 120, y has 119, sensitive_features has 120 rows"):
        fit(y=Y[:-1])
    with pytest.raises(gcig.InputError, match=r"indexes of X and y disagree.*reset_index\(drop=True\)"):
        fit(y=Y[::-1])


def test_fault_20_the_sensitive_column_left_in_X():
    with pytest.warns(gcig.InputWarning, match=r"reveal the protected attribute \(sex\): 'gender'"):
        fit(X.assign(gender=SEX.map({"female": 1, "male": 2})))
