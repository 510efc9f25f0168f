import re
from dataclasses import replace

import pytest

from gcig.experiments.figures import COLLAPSED, Figure, Panel, draw, plain_text
from gcig.report.charts import Series

pytest.importorskip("matplotlib")


@pytest.fixture
def figure() -> Figure:
    curve = Series("a $x$ name", [0.1, 1, 10], [1, 2, 3], [0, 1, 2], [2, 3, 4], [False, False, True])
    cloud = Series("other", [0.1, 1], [2, 1], hollow=[False, True], joined=False)
    return Figure(
        "Costs $5 & <b>",
        "caption",
        [Panel("p", "x", "y", [curve, cloud], fit=(1.0, 0.5), front=[(0.1, 1), (1, 2)], log_x=False)],
    )


def test_the_same_figure_gives_the_same_bytes(figure):
    assert draw(figure, "svg") == draw(figure, "svg")
    assert draw(figure, "png") == draw(figure, "png")


def test_files_have_the_right_format_and_no_date(figure):
    svg = draw(figure, "svg").decode()
    assert svg.lstrip().startswith("<?xml")
    assert not re.search(r"<dc:date>|\d{4}-\d\d-\d\dT", svg)
    assert draw(figure, "png").startswith(b"\x89PNG")


def test_collapsed_models_are_crossed_and_named_in_the_legend(figure):
    crossed = draw(replace(figure, marks_collapsed=True), "svg")
    assert crossed != draw(figure, "svg")
    assert (f"<!-- {COLLAPSED} -->".encode() in crossed, COLLAPSED.encode() in draw(figure, "svg")) == (
        True,
        False,
    )


def test_names_are_not_read_as_mathematics(figure):
    unbalanced = Figure(r"$\frac{", "", [Panel("$", "$_", "^$", [Series(r"$\no", [1], [1])])])
    assert draw(unbalanced, "svg")
    assert plain_text("a$b$") == r"a\$b\$"


def test_figures_without_points_and_with_spare_places_are_drawn():
    empty = Figure("t", "", [Panel(name, "x", "y", [Series("s", [], [])]) for name in "abc"], columns=2)
    assert draw(empty, "svg")
