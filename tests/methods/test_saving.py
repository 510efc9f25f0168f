import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

import gcig
from example_tables import QUICK, make_loans
from gcig._arguments import InputError
from gcig.core.attribution import IntegratedGradients
from gcig.core.task import Binary, Classes, Number
from gcig.methods.fairx.estimator import FairXClassifier, FairXRegressor
from gcig.methods.networks import MixtureOfOutputs, restore_network
from gcig.methods.registry import METHODS
from gcig.methods.saving import decode, describe_model, encode, published_cells
from gcig.methods.unconstrained import UnconstrainedClassifier, UnconstrainedRegressor
from gcig.models.mlp import Affine, make_mlp
from gcig.persistence import PersistenceError, load_folder, save_folder

# Short training may leave a model that a guard warns of; here it is only stored.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

LOANS, TEST = make_loans(), make_loans(50, seed=1)
FAIRX = {**QUICK, "repair": "always"}
TASKS = {
    "binary": LOANS.y.map({0: "no", 1: "yes"}),
    "classes": LOANS.X["job"],
    "number": LOANS.X["age"].astype(float),
}


def inputs(task, loans=TEST):
    """The table without the column that is the label."""
    return loans.X.drop(columns={"binary": [], "classes": ["job"], "number": ["age"]}[task])


@pytest.fixture(scope="module", params=TASKS)
def fitted(request):
    """A task and FairX fitted for it."""
    estimator = METHODS["fairx"].estimator_for(request.param)
    options = {"threshold": "f1"} if request.param == "binary" else {}
    model = estimator(**FAIRX, **options)
    return request.param, model.fit(inputs(request.param, LOANS), TASKS[request.param], **LOANS.groups)


@pytest.fixture(scope="module")
def model():
    return FairXClassifier(**FAIRX, threshold="f1").fit(LOANS.X, TASKS["binary"], **LOANS.groups)


@pytest.fixture
def saved(model, tmp_path):
    model.save(tmp_path / "model")
    return tmp_path / "model"


def rewritten(folder, change, kind="gcig-model"):
    """Change the document of a model and make its checksums fit, as someone who knows the format can."""
    document, tensors = load_folder(folder)
    change(document, tensors)
    save_folder(folder, document, tensors, kind=kind)
    return folder


def round_trip(model, folder):
    model.save(folder)
    return gcig.load(folder)


def answers(model, table):
    """Everything that a model says about rows."""
    names = "encode", "decision_function", "predict_proba", "predict"
    return {name: getattr(model, name)(table) for name in names if hasattr(model, name)}


def test_a_loaded_model_is_the_same_model(fitted, tmp_path):
    task, model = fitted
    twin = round_trip(model, tmp_path / "model")
    assert type(twin) is (FairXRegressor if task == "number" else FairXClassifier)
    assert twin.get_params() == model.get_params()
    expected, found = answers(model, inputs(task)), answers(twin, inputs(task))
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_a_loaded_model_has_all_fitted_attributes(fitted, tmp_path):
    task, model = fitted
    twin = round_trip(model, tmp_path / "model")
    assert vars(twin).keys() == vars(model).keys()
    assert type(twin.task_) is {"binary": Binary, "classes": Classes, "number": Number}[task]
    pd.testing.assert_frame_equal(twin.history_, model.history_, check_exact=True)
    pd.testing.assert_frame_equal(twin.changes_, model.changes_, check_exact=True)
    for name in ("blocks_", "feature_names_in_", *(["classes_"] if task != "number" else [])):
        assert np.array_equal(getattr(twin, name), getattr(model, name))
        assert getattr(twin, name).dtype.kind == getattr(model, name).dtype.kind
    for name in (
        "task_",
        "groups_",
        "n_epochs_",
        "n_features_in_",
        "protected_columns_",
        "bounds_",
        "weights_",
    ):
        assert getattr(twin, name) == getattr(model, name)
    for name in ("plain_", "validation_"):
        assert getattr(twin, name) == pytest.approx(getattr(model, name), rel=0, abs=0, nan_ok=True)
    for name in ("collapsed_", "changed_columns_", "repaired_", "diverged_", "check_", "budget_used_"):
        assert getattr(twin, name) == getattr(model, name)
    if task == "number":
        assert (twin.label_mean_, twin.label_scale_) == (model.label_mean_, model.label_scale_)


