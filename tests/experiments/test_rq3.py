import json

import pytest

from gcig.experiments import design, measurements, variants
from gcig.experiments.design import ABLATION, DESIGN_CHOICES, SENSITIVITY
from gcig.experiments.figures import trade_off_figures
from gcig.experiments.paper import FAIRX, PUBLISHED, VERSIONS
from gcig.experiments.settings import Setting, setting_trials
from gcig.experiments.variants import VARIANTS
from gcig.methods.registry import METHODS
from gcig.report.tables import entry_text
from support.example_results import fold_row, frame_of
from support.pages import marks_of
from support.small_runs import small_table

ALL = tuple(METHODS)


def rows_for(settings, **values):
    return frame_of(
        [
            fold_row(
                s.dataset, s.method, fold, variant=s.variant, parameters=json.dumps(dict(s.changes)), **values
            )
            for s in settings
            for fold in range(2)
        ]
    )


@pytest.mark.parametrize("experiment", [ABLATION, SENSITIVITY, DESIGN_CHOICES, VARIANTS])
def test_settings_are_distinct_and_understood_by_the_estimators(experiment):
    settings = experiment.settings(experiment.datasets, ALL)
    assert len({(s.dataset, s.method, s.variant) for s in settings}) == len(settings)
    for setting in settings:
        known = METHODS[setting.method].estimator().get_params(deep=False)
        assert set(setting.changes) <= set(known)
    assert experiment.settings(experiment.datasets, ["hardt"]) == []


def test_changes_are_made_to_the_parameters_of_each_fold():
    table = small_table()
    trials = setting_trials(
        [Setting(table.name, "fairx", {"lambda_ig": 0.0}, "ablation")],
        {table.name: table},
        lambda _, __, seed, fold: {"lambda_ig": 1.0, "lambda_fair": fold + 10 * seed},
        n_folds=3,
        seeds=[0, 1],
        folds=2,
        repeats={table.name: 2},
    )
    assert [(t.seed, t.fold, t.repeat) for t in trials] == [
        (seed, fold, repeat) for seed in (0, 1) for fold in (0, 1) for repeat in (0, 1)
    ]
    assert trials[-1].parameters == {"lambda_ig": 0.0, "lambda_fair": 11}


def test_ablation_removes_weights_one_by_one_from_both_versions():
    found = ABLATION.settings(["compas"], VERSIONS)
    assert {s.variant: s.changes for s in found if s.method == FAIRX} == {
        "ablation prediction": {"lambda_ig": 0.0, "lambda_fair": 0.0},
        "ablation prediction+eo": {"lambda_ig": 0.0},
        "ablation prediction+gcig": {"lambda_fair": 0.0},
        "": {},  # shared with the comparison
    }
    assert [s.method for s in found] == [PUBLISHED] * 4 + [FAIRX] * 4


def test_ablation_shows_changes_in_percent_and_the_papers():
    datasets = ["compas-paper", "compas"]
    frame = rows_for(ABLATION.settings(datasets, VERSIONS), gcig_raw=0.2)
    frame.loc[frame["variant"] == "", "gcig_raw"] = 0.05
    table = ABLATION.table(frame, datasets, VERSIONS, 2)
    changes = {tuple(row[:3]): entry_text(row[-1]) for row in table.rows}
    for label in ("FairX", "FairX, as published"):
        assert changes["compas", label, "Full model"] == "\u221275 %"
        assert changes["compas", label, "Prediction + EO"] == "0 %"
    assert changes["compas-paper", "the paper", "Full model"] == "\u221224 %"
    assert changes["compas-paper", "the paper", "Prediction + EO"] == "+14 %"
    assert ("compas", "the paper", "Full model") not in changes
    assert (
        "has a GCIG (raw) of 0.200 in this run, 0.193 in the paper's main table and 0.030 in"
        in table.notes[1]
    )
    empty = ABLATION.table(frame_of([]), ["compas"], VERSIONS, 2)
    assert entry_text(empty.rows[2][-1]) == "missing"


def test_sensitivity_sweeps_one_weight_with_the_other_at_one():
    found = SENSITIVITY.settings(["compas"], VERSIONS)
    weights = {(s.changes["lambda_ig"], s.changes["lambda_fair"]) for s in found}
    assert weights == {(w, 1.0) for w in design.WEIGHTS} | {(1.0, w) for w in design.WEIGHTS}
    assert len(found) == 2 * 11  # both at one belongs to both sweeps
    assert {s.method for s in found} == {PUBLISHED, FAIRX}


def test_sensitivity_marks_collapsed_points():
    frame = rows_for(SENSITIVITY.settings(["compas"], VERSIONS))
    worst = (frame["variant"] == design.weighted("compas", PUBLISHED, "lambda_ig", 10.0).variant) & (
        frame["method"] == PUBLISHED
    )
    frame.loc[worst & (frame["fold"] == 1), "collapsed"] = True
    panels = design.sensitivity_figures(frame, ["compas"], VERSIONS)["sensitivity_compas"].panels
    assert len(panels) == 8
    published, ours = panels[0].series
    assert list(published.x) == list(design.WEIGHTS)
    assert list(published.hollow) == [False] * 5 + [True]
    assert not any(ours.hollow)
    assert published.low[0] <= published.y[0] <= published.high[0]
    table = SENSITIVITY.table(frame, ["compas"], VERSIONS, 2)
    assert sum("†1" in entry_text(row[4]) for row in table.rows) == 1


