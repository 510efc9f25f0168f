"""`gcig tradeoff`: a family of models, and the page to choose from."""

import json

import pandas as pd
import pytest

import gcig
from example_tables import QUICK_FLAGS, ROLE_FLAGS, make_raw_loans
from gcig.records.trade_off import TradeOffRecord


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("loans") / "loans.csv"
    make_raw_loans(400).drop(index=[5, 9]).to_csv(path, index=False)
    return path


@pytest.mark.slow
def test_a_family_is_trained_measured_and_usable(shell, table, tmp_path):
    out = tmp_path / "family"
    arguments = ["tradeoff", table, *ROLE_FLAGS, "--drop", "id", "--out", out, *QUICK_FLAGS, "--json"]
    arguments += ["--favourable", "no"]
    code, text, _ = shell(*arguments, "--max-gcig", "1.9")
    assert code == 0
    record = TradeOffRecord.from_json((out / "tradeoff.json").read_text())
    found = json.loads(text)
    assert len(found["points"]) == len(record.points) >= 2
    assert found["chosen"] == record.best({"gcig": 1.9}).number
    assert record.n_rows == 99
    assert "Trade-off on loans.csv" in (out / "tradeoff.html").read_text()
    drawn = (out / "tradeoff.html").read_text()
    (out / "tradeoff.html").unlink()
    assert shell("report", out)[0] == 0
    assert (out / "tradeoff.html").read_text() == drawn
    model = gcig.load(out / "models" / "1")
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.favourable_ == "no"
    assert "favourable: no" in drawn
    code, _, _ = shell(
        "predict", out / "models" / "1", table, "--out", tmp_path / "predictions.csv", "--quiet"
    )
    assert code == 0
    assert len(pd.read_csv(tmp_path / "predictions.csv")) == 398
    code, _, err = shell(*arguments, "--max-eo-gap", "0.0001")
    assert (code, "exists already" in err) == (2, True)
    code, _, err = shell(*arguments, "--max-eo-gap", "0.0001", "--overwrite")
    assert code == 1
    assert "no model meets the limits with confidence" in err


def test_a_damaged_family_is_not_drawn(shell, tmp_path):
    (tmp_path / "tradeoff.json").write_text('{"points": []}')
    code, _, err = shell("report", tmp_path)
    assert (code, "is not what `gcig tradeoff` wrote" in err) == (2, True)


def test_wrong_columns_are_named_before_training(shell, table, tmp_path):
    code, _, err = shell(
        "tradeoff", table, "--target", "aproved", "--sensitive", "sex", "--out", tmp_path / "family"
    )
    assert code == 2
    assert "Did you mean 'approved'?" in err
