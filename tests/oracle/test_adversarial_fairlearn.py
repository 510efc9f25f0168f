"""Adversarial debiasing beside Fairlearn's: on the same rows, both make error rates more equal.

Outcomes are compared, not parameters: in Fairlearn 0.15 the projection is not over all parameters at once,
and `random_state` has no effect on torch (the number it draws, between 0 and 1, becomes the seed 0).
"""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import gcig
from gcig.methods.adversarial import AdversarialClassifier
from gcig.methods.unconstrained import UnconstrainedClassifier
from gcig.metrics import equalized_odds_gap
from gcig.tables.encoding import TableEncoder
from gcig.tables.splitting import hold_out

adversarial = pytest.importorskip("fairlearn.adversarial")


def fairlearn_predictions(X, y, groups, X_test):
    encoder = TableEncoder().fit(X)
    model = adversarial.AdversarialFairnessClassifier(
        backend="torch",
        predictor_model=[64, "relu", 32, "relu"],
        adversary_model=[8, "relu"],
        constraints="equalized_odds",
        epochs=20,
        batch_size=128,
        learning_rate=2e-3,
        alpha=1.0,
        shuffle=True,
        random_state=0,
    )
    with torch.random.fork_rng(devices=[]):  # Fairlearn seeds torch's own generator
        model.fit(encoder.transform(X), y.to_numpy(), sensitive_features=groups.to_numpy())
    return np.asarray(model.predict(encoder.transform(X_test))).ravel()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:fairlearn")
def test_both_close_most_of_the_gap_on_the_same_rows():
    data = gcig.load_dataset("compas")
    train, test = hold_out(data.y, data.sensitive_features, fraction=0.3)
    X, y, groups = (part.iloc[train] for part in (data.X, data.y, data.sensitive_features))
    X_test, y_test, groups_test = (part.iloc[test] for part in (data.X, data.y, data.sensitive_features))

    def gap(predictions):
        return equalized_odds_gap(y_test, predictions, sensitive_features=groups_test)

    plain, ours = (
        method(random_state=0, device="cpu").fit(X, y, sensitive_features=groups)
        for method in (UnconstrainedClassifier, AdversarialClassifier)
    )
    theirs = fairlearn_predictions(X, y, groups, X_test)
    assert gap(plain.predict(X_test)) > 0.3
    assert gap(theirs) < 0.5 * gap(plain.predict(X_test))
    assert gap(ours.predict(X_test)) < 0.5 * gap(plain.predict(X_test))
    # Not bought with predictions that are of no use.
    assert (ours.predict(X_test) == y_test).mean() > (theirs == y_test).mean() - 0.02
    assert roc_auc_score(y_test, ours.decision_function(X_test)) > 0.72
