"""Exported files answer as the model does: checked through onnxruntime, on tables as they come."""

import sys
from copy import copy

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from torch import nn

import gcig
from example_tables import QUICK_CREDIT, fitted_credit, load_credit
from gcig._arguments import InputError
from gcig.auditing import audit, open_model
from gcig.methods.networks import MixtureOfOutputs
from gcig.methods.registry import METHODS
from gcig.methods.unconstrained import UnconstrainedClassifier, UnconstrainedRegressor
from gcig.models.mlp import ACTIVATIONS, Affine, make_mlp

onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
from gcig.methods.onnx_export import export_onnx  # noqa: E402 (needs onnx)
from gcig.methods.onnx_graph import LAYERS  # noqa: E402 (needs onnx)

CLOSE = {"rtol": 0, "atol": 1e-6}


@pytest.fixture(scope="module")
def credit():
    return load_credit()


@pytest.fixture(scope="module")
def model():
    return fitted_credit()


class Session:
    """An exported file, opened by the runtime alone."""

    def __init__(self, path):
        self.runtime = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.inputs = {each.name: each for each in self.runtime.get_inputs()}
        self.outputs = {each.name: each for each in self.runtime.get_outputs()}

    def __call__(self, table):
        if list(self.inputs) == ["X"]:
            feed = {"X": np.asarray(table, dtype=np.float64)}
        else:
            feed = {name: self.column(table[name], name) for name in self.inputs}
        return self.runtime.run(None, feed)

    def column(self, cells, name):
        kind = {"tensor(double)": np.float64, "tensor(string)": object}[self.inputs[name].type]
        return cells.to_numpy().astype(kind).reshape(-1, 1)


@pytest.fixture
def export(tmp_path):
    def exported(model, **options):
        model.to_onnx(tmp_path / "model.onnx", **options)
        return Session(tmp_path / "model.onnx")

    return exported


def assert_same_answers(session, model, table):
    if hasattr(model, "label_scale_"):
        assert {name: (each.type, each.shape) for name, each in session.outputs.items()} == {
            "prediction": ("tensor(double)", ["rows"])
        }
        expected = model.predict(table)
        np.testing.assert_allclose(session(table)[0], expected, rtol=1e-5, atol=1e-5 * model.label_scale_)
        return
    labels, probabilities = session(table)
    np.testing.assert_allclose(probabilities, model.predict_proba(table), **CLOSE)
    assert labels.tolist() == model.predict(table).tolist()


# --- Tables ------------------------------------------------------------------------------------------


def test_one_input_for_each_column_and_standard_outputs(model, credit, export):
    X, *_ = credit
    session = export(model)
    assert list(session.inputs) == list(X.columns)
    types = {name: each.type for name, each in session.inputs.items()}
    assert types["duration"] == types["foreign"] == "tensor(double)"
    assert types["checking_status"] == "tensor(string)"
    assert {name: (each.type, each.shape) for name, each in session.outputs.items()} == {
        "label": ("tensor(int64)", ["rows"]),
        "probabilities": ("tensor(double)", ["rows", 2]),
    }


def test_missing_cells_of_numbers_and_text(model, credit, export):
    X, *_ = credit
    assert X.isna().any().sum() == 2
    assert_same_answers(export(model), model, X)


@pytest.mark.filterwarnings("ignore::gcig._arguments.InputWarning")  # which is what is tried
def test_what_training_did_not_see(model, credit, export):
    X = credit[0].head(60).astype({"purpose": object, "housing": object, "age": float})
    X.loc[::2, "purpose"] = "spaceship"
    X.loc[::3, "housing"] = None
    X.loc[::4, "age"] = np.nan
    X["foreign"] = pd.Series([True, False, None] * 20, dtype="boolean").astype(float).to_numpy()
    session = export(model)
    assert_same_answers(session, model, X)
    assert not np.allclose(session(X)[1], session(credit[0].head(60))[1], atol=1e-3)


@pytest.mark.parametrize("spelling", ["", "nan", "NaN", "None", "<NA>", "<missing>", None, np.nan])
def test_missing_text_may_be_spelt_in_many_ways(model, credit, export, spelling):
    X = credit[0].head(20).assign(checking_status=None)
    expected = model.predict_proba(X)
    spelt = X.assign(checking_status=pd.Series([spelling] * 20, dtype=object))
    np.testing.assert_allclose(export(model)(spelt)[1], expected, **CLOSE)


def test_a_category_called_none_keeps_its_meaning(export):
    X = pd.DataFrame({"plan": ["None", "basic", None, "gold"] * 30, "n": range(120)})
    y, groups = np.arange(120) // 2 % 2, np.arange(120) % 2
    model = UnconstrainedClassifier(**QUICK_CREDIT).fit(X, y, sensitive_features=groups)
    session = export(model)
    spelt = X.fillna({"plan": ""})
    np.testing.assert_allclose(session(spelt)[1], model.predict_proba(X), **CLOSE)
    by_plan = session(spelt.assign(n=0))[1][:3, 1]
    assert len(np.unique(by_plan)) == 3


