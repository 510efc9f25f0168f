import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcig.records import Interval
from gcig.records.trade_off import pareto_front
from gcig.report import charts
from gcig.report.charts.drawing import (
    COLOURS,
    SHAPES,
    WIDTH,
    Marks,
    Scale,
    element,
    fitted,
    marker,
    text_width,
    tick_labels,
    ticks,
    x_axis,
)
from support.audit_records import HOSTILE

NUMBER = st.floats(allow_nan=True, allow_infinity=True)
NAME = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=30))
SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg):
    """The chart as a tree; every text in it has to be well-formed XML, and every number finite."""
    root = ElementTree.fromstring(str(svg))
    assert root.get("role") == "img"
    assert root[0].tag == f"{SVG}title"
    assert root[0].text
    assert root[1].tag == f"{SVG}desc"
    for node in root.iter():
        for name, value in node.attrib.items():
            if name in ("d", "points", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height"):
                assert "nan" not in value
                assert "inf" not in value
        assert node.tag != f"{SVG}script"
        assert not any(name.startswith("on") or name == "style" for name in node.attrib)
    return root


def inside(root):
    """Return whether every mark is inside the picture."""
    height = float(root.get("height"))
    for node in root.iter(f"{SVG}circle"):
        if not (0 <= float(node.get("cx")) <= WIDTH and 0 <= float(node.get("cy")) <= height):
            return False
    return True


@st.composite
def every_chart(draw):
    groups = draw(st.lists(NAME, min_size=0, max_size=9, unique=True))
    columns = draw(st.lists(NAME, max_size=6))
    intervals = st.builds(Interval, NUMBER, NUMBER, NUMBER)
    n = len(columns)
    row = st.lists(NUMBER, min_size=n, max_size=n)
    kind = draw(st.integers(0, 8))
    if kind == 0:
        return charts.attribution_profiles(columns, {g: draw(row) for g in groups})
    if kind == 1:
        counts = st.lists(st.integers(0, 10**6), min_size=n, max_size=n)
        edges = draw(st.lists(NUMBER, min_size=n + 1, max_size=n + 1))
        edges = sorted(edges) if not any(map(math.isnan, edges)) else edges
        return charts.disparity_histogram(
            edges, {g: draw(counts) for g in groups}, means={g: draw(NUMBER) for g in groups}
        )
    if kind == 3:
        return charts.group_rates({c: {g: draw(intervals) for g in groups} for c in columns})
    if kind == 5:
        return charts.estimates(
            columns, [draw(intervals) for _ in columns], title="t", reference=draw(st.none() | NUMBER)
        )
    if kind == 6:
        points = [
            charts.TradeOff(g, draw(NUMBER), draw(NUMBER), draw(NUMBER), collapsed=draw(st.booleans()))
            for g in groups
        ]
        return charts.pareto(points, noise_floor=draw(st.none() | NUMBER))
    series = [charts.Series(g, draw(row), draw(row), draw(row), draw(row)) for g in groups]
    return charts.lines(series, title="t", x_label="x", y_label="y")


@given(every_chart())
@settings(max_examples=150)
def test_any_numbers_and_names_give_valid_svg(svg):
    assert inside(parsed(svg))


@pytest.mark.parametrize(
    "svg",
    [
        charts.attribution_profiles([], {}),
        charts.disparity_histogram([], {}),
        charts.group_rates({}),
        charts.estimates([], [], title="t"),
        charts.pareto([]),
        charts.lines([], title="t", x_label="", y_label=""),
    ],
)
def test_charts_without_data_say_so(svg):
    assert "There is nothing to show here." in ElementTree.tostring(parsed(svg), encoding="unicode")


def test_profiles_put_larger_values_further_right():
    root = parsed(charts.attribution_profiles(["a"], {"f": [-0.5], "m": [0.5]}))
    (circle,) = [c for c in root.iter(f"{SVG}circle") if c.find(f"{SVG}title") is not None]
    (square,) = [p for p in root.iter(f"{SVG}polygon") if p.find(f"{SVG}title") is not None]
    left = float(circle.get("cx"))
    right = [float(pair.split(",")[0]) for pair in square.get("points").split()]
    assert left < sum(right) / len(right)
    assert circle.find(f"{SVG}title").text == "a, f: \u22120.500"


def test_histogram_heights_are_shares_of_the_group():
    root = parsed(charts.disparity_histogram([0, 1, 2], {"few": [1, 1], "many": [500, 500]}))
    heights = {float(rect.get("height")) for rect in root.iter(f"{SVG}rect")}
    assert len(heights) == 1


def test_the_line_goes_through_the_pareto_front():
    points = [
        charts.TradeOff("plain", 0.90, 0.20, 0.3),
        charts.TradeOff("fair", 0.89, 0.05, 0.1),
        charts.TradeOff("beaten", 0.88, 0.10, 0.2),
        charts.TradeOff("collapsed", 0.95, 0.00, 0.0, collapsed=True),
    ]
    root = parsed(charts.pareto(points, ["GCIG"]))
    (line,) = root.iter(f"{SVG}polyline")
    assert len(line.get("points").split()) == 2
    assert len(list(parsed(charts.pareto(points)).iter(f"{SVG}polyline"))) == 2


def test_names_of_close_marks_do_not_overlap():
    gaps = [
        (0.90, 0.200),
        (0.8966, 0.052),
        (0.8970, 0.051),
        (0.8963, 0.056),
        (0.8876, 0.047),
        (0.8942, 0.041),
    ]
    points = [
        charts.TradeOff("FairX", auc, gap, name=str(i), target=f"m{i}") for i, (auc, gap) in enumerate(gaps)
    ]
    root = parsed(charts.pareto(points, ["GCIG"]))
    links = list(root.iter(f"{SVG}a"))
    places = [link.find(f"{SVG}text") for link in links]
    places = [(float(text.get("x")), float(text.get("y"))) for text in places]
    for i, (x, y) in enumerate(places):
        assert all(abs(x - a) > 7 or abs(y - b) > 10 for a, b in places[:i])
    assert len(places) == len(gaps)


def test_small_differences_in_auc_look_small():
    points = [charts.TradeOff("a", 0.9000, 0.1), charts.TradeOff("b", 0.9001, 0.2)]
    (line,) = parsed(charts.pareto(points, ["GCIG"])).iter(f"{SVG}polyline")
    heights = [float(pair.split(",")[1]) for pair in line.get("points").split()]
    assert abs(heights[0] - heights[1]) < 5


def test_a_gap_breaks_a_line():
    series = charts.Series("s", [1, 2, 3, 4, 5], [1, 2, math.nan, 4, 5])
    root = parsed(charts.lines([series], title="t", x_label="x", y_label="y"))
    (path,) = [p.get("d") for p in root.iter(f"{SVG}path") if p.get("stroke-width") == "2"]
    assert path.count("M") == 2


def test_series_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="y has 1 values, but x has 2"):
        charts.Series("s", [1, 2], [1])


