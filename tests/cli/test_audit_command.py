"""`gcig audit`: reports, the gate and its exit codes, and what goes wrong."""

import json
import math
from dataclasses import replace

import joblib
import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from example_tables import make_raw_loans
from gcig.auditing import AuditResult
from gcig.records import AuditRecord

ROLE_FLAGS = ["--target", "approved", "--sensitive", "sex"]


@pytest.fixture(scope="module")
def held_out_csv(tmp_path_factory):
    path = tmp_path_factory.mktemp("test") / "test.csv"
    make_raw_loans(160, seed=1).to_csv(path, index=False)
    return path


@pytest.fixture
def audit(shell, model, held_out_csv):
    def run(*more, subject=model, table=held_out_csv):
        return shell("audit", subject, table, *ROLE_FLAGS, *more)

    return run


def test_the_verdict_in_words(audit, held_out_csv):
    code, out, err = audit("--quiet")
    assert (code, err) == (0, "")
    assert "on 160 rows" in out
    assert "Label 1 is yes; groups of sex: female, male." in out
    assert "GCIG" in out
    assert not any(cell in out for cell in make_raw_loans(160, seed=1)["id"])


def test_a_pipe_gets_a_line_instead_of_a_bar(audit, model, held_out_csv):
    assert audit("--json")[2] == f"Auditing {model} on {held_out_csv} ...\n"


def test_json_is_exactly_the_record(audit):
    code, out, _ = audit("--json")
    assert code == 0
    record = AuditRecord.from_json(out)
    assert record.subject.n_rows == 160
    assert record.subject.definition["columns"] == "original"


@pytest.mark.parametrize(
    ("limits", "code", "word"),
    [
        (["--max-gcig", "1.9"], 0, "passed: GCIG"),
        (["--max-gcig", "0.000001"], 1, "failed: GCIG"),
        (["--max-eo-gap", "0.000001", "--max-gcig", "1.9"], 1, "failed: "),
        (["--max-gcig", "1.9", "--conservative"], 0, "upper limit of its interval"),
    ],
)
def test_the_gate(audit, limits, code, word):
    found, out, _ = audit(*limits, "--quiet")
    assert found == code
    last = out.splitlines()[-1]
    assert word in last
    assert " is " in last


def test_a_collapsed_model_fails_with_and_without_limits(audit, held_out_csv, tmp_path):
    """The labels of the file are exchanged at random, so the model does not rank them."""
    frame = make_raw_loans(160, seed=1)
    frame["approved"] = frame["approved"].sort_values(ignore_index=True).iloc[::-1].to_numpy()
    frame["income"] = 30.0
    frame.to_csv(tmp_path / "noise.csv", index=False)
    for more in ([], ["--max-gcig", "1.9"]):
        code, out, err = audit("--quiet", *more, table=tmp_path / "noise.csv")
        assert code == 1
        assert "the model collapsed" in out + err


def test_the_gate_with_json_explains_itself_on_standard_error(audit):
    code, out, err = audit("--json", "--quiet", "--max-gcig", "0.000001")
    assert code == 1
    json.loads(out)
    assert err.startswith("gcig: failed: GCIG")
    assert err.count("\n") == 1


def test_pages_and_cards(audit, tmp_path, shell):
    page, card = tmp_path / "audit.html", tmp_path / "card.md"
    code, out, _ = audit("--html", page, "--markdown", card, "--quiet", "--max-gcig", "1.9")
    assert code == 0
    assert f"Report:  {page}" in out
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert card.read_text().startswith("**passed: GCIG ")
    _, out, _ = audit("--json", "--quiet")
    (tmp_path / "audit.json").write_text(out)
    assert shell("report", tmp_path / "audit.json")[1] == f"Report:  {page}\n"
    assert json.loads(shell("report", tmp_path / "audit.json", "--json")[1])["result"] == json.loads(out)


@pytest.fixture(scope="module")
def pickled(tmp_path_factory):
    """Somebody else's model: a scikit-learn pipeline, with its own preprocessing."""
    loans = make_raw_loans(300, seed=2).dropna()
    columns = ColumnTransformer(
        [("job", OneHotEncoder(handle_unknown="ignore"), ["job"]), ("rest", "passthrough", ["income"])]
    )
    fitted = make_pipeline(columns, LogisticRegression(max_iter=2000))
    fitted.fit(loans[["income", "job"]], np.where(loans["approved"] == "yes", 1, 0))
    path = tmp_path_factory.mktemp("pickles") / "model.joblib"
    joblib.dump(fitted, path)
    return path


def test_a_pickle_is_opened_only_when_trusted(audit, pickled, tmp_path):
    make_raw_loans(160, seed=1).dropna().to_csv(tmp_path / "test.csv", index=False)
    arguments = ["--positive", "yes", "--quiet"]
    code, out, err = audit(*arguments, subject=pickled, table=tmp_path / "test.csv")
    assert (code, out) == (2, "")
    assert "--trust-pickle" in err
    code, out, err = audit(*arguments, "--trust-pickle", subject=pickled, table=tmp_path / "test.csv")
    assert code == 0, err
    assert "Label 1 is" in out


