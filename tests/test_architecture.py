"""Architecture pages: folders, layers, the files of a fit and of an audit, and the reproduction."""

import inspect
import re
import sys
import threading
import tomllib
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest

import gcig

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "gcig"
PATHS = {name: DOCS / "architecture" / f"{name}.rst" for name in ("fit", "audit")}
MOST_FILES = 29  # on the path of a default fit; only ever lower it


def files_on(page):
    """Return the files of the package that a page names, such as ``core/disparity.py``."""
    return set(re.findall(r"``([\w/]+\.(?:py|html))``", page.read_text("utf-8")))


@contextmanager
def traced_files():
    """Collect the files of the package whose functions are called.

    Module and class bodies do not count, nor do ``__init__.py`` files, which only import names.
    """
    reached = set()
    folder = str(Path(gcig.__file__).parent) + "/"

    def profile(frame, event, _argument):
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(folder):
            reached.add(code.co_filename.removeprefix(folder))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield reached
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        reached -= {file for file in reached if file.endswith("__init__.py")}


@pytest.fixture(scope="module")
def table():
    data = gcig.load_dataset("german")
    return data.X[:400], data.y[:400], data.sensitive_features[:400]


@pytest.mark.parametrize("name", PATHS)
def test_files_on_the_pages_exist(name):
    missing = {file for file in files_on(PATHS[name]) if not (PACKAGE / file).is_file()}
    assert not missing


def test_a_fit_passes_few_files(table):
    X, y, groups = table
    model = gcig.FairXClassifier(max_epochs=2, repair="always", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two epochs are too few for a good model
        with traced_files() as fit:
            model.fit(X, y, sensitive_features=groups)
    assert len(fit) <= MOST_FILES, sorted(fit)
    assert files_on(PATHS["fit"]) & fit  # the trace works


@pytest.mark.slow
def test_path_of_an_audit_names_every_file_that_it_reaches(table, tmp_path):
    X, y, groups = table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = gcig.FairXClassifier(max_epochs=2, random_state=0).fit(X, y, sensitive_features=groups)
        with traced_files() as audit:
            found = gcig.audit(model, X, y, sensitive_features=groups, n_bootstrap=20)
            found.to_html(tmp_path / "audit.html")
            found.check(max_gcig=0.3)
    assert not sorted(audit - files_on(PATHS["audit"]))


def test_reproduction_names_every_module():
    page = (DOCS / "architecture" / "reproduction.rst").read_text("utf-8")
    named = set(re.findall(r"``reproduction/(\w+\.py)``", page))
    assert named == {file.name for file in (ROOT / "reproduction").glob("*.py")} - {"__init__.py"}


def test_map_lists_every_folder_and_the_layers():
    page = (DOCS / "architecture.rst").read_text("utf-8")
    folders = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.glob("*/__init__.py")}
    listed = set(re.findall(r"^   \* - ``(\w+)/``$", page, re.MULTILINE))
    assert listed == folders
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ][0]
    layers = [re.sub(r"[()]", "", layer) for layer in contract["layers"]]
    (shown,) = re.findall(r"code-block:: text\n\n((?:   .*\n)+)", page)
    assert [line.strip() for line in shown.strip().splitlines()] == layers[:-1]  # the last one is private
