"""Audits of tables in memory: what is in the record, for models of every kind."""

import functools
import math
import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

import gcig
from gcig._validation import InputError
from gcig.adapters import Budget, GradientExplainer
from gcig.auditing import AuditResult, audit
from gcig.core.definition import Definition
from gcig.data.encoding import TableEncoder
from gcig.records.audit import SMALLEST_CELL
from support.audits import audit_loans, example_audit
from tables import make_numeric_loans

QUICK = {"n_bootstrap": 50, "n_shuffles": 19}


@functools.cache
def adult() -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    """2,000 rows of Adult, without the protected attribute."""
    data = gcig.load_dataset("adult", include_sensitive=False)
    rows = np.random.default_rng(0).choice(len(data.X), 2000, replace=False)
    return data.X.iloc[rows], data.y.iloc[rows], data.sensitive_features.iloc[rows]


def encoder():
    return make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_include="category")),
        (StandardScaler(), make_column_selector(dtype_include="number")),
    )


def torch_module():
    X, y, _ = adult()
    rows = TableEncoder().fit_transform(X)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(rows.shape[1], 8), nn.SiLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(
            module(torch.from_numpy(rows))[:, 0], torch.tensor(y.to_numpy(), dtype=torch.float32)
        )
        loss.backward()
        optimizer.step()
    return module, rows


def linear_model():
    X, y, _ = adult()
    return make_pipeline(encoder(), LogisticRegression(max_iter=500)).fit(X, y), X


def forest():
    X, y, _ = adult()
    model = RandomForestClassifier(10, min_samples_leaf=5, random_state=0)
    return make_pipeline(encoder(), model).fit(X, y), X


def boosted():
    X, y, _ = adult()
    model = HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=15, random_state=0)
    return model.fit(X, y), X


def score_card(table: pd.DataFrame) -> np.ndarray:
    points = 0.3 * (table["education-num"] - 10) + 0.03 * (table["hours-per-week"] - 40) - 1
    return (1 / (1 + np.exp(-points))).to_numpy()


def function():
    return score_card, adult()[0]


@pytest.mark.parametrize(
    ("make", "explanation"),
    [
        (torch_module, "integrated gradients"),
        (linear_model, "integrated gradients"),
        pytest.param(forest, "Shapley values", marks=pytest.mark.slow),
        pytest.param(boosted, "Shapley values", marks=pytest.mark.slow),
        (function, "Shapley values"),
    ],
)
def test_audits_of_adult(make, explanation: str) -> None:
    model, X = make()
    _, y, sex = adult()
    options = {"max_rows_explained": 20, "n_bootstrap": 5, "n_shuffles": 9}
    found = audit(model, X, y, sensitive_features=sex, **options).record
    assert found.subject.explanation == explanation
    assert found.subject.n_rows == 2000
    assert [group.group for group in found.groups] == ["Female", "Male"]
    assert found.procedural.completeness < 1e-3
    assert found.outcome.auc.value > (0.6 if make is function else 0.8)
    assert math.isnan(found.procedural.clipped) == (explanation == "integrated gradients")
    assert any("sample of 20 rows" in line for line in found.verdict.cautions)
    assert 0.01 < found.procedural.gcig.value < 1
    assert sum(column.share for column in found.procedural.columns) == pytest.approx(1)
    if make is function:
        used = {column.column for column in found.procedural.columns if column.share > 0}
        assert used == {"education-num", "hours-per-week"}
        assert found.procedural.effective_columns <= 2


def test_figures_are_those_of_evaluate() -> None:
    model, X = linear_model()
    _, y, sex = adult()
    found = audit(model, X, y, sensitive_features=sex, **QUICK).record
    expected = gcig.evaluate(model, X, y, sensitive_features=sex, n_bootstrap=10)
    assert found.procedural.gcig.value == pytest.approx(expected.gcig)
    assert found.outcome.eo_gap.value == pytest.approx(expected.eo_gap)
    assert found.outcome.auc.value == pytest.approx(expected.auc)
    settings = {(check.aspect, check.setting): check for check in found.procedural.stability}
    assert settings["norm", "l2"].gcig == pytest.approx(expected.gcig_l2)
    assert settings["columns", "raw"].gcig == pytest.approx(expected.gcig_raw)
    assert settings["norm", "l1"].used
    assert not settings["baseline", "medians"].used
    by_group = dict(zip(("Female", "Male"), found.groups, strict=True))
    encoded = audit(model, X, y, sensitive_features=sex, definition=Definition(columns="raw"), **QUICK).record
    assert encoded.procedural.gcig.value == pytest.approx(expected.gcig_raw)
    assert by_group["Female"].gcig.value == pytest.approx(expected.gcig_groups["Female"])
    assert by_group["Female"].gcig.value != encoded.groups[0].gcig.value