WRONG = {
    "no such model": (["nowhere", "TEST", *ROLE_FLAGS], "There is no model"),
    "not a model": (["TEST", "TEST", *ROLE_FLAGS], "not a model that can be opened"),
    "no such file": (["MODEL", "nowhere.csv", *ROLE_FLAGS], "There is no file"),
    "no such target": (["MODEL", "TEST", "--target", "aproved", "--sensitive", "sex"], "approved"),
    "no such group": (["MODEL", "TEST", "--target", "approved", "--sensitive", "gender"], "gender"),
    "other labels": (["MODEL", "TEST", "--target", "race", "--sensitive", "sex"], "not in training"),
    "no limit": (["MODEL", "TEST", *ROLE_FLAGS, "--conservative"], "needs a limit"),
    "no folder for the page": (["MODEL", "TEST", *ROLE_FLAGS, "--html", "no/such/x.html"], "no folder"),
    "a limit that is no number": (["MODEL", "TEST", *ROLE_FLAGS, "--max-gcig", "x"], "must be a number"),
    "a threshold of 1": (["MODEL", "TEST", *ROLE_FLAGS, "--threshold", "1"], "0<x<1"),
}


@pytest.mark.parametrize(("arguments", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_argument_gets_one_line(shell, model, held_out_csv, arguments, words):
    places = {"MODEL": model, "TEST": held_out_csv}
    code, out, err = shell("audit", *(places.get(word, word) for word in arguments), "--quiet")
    assert (code, out) == (2, "")
    assert err.startswith("gcig: error: ")
    assert err.count("\n") == 1
    assert words in err
    assert "Traceback" not in err


def test_against_an_earlier_audit_and_the_history_of_both(audit, shell, tmp_path):
    folder = tmp_path / "audits"
    folder.mkdir()
    (folder / "first.json").write_text(audit("--json")[1])
    code, out, _ = audit("--json", "--against", folder / "first.json")
    assert code == 0
    change = AuditRecord.from_json(out).change
    assert change.headline.startswith("Nothing changed")
    (folder / "second.json").write_text(out)
    code, out, _ = shell("report", folder)
    assert code == 0
    assert "2 audits" in (folder / "history.html").read_text()
    code, _, err = audit("--against", tmp_path / "none.json")
    assert (code, "is not a file: name the JSON of an audit" in err) == (2, True)


def test_an_undefined_figure_is_inconclusive(audit, monkeypatch):
    record = AuditRecord.from_json(audit("--json", "--quiet")[1])
    figures = tuple(
        replace(each, value=math.nan) if each.name == "eo_gap" else each for each in record.evaluation.figures
    )
    undefined = replace(record, evaluation=replace(record.evaluation, figures=figures))
    monkeypatch.setattr("gcig.auditing.audit_file", lambda *_, **__: AuditResult(undefined))
    code, out, _ = audit("--max-eo-gap", "1.9", "--quiet")
    assert code == 3
    assert "not defined" in out.splitlines()[-1]


def test_raw_columns_give_the_raw_gcig_of_evaluate(audit, model):
    import gcig

    loans = make_raw_loans(160, seed=1)
    _, out, _ = audit("--json", "--columns", "raw")
    found = gcig.evaluate(
        gcig.load(model),
        loans[["income", "job", "owner"]],
        loans["approved"],
        sensitive_features=loans["sex"],
    )
    assert AuditRecord.from_json(out).evaluation.gcig == pytest.approx(found.gcig_raw, rel=1e-4)


def test_robustness_and_a_second_model(audit, model):
    code, out, _ = audit("--robustness", "--json", "--quiet")
    assert code == 0
    assert "reason_gap_shapley" in AuditRecord.from_json(out).evaluation
    code, out, _ = audit("--other", model, "--json", "--quiet")
    both = AuditRecord.from_json(out)
    assert code == 0
    assert both.evaluation.values() == pytest.approx(both.other.values(), nan_ok=True)


def test_the_favourable_class_may_be_the_negative_one(audit):
    usual = AuditRecord.from_json(audit("--json")[1])
    turned = AuditRecord.from_json(audit("--json", "--favourable", "no")[1])
    assert (usual.subject.favourable, turned.subject.favourable) == (("yes",), ("no",))
    rates = [group.selection_rate for group in usual.evaluation.groups]
    assert usual.evaluation.selection_rate_ratio == pytest.approx(min(rates) / max(rates))
    refused = [1 - rate for rate in rates]
    assert turned.evaluation.selection_rate_ratio == pytest.approx(min(refused) / max(refused))
    code, _, err = audit("--favourable", "maybe")
    assert (code, "--favourable is 'maybe', but the classes are" in err) == (2, True)


def test_any_measure_may_have_a_limit(audit):
    assert audit("--min-auc", "1.5", "--quiet")[0] == 1
    assert audit("--min-auc=0.1", "--max-demographic-parity-difference", "1", "--quiet")[0] == 0
    code, _, err = audit("--max-demografic-parity-difference", "1")
    assert code == 2
    assert "Did you mean 'demographic-parity-difference'?" in err
