from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from gcig._arguments import InputError
from gcig.adapters import adapt, call_with_groups
from gcig.core.secants import Chain
from gcig.methods.unconstrained import UnconstrainedClassifier

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)


def modes(module: nn.Module) -> list[bool]:
    return [part.training for part in module.modules()]


def test_adapted_models_are_shown_in_one_line() -> None:
    linear = adapt(LogisticRegression().fit(X, Y))
    assert repr(linear) == ("<LinearModel: linear classifier, 4 columns, explained by integrated gradients>")
    tree = adapt(DecisionTreeClassifier().fit(X[:, :1], Y), X[:, :1])
    assert repr(tree) == "<BlackBoxModel: scikit-learn classifier, 1 column, explained by Shapley values>"


class TestTorch:
    def test_logit_becomes_a_probability(self) -> None:
        model = nn.Sequential(nn.Linear(4, 3), nn.SiLU(), nn.Linear(3, 1))
        adapted = adapt(model, X)
        with torch.no_grad():
            expected = torch.sigmoid(model(torch.from_numpy(X)))[:, 0].numpy()
        np.testing.assert_allclose(adapted.scores(X), expected, rtol=1e-5)
        np.testing.assert_array_equal(
            adapted.predict(X, encoded=adapted.encode(X)).decisions, expected >= 0.5
        )
        assert adapted.module(torch.from_numpy(X)).shape == (50,)
        assert adapted.columns == ("x0", "x1", "x2", "x3")
        assert adapted.baselines is None

    def test_a_flat_output_keeps_the_module_itself(self) -> None:
        model = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
        assert adapt(model, X).module is model

    def test_a_layered_network_stays_recognisable(self) -> None:
        adapted = adapt(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1)), X)
        assert Chain.recognise(adapted.module) is not None

    def test_evaluation_mode_is_used_and_every_mode_restored(self) -> None:
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
        model.train()
        model[1].eval()  # frozen by its owner
        before = modes(model)
        statistics = model[1].running_mean.clone()
        adapted = adapt(model, X)
        np.testing.assert_array_equal(adapted.scores(X), adapted.scores(X))
        assert modes(model) == before
        assert torch.equal(model[1].running_mean, statistics)

    def test_names_of_a_table_are_kept(self) -> None:
        adapted = adapt(nn.Linear(4, 1), pd.DataFrame(X, columns=list("abcd")))
        assert adapted.columns == adapted.original_names == ("a", "b", "c", "d")

    def test_rows_of_any_shape_are_flattened(self) -> None:
        images = RNG.normal(size=(6, 1, 3, 3)).astype(np.float32)
        model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(8, 1))
        adapted = adapt(model, images)
        assert adapted.encode(images).shape == (6, 9)
        assert len(adapted.columns) == 9
        with torch.no_grad():
            expected = model(torch.from_numpy(images))[:, 0].numpy()
        np.testing.assert_allclose(adapted.outputs(adapted.encode(images)), expected, rtol=1e-6)

    def test_double_precision_and_tensors_are_taken(self) -> None:
        rows = torch.from_numpy(X).double()
        adapted = adapt(nn.Linear(4, 1, dtype=torch.float64), rows)
        assert adapted.encode(rows).dtype == np.float64
        assert adapted.predict(rows, encoded=adapted.encode(rows)).decisions.shape == (50,)

    def test_several_outputs_need_a_score(self) -> None:
        model = nn.Linear(4, 2)
        with pytest.raises(InputError, match=r"gave \(2, 2\).*score="):
            adapt(model, X)
        adapted = adapt(model, X, score=lambda out: out[:, 1] - out[:, 0])
        with torch.no_grad():
            expected = torch.softmax(model(torch.from_numpy(X)), dim=1).numpy()
        np.testing.assert_allclose(adapted.scores(X), expected[:, 1], rtol=1e-4)

    def test_output_that_is_no_tensor_needs_a_score(self) -> None:
        class Pair(nn.Module):
            def forward(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                return rows.sum(1), rows

        with pytest.raises(InputError, match="gave tuple for 2 rows"):
            adapt(Pair(), X)
        assert adapt(Pair(), X, score=lambda out: out[0]).scores(X).shape == (50,)

    @pytest.mark.parametrize(
        "forward", [lambda x: x.detach().sum(1), lambda x: torch.zeros(len(x), requires_grad=True)]
    )
    def test_not_differentiable(self, forward) -> None:
        class Opaque(nn.Module):
            def forward(self, rows: torch.Tensor) -> torch.Tensor:
                return forward(rows)

        with pytest.raises(InputError, match="not differentiable"):
            adapt(Opaque(), X)

    def test_unusable_rows(self) -> None:
        table = pd.DataFrame({"age": [1.0, 2.0], "job": ["a", "b"]})
        with pytest.raises(InputError, match="job"):
            adapt(nn.Linear(2, 1), table)
        with pytest.raises(InputError, match="missing or infinite"):
            adapt(nn.Linear(4, 1), np.where(X > 1, np.nan, X))
        with pytest.raises(TypeError, match="X: a torch module"):
            adapt(nn.Linear(4, 1))


class TestLinear:
    def test_decision_function_is_exact(self) -> None:
        rows = X.astype(np.float64) + 1e9  # beyond single precision
        model = LogisticRegression().fit(rows - 1e9, np.where(Y, "yes", "no"))
        adapted = adapt(model)
        np.testing.assert_array_equal(adapted.encode(rows), rows)
        np.testing.assert_allclose(adapted.outputs(adapted.encode(rows)), model.decision_function(rows))
        np.testing.assert_array_equal(adapted.scores(X), model.predict_proba(X)[:, 1])
        np.testing.assert_array_equal(
            adapted.predict(X, encoded=adapted.encode(X)).decisions, model.predict(X) == "yes"
        )
        assert adapted.columns == ("x0", "x1", "x2", "x3")
        assert list(adapted.classes) == ["no", "yes"]

    def test_names_of_training_are_kept(self) -> None:
        table = pd.DataFrame(X, columns=list("abcd"))
        assert adapt(LogisticRegression().fit(table, Y)).columns == ("a", "b", "c", "d")

    def test_without_probabilities(self) -> None:
        model = RidgeClassifier().fit(X, Y)
        adapted = adapt(model)
        assert not adapted.probabilistic
        assert np.isnan(adapted.threshold)
        np.testing.assert_allclose(adapted.outputs(adapted.encode(X)), model.decision_function(X), atol=1e-6)

    def test_the_copy_is_independent_of_the_model(self) -> None:
        model = LogisticRegression().fit(X, Y)
        adapted = adapt(model)
        before = adapted.outputs(adapted.encode(X))
        model.coef_ *= 2
        np.testing.assert_array_equal(adapted.outputs(adapted.encode(X)), before)


class Estimator:
    """The part of a gcig estimator that adapters look at; predictions and rows depend on the group."""

    threshold_ = 0.3
    classes_ = np.array(["no", "yes"])
    groups_ = ("f", "m")
    baselines_ = torch.zeros(2, 2, 4)
    encoder_ = SimpleNamespace(
        encoded_names_=("age", "job=a", "job=b", "job=c"),
        origin_=np.array([0, 1, 1, 1]),
        feature_names_in_=("age", "job"),
    )

    def __init__(self, score=None) -> None:
        self.explained_score = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)) if score is None else score

    def encode(self, X, *, sensitive_features):
        return np.asarray(X) + (np.asarray(sensitive_features) == "m")[:, None]

    def predict(self, X, *, sensitive_features=None):
        return np.where(np.asarray(sensitive_features)[: len(X)] == "m", "yes", "no")

    def predict_proba(self, X):
        return np.full((len(X), 2), 0.5)


