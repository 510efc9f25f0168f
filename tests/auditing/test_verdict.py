import math
from dataclasses import replace

import pytest

from gcig.auditing.figures import judge_evidence
from gcig.auditing.verdict import members_status, outcome_status, reasons_status, write_verdict
from gcig.records import Interval, Robustness
from support.audits import example_audit

RECORD = example_audit().record
EVEN = replace(
    RECORD.outcome,
    selection_rate_ratio=Interval(0.95, 0.9, 1.0),
    eo_gap=Interval(0.03, 0.01, 0.06),
    eo_noise_floor=0.02,
    collapsed=False,
)

MEANS_ONLY = replace(RECORD.procedural, gcig_members=Interval(math.nan))


@pytest.mark.parametrize(
    ("p_value", "excess", "evidence", "status"),
    [
        (0.005, Interval(0.2, 0.15, 0.25), "disparity", "concern"),
        (0.05, Interval(0.06, 0.04, 0.08), "disparity", "concern"),
        (0.005, Interval(0.02, 0.01, 0.03), "disparity", "clear"),  # certain, and small
        (0.005, Interval(0.04, 0.01, 0.07), "disparity", "inconclusive"),
        (0.3, Interval(0.001, -0.02, 0.02), "none", "clear"),
        (0.3, Interval(0.05, -0.1, 0.2), "not enough", "inconclusive"),
        (math.nan, Interval(math.nan), "not enough", "inconclusive"),
    ],
)
def test_evidence_and_status_of_reasons(p_value, excess, evidence, status) -> None:
    evident = judge_evidence(p_value, excess, Interval(0.1, 0.08, 0.12))
    found = replace(MEANS_ONLY, p_value=p_value, excess=excess, evidence=evident)
    assert found.evidence == evidence
    assert reasons_status(found) == status


@pytest.mark.parametrize(
    ("members", "of_members", "status"),
    [
        (Interval(0.01, 0.0, 0.04), "clear", "clear"),
        (Interval(0.03, 0.0, 0.07), "inconclusive", "clear"),
        (Interval(0.06, 0.03, 0.09), "inconclusive", "inconclusive"),
        (Interval(0.1, 0.06, 0.14), "concern", "concern"),
        (Interval(math.nan), "inconclusive", "clear"),
    ],
)
def test_reasons_are_not_clear_if_members_disagree_with_the_mean(members, of_members, status) -> None:
    small = replace(RECORD.procedural, p_value=0.005, excess=Interval(0.02, 0.01, 0.03), evidence="disparity")
    found = replace(small, gcig_members=members)
    assert members_status(found) == of_members
    assert reasons_status(found) == status
    verdict = write_verdict(replace(RECORD, procedural=found, outcome=EVEN))
    assert (verdict.reasons, verdict.members) == (status, of_members)
    disagreed = any("does not hold relative to the people" in line for line in verdict.findings)
    assert disagreed == (members.value >= 0.05)


def test_reasons_are_not_clear_if_the_conclusion_depends_on_the_reference() -> None:
    found = replace(MEANS_ONLY, p_value=0.3, excess=Interval(0.001, -0.02, 0.02), evidence="none")
    for agrees, status in ((True, "clear"), (False, "inconclusive")):
        robustness = Robustness((), agrees, "A sentence on references.")
        assert reasons_status(found, robustness) == status
        verdict = write_verdict(replace(RECORD, procedural=found, robustness=robustness))
        assert "A sentence on references." in verdict.findings
        assert verdict.reasons == status


def test_no_difference_requires_enough_power() -> None:
    excess = Interval(-0.06, -0.1, -0.02)
    assert judge_evidence(0.8, excess, Interval(0.2, 0.18, 0.22)) == "none"
    assert judge_evidence(0.8, excess, Interval(0.2, 0.1, 0.3)) == "not enough"
    unsure = replace(MEANS_ONLY, p_value=0.8, excess=excess, evidence="not enough")
    assert reasons_status(unsure) == "inconclusive"
    shown = replace(unsure, gcig_members=Interval(0.2, 0.1, 0.3))  # the headline agrees with the details
    headline = write_verdict(replace(RECORD, procedural=shown, outcome=EVEN)).headline
    assert headline.startswith("The model's reasons depend on the group relative to its members, but there")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "clear"),
        ({"selection_rate_ratio": Interval(0.6, 0.5, 0.7)}, "concern"),
        ({"selection_rate_ratio": Interval(0.75, 0.6, 0.9)}, "inconclusive"),
        ({"eo_gap": Interval(0.3, 0.2, 0.4)}, "concern"),
        ({"eo_gap": Interval(0.3, 0.01, 0.6)}, "inconclusive"),
        ({"eo_gap": Interval(0.3, 0.2, 0.34), "eo_noise_floor": 0.25}, "clear"),  # chance explains it
        ({"eo_gap": Interval(0.05, 0.0, 0.15)}, "inconclusive"),  # a material gap is not excluded
        ({"selection_rate_ratio": Interval(0.85, 0.7, 1.0)}, "inconclusive"),
        ({"eo_gap": Interval(math.nan)}, "inconclusive"),
        ({"collapsed": True}, "inconclusive"),
    ],
)
def test_status_of_outcomes(changes, status) -> None:
    assert outcome_status(replace(EVEN, **changes)) == status


