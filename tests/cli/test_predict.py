import io
import json

import numpy as np
import pandas as pd
import pytest

import gcig
from example_tables import QUICK_FLAGS, ROLE_FLAGS

INPUTS = ["income", "job", "owner"]


def as_frame(text):
    return pd.read_csv(io.StringIO(text), dtype={"decision": str, "id": str})


def test_a_probability_and_a_decision_for_each_row_in_order(shell, model, loans_csv, loans):
    code, out, err = shell("predict", model, loans_csv, "--id", "id")
    assert code == 0
    assert err == ""
    found = as_frame(out)
    assert found.columns.tolist() == ["id", "probability", "decision"]
    assert found["id"].tolist() == loans["id"].tolist()
    fitted = gcig.load(model)
    expected = fitted.predict_proba(loans[INPUTS])[:, 1]
    np.testing.assert_allclose(found["probability"], expected, atol=6e-7)
    assert found["decision"].tolist() == fitted.predict(loans[INPUTS]).tolist()


def test_every_column_that_id_names_is_written(shell, model, loans_csv, loans):
    _, out, _ = shell("predict", model, loans_csv, "--id", "race", "--id", "id", "--id", "race")
    found = as_frame(out)
    assert found.columns.tolist() == ["race", "id", "probability", "decision"]
    assert found["id"].tolist() == loans["id"].tolist()
    assert found["race"].tolist() == loans["race"].tolist()


@pytest.mark.parametrize("rows", [7, 239, 240])
def test_parts_give_the_same_as_the_whole(shell, model, loans_csv, rows):
    whole = as_frame(shell("predict", model, loans_csv)[1])
    parts = as_frame(shell("predict", model, loans_csv, "--rows-at-once", rows, "--quiet")[1])
    np.testing.assert_allclose(parts["probability"], whole["probability"], atol=1.1e-6)
    assert parts["decision"].tolist() == whole["decision"].tolist()


def test_a_part_of_digits_or_of_missing_entries_is_read_as_in_training(shell, model, tmp_path):
    lines = ["job,income,owner", "07,?,true", "07,,TRUE", "nurse,31.5,", "nurse,NA,false"]
    (tmp_path / "new.csv").write_text("\n".join(lines) + "\n")
    table = pd.DataFrame(
        {
            "job": ["07", "07", "nurse", "nurse"],
            "income": [np.nan, np.nan, 31.5, np.nan],
            "owner": [1.0, 1.0, np.nan, 0.0],
        }
    )
    with pytest.warns(gcig._arguments.InputWarning, match="Missing entries"):
        expected = gcig.load(model).predict_proba(table)[:, 1]
    for rows in (1, 2, 4):
        _, out, err = shell("predict", model, tmp_path / "new.csv", "--rows-at-once", rows, "--quiet")
        np.testing.assert_allclose(as_frame(out)["probability"], expected, atol=6e-7)
        assert "'owner' (1 rows)" in err
        assert err.count("\n") == 1


def test_entries_are_passed_through_unchanged(shell, model, loans, tmp_path):
    loans = loans.head(4).assign(id=["0012", " x ", 'say "hi"', "=1+1"])
    loans.to_csv(tmp_path / "new.csv", index=False)
    _, out, err = shell("predict", model, tmp_path / "new.csv", "--keep")
    found = pd.read_csv(io.StringIO(out), dtype=str, na_filter=False)
    given = pd.read_csv(tmp_path / "new.csv", dtype=str, na_filter=False)
    assert found.columns.tolist() == [*given.columns, "probability", "decision"]
    pd.testing.assert_frame_equal(found[given.columns], given)
    assert "Column 'id' has 1 entries that a spreadsheet would evaluate" in err
    assert "1+1" not in err


def test_parquet_in_and_out(shell, model, loans, tmp_path):
    table = loans.assign(number=pd.array([None, *range(1, len(loans))], dtype="Int64"))
    table.to_parquet(tmp_path / "new.parquet")
    out = tmp_path / "decisions.parquet"
    arguments = ["--id", "id", "--id", "number", "--out", out, "--rows-at-once", "50"]
    code, printed, err = shell("predict", model, tmp_path / "new.parquet", *arguments)
    assert (code, printed) == (0, "")
    assert "240 rows written" in err
    found = pd.read_parquet(out, dtype_backend="pyarrow")
    assert found["id"].tolist() == loans["id"].tolist()
    assert str(found["number"].dtype).startswith("int64")
    expected = gcig.load(model).predict_proba(loans[INPUTS])[:, 1]
    np.testing.assert_allclose(found["probability"].astype(float), expected, atol=1e-6)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_semicolons_and_decimal_commas(shell, model, loans, loans_csv, tmp_path):
    loans.to_csv(tmp_path / "new.csv", index=False, sep=";", decimal=",")
    as_commas = ["--decimal", ",", "--rows-at-once", "40", "--quiet"]
    first = shell("predict", model, tmp_path / "new.csv", *as_commas)[1]
    assert first == shell("predict", model, loans_csv, "--rows-at-once", "40", "--quiet")[1]


