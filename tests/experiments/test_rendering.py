from pathlib import Path

import pytest

from gcig.experiments.chapters import chapters
from gcig.experiments.rendering import MAX_ROWS, restructured_text, split_by_dataset
from gcig.experiments.run_folder import read
from gcig.report.tables import Entry, Table, to_markdown
from support.pages import marks_of

ROOT = Path(__file__).parents[2]


def test_a_long_table_is_split_and_keeps_marks_and_notes():
    rows = [(name, i, i / 2) for name in ("german", "adult") for i in range(MAX_ROWS)]
    rows[MAX_ROWS + 1] = ("adult", 1, Entry("0.5", 0.5, mark="best"))
    table = Table(("dataset", "i", "half"), rows, caption="All", notes=("n",))
    german, adult = split_by_dataset(table)
    assert (german.caption, adult.caption) == ("german. All", "adult. All")
    assert [row for part in (german, adult) for row in part.rows] == [row[1:] for row in rows]
    assert marks_of(german) == {}
    assert marks_of(adult) == {(1, 1): "best"}
    assert (german.notes, adult.notes) == ((), ("n",))


def test_a_short_table_and_one_without_datasets_stay_whole():
    short = Table(("dataset", "i"), [("german", 1), ("adult", 2)])
    other = Table(("metric", "i"), [("F1", i) for i in range(MAX_ROWS + 1)])
    assert split_by_dataset(short) == [short]
    assert split_by_dataset(other) == [other]


@pytest.mark.slow
def test_the_committed_pages_are_rendered_from_the_committed_results():
    listed = chapters(read(ROOT / "results" / "paper"))
    page = restructured_text(listed, figures="../results/paper/figures")
    assert page == (ROOT / "docs" / "reproduction.rst").read_text(encoding="utf-8")
    for chapter in listed:
        for name, table in chapter.tables.items():
            file = ROOT / "results" / "paper" / "tables" / f"{name}.md"
            assert to_markdown(table) in file.read_text(encoding="utf-8")
