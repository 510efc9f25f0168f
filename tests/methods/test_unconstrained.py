import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.metrics import roc_auc_score

import gcig
from gcig._validation import InputError, InputWarning
from gcig.data.encoding import TableEncoder
from gcig.methods.fairx.estimator import FairXClassifier
from gcig.methods.registry import METHODS
from gcig.methods.unconstrained import UnconstrainedClassifier
from gcig.training.loop import DivergenceError, Epoch, Outcome
from tables import QUICK, make_loans

LOANS, TEST = make_loans(), make_loans(seed=1)


def fitted(**parameters):
    return UnconstrainedClassifier(**{**QUICK, **parameters}).fit(LOANS.X, LOANS.y, **LOANS.groups)


def test_it_learns():
    model = fitted(max_epochs=10)
    assert roc_auc_score(TEST.y, model.decision_function(TEST.X)) > 0.9
    assert model.groups_ == ("female", "male")
    assert model.baselines_.shape == (2, 2, 7)


def test_it_is_fairx_without_fairness_terms():
    plain, fairx = fitted(), FairXClassifier(**QUICK, lambda_ig=0, lambda_fair=0)
    fairx.fit(LOANS.X, LOANS.y, **LOANS.groups)
    assert np.array_equal(plain.decision_function(TEST.X), fairx.decision_function(TEST.X))


def test_its_parameters_are_those_of_fairx_with_the_same_defaults():
    plain, fairx = UnconstrainedClassifier().get_params(), FairXClassifier().get_params()
    assert plain.items() <= fairx.items()
    assert fairx.keys() - plain.keys() == {
        "lambda_ig",
        "lambda_fair",
        "outcome",
        "max_gcig",
        "max_eo_gap",
        "max_auc_drop",
        "strategy",
        "references",
        "teacher",
        "definition",
        "ema_rate",
    }


def test_the_groups_do_not_change_the_network():
    swapped = LOANS.sex.map({"female": "male", "male": "female"})
    other = UnconstrainedClassifier(**QUICK, early_stopping=False).fit(
        LOANS.X, LOANS.y, sensitive_features=swapped
    )
    assert np.array_equal(
        other.decision_function(TEST.X), fitted(early_stopping=False).decision_function(TEST.X)
    )


def test_history():
    model = fitted()
    assert list(model.history_.columns) == [
        "epoch",
        "prediction",
        "total",
        "val_log_loss",
        "val_auc",
        "val_eo_gap",
    ]
    assert np.array_equal(model.history_["prediction"], model.history_["total"])
    assert model.n_epochs_ in model.history_["epoch"].tolist()


def test_groups_are_required():
    with pytest.raises(InputError, match="sensitive_features is missing"):
        UnconstrainedClassifier().fit(LOANS.X, LOANS.y)


def test_divergence_raises_an_error():
    with pytest.raises(DivergenceError, match=r"diverged in epoch 1.*as it was before fit"):
        fitted(learning_rate=1e12)


class LearnsMore(UnconstrainedClassifier):
    """A method that learns something after the network, and predicts with it."""

    def train_network(self, network, data, generator):
        outcome = super().train_network(network, data, generator)
        self.rule_ = 1
        return outcome


class Renamed(UnconstrainedClassifier):
    pass


@pytest.mark.parametrize(("method", "usable"), [(Renamed, True), (LearnsMore, False)])
def test_the_last_good_network_is_kept_only_if_it_suffices_to_predict(monkeypatch, method, usable):
    def diverge(network, *_, **__):
        raise DivergenceError("training diverged.", Outcome((Epoch(1, {"total": 1.0}, {}),), 1))

    monkeypatch.setattr("gcig.methods.unconstrained.train_fairly", diverge)
    model = method(**QUICK)
    with pytest.raises(DivergenceError, match="predicts" if usable else "as it was before fit"):
        model.fit(LOANS.X, LOANS.y, **LOANS.groups)
    assert hasattr(model, "module_") is usable
    if usable:
        assert np.isfinite(model.predict_proba(TEST.X)).all()


def test_it_is_registered():
    assert METHODS["unconstrained"].estimator is UnconstrainedClassifier
    assert METHODS["unconstrained"].search_space.keys() <= UnconstrainedClassifier().get_params().keys()


def test_a_threshold_that_is_set_later_takes_effect():
    model = fitted()
    probability = model.predict_proba(TEST.X)[:, 1]
    assert np.array_equal(model.set_params(threshold=0.9).predict(TEST.X), probability >= 0.9)
    assert model.threshold_ == 0.9
    with pytest.raises(InputError, match="threshold must be a number between 0 and 1"):
        model.set_params(threshold=1.5)
    assert (model.threshold, model.threshold_) == (0.9, 0.9)
    assert model.set_params(threshold="f1").threshold_ == 0.9  # the next fit chooses it


def test_a_row_can_be_a_dict_and_a_table_can_be_sparse_or_hold_dates():
    dated = LOANS.X.assign(opened=pd.date_range("2020-01-01", periods=len(LOANS.X)))
    model = UnconstrainedClassifier(**QUICK).fit(dated, LOANS.y, **LOANS.groups)
    assert model.encoder_.kinds_[-1] == "date"
    expected = model.predict_proba(dated[:2])
    as_dict = dated.iloc[0].to_dict() | {"opened": "2020-01-01"}
    assert np.array_equal(model.predict_proba(as_dict), expected[:1])
    assert np.array_equal(model.predict_proba(dated[:2].to_dict("records")), expected)
    rows = LOANS.numbers * (abs(LOANS.numbers) > 1)
    dense, packed = (
        UnconstrainedClassifier(**QUICK).fit(table, LOANS.y, **LOANS.groups)
        for table in (rows, sparse.csr_array(rows))
    )
    assert np.array_equal(dense.predict_proba(rows), packed.predict_proba(sparse.csr_array(rows)))


def test_an_encoder_with_options_is_copied_and_saved(tmp_path):
    encoder = TableEncoder(n_bins=4, max_levels=2)
    with pytest.warns(InputWarning, match="'job' of X has 3 categories: the 1 most frequent"):
        model = fitted(preprocessing=encoder)
    assert not hasattr(encoder, "columns_")
    assert "job=<other>" in model.encoder_.encoded_names_
    assert any(name.startswith("income:") for name in model.encoder_.encoded_names_)
    model.save(tmp_path / "model")
    again = gcig.load(tmp_path / "model")
    assert again.preprocessing.get_params() == encoder.get_params()
    assert np.array_equal(again.predict_proba(TEST.X), model.predict_proba(TEST.X))
    with pytest.raises(InputError, match="preprocessing must be one of 'table', 'binned', 'none', or a Tab"):
        fitted(preprocessing="tabel")
