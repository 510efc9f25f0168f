from gcig.experiments.measurements import measure_sizes, size_table
from gcig.report.tables import entry_text


def test_sizes_are_counted():
    german, compas = measure_sizes(["german", "compas-paper"])
    assert (german["rows"], german["columns"]) == (1000, 20)
    assert german["encoded_columns"] > german["columns"]
    assert (compas["rows"], compas["attribute"]) == (6172, "race")


def test_differences_from_the_papers_sizes_have_a_reason():
    names = ("name", "target", "attribute", "rows", "columns", "encoded_columns")
    counted = (
        ("adult", "income", "sex", 45222, 14, 104),
        ("bank", "y", "age", 45211, 20, 51),  # 21 with the target, as in the paper
        ("loans", "paid", "sex", 10, 2, 3),
    )
    sizes = [dict(zip(names, values, strict=True)) for values in counted]
    adult, bank, loans = size_table(sizes).rows
    assert (adult[4], adult[7]) == (4522, 32)
    assert "lacks a digit" in adult[-1]
    assert bank[-1] == ""
    assert (entry_text(loans[4]), loans[-1]) == ("-", "not in the paper")