def test_one_row_is_answered_as_among_others(model, credit, export):
    X, *_ = credit
    session = export(model)
    np.testing.assert_allclose(session(X.iloc[[5]])[1], session(X)[1][[5]], **CLOSE)


@pytest.mark.filterwarnings("ignore::gcig._arguments.InputWarning")  # about columns that tell nothing
def test_columns_that_tell_nothing(export):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "same": 3.0,
            "same_or_missing": [7.0, np.nan] * 60,
            "empty": np.nan,
            "word": "only",
            "useful": rng.normal(size=120),
        }
    )
    model = UnconstrainedClassifier(**QUICK_CREDIT).fit(
        X, (X["useful"] > 0).astype(int), sensitive_features=["f", "m"] * 60
    )
    other = X.assign(same=9.0, same_or_missing=[np.nan, 8.0] * 60, empty=1.0)
    for table in (X, other):
        assert_same_answers(export(model), model, table)


@pytest.mark.parametrize("columns", [["a"], ["t"], ["a", "b"], ["t", "u"], ["t", "a", "u", "b"]])
def test_tables_of_any_composition(columns, export):
    rng = np.random.default_rng(0)
    table = {"a": rng.normal(size=90), "b": rng.integers(9, size=90)}
    table |= {"t": rng.choice(["x", "y", "zebra"], 90), "u": rng.choice(["ü", "<b>"], 90)}
    X = pd.DataFrame(table)[columns]
    model = UnconstrainedClassifier(**QUICK_CREDIT).fit(
        X, np.arange(90) % 2, sensitive_features=np.arange(90) // 2 % 2
    )
    assert_same_answers(export(model), model, X)


def test_columns_may_have_the_names_of_the_graphs_own_values(credit, export):
    X, y, groups = credit
    X = X.iloc[:, :8].set_axis(
        ["label", "probabilities", "numbers", "X", "linear", "code", "a b/<c>", "é"], axis=1
    )
    model = UnconstrainedClassifier(**QUICK_CREDIT).fit(X, y, sensitive_features=groups)
    session = export(model)
    assert list(session.outputs) == ["label_2", "probabilities_2"]
    assert_same_answers(session, model, X)


def test_a_column_without_a_name_is_refused(tmp_path):
    X = pd.DataFrame({"": [1.0, 2.0] * 20, "b": range(40)})
    model = UnconstrainedClassifier(**QUICK_CREDIT).fit(
        X, np.arange(40) % 2, sensitive_features=np.arange(40) // 2 % 2
    )
    with pytest.raises(InputError, match="has no name"):
        model.to_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("preprocessing", ["table", "binned", "none"])
@pytest.mark.parametrize("named", [True, False])
def test_tables_of_numbers(preprocessing, named, export):
    rows = np.random.default_rng(0).normal(100, 1, size=(80, 3))
    X = pd.DataFrame(rows, columns=["a", "b", "c"]) if named else rows
    model = UnconstrainedClassifier(**QUICK_CREDIT, preprocessing=preprocessing)
    model.fit(X, (rows[:, 0] > 100).astype(int), sensitive_features=["f", "m"] * 40)
    session = export(model)
    assert {name: each.shape for name, each in session.inputs.items()} == (
        {"a": ["rows", 1], "b": ["rows", 1], "c": ["rows", 1]} if named else {"X": ["rows", 3]}
    )
    assert_same_answers(session, model, X)


@pytest.fixture(scope="module")
def adult():
    data = gcig.load_dataset("adult")
    rows = data.X.sample(1200, random_state=0).index
    return tuple(part.loc[rows] for part in (data.X, data.y, data.sensitive_features))


@pytest.mark.filterwarnings("ignore::UserWarning")  # one epoch learns little
@pytest.mark.parametrize("name", gcig.list_datasets())
@pytest.mark.parametrize("key", ["unconstrained", "fairx"])
def test_every_shipped_table(name, key, export):
    data = gcig.load_dataset(name)
    rows = data.X.sample(900, random_state=0).index
    X, y, groups = (part.loc[rows] for part in (data.X, data.y, data.sensitive_features))
    options = {"repair": "always"} if key == "fairx" else {}
    model = METHODS[key].estimator_for(data.task)(**{**QUICK_CREDIT, "max_epochs": 1}, **options)
    model.fit(X[:600], y[:600], sensitive_features=groups[:600])
    assert_same_answers(export(model), model, X)


