import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcig.records import Interval
from gcig.records.formatting import count, counted, estimate, html_table, number, percent, spread, visible


@given(st.text(alphabet=st.characters()))
def test_any_text_can_be_encoded_and_is_not_markup(text):
    safe = html_table([text], []).partition("<th>")[2].partition("</th>")[0]
    safe.encode("utf-8")
    assert not set("<>\"'") & set(safe)
    assert not any(ord(c) < 32 and c not in "\t\n" for c in safe)


@pytest.mark.parametrize("character", ["\u202e", "\u2066", "\u200f", "\x00", "\ud800", "\x1b"])
def test_invisible_characters_are_replaced(character):
    assert visible(f"a{character}b") == "a\ufffdb"


def test_ordinary_text_is_left_alone():
    text = "Größe (cm) 身長 عمر 👩🏽‍⚕️"
    assert visible(text) == text


def test_numbers():
    assert [number(v, 2) for v in (-1.239, math.inf, -math.inf, None, -0.001)] == [
        "\u22121.24",
        "∞",
        "\u2212∞",
        "undefined",
        "0.00",
    ]
    assert percent(math.nan) == percent(None) == "undefined"
    assert percent(0.12345, 1) == "12.3 %"
    assert count(None) == "undefined"
    assert counted(0, "row") == "0 rows"
    assert estimate(Interval(math.nan, 0.1, 0.2)) == "undefined"
    assert spread(0.5, math.nan) == "0.500"
