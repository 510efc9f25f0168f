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
from torch import nn

import gcig
from gcig._validation import InputError
from gcig.methods.fairx.estimator import FairXClassifier
from gcig.methods.saving import decode, encode
from gcig.methods.unconstrained import UnconstrainedClassifier
from gcig.metrics import gcig_score
from gcig.models.mlp import make_mlp
from gcig.persistence import PersistenceError, load_folder, save_folder
from tables import QUICK, make_loans

pytestmark = pytest.mark.usefixtures("short_epochs")

LOANS, TEST = make_loans(), make_loans(50, seed=1)


@pytest.fixture(scope="module")
def model():
    answers = LOANS.y.map({0: "no", 1: "yes"})
    return FairXClassifier(**QUICK, lambda_ig=0.1, threshold="f1").fit(LOANS.X, answers, **LOANS.groups)


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


def test_a_loaded_model_is_the_same_model(model, saved):
    twin = gcig.load(saved)
    assert type(twin) is FairXClassifier
    assert twin.get_params() == model.get_params()
    for method in ("encode", "decision_function", "predict_proba", "predict"):
        assert np.array_equal(getattr(twin, method)(TEST.X), getattr(model, method)(TEST.X))
    assert np.array_equal(twin.explain(TEST.X).attributions, model.explain(TEST.X).attributions)
    assert gcig_score(twin, TEST.X, TEST.y, **TEST.groups) == gcig_score(model, TEST.X, TEST.y, **TEST.groups)


def test_a_loaded_model_has_all_fitted_attributes(model, saved):
    twin = gcig.load(saved)
    assert vars(twin).keys() == vars(model).keys()
    pd.testing.assert_frame_equal(twin.history_, model.history_, check_exact=True)
    pd.testing.assert_frame_equal(twin.changes_, model.changes_, check_exact=True)
    for name in ("baselines_", "ema_baselines_", "classes_", "feature_names_in_"):
        assert np.array_equal(getattr(twin, name), getattr(model, name))
        assert getattr(twin, name).dtype.kind == getattr(model, name).dtype.kind
    for name in ("groups_", "threshold_", "weights_", "n_epochs_", "n_features_in_"):
        assert getattr(twin, name) == getattr(model, name)
    for name in ("plain_", "validation_"):
        assert getattr(twin, name) == pytest.approx(getattr(model, name), rel=0, abs=0, nan_ok=True)
    for name in ("collapsed_", "changed_columns_", "braked_", "diverged_"):
        assert getattr(twin, name) is getattr(model, name)


def test_saving_a_loaded_model_gives_the_same_bytes(saved, tmp_path):
    gcig.load(saved).save(tmp_path / "again")
    for file in sorted(saved.iterdir()):
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()


def test_the_folder_describes_its_content(saved):
    assert sorted(file.name for file in saved.iterdir()) == [
        "manifest.json",
        "model.json",
        "tensors.safetensors",
    ]
    document = json.loads((saved / "model.json").read_text())
    assert document["method"] == "fairx"
    assert document["classes"] == ["no", "yes"]
    assert document["groups"] == ["female", "male"]
    assert document["parameters"]["strategy"] == "distil"
    manifest = json.loads((saved / "manifest.json").read_text())
    assert {"gcig", "python", "torch"} <= manifest["versions"].keys()


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


def test_a_drop_without_limit_is_kept(tmp_path):
    model = FairXClassifier(**QUICK, max_auc_drop=math.inf).fit(LOANS.X, LOANS.y, **LOANS.groups)
    model.save(tmp_path / "model")
    assert gcig.load(tmp_path / "model").max_auc_drop == math.inf


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
    return decode(plain, tensors, [Curve, gcig.Definition])


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
        gcig.Definition(norm="l2", n_steps=8),
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
    model = FairXClassifier.from_module(own_network(), **QUICK).fit(LOANS.numbers, LOANS.y, **LOANS.groups)
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
    model = FairXClassifier(**QUICK, module=make_mlp(7, (8,), "gelu")).fit(LOANS.X, LOANS.y, **LOANS.groups)
    model.save(tmp_path / "model")
    assert np.array_equal(
        gcig.load(tmp_path / "model").decision_function(TEST.X), model.decision_function(TEST.X)
    )


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


@pytest.mark.parametrize("name", ["manifest.json", "model.json", "tensors.safetensors"])
def test_a_changed_file_is_refused(saved, name):
    data = bytearray((saved / name).read_bytes())
    position = len(data) // 2
    data[position] ^= 1
    (saved / name).write_bytes(bytes(data))
    with pytest.raises(PersistenceError, match=name.replace(".", r"\.")):
        gcig.load(saved)


@pytest.mark.parametrize("name", ["manifest.json", "model.json", "tensors.safetensors"])
def test_a_missing_file_is_refused(saved, name):
    (saved / name).unlink()
    with pytest.raises(PersistenceError, match="missing"):
        gcig.load(saved)


def test_a_model_of_an_unknown_method_is_named(saved):
    rewritten(saved, lambda document, _: document.update(method="quantum"))
    with pytest.raises(
        PersistenceError, match=r"method 'quantum', which is not known.*register_method.*fairx"
    ):
        gcig.load(saved)


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


CHANGES = {
    "no encoder": lambda document, _: document.pop("encoder"),
    "an unknown encoder": lambda document, _: document.update(encoder_kind="Pickle"),
    "no groups": lambda document, _: document.pop("groups"),
    "a group too many": lambda document, _: document["groups"].append("other"),
    "three classes": lambda document, _: document["classes"].append("perhaps"),
    "an unknown parameter": lambda document, _: document["parameters"].update(hooks="os.system"),
    "a threshold that is no number": lambda document, _: document.update(threshold="high"),
    "a threshold that is no probability": lambda document, _: document.update(threshold=7.0),
    "an unknown kind of value": lambda document, _: document["learned"].update(weights_={"pickle": ""}),
    "an unknown record": lambda document, _: document["learned"].update(weights_={"record": "os"}),
    "weights that are infinite": lambda _, tensors: tensors["network.0.weight"].fill_(math.inf),
    "a wider network": lambda document, _: document["network"].update(hidden_sizes=[10**6]),
    "a network for other columns": other_network,
    "no baselines": lambda _, tensors: tensors.pop("baselines"),
    "other baselines": lambda _, tensors: tensors.update(baselines=torch.zeros(2, 2, 3)),
    "baselines of nothing": lambda _, tensors: tensors["baselines"].fill_(math.nan),
    "a missing weight": lambda _, tensors: tensors.pop("network.0.weight"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_documents_that_no_model_has_are_refused(saved, change):
    rewritten(saved, CHANGES[change])
    with pytest.raises(
        PersistenceError, match="does not hold a model of the method 'fairx' as this version of gcig stores"
    ):
        gcig.load(saved)


@pytest.mark.parametrize("folder", sorted((Path(__file__).parents[1] / "persistence" / "saved").iterdir()))
def test_a_saved_model_of_every_format_version_still_loads(folder):
    """Predictions of a model that was saved when the format was new."""
    model = gcig.load(folder)
    loans = make_loans(120)
    probability = model.predict_proba(loans.X[:5], sensitive_features=loans.sex[:5])[:, 1]
    np.testing.assert_allclose(probability, [0.493524, 0.551145, 0.57948, 0.645291, 0.503354], atol=1e-5)
