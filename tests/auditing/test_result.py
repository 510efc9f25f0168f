import json
import math
import re
from dataclasses import replace

import pytest

from gcig._validation import InputError
from gcig.auditing import AuditResult
from gcig.records import AuditRecord, Interval
from support.audits import example_audit


@pytest.mark.parametrize("include_rows", [False, True])
def test_json_gives_the_record_back(tmp_path, include_rows: bool) -> None:
    found = example_audit(3, include_rows=include_rows)
    text = found.to_json(tmp_path / "audit.json")
    assert AuditResult.from_json(tmp_path / "audit.json").record == found.record
    assert AuditResult.from_json(text).record == found.record
    assert json.loads(text)["schema"] == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(schema=99), "schema 99"),
        (lambda data: data.pop("schema"), "schema None"),
        (lambda data: data["outcome"].pop("f1"), "missing entries: f1"),
        (lambda data: data["subject"].update(more=1), "unknown entries: more"),
        (lambda data: data["procedural"].update(p_value="low"), "p_value"),
    ],
)
def test_other_json_is_refused(change, message: str) -> None:
    data = example_audit().record.to_dict()
    change(data)
    with pytest.raises(InputError, match=message):
        AuditResult.from_json(json.dumps(data))


def test_damaged_json_is_refused() -> None:
    with pytest.raises(InputError, match="not the JSON"):
        AuditResult.from_json('{"schema": 1,')


def test_text_and_notebook_views() -> None:
    found = example_audit()
    assert str(found).startswith("CONCERN: ")
    assert "income" in str(found)
    assert repr(found) == (
        f"<AuditResult LogisticRegression: concern, GCIG {found.record.procedural.gcig.value:.4f}, "
        "evidence 'disparity'>"
    )
    assert "income" in found._repr_html_()


def test_model_card_is_markdown_with_escaped_names(tmp_path) -> None:
    found = example_audit()
    card = found.to_markdown(tmp_path / "card.md")
    assert (tmp_path / "card.md").read_text() == card
    assert card.startswith("## Fairness audit")
    tables = [line for line in card.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in tables[:4]}) == 1
    hostile = found.record.to_dict()
    hostile["groups"][0]["group"] = "<script>|*x*|</script>"
    escaped = AuditResult.from_json(json.dumps(hostile)).to_markdown()
    assert "<script>" not in escaped
    assert r"\|\*x\*\|" in escaped


def test_model_card_begins_with_the_result_of_a_check() -> None:
    found = example_audit()
    first, _, rest = found.to_markdown(check=found.check(max_gcig=0.0)).partition("\n\n")
    assert first.startswith("**failed: ")
    assert rest == found.to_markdown()


def test_the_page_is_written(tmp_path) -> None:
    found = example_audit(include_rows=True)
    html = found.to_html(tmp_path / "audit.html", others=[example_audit(3)], check=found.check(max_gcig=0.05))
    assert (tmp_path / "audit.html").read_text("utf-8") == html
    assert found.record.verdict.headline.split(",")[0].replace("'", "&#39;") in html


def test_check_is_on_the_record() -> None:
    assert not example_audit().check(max_gcig=0.05)
    assert example_audit().check(max_gcig=2.0, max_eo_gap=2.0)


GCIG, EO_GAP = Interval(0.04, 0.03, 0.06), Interval(0.1, 0.05, 0.2)


def record(gcig: Interval = GCIG) -> AuditRecord:
    found = example_audit().record
    return replace(
        found,
        procedural=replace(found.procedural, gcig=gcig, gcig_fixed_references=gcig),
        outcome=replace(found.outcome, eo_gap=EO_GAP),
    )


@pytest.mark.parametrize(
    ("limits", "passed"),
    [
        ({"max_gcig": 0.05}, True),
        ({"max_gcig": 0.04}, True),
        ({"max_gcig": 0.039}, False),
        ({"max_gcig": 0.05, "conservative": True}, False),
        ({"max_gcig": 0.06, "conservative": True}, True),
        ({"max_eo_gap": 0.15}, True),
        ({"max_gcig": 0.05, "max_eo_gap": 0.09}, False),
        ({"max_eo_gap": 0.15, "conservative": True}, False),
    ],
)
def test_limits(limits: dict, passed: bool) -> None:
    found = AuditResult(record()).check(**limits)
    assert found.passed is passed
    assert bool(found) is passed
    assert not found.inconclusive
    assert len(found.reasons) == len([key for key in limits if key.startswith("max")])


def test_the_reason_names_value_and_limit() -> None:
    found = AuditResult(record()).check(max_gcig=0.03)
    assert found.reasons == ("GCIG 0.0400 is above 0.03",)
    assert str(found) == "failed: GCIG 0.0400 is above 0.03"
    assert "upper limit" in AuditResult(record()).check(max_gcig=0.03, conservative=True).reasons[0]


def test_undefined_figures_are_inconclusive_unless_a_limit_is_exceeded() -> None:
    undefined = record(gcig=Interval(math.nan))
    found = AuditResult(undefined).check(max_gcig=0.05)
    assert not found.passed
    assert found.inconclusive
    assert str(found).startswith("inconclusive")
    assert not AuditResult(undefined).check(max_gcig=0.05, max_eo_gap=0.01).inconclusive


def test_a_check_needs_a_sound_limit() -> None:
    with pytest.raises(InputError, match="needs a limit"):
        AuditResult(record()).check()
    for limit in (-0.1, math.nan):
        with pytest.raises(InputError, match="at least 0"):
            AuditResult(record()).check(max_gcig=limit)
