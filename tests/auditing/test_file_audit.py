"""Audits of files in batches: the same estimates as of the table in memory, whatever the batches hold."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

import gcig
from example_tables import make_numeric_loans
from gcig._arguments import InputError
from gcig._files import hash_file
from gcig.auditing import audit, audit_file
from gcig.methods import METHODS

NUMBERS = ["income", "debt", "age", "noise"]
QUICK = {"n_bootstrap": 50}
ROLES = {"target": "approved", "sensitive": "sex"}
BATCHES = {"in_memory_rows": 0, "rows_at_once": 170}


def fitted(table: pd.DataFrame) -> LogisticRegression:
    return LogisticRegression().fit(table[NUMBERS], table["approved"])


def agree(found, expected, *, in_parts: bool) -> None:
    """In parts, references are frozen before: chance of GCIG and its definition may differ in rounding."""
    for name, value in expected.values().items():
        assert found[name] == pytest.approx(value, rel=1e-6, abs=1e-9, nan_ok=True), name
    if not in_parts:
        assert found.columns == expected.columns


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("options", [{}, BATCHES], ids=["whole", "batches"])
def test_estimates_are_those_of_the_table_in_memory(tmp_path, suffix: str, options: dict) -> None:
    table = make_numeric_loans(900, 3)
    path = tmp_path / f"loans{suffix}"
    table.to_csv(path, index=False) if suffix == ".csv" else table.to_parquet(path)
    model = fitted(table)
    expected = audit(
        model, table[NUMBERS], table["approved"], sensitive_features=table["sex"], **QUICK
    ).record
    found = audit_file(model, path, **ROLES, **QUICK, **options).record
    agree(found.evaluation, expected.evaluation, in_parts=bool(options))
    assert found.subject.data_sha256 == hash_file(path)
    assert found.subject.n_rows == 900
    assert found.subject.classes[1] == "yes"


def test_schema_grows_with_later_rows(tmp_path) -> None:
    """A group, a label, missing cells, and text in a column that starts with digits."""
    table = make_numeric_loans(900).sort_values("sex", kind="stable", ignore_index=True)
    table = pd.concat(
        [table[table["approved"] == "no"], table[table["approved"] == "yes"]], ignore_index=True
    )
    table["code"] = [*(str(i % 3) for i in range(800)), *("x" for _ in range(100))]
    table["hours"] = [*range(700), *([np.nan] * 200)]
    path = tmp_path / "t.csv"
    table.to_csv(path, index=False)

    def model(rows: pd.DataFrame) -> np.ndarray:
        assert pd.api.types.is_string_dtype(rows["code"])
        chance = 0.3 + 0.4 * (rows["income"] > 0.5) + 0.1 * (rows["code"] == "x") - 0.1 * rows["hours"].isna()
        return chance.to_numpy()

    options = {"positive": "yes", "n_bootstrap": 5, **ROLES}
    whole = audit_file(model, path, **options).record
    parts = audit_file(model, path, **options, **BATCHES).record
    assert [group.group for group in parts.evaluation.groups] == ["group 0", "group 1"]
    assert parts.evaluation.accuracy == whole.evaluation.accuracy
    assert parts.subject.n_columns == 6
    used = {name for name, value in parts.evaluation.reason_gap_common_columns.items() if value}
    assert used == {"income", "code", "hours"}


def test_a_gcig_model_reads_its_own_columns(tmp_path) -> None:
    table = make_numeric_loans(700).assign(
        job=np.tile(["a", "b", None, "c", "c", "a", "b"], 100), extra="unused"
    )
    inputs = [*NUMBERS, "job"]
    model = METHODS["unconstrained"].estimator(max_epochs=30, hidden_sizes=(4,), random_state=0)
    model.fit(table[inputs], table["approved"], sensitive_features=table["sex"])
    model.save(tmp_path / "model")
    table.to_csv(tmp_path / "t.csv", index=False)
    found = audit_file(tmp_path / "model", tmp_path / "t.csv", **ROLES, **QUICK, **BATCHES).record
    expected = gcig.evaluate(model, table[inputs], table["approved"], sensitive_features=table["sex"])
    assert found.subject.n_columns == 5
    assert found.evaluation.gcig == pytest.approx(expected.gcig, rel=1e-5)
    assert found.subject.model_name == "model"


def test_trees_in_batches(tmp_path) -> None:
    table = make_numeric_loans(600)
    table.to_parquet(tmp_path / "t.parquet")
    model = HistGradientBoostingClassifier(max_iter=5).fit(table[NUMBERS], table["approved"])
    found = audit_file(model, tmp_path / "t.parquet", **ROLES, **QUICK, **BATCHES).record
    assert found.subject.explanation == "shapley"
    columns = found.evaluation.reason_gap_common_columns
    assert max(columns, key=columns.get) == "income"


def test_a_separate_reference(tmp_path) -> None:
    table, training = make_numeric_loans(900), make_numeric_loans(1500, seed=1)
    table.to_csv(tmp_path / "t.csv", index=False)
    reference = (training[NUMBERS], training["approved"], training["sex"])
    found = audit_file(
        fitted(table), tmp_path / "t.csv", **ROLES, **QUICK, **BATCHES, reference=reference
    ).record
    expected = audit(
        fitted(table),
        table[NUMBERS],
        table["approved"],
        sensitive_features=table["sex"],
        reference=reference,
        **QUICK,
    ).record
    assert found.evaluation.gcig == pytest.approx(expected.evaluation.gcig)


def test_positive_and_crossed_attributes(tmp_path) -> None:
    table = make_numeric_loans(1200).assign(race=np.random.default_rng(5).choice(["a", "b"], 1200))
    table.to_csv(tmp_path / "t.csv", index=False)
    poverty = lambda rows: 1 / (1 + np.exp(rows["income"].to_numpy()))  # noqa: E731
    with pytest.raises(InputError, match=r"positive is needed: the model does not record its classes"):
        audit_file(poverty, tmp_path / "t.csv", target="approved", sensitive="sex")
    found = audit_file(
        poverty,
        tmp_path / "t.csv",
        target="approved",
        positive="no",
        sensitive=["sex", "race"],
        drop=["noise"],
        **QUICK,
        **BATCHES,
    ).record
    assert found.subject.classes[1] == "no"
    assert found.subject.sensitive == ("sex", "race")
    assert found.subject.n_columns == 3
    assert len(found.evaluation.groups) == 4
    assert found.evaluation.auc > 0.6


def test_progress_of_a_long_audit_is_shown_on_standard_error(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("gcig.auditing.parts.LONG", 0.0)
    table = make_numeric_loans(400)
    table.to_csv(tmp_path / "t.csv", index=False)
    audit_file(fitted(table), tmp_path / "t.csv", **ROLES, **QUICK, **BATCHES)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Measuring: 400 of 400 rows" in captured.err


@pytest.mark.parametrize("batches", [{}, BATCHES], ids=["whole", "in parts"])
def test_rows_without_a_group_follow_the_policy(tmp_path, batches) -> None:
    table = make_numeric_loans(400)
    table["sex"] = table["sex"].astype(object).where(np.arange(400) % 5 > 0)
    table.to_csv(tmp_path / "t.csv", index=False)
    model, path = fitted(make_numeric_loans(400)), tmp_path / "t.csv"
    own = audit_file(model, path, **ROLES, **QUICK, **batches, missing_groups="own group")
    assert "missing" in [each.group for each in own.groups]
    out = audit_file(model, path, **ROLES, **QUICK, **batches, missing_groups="leave out")
    assert (out.evaluation.n_rows, out.evaluation.n_missing) == (320, 80)
    with pytest.raises(InputError, match="sex"):
        audit_file(model, path, **ROLES, **QUICK, **batches)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": "nothing"}, "target names 'nothing', but .* has no such column"),
        ({"sensitive": ["sex", "gone"]}, "sensitive names 'gone', but .* has no such column"),
        ({"sensitive": "approved"}, "both target and sensitive"),
        ({"positive": "maybe"}, "positive is 'maybe', but column 'approved' has the values 'no', 'yes'"),
    ],
)
def test_wrong_roles(tmp_path, changes: dict, message: str) -> None:
    table = make_numeric_loans(100)
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError, match=message):
        audit_file(fitted(table), tmp_path / "t.csv", **{**ROLES, **changes})


def test_columns_that_the_file_lacks_are_named(tmp_path) -> None:
    table = make_numeric_loans(100)
    table.drop(columns="debt").to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError, match=r"t.csv lacks columns that the model takes: 'debt'\. Add them"):
        audit_file(fitted(table), tmp_path / "t.csv", **ROLES)


def test_missing_labels_and_groups_are_errors(tmp_path) -> None:
    table = make_numeric_loans(400)
    for column in ("approved", "sex"):
        broken = table.copy()
        broken.loc[390, column] = None
        broken.to_csv(tmp_path / "t.csv", index=False)
        with pytest.raises(InputError, match=f"Column '{column}' has missing values"):
            audit_file(fitted(table), tmp_path / "t.csv", **ROLES, **QUICK, **BATCHES)


def test_no_cell_of_the_file_is_in_the_record(tmp_path) -> None:
    table = make_numeric_loans(400).assign(name=[f"person-{i}" for i in range(400)])
    table.to_csv(tmp_path / "t.csv", index=False)
    text = audit_file(fitted(table), tmp_path / "t.csv", **ROLES, **QUICK).to_json()
    assert "person-" not in text
    assert not math.isnan(fitted(table).coef_[0, 0])


def test_the_negative_class_is_not_taken_for_the_positive_one(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=200), "sex": rng.choice(["f", "m"], 200)})
    frame["paid"] = np.where(frame["a"] + rng.normal(size=200) > 0, "yes", "no")
    frame.to_csv(tmp_path / "loans.csv", index=False)
    model = LogisticRegression().fit(frame[["a"]], frame["paid"])
    with pytest.raises(InputError, match=r"positive is 'no', the model's negative class.*predict 'yes'"):
        audit_file(model, tmp_path / "loans.csv", target="paid", sensitive="sex", positive="no")
    found = audit_file(
        model, tmp_path / "loans.csv", target="paid", sensitive="sex", positive="yes", n_bootstrap=20
    )
    assert found.evaluation.auc > 0.7
