import math
import pickle
import warnings
from dataclasses import replace

import pytest
import torch

from gcig.methods.fairx.guards import (
    BoundWarning,
    CollapseWarning,
    ReasonsWarning,
    ThresholdWarning,
    Verdict,
    columns_changed,
    heaviest_term,
    inspect_predictions,
    warn_of_attribute,
    warn_of_bound,
    warn_of_collapse,
    warn_of_columns,
    warn_of_limits,
    warn_of_reasons,
    warn_of_threshold,
    warn_of_unshowable,
)
from gcig.records.trade_off import Bound
from gcig.training.loop import Epoch

LABELS = torch.tensor([0, 1] * 500)
GOOD = LABELS * 2.0 - 1 + 0.1 * torch.arange(1000) / 1000


def test_a_model_that_predicts_has_not_collapsed():
    verdict = inspect_predictions(GOOD, LABELS)
    assert verdict == Verdict(auc=1.0, share=0.5)
    assert not verdict.collapsed
    assert not verdict.decides_alike


@pytest.mark.parametrize(
    "scores",
    [
        torch.zeros(1000),
        -GOOD,
        torch.rand(1000, generator=torch.Generator().manual_seed(0)),
    ],
    ids=["constant", "upside down", "random"],
)
def test_a_model_that_does_not_rank_has_collapsed(scores):
    assert inspect_predictions(scores, LABELS).collapsed


@pytest.mark.parametrize("shift", [-5, 5])
def test_a_model_that_ranks_but_decides_everyone_alike_has_not_collapsed(shift):
    verdict = inspect_predictions(GOOD + shift, LABELS)
    assert verdict.decides_alike
    assert not verdict.collapsed


def test_another_threshold_is_suggested_in_fields():
    with pytest.warns(ThresholdWarning, match=r"ranks \(AUC 0\.840\).*99\.8%.*'f1' \(here 0\.86\)") as caught:
        warn_of_threshold({"auc": 0.84, "decided_alike": 0.998}, 0.5, 0.86, "lambda_fair=9")
    warning = caught[0].message
    assert (warning.threshold, warning.suggested) == (0.5, 0.86)
    assert "or lower lambda_fair=9" in str(warning)
    assert str(pickle.loads(pickle.dumps(warning))) == str(warning)


def test_the_share_is_that_of_decisions_at_the_cut():
    shifted = GOOD - 5
    assert inspect_predictions(shifted, LABELS).share == 1.0
    assert inspect_predictions(shifted, LABELS, cut=-5.0).share == 0.5


def test_columns_change_by_more_than_a_factor_of_two():
    assert columns_changed(3.9, 8.0)
    assert columns_changed(16.1, 8.0)
    assert not columns_changed(4.1, 8.0)
    assert not columns_changed(15.9, 8.0)
    assert not columns_changed(math.nan, 8.0)


def test_the_heaviest_term_is_that_of_all_epochs_not_of_the_last():
    history = [Epoch(1, {"gcig": 0.5, "outcome": 0.1}, {}), Epoch(2, {"gcig": 0.0, "outcome": 0.2}, {})]
    weights = {"gcig": ("lambda_ig=1", 1.0), "outcome": ("lambda_fair=1", 1.0)}
    assert heaviest_term(weights, history) == "lambda_ig=1"
    assert heaviest_term({**weights, "gcig": ("lambda_ig=0", 0.0)}, history) == "lambda_fair=1"
    none = {"gcig": ("lambda_ig=0", 0.0), "outcome": ("lambda_fair=0", 0.0)}
    assert heaviest_term(none, history) == ""


