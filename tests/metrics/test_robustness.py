"""GCIG under several references: against code that shares nothing with it, and the conclusions."""

import copy
import math

import numpy as np
import pandas as pd
import pytest
import torch
from benchmarks import references
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import gcig
from gcig._validation import InputError
from gcig.auditing import audit, audit_file
from gcig.metrics import evaluate
from gcig.metrics.robustness import PanelFigure, conclude
from gcig.records import Interval
from gcig.records.trust import REFERENCES

KINDS = {"mean": "mean", "label-free": "label-free", "medoid": "medoid", "common": "common"}


@pytest.fixture(scope="module")
def german():
    data = gcig.load_dataset("german", include_sensitive=False)
    model = gcig.methods.METHODS["unconstrained"].estimator(max_epochs=15, random_state=0)
    return data, model.fit(data.X, data.y, sensitive_features=data.sensitive_features)


def test_every_reference_agrees_with_independent_code(german, monkeypatch) -> None:
    data, model = german
    rows = (data.X, data.y, data.sensitive_features)
    found = evaluate(
        model, *rows[:2], sensitive_features=rows[2], reference=rows, robustness=True, n_bootstrap=100
    )
    groups = pd.factorize(data.sensitive_features, sort=True)[0]
    table = references.Table(torch.tensor(model.encode(data.X)).double(), data.y.to_numpy(), groups)
    monkeypatch.setattr(references, "_ROWS", len(data.y))
    monkeypatch.setattr(references, "_MEMBERS", 16)
    expected = references.panel(copy.deepcopy(model.module_).double(), table, table, model.encoder_.origin_)
    figures = {figure.reference: figure for figure in found.robustness.figures}
    assert tuple(figures) == REFERENCES
    for ours, theirs in KINDS.items():
        assert figures[ours].gcig.value == pytest.approx(expected[theirs], rel=2e-3), ours
    assert figures["mean"].gcig.value == pytest.approx(found.gcig)
    assert figures["members"].gcig.value == found.gcig_members
    assert found.gcig_members == pytest.approx(expected["members"], rel=0.35)
    assert found.gcig_members_low < expected["members"] < found.gcig_members_high
    assert found.effective_columns == pytest.approx(expected["columns"], rel=1e-3)
    assert found.reference_offset == pytest.approx(expected["reference_offset"], rel=1e-2)
    assert found.faithfulness == pytest.approx(expected["faithfulness"], abs=0.1)
    assert figures["Shapley values"].gcig.value == pytest.approx(found.gcig, rel=0.2)
    assert figures["mean, l2"].gcig.value == pytest.approx(found.gcig_l2)


def test_a_linear_model_has_the_same_values_by_shapley_values() -> None:
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(300, 4)), rng.choice(["f", "m"], 300)
    X[:, 0] += sex == "m"
    y = (X.sum(axis=1) + rng.normal(size=300) > 0).astype(int)
    model = LogisticRegression().fit(X, y)
    found = evaluate(model, X, y, sensitive_features=sex, robustness=True, n_bootstrap=50).robustness
    figures = {figure.reference: figure.gcig for figure in found.figures}
    few = evaluate(model, X, y, sensitive_features=sex, n_bootstrap=0)
    assert figures["Shapley values"].value == pytest.approx(few.gcig, rel=0.15)  # a sample of the rows
    assert all(math.isnan(figure.other.value) for figure in found.figures)


@pytest.mark.slow
def test_evaluate_and_audits_return_the_same_panel(german, tmp_path) -> None:
    data, model = german
    flipped = gcig.methods.METHODS["unconstrained"].estimator(max_epochs=3, random_state=1)
    flipped.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    settings = {"robustness": True, "other": flipped, "n_bootstrap": 30}
    found = evaluate(model, data.X, data.y, sensitive_features=data.sensitive_features, **settings)
    of_table = audit(
        model, data.X, data.y, sensitive_features=data.sensitive_features, n_shuffles=3, **settings
    )
    data.X.assign(sex=data.sensitive_features, good=data.y).to_csv(tmp_path / "rows.csv", index=False)
    of_file = audit_file(
        model,
        tmp_path / "rows.csv",
        target="good",
        sensitive="sex",
        n_shuffles=3,
        rows_at_once=300,
        in_memory_rows=0,
        **settings,
    )
    for record in (of_table.record, of_file.record):
        assert record.robustness.verdict == found.robustness.verdict
        for ours, theirs in zip(found.robustness.figures, record.robustness.figures, strict=True):
            for mine, other in ((ours.gcig, theirs.gcig), (ours.other, theirs.other)):
                assert mine.value == pytest.approx(other.value, rel=1e-4)
        assert record.robustness.verdict in record.verdict.findings
    assert "GCIG under other references" in of_table.to_markdown()
    assert found.robustness.verdict in str(found)
    assert type(found).from_json(found.to_json()) == found


def test_black_boxes_and_gradients_can_be_compared() -> None:
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(300, 3)), rng.choice(["f", "m"], 300)
    X[:, 0] += sex == "m"
    y = (X.sum(axis=1) + rng.normal(size=300) > 0).astype(int)
    trees = RandomForestClassifier(5, max_depth=3, random_state=0).fit(X, y)
    found = evaluate(
        LogisticRegression().fit(X, y),
        X,
        y,
        sensitive_features=sex,
        robustness=True,
        other=trees,
        n_bootstrap=20,
    ).robustness
    assert all(math.isfinite(figure.gcig.value + figure.other.value) for figure in found.figures)


def test_a_second_model_needs_the_panel(german) -> None:
    data, model = german
    with pytest.raises(InputError, match="robustness=True"):
        evaluate(model, data.X, data.y, sensitive_features=data.sensitive_features, other=model)


def panel(**values: float) -> dict[str, PanelFigure]:
    """A panel in which every value is certain."""
    given = {name.replace("_", " "): value for name, value in values.items()}
    return {
        kind: PanelFigure(Interval(given.get(kind, 0.1)), np.full(5, given.get(kind, 0.1)), noise=0.01)
        for kind in REFERENCES
    }


def test_conclusion_on_one_model() -> None:
    same = conclude(panel())
    assert same.agrees
    assert "does not depend" in same.verdict
    small = conclude(panel(mean=0.02))
    assert not small.agrees
    assert "but not relative to 'mean'." in small.verdict
    undefined = {kind: PanelFigure(Interval(math.nan), np.empty(0)) for kind in REFERENCES}
    assert not conclude(undefined).agrees


def test_conclusion_on_two_models() -> None:
    fairer = conclude(panel(), {kind: panel(mean=0.1)[kind] for kind in REFERENCES})
    assert fairer.agrees  # the same values: no reference prefers either model
    other = {kind: PanelFigure(Interval(0.3), np.full(5, 0.3)) for kind in REFERENCES}
    better = conclude(panel(), other)
    assert better.agrees
    assert "the model has the lower GCIG relative to all." in better.verdict
    other["medoid"] = PanelFigure(Interval(0.05), np.full(5, 0.05))
    mixed = conclude(panel(), other)
    assert not mixed.agrees
    assert "the other model has the lower GCIG relative to 'medoid'" in mixed.verdict
    other["medoid"] = other["mean"]
    other["members"] = panel()["members"]
    unsure = conclude(panel(), other)
    assert not unsure.agrees
    assert "the difference is not certain relative to 'members'" in unsure.verdict