def test_the_notation_of_training_is_used_again(shell, loans, tmp_path):
    """The separator and the decimal mark are those of the model; another separator is an error."""
    path, out = tmp_path / "loans.csv", tmp_path / "m"
    loans.to_csv(path, index=False, sep=";", decimal=",")
    code, _, err = shell("train", path, *ROLE_FLAGS, "--drop", "id", "--out", out, *QUICK_FLAGS)
    assert code == 2
    assert "Column 'income'" in err
    assert "--decimal ," in err
    test = tmp_path / "test.csv"
    flags = ["--drop", "id", "--out", out, "--decimal", ",", "--save-test", test, *QUICK_FLAGS]
    assert shell("train", path, *ROLE_FLAGS, *flags)[0] == 0
    code, expected, err = shell("predict", out, path)
    assert (code, len(expected.splitlines())) == (0, 241), err
    assert set(test.read_text().splitlines()) <= set(path.read_text().splitlines())  # entries are unchanged
    assert shell("audit", out, test, *ROLE_FLAGS, "--min-cell", 1, "--quiet")[0] == 0
    loans.to_csv(tmp_path / "commas.csv", index=False)
    code, _, err = shell("predict", out, tmp_path / "commas.csv")
    assert (code, "--sep must be set" in err) == (2, True)
    assert shell("predict", out, tmp_path / "commas.csv", "--decimal", ".")[1] == expected


def test_standard_input(shell, model, loans_csv, standard_input):
    expected = shell("predict", model, loans_csv)[1]
    standard_input(loans_csv.read_bytes())
    assert shell("predict", model, "-")[1] == expected


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_json_locates_the_predictions(shell, model, loans_csv, tmp_path, quiet):
    path = tmp_path / "decisions.csv"
    code, out, err = shell(
        "predict", model, loans_csv, "--out", path, "--rows-at-once", 100, "--json", *quiet
    )
    assert code == 0
    assert ("240 rows written" in err) == (not quiet)
    written = as_frame(path.read_text())["decision"]
    assert json.loads(out) == {
        "schema": 1,
        "kind": "predictions",
        "model": str(model),
        "method": "fairx",
        "file": str(loans_csv),
        "out": str(path),
        "rows": 240,
        "positive": "yes",
        "decisions": {name: int((written == name).sum()) for name in ("no", "yes")},
    }


def test_json_needs_a_file_for_the_predictions(shell, model, loans_csv):
    code, out, err = shell("predict", model, loans_csv, "--json")
    assert (code, out) == (2, "")
    assert "--json needs --out" in err


def test_methods_that_need_the_group_get_it(shell, repaired, loans_csv, loans):
    code, out, err = shell("predict", repaired, loans_csv)
    assert (code, out) == (2, "")
    assert "--sensitive" in err
    assert "'female', 'male'" in err
    code, out, _ = shell("predict", repaired, loans_csv, "--sensitive", "sex", "--rows-at-once", "33")
    assert code == 0
    expected = gcig.load(repaired).predict_proba(loans[INPUTS], sensitive_features=loans["sex"])[:, 1]
    np.testing.assert_allclose(as_frame(out)["probability"], expected, atol=1.1e-6)


def test_the_group_is_optional_if_the_model_does_not_need_it(shell, model, loans_csv):
    code, _, err = shell("predict", model, loans_csv, "--sensitive", "sex")
    assert code == 0
    assert "predicts without the protected attribute" in err


def test_a_failure_leaves_the_old_output_unchanged(shell, model, tmp_path):
    lines = ["job,income,owner", *["nurse,30,true"] * 5, "nurse,lots,true"]
    (tmp_path / "new.csv").write_text("\n".join(lines) + "\n")
    out = tmp_path / "decisions.csv"
    out.write_text("what was there before")
    code, _, err = shell(
        "predict", model, tmp_path / "new.csv", "--out", out, "--overwrite", "--rows-at-once", "3", "--quiet"
    )
    assert code == 2
    assert err.startswith("gcig: error: Column 'income'")
    assert "holds text in row 6 (below the header), but in training it held numbers" in err
    assert err.count("\n") == 1
    assert out.read_text() == "what was there before"
    assert {path.name for path in tmp_path.iterdir()} == {"new.csv", "decisions.csv"}
