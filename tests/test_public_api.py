"""Every public name exists, is what it is called, and still works the second time."""

import pkgutil
import subprocess
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn

import gcig
from gcig.tables.encoding import TableEncoder

NAMES = [name for name in dir(gcig) if not name.startswith("_")]
SUBPACKAGES = {name for name in NAMES if isinstance(getattr(gcig, name), types.ModuleType)}

x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
y, groups = torch.arange(60) % 2, torch.arange(60) // 2 % 2
net = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 1))
rows = {"sensitive_features": groups.numpy()}


def fitted():
    model = gcig.FairXClassifier(max_epochs=1, hidden_sizes=(4,), budget=0, random_state=0)
    return model.fit(x.numpy(), (x[:, 0] > 0).long().numpy(), **rows)


def published():
    model = gcig.FairXPaperClassifier(max_epochs=1, hidden_sizes=(4,), random_state=0)
    return model.fit(x.numpy(), (x[:, 0] > 0).long().numpy(), **rows)


def saved_and_loaded(folder):
    fitted().save(folder / "model")
    return gcig.load(folder / "model")


def audited():
    return gcig.audit(net, x.numpy(), y.numpy(), **rows, n_bootstrap=5)


def compared():
    quick = {"unconstrained": {"max_epochs": 1, "hidden_sizes": (4,)}}
    return gcig.compare(x.numpy(), y.numpy(), **rows, methods=["unconstrained"], parameters=quick, folds=2)


def raised(error, function, *arguments):
    with pytest.raises(error) as caught:
        function(*arguments)
    return caught.value


def warned(category, function, *arguments):
    with pytest.warns(category) as caught:
        function(*arguments)
    return caught[0].message


class Registered(gcig.FairXClassifier):
    """A method from outside the package."""


def registered_method():
    gcig.register_method("outside", Registered, overwrite=True)
    return gcig.methods.METHODS["outside"].estimator


def prepared():
    plan = gcig.prepare(net, reference=(x.numpy(), y.numpy(), groups.numpy()), n_bootstrap=0)
    return plan.measure(x.numpy(), y.numpy(), groups.numpy()).result()


def registered_measure():
    errors = gcig.metrics.Measure(
        "error_rate", lambda counts: 1 - counts.accuracy, "counts", "Error rate", "Share of wrong decisions."
    )
    gcig.register_measure(errors, overwrite=True)
    return gcig.evaluate(net, x.numpy(), y.numpy(), **rows, n_bootstrap=0, measures=["error_rate"]).error_rate


USES = {
    "AuditResult": lambda _: gcig.AuditResult.from_json(audited().to_json()),
    "CheckResult": lambda _: gcig.CheckResult(()),
    "ComparisonResult": lambda _: gcig.ComparisonResult(compared().results, ()).summary(),
    "Definition": lambda _: gcig.Definition(norm="l2"),
    "EqualizedOddsLoss": lambda _: gcig.EqualizedOddsLoss()(net(x).flatten(), y, groups),
    "Evaluation": lambda _: gcig.evaluate(net, x.numpy(), y.numpy(), **rows, n_bootstrap=0),
    "Explanation": lambda _: fitted().explain(x.numpy()).top_columns(),
    "FairXClassifier": lambda _: fitted(),
    "FairXPaperClassifier": lambda _: published(),
    "FairXRegressor": lambda _: gcig.FairXRegressor(budget=0, max_epochs=1).fit(
        x.numpy(), x[:, 0].numpy(), **rows
    ),
    "GCIGPenalty": lambda _: gcig.GCIGPenalty(gcig.GroupBaselines.from_data(x, y, groups))(net, x, y),
    "GroupBaselines": lambda _: gcig.GroupBaselines.from_data(x, y, groups).values,
    "ReasonGapPenalty": lambda _: gcig.ReasonGapPenalty(gcig.GroupBaselines.from_data(x, y, groups))(
        net, x, y
    ),
    "InputError": lambda _: raised(gcig.InputError, fitted().predict, "a name"),
    "InputWarning": lambda _: warned(gcig.InputWarning, TableEncoder().fit, {"constant": [1, 1]}),
    "PersistenceError": lambda folder: raised(gcig.PersistenceError, gcig.load, folder / "nothing"),
    "adapt": lambda _: gcig.adapt(net, x.numpy()).columns,
    "audit": lambda _: audited().check(max_gcig=2.0).passed,
    "compare": lambda _: compared().pareto(),
    "evaluate": lambda _: gcig.evaluate(net, x.numpy(), y.numpy(), **rows, n_bootstrap=0).gcig,
    "explain": lambda _: gcig.explain(fitted(), x.numpy()).record,
    "list_datasets": lambda _: gcig.list_datasets(),
    "load": saved_and_loaded,
    "load_dataset": lambda _: gcig.load_dataset("german").X,
    "prepare": lambda _: prepared(),
    "register_measure": lambda _: registered_measure(),
    "register_method": lambda _: registered_method(),
}
# Records and registration of data, and what goes wrong in training, have tests of their own.
USED_ELSEWHERE = {
    *("Dataset", "DatasetSpec", "ProtectedAttribute", "register_dataset"),
    *("BoundWarning", "CollapseWarning", "DivergenceError", "ReasonsWarning", "ThresholdWarning"),
    *("NothingToRepairWarning", "register_attribution", "register_references", "register_task"),
    "TradeOff",
}


