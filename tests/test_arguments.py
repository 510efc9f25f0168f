"""Arguments of measurements and losses: whatever is not accepted is an error that names the argument."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import gcig
from example_tables import QUICK, make_loans
from gcig.methods.registry import METHODS

LOANS = make_loans(120)
HOSTILE = [math.nan, math.inf, -1, -5.5, "x", b"x", 1j, (1, 2), {}, object(), pd.NA, 10**400, np.int64(-3)]
FLAGS = [None, 1, "no", math.nan, pd.NA]
SHARED = {
    "threshold": [*HOSTILE, True, 1.5],
    "definition": [*HOSTILE, 0, "", []],
    "min_cell": [*HOSTILE, None, True, 2.5],
    "n_bootstrap": [*HOSTILE, None, True, 2.5, 100_001],
    "random_state": [*HOSTILE[:-2], 1.5],
    "robustness": FLAGS,
}
OF_AUDITS = {
    "max_calls": [*HOSTILE, 0, 2.5, 2**63],
    "missing_groups": HOSTILE,
    "task": HOSTILE,
    "attribution": HOSTILE,
    "trust_pickle": FLAGS,
    "against": [*HOSTILE[:4], 1j, {}],
    "name": [3, b"x", math.nan],
}
OF_PENALTIES = {
    "norm": HOSTILE,
    "rule": HOSTILE,
    "label_weights": HOSTILE,
    "n_steps": [*HOSTILE, 0, True, 2**70, 10_001],
    "rows": [*HOSTILE, 0, True],
    "eps": [*HOSTILE, 0, True],
    "random_state": [*HOSTILE, 2**63],
    "origin": [3, "x", [0, 1, 1]],
}
OF_EXPLANATIONS = {name: SHARED[name] for name in ("threshold", "definition", "min_cell", "random_state")}
OF_EXPLANATIONS |= {
    "include_protected": FLAGS,
    "trust_pickle": FLAGS,
    "identifiers": [*HOSTILE[:7], 3],
    "name": OF_AUDITS["name"],
}
OF_EXPLANATIONS |= {"neighbours": FLAGS}
OF_COMPARISONS = {
    "methods": [3, "fairx", [], [3], {"x": 1}, math.nan],
    "parameters": [3, "x", ["fairx"], {"fairx": 3}],
    "folds": [*HOSTILE, None, 0, 1, True, 2.5, 10**9],
    "seeds": [*HOSTILE[:7], -1, [], [-1], [1.5], ["x"], [2**32]],
    "random_state": [*HOSTILE, None, True, 2**32],
    "tuning": HOSTILE,
    "n_jobs": [*HOSTILE, None, 0, True, 2.5, 10**6],
    "backend": [3, None, object()],
    "address": [3, b"x"],
    "device": [*HOSTILE[:4], "tpu", None],
    "out": [3, 1.5, object()],
    "progress": FLAGS,
    "definition": SHARED["definition"],
    "name": OF_AUDITS["name"],
}
OF_OUTCOMES = {
    "n_groups": [*HOSTILE, 0, True, 2.5],
    "width": [*HOSTILE, 0],
}


OF_REASON_GAPS = {"scale": [*HOSTILE, 0], "standards_weight": HOSTILE}
CODES = torch.arange(8)
BASELINES = gcig.GroupBaselines.from_data(torch.zeros(8, 3), CODES % 2, CODES // 2 % 2)


def pairs(wrong):
    return [
        pytest.param(name, value, id=f"{name}-{i}") for name in wrong for i, value in enumerate(wrong[name])
    ]


@pytest.fixture(scope="module")
def model():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return METHODS["unconstrained"].estimator(**QUICK).fit(LOANS.X, LOANS.y, **LOANS.groups)


@pytest.mark.parametrize(("name", "value"), pairs(SHARED))
def test_evaluations_name_the_argument(model, name, value):
    with pytest.raises(gcig.InputError, match=f"^{name} must be .*, not"):
        gcig.evaluate(model, LOANS.X, LOANS.y, **LOANS.groups, **{name: value})


@pytest.mark.parametrize(("name", "value"), pairs({**SHARED, **OF_AUDITS}))
def test_audits_name_the_argument(model, name, value):
    with pytest.raises(gcig.InputError, match=f"^{name} must be .*, not"):
        gcig.audit(model, LOANS.X, LOANS.y, **LOANS.groups, **{name: value})


@pytest.mark.parametrize(("name", "value"), pairs(OF_EXPLANATIONS))
def test_explanations_name_the_argument(model, name, value):
    with pytest.raises(gcig.InputError, match=f"^{name} must be .*, not"):
        gcig.explain(model, LOANS.X[:2], **{name: value})


@pytest.mark.parametrize(("name", "value"), pairs(OF_COMPARISONS))
def test_comparisons_name_the_argument(name, value):
    given = {"methods": ["unconstrained"], name: value}
    with pytest.raises(gcig.InputError, match=f"^{name}(:| must be| is) "):
        gcig.compare(LOANS.X, LOANS.y, **LOANS.groups, **given)


@pytest.mark.parametrize("rate", [*HOSTILE, 1.5, True])
def test_baselines_name_the_argument(rate):
    codes = torch.arange(8) % 2
    with pytest.raises(gcig.InputError) as raised:
        gcig.GroupBaselines.from_data(torch.zeros(8, 3), codes, torch.arange(8) // 2 % 2, rate=rate)
    assert raised.value.argument == "rate"


@pytest.mark.parametrize("limit", [math.nan, "x", b"x", 1j, (1, 2), {}, pd.NA, True])
def test_limits_name_the_argument(model, limit):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"n_bootstrap": 5, "min_cell": 1}  # the model was trained on few rows
        found = gcig.audit(model, LOANS.X, LOANS.y, **LOANS.groups, **options)
    with pytest.raises(gcig.InputError, match=r"^max_gcig must be a number, not"):
        found.check(max_gcig=limit)
    assert found.check(max_gcig=math.inf).passed


@pytest.mark.parametrize(("name", "value"), pairs(OF_PENALTIES))
def test_penalties_name_the_argument(name, value):
    with pytest.raises(gcig.InputError, match=f"^{name} must be .*, not"):
        gcig.GCIGPenalty(BASELINES, **{name: value})


@pytest.mark.parametrize(("name", "value"), pairs(OF_REASON_GAPS))
def test_penalties_on_the_reason_gap_name_the_argument(name, value):
    with pytest.raises(gcig.InputError, match=f"^{name} must be .*, not"):
        gcig.ReasonGapPenalty(BASELINES, **{name: value})


@pytest.mark.parametrize(("name", "value"), pairs(OF_OUTCOMES))
def test_outcome_losses_name_the_argument(name, value):
    with pytest.raises(gcig.InputError, match=f"^{name} must be .*, not"):
        gcig.EqualizedOddsLoss(**{name: value})


def test_a_text_does_not_grant_trust(tmp_path):
    torch.save(nn.Linear(3, 1), tmp_path / "model.pt")
    with pytest.raises(gcig.InputError, match="trust_pickle must be True or False, not 'false'"):
        gcig.audit(tmp_path / "model.pt", LOANS.X, LOANS.y, **LOANS.groups, trust_pickle="false")


def test_numbers_of_numpy_are_accepted(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, same = (
            gcig.evaluate(model, LOANS.X, LOANS.y, **LOANS.groups, **options)
            for options in (
                {"threshold": np.float32(0.5), "min_cell": np.int64(3), "n_bootstrap": np.int32(4)},
                {"threshold": 0.5, "min_cell": 3, "n_bootstrap": 4},
            )
        )
    assert found.eo_gap == same.eo_gap
