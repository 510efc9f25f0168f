import math

import pandas as pd
import pytest

from gcig.experiments import comparison
from gcig.experiments.settings import finished, fold_test, fold_values, means, ordered, spread
from gcig.methods.registry import METHODS
from gcig.report.tables import entry_text, to_csv, to_latex, to_markdown
from support.example_results import DATASETS, comparison_frame, fold_row, frame_of
from support.pages import marks_of

SHOWN = {"datasets": DATASETS, "methods": tuple(METHODS)}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return comparison_frame()


@pytest.fixture(scope="module")
def tables(frame):
    pooled = pd.DataFrame(
        {"dataset": ["german"], "method": ["fairx"], "eo_gap": [0.07], "eo_noise_floor": [0.03]}
    )
    made = comparison.tables(frame, **SHOWN, n_folds=5, pooled=pooled)
    return {**made, "main": comparison.main_table(frame, **SHOWN, expected=dict.fromkeys(DATASETS, 5))}


def rows_of(table, **wanted):
    places = {name: table.header.index(name) for name in wanted}
    return [row for row in table.rows if all(row[places[name]] == value for name, value in wanted.items())]


def test_settings_are_every_method_on_every_dataset():
    found = comparison.settings(datasets=["german"], methods=["dir", "fairx"])
    assert [(s.dataset, s.method, s.changes, s.variant) for s in found] == [
        ("german", "dir", {}, ""),
        ("german", "fairx", {}, ""),
    ]


def test_the_papers_numbers_are_next_to_ours(tables):
    table = tables["main"]
    for method in ("FairX", "FairX, as published"):  # both next to the paper's FairX
        (row,) = rows_of(table, dataset="adult", method=method)
        assert entry_text(row[table.header.index("GCIG (raw), paper")]) == "0.054 ± 0.005"
    assert entry_text(row[table.header.index("GCIG (raw)")]).startswith("0.2")
    (row,) = rows_of(table, dataset="compas", method="FairX")
    assert entry_text(row[table.header.index("F1, paper")]) == "-"  # not in the paper


def test_every_measure_has_an_interval(frame, tables):
    table = tables["comparison"]
    (row,) = rows_of(table, dataset="german", method="FairX")
    own = frame[(frame["dataset"] == "german") & (frame["method"] == "fairx")]
    found = fold_test(fold_values(own, "gcig_raw"), n_folds=5).difference
    assert entry_text(row[2]) == f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"
    assert "cut off" in table.notes[0]
    for label in ("EO gap of a fair model", "GCIG, members", "Faithfulness", "Log loss"):
        assert label in table.header


def test_intervals_end_at_the_range_of_their_measure():
    rows = [
        fold_row("german", "fairx", fold, auc=auc, eo_gap=gap)
        for fold, (auc, gap) in enumerate([(0.99, 0.0), (0.9, 0.3), (0.999, 0.01)])
    ]
    shown = {"datasets": ["german"], "methods": ["fairx"], "n_folds": 5}
    table = comparison.tables(frame_of(rows), **shown)["comparison"]
    by = dict(zip(table.header, map(entry_text, table.rows[0]), strict=True))
    assert by["AUC"].endswith("to 1.000)")
    assert "(0.000 to " in by["EO gap"]
    free = fold_test(fold_values(frame_of(rows), "auc"), n_folds=5).difference
    assert by["AUC"].startswith(f"0.963 ({free.low:.3f}")  # the other limit is that of the t interval
    assert free.high > 1


def test_fits_of_a_fold_are_averaged():
    rows = [
        fold_row("german", "fairx", fold, repeat=repeat, auc=0.8 + 0.01 * fold + 0.1 * repeat)
        for fold in range(3)
        for repeat in range(2)
    ]
    assert fold_values(frame_of(rows), "auc").tolist() == pytest.approx([0.85, 0.86, 0.87])