class TestGcig:
    def test_attributes_are_read(self) -> None:
        model = Estimator()
        adapted = adapt(model)
        assert adapted.module is model.explained_score
        assert adapted.columns == ("age", "job=a", "job=b", "job=c")
        assert adapted.original_names == ("age", "job")
        assert adapted.origin.tolist() == [0, 1, 1, 1]
        assert adapted.groups == ("f", "m")
        assert adapted.baselines.shape == (2, 2, 4)
        assert adapted.threshold == 0.3

    def test_groups_are_passed_to_methods_that_take_them(self) -> None:
        adapted = adapt(Estimator())
        groups = np.array(["f", "m"] * 25)
        np.testing.assert_array_equal(
            adapted.predict(X, groups, encoded=adapted.encode(X, groups)).decisions, [0, 1] * 25
        )
        np.testing.assert_array_equal(adapted.encode(X, groups)[1::2], X[1::2] + 1)
        assert adapted.scores(X, groups).shape == (50,)

    def test_score_may_be_a_function(self) -> None:
        adapted = adapt(Estimator(score=lambda rows: rows.sum(1)))
        np.testing.assert_allclose(adapted.outputs(X), X.sum(axis=1), rtol=1e-5)

    def test_unfitted(self) -> None:
        class Unfitted:
            def encode(self, X):
                return X

            @property
            def explained_score(self):
                raise NotFittedError("not fitted")

        with pytest.raises(InputError, match="this Unfitted is not fitted"):
            adapt(Unfitted())


def test_other_models_are_refused_with_a_list_of_accepted_ones() -> None:
    with pytest.raises(TypeError, match=r"a dict gives no probabilities.*Accepted are"):
        adapt({})
    with pytest.raises(TypeError, match="LogisticRegression is not fitted"):
        adapt(LogisticRegression())
    with pytest.raises(TypeError, match="Pass the rows"):
        adapt(DecisionTreeClassifier().fit(X, Y))


def test_call_with_groups() -> None:
    assert call_with_groups(lambda X: X, 1, "g") == 1
    assert call_with_groups(lambda X, sensitive_features: (X, sensitive_features), 1, "g") == (1, "g")


class TestEncodedRows:
    """Rows that are encoded already are not encoded again."""

    @pytest.fixture
    def fitted(self) -> UnconstrainedClassifier:
        model = UnconstrainedClassifier(max_epochs=2, random_state=0)
        return model.fit(X, Y, sensitive_features=RNG.choice(["f", "m"], len(X)))

    def test_scores_and_decisions_come_from_the_encoded_rows(self, fitted) -> None:
        adapted = adapt(fitted)
        outputs = adapted.predict(None, encoded=adapted.encode(X))
        np.testing.assert_array_equal(outputs.scores, fitted.predict_proba(X)[:, 1])
        np.testing.assert_array_equal(outputs.decisions, fitted.predict(X))

    def test_a_subclass_with_its_own_predict_is_called(self, fitted) -> None:
        class Strict(UnconstrainedClassifier):
            def predict(self, X):
                return np.zeros(len(X), dtype=int)

        model = Strict()
        vars(model).update(vars(fitted))
        adapted = adapt(model)
        assert adapted.predict(X, encoded=adapted.encode(X)).decisions.max() == 0
