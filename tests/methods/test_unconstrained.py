import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.metrics import roc_auc_score

import gcig
from example_tables import QUICK, make_loans
from gcig._arguments import InputError, InputWarning
from gcig.methods.fairx.estimator import FairXClassifier
from gcig.methods.registry import METHODS
from gcig.methods.unconstrained import UnconstrainedClassifier, UnconstrainedRegressor
from gcig.tables.encoding import TableEncoder
from gcig.training.loop import DivergenceError, Epoch, Outcome

LOANS, TEST = make_loans(), make_loans(seed=1)


def fitted(**parameters):
    return UnconstrainedClassifier(**{**QUICK, **parameters}).fit(LOANS.X, LOANS.y, **LOANS.groups)


def test_it_learns():
    model = fitted(max_epochs=10)
    assert roc_auc_score(TEST.y, model.decision_function(TEST.X)) > 0.9
    assert model.groups_ == ("female", "male")
    assert model.baselines_.shape == (2, 2, 7)


def test_its_parameters_are_those_of_fairx_with_the_same_defaults():
    plain, fairx = UnconstrainedClassifier().get_params(), FairXClassifier().get_params()
    assert plain.items() <= fairx.items()


@pytest.mark.parametrize("n_groups", [2, 3])
def test_several_classes_and_numbers(n_groups):
    loans = make_loans(300, groups=("a", "b", "c")[:n_groups])
    rank = loans.X["income"] - loans.X["debt"]
    thirds = np.array(["low", "middle", "high"])[pd.qcut(rank, 3, labels=False)]
    by_class = UnconstrainedClassifier(**QUICK).fit(loans.X, thirds, **loans.groups)
    assert by_class.predict_proba(loans.X).shape == by_class.decision_function(loans.X).shape == (300, 3)
    assert by_class.score(loans.X, thirds) > 0.7
    regressor = UnconstrainedRegressor(**QUICK).fit(loans.X, 1e5 + 1e4 * rank, **loans.groups)
    assert regressor.score(loans.X, 1e5 + 1e4 * rank) > 0.8


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
    assert list(model.history_.columns[:3]) == ["epoch", "prediction", "total"]
    assert {"val_auc", "val_log_loss", "val_f1"} <= set(model.history_.columns)
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
        self.rule_ = 1
        return super().train_network(network, data, generator)


class Renamed(UnconstrainedClassifier):
    pass


@pytest.mark.parametrize(("method", "usable"), [(Renamed, True), (LearnsMore, False)])
def test_the_last_good_network_is_kept_only_if_it_suffices_to_predict(monkeypatch, method, usable):
    def diverge(network, *_, **__):
        error = DivergenceError("training diverged.", Outcome((Epoch(1, {"total": 1.0}, {}),), 1))
        error.network = network
        raise error

    monkeypatch.setattr("gcig.methods.unconstrained.train_plainly", diverge)
    model = method(**QUICK)
    with pytest.raises(DivergenceError, match="predicts" if usable else "as it was before fit"):
        model.fit(LOANS.X, LOANS.y, **LOANS.groups)
    assert hasattr(model, "module_") is usable
    if usable:
        assert np.isfinite(model.predict_proba(TEST.X)).all()


def test_it_is_registered():
    assert METHODS["unconstrained"].estimator is UnconstrainedClassifier
    assert METHODS["unconstrained"].estimator_for("number") is UnconstrainedRegressor
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
    assert np.allclose(model.predict_proba(as_dict), expected[:1], atol=1e-6)
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
