import base64
import hashlib
import re

import pytest
from markupsafe import Markup

from gcig.report import charts
from gcig.report.document import (
    Callout,
    Details,
    FigureBlock,
    FigureRow,
    KeyFigures,
    RowExplorer,
    RowView,
    Section,
    VerdictBlock,
    page,
)
from gcig.report.tables import Entry, Table
from support.pages import Page

EVERY_BLOCK = [
    VerdictBlock("concern", "Headline", ["finding"], ["caution"]),
    KeyFigures([("AUC", "0.9", "hint")]),
    "words",
    Table(("a", "b"), [("x", Entry("1.500", 1.5, mark="best")), (Entry("y", target="row-1"), 2)], "caption"),
    Table(("plain",), [("table",)]),
    FigureBlock(charts.group_rates({}), "a curve"),
    FigureRow([FigureBlock(charts.pareto([]), "nothing")]),
    Callout("caution", "careful"),
    Details("more", ["hidden words"]),
    RowExplorer([RowView("row-1", "Row 1", ["reasons"])]),
]


@pytest.fixture(scope="module")
def text():
    return page("T", [Section(f"S{i}", EVERY_BLOCK) for i in range(1)], subtitle="sub", foot={"sha256": "ab"})


@pytest.fixture(scope="module")
def read(text):
    return Page(text)


def hash_of(content):
    return "'sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() + "'"


def test_pages_contain_every_block(read):
    for words in ("Headline", "finding", "caution", "0.9", "hint", "words", "1.500", "table", "a curve",
                  "careful", "more", "hidden words", "Row 1", "reasons", "sub", "sha256", "ab"):  # fmt: skip
        assert words in read.text
    assert [attrs.get("href") for attrs in read.all("a")] == ["#row-1"]


def test_the_policy_allows_one_style_and_one_script_by_hash(read):
    assert len(read.all("script")) == len(read.all("style")) == 1
    (policy,) = [a["content"] for a in read.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules == {
        "default-src": "'none'",
        "script-src": hash_of(read.raw["script"]),
        "style-src": hash_of(read.raw["style"]),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_the_policy_precedes_style_and_script(text):
    assert text.index("Content-Security-Policy") < text.index("<style") < text.index("<script")


def test_pages_have_no_external_address(text, read):
    without_namespace = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"(https?:)?//[a-z]|url\(|@import|@font-face", without_namespace)
    assert not read.all("link")
    assert not read.all("img")
    assert not read.all("iframe")


def test_pages_use_nothing_that_the_policy_forbids(read):
    for _, attrs in read.tags:
        assert "style" not in attrs
        assert not any(name.startswith("on") for name in attrs)


def test_pages_are_deterministic(text):
    again = page("T", [Section("S0", EVERY_BLOCK)], subtitle="sub", foot={"sha256": "ab"})
    assert again == text


def test_several_sections_get_a_table_of_contents():
    sections = [Section(heading, ["x"]) for heading in ("One: a", "Two <b>", "\u0639", "One: a")]
    read = Page(page("T", sections))
    assert [attrs["href"] for attrs in read.all("a")] == ["#s1-one-a", "#s2-two-b", "#s3", "#s4-one-a"]
    assert len(read.ids) == len(set(read.ids))
    assert {f"s{i}" for i in range(1, 5)} == {i.split("-")[0] for i in read.ids}
    assert "Two <b>" in read.texts


def test_svg_from_elsewhere_is_escaped():
    read = Page(page("T", [Section("S", [FigureBlock("<svg onload=alert(1)></svg>")])]))
    assert not read.all("svg")
    assert "<svg onload=alert(1)></svg>" in read.text


def test_only_markup_objects_are_markup():
    assert Page(page(Markup("a<b>c</b>"), [])).all("b")
    assert not Page(page("a<b>c</b>", [])).all("b")


def test_unknown_blocks_are_refused():
    with pytest.raises(TypeError, match="received a dict"):
        page("T", [Section("S", [{}])])


def test_tables_carry_their_sort_keys():
    block = Table(("name", "value"), [("x", 2.0), ("y", float("nan"))], "c")
    read = Page(page("T", [Section("S", [block])]))
    assert [attrs.get("data-value") for attrs in read.all("td")] == [None, "2.0", None, None]
    assert "data-sortable" in read.all("table")[0]
    fixed = Table(("name",), [("x",)], sortable=False)
    assert "data-sortable" not in Page(page("T", [Section("S", [fixed])])).all("table")[0]
    assert all(attrs.get("scope") == "col" for attrs in read.all("th"))


@pytest.mark.parametrize("status", ["clear", "concern", "inconclusive"])
def test_verdicts_have_a_word_besides_the_colour(status):
    read = Page(page("T", [], lead=[VerdictBlock(status, "h")]))
    words = {"clear": "No disparity found", "concern": "Concern", "inconclusive": "Not certain"}
    assert words[status] in read.texts


def variables(css, mode):
    """The custom properties of light or dark."""
    light, dark = css.split("@media (prefers-color-scheme: dark)", 1)
    part = light if mode == "light" else dark.split("}", 1)[0]
    return dict(re.findall(r"--([a-z0-9-]+):\s*(#[0-9a-f]{6})", part))


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_contrast_meets_the_web_guidelines(read, mode):
    colours = variables(read.raw["style"], mode)
    for text in ("ink", "muted", "accent", "good", "concern", "unsure"):
        assert contrast(colours[text], colours["paper"]) >= 4.5, text
        assert contrast(colours[text], colours["sheet"]) >= 4.5, text
    for text, wash in (("good", "good-wash"), ("concern", "concern-wash"), ("unsure", "unsure-wash"),
                       ("accent", "neutral-wash"), ("ink", "faint")):  # fmt: skip
        assert contrast(colours[text], colours[wash]) >= 4.5, wash
    for i in range(8):
        assert contrast(colours[f"g{i}"], colours["sheet"]) >= 3.0, i
