"""Examples of the gallery: each runs, prints a result and draws a figure."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("plot_*.py"))


@pytest.fixture(autouse=True)
def _no_window(monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.mark.filterwarnings(
    "default::gcig._arguments.InputWarning"
)  # categories that do not occur among the training rows
@pytest.mark.parametrize(
    "path",
    # The fast tests run one example; all examples have the same layout.
    [
        pytest.param(path, marks=[] if path.stem == "plot_own_loop" else pytest.mark.slow, id=path.stem)
        for path in EXAMPLES
    ],
)
def test_example_runs_and_draws(path, capsys):
    found = runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip(), "the example prints nothing"
    axes = found["figure"].axes
    assert axes
    assert any(one.has_data() for one in axes)


def test_every_example_has_a_title():
    assert len(EXAMPLES) >= 6
    for path in EXAMPLES:
        title, rule = path.read_text("utf-8").splitlines()[:2]
        assert title.startswith(('"""', 'r"""'))
        assert set(rule) == {"="}
        assert len(rule) == len(title.removeprefix("r")) - 3


def test_examples_are_notebooks_with_text_between_the_code():
    for path in EXAMPLES:
        assert path.read_text("utf-8").count("\n# %%\n") >= 3, path.stem