def test_design_choices_share_the_defaults_and_name_what_silu_changes():
    settings = DESIGN_CHOICES.settings(["german"], ALL)
    assert [s.method for s in settings if not s.variant] == [PUBLISHED, FAIRX]
    frame = rows_for(settings, gcig_raw=0.05)
    frame.loc[frame["variant"].str.contains("silu"), "gcig_raw"] = 0.03
    table = DESIGN_CHOICES.table(frame, ["german"], ALL, 2)
    assert "missing" not in {entry_text(cell) for row in table.rows for cell in row}
    assert "GCIG (raw) 0.050 to 0.030" in design.describe_activation(frame, ["german"])
    assert design.describe_activation(frame_of([]), ["german"]) == ""


def test_cost_is_shown_with_the_papers_statements():
    measured = [
        {"rule": measurements.rule_name(t), "groups": n, "ratio": 2.0 * n, "low": 1.0, "high": 20.0}
        for t in measurements.STEPS
        for n in measurements.GROUPS
    ]
    rows = measurements.cost_table(measured).rows
    assert [row[4:] for row in rows] == [("8", "1"), ("16", "1")]
    assert entry_text(rows[0][1]) == "4.0 (1.0 to 20.0)"
    assert rows[0][3] == pytest.approx(3.5)
    assert not measurements.cost_table([]).rows


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::gcig.CollapseWarning", "ignore::gcig.ThresholdWarning")  # one epoch
def test_cost_is_measured_as_ratios():
    found = measurements.measure_cost(dataset="german", n_rows=200, epochs=1, rounds=1)
    assert len(found) == len(measurements.STEPS) * len(measurements.GROUPS)
    assert all(row["low"] <= row["ratio"] <= row["high"] and row["ratio"] > 0 for row in found)


def test_the_pareto_picture_has_one_point_per_method_or_candidate():
    rows = [
        fold_row("adult", method, fold, parameters=json.dumps({"max_gap": gap, "threshold": "f1"}), gcig=gap)
        for method in ("unconstrained", "lagrangian")
        for gap in (0.0, 0.03)
        for fold in range(2)
    ]
    frame = frame_of(rows)
    points = trade_off_figures("candidates", frame, ["adult"])["candidates"].trade_offs["adult"]
    assert [(p.series, p.name, p.gcig) for p in points[2:]] == [
        ("Lagrangian", "max_gap 0.0", 0.0),
        ("Lagrangian", "max_gap 0.03", 0.03),
    ]
    figure = trade_off_figures("trade_off", frame, ["adult"])["trade_off"]
    assert [(p.series, p.gcig) for p in figure.trade_offs["adult"]] == [
        ("Unconstrained", 0.015),
        ("Lagrangian", 0.015),
    ]
    frame.loc[frame["method"] == "unconstrained", ["collapsed", "gcig"]] = [True, 0.001]
    panel = trade_off_figures("trade_off", frame, ["adult"])["trade_off"].panels[0]
    assert list(panel.front) == [(0.015, 0.8)]


def test_the_closest_reading_is_named():
    settings = VARIANTS.settings(VARIANTS.datasets, ALL)
    frame = rows_for(settings)
    near = {"eo_gap": 0.076, "f1": 0.538, "gcig_raw": 0.169}
    chosen = (frame["dataset"] == "bank-age-33") & (frame["method"] == "unconstrained")
    frame.loc[chosen & frame["variant"].str.contains("0.5"), list(near)] = list(near.values())
    table = VARIANTS.table(frame, VARIANTS.datasets, ALL, 2)
    nearest = "'age from 33, threshold 0.5'"
    assert f"Unconstrained on bank: matched by {nearest}; closest is {nearest}." in table.notes
    (adversarial,) = (note for note in table.notes if note.startswith("Adversarial"))
    assert adversarial.startswith("Adversarial on compas-paper: no reading matches; closest is ")
    assert "EO gap 0.200 against 0.023 ± 0.016" in adversarial
    (shared,) = (note for note in table.notes if note.startswith("bank: one reading must fit"))
    assert f"Unconstrained and FairX, as published. Their mean distances: {nearest} " in shared
    marked = [table.rows[row] for row, _ in marks_of(table)]
    assert ("bank", "Unconstrained", "age from 33, threshold 0.5") in [
        tuple(map(entry_text, row[:3])) for row in marked
    ]
    assert not VARIANTS.table(frame_of([]), [], ALL, 2).rows


def test_readings_change_groups_and_columns_alone():
    from gcig.benchmark.trials import Table

    bank, compas = Table.shipped("bank"), Table.shipped("compas-paper")
    found = variants.regrouped({"bank": bank, "compas-paper": compas})
    assert set(found) == {*variants.AGES, variants.LEAK}
    for name, age in variants.AGES.items():
        older = found[name].sensitive_features.str.endswith("or older")
        assert (older == (bank.X["age"] >= (bank.X["age"].median() if age is None else age))).all()
        assert found[name].X.equals(bank.X)
    changed = found[variants.LEAK].X
    assert (changed["is_recid"].round() == compas.X["is_recid"]).all()
    assert changed["is_recid"].nunique() == len(compas.y)
    assert changed.drop(columns="is_recid").equals(compas.X.drop(columns="is_recid"))
