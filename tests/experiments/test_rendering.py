from gcig.experiments.rendering import MAX_ROWS, split_by_dataset
from gcig.report.tables import Table


def test_a_long_table_is_split_and_keeps_marks_and_notes():
    rows = [(name, i, i / 2) for name in ("german", "adult") for i in range(MAX_ROWS)]
    table = Table(
        ("dataset", "i", "half"), rows, caption="All", notes=("n",), marks={(MAX_ROWS + 1, 2): "best"}
    )
    german, adult = split_by_dataset(table)
    assert (german.caption, adult.caption) == ("german. All", "adult. All")
    assert [row for part in (german, adult) for row in part.rows] == [row[1:] for row in rows]
    assert german.marks == {}
    assert adult.marks == {(1, 1): "best"}
    assert (german.notes, adult.notes) == ((), ("n",))


def test_a_short_table_and_one_without_datasets_stay_whole():
    short = Table(("dataset", "i"), [("german", 1), ("adult", 2)])
    other = Table(("metric", "i"), [("F1", i) for i in range(MAX_ROWS + 1)])
    assert split_by_dataset(short) == [short]
    assert split_by_dataset(other) == [other]