def test_a_ratio_whose_interval_includes_values_below_four_fifths_is_described_as_such() -> None:
    unsure = replace(EVEN, selection_rate_ratio=Interval(0.85, 0.7, 1.0))
    findings = " ".join(write_verdict(replace(RECORD, outcome=unsure)).findings)
    assert "meets four fifths in this sample; the interval includes values below." in findings


def test_the_more_serious_question_gives_the_status() -> None:
    quiet = replace(MEANS_ONLY, p_value=0.5, excess=Interval(0.0, -0.01, 0.01), evidence="none")
    for procedural, outcome, status in (
        (quiet, EVEN, "clear"),
        (RECORD.procedural, EVEN, "concern"),
        (quiet, replace(EVEN, selection_rate_ratio=Interval(0.5, 0.4, 0.6)), "concern"),
        (quiet, replace(EVEN, collapsed=True), "inconclusive"),
    ):
        verdict = write_verdict(replace(RECORD, outcome=outcome, procedural=procedural))
        assert verdict.status == status
        assert verdict.headline.endswith(".")
        assert status in (verdict.reasons, verdict.decisions)
    unequal = replace(EVEN, selection_rate_ratio=Interval(0.5, 0.4, 0.6))
    verdict = write_verdict(replace(RECORD, outcome=unequal, procedural=quiet))
    assert ", but its decisions differ" in verdict.headline
    assert (verdict.reasons, verdict.decisions) == ("clear", "concern")


def test_findings_name_the_driving_column_and_the_groups() -> None:
    text = " ".join(RECORD.verdict.findings)
    assert "'income'" in text
    assert "'group 0'" in text
    assert "four fifths" in text


def test_cautions() -> None:
    narrow = replace(
        RECORD.procedural,
        effective_columns=1.2,
        undefined_rows=3,
        clipped=0.4,
        standard_error=0.2,
        sampled_rows=1234,
    )
    verdict = write_verdict(
        replace(
            RECORD,
            subject=replace(RECORD.subject, explanation="Shapley values"),
            outcome=replace(RECORD.outcome, collapsed=True),
            groups=(*RECORD.groups, replace(RECORD.groups[0], group="tiny", n_rows=None)),
            procedural=narrow,
            min_cell=7,
            suppressed_cells=("label 1 in group 'tiny'",),
            proxy_columns=("code",),
        )
    )
    text = " ".join(verdict.cautions)
    for words in (
        "1.2 columns",
        "'tiny'",
        "3 rows",
        "40 %",
        "standard error",
        "ranks rows hardly better than chance",
        "fewer than 7 rows",
        "label 1 in group 'tiny'",
        "sample of 1,234 rows",
        "from column 'code'",
    ):
        assert words in text, words
    assert "'tiny'" not in " ".join(RECORD.verdict.cautions)


def test_undefined_gcig_is_explained() -> None:
    found = replace(RECORD.procedural, gcig=Interval(math.nan), excess=Interval(math.nan), p_value=math.nan)
    found = replace(found, evidence="not enough")
    verdict = write_verdict(replace(RECORD, outcome=EVEN, procedural=found))
    assert verdict.status == "inconclusive"
    assert "gives no reasons" in verdict.findings[0]
    alone = replace(RECORD, outcome=EVEN, procedural=replace(found, compared_groups=("group 0",)))
    assert "fewer than two groups have 11 rows" in write_verdict(alone).findings[0]


def test_equal_rates_for_lack_of_decisions_are_not_clear():
    alike = replace(EVEN, decides_alike=True)
    assert outcome_status(EVEN) == "clear"
    assert outcome_status(alike) == "inconclusive"
    cautions = write_verdict(replace(RECORD, outcome=replace(RECORD.outcome, decides_alike=True))).cautions
    assert any("everyone alike at its threshold" in line and "another threshold" in line for line in cautions)