def test_a_model_that_uses_fewer_columns_is_named():
    rows = [
        fold_row(name, method, 0, effective_columns=columns)
        for name, of_plain, of_fairx in (("german", 30.0, 14.9), ("adult", 30.0, 20.0))
        for method, columns in (("unconstrained", of_plain), ("fairx", of_fairx))
    ]
    shown = {"datasets": ["german", "adult"], "methods": ["unconstrained", "fairx"], "n_folds": 5}
    notes = " ".join(comparison.tables(frame_of(rows), **shown)["comparison"].notes)
    assert "german (14.9 against 30.0)" in notes
    assert "adult (" not in notes


def test_the_best_mean_is_marked_and_hardt_has_no_rank(frame):
    frame = frame.copy()
    frame.loc[frame["method"] == "hardt", "gcig_raw"] = 0.001
    table = comparison.main_table(frame, **SHOWN, expected={})
    column = table.header.index("GCIG (raw)")
    marked = [table.rows[row][:2] for (row, place) in marks_of(table) if place == column]
    assert marked == [(name, "FairX") for name in DATASETS]
    wins = comparison.significance_tables(frame, **SHOWN, n_folds=5)["wins"]
    (hardt,) = rows_of(wins, metric="GCIG (raw)", method="Hardt")
    assert hardt[2:5] == ("-", "-", "0 / 4 / 0")  # the paper ranks it


def test_collapsed_and_missing_folds_are_reported():
    frame = frame_of(
        [
            fold_row("german", "fairx", 0, f1=0.8),
            fold_row("german", "fairx", 1, f1=0.5, collapsed=True),
            fold_row("german", "fairx", 2, auc=math.nan, f1=math.nan, collapsed=None, error="it failed"),
        ]
    )
    table = comparison.main_table(
        frame, datasets=["german"], methods=["dir", "fairx"], expected={"german": 5}
    )
    place = table.header.index("F1")
    assert entry_text(table.rows[0][place]) == "missing"
    assert entry_text(table.rows[1][place]) == "0.650 ± 0.212 †1 (2 of 5 folds)"
    assert any("collapsed" in note for note in table.notes)
    assert len(finished(frame)) == 2


def test_an_unfinished_run_has_tables():
    empty = frame_of([])
    made = comparison.tables(empty, **SHOWN, n_folds=5)
    made |= comparison.significance_tables(empty, **SHOWN, n_folds=5)
    for table in made.values():
        assert to_markdown(table)
        assert to_csv(table)
        assert to_latex(table)
    assert "missing" in to_markdown(made["comparison"])
    panels = {panel.title: panel for panel in comparison.figures(empty, **SHOWN)["comparison"].panels}
    assert list(panels["adult"].series[-1].hollow) == [True]  # the paper's alone
    assert not panels["compas"].series[-1].x


def test_differences_carry_a_reason(tables):
    table = tables["differences"]
    found = {(row[0], row[1], row[2]): row for row in table.rows}
    assert ("bank", "GCIG (raw)", "DIR") not in found  # 0.170 against 0.169 +- 0.014
    row = found["adult", "F1", "Unconstrained"]
    assert row[5] == pytest.approx(0.7 - 0.669, abs=0.002)
    assert "threshold" in row[6]
    assert f"{len(table.rows)} of the 96 means" in table.notes[0]


def test_wins_are_counted_on_unrounded_means():
    rows = [fold_row(d, m, 0) for d in ("german", "bank") for m in ("dir", "fairx")]
    frame = frame_of(rows)
    frame.loc[(frame["dataset"] == "german") & (frame["method"] == "fairx"), "gcig_raw"] -= 1e-6
    made = comparison.significance_tables(
        frame, datasets=["german", "bank"], methods=["dir", "fairx"], n_folds=2
    )
    by = {(row[0], row[1]): row for row in made["wins"].rows}
    assert by["GCIG (raw)", "DIR"][2] == "0 / 1 / 1"  # bank ties: neither a win nor a loss, champions shared
    assert by["GCIG (raw)", "FairX"][2] == "1 / 0 / 2"
    assert by["GCIG (raw)", "FairX"][3] == "4 / 0 / 4"  # the paper's
    assert by["F1", "FairX"][3:5] == ("2 / 2 / 1", "1 / 2 / 2")


