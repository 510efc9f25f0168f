import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from gcig.report.charts import TradeOff
from gcig.report.displays import (
    AttributionProfileDisplay,
    DisparityDisplay,
    GroupRatesDisplay,
    ParetoDisplay,
    _literal,
)
from support.audit_records import HOSTILE, hostile
from support.fold_results import comparison, evaluation

matplotlib = pytest.importorskip("matplotlib", reason="the displays draw with matplotlib (gcig[plot])")


@pytest.fixture(autouse=True)
def canvas():
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


def explanation():
    attributions = np.array([[[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]], [[3.0, -1.0, 0.0], [1.0, 0.0, 0.0]]])
    disparity = np.array([0.4, np.nan])
    return SimpleNamespace(
        attributions=attributions, disparity=disparity, groups=("f", "m"), columns=("a", "b", "c")
    )


RECORD_DISPLAYS = [
    lambda record: GroupRatesDisplay.from_evaluation(record.evaluation),
    lambda record: ParetoDisplay.from_records([record, record]),
]


@pytest.mark.parametrize("draw", RECORD_DISPLAYS)
def test_hostile_names_are_literal(draw):
    display = draw(hostile())
    display.figure_.canvas.draw()  # broken mathematics would raise here
    shown = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert _literal(HOSTILE[0]) in shown


def test_displays_draw_on_given_axes():
    from matplotlib import pyplot

    _, ax = pyplot.subplots()
    for display in (AttributionProfileDisplay(["a"], {"f": [1.0]}), ParetoDisplay([TradeOff("x", 0.9, 0.1)])):
        assert display.plot(ax) is display
        assert display.ax_ is ax


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


def test_the_front_of_a_comparison():
    display = ParetoDisplay.from_results(comparison(), labels={"fairx": "FairX"})
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()][1] == "FairX"
    dashed = [line for line in display.ax_.lines if line.get_linestyle() == "--"]
    assert sorted(dashed[0].get_ydata()) == [pytest.approx(0.90), pytest.approx(0.91)]
    assert display.plot(measure="EO gap").ax_.get_xlabel() == "EO gap"


def test_names_are_literal():
    assert _literal("$x$") == r"\$x\$"
    assert _literal("_hidden").endswith("_hidden")
    assert not _literal("_hidden").startswith("_")
    assert "\u202e" not in _literal("a\u202eb")


def test_without_matplotlib_the_error_names_the_fix():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from gcig.report.displays import ParetoDisplay\n"
        "try:\n    ParetoDisplay([]).plot()\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'gcig[plot]'" in done.stdout


def test_pages_and_displays_import_neither_torch_nor_matplotlib():
    code = (
        "import sys, gcig.report.audit_page, gcig.report.comparison_page\n"
        "import gcig.report.displays\n"
        "print(*[name for name in ('torch', 'sklearn', 'matplotlib', 'fairlearn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
