import json
import math

import numpy as np
import pytest

from gcig.experiments import ablation, design_choices, measurements, pareto, sensitivity
from gcig.methods.registry import METHODS
from gcig.report.tables import entry_text
from support.example_results import fold_row, frame_of

WEIGHTS = {"lambda_ig": 0.3, "lambda_fair": 0.1, "threshold": "f1"}


def chosen(dataset, method):
    return WEIGHTS if method == "fairx" else {"threshold": "f1"}


def nothing(dataset, method):
    return {}


def rows_for(settings, **values):
    return frame_of(
        [
            fold_row(
                s.dataset,
                s.method,
                fold,
                variant=s.variant,
                parameters=json.dumps(dict(s.parameters)),
                **values,
            )
            for s in settings
            for fold in range(2)
        ]
    )


@pytest.mark.parametrize(
    "settings",
    [
        ablation.settings(chosen),
        sensitivity.settings(chosen),
        design_choices.settings(chosen),
        pareto.settings(nothing, methods=tuple(METHODS)),
    ],
    ids=["ablation", "sensitivity", "design", "pareto"],
)
def test_settings_are_distinct_and_understood_by_the_estimators(settings):
    assert len({(s.dataset, s.method, s.variant) for s in settings}) == len(settings)
    for setting in settings:
        known = METHODS[setting.method].estimator().get_params(deep=False)
        assert set(setting.parameters) <= set(known)


def test_ablation_removes_weights_one_by_one():
    found = {s.variant: s.parameters for s in ablation.settings(chosen, datasets=["compas"])}
    assert {key: (p["lambda_ig"], p["lambda_fair"]) for key, p in found.items()} == {
        "ablation prediction": (0.0, 0.0),
        "ablation prediction+eo": (0.0, 0.1),
        "ablation prediction+gcig": (0.3, 0.0),
        "": (0.3, 0.1),  # shared with the comparison
    }


def test_ablation_shows_changes_in_percent_and_the_papers():
    frame = rows_for(ablation.settings(chosen), gcig_raw=0.2)
    frame.loc[frame["variant"] == "", "gcig_raw"] = 0.05
    table = ablation.tables(frame, expected=2)["ablation"]
    changes = {(row[0], row[1]): entry_text(row[-1]) for row in table.rows}
    assert changes["compas", "Full model"] == "\u221275 %"
    assert changes["compas", "Prediction + EO"] == "0 %"
    assert changes["compas-paper", "Full model, paper"] == "\u221224 %"
    assert changes["compas-paper", "Prediction + EO, paper"] == "+14 %"
    assert ("compas", "Full model, paper") not in changes
    assert (
        "has a GCIG (raw) of 0.200 in this run, 0.193 in the paper's main table and 0.030 in"
        in table.notes[1]
    )
    empty = ablation.tables(frame_of([]), expected=2)["ablation"]
    assert entry_text(empty.rows[2][-1]) == "missing"


def test_sensitivity_sweeps_one_weight_with_the_other_at_one():
    found = sensitivity.settings(chosen, datasets=["compas"])
    weights = {(s.parameters["lambda_ig"], s.parameters["lambda_fair"]) for s in found}
    assert weights == {(w, 1.0) for w in sensitivity.WEIGHTS} | {(1.0, w) for w in sensitivity.WEIGHTS}
    assert len(found) == 2 * 11  # both at one belongs to both sweeps
    assert {s.parameters.get("strategy") for s in found} == {"paper", None}


def test_sensitivity_marks_collapsed_points():
    frame = rows_for(sensitivity.settings(chosen, datasets=["compas"]))
    worst = sensitivity.variant("lambda_ig", 10.0, "as published")
    frame.loc[(frame["variant"] == worst) & (frame["fold"] == 1), "collapsed"] = True
    panels = sensitivity.figures(frame, datasets=["compas"])["sensitivity_compas"].panels
    assert len(panels) == 8
    published, braked = panels[0].series
    assert list(published.x) == list(sensitivity.WEIGHTS)
    assert list(published.collapsed) == [False] * 5 + [True]
    assert not any(braked.collapsed)
    assert published.low[0] <= published.y[0] <= published.high[0]
    table = sensitivity.tables(frame, datasets=["compas"], expected=2)["sensitivity"]
    assert sum("†1" in entry_text(row[4]) for row in table.rows) == 1