class TestRecord:
    @property
    def record(self):
        return example_audit(3, include_rows=True).record

    def test_contributions_add_up_to_gcig_and_are_ranked(self) -> None:
        found = self.record.procedural
        values = [column.contribution.value for column in found.columns]
        assert sum(values) == pytest.approx(found.gcig.value)
        assert values == sorted(values, reverse=True)

    def test_direction_follows_the_profile(self) -> None:
        for column in self.record.procedural.columns:
            assert column.towards == max(column.profile, key=column.profile.__getitem__)
            spread = max(column.profile.values()) - min(column.profile.values())
            assert column.difference == pytest.approx(spread)
        # Against a group with less income, income speaks more for approval.
        assert self.record.procedural.columns[0].column == "income"
        assert self.record.procedural.columns[0].towards == "group 0"

    def test_pairs_and_labels(self) -> None:
        found = self.record.procedural
        assert [(pair.first, pair.second) for pair in found.pairs] == [
            ("group 0", "group 1"),
            ("group 0", "group 2"),
            ("group 1", "group 2"),
        ]
        assert found.pairs[2].gcig.value < found.pairs[0].gcig.value
        assert [label.label for label in found.labels] == ["no", "yes"]
        assert sum(label.n_rows for label in found.labels) == 600
        mean = sum(label.n_rows * label.gcig.value for label in found.labels) / 600
        assert mean == pytest.approx(found.gcig.value)

    def test_histogram_counts_rows_and_hides_small_bins(self) -> None:
        found = self.record.procedural
        assert len(found.histogram_edges) == 25
        for name, counts in found.histogram_counts.items():
            assert len(counts) == 24
            assert all(count == 0 or count >= SMALLEST_CELL for count in counts)
            rows = next(group.n_rows for group in self.record.groups if group.group == name)
            assert sum(counts) <= rows

    def test_rows_are_positions_unless_asked_for(self) -> None:
        hidden = example_audit().record.procedural.rows
        assert len(hidden) == 20
        assert all(row.explanation is None for row in hidden)
        shown = self.record.procedural.rows
        assert shown[0].disparity == max(row.disparity for row in shown)
        found = shown[0].explanation
        assert set(found.references) == {"group 0", "group 1", "group 2"}
        assert found.group is None  # not shown unless asked for
        assert [near.group for near in found.neighbours] == [f"group {i // 2}" for i in range(6)]

    def test_reasons_of_a_row_are_complete(self) -> None:
        """Under two references, the sums differ by the difference of the references' logits."""
        table = make_numeric_loans(n_groups=3)
        X, y = table[["income", "debt", "age", "noise"]], table["approved"]
        model = LogisticRegression().fit(X, y)
        options = {"include_rows": True, "include_protected": True, "identifiers": range(1000, 1600)}
        found = audit(model, X, y, sensitive_features=table["sex"], **options, **QUICK).record
        row = found.procedural.rows[5].explanation
        assert row.row == str(1000 + row.position)
        assert row.score == pytest.approx(model.predict_proba(X.iloc[[row.position]])[0, 1])
        assert row.decision == model.predict(X.iloc[[row.position]])[0]
        assert row.label == y[row.position]
        assert row.group == table["sex"][row.position]
        entries = {each.column: each.value for each in row.columns}
        assert entries == {name: f"{value:.6g}" for name, value in X.iloc[row.position].items()}
        cell = X[(y == row.label) & (table["sex"] == "group 1")].mean()
        logit = (
            model.decision_function(X.iloc[[row.position]])[0] - model.decision_function(cell.to_frame().T)[0]
        )
        assert sum(each.attributions["group 1"] for each in row.columns) == pytest.approx(logit)
        assert row.disparity == pytest.approx(found.procedural.rows[5].disparity)
        # The nearest people are those that `explain` finds among the audited rows.
        alone = gcig.explain(model, X.iloc[[row.position]], y[[row.position]], reference=(X, y, table["sex"]))
        near = alone.record.rows[0].neighbours
        assert [each.distance for each in row.neighbours] == [each.distance for each in near]
        assert row.neighbours[3].columns == near[3].columns

    def test_as_many_rows_as_fit_are_described(self) -> None:
        table = make_numeric_loans(3000)
        X, y, sex = table[["income", "debt", "age", "noise"]], table["approved"], table["sex"]
        model = LogisticRegression().fit(X, y)
        found = audit(model, X, y, sensitive_features=sex, include_rows=True, **QUICK)
        rows = found.record.procedural.rows
        assert 700 < len(rows) <= 25_000 // (4 * 2 + 20)
        plain = audit(model, X, y, sensitive_features=sex, **QUICK).record.procedural.rows
        assert [row.position for row in rows[:20]] == [row.position for row in plain]
        places = np.sort([row.position for row in rows[50:]])
        assert np.histogram(places, bins=6, range=(0, 3000))[0].min() > len(places) / 6 - 20
        assert all(row.explanation.neighbours for row in rows[:100])
        page = found.to_html()
        assert len(page) < 3_000_000
        assert f"Choose one of {len(rows)} of the 3,000 audited rows" in page

    def test_fewer_rows_of_wide_tables_are_described(self) -> None:
        rng = np.random.default_rng(0)
        X, groups = rng.normal(size=(600, 200)), rng.choice(list("abcd"), 600)
        y = (X[:, 0] + (groups == "a") > 0).astype(int)
        model = LogisticRegression(C=0.1).fit(X, y)
        found = audit(model, X, y, sensitive_features=groups, include_rows=True, **QUICK)
        rows = found.record.procedural.rows
        assert len(rows) == 50
        assert sum(row.explanation is not None for row in rows) == 25_000 // (200 * 4 + 20)
        assert sum(bool(row.explanation and row.explanation.neighbours) for row in rows) == 3
        assert len(found.to_html()) < 3_500_000

    @pytest.mark.parametrize(
        "kind", [sparse.coo_array, lambda table: pytest.importorskip("polars").from_pandas(table)]
    )
    def test_rows_of_tables_of_any_kind_are_described(self, kind) -> None:
        table = make_numeric_loans()
        X, y, sex = table[["income", "debt"]], (table["approved"] == "yes").astype(int), table["sex"]
        model = LogisticRegression().fit(kind(X), y)
        found = audit(model, kind(X), y, sensitive_features=sex, include_rows=True, **QUICK).record
        row = found.procedural.rows[0].explanation
        entries = [f"{value:.6g}" for value in X.iloc[row.position]]
        assert sorted(each.value for each in row.columns) == sorted(entries)
        assert len(row.neighbours) == 4

    def test_quantiles_of_the_difference_per_column(self) -> None:
        """The differences of a linear model, computed row by row."""
        table = make_numeric_loans(2000)
        X, y, sex = table[["income", "debt", "age", "noise"]], table["approved"], table["sex"]
        model = LogisticRegression().fit(X, y)
        found = audit(model, X, y, sensitive_features=sex, **QUICK).record.procedural
        means = [X[sex == g].groupby(y[sex == g]).mean().loc[y].to_numpy() for g in ("group 0", "group 1")]
        units = [model.coef_ * (X.to_numpy() - mean) for mean in means]
        units = [each / np.abs(each).sum(axis=1, keepdims=True) for each in units]
        expected = np.quantile(units[1] - units[0], [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
        for column in found.columns:
            own = expected[:, list(X.columns).index(column.column)]
            np.testing.assert_allclose(column.quantiles, own, rtol=0.05, atol=0.002)

    def test_rows_of_suppressed_cells_are_not_described(self) -> None:
        table = make_numeric_loans()
        sex = table["sex"].copy()
        sex[:12] = "few"
        X, y = table[["income", "debt", "age", "noise"]], table["approved"]
        model = LogisticRegression().fit(X, y)
        found = audit(model, X, y, sensitive_features=sex, include_rows=True, **QUICK).record
        assert not {row.position for row in found.procedural.rows} & set(range(12))

    def test_intervals_enclose_their_estimates(self) -> None:
        found = self.record.procedural
        for each in (
            found.gcig,
            found.gcig_fixed_references,
            found.excess,
            *(c.contribution for c in found.columns),
        ):
            assert each.low <= each.value <= each.high
        fixed = found.gcig_fixed_references
        assert found.gcig.high - found.gcig.low > fixed.high - fixed.low
        assert found.excess.value == pytest.approx(found.gcig.value - found.noise_floor.value)

    def test_the_same_seed_gives_the_same_record(self) -> None:
        first, second = (audit_loans(make_numeric_loans(), **QUICK, random_state=3).record for _ in range(2))
        for part in ("procedural", "outcome", "groups"):
            assert getattr(first, part) == getattr(second, part)


class TestOptions:
    def test_threshold_and_weights(self) -> None:
        table = make_numeric_loans()
        doubled = pd.concat([table, table[table["sex"] == "group 0"]], ignore_index=True)
        X = table[["income", "debt", "age", "noise"]]
        model = LogisticRegression().fit(X, table["approved"])
        weights = np.where(table["sex"] == "group 0", 2.0, 1.0)
        options = {"threshold": 0.7, "reference": (X, table["approved"], table["sex"]), **QUICK}
        weighted = audit(
            model, X, table["approved"], sensitive_features=table["sex"], sample_weight=weights, **options
        ).record
        repeated = audit(
            model, doubled[X.columns], doubled["approved"], sensitive_features=doubled["sex"], **options
        ).record
        assert weighted.subject.threshold == 0.7
        assert weighted.subject.reference == "the reference rows that were given"
        assert weighted.procedural.gcig.value == pytest.approx(repeated.procedural.gcig.value)
        for name in ("accuracy", "f1", "auc", "eo_gap"):
            assert getattr(weighted.outcome, name).value == pytest.approx(
                getattr(repeated.outcome, name).value
            )

    def test_small_groups_are_left_out_of_comparison_and_report(self) -> None:
        table = make_numeric_loans()
        table.loc[:7, "sex"] = "tiny"
        found = audit_loans(table, **QUICK).record
        assert [group.n_rows is None for group in found.groups] == [False, False, True]
        assert len(found.procedural.pairs) == 1
        assert "tiny" not in found.procedural.histogram_counts
        assert "tiny" not in found.procedural.columns[0].profile
        assert any("'tiny'" in line for line in found.verdict.cautions)

    def test_totals_do_not_tell_the_size_of_a_hidden_group(self) -> None:
        table = make_numeric_loans()
        table.loc[:7, "sex"] = "tiny"
        found = audit_loans(table, **QUICK)
        shown = sum(group.n_rows or 0 for group in found.record.groups)
        assert found.record.subject.n_rows == shown == 592
        assert sum(label.n_rows for label in found.record.procedural.labels) == shown
        for text in (found.to_json(), found.to_markdown(), str(found)):
            assert not re.search(r"\b600\b", text)

    def test_too_few_rows_to_compare_reasons_are_not_enough_evidence(self) -> None:
        found = audit_loans(make_numeric_loans(60), **QUICK)
        scarce = audit_loans(make_numeric_loans(30), **QUICK)
        assert found.record.procedural.gcig.value > 0
        assert math.isnan(scarce.record.procedural.gcig.value)
        assert scarce.record.procedural.evidence == "not enough"
        assert scarce.record.verdict.status == "inconclusive"
        assert "fewer than two groups have 11 rows of each label" in str(scarce)
        assert scarce.record.outcome.accuracy.value > 0.5
        gate = scarce.check(max_gcig=0.05)
        assert gate.inconclusive
        assert not gate.passed
        assert "not enough evidence" in scarce.to_html().lower()
        assert "undefined" in scarce.to_markdown()
        assert AuditResult.from_json(scarce.to_json()).record.verdict == scarce.record.verdict

    def test_without_probabilities(self) -> None:
        table = make_numeric_loans()
        X = table[["income", "debt", "age", "noise"]]
        model = RidgeClassifier().fit(X, table["approved"])
        found = audit(model, X, table["approved"], sensitive_features=table["sex"], **QUICK).record
        assert math.isnan(found.groups[0].calibration.value)
        assert found.outcome.auc.value > 0.7
        with pytest.raises(InputError, match="threshold is a probability"):
            audit(model, X, table["approved"], sensitive_features=table["sex"], threshold=0.4, **QUICK)

    def test_without_draws_and_shuffles_there_is_no_evidence(self) -> None:
        found = audit_loans(make_numeric_loans(), n_bootstrap=0, n_shuffles=0).record.procedural
        assert found.gcig.value > 0
        assert math.isnan(found.gcig.low)
        assert math.isnan(found.p_value)
        assert found.evidence == "not enough"

    def test_the_noise_floor_of_a_sample_stands_for_all_rows(self, monkeypatch) -> None:
        table = make_numeric_loans()
        whole = audit_loans(table, n_bootstrap=50).record.procedural
        monkeypatch.setattr(GradientExplainer, "budget", Budget(shuffled_rows=10))
        for seed in range(6):
            few = audit_loans(table, n_bootstrap=5, n_shuffles=60, random_state=seed).record.procedural
            assert few.noise_floor.value == pytest.approx(whole.noise_floor.value, rel=0.15)
            assert few.excess.value == pytest.approx(few.gcig.value - few.noise_floor.value)

    def test_a_model_without_reasons_is_undefined(self) -> None:
        table = make_numeric_loans()
        found = audit(
            lambda rows: np.full(len(rows), 0.4),
            table[["income", "debt"]],
            (table["approved"] == "yes").astype(int),
            sensitive_features=table["sex"],
            max_rows_explained=50,
            **QUICK,
        ).record
        assert math.isnan(found.procedural.gcig.value)
        assert found.procedural.undefined_rows == 50
        assert found.verdict.status == "inconclusive"

    def test_crossed_attributes(self) -> None:
        table = make_numeric_loans(1200)
        race = np.random.default_rng(9).choice(["a", "b"], 1200)
        X = table[["income", "debt", "age", "noise"]]
        found = audit(
            LogisticRegression().fit(X, table["approved"]),
            X,
            table["approved"],
            sensitive_features=pd.DataFrame({"sex": table["sex"], "race": race}),
            **QUICK,
        ).record
        assert found.subject.sensitive == ("sex", "race")
        assert len(found.groups) == 4
        assert len(found.procedural.pairs) == 6

    def test_proxy_columns_are_reported(self) -> None:
        table = make_numeric_loans().assign(code=lambda frame: (frame["sex"] == "group 1") * 1.0)
        X = table[["income", "debt", "code"]]
        model = LogisticRegression().fit(X, table["approved"])
        found = audit(model, X, table["approved"], sensitive_features=table["sex"], **QUICK).record
        assert any(
            "can read the protected attribute (sex) from column 'code'" in line
            for line in found.verdict.cautions
        )
        plain = audit_loans(make_numeric_loans(), **QUICK).record
        assert not any("reveal the protected" in line for line in plain.verdict.cautions)

    def test_a_reference_must_be_a_triple(self) -> None:
        table = make_numeric_loans()
        with pytest.raises(InputError, match="reference must be a tuple"):
            audit_loans(table, reference=table)

    def test_groups_must_be_among_those_of_the_reference(self) -> None:
        table = make_numeric_loans()
        X = table[["income", "debt", "age", "noise"]]
        with pytest.raises(InputError, match="not in training"):
            audit_loans(table, reference=(X, table["approved"], table["sex"].str.replace("0", "9")))


def test_a_generator_gives_one_seed_for_two_models() -> None:
    rng = np.random.default_rng(3)
    sex = rng.choice(["f", "m"], 300)
    X = rng.normal(size=(300, 3)) + np.outer(sex == "m", [1, 0, 0])
    y = (X.sum(axis=1) + rng.normal(size=300) > 0.5).astype(int)
    model = LogisticRegression().fit(X, y)
    options = {
        "sensitive_features": sex,
        "robustness": True,
        "other": model,
        "n_bootstrap": 20,
        "n_shuffles": 9,
    }
    found = audit(model, X, y, random_state=np.random.default_rng(5), **options).record
    seed = int(np.random.default_rng(5).integers(2**63))
    assert found.robustness is not None
    assert found.robustness == audit(model, X, y, random_state=seed, **options).record.robustness
    assert all(figure.gcig == figure.other for figure in found.robustness.figures)


def test_own_baselines_are_those_of_training() -> None:
    table = make_numeric_loans(2000)  # more audited rows than the sample that is compared with chance
    X, y, sex = table[["income", "debt", "age", "noise"]], table["approved"], table["sex"]
    model = gcig.FairXClassifier(max_epochs=2, hidden_sizes=(8,), random_state=0)
    model.fit(X[:1000], y[:1000], sensitive_features=sex[:1000])
    rows = {"X": X[1000:], "y": y[1000:], "sensitive_features": sex[1000:]}
    found = audit(model, **rows, **QUICK, robustness=True).record
    expected = gcig.evaluate(model, **rows, min_cell=1)
    assert found.procedural.gcig.value == pytest.approx(expected.gcig, rel=1e-5)
    checks = {check.setting: check.gcig for check in found.procedural.stability if check.aspect == "baseline"}
    assert list(checks) == ["means of the training rows", "means of the audited rows", "medians"]
    # The same figure is the same number everywhere: here with references from the audited rows ...
    here = found.procedural.excess.value + found.procedural.noise_floor.value
    assert here == pytest.approx(checks["means of the audited rows"], rel=1e-9)
    # ... and here the headline, its interval and its noise floor among the other references.
    headline = next(each for each in found.robustness.figures if each.reference == "mean")
    assert headline.gcig.to_dict() == found.procedural.gcig.to_dict()
    assert headline.noise == found.procedural.noise_floor.value


def test_references_of_few_training_rows_stay_out() -> None:
    """The mean of a few people says much about them, and its noise would look like a disparity."""
    table = make_numeric_loans(1000)
    X, y, sex = table[["income", "debt", "age", "noise"]], table["approved"], table["sex"].astype(object)
    sex[pd.concat([y[y == "yes"][:8], y[y == "no"][:40]]).index] = "few"
    model = gcig.FairXClassifier(max_epochs=2, hidden_sizes=(8,), random_state=0)
    model.fit(X, y, sensitive_features=sex)
    few = model.groups_.index("few")
    assert model.cell_sizes_[:, few].tolist() == [40, 8]
    others = tuple(group for group in model.groups_ if group != "few")
    found = audit(model, X, y, sensitive_features=sex, **QUICK).record.procedural
    assert found.compared_groups == others
    assert all(set(column.profile) == set(others) for column in found.columns)
    assert gcig.evaluate(model, X, y, sensitive_features=sex).compared_groups == others
    explained = gcig.explain(model, X[:1]).record
    assert (explained.groups, explained.suppressed) == (others, ("few",))
    assert gcig.explain(model, X[:1], min_cell=8).record.groups == model.groups_
    with pytest.raises(InputError, match="fewer than two groups with 900 rows of each label"):
        gcig.explain(model, X[:1], min_cell=900)


def test_own_baselines_explain_a_table_with_few_rows() -> None:
    table = make_numeric_loans(1040)
    X, y, sex = table[["income", "debt", "age", "noise"]], table["approved"], table["sex"]
    model = gcig.FairXPaperClassifier(max_epochs=2, hidden_sizes=(8,), random_state=0)
    model.fit(X[:1000], y[:1000], sensitive_features=sex[:1000])
    found = audit(model, X[1000:], y[1000:], sensitive_features=sex[1000:], **QUICK)
    expected = gcig.evaluate(model, X[1000:], y[1000:], sensitive_features=sex[1000:], min_cell=1)
    assert found.record.procedural.gcig.value == pytest.approx(expected.gcig, rel=1e-5)
    assert found.record.procedural.evidence == "not enough"
    assert "if the typical members are estimated on the audited rows instead" in str(found)
    one_sided = audit(model, X[1000:1012], y[1000:1012], sensitive_features=sex[1000:1012], **QUICK)
    assert "nan" not in str(one_sided)
