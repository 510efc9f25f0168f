from dataclasses import replace

from gcig.records.limits import check_evaluation
from gcig.report.answers import Setting
from gcig.report.training_page import training_page
from support.fold_results import evaluation
from support.pages import Page

SETTING = Setting("binary", ("no", "yes"), ("yes",), ("sex",), ("f", "m"))
MODELS = {
    "unconstrained": ("Plain", evaluation(0.9, 0.2, 0.3)),
    "fairx": ("FairX", evaluation(0.89, 0.05, 0.1)),
}


def test_models_are_compared_and_columns_described():
    read = Page(
        training_page(
            MODELS,
            SETTING,
            title="FairX on <loans>.csv",
            columns=[("age", "input", "number"), ("<b>", "protected", "category")],
            check=check_evaluation(MODELS["fairx"][1], {"max_gcig": 0.01}),
            notes=["a decimal comma"],
        )
    )
    for words in ("4.0 times less", "failed: 1 of 1 limit exceeded", "0.0500 is above 0.01", "0.040 to 0.060",
                  "A decimal comma.", "<b>", "read as", "150 held-out rows"):  # fmt: skip
        assert words in read.text
    assert not [attrs for attrs in read.all("b") if attrs]
    assert read.text.index("4.0 times less") < read.text.index("Are people treated")


def test_every_measure_of_both_models_has_a_line():
    models = {key: (label, replace(found)) for key, (label, found) in MODELS.items()}
    own = evaluation(own_figure=0.123)
    read = Page(training_page(models | {"fairx": ("FairX", own)}, SETTING, title="t"))
    assert "own figure" in read.texts
    assert "0.123" in read.texts


def test_one_model_is_described_without_a_comparison():
    read = Page(training_page({"fairx": MODELS["fairx"]}, SETTING, title="t"))
    assert "What did it cost?" not in read.texts
    assert "Are people treated equally well?" in read.texts


def test_suppressed_cells_are_named():
    found = replace(evaluation(), min_cell=11, suppressed_cells=("positive, m",))
    assert (
        "fewer than 11 rows: positive, m."
        in Page(training_page({"fairx": ("FairX", found)}, SETTING, title="t")).text
    )
