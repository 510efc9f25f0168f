"""Models in skops files and in MLflow: logged, registered, loaded in another process, and served."""

import copy
import importlib
import json
import os
import pickle
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch import nn

import gcig
from example_tables import QUICK, make_loans
from gcig.methods import METHODS, skops_types
from gcig.persistence import PersistenceError
from gcig.tables.encoding import TableEncoder

# Short training may leave a model that a guard warns of; here it is only stored.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

LOANS, TEST = make_loans(), make_loans(50, seed=1)


@pytest.fixture(scope="module")
def model():
    return gcig.FairXClassifier(**QUICK, repair="always").fit(
        LOANS.X, LOANS.y.map({0: "no", 1: "yes"}), **LOANS.groups
    )


LABELS = {"binary": LOANS.y, "classes": LOANS.X["job"], "number": LOANS.X["age"].astype(float)}


@pytest.mark.parametrize(
    "key",
    [key if key in ("hardt", "fairx") else pytest.param(key, marks=pytest.mark.slow) for key in METHODS],
)
@pytest.mark.parametrize("task", LABELS)
def test_skops_stores_every_method_as_text_and_arrays(key, task):
    io = pytest.importorskip("skops.io")
    if task not in METHODS[key].tasks:
        pytest.skip("the method is not defined for the task")
    estimator = METHODS[key].estimator_for(task)
    settings = {name: value for name, value in QUICK.items() if name in estimator().get_params()}
    fitted = estimator(**settings).fit(LOANS.X, LABELS[task], **LOANS.groups)
    stored = io.dumps(fitted)
    assert set(io.get_untrusted_types(data=stored)) <= set(skops_types())
    again = io.loads(stored, trusted=skops_types())
    groups = {"sensitive_features": TEST.sex} if fitted.needs_groups_to_predict else {}
    scores = "predict" if task == "number" else "predict_proba"
    assert np.array_equal(getattr(again, scores)(TEST.X, **groups), getattr(fitted, scores)(TEST.X, **groups))
    assert again.get_params().keys() == fitted.get_params().keys()


def test_skops_refuses_what_is_not_trusted_and_what_was_edited(model):
    io = pytest.importorskip("skops.io")
    with pytest.raises(TypeError, match="FairXClassifier"):
        io.loads(io.dumps(model))
    state = model.__getstate__()
    assert set(state) == {"gcig_document", "gcig_tensors"}
    document = json.loads(state["gcig_document"])
    document["learned"]["threshold_"] = 7
    edited = gcig.FairXClassifier.__new__(gcig.FairXClassifier)
    with pytest.raises(ValueError, match="is not a probability"):
        edited.__setstate__(state | {"gcig_document": json.dumps(document)})


def test_pipelines_with_a_model_or_the_encoder_go_through_skops(model):
    io = pytest.importorskip("skops.io")
    encoded = make_pipeline(TableEncoder(), LogisticRegression()).fit(LOANS.X, LOANS.y)
    for pipeline in (make_pipeline("passthrough", model), encoded):
        again = io.loads(io.dumps(pipeline), trusted=skops_types())
        assert np.array_equal(again.predict(TEST.X), pipeline.predict(TEST.X))


def test_pickle_and_copies_keep_the_object_as_it_is(model):
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        assert vars(again).keys() == vars(model).keys()
        assert np.array_equal(again.predict_proba(TEST.X), model.predict_proba(TEST.X))
    own = gcig.FairXClassifier(**QUICK, repair="always", module=nn.Linear(7, 1)).fit(
        LOANS.X, LOANS.y, **LOANS.groups
    )
    assert isinstance(pickle.loads(pickle.dumps(own)).module, nn.Linear)
    with pytest.raises(PersistenceError, match="a custom network"):
        own.__getstate__()
    unfitted = pickle.loads(pickle.dumps(gcig.FairXClassifier(budget=0.07)))
    assert unfitted.budget == 0.07


