import numpy as np
import pandas as pd
import pytest
from scipy import stats

from gcig.benchmark.statistics import clustered_bootstrap, coefficient
from gcig.experiments import correlation
from gcig.experiments.paper import PAPER_DATASETS
from gcig.report.tables import entry_text
from support.example_results import comparison_frame, fold_row, frame_of


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return comparison_frame()


def test_the_papers_datasets_have_140_trials(frame):
    parts = correlation.populations(frame)
    assert len(parts["the paper's datasets"]) == 140
    assert set(parts["compas instead of compas-paper"]["dataset"]) == {"german", "compas", "adult", "bank"}
    assert len(parts["all datasets"]) == 175
    assert len(parts["adult"]) == 35


def test_within_datasets_the_means_are_subtracted():
    """Datasets apart in both numbers correlate when pooled, and not at all inside."""
    rng = np.random.default_rng(0)
    rows = [
        fold_row(
            name, f"m{i}", fold, eo_gap=base + rng.normal(scale=0.01), gcig_raw=base + rng.normal(scale=0.01)
        )
        for name, base in (("german", 0.1), ("bank", 0.5), ("adult", 0.1), ("compas-paper", 0.5))
        for i in range(8)
        for fold in range(5)
    ]
    parts = correlation.populations(frame_of(rows))
    pooled = correlation.associate(parts["the paper's datasets"], draws=50)["pearson"].r
    within = correlation.associate(parts["the paper's datasets, within datasets"], draws=50)["pearson"].r
    assert pooled > 0.99
    assert abs(within) < 0.3


def test_datasets_are_pooled_only_if_all_of_them_were_run(frame):
    parts = correlation.populations(frame[frame["dataset"].isin(["german", "adult"])])
    assert list(parts) == ["german", "adult"]
    assert list(correlation.figures(frame[frame["dataset"] == "german"])) == ["correlation_datasets"]


def test_associations_match_scipy(frame):
    rows = frame[frame["dataset"] == "adult"]
    found = correlation.associate(rows, draws=100)
    assert found["pearson"].r == pytest.approx(stats.pearsonr(rows["eo_gap"], rows["gcig_raw"]).statistic)
    assert found["fit"].slope == pytest.approx(stats.linregress(rows["eo_gap"], rows["gcig_raw"]).slope)
    by_fold = clustered_bootstrap(rows[["eo_gap", "gcig_raw"]], coefficient, clusters=rows["fold"], draws=100)
    assert found["interval"] == by_fold
    assert by_fold.low < found["pearson"].r < by_fold.high


def test_the_table_has_the_papers_numbers_and_counts_missing_trials(frame):
    table = correlation.tables(frame, expected=5, draws=20)["correlation"]
    by = {row[0]: row for row in table.rows}
    assert entry_text(by["the paper's datasets"][4]) == "0.244 (p 0.0037)"
    assert entry_text(by["german"][4]) == "0.383 (p 0.0231)"
    assert entry_text(by["compas"][4]) == "-"
    assert entry_text(by["the paper's datasets"][1]) == "140"
    part = correlation.tables(frame[frame["fold"] < 3], expected=5, draws=20)["correlation"]
    assert entry_text(part.rows[0][1]) == "84 of 140"


def test_the_fit_states_the_sign():
    falling = [
        fold_row(name, "fairx", fold, eo_gap=fold / 10, gcig_raw=0.5 - fold / 10)
        for name in PAPER_DATASETS
        for fold in range(5)
    ]
    frame = frame_of(falling)
    fit = correlation.tables(frame, expected=5, draws=20)["linear_fit"].rows[0]
    assert entry_text(fit[1]) == "0.500 \u2212 1.000 EO"
    assert entry_text(fit[3]) == "0.059"


def test_without_results_the_table_is_empty():
    assert not correlation.tables(frame_of([]), expected=5)["correlation"].rows


def test_the_scatter_plots_show_every_trial(frame):
    made = correlation.figures(frame)
    pooled = made["correlation"].panels[0]
    assert sum(len(series.x) for series in pooled.series) == 140
    assert pooled.fit is not None
    assert [panel.title for panel in made["correlation_datasets"].panels][:2] == ["german", "compas-paper"]
    labels = [[series.name for series in panel.series] for panel in made["correlation_datasets"].panels]
    assert all(each == labels[0] for each in labels)  # a method looks the same in every panel
