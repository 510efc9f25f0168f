"""Single rows explained: against closed forms, for every kind of model, and what stays out of the page."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from torch import nn

import gcig
from example_tables import make_numeric_loans
from gcig._arguments import InputError
from gcig.auditing.explanations import explain_file
from gcig.auditing.rows import find_neighbours
from gcig.records import ExplanationRecord

TABLE = make_numeric_loans(600, n_groups=2)
COLUMNS = ["income", "debt", "age", "noise"]
X, Y, SEX = TABLE[COLUMNS], TABLE["approved"], TABLE["sex"]
LINEAR = LogisticRegression().fit(X, Y)
REFERENCE = (X, Y, SEX)


def test_reasons_of_a_linear_model_in_closed_form() -> None:
    row = gcig.explain(LINEAR, X.iloc[[7]], Y.iloc[[7]], reference=REFERENCE).record.rows[0]
    own = X[(Y[7] == Y)]
    for group in ("group 0", "group 1"):
        mean = own[SEX[own.index] == group].mean()
        expected = LINEAR.coef_[0] * (X.iloc[7] - mean)
        found = {each.column: each.attributions[group] for each in row.columns}
        assert found == pytest.approx(expected.to_dict())
        at_mean = float(LINEAR.decision_function(mean.to_frame().T)[0])
        assert row.references[group] == pytest.approx(at_mean)
    assert row.score == pytest.approx(LINEAR.predict_proba(X.iloc[[7]])[0, 1])
    assert row.decision == LINEAR.predict(X.iloc[[7]])[0]
    assert row.margin == pytest.approx(float(LINEAR.decision_function(X.iloc[[7]])[0]))
    assert [each.difference for each in row.columns] == sorted(
        (c.difference for c in row.columns), reverse=True
    )
    assert {each.column: each.value for each in row.columns}["income"] == f"{X['income'][7]:.6g}"
    assert sum(each.share for each in row.columns) == pytest.approx(1)


def test_rows_have_the_disparity_that_evaluate_averages() -> None:
    found = gcig.explain(LINEAR, X, Y, reference=REFERENCE, neighbours=False).record
    expected = gcig.evaluate(LINEAR, X, Y, sensitive_features=SEX, n_bootstrap=0)
    assert np.mean([row.disparity for row in found.rows]) == pytest.approx(expected.gcig)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_kind_of_model_is_explained(tmp_path) -> None:
    boosted = HistGradientBoostingClassifier(max_iter=10, random_state=0).fit(X, Y)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 3), nn.SiLU(), nn.Linear(3, 1))
    fitted = gcig.FairXClassifier(max_epochs=2, budget=0, hidden_sizes=(4,), random_state=0)
    fitted.fit(X, Y, sensitive_features=SEX)
    for model, kind in (
        (boosted, "shapley"),
        (module, "integrated_gradients"),
        (fitted, "integrated_gradients"),
        (lambda rows: LINEAR.predict_proba(rows)[:, 1], "shapley"),
    ):
        labels = (Y == "yes").astype(int) if model is module else Y
        found = gcig.explain(model, X.iloc[:2], reference=(X, labels, SEX)).record
        assert found.explanation == kind
        for row in found.rows:
            for group, start in row.references.items():
                total = start + sum(each.attributions[group] for each in row.columns)
                assert total == pytest.approx(row.logit, abs=1e-4)
            assert len(row.neighbours) == (2 if model is module else 4)  # the module refuses everybody
    own = gcig.explain(fitted, X.iloc[:1]).record  # references of its training rows
    theirs = gcig.explain(fitted, X.iloc[:1], reference=REFERENCE, neighbours=False).record
    for mine, other in zip(own.rows[0].columns, theirs.rows[0].columns, strict=True):
        assert mine.attributions == pytest.approx(other.attributions, abs=1e-3)
    assert own.rows[0].neighbours == ()
    with pytest.raises(InputError, match="reference is missing: this model has no references"):
        gcig.explain(LINEAR, X.iloc[:1])


def test_neighbours_are_the_nearest_of_each_group_and_decision() -> None:
    row = gcig.explain(LINEAR, X.iloc[[7]], reference=REFERENCE).record.rows[0]
    assert [near.role for near in row.neighbours] == [
        "nearest favourable decision in group 'group 0'",
        "nearest unfavourable decision in group 'group 0'",
        "nearest favourable decision in group 'group 1'",
        "nearest unfavourable decision in group 'group 1'",
    ]
    spans = X.quantile(0.95) - X.quantile(0.05)
    distance = ((X - X.iloc[7]).abs() / spans).clip(upper=1).mean(axis=1).drop(index=7)
    decided = pd.Series(LINEAR.predict(X))
    for near, (group, decision) in zip(
        row.neighbours, [(g, d) for g in ("group 0", "group 1") for d in ("yes", "no")], strict=True
    ):
        own = distance[(SEX[distance.index] == group) & (decided[distance.index] == decision)]
        assert near.distance == pytest.approx(own.min())
        assert near.decision == decision
        assert near.row == ""
        entries = {each.column: each.value for each in near.columns}
        assert entries["debt"] == f"{X['debt'][own.idxmin()]:.6g}"


def test_distances_of_categories_and_missing_entries() -> None:
    people = pd.DataFrame({"pay": [1.0, np.nan, 3.0, 1.0], "job": ["a", "a", None, "b"]})
    zeros = np.zeros(3, dtype=np.int64)
    found = find_neighbours(people[:1], people[1:], zeros, np.array([1, 0, 1]), [0])[0]
    assert found[0, 1] == (0, pytest.approx(0.5))  # one of two columns is missing on one side
    assert found[0, 0][0] == 1


@pytest.mark.parametrize("convert", [list, pd.to_datetime])
def test_distances_of_dates_are_days(convert) -> None:
    days = ["2024-01-01", "2024-01-11", "2024-01-31", None]
    people = pd.DataFrame({"since": convert(days)})
    zeros = np.zeros(3, dtype=np.int64)
    found = find_neighbours(people[:1], people[1:], zeros, np.array([1, 0, 1]), [0])[0]
    span = np.quantile([10, 30], 0.95) - np.quantile([10, 30], 0.05)
    assert found[0, 1] == (0, pytest.approx(10 / span))
    assert found[0, 0] == (1, 1.0)  # at most 1


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_protected_entries_and_groups_stay_out_unless_asked_for() -> None:
    kind = np.where(SEX == "group 0", np.where(X["age"] > 0, "a", "b"), "c")
    table = X.assign(kind=pd.Series(kind).map({"a": 1.0, "b": 2.0, "c": 3.0}))
    model = LogisticRegression().fit(table, Y)
    options = {"reference": (table, Y, SEX), "sensitive_features": SEX.iloc[[3]]}
    hidden = gcig.explain(model, table.iloc[[3]], **options)
    assert hidden.record.hidden == ("kind",)
    assert hidden.record.rows[0].group is None
    entries = {each.column: each.value for each in hidden.record.rows[0].columns}
    assert entries["kind"] == "not shown"
    assert "not shown" in hidden.to_html()
    shown = gcig.explain(model, table.iloc[[3]], include_protected=True, **options).record
    assert shown.hidden == ()
    assert shown.rows[0].group == SEX[3]
    # The attribution would reveal the entry. It is part of the start: otherwise it would follow from the sum.
    row, full = hidden.record.rows[0], {each.column: each for each in shown.rows[0].columns}
    assert np.isnan([*row.columns[-1].attributions.values(), row.columns[-1].share]).all()
    for group, start in row.references.items():
        assert start == pytest.approx(shown.rows[0].references[group] + full["kind"].attributions[group])
        assert start + sum(each.attributions[group] for each in row.shown) == pytest.approx(row.logit)
    assert "kind" not in " ".join([*row.describe(), *row.bars(10)[0]])
    fitted = gcig.FairXClassifier(max_epochs=1, hidden_sizes=(4,), budget=0, random_state=0)
    fitted.fit(table, Y, sensitive_features=SEX)
    assert fitted.protected_columns_ == ("kind",)
    assert gcig.explain(fitted, table.iloc[[3]]).record.hidden == ("kind",)


def test_a_protected_column_may_have_an_ampersand_in_its_name() -> None:
    """Named in the call, it is hidden although it does not reveal the groups of the reference."""
    table = X.assign(**{"age & sex": np.random.default_rng(0).normal(size=len(X))})
    model = LogisticRegression().fit(table, Y)
    named = SEX.iloc[[3]].rename("age & sex")
    found = gcig.explain(model, table.iloc[[3]], reference=(table, Y, SEX), sensitive_features=named)
    assert found.record.hidden == ("age & sex",)
    audited = gcig.audit(model, table, Y, sensitive_features=SEX.rename("age & sex"), n_bootstrap=9)
    assert audited.record.subject.sensitive == ("age & sex",)


def test_neighbours_of_the_own_group_are_not_nearer_because_of_a_protected_column() -> None:
    table = X.assign(kind=SEX)

    def ignore_kind(rows):
        return LINEAR.predict_proba(rows[list(X)])[:, 1]

    row = gcig.explain(ignore_kind, table.iloc[[3]], reference=(table, Y, SEX)).record.rows[0]
    without = gcig.explain(LINEAR, X.iloc[[3]], reference=REFERENCE).record.rows[0]
    assert len(row.neighbours) == 4
    assert [each.distance for each in row.neighbours] == [each.distance for each in without.neighbours]


def test_a_dict_is_a_row_of_any_model() -> None:
    """Its keys may be in any order, and its text is a category where the reference has categories."""
    table = X.assign(kind=pd.Categorical(np.where(X.iloc[:, 0] > 0, "a", "b")))
    model = HistGradientBoostingClassifier(max_iter=5, categorical_features="from_dtype").fit(table, Y)
    row = dict(reversed(table.iloc[3].to_dict().items()))
    expected = gcig.explain(model, table.iloc[[3]], reference=(table, Y, SEX)).record.rows[0]
    for rows in (row, [row]):
        found = gcig.explain(model, rows, reference=(table, Y, SEX)).record.rows[0]
        assert found.columns == expected.columns
        assert found.score == expected.score


def test_small_groups_have_no_neighbours_and_are_not_compared() -> None:
    sex = SEX.copy()
    sex[:8] = "few"
    found = gcig.explain(LINEAR, X.iloc[[20]], reference=(X, Y, sex)).record
    assert found.groups == ("group 0", "group 1")
    assert found.suppressed == ("few",)
    assert not any("'few'" in near.role for near in found.rows[0].neighbours)
    with pytest.raises(InputError, match="fewer than two groups with 300 rows of each label"):
        gcig.explain(LINEAR, X.iloc[[20]], reference=REFERENCE, min_cell=300)


def test_favourable_may_be_the_negative_class() -> None:
    usual = gcig.explain(LINEAR, X.iloc[[7]], reference=REFERENCE).record
    turned = gcig.explain(LINEAR, X.iloc[[7]], reference=REFERENCE, favourable="no").record
    assert (usual.favourable, turned.favourable) == ("yes", "no")
    assert turned.rows[0].favourable != usual.rows[0].favourable
    assert turned.rows[0].neighbours[0].decision == "no"
    with pytest.raises(InputError, match="favourable is 'maybe', but the classes are 'no', 'yes'"):
        gcig.explain(LINEAR, X.iloc[[7]], reference=REFERENCE, favourable="maybe")


class TestResult:
    found = gcig.explain(LINEAR, X.iloc[[7, 9]], Y.iloc[[7, 9]], reference=REFERENCE)

    def test_frame_has_one_line_per_row_group_and_column(self) -> None:
        frame = self.found.frame
        assert len(frame) == 2 * (1 + 4) * 2 * 4
        assert set(frame["row"]) == {"7", "9"}
        own = frame[(frame["row"] == "9") & (frame["role"] == "explained")]
        assert own.groupby("compared_with")["attribution"].sum().nunique() == 2

    def test_record_survives_json(self) -> None:
        text = self.found.to_json()
        assert ExplanationRecord.from_json(text) == self.found.record

    def test_page_is_self_contained_and_shows_each_row(self, tmp_path) -> None:
        text = self.found.to_html(tmp_path / "page.html")
        assert (tmp_path / "page.html").read_text() == text
        assert all(
            f"Row {row.row}" in text or f">{row.identifier}<" in text for row in self.found.record.rows
        )
        assert "http://www.w3.org/2000/svg" in text
        assert text.replace("http://www.w3.org/2000/svg", "").count("http") == text.count("http-equiv")
        assert "Nearest favourable decision in group &#39;group 1&#39;" in text

    def test_plot_draws_a_bar_per_group_and_column(self) -> None:
        pytest.importorskip("matplotlib")
        display = self.found.plot(1)
        assert len(display.ax_.patches) == 8
        row = self.found.record.rows[1]
        size = {each.column: max(map(abs, each.attributions.values())) for each in row.columns}
        assert display.columns[0].startswith(max(size, key=size.__getitem__))

    def test_bars_of_a_waterfall_add_up_whatever_is_summed(self) -> None:
        row = self.found.record.rows[1]
        names, few = row.bars(1)
        assert names[1:] == ["3 other columns"]
        for group, own in few.items():
            assert sum(own) == pytest.approx(sum(each.attributions[group] for each in row.columns))

    def test_words_say_how_much_the_difference_matters(self) -> None:
        text = str(self.found)
        assert "Row 7:" in text
        assert "logits from the threshold" in text
        assert self.found._repr_html_().startswith("<p>The decision is")


def test_rows_of_a_file_are_found_by_identifier(tmp_path) -> None:
    path = tmp_path / "loans.csv"
    TABLE.assign(loan_id=range(1000, 1600)).to_csv(path, index=False)
    options = {"target": "approved", "sensitive": ["sex"]}
    found = explain_file(LINEAR, path, ids=["1007"], **options).record
    assert found.rows[0].row == "1007"
    assert found.rows[0].score == pytest.approx(LINEAR.predict_proba(X.iloc[[7]])[0, 1])
    assert explain_file(LINEAR, path, rows=[7], **options).record.rows[0].score == found.rows[0].score
    with pytest.raises(InputError, match=r"No row of .* has the identifier '7' in column 'loan_id'"):
        explain_file(LINEAR, path, ids=["7"], **options)
    with pytest.raises(InputError, match="id_column is 'x', but the file has no such column"):
        explain_file(LINEAR, path, ids=["7"], id_column="x", **options)
    with pytest.raises(InputError, match="rows 0 to 599"):
        explain_file(LINEAR, path, rows=[600], **options)
    with pytest.raises(InputError, match="both the target and the protected attribute"):
        explain_file(LINEAR, path, rows=[6], target="approved")
