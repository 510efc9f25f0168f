import math
from functools import wraps
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn

import gcig
from gcig._arguments import InputError, InputWarning
from gcig.core.definition import Definition
from gcig.methods.registry import METHODS
from gcig.methods.unconstrained import UnconstrainedClassifier
from gcig.metrics import evaluate, evaluate_predictions, gcig_score
from gcig.records import Evaluation


@pytest.fixture
def sample() -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], 400)
    X = pd.DataFrame(
        rng.normal(size=(400, 3)) + np.outer(sex == "m", [0.8, 0, 0]), columns=["age", "pay", "job"]
    )
    y = (X.sum(axis=1) + rng.normal(size=400) > 0.4).astype(int).to_numpy()
    return X, y, sex


def gcig_by_hand(model, X, y, groups, reference=None) -> np.ndarray:
    """Disparity of each row for two groups and a linear model, whose attributions are (x - b) w."""
    names = np.unique(groups)
    X, (bx, by, bg) = np.asarray(X), (X, y, groups) if reference is None else reference
    bx = np.asarray(bx)
    baselines = np.array([[bx[(by == label) & (bg == g)].mean(axis=0) for label in (0, 1)] for g in names])
    raw = (X - baselines[:, y]) * model.coef_[0]
    unit = raw / np.abs(raw).sum(axis=2, keepdims=True)
    return np.sqrt(((unit[0] - unit[1]) ** 2).sum(axis=1))


def test_linear_model_matches_brute_force(sample) -> None:
    X, y, sex = sample
    model = LogisticRegression().fit(X, y)
    rows = gcig_by_hand(model, X, y, sex)
    result = evaluate(model, X, y, sensitive_features=sex)
    assert result.gcig == pytest.approx(rows.mean())
    assert gcig_score(model, X, y, sensitive_features=sex) == pytest.approx(rows.mean())
    assert result.gcig_groups == pytest.approx({g: rows[sex == g].mean() for g in ("f", "m")})
    assert result.undefined_rows == 0
    assert result.completeness < 1e-10
    assert list(result.gcig_columns) == ["age", "pay", "job"]
    assert max(result.gcig_columns, key=result.gcig_columns.__getitem__) == "age"
    assert 1 < result.effective_columns <= 3


def test_record_survives_json(sample) -> None:
    X, y, sex = sample
    result = evaluate(LogisticRegression().fit(X, y), X, y, sensitive_features=sex, n_bootstrap=10)
    assert Evaluation.from_json(result.to_json()) == result
    assert result.definition["norm"] == "l1"


def test_definition_determines_gcig(sample) -> None:
    X, y, sex = sample
    model = LogisticRegression().fit(X, y)
    plain = evaluate(model, X, y, sensitive_features=sex, n_bootstrap=0)
    l2 = evaluate(model, X, y, sensitive_features=sex, definition=Definition(norm="l2"), n_bootstrap=0)
    assert l2.gcig == l2.gcig_l2 == pytest.approx(plain.gcig_l2)
    assert l2.gcig != plain.gcig
    rows = gcig_by_hand(model, X, y, sex)
    means = [rows[y == label].mean() for label in (0, 1)]
    for weights, expected in (("equal", np.mean(means)), ("sum", np.sum(means))):
        score = gcig_score(model, X, y, sensitive_features=sex, definition=Definition(label_weights=weights))
        assert score == pytest.approx(expected)


def test_weights_are_repeated_rows(sample) -> None:
    X, y, sex = sample
    model = LogisticRegression().fit(X, y)
    w = np.random.default_rng(1).integers(1, 4, 400)
    rows = np.repeat(np.arange(400), w)
    reference = (X, y, sex)
    weighted = evaluate(
        model, X, y, sensitive_features=sex, sample_weight=w, reference=reference, n_bootstrap=0
    )
    repeated = evaluate(
        model, X.iloc[rows], y[rows], sensitive_features=sex[rows], reference=reference, n_bootstrap=0
    )
    for name in ("gcig", "gcig_l2", "auc", "eo_gap", "f1"):
        assert getattr(weighted, name) == pytest.approx(getattr(repeated, name)), name
    assert weighted.gcig_columns == pytest.approx(repeated.gcig_columns)


def test_reference_gives_the_baselines(sample) -> None:
    X, y, sex = sample
    model = LogisticRegression().fit(X, y)
    reference = (X[:250], y[:250], sex[:250])
    rows = gcig_by_hand(model, X[250:], y[250:], sex[250:], (X[:250].to_numpy(), y[:250], sex[:250]))
    score = gcig_score(model, X[250:], y[250:], sensitive_features=sex[250:], reference=reference)
    assert score == pytest.approx(rows.mean())


