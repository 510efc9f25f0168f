import math
from dataclasses import replace

import pytest

from gcig._validation import InputError
from gcig.auditing.result import check_limits
from gcig.records import AuditRecord, Interval
from support.audits import example_audit

GCIG, EO_GAP = Interval(0.04, 0.03, 0.06), Interval(0.1, 0.05, 0.2)


def record(gcig: Interval = GCIG) -> AuditRecord:
    found = example_audit().record
    return replace(
        found,
        procedural=replace(found.procedural, gcig=gcig, gcig_resampled=gcig),
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
    found = check_limits(record(), **limits)
    assert found.passed is passed
    assert bool(found) is passed
    assert not found.inconclusive
    assert len(found.reasons) == len([key for key in limits if key.startswith("max")])


def test_the_reason_names_value_and_limit() -> None:
    found = check_limits(record(), max_gcig=0.03)
    assert found.reasons == ("GCIG 0.0400 is above 0.03",)
    assert str(found) == "failed: GCIG 0.0400 is above 0.03"
    assert "upper limit" in check_limits(record(), max_gcig=0.03, conservative=True).reasons[0]


def test_undefined_figures_are_inconclusive_unless_a_limit_is_exceeded() -> None:
    undefined = record(gcig=Interval(math.nan))
    found = check_limits(undefined, max_gcig=0.05)
    assert not found.passed
    assert found.inconclusive
    assert str(found).startswith("inconclusive")
    assert not check_limits(undefined, max_gcig=0.05, max_eo_gap=0.01).inconclusive


def test_a_check_needs_a_sound_limit() -> None:
    with pytest.raises(InputError, match="needs a limit"):
        check_limits(record())
    for limit in (-0.1, math.nan):
        with pytest.raises(InputError, match="at least 0"):
            check_limits(record(), max_gcig=limit)
