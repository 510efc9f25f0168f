import math
import warnings
from itertools import pairwise

import numpy as np
import pytest

import gcig
from gcig._validation import InputError
from gcig.methods.fairx.tradeoff import family_weights
from gcig.records.trade_off import TradeOffRecord
from tables import QUICK, make_loans

LOANS, TEST = make_loans(900), make_loans(600, seed=1)


@pytest.fixture(scope="module")
def family():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = gcig.FairXClassifier(**QUICK)
        return model.path(LOANS.X, LOANS.y, **LOANS.groups)


@pytest.mark.slow
def test_the_plain_network_comes_first_and_the_others_follow_by_auc(family):
    assert 2 <= len(family.models) <= 10
    assert family.models[0].weights_ == {"gcig": 0.0, "outcome": 0.0}
    lost = [model.validation_["auc_lost"] for model in family.models]
    assert lost == sorted(lost)
    assert family.record.points[0].gained == family.record.points[0].lost == 0


@pytest.mark.slow
def test_figures_are_those_of_evaluate(family):
    measured = family.measure(TEST.X, TEST.y, **TEST.groups)
    for point, model in zip(measured.record.points, measured.models, strict=True):
        found = gcig.evaluate(model, TEST.X, TEST.y, **TEST.groups, n_bootstrap=0)
        assert point.evaluation.auc == pytest.approx(found.auc, abs=1e-6)
        assert point.evaluation.f1 == pytest.approx(found.f1)
        assert point.gap == pytest.approx(found.eo_gap)
        assert point.evaluation.gcig == pytest.approx(found.gcig, rel=1e-2)  # the tolerance of few nodes
        assert point.gap < point.gap_limit
        assert point.evaluation.gcig < point.gcig_limit
        plain = measured.models[0].predict(TEST.X)
        changed = np.mean(model.predict(TEST.X) != plain)
        assert point.gained + point.lost == pytest.approx(changed)
        assert measured.record.changes[0][point.number] == pytest.approx(changed)


@pytest.mark.slow
def test_select_returns_the_best_model_within_the_limits(family):
    frame = family.frame
    bound = float(frame["gcig_limit"].median())
    chosen = family.select(max_gcig=bound)
    within = frame[frame["gcig_limit"] <= bound]
    assert chosen is family.models[int(within.loc[within["auc"].idxmax(), "model"])]
    with pytest.raises(InputError, match=r"max_eo_gap=0\.0001 with confidence.*nearest is model \d"):
        family.select(max_eo_gap=1e-4)
    with pytest.raises(InputError, match="needs a bound"):
        family.select()


@pytest.mark.slow
def test_every_model_can_be_saved_and_used(family, tmp_path):
    family.save(tmp_path / "family")
    for number, model in enumerate(family.models):
        loaded = gcig.load(tmp_path / "family" / "models" / str(number))
        assert (loaded.predict(TEST.X) == model.predict(TEST.X)).all()
        assert loaded.weights_ == model.weights_
    record = TradeOffRecord.from_json((tmp_path / "family" / "tradeoff.json").read_text())
    assert record == family.record
    page = (tmp_path / "family" / "tradeoff.html").read_text()
    assert all(f'id="model-{number}"' in page for number in range(len(family.models)))
    assert family.plot().svg.count("<a ") >= 2 * len(family.models)


def test_neighbours_in_the_walk_differ_in_one_weight():
    walk = family_weights(0.1, 0.05)
    assert len(walk) == 9
    for before, after in pairwise(walk):
        assert sum(before[term] != after[term] for term in before) == 1


def test_a_family_needs_held_out_rows():
    with pytest.raises(InputError, match="measured on a held-out set"):
        gcig.FairXClassifier(strategy="paper").path(LOANS.X, LOANS.y, **LOANS.groups)


@pytest.mark.slow
def test_the_estimator_itself_is_not_fitted(family):
    assert not math.isnan(family.record.fair_limit)
    assert "TradeOff of" in repr(family)
    model = gcig.FairXClassifier(**QUICK)
    assert not hasattr(model, "module_")