def test_group_that_the_reference_lacks_is_an_error(sample) -> None:
    X, y, sex = sample
    model = LogisticRegression().fit(X, y)
    other = np.where(np.arange(400) < 3, "x", sex)
    with pytest.raises(InputError, match="'x'"):
        gcig_score(model, X, y, sensitive_features=other, reference=(X, y, sex))
    with pytest.raises(InputError, match="tuple"):
        gcig_score(model, X, y, sensitive_features=sex, reference=(X, y))  # type: ignore[arg-type]


def test_gcig_of_a_constant_model_is_nan_and_says_why(sample) -> None:
    X, y, sex = sample
    model = nn.Linear(3, 1)
    nn.init.zeros_(model.weight)
    with pytest.warns(UndefinedMetricWarning, match="No figure about reasons"):
        assert math.isnan(gcig_score(model, X, y, sensitive_features=sex))


def test_classes_of_the_model_or_codes(sample) -> None:
    X, y, sex = sample
    names = np.array(["no", "yes"])[y]
    model = LogisticRegression().fit(X, names)
    by_name = evaluate(model, X, names, sensitive_features=sex, n_bootstrap=0)
    assert evaluate(model, X, y, sensitive_features=sex, n_bootstrap=0) == by_name
    with pytest.raises(InputError, match="'maybe'"):
        evaluate(model, X, np.where(y == 1, "maybe", "no"), sensitive_features=sex)


def test_threshold_replaces_the_decision_rule(sample) -> None:
    X, y, sex = sample
    model = LogisticRegression().fit(X, y)
    result = evaluate(model, X, y, sensitive_features=sex, threshold=0.9, n_bootstrap=0)
    assert result.threshold == 0.9
    assert result.selection_rate == np.mean(model.predict_proba(X)[:, 1] >= 0.9)


def test_a_score_without_probabilities(sample) -> None:
    X, y, sex = sample
    model = RidgeClassifier().fit(X, y)
    result = evaluate(model, X, y, sensitive_features=sex, n_bootstrap=0)
    assert result.auc > 0.7
    assert math.isnan(result.log_loss)
    assert math.isnan(result.groups[0].calibration)
    assert result.gcig > 0
    with pytest.raises(InputError, match="threshold"):
        evaluate(model, X, y, sensitive_features=sex, threshold=0.5)


def test_two_outputs_with_a_score(sample) -> None:
    X, y, sex = sample
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    with pytest.raises(InputError, match="score="):
        gcig_score(module, X, y, sensitive_features=sex)
    score = gcig_score(module, X, y, sensitive_features=sex, score=lambda out: out[:, 1] - out[:, 0])
    joined = nn.Linear(3, 1)
    with torch.no_grad():
        joined.weight.copy_(module.weight[1:] - module.weight[:1])
    assert score == pytest.approx(gcig_score(joined, X, y, sensitive_features=sex), rel=1e-5)


class Estimator:
    """The fitted attributes of a gcig estimator with one-hot columns, and training groups a, b, c."""

    classes_ = np.array([0, 1])
    groups_ = ("a", "b", "c")
    encoder_ = SimpleNamespace(
        encoded_names_=("age", "job=x", "job=y"),
        origin_=np.array([0, 1, 1]),
        feature_names_in_=("age", "job"),
    )

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.explained_score = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 1), nn.Flatten(0))
        self.baselines_ = np.random.default_rng(5).normal(size=(2, 3, 3)).astype(np.float32)
        self.seen_groups = []

    def encode(self, X):
        return np.asarray(X, dtype=np.float32)

    def predict(self, X, *, sensitive_features=None):
        self.seen_groups.append(sensitive_features)
        return (self.predict_proba(X)[:, 1] > 0.5).astype(int)

    def predict_proba(self, X):
        with torch.no_grad():
            positive = torch.sigmoid(self.explained_score(torch.tensor(self.encode(X)))).numpy()
        return np.stack([1 - positive, positive], axis=1)


