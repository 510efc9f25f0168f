import math

import pytest

from gcig.records import Interval
from gcig.report.tables import Entry, Table, entry_text, estimate, mean_sd, to_markdown
from support.audit_records import HOSTILE


@pytest.fixture
def table():
    return Table(
        ("name", "AUC", "rows"),
        [(Entry("FairX", mark="best"), 0.90149, 1200), ("plain", math.nan, None)],
        caption="Both",
        notes=["A note."],
    )


def test_markdown_has_a_line_per_row_and_marks_the_best(table):
    lines = to_markdown(table).splitlines()
    assert lines[0] == "| name | AUC | rows |"
    assert lines[1] == "| :--- | ---: | ---: |"
    assert lines[2] == "| **FairX** | 0.901 | 1,200 |"
    assert lines[3] == "| plain | undefined | undefined |"
    assert lines[-1] == "A note."


@pytest.mark.parametrize("name", [*HOSTILE, "two\nlines", "a|b"])
def test_a_name_does_not_break_its_row(name):
    plain = to_markdown(Table(("n", "v"), [("x", 1)]))
    hostile = to_markdown(Table(("n", "v"), [(name, 1)]))
    assert len(hostile.splitlines()) == len(plain.splitlines())
    assert "\u202e" not in hostile


def test_markdown_escapes_what_is_markup():
    line = to_markdown(Table(("n",), [("<b>|*x*|`y`$",)])).splitlines()[-1]
    assert line == r"| \<b\>\|\*x\*\|\`y\`\$ |"


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="row 1 has 1 entries, but the header has 2"):
        Table(("a", "b"), [(1, 2), (1,)])


def test_a_column_is_numeric_if_all_its_entries_are_numbers():
    table = Table(("a", "b", "c", "d"), [(1, "x", None, Entry("1 ± 2", 1.0)), (None, 2, None, 3.5)])
    assert [table.numeric(j) for j in range(4)] == [True, False, False, True]


def test_entries_of_statistics():
    assert mean_sd([0.1, math.nan, 0.3]) == Entry("0.200 ± 0.141", pytest.approx(0.2))
    assert mean_sd([0.1]).text == "0.100"
    assert mean_sd([]).text == "undefined"
    assert entry_text(estimate(Interval(0.5, 0.4, 0.6), 2)) == "0.50 (0.40 to 0.60)"
    assert entry_text(estimate(Interval(0.5))) == "0.500"
    assert [entry_text(v) for v in (True, False, None, 12345, -0.5)] == [
        "yes", "no", "undefined", "12,345", "\u22120.500",
    ]  # fmt: skip