def test_the_check_and_the_bounds_of_fairx_come_back(tmp_path):
    model = FairXClassifier(**QUICK, max_gap=0.3).fit(LOANS.X, LOANS.y, **LOANS.groups)
    twin = round_trip(model, tmp_path / "model")
    assert model.check_ is not None
    assert (twin.check_, str(twin.check_)) == (model.check_, str(model.check_))
    assert {name: str(each) for name, each in twin.bounds_.items()} == {
        name: str(each) for name, each in model.bounds_.items()
    }


def test_saving_a_loaded_model_gives_the_same_bytes(fitted, tmp_path):
    round_trip(fitted[1], tmp_path / "one").save(tmp_path / "two")
    one, two = (
        {file.name: file.read_bytes() for file in path.iterdir()} for path in sorted(tmp_path.iterdir())
    )
    assert one == two


# --- Privacy -----------------------------------------------------------------------------------------


def test_cells_of_fewer_than_11_rows_are_not_saved(tmp_path):
    y, sex = LOANS.y.to_numpy().copy(), LOANS.sex.to_numpy(dtype=object).copy()
    sex[:20], y[:20] = "third", [1] * 15 + [0] * 5
    sex[20:28], y[20:28] = "fourth", 1
    model = UnconstrainedClassifier(**QUICK).fit(LOANS.X, y, sensitive_features=sex)
    twin = round_trip(model, tmp_path / "model")
    small = model.cell_sizes_ < 11
    assert sorted(model.cell_sizes_[small]) == [0, 5, 8]
    assert (twin.cell_sizes_[small] == 0).all()
    assert np.isnan(twin.baselines_[small]).all()
    assert np.array_equal(twin.cell_sizes_[~small], model.cell_sizes_[~small])
    assert np.array_equal(twin.baselines_[~small], model.baselines_[~small])
    with pytest.warns(gcig.InputWarning, match="of which a group has no reference"):
        found = twin.explain(LOANS.X, y)
    assert np.isnan(found.disparity).all()
    male = found.groups.index("male")
    assert np.array_equal(found.attributions[male], model.explain(LOANS.X, y).attributions[male])


@pytest.mark.parametrize("task", TASKS)
def test_no_row_of_a_person_is_saved(tmp_path, task):
    """A group of one person with each label: their encoded rows are in no file, nor can they be computed."""
    sex = LOANS.sex.to_numpy(dtype=object).copy()
    alone = 7
    sex[alone] = "alone"
    table = inputs(task, LOANS)
    model = (
        METHODS["unconstrained"].estimator_for(task)(**QUICK).fit(table, TASKS[task], sensitive_features=sex)
    )
    model.save(tmp_path / "model")
    document, tensors = load_folder(tmp_path / "model")
    row = model.encode(table.iloc[[alone]])[0]
    for tensor in tensors.values():
        if tensor.shape[-1:] == (len(row),):
            assert not np.isclose(tensor.numpy(), row).all(axis=-1).any()
    income = float(table["income"].iloc[alone])
    assert repr(income) not in json.dumps(document)
    if task != "number":
        # Encoded numbers have mean zero, so the sums of all other cells give that of a single missing one.
        sizes, baselines = tensors["cell_sizes"].numpy(), np.nan_to_num(tensors["baselines"].numpy())
        missing = -(sizes[:, :, None] * baselines).sum((0, 1))
        assert abs(missing[0] - row[0]) > 0.01


def test_cells_that_are_left_out_have_11_rows_together():
    assert published_cells(np.array([[30, 40], [50, 11]])).all()
    assert published_cells(np.array([[30, 4], [50, 20]])).tolist() == [[True, False], [True, False]]
    assert published_cells(np.array([[30, 4], [50, 7]])).tolist() == [[True, False], [True, False]]
    assert published_cells(np.array([[30, 0], [50, 20]])).tolist() == [[True, False], [True, True]]
    assert not published_cells(np.array([[3, 1], [2, 1]])).any()


def test_moving_averages_of_the_paper_are_not_saved(tmp_path):
    model = gcig.FairXPaperClassifier(**QUICK).fit(LOANS.X, LOANS.y, **LOANS.groups)
    twin = round_trip(model, tmp_path / "model")
    assert set(vars(model)) - set(vars(twin)) == {"ema_baselines_"}
    assert np.array_equal(twin.predict_proba(TEST.X), model.predict_proba(TEST.X))