# One epoch learns little, and rows that training did not see are what is tried.
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "method",
    ["fairx", "unconstrained", "lagrangian", "adversarial"],
)
def test_adult_with_every_method_that_decides_by_a_threshold(adult, method, export):
    X, y, groups = (part.iloc[:800] for part in adult)
    model = (
        METHODS[method].estimator(**{**QUICK_CREDIT, "max_epochs": 1}).fit(X, y, sensitive_features=groups)
    )
    test = adult[0].iloc[800:].copy()
    test.loc[test.index[:50], ["workclass", "education", "age", "fnlwgt"]] = np.nan
    assert test["native-country"].isin(X["native-country"]).mean() < 1
    assert_same_answers(export(model), model, test)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("key", ["agarwal", "lagrangian", "adversarial"])
def test_methods_for_a_number(credit, key, export):
    X, _, groups = credit
    model = METHODS[key].estimator_for("number")(**{**QUICK_CREDIT, "max_epochs": 1})
    model.fit(X, X["credit_amount"], sensitive_features=groups)
    assert_same_answers(export(model), model, X)


# --- Labels ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "kind"),
    [
        (np.array(["no", "yes"]), "tensor(string)"),
        (np.array([False, True]), "tensor(bool)"),
        (np.array([1, 2]), "tensor(int64)"),
        (np.array([-1.0, 1.0]), "tensor(double)"),
    ],
)
def test_labels_are_the_classes_of_training(model, credit, export, classes, kind):
    other = copy(model)
    other.classes_ = classes
    session = export(other)
    assert session.outputs["label"].type == kind
    assert_same_answers(session, other, credit[0])
    assert set(session(credit[0])[0].tolist()) == set(classes.tolist())


@pytest.mark.parametrize("classes", [("a", "b", "c"), (2, 5, 9)], ids=str)
def test_several_classes(credit, export, classes):
    X, *_, groups = credit
    y = np.array(classes)[np.arange(len(X)) % 3]
    model = UnconstrainedClassifier(**QUICK_CREDIT).fit(X, y, sensitive_features=groups)
    session = export(model)
    assert session.outputs["probabilities"].shape == ["rows", 3]
    assert_same_answers(session, model, X)
    assert set(session(X)[0].tolist()) == set(classes)


def test_numbers(credit, export, tmp_path):
    X, _, groups = credit
    amount = X["credit_amount"]
    model = UnconstrainedRegressor(**QUICK_CREDIT).fit(X, amount, sensitive_features=groups)
    assert_same_answers(export(model), model, X)
    network = nn.Sequential(nn.Linear(model.encoder_.n_features_out_, 4), nn.Tanh(), nn.Linear(4, 1))
    own = UnconstrainedRegressor(**QUICK_CREDIT, module=network).fit(X, amount, sensitive_features=groups)
    assert type(own.module_) is Affine
    own.to_onnx(tmp_path / "own.onnx")
    assert gcig.adapt(open_model(tmp_path / "own.onnx"), X).task == "number"
    assert_same_answers(export(own), own, X)


def test_the_threshold_is_inside(model, credit, export):
    for threshold in (0.0, 0.3, 0.9, 1.0):
        other = copy(model)
        other.threshold_ = threshold
        assert_same_answers(export(other), other, credit[0])


