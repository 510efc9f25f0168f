"""Examples in docstrings: each one runs, and every public name has one."""

import doctest
import importlib
import inspect
from pathlib import Path

import pytest

import gcig
from gcig.datasets import registry
from gcig.methods import METHODS
from gcig.metrics import MEASURES

SOURCE = Path(gcig.__file__).parent
# Modules whose examples run whole fits, comparisons or searches.
SLOW = {
    "gcig.benchmark.comparison",
    "gcig.benchmark.tuning",
    "gcig.methods.fairx.estimator",
    "gcig.methods.onnx_export",
    "gcig.methods.onnx_graph",
}
# Packages whose public names need an example, and the names that do not.
PUBLIC = ("gcig", "gcig.metrics", "gcig.methods", "gcig.auditing", "gcig.report")
WITHOUT = {"gcig.__version__", "gcig.methods.METHODS", "gcig.metrics.MEASURES"}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def modules_with_examples() -> list[object]:
    names = [module_name(p) for p in sorted(SOURCE.rglob("*.py")) if ">>> " in p.read_text("utf-8")]
    return [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in names]


@pytest.fixture(autouse=True)
def _clean_up(monkeypatch):
    """Open no windows, and remove methods, measures and datasets that examples register."""
    monkeypatch.setattr(METHODS, "data", dict(METHODS.data))
    monkeypatch.setattr(MEASURES, "data", dict(MEASURES.data))
    monkeypatch.setattr(registry._SPECS, "data", dict(registry._SPECS.data))
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_of_module_run(name):
    module = importlib.import_module(name)
    runner, output = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS), []
    tests = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    assert tests, "doctest finds none of the examples in this module"
    for test in tests:
        runner.run(test, out=output.append)
    assert not runner.failures, "".join(output)


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_has_an_example(package):
    names = {name: getattr(importlib.import_module(package), name) for name in _listed(package)}
    missing = [name for name, found in names.items() if ">>> " not in _documented(found)]
    assert not missing


def _listed(package: str) -> list[str]:
    listed = importlib.import_module(package).__all__
    return [name for name in listed if f"{package}.{name}" not in WITHOUT]


def _documented(found: object) -> str:
    """Return the docstring of a function, or of a class and its public methods."""
    texts = [inspect.getdoc(found) or ""]
    if inspect.isclass(found):
        own = [each for name, each in vars(found).items() if not name.startswith("_")]
        texts += [inspect.getdoc(each) or "" for each in own if callable(getattr(each, "__func__", each))]
    return "\n".join(texts)