def test_quantiles_of_a_group_of_fewer_than_11_rows_are_not_saved(tmp_path):
    sex = LOANS.sex.to_numpy(dtype=object).copy()
    sex[:10] = "few"
    estimator = METHODS["dir"].estimator(**QUICK)
    model = estimator.fit(LOANS.X, LOANS.y, sensitive_features=sex)
    for store in (lambda: model.save(tmp_path / "model"), model.__getstate__):
        with pytest.raises(PersistenceError, match="quantiles of the group 'few' would be records"):
            store()
    assert list(tmp_path.iterdir()) == []
    sex[:11] = "few"
    estimator.fit(LOANS.X, LOANS.y, sensitive_features=sex).save(tmp_path / "model")


def test_a_teacher_is_not_saved(tmp_path):
    teacher = LogisticRegression().fit(LOANS.numbers, LOANS.y)
    model = FairXClassifier(**FAIRX, teacher=teacher).fit(LOANS.numbers, LOANS.y, **LOANS.groups)
    twin = round_trip(model, tmp_path / "model")
    assert twin.teacher is None
    assert np.array_equal(twin.predict_proba(LOANS.numbers), model.predict_proba(LOANS.numbers))


def test_an_attribution_that_is_no_name_is_refused(tmp_path):
    model = FairXClassifier(**FAIRX, attribution=IntegratedGradients(n_steps=2))
    model.fit(LOANS.X, LOANS.y, **LOANS.groups)
    with pytest.raises(PersistenceError, match=r"attribution is a IntegratedGradients.*register_attribution"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


# --- Folders -----------------------------------------------------------------------------------------


def test_the_folder_describes_its_content(saved):
    manifest = json.loads((saved / "model.json").read_text())
    assert sorted(file.name for file in saved.iterdir()) == ["model.json", manifest["tensors"]["file"]]
    assert {"gcig", "python", "torch"} <= manifest["versions"].keys()
    document = manifest["document"]
    assert (document["method"], document["task"]) == ("fairx", "binary")
    assert document["classes"] == ["no", "yes"]
    assert document["groups"] == ["female", "male"]
    assert document["parameters"]["budget"] == 0.03
    assert not {"teacher", "module"} & document["parameters"].keys()


def test_another_process_gives_the_same_bits(model, saved, tmp_path):
    TEST.X.to_json(tmp_path / "rows.json", orient="records", double_precision=15)
    rows = pd.read_json(tmp_path / "rows.json")
    code = (
        "import sys, gcig, pandas as pd, numpy as np\n"
        "model = gcig.load(sys.argv[1])\n"
        "np.save(sys.argv[3], model.decision_function(pd.read_json(sys.argv[2])))\n"
    )
    arguments = [saved, tmp_path / "rows.json", tmp_path / "scores.npy"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    subprocess.run([sys.executable, "-c", code, *map(str, arguments)], check=True, env=environment)
    assert np.array_equal(np.load(tmp_path / "scores.npy"), model.decision_function(rows))


def test_a_model_of_arrays(tmp_path):
    model = UnconstrainedClassifier(**QUICK, preprocessing="none")
    model.fit(LOANS.numbers, LOANS.y, **LOANS.groups).save(tmp_path / "model")
    twin = gcig.load(tmp_path / "model")
    assert type(twin) is UnconstrainedClassifier
    assert not hasattr(twin, "feature_names_in_")
    assert np.array_equal(twin.decision_function(LOANS.numbers), model.decision_function(LOANS.numbers))
    pd.testing.assert_frame_equal(twin.history_, model.history_, check_exact=True)


@pytest.mark.parametrize("classes", [(False, True), (-1, 1), (0.0, 1.0), ("<b>", "ü")], ids=str)
def test_classes_of_all_kinds(tmp_path, classes):
    model = UnconstrainedClassifier(**{**QUICK, "max_epochs": 1})
    model.fit(LOANS.X, np.array(classes)[LOANS.y], **LOANS.groups).save(tmp_path / "model")
    twin = gcig.load(tmp_path / "model")
    assert twin.classes_.dtype == model.classes_.dtype
    assert np.array_equal(twin.predict(TEST.X), model.predict(TEST.X))


@pytest.mark.parametrize(
    "parameters",
    [
        {"class_weight": {0: 1.0, 1: 3.0}},
        {"class_weight": {np.int64(0): np.float32(1), np.int64(1): 3}},
        {"hidden_sizes": [8]},
        {"hidden_sizes": np.array([8])},
        {"hidden_sizes": ()},
        {"threshold": np.float32(0.25), "learning_rate": np.float64(0.02), "max_epochs": np.int64(2)},
        {"random_state": np.int64(3)},
        {"random_state": np.random.RandomState(3)},
        {"device": torch.device("cpu")},
    ],
    ids=lambda parameters: "-".join(parameters),
)
def test_a_loaded_model_can_be_fitted_again(tmp_path, parameters):
    model = UnconstrainedClassifier(**{**QUICK, "max_epochs": 2, **parameters})
    model.fit(LOANS.X, LOANS.y, **LOANS.groups).save(tmp_path / "model")
    twin = gcig.load(tmp_path / "model")
    assert np.array_equal(twin.decision_function(TEST.X), model.decision_function(TEST.X))
    if not isinstance(parameters.get("random_state"), np.random.RandomState):
        again = twin.fit(LOANS.X, LOANS.y, **LOANS.groups)
        assert np.array_equal(again.decision_function(TEST.X), model.decision_function(TEST.X))
    else:
        assert twin.random_state is None


def test_warm_start_continues_from_a_loaded_model(saved):
    twin = gcig.load(saved).set_params(warm_start=True, learning_rate=1e-12, max_epochs=1)
    start = twin.decision_function(TEST.X)
    twin.fit(LOANS.X, LOANS.y.map({0: "no", 1: "yes"}), **LOANS.groups)
    assert np.allclose(twin.decision_function(TEST.X), start, atol=1e-4)


# --- Values ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Curve:
    knots: np.ndarray
    scale: float


def stored(value):
    """The value after a way through JSON and tensors."""
    tensors = {}
    plain = json.loads(json.dumps(encode(value, tensors, "value"), allow_nan=False, sort_keys=True))
    return decode(plain, tensors, [Curve, Binary, Classes, Number])


@pytest.mark.parametrize(
    "value",
    [
        (64, 32),
        (),
        [1, "a", None],
        {0: 1.0, 1: 5.0},
        {"no": 1, "yes": 2},
        {False: 1.0, True: 3.0},
        {"inf": 1.0, "tuple": {"float": (2,)}},
        math.inf,
        -math.inf,
        0.1 + 0.2,
        True,
        "f1",
        None,
        Binary(-0.5),
        Classes((0.5, 0.25, 0.25)),
        Number((0.0, 1.0), (-1.0, 0.5, 2.0), (0.5,), 1.5),
    ],
    ids=repr,
)
def test_values_come_back_with_their_type(value):
    found = stored(value)
    assert found == value
    assert type(found) is type(value)


def test_numpy_scalars_come_back_as_python_scalars():
    assert stored({"a": np.int64(3), "b": np.float32(0.5), np.int64(1): np.bool_(True)}) == {
        "a": 3,
        "b": 0.5,
        1: True,
    }


def test_undefined_numbers_come_back():
    assert math.isnan(stored({"gcig": math.nan})["gcig"])


def test_arrays_become_tensors_anywhere():
    given = {"a": (np.arange(3), [np.array([[math.inf, 0.5]], dtype=np.float32)])}
    first, (second,) = stored(given)["a"]
    assert first.dtype == np.int64
    assert second.dtype == np.float32
    assert np.array_equal(first, given["a"][0])
    assert np.array_equal(second, given["a"][1][0])


def test_records_come_back_if_they_are_known():
    found = stored((Curve(np.ones(2), math.inf),))[0]
    assert isinstance(found, Curve)
    assert np.array_equal(found.knots, np.ones(2))
    with pytest.raises(KeyError):
        decode({"record": "Curve", "fields": {}}, {})


def test_a_frame_keeps_its_columns_in_order_and_its_gaps():
    history = pd.DataFrame({"epoch": [1, 2], "total": [0.1 + 0.2, 2.0], "gcig": [math.nan, 0.25]})
    pd.testing.assert_frame_equal(stored(history), history, check_exact=True)


def test_other_values_are_refused_by_name():
    with pytest.raises(PersistenceError, match=r"value\.0 is a Linear, which cannot be saved"):
        stored({"network": nn.Linear(1, 1)})


# --- Networks of one's own ---------------------------------------------------------------------------


def own_network(width=8):
    torch.manual_seed(width)
    return nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.Tanh(), nn.Linear(width, 1))


@pytest.fixture
def saved_own(tmp_path):
    model = FairXClassifier.from_module(own_network(), **FAIRX).fit(LOANS.numbers, LOANS.y, **LOANS.groups)
    model.save(tmp_path / "own")
    return model, tmp_path / "own"


def test_a_users_network_is_loaded_with_its_module(saved_own):
    model, folder = saved_own
    given = own_network()
    twin = gcig.load(folder, module=given)
    assert np.array_equal(twin.decision_function(LOANS.numbers), model.decision_function(LOANS.numbers))
    assert twin.module is given
    assert twin.module_ is not given


def test_a_users_network_needs_its_module(saved_own):
    _, folder = saved_own
    with pytest.raises(InputError, match=r"gcig\.load\(path, module="):
        gcig.load(folder)
    with pytest.raises(InputError, match="does not have the architecture"):
        gcig.load(folder, module=own_network(9))


def test_a_network_of_this_package_given_as_module_needs_none(tmp_path):
    model = FairXClassifier(**FAIRX, module=make_mlp(7, (8,), "gelu")).fit(LOANS.X, LOANS.y, **LOANS.groups)
    model.save(tmp_path / "model")
    assert np.array_equal(
        gcig.load(tmp_path / "model").decision_function(TEST.X), model.decision_function(TEST.X)
    )


def test_a_users_network_that_predicts_a_number(tmp_path):
    """The scale of the labels is kept with the network."""
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    model = UnconstrainedRegressor(**QUICK, module=network, preprocessing="none")
    model.fit(LOANS.numbers, LOANS.X["age"].astype(float), **LOANS.groups).save(tmp_path / "model")
    assert type(model.module_) is Affine
    twin = gcig.load(tmp_path / "model", module=network)
    assert np.array_equal(twin.predict(LOANS.numbers), model.predict(LOANS.numbers))
    with pytest.raises(InputError, match=r"gcig\.load\(path, module="):
        gcig.load(tmp_path / "model")


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_mixtures_of_networks_come_back(n_outputs):
    parts = [make_mlp(4, (5,), n_outputs=n_outputs), make_mlp(4, (), n_outputs=n_outputs)]
    model = UnconstrainedClassifier(**QUICK).fit(inputs("classes", LOANS), LOANS.X["job"], **LOANS.groups)
    model.module_ = Affine(MixtureOfOutputs(parts, [1.0, 2.0]), 2.0, torch.ones(n_outputs)).eval()
    document, tensors = describe_model(model)
    state = {
        name.removeprefix("network."): each for name, each in tensors.items() if name.startswith("network.")
    }
    found, rows = restore_network(document["network"], state, None), torch.randn(6, 4)
    assert torch.equal(found(rows), model.module_(rows))


# --- What is refused ---------------------------------------------------------------------------------


def test_an_unfitted_model_is_not_saved(tmp_path):
    with pytest.raises(Exception, match="not fitted yet"):
        FairXClassifier().save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_something_else_is_not_replaced(model, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(PersistenceError, match="not replaced"):
        model.save(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_saved_model_is_replaced(saved):
    other = UnconstrainedClassifier(**{**QUICK, "max_epochs": 1}).fit(LOANS.X, LOANS.y, **LOANS.groups)
    other.save(saved)
    assert type(gcig.load(saved)) is UnconstrainedClassifier


def test_a_changed_file_is_refused(saved):
    for path in list(saved.iterdir()):
        before = path.read_bytes()
        middle = len(before) // 2
        path.write_bytes(before[:middle] + bytes([before[middle] ^ 1]) + before[middle + 1 :])
        with pytest.raises(PersistenceError, match=path.name):
            gcig.load(saved)
        path.unlink()
        with pytest.raises(PersistenceError, match=f"{path.name} is missing"):
            gcig.load(saved)
        path.write_bytes(before)
    gcig.load(saved)


def test_a_model_of_an_unknown_method_is_named(saved):
    rewritten(saved, lambda document, _: document.update(method="quantum"))
    with pytest.raises(
        PersistenceError, match=r"method 'quantum', which is not known.*register_method.*fairx"
    ):
        gcig.load(saved)


@pytest.mark.parametrize("task", [None, 7, ["binary"], "ranking", "number"], ids=str)
def test_a_model_for_a_task_that_its_method_does_not_have_is_refused(tmp_path, task):
    model = gcig.FairXPaperClassifier(**QUICK).fit(LOANS.X, LOANS.y, **LOANS.groups)
    model.save(tmp_path / "model")
    rewritten(tmp_path / "model", lambda document, _: document.update(task=task))
    with pytest.raises(PersistenceError, match=r"for the task .* it is for binary\."):
        gcig.load(tmp_path / "model")


@pytest.mark.parametrize("method", [None, 7, ["fairx"]], ids=str)
def test_a_model_without_a_method_is_refused(saved, method):
    rewritten(saved, lambda document, _: document.update(method=method))
    with pytest.raises(PersistenceError, match="is not known here"):
        gcig.load(saved)


def test_a_folder_of_another_kind_is_refused(saved):
    rewritten(saved, lambda *_: None, kind="gcig-report")
    with pytest.raises(PersistenceError, match="'gcig-report' where a 'gcig-model' is expected"):
        gcig.load(saved)


def other_network(document, tensors):
    network = make_mlp(3, (4,))
    document["network"] = network.architecture()
    for name in [name for name in tensors if name.startswith("network.")]:
        del tensors[name]
    tensors.update({f"network.{name}": value for name, value in network.state_dict().items()})


SHARES = {"record": "Classes", "fields": {"shares": {"tuple": [0.5, 0.5]}}}
CHANGES = {
    "no encoder": lambda document, _: document.pop("encoder"),
    "an unknown encoder": lambda document, _: document.update(encoder_kind="Pickle"),
    "no groups": lambda document, _: document.pop("groups"),
    "a group too many": lambda document, _: document["groups"].append("other"),
    "three classes": lambda document, _: document["classes"].append("perhaps"),
    "an unknown parameter": lambda document, _: document["parameters"].update(hooks="os.system"),
    "no threshold": lambda document, _: document["learned"].pop("threshold_"),
    "a threshold that is no number": lambda document, _: document["learned"].update(threshold_="high"),
    "a threshold that is no probability": lambda document, _: document["learned"].update(threshold_=7.0),
    "no task": lambda document, _: document["learned"].pop("task_"),
    "a task that it is not stored for": lambda document, _: document.update(task="classes"),
    "another task": lambda document, _: document["learned"].update(task_=SHARES),
    "an unknown kind of value": lambda document, _: document["learned"].update(weights_={"pickle": ""}),
    "an unknown record": lambda document, _: document["learned"].update(weights_={"record": "os"}),
    "weights that are infinite": lambda _, tensors: tensors["network.0.weight"].fill_(math.inf),
    "a wider network": lambda document, _: document["network"].update(hidden_sizes=[10**6]),
    "a network for other columns": other_network,
    "no baselines": lambda _, tensors: tensors.pop("baselines"),
    "other baselines": lambda _, tensors: tensors.update(baselines=torch.zeros(2, 2, 3)),
    "baselines of nothing": lambda _, tensors: tensors["baselines"].fill_(math.nan),
    "baselines of a cell without rows": lambda _, tensors: tensors["cell_sizes"].fill_(0),
    "cells of few rows": lambda _, tensors: tensors["cell_sizes"].fill_(3),
    "sizes of other cells": lambda _, tensors: tensors.update(cell_sizes=torch.full((3, 2), 50)),
    "blocks of other columns": lambda _, tensors: tensors.update({"learned.blocks_": torch.zeros(2)}),
    "an attribution that is not registered": lambda document, _: document["parameters"].update(
        attribution="x"
    ),
    "a missing weight": lambda _, tensors: tensors.pop("network.0.weight"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_documents_that_no_model_has_are_refused(saved, change):
    rewritten(saved, CHANGES[change])
    with pytest.raises(
        PersistenceError, match="does not hold a model of the method 'fairx' as this version of gcig stores"
    ):
        gcig.load(saved)


NUMBERS = {
    "edges": {"tuple": [3.0, 2.0, 1.0]},
    "centres": {"tuple": [1.0]},
    "outcome_edges": {"tuple": [1.0, 1.0]},
    "scale": -1.0,
}


@pytest.mark.parametrize("field", NUMBERS)
def test_bins_that_no_number_has_are_refused(tmp_path, field):
    model = UnconstrainedRegressor(**QUICK).fit(inputs("number", LOANS), TASKS["number"], **LOANS.groups)
    model.save(tmp_path / "model")

    def change(document, _):
        document["learned"]["task_"]["fields"][field] = NUMBERS[field]

    with pytest.raises(PersistenceError, match="does not hold a model of the method 'unconstrained'"):
        gcig.load(rewritten(tmp_path / "model", change))
    for name in ("label_mean_", "label_scale_"):
        model.save(tmp_path / "model")
        with pytest.raises(PersistenceError, match="not finite"):
            gcig.load(
                rewritten(tmp_path / "model", lambda d, _, n=name: d["learned"].update({n: {"float": "inf"}}))
            )


def test_a_model_of_an_older_format_is_refused_clearly():
    folder = Path(__file__).parents[1] / "persistence" / "saved" / "version-1"
    with pytest.raises(PersistenceError, match=r"saved in format version 1.*fit and save the model again"):
        gcig.load(folder)
