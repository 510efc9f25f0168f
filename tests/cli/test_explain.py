import json

import joblib
import pytest
from sklearn.linear_model import LogisticRegression

from example_tables import make_numeric_loans
from gcig.records import ExplanationRecord

COLUMNS = ["--target", "approved", "--sensitive", "sex"]
ROLES = [*COLUMNS, "--positive", "yes"]


@pytest.fixture
def files(tmp_path):
    """A pickled model, and a table with identifiers."""
    table = make_numeric_loans(300)
    model = LogisticRegression().fit(table[["income", "debt", "age", "noise"]], table["approved"] == "yes")
    joblib.dump(model, tmp_path / "model.joblib")
    table.assign(id=range(1000, 1300)).to_csv(tmp_path / "loans.csv", index=False)
    return tmp_path / "model.joblib", tmp_path / "loans.csv"


def test_a_row_is_explained_in_words_and_on_a_page(shell, files, tmp_path):
    page = tmp_path / "page.html"
    code, out, err = shell("explain", *files, "--id", "1017", *ROLES, "--trust-pickle", "--html", page)
    assert code == 0
    assert out.startswith("Row 1017:\n")
    assert "logits from the threshold" in " ".join(out.split())
    assert "vs group 0" in out
    assert f"Page:  {page}" in err
    assert "Row 1017 explained" in page.read_text()


def test_json_is_the_record(shell, files):
    _, out, _ = shell("explain", *files, "--row", "3", *ROLES, "--trust-pickle", "--json")
    found = ExplanationRecord.from_dict(json.loads(out))
    assert found.rows[0].row == "3"
    assert found.rows[0].group is None
    arguments = ["--row", "3", *ROLES, "--trust-pickle", "--json", "--include-protected"]
    _, out, _ = shell("explain", *files, *arguments)
    assert ExplanationRecord.from_dict(json.loads(out)).rows[0].group.startswith("group")


def test_wrong_input(shell, files):
    for arguments, expected in (
        (["--id", "7"], "No row of"),
        ([], "No row is chosen"),
        (["--row", "3", "--favourable", "True"], "--favourable is 'True', but the classes are 'no', 'yes'"),
    ):
        code, _, err = shell("explain", *files, *ROLES, "--trust-pickle", *arguments)
        assert code == 2
        assert expected in err
    code, _, err = shell("explain", *files, *COLUMNS, "--positive", "Yes", "--row", "3", "--trust-pickle")
    assert code == 2
    assert "--positive is 'Yes', but column 'approved' has the values" in err
    code, _, err = shell("explain", *files, "--id", "1017", "--trust-pickle")
    assert code == 2
    assert "--target is needed: only models of gcig have references of their own" in err
