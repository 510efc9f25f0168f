"""The purpose of FairX: reasons that depend less on the group, at hardly any cost."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import gcig
from gcig.methods.fairx.estimator import FairXClassifier
from tables import make_loans

LOANS, TEST = make_loans(600), make_loans(2000, seed=1)
SHORT = {
    "max_epochs": 30,
    "batch_size": 128,
    "hidden_sizes": (16, 8),
    "learning_rate": 0.01,
    "device": "cpu",
    "random_state": 0,
}


def quality(model, columns="original"):
    """Return AUC and GCIG on rows that the model has not seen."""
    found = model.explain(TEST.X, TEST.y, columns=columns)
    return roc_auc_score(TEST.y, model.decision_function(TEST.X)), float(np.nanmean(found.disparity))


@pytest.fixture(scope="module")
def models():
    fair = FairXClassifier(**SHORT, lambda_fair=0.0)
    plain = FairXClassifier(**SHORT, lambda_ig=0.0, lambda_fair=0.0)
    return [model.fit(LOANS.X, LOANS.y, **LOANS.groups) for model in (fair, plain)]


@pytest.mark.parametrize("columns", ["original", "raw"])
def test_gcig_falls_within_two_hundredths_of_the_plain_auc(models, columns):
    (auc, gcig_left), (plain_auc, plain_gcig) = (quality(model, columns) for model in models)
    assert auc > plain_auc - 0.02
    assert gcig_left < 0.6 * plain_gcig


def test_validation_agrees(models):
    fair, _ = models
    before, after = fair.plain_, fair.validation_
    assert after["gcig"] < 0.6 * before["gcig"]
    assert after["gcig_members"] < 0.9 * before["gcig_members"]
    assert after["auc"] > before["auc"] - 0.03
    assert after["columns"] > 0.5 * before["columns"]
    assert after["reference_offset"] < before["reference_offset"] + 0.15


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_effective_columns_of_compas_stay_above_half(seed):
    data = gcig.load_dataset("compas-paper")
    model = FairXClassifier(random_state=seed, device="cpu")
    model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    changes: pd.DataFrame = model.changes_
    assert not model.changed_columns_
    assert changes.loc["columns", "after"] > 0.5 * changes.loc["columns", "before"]
    assert changes.loc["gcig", "after"] < 0.5 * changes.loc["gcig", "before"]
    assert changes.loc["auc", "after"] > changes.loc["auc", "before"] - 0.02
