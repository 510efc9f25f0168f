import subprocess
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

from gcig.records import Interval
from gcig.report.displays import (
    AttributionProfileDisplay,
    DevelopmentDisplay,
    DisparityDisplay,
    Estimate,
    EstimatesDisplay,
    GroupRatesDisplay,
    ParetoDisplay,
    PeopleDisplay,
    TradeOff,
    WaterfallDisplay,
)
from gcig.report.displays.base import literal
from gcig.report.displays.models import front_line
from support.audit_records import HOSTILE, hostile
from support.fold_results import comparison, evaluation

NAN = float("nan")
POINTS = [TradeOff("plain", 0.91, 0.16), TradeOff("FairX", Interval(0.90, 0.89, 0.91), 0.05, "1"),
          TradeOff("poor", 0.5, 0.01, collapsed=True), TradeOff("unknown", 0.9, NAN)]  # fmt: skip
DISPLAYS = {
    "estimates": EstimatesDisplay(
        [Estimate("a", Interval(0.3, 0.2, 0.4), 0.1), Estimate("b", Interval(NAN))], "x"
    ),
    "profiles": AttributionProfileDisplay(["a", "b"], {"f": [1.0, NAN], "m": [0.5, NAN]}),
    "waterfall": WaterfallDisplay(
        ["a", "b"], {"f": [0.2, -0.1], "m": [0.3, 0.1]}, {"f": 0.0, "m": -0.3}, 0.1
    ),
    "people": PeopleDisplay({"f": 31, "m": 0}, "refused"),
    "disparity": DisparityDisplay([0.0, 0.5, 1.0], {"f": [1, 2], "m": [0, 0]}),
    "rates": GroupRatesDisplay({"tpr": {"f": Interval(0.5, 0.4, 0.6), "m": Interval(NAN)}}),
    "pareto": ParetoDisplay(POINTS, chance=0.02),
    "development": DevelopmentDisplay(
        "gap", [Interval(0.2, 0.1, 0.3), Interval(NAN), Interval(0.3)], ["a", "a", "b"]
    ),
}


@pytest.fixture(autouse=True)
def canvas():
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


@pytest.mark.parametrize("name", DISPLAYS)
def test_a_page_gets_svg_that_its_policy_allows(name):
    svg = DISPLAYS[name].svg("a <title> & more")
    root = ElementTree.fromstring(svg)
    tags = {each.tag.partition("}")[2] for each in root.iter()}
    assert not tags & {"style", "script", "use", "defs", "metadata", "image", "a"}
    for each in root.iter():
        assert not {"style", "id", "clip-path"} & set(each.attrib)
        assert not any("url(" in value or value.startswith("#") for value in each.attrib.values())
    assert root[0].text == "a <title> & more"
    assert root[1].text == DISPLAYS[name].describe()
    assert svg == DISPLAYS[name].svg("a <title> & more")  # deterministic


@pytest.mark.parametrize("name", DISPLAYS)
def test_the_same_chart_serves_a_notebook(name):
    from matplotlib import pyplot

    _, ax = pyplot.subplots()
    assert DISPLAYS[name].plot(ax) is DISPLAYS[name]
    assert DISPLAYS[name].ax_ is ax
    DISPLAYS[name].plot().figure_.canvas.draw()


def test_colours_of_a_page_are_variables():
    svg = DISPLAYS["profiles"].svg("t")
    assert "var(--g0)" in svg
    assert "var(--ink)" in svg


def test_undefined_charts_are_left_out():
    assert EstimatesDisplay([Estimate("a", Interval(NAN))], "x").svg("t") == ""
    assert ParetoDisplay([]).svg("t") == ""
    assert GroupRatesDisplay({}).svg("t") == ""


def test_hostile_names_are_text():
    for name in HOSTILE:
        svg = AttributionProfileDisplay([name], {name: [0.1]}).svg(name)
        assert "<script" not in svg
        assert "<img" not in svg
        ElementTree.fromstring(svg)
    display = GroupRatesDisplay.from_evaluation(hostile().evaluation)
    display.figure_.canvas.draw()  # broken mathematics would raise here


