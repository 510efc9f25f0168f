"""Changes between two audits, and whether they are more than chance."""

import math
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

from gcig.auditing import AuditResult, audit
from gcig.auditing.audit_change import compare_audits
from gcig.records import AuditRecord, Interval
from gcig.report.audit_change import history_page
from gcig.report.audit_page import audit_page
from support.audit_records import around, example
from support.audits import audit_loans
from tables import make_numeric_loans


def with_auc(record: AuditRecord, auc: Interval) -> AuditRecord:
    return replace(record, outcome=replace(record.outcome, auc=auc))


def test_the_same_audit_has_not_changed() -> None:
    found = compare_audits(example(), example())
    assert {each.verdict for each in found.figures} == {"chance"}
    assert found.headline.startswith("Nothing changed")
    assert found.notes == ("The model is the same, and the rows are the same.",)
    assert all(each.p_value == 1 for each in found.figures)


def test_p_values_by_hand_and_corrected_for_their_number() -> None:
    before, after = with_auc(example(), around(0.90, 0.01)), with_auc(example(), around(0.86, 0.01))
    found = {each.figure: each for each in compare_audits(before, after).figures}
    error = 0.01 / 1.959964 * math.sqrt(2)
    assert found["auc"].p_value == pytest.approx(len(found) * 2 * norm.sf(0.04 / error), rel=1e-4)
    assert found["auc"].verdict == "worse"
    assert found["auc"].difference.value == pytest.approx(-0.04)
    assert found["auc"].difference.low == pytest.approx(-0.04 - 1.959964 * error)
    back = {each.figure: each for each in compare_audits(after, before).figures}
    assert back["auc"].verdict == "better"
    slightly = compare_audits(before, with_auc(example(), around(0.885, 0.01)))
    assert {each.verdict for each in slightly.figures} == {"chance"}  # 0.04 alone, but one of seven figures


def test_lower_gaps_and_higher_ratios_are_better() -> None:
    record = example()
    fairer = replace(
        record,
        outcome=replace(record.outcome, eo_gap=around(0.02, 0.01), selection_rate_ratio=around(0.9, 0.03)),
        procedural=replace(
            record.procedural, gcig=around(0.05, 0.01), gcig_fixed_references=around(0.05, 0.006)
        ),
    )
    found = compare_audits(record, fairer)
    judged = {each.figure: each.verdict for each in found.figures}
    assert {name for name, verdict in judged.items() if verdict == "better"} == {
        "gcig",
        "eo_gap",
        "selection_rate_ratio",
    }
    assert "GCIG (0.164 to 0.050)" in found.headline


def test_gcig_is_compared_only_on_the_same_columns_and_groups() -> None:
    record = example()
    fewer = example(columns=("age", "race"))
    found = compare_audits(record, fewer)
    assert "gcig" not in {each.figure for each in found.figures}
    assert "GCIG is not compared: the columns are different." in found.notes
    assert found.headline.startswith("None of the figures that can be compared changed since the last audit")
    other = replace(record, subject=replace(record.subject, definition={"norm": "l2"}))
    assert "GCIG is not compared: the definition is different." in compare_audits(record, other).notes


def test_gaps_are_compared_only_between_the_same_groups() -> None:
    """A small group that one of two audits suppresses would change a gap without any change of the model."""
    record = example()
    first, *others = record.groups
    fewer = replace(record, groups=(replace(first, n_rows=None), *others))
    found = compare_audits(record, fewer)
    assert not {"eo_gap", "selection_rate_ratio"} & {each.figure for each in found.figures}
    assert "The four-fifths ratio is not compared: different groups are suppressed." in found.notes
    cells = compare_audits(record, replace(record, suppressed_cells=("label 1 in group 'Male'",)))
    assert {each.figure for each in cells.figures} >= {"gcig", "selection_rate_ratio", "auc"}
    assert cells.notes[1:] == ("The EO gap is not compared: different (label, group) cells are suppressed.",)


def test_undefined_figures_cannot_be_judged() -> None:
    found = compare_audits(with_auc(example(), Interval(math.nan)), example())
    assert {each.figure: each.verdict for each in found.figures}["auc"] == "unknown"


def test_an_audit_says_what_changed_since_the_last(tmp_path) -> None:
    quick = {"n_bootstrap": 100, "n_shuffles": 9}
    first = audit_loans(make_numeric_loans(800, seed=1), **quick)
    first.to_json(tmp_path / "last.json")
    again = audit_loans(make_numeric_loans(800, seed=2), against=tmp_path / "last.json", **quick)
    assert {each.verdict for each in again.record.change.figures} <= {"chance"}
    worse = make_numeric_loans(800, seed=3, shift=3.0)
    X, y = worse[["income", "debt", "age", "noise"]], worse["approved"]
    found = audit(
        LogisticRegression().fit(X, y), X, y, sensitive_features=worse["sex"], against=first, **quick
    )
    changes = {each.figure: each for each in found.record.change.figures}
    assert changes["gcig"].verdict == "worse"
    assert changes["gcig_members"].after == found.record.procedural.gcig_members  # one interval on the page
    assert found.record.change.headline in str(found)
    assert AuditResult.from_json(found.to_json()).record == found.record
    assert "Change: what is different since the last audit?" in audit_page(found.record)


def test_the_history_of_several_audits() -> None:
    records = [
        replace(
            example(),
            subject=replace(example().subject, created=f"2025-0{month}-01T00:00:00+00:00"),
            procedural=replace(
                example().procedural, gcig=around(value, 0.006), gcig_fixed_references=around(value, 0.004)
            ),
        )
        for month, value in ((1, 0.16), (2, 0.16), (3, 0.05))
    ]
    changes = [compare_audits(a, b) for a, b in pairwise(records)]
    page = history_page(records, changes)
    assert "3 audits, 2025-01-01 to 2025-03-01" in page
    assert "GCIG better" in page
    assert page.count("<svg") == 5
    assert "within chance" in page


def test_the_history_connects_only_audits_that_can_be_compared() -> None:
    def made(month: int, name: str, columns: tuple[str, ...]) -> AuditRecord:
        record = example(columns=columns, name=name)
        return replace(record, subject=replace(record.subject, created=f"2025-0{month}-01"))

    records = [
        made(1, "first", ("a",)),
        made(2, "first", ("a",)),
        made(3, "first", ("a", "b")),
        made(4, "second", ("a", "b")),
    ]
    page = history_page(records, [compare_audits(a, b) for a, b in pairwise(records)])
    lines = re.findall(r'<path d="([^"]*)" fill="none" stroke="currentColor" stroke-width="2"', page)
    # GCIG of the third audit has other columns, but its AUC can be compared; the fourth has another model.
    assert [[part.count("L") for part in line.split("M")[1:]] for line in lines[:2]] == [[1, 0], [0]]
    assert [[part.count("L") for part in line.split("M")[1:]] for line in lines[-2:]] == [[2], [0]]
    assert "Last audit, of second: " in page
    assert "A line ends if the next audit cannot be compared." in page