def test_the_plugin_trusts_gcig_types_only_for_models_that_contain_them(model):
    pytest.importorskip("mlflow")
    from gcig.methods.mlflow_plugin import fill_trusted_types

    def save_model(sk_model, path, serialization_format=None, skops_trusted_types=None):
        return sk_model, path, serialization_format, skops_trusted_types

    flavor = SimpleNamespace(save_model=save_model)  # stands in for mlflow.sklearn
    fill_trusted_types(flavor)
    save, own = flavor.save_model, skops_types()
    for each in (model, make_pipeline("passthrough", model), TableEncoder()):
        assert save(each, "folder") == (each, "folder", None, own)
    assert save(path="folder", sk_model=model, skops_trusted_types=["a.B"])[-1] == ["a.B", *own]
    assert save(model, "folder", "skops", own) == (model, "folder", "skops", own)
    assert save(model, "folder", "cloudpickle")[-1] is None
    assert save(LogisticRegression(), "folder")[-1] is None
    assert save(make_pipeline(LogisticRegression()), "folder", None, ["a.B"])[-1] == ["a.B"]
    with pytest.raises(TypeError, match="sk_model"):
        save()


def test_the_plugin_leaves_versions_of_mlflow_without_skops_alone():
    pytest.importorskip("mlflow")
    from gcig.methods.mlflow_plugin import fill_trusted_types

    old = SimpleNamespace(save_model=copy.copy)
    fill_trusted_types(old)
    assert old.save_model is copy.copy


def test_the_plugin_does_not_slow_down_mlflow():
    pytest.importorskip("mlflow")
    code = (
        "import sys\n"
        "from gcig.methods.mlflow_plugin import GcigRunContext\n"
        "print(GcigRunContext().in_context(), *sorted({'torch', 'sklearn', 'skops'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False"], done.stderr


def test_the_package_declares_the_plugin():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    (location,) = project["entry-points"]["mlflow.run_context_provider"].values()
    pytest.importorskip("mlflow")
    module, _, name = location.partition(":")
    context = getattr(importlib.import_module(module), name)()
    assert context.in_context()
    assert context.tags() == {"gcig.version": gcig.__version__}


@pytest.fixture(scope="module")
def logged(model, tmp_path_factory):
    """The address of a registered model, and the environment that finds it."""
    mlflow = pytest.importorskip("mlflow")
    from gcig.methods.mlflow_plugin import GcigRunContext

    GcigRunContext()  # what the entry point does if the package is installed
    store = tmp_path_factory.mktemp("mlflow") / "runs"
    settings = {
        "MLFLOW_TRACKING_URI": store.as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "GIT_PYTHON_REFRESH": "quiet",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        mlflow.set_tracking_uri(store.as_uri())
        with mlflow.start_run():
            mlflow.sklearn.log_model(
                model,
                name="model",
                registered_model_name="loans",
                pip_requirements=[f"gcig=={gcig.__version__}"],
            )
        yield "models:/loans/1", {**os.environ, **settings}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_loads_a_registered_model_in_another_process(logged, model, tmp_path):
    address, environment = logged
    TEST.X.to_parquet(tmp_path / "rows.parquet")
    code = (
        "import mlflow, pandas\n"
        f"rows = pandas.read_parquet({str(tmp_path / 'rows.parquet')!r})\n"
        f"print(*mlflow.pyfunc.load_model({address!r}).predict(rows))\n"
        f"print(type(mlflow.sklearn.load_model({address!r})).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    decisions, kind = done.stdout.splitlines()[-2:]
    assert decisions.split() == model.predict(TEST.X).tolist()
    assert kind == "FairXClassifier"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_serves_a_model(logged, model):
    address, environment = logged
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["mlflow", "models", "serve", "-m", address, "-p", str(port), "--env-manager", "local"]
    folder = Path(sys.executable).parent  # the server starts uvicorn by its name
    server = subprocess.Popen(
        [sys.executable, "-m", *command],
        env={**environment, "PATH": f"{folder}{os.pathsep}{environment['PATH']}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    body = json.dumps({"dataframe_split": json.loads(TEST.X.to_json(orient="split", index=False))}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/invocations", body, {"Content-Type": "application/json"}
    )
    try:
        for _ in range(120):
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    served = json.load(answer)["predictions"]
                break
            except OSError:
                assert server.poll() is None, "the server stopped"
                time.sleep(1)
        assert served == model.predict(TEST.X).tolist()
    finally:
        server.terminate()
        server.wait(30)