def test_names_are_literal_and_keep_both_ends():
    assert literal("$x$") == r"\$x\$"
    assert literal("_hidden").endswith("_hidden")
    assert not literal("_hidden").startswith("_")
    assert "\u202e" not in literal("a\u202eb")
    assert len(literal("x" * 64_000)) == 24
    assert literal("income of the first" + "x" * 50 + " year").endswith(" year")


def test_the_front_leaves_out_collapsed_and_dominated_models():
    assert front_line([*POINTS, TradeOff("worse", 0.8, 0.2)]) == [(0.05, 0.9), (0.16, 0.91)]


def test_the_front_of_a_comparison():
    display = ParetoDisplay.from_results(comparison(), labels={"fairx": "FairX"}, measure="outcome_gap")
    dashed = [line for line in display.ax_.lines if line.get_linestyle() == "--"]
    assert sorted(dashed[0].get_ydata()) == [pytest.approx(0.90), pytest.approx(0.91)]
    assert display.ax_.get_xlabel() == "outcome gap"


def test_methods_have_the_same_mark_on_every_page():
    places = {p.series: p.place for p in ParetoDisplay.from_results(comparison()).points}
    alone = ParetoDisplay.from_results([each for each in comparison() if each.method == "fairx"])
    assert alone.points[0].place == places["fairx"] != places["unconstrained"]


def explanation():
    attributions = np.array([[[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]], [[3.0, -1.0, 0.0], [1.0, 0.0, 0.0]]])
    disparity = np.array([0.4, np.nan])
    return SimpleNamespace(
        attributions=attributions, disparity=disparity, groups=("f", "m"), columns=("a", "b", "c")
    )


def test_profiles_of_an_explanation_are_normalised_means_of_defined_rows():
    display = AttributionProfileDisplay.from_explanation(explanation(), n_columns=2)
    assert display.columns == ["b", "a"]
    assert display.profiles == {"f": [0.5, 0.5], "m": [-0.25, 0.75]}
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == ["b", "a"]


def test_from_estimator_explains_rows():
    asked = []
    estimator = SimpleNamespace(explain=lambda X, y: asked.append((X, y)) or explanation())
    assert AttributionProfileDisplay.from_estimator(estimator, "X", "y").columns == ["b", "a", "c"]
    assert sum(DisparityDisplay.from_estimator(estimator, "X").counts["all rows"]) == 1
    assert asked == [("X", "y"), ("X", None)]


def test_rates_of_predictions():
    truth = np.array([0, 1] * 40)
    decided = np.array([0, 0, 1, 1] * 20)
    sex = np.repeat(["f", "m"], 40)
    display = GroupRatesDisplay.from_predictions(truth, decided, sensitive_features=sex)
    assert display.rates["true positive rate"]["f"].value == 0.5
    assert display.rates["precision"]["m"].value == 0.5
    few = GroupRatesDisplay.from_predictions(
        truth[:16], decided[:16], sensitive_features=np.repeat(["f", "m"], 8)
    )
    assert np.isnan(few.rates["selection rate"]["f"].value)


@pytest.mark.parametrize("needs_group", [True, False])
def test_rates_of_an_estimator(needs_group):
    class Estimator:
        if needs_group:

            def predict(self, X, *, sensitive_features=None):
                assert sensitive_features is not None
                return X
        else:

            def predict(self, X):
                return X

    truth = np.array([0, 1] * 40)
    sex = np.repeat(["f", "m"], 40)
    display = GroupRatesDisplay.from_estimator(Estimator(), truth, truth, sensitive_features=sex)
    assert display.rates["true positive rate"]["f"].value == 1
    assert GroupRatesDisplay.from_evaluation(evaluation()).rates["base rate"]["f"].value == 0.4


def test_pages_import_neither_torch_nor_matplotlib():
    code = (
        "import sys, gcig.report.audit_page, gcig.report.comparison_page, gcig.report.training_page\n"
        "import gcig.report.displays\n"
        "print(*[name for name in ('torch', 'sklearn', 'matplotlib', 'fairlearn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
