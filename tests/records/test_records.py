import copy
import dataclasses
import json
import math
import pickle
import subprocess
import sys

import pytest

from gcig.records import Bound, Evaluation, GroupRates, Interval
from gcig.records.evaluation import Figure
from gcig.records.explanation import ColumnReason, RowExplanation

VALUES = {"base_rate": 0.5, "selection_rate": 0.4, "tpr": 0.8, "fpr": math.nan, "ppv": 1.0, "gcig": 0.1}
RATES = GroupRates("<b>f</b>", 10, VALUES)
EVALUATION = Evaluation(
    figures=(
        Figure("f1", 0.7, 0.6, 0.8, title="F1", section="utility"),
        Figure("auc", math.nan, undefined="One class only."),
        Figure("gcig", 0.25, p=0.01, chance=0.1, section="reasons"),
    ),
    n_rows=10,
    threshold=0.5,
    groups=(RATES, dataclasses.replace(RATES, group="m")),
    columns={"gcig_columns": {"age": 0.2}},
    definition={"norm": "l1", "n_steps": 4},
)


def test_json_round_trip_keeps_every_field_and_nan() -> None:
    text = EVALUATION.to_json()
    json.loads(text, parse_constant=pytest.fail)  # no NaN or Infinity literals, which JSON does not have
    back = Evaluation.from_json(text)
    assert back == EVALUATION
    assert math.isnan(back.auc)
    assert math.isnan(back.groups[0].fpr)
    assert isinstance(back.groups[1], GroupRates)
    assert back.undefined == {"auc": "One class only."}


def test_integral_json_number_becomes_float() -> None:
    data = EVALUATION.to_dict() | {"threshold": 1}
    assert isinstance(Evaluation.from_dict(data).threshold, float)


def test_figures_are_attributes_and_items() -> None:
    assert (EVALUATION.gcig, EVALUATION["f1_low"], EVALUATION.gcig_chance) == (0.25, 0.6, 0.1)
    assert EVALUATION.gcig_columns == {"age": 0.2}
    assert EVALUATION.gcig_groups == {"<b>f</b>": 0.1, "m": 0.1}
    assert "f1" in EVALUATION
    assert "f1_p" not in EVALUATION
    with pytest.raises(AttributeError, match="no figure is called 'r2'"):
        _ = EVALUATION.r2
    with pytest.raises(KeyError, match="no figure"):
        _ = EVALUATION["r2"]
    with pytest.raises(AttributeError, match="no rate"):
        _ = RATES.unknown
    assert copy.deepcopy(EVALUATION) == pickle.loads(pickle.dumps(EVALUATION)) == EVALUATION


def test_equality_sees_a_difference() -> None:
    assert dataclasses.replace(EVALUATION, n_rows=11) != EVALUATION
    assert hash(dataclasses.replace(EVALUATION)) == hash(EVALUATION)


def test_scalars_are_the_columns_of_a_results_table() -> None:
    scalars = EVALUATION.scalars()
    assert scalars["gcig"] == 0.25
    assert "groups" not in scalars
    assert "gcig_columns" not in scalars
    assert scalars["n_rows"] == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"surplus": 1}, "unknown entries: surplus"),
        ({"threshold": "0.7"}, "threshold: expected float, received str"),
        ({"collapsed": 1}, "collapsed: expected bool"),
        ({"n_rows": 1.5}, "n_rows: expected int"),
        ({"groups": [1]}, "GroupRates: expected a mapping"),
        ({"columns": {"gcig_columns": {"age": "x"}}}, "columns: expected float"),
    ],
)
def test_from_dict_refuses_what_to_dict_never_writes(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Evaluation.from_dict(EVALUATION.to_dict() | change)


def test_from_dict_names_missing_entries() -> None:
    data = EVALUATION.to_dict()
    del data["n_rows"]
    with pytest.raises(ValueError, match="missing entries: n_rows"):
        Evaluation.from_dict(data)


def test_a_value_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="definition"):
        dataclasses.replace(EVALUATION, definition={"norm": object()}).to_dict()


