import math

import pandas as pd
import pytest
from reproduction.figures import draw
from reproduction.paper import PUBLISHED
from reproduction.statistics import corrected_t

from reproduction import correlation, tables
from support.example_results import example_results, fold_row, printed_frame, setting_frame


def row_of(table, **wanted):
    for name, value in wanted.items():
        table = table[table[name] == value]
    (row,) = table.to_dict("records")
    return row


def with_rows(rows):
    return example_results(pd.concat([printed_frame(), pd.DataFrame(rows)], ignore_index=True))


@pytest.fixture(scope="module")
def results():
    return example_results()


def test_the_papers_numbers_are_next_to_ours(results):
    for method in ("FairX", "FairX, as published"):  # both next to the paper's FairX
        row = row_of(tables.main(results), dataset="adult", method=method)
        assert row["GCIG (raw), paper"] == "0.054 ± 0.005"
        assert row["GCIG (raw)"].strip("*") == "0.054 ± 0.000"
    assert row_of(tables.main(results), dataset="compas", method="FairX")["F1, paper"] == ""


def test_every_measure_has_an_interval_within_its_range():
    frame = printed_frame()
    own = (frame["dataset"] == "german") & (frame["method"] == "fairx") & (frame["fold"] < 3)
    frame.loc[own, "auc"] = values = [0.99, 0.9, 0.999]
    results = example_results(frame[own | (frame["dataset"] != "german") | (frame["method"] != "fairx")])
    free = corrected_t(values, n_folds=5)[0]
    assert free.high > 1
    row = row_of(tables.measures(results), dataset="german", method="FairX")
    assert row["AUC"] == f"**0.963 ({free.low:.3f} to 1.000)**"


def test_fits_of_a_fold_are_averaged_and_failed_ones_left_out():
    results = with_rows(
        [
            fold_row("german", "fairx", 0, repeat=1, auc=0.9),
            fold_row("german", "fairx", 1, repeat=1, auc=math.nan, error="it failed"),
        ]
    )
    assert results.folds("german", "fairx")["auc"].tolist() == pytest.approx([0.85, *[0.8] * 4], abs=1e-3)
    assert results.failures == ["german, fairx , fold 1: it failed"]


def test_the_best_mean_is_bold_and_hardt_has_no_rank():
    results = example_results(printed_frame(hardt={"gcig_raw": 0.001}))
    table = tables.main(results)
    bold = table[table["GCIG (raw)"].str.startswith("**")]
    assert set(bold["method"]) <= {"FairX", "FairX, as published"}
    hardt = row_of(tables.wins(results), metric="GCIG (raw)", method="Hardt")
    assert (hardt["with FairX"], hardt["paper"]) == ("", "0 / 4 / 0")  # the paper ranks it


def test_collapsed_fits_are_counted():
    frame = printed_frame()
    frame.loc[(frame["method"] == "dir") & (frame["fold"] == 2), "collapsed"] = True
    assert row_of(tables.main(example_results(frame)), dataset="german", method="DIR")["F1"].endswith(" †1")


def test_wins_are_counted_on_unrounded_means_with_each_version():
    frame = printed_frame(dir={"gcig_raw": 0.2}, **{PUBLISHED: {"gcig_raw": 0.2}}, fairx={"gcig_raw": 0.3})
    own = (frame["dataset"] == "german") & (frame["method"] == PUBLISHED)
    frame.loc[own, "gcig_raw"] -= 1e-6
    row = row_of(tables.wins(example_results(frame)), metric="GCIG (raw)", method="DIR")
    assert row["with FairX, as published"].startswith("0 / 1 / ")  # the others tie
    assert row["with FairX"].startswith("4 / 0 / ")
    assert row["paper"] == "0 / 4 / 0"


def test_the_overview_has_plain_best_other_and_fairx():
    values = {"hardt": {"gcig": 0.001, "eo_gap": 0.01}, "dir": {"gcig": 0.1}}
    row = row_of(tables.overview(example_results(printed_frame(**values))), dataset="german")
    assert [row[f"GCIG: {who}"] for who in ("plain", "best other", "FairX")] == [
        "0.160",
        "0.100 (DIR)",
        "0.160",
    ]
    assert row["EO gap: best other"] == "0.010 (Hardt, F1 0.819)"


def test_ranks_tests_and_pooled_gaps(results):
    ranks = row_of(tables.ranks(results), metric="GCIG (raw)")
    assert ranks["FairX"] == "1.00"
    assert ranks["Hardt"] == ""
    test = row_of(tables.t_tests(results), dataset="adult", metric="GCIG (raw)")
    assert test["DIR"] == "\N{MINUS SIGN}0.201 (p <0.001)"
    assert row_of(tables.pooled(results), dataset="german")["FairX"] == "0.070 (0.030)"


def test_ablation_shows_changes_in_percent_and_the_papers(results):
    table = tables.ablation(results)
    for method in ("the paper", "FairX", "FairX, as published"):
        changes = table[table["method"] == method]["change of GCIG (raw)"].tolist()
        assert changes == ["", "+14 %", "\N{MINUS SIGN}6 %", "\N{MINUS SIGN}24 %"]


def test_sensitivity_and_design_choices_name_their_settings():
    worst = setting_frame(
        "sensitivity", collapsed=lambda s: s.words == ("lambda_ig", "10") and s.method == "fairx"
    )
    results = example_results(sensitivity=worst)
    row = row_of(tables.sensitivity(results), method="FairX", swept="lambda_ig", weight="10")
    assert row["AUC"].endswith("†5")
    assert len(tables.sensitivity(results)) == 24
    row = row_of(tables.design_choices(results), aspect="activation", setting="SiLU")
    assert row["method"] == "FairX, as published"


def test_cost_is_shown_with_the_papers_statements(results):
    assert row_of(tables.cost(results), paper="8")["growth"] == "1.0"
    assert len(tables.cost(results)) == 2


def test_points_are_methods_and_folds_with_one_version(results):
    assert len(correlation.points(results)) == 5 * 7 * 5
    assert set(correlation.points(results)["method"]).isdisjoint({"fairx"})
    within = correlation.points(results, within=True).groupby("dataset")["eo_gap"].mean()
    assert within.abs().max() < 1e-12


def test_the_correlations_are_next_to_the_papers(results):
    table = correlation.table(results)
    row = row_of(table, datasets="the paper's datasets")
    assert (row["n"], row["Pearson, paper"]) == ("140", "0.244 (p 0.0037)")
    assert row_of(table, datasets="german")["Pearson, paper"] == "0.383 (p 0.0231)"
    assert row_of(table, datasets="compas")["Pearson, paper"] == ""
    assert len(table) == 9


def test_equal_results_give_equal_figures(results, tmp_path):
    for name in ("one", "two"):
        draw(results, tmp_path / name)
    files = sorted(file.name for file in (tmp_path / "one").iterdir())
    names = ("comparison", "correlation", "sensitivity_compas-paper", "trade_off")
    assert files == [f"{name}.{kind}" for name in names for kind in ("png", "svg")]
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