def test_wins_are_counted_with_each_version_of_fairx():
    values = {"dir": 0.2, "fairx-paper": 0.1, "fairx": 0.3}
    frame = frame_of([fold_row("german", method, 0, gcig_raw=value) for method, value in values.items()])
    table = comparison.significance_tables(frame, datasets=["german"], methods=tuple(values), n_folds=2)[
        "wins"
    ]
    assert table.header[2:4] == ("with FairX, as published", "with FairX")
    assert [row[1:4] for row in table.rows[:2]] == [
        ("DIR", "0 / 1 / 0", "1 / 0 / 1"),
        ("FairX", "1 / 0 / 1", "0 / 1 / 0"),
    ]


def test_the_overview_has_plain_best_other_and_fairx(frame):
    frame = frame.copy()
    frame.loc[frame["method"] == "hardt", ["gcig", "eo_gap"]] = [0.001, 0.01]
    frame.loc[frame["method"] == "dir", "gcig"] = 0.1
    (row,) = comparison.overview_table(frame, datasets=["german"], methods=tuple(METHODS)).rows
    assert row[1:4] == ("0.160", "0.100 (DIR)", "0.160")  # Hardt has no rank in GCIG
    assert row[8].startswith("0.010 (Hardt, F1 0.")
    assert row[10] == "0.050"
    (row,) = comparison.overview_table(frame, datasets=["german"], methods=["fairx"]).rows
    assert row[2] == "-"


def test_pooled_gaps_have_their_noise_floor(tables):
    gap, floor = rows_of(tables["pooled"], dataset="german")
    assert (gap[-1], floor[-1]) == (0.07, 0.03)
    assert entry_text(gap[2]) == "missing"


def test_the_figure_has_one_panel_per_dataset_and_outlines_for_the_paper(frame):
    panels = comparison.figures(frame, **SHOWN)["comparison"].panels
    assert [panel.title for panel in panels] == list(DATASETS)
    by_title = {panel.title: panel for panel in panels}
    fairx = by_title["adult"].series[-1]
    assert (fairx.name, list(fairx.hollow)) == ("FairX", [False, True])
    assert (fairx.x[1], fairx.y[1]) == (0.141, 0.054)
    assert list(by_title["compas"].series[-1].hollow) == [False]


def test_ranks_and_tests_state_their_limits(frame):
    made = comparison.significance_tables(frame, **SHOWN, n_folds=5)
    ranks = made["ranks"].rows[0]
    assert ranks[0] == "GCIG (raw)"
    assert entry_text(ranks[-1]) == "1.00"
    assert "4.03 apart" in made["ranks"].notes[0]
    assert "0.0625" in made["t_tests"].notes[1]
    gcig = rows_of(made["t_tests"], dataset="adult", metric="GCIG (raw)")[0]
    assert entry_text(gcig[2]).endswith("(p <0.001)")
    assert gcig[2].value == pytest.approx(-0.12, abs=0.005)


def test_differences_are_paired_by_fold(frame):
    shuffled = frame.sample(frac=1, random_state=1)
    expected = comparison.paired_differences(frame, "german", "fairx", "gcig_raw", minus="dir")
    found = comparison.paired_differences(shuffled, "german", "fairx", "gcig_raw", minus="dir")
    assert found.tolist() == expected.tolist()
    lacking = frame[~((frame["method"] == "dir") & (frame["fold"] == 3))]
    assert len(comparison.paired_differences(lacking, "german", "fairx", "gcig_raw", minus="dir")) == 4


def test_summary_keeps_the_order_asked_for(frame):
    table = means(frame, "gcig_raw", datasets=["bank", "german"], methods=["fairx", "dir"])
    assert list(table.index) == ["bank", "german"]
    assert list(table.columns) == ["fairx", "dir"]
    assert ordered(["x", "bank", "x"], first=("german", "bank")) == ["bank", "x"]
    assert spread(frame[:0], "auc").text == "missing"
