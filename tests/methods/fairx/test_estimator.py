import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state
from torch import nn

import gcig
from gcig import Definition
from gcig._validation import InputError, InputWarning
from gcig.core.references import GroupBaselines
from gcig.data.splitting import hold_out
from gcig.methods.fairx.estimator import FairXClassifier
from gcig.methods.fairx.guards import BoundWarning, CollapseWarning, ThresholdWarning, Verdict
from gcig.methods.unconstrained import UnconstrainedClassifier
from gcig.metrics import equalized_odds_gap
from gcig.models.mlp import make_mlp
from gcig.training.loop import DivergenceError
from tables import QUICK as SLOW
from tables import make_bar_exams, make_loans

LOANS = make_loans()
TEST = make_loans(seed=1)
# A student of two epochs, in half a second; with the usual weight it would lose too much AUC at first.
QUICK = SLOW | {"batch_size": 256, "max_epochs": 4, "lambda_ig": 0.05}


def fitted(loans=LOANS, **parameters):
    return FairXClassifier(**{**QUICK, **parameters}).fit(loans.X, loans.y, **loans.groups)


def dropout_network(dropout):
    """A network for the seven encoded columns of the table."""
    return make_mlp(7, (16,), dropout=dropout, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="session")
def model():
    return fitted()


# --- What it learns ----------------------------------------------------------------------------------


def test_outcome_choices_differ(model):
    models = [
        model,
        *(fitted(outcome=name, lambda_ig=0.05) for name in ("equal_opportunity", "demographic_parity")),
    ]
    assert all(each.history_["outcome"].gt(0).all() for each in models)
    scores = [each.decision_function(TEST.X) for each in models]
    assert not np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[1], scores[2])


def test_fitted_attributes(model):
    assert model.classes_.tolist() == [0, 1]
    assert model.groups_ == ("female", "male")
    assert model.feature_names_in_.tolist() == list(LOANS.X.columns)
    assert model.n_features_in_ == 5
    assert model.baselines_.shape == model.ema_baselines_.shape == (2, 2, 7)
    assert model.threshold_ == 0.5
    assert not model.collapsed_
    assert not model.changed_columns_
    assert not model.diverged_
    assert isinstance(model.module_, nn.Module)
    assert not model.module_.training
    assert 1 <= model.n_epochs_ <= 5
    assert model.definition_.norm == "l1"


def test_baselines_are_the_means_of_all_training_rows(model):
    means = GroupBaselines.from_data(
        torch.from_numpy(model.encode(LOANS.X)),
        torch.tensor(LOANS.y.to_numpy()),
        torch.tensor((LOANS.sex == "male").to_numpy().astype(int)),
    )
    assert np.array_equal(model.baselines_, means.values.numpy())


def test_logits_probabilities_and_classes_agree(model):
    scores, probability = model.decision_function(TEST.X), model.predict_proba(TEST.X)
    assert np.allclose(probability[:, 1], 1 / (1 + np.exp(-scores)))
    assert np.allclose(probability.sum(1), 1)
    assert np.array_equal(model.predict(TEST.X), (scores >= 0).astype(int))
    with torch.no_grad():
        assert np.array_equal(model.module_(torch.from_numpy(model.encode(TEST.X))).double().numpy(), scores)


def test_the_group_is_not_needed_to_predict(model):
    assert not model.needs_groups_to_predict
    assert np.array_equal(
        model.predict(TEST.X),
        model.predict(TEST.X, sensitive_features=TEST.sex.sample(frac=1, random_state=0)),
    )


def test_it_says_when_it_is_not_fitted():
    for use in ("predict", "predict_proba", "decision_function", "encode", "explain"):
        with pytest.raises(NotFittedError):
            getattr(FairXClassifier(), use)(LOANS.X)
    for name in ("explained_score", "changes_"):
        with pytest.raises(NotFittedError):
            getattr(FairXClassifier(), name)


# --- What it takes -----------------------------------------------------------------------------------


