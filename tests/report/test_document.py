import base64
import hashlib
import re

import pytest
from markupsafe import Markup

from gcig.report.displays import PeopleDisplay
from gcig.report.document import (
    Answer,
    Callout,
    Details,
    FigureBlock,
    FigureRow,
    Gate,
    Head,
    Section,
    Step,
    Steps,
)
from gcig.report.document import Page as Made
from gcig.report.tables import Entry, Table
from support.pages import Page

PEOPLE = FigureBlock(PeopleDisplay({"f": 3}, "x").svg("people"), "a caption")
BLOCKS = [
    "words",
    Table(("a", "b"), [("x", Entry("1.500", 1.5, mark="best")), (Entry("y", target="row-1"), 2)], "caption"),
    Table(("plain",), [("table",)]),
    FigureBlock(Markup(""), "not shown"),
    FigureRow([PEOPLE]),
    Callout("caution", "careful"),
    Details("more", ["hidden words"]),
]
ANSWERS = [
    Answer("Question?", "Answer.", "No.", "bad", ["a note"], PEOPLE, ["further"]),
    Steps([Step("Act:", "because", "gcig audit")]),
]


def make(title="T", sections=(), answers=(), **foot):
    head = Head(title, "sub", Gate("failed: 1 limit", "bad"), ["evidence"])
    return Made(head, answers, sections, foot).html()


@pytest.fixture(scope="module")
def text():
    return make(sections=[Section("S", BLOCKS, "row-1")], answers=ANSWERS, sha256="ab")


@pytest.fixture(scope="module")
def read(text):
    return Page(text)


def hash_of(content):
    return "'sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() + "'"


def test_pages_contain_every_block(read):
    expected = (
        *("Question?", "No.", "Answer.", "a note", "further", "Act:", "gcig audit", "failed: 1 limit"),
        *("evidence", "words", "1.500", "table", "a caption", "careful", "more", "hidden words", "sub"),
    )
    for words in (*expected, "sha256", "ab"):
        assert words in read.text
    assert [attrs.get("href") for attrs in read.all("a")] == ["#row-1"]
    assert "row-1" in read.ids
    assert "not shown" not in read.text


def test_everything_but_the_answers_folds_away(text):
    unfolded = re.sub(r"<details.*?</details>", "", text[text.index("<body") :], flags=re.DOTALL)
    assert "Question?" in unfolded
    assert "careful" not in unfolded


def test_the_policy_allows_one_style_by_hash_and_no_script(read):
    assert len(read.all("style")) == 1
    assert not read.all("script")
    (policy,) = [a["content"] for a in read.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules == {
        "default-src": "'none'",
        "style-src": hash_of(read.raw["style"]),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_the_policy_precedes_the_style(text):
    assert text.index("Content-Security-Policy") < text.index("<style")


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
    again = make(sections=[Section("S", BLOCKS, "row-1")], answers=ANSWERS, sha256="ab")
    assert again == text


def test_svg_from_elsewhere_is_escaped():
    read = Page(make(sections=[Section("S", [FigureBlock("<svg onload=alert(1)></svg>")])]))
    assert not read.all("svg")
    assert "<svg onload=alert(1)></svg>" in read.text


def test_only_markup_objects_are_markup():
    assert Page(make(Markup("a<i>c</i>"))).all("i")
    assert not Page(make("a<i>c</i>")).all("i")


def test_unknown_blocks_are_refused():
    with pytest.raises(TypeError, match="received a dict"):
        make(sections=[Section("S", [{}])])


def test_headers_of_tables_have_their_scope(read):
    assert all(attrs.get("scope") == "col" for attrs in read.all("th"))


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