@pytest.fixture(autouse=True)
def _registry_as_it_was(monkeypatch):
    for registry in (gcig.methods.METHODS, gcig.metrics.MEASURES):
        monkeypatch.setattr(registry, "data", dict(registry.data))


@pytest.mark.filterwarnings("ignore::UserWarning")  # one epoch is not enough to learn anything
@pytest.mark.parametrize("name", sorted(USES))
def test_a_public_name_can_be_used_twice(name, tmp_path):
    for _ in range(2):
        found = getattr(gcig, name)
        assert not isinstance(found, types.ModuleType)
        assert USES[name](tmp_path) is not None


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SUBPACKAGES])
def test_a_public_name_is_the_same_object_each_time_and_documented(name):
    found = getattr(gcig, name)
    assert getattr(gcig, name) is found
    assert callable(found)
    assert found.__doc__
    assert found.__module__.startswith("gcig.")


def test_what_is_listed_and_what_can_be_had_are_the_same():
    assert set(gcig.__all__) - {"__version__"} == set(NAMES) - SUBPACKAGES
    for name in gcig.__all__:
        assert getattr(gcig, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'fairx'"):
        gcig.fairx  # noqa: B018 (looking it up is the test)


def test_no_public_function_shares_a_submodules_name():
    modules = {module.name for module in pkgutil.iter_modules(gcig.__path__)}
    assert not modules & (set(gcig.__all__) - SUBPACKAGES)


@pytest.mark.slow
def test_importing_everything_hides_no_name():
    # A submodule that is imported becomes an attribute of the package, and would replace a name like its own.
    code = (
        "import importlib, pkgutil, types, gcig\n"
        "for module in pkgutil.walk_packages(gcig.__path__, 'gcig.'):\n"
        "    importlib.import_module(module.name)\n"
        "hidden = [n for n in gcig.__all__ if isinstance(getattr(gcig, n), types.ModuleType)]\n"
        "assert not hidden, hidden\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_used_somewhere():
    used = USES.keys() | USED_ELSEWHERE
    missing, gone = set(NAMES) - SUBPACKAGES - used, used - set(NAMES)
    assert not missing, f"add a use of {missing} to USES above"
    assert not gone, f"no longer public: {gone}"


def test_metrics_and_methods_are_reached_through_their_packages():
    score = gcig.metrics.gcig_score(net, x.numpy(), y.numpy(), **rows)
    assert np.isfinite(score)
    assert gcig.methods.METHODS["fairx"].estimator is gcig.FairXClassifier
    assert gcig.methods.METHODS["fairx"].label == "FairX"