class TestGcigEstimator:
    X = np.random.default_rng(1).normal(size=(90, 3))
    y = np.random.default_rng(2).integers(0, 2, 90)
    groups = np.array(["a", "b", "c"] * 30)

    def test_training_baselines_are_used(self) -> None:
        model = Estimator()
        before = gcig_score(model, self.X, self.y, sensitive_features=self.groups)
        model.baselines_ = model.baselines_ + 1
        assert gcig_score(model, self.X, self.y, sensitive_features=self.groups) != before

    def test_encoded_and_original_columns(self) -> None:
        result = evaluate(Estimator(), self.X, self.y, sensitive_features=self.groups, n_bootstrap=0)
        assert list(result.gcig_columns) == ["age", "job"]
        assert result.gcig_raw != result.gcig
        raw = Definition(columns="raw")
        by_encoded = evaluate(
            Estimator(), self.X, self.y, sensitive_features=self.groups, definition=raw, n_bootstrap=0
        )
        assert list(by_encoded.gcig_columns) == ["age", "job=x", "job=y"]
        assert by_encoded.gcig == by_encoded.gcig_raw == pytest.approx(result.gcig_raw)
        assert by_encoded.gcig_l2 != result.gcig_l2

    def test_groups_reach_a_predict_that_takes_them(self) -> None:
        model = Estimator()
        evaluate(model, self.X, self.y, sensitive_features=self.groups, n_bootstrap=0)
        np.testing.assert_array_equal(model.seen_groups, [self.groups])

    def test_unknown_group_is_an_error(self) -> None:
        with pytest.raises(InputError, match="'d'"):
            evaluate(Estimator(), self.X, self.y, sensitive_features=["a", "b", "d"] * 30)

    def test_group_without_rows_is_named(self) -> None:
        with pytest.warns(UndefinedMetricWarning, match="label 0 in group 'c', label 1 in group 'c'"):
            result = evaluate(
                Estimator(), self.X, self.y, sensitive_features=["a", "b"] * 45, n_bootstrap=0, min_cell=1
            )
        assert math.isnan(result.eo_gap)
        assert math.isnan(result.gcig_groups["c"])
        assert result.gcig > 0  # all three baselines are those of training

    def test_one_group_alone_can_be_explained(self) -> None:
        assert gcig_score(Estimator(), self.X, self.y, sensitive_features=["a"] * 90) > 0


@pytest.mark.parametrize("method", ["unconstrained", "hardt", "dir"])
@pytest.mark.parametrize("threshold", [None, 0.4])
@pytest.mark.parametrize("piped", [False, True])
def test_rows_are_encoded_once(sample, monkeypatch, method, threshold, piped) -> None:
    """Also where a method draws its decisions, or needs the groups to encode."""
    X, y, sex = sample
    estimator = METHODS[method].estimator(hidden_sizes=(4,), max_epochs=2, random_state=0)
    model = estimator.fit(X, y, sensitive_features=sex)
    if piped:
        model = Pipeline(
            [("same", FunctionTransformer(feature_names_out="one-to-one").fit(X)), ("model", estimator)]
        )
    scores = estimator.predict_proba(X, sensitive_features=sex)[:, 1]
    encoded, encode = [], type(estimator).encode

    @wraps(encode)
    def counted(self, X, **more):
        encoded.append(len(X))
        return encode(self, X, **more)

    monkeypatch.setattr(type(estimator), "encode", counted)
    result = evaluate(model, X, y, sensitive_features=sex, threshold=threshold, n_bootstrap=0)
    assert encoded == [len(X)]
    assert "encode" not in vars(estimator)  # it is as it was
    assert result.auc == evaluate_predictions(y, scores, sensitive_features=sex).auc


def test_input_warnings_are_issued_once(sample):
    X, y, sex = sample
    X = X.assign(job=np.where(X["job"] > 0, "clerk", "nurse"))
    model = UnconstrainedClassifier(hidden_sizes=(4,), max_epochs=2, random_state=0)
    model.fit(X, y, sensitive_features=sex)
    with pytest.warns(
        InputWarning, match=r"Categories that training did not see.*'job' \(400 rows\)"
    ) as said:
        evaluate(model, X.assign(job="baker"), y, sensitive_features=sex, n_bootstrap=0)
    assert len(said) == 1


def test_rows_that_a_model_was_trained_on_are_recognised_and_marked(tmp_path) -> None:
    data = gcig.load_dataset("german", include_sensitive=False)
    rows = [(each[:700], each[700:]) for each in (data.X, data.y, data.sensitive_features)]
    (X, test), (y, y_test), (sex, sex_test) = rows
    model = gcig.methods.METHODS["unconstrained"].estimator(max_epochs=2, random_state=0)
    model.fit(X, y, sensitive_features=sex).save(tmp_path / "model")

    def remarks(reference=None, rows=(test, y_test, sex_test)) -> str:
        X, y, groups = rows
        found = evaluate(
            gcig.load(tmp_path / "model"), X, y, sensitive_features=groups, reference=reference, n_bootstrap=0
        )
        return " ".join(found.remarks)

    assert "reference rows are rows that the model was trained on" in remarks((X, y, sex))
    assert "reference rows are" in remarks((X[:200], y[:200], sex[:200]))
    assert "evaluated rows are" in remarks(rows=(X, y, sex))
    assert "trained on" not in remarks() + remarks((test, y_test, sex_test))