def test_design_choices_share_the_default_and_change_one_thing():
    found = {s.variant: s.parameters for s in design_choices.settings(chosen, datasets=["german"])}
    assert found[""] == WEIGHTS
    assert all(len([name for name in p if p[name] != WEIGHTS.get(name)]) <= 2 for p in found.values())
    table = design_choices.tables(rows_for(design_choices.settings(chosen)), expected=2)["design_choices"]
    assert "missing" not in {entry_text(cell) for row in table.rows for cell in row}


def test_typical_members_of_every_kind():
    inputs = np.array([[0.0, 0], [1, 0], [5, 1], [2, 2], [9, 9], [3, 3]])
    labels, groups = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 0, 1, 0, 1])
    found = {
        kind: design_choices.typical_members(inputs, labels, groups, kind)
        for kind in design_choices.REFERENCES
    }
    assert all(values.shape == (2, 2, 2) for values in found.values())
    assert found["mean"][0, 0].tolist() == [2.0, pytest.approx(1 / 3)]
    assert found["median"][0, 0].tolist() == [1.0, 0.0]
    assert found["medoid"][0, 0].tolist() == [1.0, 0.0]
    assert found["medoid"][1, 1].tolist() == [3.0, 3.0]


def test_the_medoid_matches_brute_force():
    rows = np.random.default_rng(0).normal(size=(40, 3))
    sums = [sum(math.dist(a, b) for b in rows) for a in rows]
    assert design_choices.medoid(rows).tolist() == rows[int(np.argmin(sums))].tolist()


def test_references_are_compared_as_ratios():
    measured = [
        {"dataset": "german", "method": m, "fold": f, "seed": 0, "reference": kind, "gcig_raw": value}
        for kind in design_choices.REFERENCES
        for f in (0, 1)
        for m, value in (("unconstrained", 0.2), ("fairx", 0.05))
    ]
    table = design_choices.reference_tables(measured)["references"]
    assert [row[-1] for row in table.rows] == [pytest.approx(4.0)] * 3
    assert design_choices.reference_tables([]) == {}


def test_cost_is_shown_with_the_papers_statements():
    measured = [
        {"rule": rule, "groups": n, "ratio": 2.0 * n, "low": 1.0, "high": 20.0, "rounds": 3}
        for rule in measurements.RULES
        for n in measurements.GROUPS
    ]
    rows = measurements.cost_tables(measured)["cost"].rows
    assert [row[4:] for row in rows] == [("8", "1"), ("16", "1"), ("-", "-"), ("-", "-")]
    assert entry_text(rows[0][1]) == "4.0 (1.0 to 20.0)"
    assert rows[0][3] == pytest.approx(3.5)
    assert measurements.cost_tables([]) == {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::gcig.CollapseWarning")  # one epoch is enough to time, not to learn
def test_cost_is_measured_as_ratios():
    found = measurements.measure_cost(dataset="german", n_rows=200, epochs=1, rounds=1)
    assert len(found) == len(measurements.RULES) * len(measurements.GROUPS)
    assert all(row["low"] <= row["ratio"] <= row["high"] and row["ratio"] > 0 for row in found)


def test_every_method_has_six_settings():
    assert set(pareto.GRIDS) == set(METHODS)
    assert all(len(grid) == 6 for grid in pareto.GRIDS.values())


def test_the_front_is_that_of_three_numbers_and_leaves_out_collapsed_models():
    settings = pareto.settings(nothing, datasets=["adult"], methods=["unconstrained", "fairx"])
    frame = rows_for(settings, gcig=0.2, eo_gap=0.2, auc=0.9)
    best = frame["variant"] == settings[-1].variant
    frame.loc[best, "gcig"] = 0.1
    shown = {"datasets": ["adult"], "methods": ["unconstrained", "fairx"]}
    table = pareto.tables(frame, **shown, expected=2)["pareto"]
    assert [row[-1] for row in table.rows] == [False] * 11 + [True]
    frame.loc[best, "collapsed"] = True
    table = pareto.tables(frame, **shown, expected=2)["pareto"]
    assert [row[-1] for row in table.rows] == [True] * 11 + [False]
    panel = pareto.figures(frame, **shown)["pareto"].panels[0]
    assert [series.label for series in panel.series] == ["Unconstrained", "FairX"]
    assert list(panel.series[1].collapsed) == [False] * 5 + [True]
    assert list(panel.front) == [(0.2, 0.9)]
    points = pareto.figures(frame, **shown)["pareto"].trade_offs["adult"]
    assert len(points) == 12
    assert (points[-1].gcig, points[-1].collapsed) == (pytest.approx(0.1), True)