KINDS = {
    "pandas": lambda table: table,
    "polars": lambda table: pytest.importorskip("polars").from_pandas(table),
    "plain": lambda table: table.to_dict("list") if isinstance(table, pd.DataFrame) else table.to_list(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_all_kinds_give_the_same_model(model, kind):
    convert = KINDS[kind]
    other = FairXClassifier(**QUICK).fit(
        convert(LOANS.X), convert(LOANS.y), sensitive_features=convert(LOANS.sex)
    )
    assert np.array_equal(other.decision_function(convert(TEST.X)), model.decision_function(TEST.X))
    assert other.feature_names_in_.tolist() == list(LOANS.X.columns)


@pytest.mark.parametrize("convert", [np.float64, np.float32, list], ids=["float64", "float32", "list"])
def test_arrays_and_lists(convert):
    rows = LOANS.numbers
    rows = rows.tolist() if convert is list else rows.astype(convert)
    model = FairXClassifier(**QUICK).fit(rows, LOANS.y.tolist(), sensitive_features=LOANS.sex.to_numpy())
    assert not hasattr(model, "feature_names_in_")
    assert model.predict(rows[:1]).shape == (1,)


def test_one_row_is_predicted_as_among_others(model):
    whole = model.decision_function(TEST.X)
    single = [model.decision_function(TEST.X.iloc[[i]])[0] for i in range(5)]
    assert np.allclose(single, whole[:5], atol=1e-5)


def test_columns_are_found_by_name(model):
    shuffled = TEST.X[["owner", "job", "age", "debt", "income"]]
    assert np.array_equal(model.predict_proba(shuffled), model.predict_proba(TEST.X))
    with pytest.raises(InputError, match="now missing:\n- job"):
        model.predict(TEST.X.drop(columns="job"))
    with pytest.raises(InputError, match="unseen at fit time:\n- zip"):
        model.predict(TEST.X.assign(zip=1))


@pytest.mark.parametrize(
    "names",
    [("no", "yes"), (False, True), (-1, 1), (0.0, 1.0), (3, 7)],
    ids=["text", "booleans", "minus one", "floats", "other integers"],
)
def test_labels_of_all_kinds_give_the_same_model(model, names):
    answers = np.array(names)[LOANS.y]
    other = FairXClassifier(**QUICK).fit(LOANS.X, answers, **LOANS.groups)
    assert other.classes_.tolist() == list(names)
    assert np.array_equal(other.predict(TEST.X), np.array(names)[model.predict(TEST.X)])
    assert other.score(LOANS.X, answers) == model.score(LOANS.X, LOANS.y)


def test_missing_values_are_imputed_and_unknown_categories_give_a_warning():
    holes = LOANS.X.assign(income=LOANS.X["income"].where(LOANS.X.index % 7 > 0))
    model = FairXClassifier(**QUICK).fit(holes, LOANS.y, **LOANS.groups)
    assert np.isfinite(model.predict_proba(holes)).all()
    with pytest.warns(InputWarning, match="'job' \\(400 rows\\)"):
        model.predict(TEST.X.assign(job="astronaut"))


def test_three_groups():
    loans = make_loans(600, groups=("a", "b", "c"))
    model = fitted(loans)
    assert model.groups_ == ("a", "b", "c")
    assert model.baselines_.shape == (2, 3, 7)
    assert model.explain(loans.X, loans.y).attributions.shape == (3, 600, 5)
    assert model.history_["gcig"].gt(0).all()


def test_several_attributes_are_crossed():
    loans = make_loans(600)
    both = pd.DataFrame({"sex": loans.sex, "old": np.where(loans.X["age"] > 45, "yes", "no")})
    model = FairXClassifier(**QUICK).fit(loans.X, loans.y, sensitive_features=both)
    assert model.groups_ == (
        "sex=female & old=no",
        "sex=female & old=yes",
        "sex=male & old=no",
        "sex=male & old=yes",
    )
    assert model.baselines_.shape == (2, 4, 7)


def test_a_cell_without_rows_is_named():
    loans = make_loans(60)
    y = loans.y.where(loans.sex == "male", 0)
    with pytest.raises(InputError, match=r"fewer in \(label 1, group 'female'\).*Merge small groups"):
        FairXClassifier(**QUICK).fit(loans.X, y, **loans.groups)


def test_a_cell_of_one_row_is_warned_of():
    loans = make_loans(200)
    y = loans.y.where(loans.sex == "male", 0)
    y[int(np.flatnonzero(loans.sex == "female")[0])] = 1
    with pytest.warns(
        InputWarning, match=r"One row only in \(label 1, group 'female'\).*one person's record"
    ):
        model = FairXClassifier(**QUICK).fit(loans.X, y, **loans.groups)
    assert np.isfinite(model.predict_proba(TEST.X)).all()
    assert np.isfinite(model.history_.drop(columns="val_attribute_effect").to_numpy()).all()


def test_a_tiny_group_does_not_give_nan():
    sex = LOANS.sex.copy()
    few = [*LOANS.y.index[LOANS.y == 0][:3], *LOANS.y.index[LOANS.y == 1][:3]]
    sex[few] = "other"
    model = FairXClassifier(**QUICK).fit(LOANS.X, LOANS.y, sensitive_features=sex)
    assert np.isfinite(model.predict_proba(TEST.X)).all()
    assert np.isfinite(model.history_.drop(columns="val_attribute_effect").to_numpy()).all()
    assert np.isfinite(model.ema_baselines_).all()


# --- How it is trained -------------------------------------------------------------------------------


def test_equal_seeds_give_equal_bits_and_others_do_not(model):
    again, other = fitted(), fitted(random_state=1)
    assert np.array_equal(again.decision_function(TEST.X), model.decision_function(TEST.X))
    pd.testing.assert_frame_equal(again.history_, model.history_, check_exact=True)
    assert not np.array_equal(other.decision_function(TEST.X), model.decision_function(TEST.X))


def test_dropout_is_seeded_as_well():
    network = dropout_network(0.3)
    one, again = (fitted(module=network).decision_function(TEST.X) for _ in range(2))
    assert np.array_equal(one, again)


def test_global_generators_and_threads_are_left_alone():
    numpys = check_random_state(None)  # NumPy's global generator, which scikit-learn draws from
    before, torch_state = numpys.get_state(legacy=False), torch.get_rng_state()
    threads = torch.get_num_threads()
    fitted(module=dropout_network(0.3))
    after = numpys.get_state(legacy=False)
    assert np.array_equal(after["state"]["key"], before["state"]["key"])
    assert after["state"]["pos"] == before["state"]["pos"]
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert torch.get_num_threads() == threads


def test_a_random_state_is_drawn_from():
    state = np.random.RandomState(0)
    first, second = (fitted(random_state=state).decision_function(TEST.X) for _ in range(2))
    assert not np.array_equal(first, second)
    assert np.array_equal(first, fitted(random_state=np.random.RandomState(0)).decision_function(TEST.X))


def test_fit_leaves_the_parameters_as_they_were():
    model = FairXClassifier(**QUICK, class_weight={0: 1.0, 1: 2.0})
    before = model.get_params()
    model.fit(LOANS.X, LOANS.y, **LOANS.groups)
    assert model.get_params() == before


LIMITS = {"outcome_gap_limit", "gcig_limit"}
SOFT_GAPS = {"soft_outcome_gap", "soft_outcome_gap_training"}
MEASURED = {
    *("auc", "log_loss", "f1", "decided_alike", "outcome_gap", "gcig", "gcig_members", *SOFT_GAPS),
    *("completeness", "columns", "reference_offset", "faithfulness", "attribute_effect"),
    *LIMITS,
}


def test_history_has_every_term_and_all_measurements(model):
    terms = {"prediction", "selection", "outcome", "gcig", "gcig_members", "gcig_each_member"}
    terms |= {"consistency", "column_shortfall", "total"}
    weights = {"weight_gcig", "weight_outcome"}
    metrics = {f"val_{name}" for name in MEASURED} | {"val_auc_lost"}
    assert set(model.history_.columns) == {"epoch"} | terms | metrics | weights
    assert model.history_["epoch"].tolist() == [1, 2]  # two fifths of max_epochs
    assert model.history_["val_completeness"].max() < 0.01
    assert set(model.weights_) == {"gcig", "outcome"}


def test_measurements_of_teacher_and_student(model):
    assert set(model.plain_) == set(model.validation_) == MEASURED
    assert model.given_ == {}
    assert set(model.changes_.index) == MEASURED - LIMITS - SOFT_GAPS - {"decided_alike"}
    for name in ("auc", "gcig_members", "faithfulness"):
        assert model.changes_.loc[name, "before"] == model.plain_[name]
        assert model.changes_.loc[name, "after"] == model.validation_[name]


def test_attribute_effect_is_measured_if_the_group_is_among_the_columns():
    with pytest.warns(InputWarning, match="sex"):
        model = FairXClassifier(**QUICK).fit(LOANS.X.assign(sex=LOANS.sex), LOANS.y, **LOANS.groups)
    assert 0 <= model.validation_["attribute_effect"] <= model.plain_["attribute_effect"] + 0.05
    assert model.history_["attribute"].ge(0).all()


def test_distillation_without_held_out_rows():
    model = fitted(early_stopping=False, max_epochs=14, lambda_ig=0.05)
    assert model.n_epochs_ == len(model.history_) == 6
    assert model.weights_ == {"gcig": 0.05, "outcome": 0.05}
    assert not model.braked_
    assert set(model.plain_) == MEASURED - {"soft_outcome_gap_training"}
    assert model.changes_.loc["gcig", "after"] < model.changes_.loc["gcig", "before"]
    assert model.validation_["auc"] == pytest.approx(roc_auc_score(LOANS.y, model.decision_function(LOANS.X)))


def test_everything_learned_is_saved(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = gcig.load(tmp_path / "model")
    for name in ("weights_", "plain_", "given_", "validation_", "braked_", "collapsed_", "changed_columns_"):
        found, expected = getattr(loaded, name), getattr(model, name)
        assert found == (pytest.approx(expected, nan_ok=True) if isinstance(expected, dict) else expected)
    pd.testing.assert_frame_equal(loaded.history_, model.history_)
    pd.testing.assert_frame_equal(loaded.changes_, model.changes_)
    assert np.array_equal(loaded.ema_baselines_, model.ema_baselines_)


def test_build_objective_changes_training(model):
    class SmallLogits(FairXClassifier):
        def build_objective(self, objective):
            return objective.with_term("size", lambda batch: batch.logits.square().mean(), weight=5.0)

    small = SmallLogits(**QUICK).fit(LOANS.X, LOANS.y, **LOANS.groups)
    assert small.history_["size"].gt(0).all()
    assert not np.array_equal(small.history_["prediction"], model.history_["prediction"])


def test_early_stopping_stops_and_goes_back():
    model = fitted(max_epochs=40, patience=2, learning_rate=0.02, lambda_ig=0.2, max_auc_drop=0.1)
    assert len(model.history_) < 20
    assert model.n_epochs_ < len(model.history_)
    kept = model.history_.set_index("epoch").loc[model.n_epochs_]
    assert kept["val_auc"] == pytest.approx(model.validation_["auc"])


def test_doubling_all_weights_changes_nothing():
    weights = np.random.default_rng(0).uniform(0.5, 2, 400)
    one, other = (
        FairXClassifier(**QUICK).fit(LOANS.X, LOANS.y, **LOANS.groups, sample_weight=factor * weights)
        for factor in (1, 2)
    )
    assert np.array_equal(one.decision_function(TEST.X), other.decision_function(TEST.X))
    assert not np.array_equal(one.decision_function(TEST.X), fitted().decision_function(TEST.X))


def test_weights_of_one_are_no_weights(model):
    other = FairXClassifier(**QUICK).fit(LOANS.X, LOANS.y, **LOANS.groups, sample_weight=np.ones(400))
    assert np.allclose(other.decision_function(TEST.X), model.decision_function(TEST.X), atol=1e-4)


def test_rows_of_weight_zero_count_as_if_they_were_not_there():
    weights = np.ones(400)
    weights[::4] = 0
    counted = np.flatnonzero(weights)
    nonsense = LOANS.X.copy()
    nonsense.loc[::4, "income"] = 1e6
    zero = FairXClassifier(**QUICK).fit(nonsense, LOANS.y, **LOANS.groups, sample_weight=weights)
    without = FairXClassifier(**QUICK).fit(
        LOANS.X.iloc[counted],
        LOANS.y.iloc[counted],
        sensitive_features=LOANS.sex.iloc[counted],
        sample_weight=np.ones(300),
    )
    assert np.array_equal(zero.decision_function(TEST.X), without.decision_function(TEST.X))


def test_class_weights_move_the_predictions():
    many = {None: None, "balanced": "balanced", "dict": {0: 1.0, 1: 8.0}}
    share = {name: fitted(class_weight=weight).predict(TEST.X).mean() for name, weight in many.items()}
    assert share["dict"] > share[None]
    assert share["balanced"] != share[None]


@pytest.mark.parametrize(
    "change", [{"hidden_sizes": (4,)}, {"module": nn.Linear(7, 1)}], ids=["sizes", "module"]
)
def test_warm_start_with_other_layers_is_refused(change):
    model = fitted(max_epochs=3, warm_start=True).set_params(**change)
    with pytest.raises(InputError, match="warm_start: hidden_sizes or module"):
        model.fit(LOANS.X, LOANS.y, **LOANS.groups)


def test_warm_start_continues_from_the_present_network():
    model = fitted(max_epochs=3, warm_start=True)
    first = model.validation_
    encoder, start = model.encoder_, model.decision_function(TEST.X)
    model.set_params(learning_rate=1e-12, max_epochs=1).fit(LOANS.X, LOANS.y, **LOANS.groups)
    assert np.allclose(model.decision_function(TEST.X), start, atol=1e-4)
    assert model.encoder_ is encoder
    assert model.plain_ == pytest.approx(first, rel=1e-3, abs=1e-5, nan_ok=True)  # it is the teacher now
    with pytest.warns(ThresholdWarning, match="train for more epochs"):
        model.set_params(warm_start=False).fit(LOANS.X, LOANS.y, **LOANS.groups)
    assert not np.allclose(model.decision_function(TEST.X), start, atol=1e-2)


def test_warm_start_refuses_other_classes():
    model = fitted(warm_start=True, max_epochs=2)
    with pytest.raises(InputError, match=r"warm_start: y has the classes \('no', 'yes'\).*\(0, 1\)"):
        model.fit(LOANS.X, LOANS.y.map({0: "no", 1: "yes"}), **LOANS.groups)
    assert model.classes_.tolist() == [0, 1]


def test_a_second_fit_leaves_nothing_of_the_first():
    model = fitted()
    model.set_params(lambda_ig=0, lambda_fair=0).fit(LOANS.numbers, LOANS.y, **LOANS.groups)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 3
    assert "gcig" not in model.history_


def test_the_threshold_for_f1_is_at_least_as_good_as_one_half_on_validation_data():
    weights = {0: 6.0, 1: 1.0}
    chosen, half = fitted(threshold="f1", class_weight=weights), fitted(class_weight=weights)
    seed = check_random_state(0).randint(2**31 - 1)
    _, held = hold_out(LOANS.y, LOANS.sex, fraction=chosen.validation_fraction, random_state=seed)
    X, y = LOANS.X.iloc[held], LOANS.y.iloc[held]
    assert roc_auc_score(y, chosen.decision_function(X)) == pytest.approx(chosen.validation_["auc"])
    assert f1_score(y, chosen.predict(X)) > f1_score(y, half.predict(X))
    assert 0 < chosen.threshold_ < 0.5


def test_the_threshold_for_f1_is_close_to_the_best_on_the_rows_it_was_chosen_on():
    model = fitted(threshold="f1", strategy="paper", max_epochs=5, batch_size=32)
    probability = model.predict_proba(LOANS.X)[:, 1]
    others = [f1_score(LOANS.y, probability >= t) for t in np.sort(probability)[::4]]
    assert f1_score(LOANS.y, model.predict(LOANS.X)) >= max(others) - 0.01
    assert model.threshold_ != 0.5


def test_a_given_threshold_decides(model):
    strict = fitted(threshold=0.9)
    probability = strict.predict_proba(TEST.X)[:, 1]
    assert np.array_equal(strict.predict(TEST.X), (probability >= 0.9).astype(int))


def test_the_measured_gap_is_that_of_the_decisions():
    for threshold in (0.5, 0.8, "f1"):
        model = fitted(threshold=threshold, strategy="paper")
        gap = equalized_odds_gap(LOANS.y, model.predict(LOANS.X), sensitive_features=LOANS.sex)
        assert model.validation_["outcome_gap"] == pytest.approx(gap, abs=1e-5)


def test_progress_is_shown_on_standard_error_if_verbose(capsys):
    fitted()
    assert capsys.readouterr() == ("", "")
    fitted(verbose=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = [line.split(",")[0] for line in captured.err.splitlines()]
    assert lines[-2:] == ["Training: 1 of 2 epochs", "Training: 2 of 2 epochs"]
    assert lines[:-2]
    assert all(line.startswith("Training (teacher): ") for line in lines[:-2])
    assert "val_gcig" in captured.err


@pytest.mark.filterwarnings("ignore::gcig.ReasonsWarning")
def test_linear_models_and_other_networks():
    l2 = {"definition": Definition(norm="l2")}
    for parameters in ({"hidden_sizes": ()}, {"hidden_sizes": (8,), "activation": "gelu"}, l2):
        assert roc_auc_score(TEST.y, fitted(**parameters).decision_function(TEST.X)) > 0.8


def test_the_papers_rule():
    model = fitted(definition=Definition(rule="right", n_steps=8), max_epochs=2)
    assert (model.definition_.rule, model.definition_.n_steps) == ("right", 8)
    assert model.history_["gcig"].gt(0).all()


# --- Bounds and guards -------------------------------------------------------------------------------


def test_bounds_that_can_be_reached_are():
    model = fitted(max_gcig=0.1, max_epochs=20)
    assert model.validation_["gcig"] <= 0.1
    assert model.validation_["auc"] > 0.9
    with pytest.warns(BoundWarning):  # 60 held-out rows cannot show it
        model = fitted(max_eo_gap=0.3, max_epochs=20)
    assert model.validation_["outcome_gap_pooled"] <= 0.3


@pytest.mark.filterwarnings("ignore::gcig.methods.fairx.guards.ReasonsWarning")  # its price is faithfulness
@pytest.mark.parametrize(("bound", "value"), [("max_gcig", 1e-6), ("max_eo_gap", 1e-6)])
def test_a_bound_that_cannot_be_met_gives_a_warning_with_the_value(bound, value):
    with pytest.warns(BoundWarning) as caught:
        model = fitted(**{bound: value})
    reached = model.validation_["gcig" if bound == "max_gcig" else "outcome_gap"]
    last = [each for each in caught if each.category is BoundWarning][-1]
    assert f"{bound}=1e-06 was not met: the 60 held-out rows give {reached:.4f}" in str(last.message)
    assert last.filename == __file__
    assert model.predict(TEST.X).shape == (400,)


@pytest.mark.parametrize("bound", ["max_gcig", "max_eo_gap"])
def test_bounds_need_validation_data(bound):
    with pytest.raises(InputError, match=f"{bound}: .*early_stopping=True"):
        fitted(**{bound: 0.1}, strategy="paper")
    few = make_loans(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        with pytest.raises(InputError, match=f"{bound}: no rows could be held out"):
            FairXClassifier(**QUICK, **{bound: 0.1}).fit(few.X, [0, 1, 0, 1], sensitive_features=list("aabb"))


@pytest.mark.parametrize(
    "parameters",
    [{"lambda_ig": 500.0}, {"lambda_fair": 500.0}],
    ids=["lambda_ig", "lambda_fair"],
)
def test_a_model_that_collapses_is_marked_and_the_weight_is_named(parameters):
    (name,) = parameters
    with pytest.warns(CollapseWarning, match=f"collapsed: .*{name}=500 is too high") as caught:
        model = fitted(**parameters, strategy="paper")
    assert model.collapsed_
    assert caught[0].filename == __file__


def test_the_plain_network_is_named_beside_a_collapsed_one(monkeypatch):
    constant = Verdict(auc=0.5, share=1.0)
    monkeypatch.setattr("gcig.methods.fairx.estimator.inspect_predictions", lambda *_, **__: constant)
    with pytest.warns(CollapseWarning, match=r"lambda_ig=2 .*without fairness terms AUC is 0\.[89]"):
        assert fitted(lambda_ig=2.0).collapsed_


@pytest.mark.parametrize("references", ["mean", "members"])
def test_the_weight_is_named_whatever_the_references(monkeypatch, references):
    constant = Verdict(auc=0.5, share=1.0)
    monkeypatch.setattr("gcig.methods.fairx.estimator.inspect_predictions", lambda *_, **__: constant)
    with pytest.warns(CollapseWarning, match="lambda_ig=2 is too high"):
        fitted(lambda_ig=2.0, references=references, max_epochs=2)


def test_data_without_signal_are_not_blamed_on_a_weight():
    noise = LOANS.y.sample(frac=1, random_state=3).reset_index(drop=True)
    with pytest.warns(CollapseWarning, match="the columns say little about y"):
        model = FairXClassifier(**{**QUICK, "learning_rate": 1e-4}).fit(LOANS.X, noise, **LOANS.groups)
    assert model.collapsed_


def test_a_model_that_uses_other_columns_is_marked(monkeypatch):
    monkeypatch.setattr("gcig.methods.fairx.estimator.columns_changed", lambda now, plain: now < plain * 100)
    with pytest.warns(
        CollapseWarning, match=r"uses \d\.\d effective columns, the network without fairness terms \d"
    ):
        model = fitted()
    assert model.changed_columns_
    assert not model.collapsed_


def test_the_brake_keeps_auc_that_the_weight_would_cost():
    heavy = {"lambda_ig": 0.0, "lambda_fair": 10.0, "max_epochs": 10}
    braked = fitted(**heavy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)
        unbraked = fitted(**heavy, max_auc_drop=1.0)
    assert braked.braked_
    assert not unbraked.braked_
    last, unbraked_last = (each.history_.iloc[-1] for each in (braked, unbraked))
    assert last["weight_outcome"] < unbraked_last["weight_outcome"]
    assert last["val_auc"] > unbraked_last["val_auc"]
    kept = braked.history_.set_index("epoch").loc[braked.n_epochs_]
    assert kept["weight_outcome"] == braked.weights_["outcome"]


def test_the_teacher_is_kept_with_a_warning_if_fairness_costs_too_much():
    weights = {"lambda_ig": 0.0, "lambda_fair": 1e4}
    long = {"max_epochs": 10, "batch_size": 512, "max_auc_drop": 0.0}
    with pytest.warns(BoundWarning, match="lost less AUC than max_auc_drop=0 and") as caught:
        model = fitted(**weights, **long)
    assert caught[0].filename == __file__
    assert model.n_epochs_ == 0
    assert model.weights_ == {"gcig": 0.0, "outcome": 0.0}
    assert model.validation_ == pytest.approx(model.plain_, nan_ok=True)


class Explodes(nn.Module):
    """A network that is fine for some batches, and then gives infinity in training."""

    def __init__(self, batches):
        super().__init__()
        self.net = make_mlp(3, (8,), generator=torch.Generator().manual_seed(0))
        self.left = batches

    def forward(self, rows):
        if self.training:
            self.left -= 1
        return self.net(rows) * (math.inf if self.training and self.left < 0 else 1)


def exploding(batches, **parameters):
    return FairXClassifier.from_module(
        Explodes(batches), **{**QUICK, "batch_size": 32, "lambda_ig": 0, "lambda_fair": 0, **parameters}
    )


@pytest.mark.filterwarnings("ignore:One row only")
def test_a_bound_on_a_gap_that_cannot_be_measured_is_refused():
    groups = np.where(LOANS.y == 1, "male", LOANS.sex)
    groups[np.flatnonzero(LOANS.y == 1)[:1]] = "female"
    with pytest.raises(InputError, match=r"max_eo_gap: .* are of one group.*validation_fraction"):
        FairXClassifier(**QUICK, max_eo_gap=0.1).fit(LOANS.X, LOANS.y, sensitive_features=groups)


def test_reasons_are_measured_on_rows_from_everywhere_of_a_sorted_table():
    rng = np.random.default_rng(0)
    y = (rng.random(16_000) < 0.85).astype(int)
    groups = rng.choice(["f", "m"], len(y))
    X = rng.normal(size=(len(y), 3)).astype(np.float32)
    X[:, 0] += 1.5 * y + 2 * ((y == 0) & (groups == "m"))
    order = np.argsort(-y, kind="stable")
    model = FairXClassifier(**{**QUICK, "max_epochs": 1, "batch_size": 1024, "preprocessing": "none"})
    model.fit(X[order], y[order], sensitive_features=groups[order])
    found = gcig.evaluate(model, X, y, sensitive_features=groups, n_bootstrap=0)
    assert model.validation_["gcig"] == pytest.approx(found.gcig, rel=0.1)


def test_the_network_that_is_kept_is_the_one_that_was_judged():
    for parameters in ({}, {"max_epochs": 12, "patience": 3}):
        model = fitted(**parameters)
        judged = model.history_.set_index("epoch").loc[model.n_epochs_]
        assert model.validation_["gcig"] == judged["val_gcig"]
        assert model.validation_["columns"] == judged["val_columns"]


def test_steps_may_be_any_number():
    model = fitted(definition=Definition(n_steps=3), max_epochs=2)
    assert model.history_["val_completeness"].max() < 1e-4


@pytest.mark.parametrize("dropout", [0.0, 0.2], ids=["by hand", "by autograd"])
def test_torch_settings_of_the_caller_do_not_matter(dropout):
    network = dropout_network(dropout)
    expected = fitted(module=network, max_epochs=2).predict_proba(TEST.X)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            model = fitted(module=network, max_epochs=2)
        assert np.array_equal(model.predict_proba(TEST.X), expected)
        with torch.inference_mode():
            model = fitted(module=network, max_epochs=2)
        assert np.array_equal(model.predict_proba(TEST.X), expected)
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_loss_that_diverges_at_once_leaves_the_estimator_unfitted():
    model = FairXClassifier(**{**QUICK, "learning_rate": 1e30})
    with pytest.raises(DivergenceError, match=r"diverged in epoch 1.*learning_rate.*as it was before fit\."):
        model.fit(LOANS.X, LOANS.y, **LOANS.groups)
    assert [name for name in vars(model) if name.endswith("_")] == []
    with pytest.raises(NotFittedError):
        model.predict(LOANS.X)


def test_a_loss_that_diverges_later_leaves_the_last_good_network():
    # 340 of 400 rows are trained on: 11 batches of up to 32 an epoch.
    model = exploding(batches=25)
    with pytest.raises(
        DivergenceError, match=r"in epoch 3.*parameters of epoch 2 were restored.*predicts with them"
    ) as found:
        model.fit(LOANS.numbers, LOANS.y, **LOANS.groups)
    assert found.value.epoch == 2
    assert model.diverged_
    assert model.history_["epoch"].tolist() == [1, 2]
    scores = model.decision_function(LOANS.numbers)
    assert np.isfinite(scores).all()
    assert roc_auc_score(LOANS.y, scores) > 0.8


def test_a_diverged_model_can_be_continued_but_not_saved(tmp_path):
    model = exploding(batches=25, warm_start=True)
    with pytest.raises(DivergenceError):
        model.fit(LOANS.numbers, LOANS.y, **LOANS.groups)
    with pytest.raises(InputError, match="the last fit diverged"):
        model.save(tmp_path / "model")
    model.module_.left = 10**6
    model.fit(LOANS.numbers, LOANS.y, **LOANS.groups)
    assert not model.diverged_
    model.save(tmp_path / "model")


# The teacher sees 340 rows in each of 40 epochs (440 batches), its student 8,000 an epoch (250).
def test_a_teacher_that_diverges_is_named():
    model = exploding(batches=25, lambda_fair=0.1)
    with pytest.raises(DivergenceError, match="without any fairness term, training diverged in epoch 3"):
        model.fit(LOANS.numbers, LOANS.y, **LOANS.groups)
    assert roc_auc_score(LOANS.y, model.decision_function(LOANS.numbers)) > 0.8


def test_a_student_that_diverges_later_leaves_its_last_good_network():
    model = exploding(batches=440 + 600, lambda_fair=0.1, patience=40, max_epochs=8)
    with pytest.raises(
        DivergenceError, match=r"^training diverged in epoch 3.*parameters of epoch 2 were restored"
    ) as found:
        model.fit(LOANS.numbers, LOANS.y, **LOANS.groups)
    assert found.value.epoch == 2
    assert model.history_["epoch"].tolist() == [1, 2]
    assert roc_auc_score(LOANS.y, model.decision_function(LOANS.numbers)) > 0.8
    with pytest.raises(InputError, match="diverged, and its changes were not measured"):
        _ = model.changes_


def test_a_fit_that_fails_leaves_the_earlier_one_whole():
    model = fitted()
    before, scores = vars(model).copy(), model.decision_function(TEST.X)
    for X, y, parameters in [
        (LOANS.X.assign(income=np.inf), LOANS.y, {}),
        (LOANS.X, LOANS.y, {"module": nn.Linear(99, 1)}),
        (LOANS.X, LOANS.y, {"learning_rate": 1e30}),
        (LOANS.X, LOANS.y, {"device": "tpu9"}),
    ]:
        model.set_params(**parameters)
        with pytest.raises((InputError, DivergenceError)):
            model.fit(X, y, **LOANS.groups)
        model.set_params(**{name: {**QUICK, "module": None}[name] for name in parameters})
        assert vars(model).keys() == before.keys()
        assert np.array_equal(model.decision_function(TEST.X), scores)


def test_an_interrupted_fit_leaves_the_earlier_one_whole(monkeypatch):
    model = fitted()
    scores = model.decision_function(TEST.X)
    monkeypatch.setattr(FairXClassifier, "_guard", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        model.set_params(hidden_sizes=(4,)).fit(LOANS.numbers, LOANS.y, **LOANS.groups)
    assert np.array_equal(model.decision_function(TEST.X), scores)


# --- Given teachers ----------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def trees():
    """Boosted trees behind an encoding of their own."""
    encoding = make_column_transformer((OneHotEncoder(), ["job"]), remainder="passthrough")
    return make_pipeline(encoding, HistGradientBoostingClassifier(max_iter=30, random_state=0)).fit(
        LOANS.X, LOANS.y
    )


@pytest.fixture(scope="session")
def student(trees):
    return fitted(teacher=trees, max_epochs=10)


def test_student_keeps_the_predictions_of_a_given_teacher(trees, student):
    given, kept = trees.predict_proba(TEST.X)[:, 1], student.predict_proba(TEST.X)[:, 1]
    assert np.corrcoef(given, kept)[0, 1] > 0.9
    assert ((given >= 0.5) == (kept >= 0.5)).mean() > 0.85
    assert student.validation_["gcig"] < student.plain_["gcig"]


def test_numbers_are_binned_for_a_given_teacher(student, model):
    binned, usual = student.encoder_, model.encoder_
    assert binned.n_features_out_ > 20 + usual.n_features_out_
    assert student.explain(TEST.X[:3], TEST.y[:3]).attributions.shape == (2, 3, 5)
    assert np.array_equal(fitted(preprocessing="binned", max_epochs=1).encode(TEST.X), student.encode(TEST.X))


def test_teachers_of_all_kinds(model):
    network = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[2.0, -2.0, 0.0]]))
    for teacher in (model, LogisticRegression().fit(LOANS.numbers, LOANS.y), network):
        rows = LOANS.X if teacher is model else LOANS.numbers
        learned = FairXClassifier(**QUICK, teacher=teacher).fit(rows, LOANS.y, **LOANS.groups)
        assert np.isfinite(learned.decision_function(rows)).all()


def test_clones_keep_a_fitted_teacher(trees):
    with config_context(enable_metadata_routing=True):
        estimator = FairXClassifier(**QUICK, teacher=trees).set_fit_request(sample_weight=True)
        copy = clone(estimator)
    assert copy.teacher is trees
    assert copy.get_params(deep=False).keys() == estimator.get_params(deep=False).keys()
    assert copy.get_metadata_routing().fit.requests["sample_weight"] is True
    assert clone(FairXClassifier(hidden_sizes=[4])).hidden_sizes == [4]


def test_a_saved_model_does_not_hold_its_teacher(student, tmp_path):
    student.save(tmp_path / "model")
    loaded = gcig.load(tmp_path / "model")
    assert loaded.teacher is None
    assert np.array_equal(loaded.predict_proba(TEST.X), student.predict_proba(TEST.X))


def test_teachers_that_cannot_teach_are_refused(trees):
    with pytest.raises(InputError, match=r"teacher: it was trained on the classes \(.*0.*1.*\), but y has"):
        FairXClassifier(**QUICK, teacher=trees).fit(LOANS.X, LOANS.y.map({0: "no", 1: "yes"}), **LOANS.groups)
    margin = LinearSVC().fit(LOANS.numbers, LOANS.y)
    with pytest.raises(InputError, match="teacher: a LinearSVC gives no probabilities"):
        FairXClassifier(**QUICK, teacher=margin).fit(LOANS.numbers, LOANS.y, **LOANS.groups)


# --- Networks of one's own ---------------------------------------------------------------------------


def train_by_hand(network, rows, labels):
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(network(rows).flatten(), labels)
        loss.backward()
        optimizer.step()
    return network.eval()


NETWORKS = {
    "smooth": lambda: nn.Sequential(
        nn.Linear(7, 16), nn.SiLU(), nn.Linear(16, 8), nn.SiLU(), nn.Linear(8, 1)
    ),
    "ReLU": lambda: nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 1)),
    "dropout and BatchNorm": lambda: nn.Sequential(
        nn.Linear(7, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1), nn.Flatten(0)
    ),
}


@pytest.mark.parametrize(
    ("name", "n_epochs"),
    [
        ("smooth", 8),
        ("ReLU", 8),
        pytest.param("dropout and BatchNorm", 40, marks=pytest.mark.slow),  # its gradient is noisier
    ],
)
def test_a_network_that_somebody_trained_is_repaired(model, name, n_epochs):
    torch.manual_seed(0)
    rows = model.encode(LOANS.X)
    network = train_by_hand(
        NETWORKS[name](), torch.from_numpy(rows), torch.tensor(LOANS.y.to_numpy(), dtype=torch.float32)
    )
    before = {key: value.clone() for key, value in network.state_dict().items()}
    changed = {"max_epochs": n_epochs, "batch_size": 128, "lambda_ig": 0.2, "max_auc_drop": 0.03}
    repaired = FairXClassifier.from_module(network, **{**QUICK, **changed})
    repaired.fit(rows, LOANS.y, **LOANS.groups)
    for key, value in network.state_dict().items():
        assert torch.equal(value, before[key])
    changes = repaired.changes_
    assert list(changes.columns) == ["before", "after", "change"]
    assert changes.loc["gcig", "after"] <= 0.5 * changes.loc["gcig", "before"]
    assert changes.loc["auc", "after"] > changes.loc["auc", "before"] - 0.03
    assert np.allclose(changes["change"], changes["after"] - changes["before"], equal_nan=True)
    assert {"auc", "gcig", "outcome_gap", "columns"} <= set(changes.index)


def test_changes_start_from_the_given_network():
    network = make_mlp(3, (8,), generator=torch.Generator().manual_seed(0)).eval()
    model = FairXClassifier.from_module(network, **QUICK, strategy="paper", threshold="f1")
    model.fit(LOANS.numbers, LOANS.y, **LOANS.groups)
    with torch.no_grad():
        scores = network(torch.tensor(LOANS.numbers, dtype=torch.float32))
    assert model.changes_.loc["auc", "before"] == pytest.approx(roc_auc_score(LOANS.y, scores))
    assert model.changes_.loc["auc", "after"] == pytest.approx(
        roc_auc_score(LOANS.y, model.decision_function(LOANS.numbers))
    )


def test_a_users_network_on_an_encoded_table(model):
    network = make_mlp(7, (8, 4), "gelu")
    own = fitted(module=network)
    assert own.module_ is not network
    assert own.preprocessing == "table"
    assert np.array_equal(own.encode(TEST.X), model.encode(TEST.X))
    assert own.plain_["auc"] > 0.85  # of a plainly trained copy, not of the untrained network


def test_a_network_on_a_table_may_be_a_trained_one(model):
    again = fitted(module=model.module_)
    assert again.given_ == pytest.approx(model.validation_, rel=1e-3, abs=1e-5, nan_ok=True)
    assert again.plain_ == pytest.approx(
        again.given_, nan_ok=True
    )  # its predictions are as good as those of more training, and kept


def test_changes_start_from_an_untrained_network_that_the_guards_ignore():
    own = fitted(module=make_mlp(7, (8, 4), "gelu", generator=torch.Generator().manual_seed(0)))
    assert own.given_["auc"] < 0.8 < own.plain_["auc"]
    assert own.changes_.loc["auc", "before"] == own.given_["auc"]
    assert not own.changed_columns_


def test_from_module_takes_all_parameters():
    model = FairXClassifier.from_module(nn.Linear(3, 1), lambda_ig=0.7, preprocessing="table")
    assert (model.lambda_ig, model.preprocessing) == (0.7, "table")


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (nn.Linear(4, 1), "module does not take rows of 3 numbers"),
        (nn.Linear(3, 2), r"one logit per row.*\(2, 2\)"),
        (nn.Sequential(nn.Linear(3, 1), nn.Sequential(nn.Sigmoid()), nn.Flatten(0)), "ends in a Sigmoid"),
    ],
    ids=["inputs", "outputs", "probabilities"],
)
def test_networks_that_do_not_fit_are_refused(network, message):
    with pytest.raises(InputError, match=message):
        FairXClassifier.from_module(network, **QUICK).fit(LOANS.numbers, LOANS.y, **LOANS.groups)


@pytest.mark.slow
@pytest.mark.parametrize("positive", [0.89, 0.95])
def test_skewed_labels_and_three_groups_give_a_usable_model(positive):
    """The defaults rank and decide nearly as well as the plain network, at the same threshold."""
    exams, new = (make_bar_exams(4000, positive, seed) for seed in (0, 1))
    changes = []
    for seed in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fair = FairXClassifier(random_state=seed, device="cpu").fit(exams.X, exams.y, **exams.groups)
            plain = UnconstrainedClassifier(random_state=seed, device="cpu")
            plain.fit(exams.X, exams.y, **exams.groups)
        assert not fair.collapsed_
        assert not fair.decides_alike_
        found, base = (
            gcig.evaluate(model, new.X, new.y, **new.groups, n_bootstrap=0) for model in (fair, plain)
        )
        names = ("auc", "balanced_accuracy", "selection_rate", "gcig")
        changes.append([getattr(found, name) - getattr(base, name) for name in names])
    auc, accuracy, selected, disparity = np.mean(changes, axis=0)
    assert auc > -0.02
    assert accuracy > -0.02
    assert abs(selected) < 0.02
    assert disparity < 0
