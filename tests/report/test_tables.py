import csv
import io
import math

import pytest

from gcig.records import Interval
from gcig.report.tables import Entry, Table, entry_text, estimate, mean_sd, to_csv, to_latex, to_markdown
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


def test_csv_has_full_precision_and_empty_undefined_entries(table):
    rows = list(csv.reader(io.StringIO(to_csv(table))))
    assert rows == [["name", "AUC", "rows"], ["FairX", "0.90149", "1200"], ["plain", "", ""]]


@pytest.mark.parametrize(
    "text", ["=cmd|' /C calc'!A0", "+1+1", "-1+1", "@sum", "\t=1", "\r=1", "  =1", "\n=1"]
)
def test_csv_never_has_a_formula(text):
    table = Table((text,), [(text,), (Entry(text),)])
    cells = [row[0] for row in csv.reader(io.StringIO(to_csv(table), newline=""))]
    assert len(cells) == 3
    assert all(cell.startswith("'") and cell.endswith(text.strip()) for cell in cells)


def test_csv_leaves_numbers_in_text_alone():
    assert to_csv(Table(("a", "b"), [("-0.5", -0.5)])) == "a,b\n-0.5,-0.5\n"


def test_latex_is_escaped_and_balanced(table):
    text = to_latex(
        Table(("a_b", "50 %"), [("x & y $ # { } ~ ^ \\ < >", 0.5)], caption="C_1"), label="tab:x y"
    )
    assert r"a\_b & 50 \% \\" in text
    assert r"x \& y \$ \# \{ \} \textasciitilde{} \textasciicircum{} \textbackslash{}" in text
    assert r"\label{tab:x-y}" in text
    assert text.count(r"\begin{") == text.count(r"\end{") == 2
    assert r"\textbf{FairX}" in to_latex(table)


@pytest.mark.parametrize("write", [to_markdown, to_latex])
@pytest.mark.parametrize("name", [*HOSTILE, "two\nlines", "a|b"])
def test_a_name_does_not_break_its_row(write, name):
    plain = write(Table(("n", "v"), [("x", 1)]))
    hostile = write(Table(("n", "v"), [(name, 1)]))
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