def test_a_coordinate_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        element("circle", cx=math.nan)


def test_groups_differ_in_colour_and_shape():
    looks = {marker(i, 0.0, 0.0) for i in range(COLOURS * SHAPES)}
    assert len(looks) == COLOURS * SHAPES


def test_standalone_files_have_their_own_style():
    text = charts.standalone(charts.estimates(["a"], [Interval(0.2, 0.1, 0.3)], title="t"))
    root = ElementTree.fromstring(text.encode())
    style = root.find(f"{SVG}style").text
    assert "prefers-color-scheme: dark" in style
    assert ".chart .g0" in style


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e6))
def test_ticks_are_inside_and_even(low, span):
    scale = Scale(low, low + span, 0, 100)
    if scale.high <= scale.low:
        return
    found = ticks(scale)
    assert 1 <= len(found) <= 12
    assert all(scale.low - 1e-6 * span <= v <= scale.high + 1e-6 * span for v in found)


def test_values_of_ticks_do_not_touch():
    for stop in (30, 80, 172, 300):
        shown = x_axis(Scale(-1.1, 0.04, 0, stop), 0, 10).split("</text>")[:-1]
        middles = [float(re.search(r' x="([-\d.]+)"', part)[1]) for part in shown]
        assert middles
        widths = [text_width(part.rpartition(">")[2]) for part in shown]
        ends = [(x - width / 2, x + width / 2) for x, width in zip(middles, widths, strict=True)]
        assert all(after[0] - before[1] >= 6 for before, after in pairwise(ends))
        assert any(part.endswith((">0.00", ">0.0", ">0")) for part in shown)


def test_logarithmic_ticks():
    assert tick_labels([0.0, 0.25, 0.5]) == ["0.00", "0.25", "0.50"]
    assert tick_labels([-10.0, 0.0]) == ["\u221210", "0"]


def test_gaps_below_the_noise_floor_are_shaded():
    points = [charts.TradeOff("plain", 0.9, 0.2, 0.04), charts.TradeOff("fair", 0.88, 0.1, 0.02)]

    def shaded(floor):
        root = ElementTree.fromstring(charts.pareto(points, ["EO gap"], noise_floor=floor))
        return sum(float(part.get("width")) for part in root.iter() if part.get("class") == "wash")

    assert 0 < shaded(0.01) < shaded(0.03) < shaded(0.09) == shaded(0.5)


def test_long_text_is_cut():
    assert fitted("short", 100) == "short"
    cut = fitted("a" * 200, 100)
    assert "a…a" in cut
    assert text_width(cut) <= 100


def test_legends_break_into_lines():
    assert Marks(["a", "b"]).height < Marks(["a long name of a group"] * 6).height
    assert Marks([]).height == 0


def test_the_front_keeps_points_that_are_not_dominated():
    assert pareto_front([(1, 0), (0, 1), (0, 0), (1, 0)]) == [True, True, False, True]
    assert pareto_front([(math.nan, 9), (0, 0)]) == [False, True]
    assert pareto_front([]) == []