def test_html_escapes_names() -> None:
    html = EVALUATION._repr_html_()
    assert "&lt;b&gt;f&lt;/b&gt;" in html
    assert "<b>" not in html


def test_text_shows_numbers_groups_and_collapse() -> None:
    text = str(EVALUATION)
    assert "gcig" in text
    assert "0.2500" in text
    assert "0.6000 to 0.8000" in text
    assert "has collapsed" not in text
    assert "has collapsed" in str(dataclasses.replace(EVALUATION, collapsed=True))


def test_records_import_without_heavy_libraries() -> None:
    heavy = ("torch", "sklearn", "pandas", "numpy")
    code = f"import sys, gcig.records; sys.exit(any(name in sys.modules for name in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_wilson_intervals_at_the_limits() -> None:
    assert Interval.of_rate(0.0, 30).low == 0
    assert 0 < Interval.of_rate(0.0, 30).high < 0.15
    assert Interval.of_rate(1.0, 30).high == 1
    assert math.isnan(Interval.of_rate(math.nan, 30).value)
    assert math.isnan(Interval.of_rate(0.5, 0).value)
    assert Interval.of_rate(0.5, 100).low == pytest.approx(0.4038, abs=1e-4)


@pytest.mark.parametrize(
    ("value", "limit", "status"),
    [(0.05, 0.09, "met"), (0.05, 0.11, "cannot be shown with this many rows"), (0.12, 0.2, "not met")],
)
def test_a_bound_is_met_only_if_its_confidence_limit_is_within_it(value, limit, status):
    bound = Bound("max_eo_gap", 0.1, value=value, limit=limit, fair_limit=0.08, n_rows=900)
    assert bound.status == status
    assert bound.met == (status == "met")
    assert bound.can_be_shown
    assert Bound.from_json(bound.to_json()) == bound
    assert str(bound).startswith(f"max_eo_gap=0.1: {status} (")


@pytest.mark.parametrize(
    ("rate", "alike"), [(0.005, True), (0.006, False), (0.994, False), (0.995, True), (math.nan, False)]
)
def test_a_model_that_selects_nobody_or_everybody_decides_alike(rate, alike):
    found = dataclasses.replace(EVALUATION, decided_alike=max(rate, 1 - rate))
    assert found.decides_alike is alike
    assert found.degenerate is alike
    assert ("decides everyone alike" in repr(found)) is alike
    assert ("another threshold" in str(found)) is alike


def test_a_collapsed_model_is_degenerate_whatever_it_decides():
    found = dataclasses.replace(EVALUATION, collapsed=True)
    assert found.degenerate
    assert not found.decides_alike


@pytest.mark.parametrize(
    ("margin", "words"),
    [
        (1.0, "no single column differs by as much"),
        (0.4, "the difference in 'pay' alone is at least as large"),
        (0.1, "the difference in each of 'pay', 'age' and 'job' is at least as large"),
    ],
)
def test_columns_that_could_decide_are_named(margin, words):
    columns = tuple(
        ColumnReason(name, "1", {"f": size, "m": 0.0}, size, size)
        for name, size in (("pay", 0.5), ("age", 0.3), ("job", 0.2), ("town", 0.1))
    )
    row = RowExplanation(
        "7", 7, 0.6, 0.4, "yes", True, margin, "yes", "given", None, {"f": 0.0, "m": 0.1}, 0.2, columns
    )
    assert words in row.describe()[-1]


def test_reasons_that_do_not_differ_name_no_column():
    columns = (ColumnReason("pay", "1", {"f": 0.2, "m": 0.2001}, 0.0001, 1.0),)
    row = RowExplanation(
        "7", 7, 0.6, 0.4, "yes", True, 0.3, "yes", "given", None, {"f": 0.0, "m": 0.0}, 0.0, columns
    )
    assert row.describe()[1:] == ["The reasons hardly depend on the group: no column differs by 0.01 logits."]