@pytest.mark.parametrize(
    ("heaviest", "plain", "cause"),
    [
        ("lambda_ig=9", {"auc": 0.9}, r"lambda_ig=9 is too high.*without fairness.*0\.900\): lower"),
        ("lambda_ig=9", {}, r"lambda_ig=9 is too high .*too few epochs.*strategy='distil'"),
        ("lambda_ig=9", {"auc": 0.52}, "no better: the columns"),
        ("", {}, "No fairness term has a weight: the columns say little"),
    ],
)
def test_a_collapse_is_attributed_to_its_cause(heaviest, plain, cause):
    with pytest.warns(CollapseWarning, match=rf"collapsed: .*\(AUC 0\.500\)\. .*{cause}"):
        warn_of_collapse(Verdict(0.5, 0.6), heaviest, plain)


def test_other_warnings_name_the_values():
    with pytest.warns(CollapseWarning, match=r"2\.0 effective columns.*fairness terms 8\.0.*now 0\.5"):
        warn_of_columns(2.0, 8.0, 0.5)
    bound = Bound("max_gcig", 0.05, value=0.07, limit=0.08, fair_limit=0.0, n_rows=900)
    with pytest.warns(BoundWarning, match=r"max_gcig=0\.05 was not met.*0\.0700.*AUC of 0\.800") as caught:
        warn_of_bound(bound, 0.8)
    assert caught[0].message.bound is bound
    with pytest.warns(BoundWarning, match=r"cannot be shown to hold.*limit of 0\.0800.*more rows"):
        warn_of_bound(replace(bound, bound=0.075), 0.8)
    with pytest.warns(BoundWarning, match=r"network without fairness terms was kept.*max_auc_drop=0\.013"):
        warn_of_limits(0.013)


REASONS = {"reference_offset": 0.1, "faithfulness": 0.9, "attribute_effect": 0.05}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("reference_offset", 0.26, r"no longer typical.*0\.10 before, 0\.26 now.*Lower lambda_ig"),
        ("faithfulness", 0.74, r"permutation importance: 0\.90 before, 0\.74 now.*lower lambda_ig"),
        ("attribute_effect", 0.056, r"protected attribute.*5\.0% before, 5\.6% now.*Drop the attribute"),
    ],
)
def test_reasons_that_cannot_be_trusted_give_a_warning(name, value, message):
    trained = REASONS | {name: value}
    with pytest.warns(ReasonsWarning, match=message) as caught:
        _ = warn_of_reasons(REASONS, trained, 20), warn_of_attribute(REASONS, trained, 1000)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_small_changes_of_reasons_give_no_warning():
    small = {"reference_offset": 0.24, "faithfulness": 0.76, "attribute_effect": 0.054}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_reasons(REASONS, small, n_columns=20)
        warn_of_attribute(REASONS, small, n_rows=1000)
        warn_of_reasons(REASONS, dict.fromkeys(REASONS, math.nan), n_columns=20)
        warn_of_attribute(REASONS, dict.fromkeys(REASONS, math.nan), n_rows=1000)
        warn_of_reasons(REASONS, REASONS | {"faithfulness": 0.7}, n_columns=5)  # two swapped ranks
        warn_of_attribute(REASONS, REASONS | {"attribute_effect": 0.06}, n_rows=100)  # one row
    assert not caught


def test_warnings_point_to_the_caller():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_bound(Bound("max_gcig", 0.05, 0.07, 0.08), 0.8)
        warn_of_columns(2.0, 8.0, 0.5)
        warn_of_collapse(Verdict(0.5, 1.0), "", {})
    assert {warning.filename for warning in caught} == {__file__}


def test_a_bound_below_the_noise_floor_is_named_before_training():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_unshowable(0.1, fair_limit=0.08, n_rows=900)
    with pytest.warns(BoundWarning, match=r"max_eo_gap=0\.05 is below what 900 .*0\.080") as caught:
        warn_of_unshowable(0.05, fair_limit=0.08, n_rows=900)
    bound = caught[0].message.bound
    assert (bound.bound, bound.fair_limit, bound.can_be_shown) == (0.05, 0.08, False)
    assert str(pickle.loads(pickle.dumps(caught[0].message))) == str(caught[0].message)