def test_a_file_says_what_it_holds(model, tmp_path):
    model.to_onnx(tmp_path / "model.onnx", opset=19)
    stored = onnx.load(tmp_path / "model.onnx")
    assert stored.producer_name == "gcig"
    assert {each.key: each.value for each in stored.metadata_props} == {
        "gcig_method": "fairx",
        "gcig_task": "binary",
        "gcig_classes": "[0, 1]",
        "gcig_threshold": "0.5",
    }
    assert {each.domain: each.version for each in stored.opset_import} == {"": 19, "ai.onnx.ml": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


# --- Networks ----------------------------------------------------------------------------------------


def with_network(model, network):
    """The fitted model with another network."""
    other = copy(model)
    other.module_ = network.eval()
    return other


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(model, credit, export, activation):
    network = make_mlp(
        model.encoder_.n_features_out_,
        (12, 6),
        activation,
        dropout=0.5,
        generator=torch.Generator().manual_seed(0),
    )
    assert_same_answers(export(with_network(model, network)), with_network(model, network), credit[0])


def test_mixtures_and_affine_outputs(model, credit, export):
    width = model.encoder_.n_features_out_
    parts = [make_mlp(width, (5,)), make_mlp(width, ())]
    other = with_network(model, Affine(MixtureOfOutputs(parts, [1.0, 2.0]), 0.5, torch.ones(1)))
    assert_same_answers(export(other), other, credit[0])


def test_networks_of_ones_own_with_normalisation(model, credit, export):
    torch.manual_seed(0)
    width = model.encoder_.n_features_out_
    network = nn.Sequential(
        nn.BatchNorm1d(width),
        nn.Sequential(nn.Linear(width, 9, bias=False), nn.LayerNorm(9), nn.ELU(0.5)),
        nn.BatchNorm1d(9, affine=False),
        nn.LayerNorm(9, elementwise_affine=False),
        nn.LeakyReLU(0.3),
        nn.Identity(),
        nn.Linear(9, 1),
    )
    network(torch.from_numpy(model.encode(credit[0])))  # running statistics that are not 0 and 1
    other = with_network(model, network)
    assert_same_answers(export(other), other, credit[0])


def test_every_layer_is_tried_above():
    tried = {*ACTIVATIONS.values(), nn.Linear, nn.Dropout, nn.Flatten, nn.Identity, nn.BatchNorm1d}
    assert set(LAYERS) == tried | {nn.LayerNorm}


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked(width):
    layer = nn.Linear(width, 1)
    layer.register_forward_hook(lambda *_: None)
    return layer


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda width: nn.Sequential(Doubled(width, 1)), "its part Doubled"),
        (lambda width: nn.Sequential(nn.Linear(width, 1), nn.Hardshrink()), "Hardshrink"),
        (hooked, "hooks"),
        (lambda width: nn.Sequential(nn.GELU("tanh"), nn.Linear(width, 1)), "GELU"),
        (lambda width: nn.Sequential(nn.Softplus(beta=2), nn.Linear(width, 1)), "Softplus"),
        (
            lambda width: nn.Sequential(
                nn.BatchNorm1d(width, track_running_stats=False), nn.Linear(width, 1)
            ),
            "BatchNorm1d without running",
        ),
    ],
)
def test_networks_that_cannot_be_read_are_refused_with_the_reason(model, tmp_path, make, message):
    other = with_network(model, make(model.encoder_.n_features_out_))
    with pytest.raises(InputError, match=message):
        other.to_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


# --- Refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "reason"), [("dir", "group of every new row"), ("hardt", "group of"), ("agarwal", "overrides")]
)
def test_methods_that_decide_otherwise_are_refused(model, tmp_path, key, reason):
    other = gcig.methods.METHODS[key].estimator()
    other.module_, other.diverged_ = model.module_, False
    with pytest.raises(InputError, match=f"cannot be written as ONNX: .*{reason}"):
        other.to_onnx(tmp_path / "model.onnx")


def test_a_method_that_overrides_predict_is_refused(model, tmp_path):
    class Lenient(gcig.FairXClassifier):
        def predict(self, X, *, sensitive_features=None):  # noqa: ARG002 (the interface)
            return np.ones(len(X))

    other = copy(model)
    other.__class__ = Lenient
    with pytest.raises(InputError, match="it overrides predict"):
        other.to_onnx(tmp_path / "model.onnx")


def test_other_refusals(model, tmp_path):
    path = tmp_path / "model.onnx"
    with pytest.raises(NotFittedError):
        gcig.FairXClassifier().to_onnx(path)
    with pytest.raises(InputError, match="an estimator of gcig, not a LogisticRegression"):
        export_onnx(LogisticRegression(), path)
    for opset in (16, 99, 17.0, True):
        with pytest.raises(InputError, match="opset must be an integer from 17 to"):
            model.to_onnx(path, opset=opset)
    diverged = copy(model)
    diverged.diverged_ = True
    with pytest.raises(InputError, match="diverged"):
        diverged.to_onnx(path)
    with pytest.raises(FileNotFoundError):
        model.to_onnx(tmp_path / "nowhere" / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_without_the_extra_the_error_says_what_to_install(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    for name in ("onnx_export", "onnx_graph"):  # as if they were never imported
        monkeypatch.delitem(sys.modules, f"gcig.methods.{name}")
    with pytest.raises(ImportError, match=r"pip install 'gcig\[onnx\]'"):
        model.to_onnx(tmp_path / "model.onnx")


# --- Audits ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::UserWarning")  # short training
def test_an_exported_file_can_be_audited(credit, tmp_path):
    X, y, groups = (part.head(300) for part in credit)
    X = X[["checking_status", "duration", "age", "housing"]]
    model = gcig.FairXClassifier(**QUICK_CREDIT, repair="always").fit(X, y, sensitive_features=groups)
    model.to_onnx(tmp_path / "model.onnx")
    rows = {"X": X.head(150), "y": y.head(150), "sensitive_features": groups.head(150)}
    few = {"n_bootstrap": 20}
    found = audit(open_model(tmp_path / "model.onnx"), **rows, **few)
    itself = audit(model, **rows, **few)
    assert found.eo_gap == pytest.approx(itself.eo_gap)
    assert found.auc == pytest.approx(itself.auc, abs=1e-4)
    assert found.record.subject.explanation == "shapley"
