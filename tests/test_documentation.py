"""Every command and every Python block in the README and on the documentation pages.

A page is followed from top to bottom in an empty folder, as a reader would: files with a caption are written,
Python runs in one session, and commands go through the entry point of the shell. Fast tests shorten training;
slow tests run the pages as printed and compare the output of commands with the output on the page.
"""

import functools
import json
import pkgutil
import re
import runpy
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest

import gcig
from gcig.cli.shell import shell
from gcig.core.attribution import ATTRIBUTIONS
from gcig.core.references import REFERENCES
from gcig.core.task import TASKS
from gcig.datasets import registry
from gcig.methods import METHODS
from gcig.methods.base import NetworkClassifier
from gcig.metrics.measure import MEASURES, load_measures
from support.browsers import needs_browser, open_browser, requested_addresses
from support.documented_blocks import DOCS, ELSEWHERE, ROOT, Reader, blocks_of, commands_of, matches


def languages_on(path):
    return {block.language for block in blocks_of(path)}


# The README, the guide, the how-to pages, and every other page that has something to run.
PAGES = {
    "README": ROOT / "README.md",
    **{
        path.relative_to(DOCS).with_suffix("").as_posix(): path
        for path in sorted(DOCS.rglob("*.rst"))
        if path.parent.name in ("guide", "howto") or {"python", "console"} & languages_on(path)
    },
}
# Pages that use the files of another page.
AFTER = {
    "howto/audit_gate": "howto/own_table",
    "howto/bounds": "howto/own_table",
    "howto/compare": "howto/own_table",
    "howto/several_groups": "howto/own_table",
}
# Commands that take minutes, and the options that shorten them here.
SHORTER = {
    "demo": ["--folds", "2", "--methods", "unconstrained,fairx", "--epochs", "2", "--jobs", "1"],
    "compare": ["--folds", "2", "--methods", "unconstrained,fairx", "--jobs", "1"],
}
QUICK_EPOCHS = 2
# Pages that take long even with little training: only the slow tests follow them.
LONG = {
    "README",
    "howto/audit_foreign_model",
    "howto/audit_gate",
    "howto/bounds",
    "howto/compare",
    "howto/interop",
    "howto/large_tables",
    "howto/own_table",
    "howto/several_groups",
}


@pytest.fixture
def _few_epochs(monkeypatch):
    """Stop every method after a few epochs: the page is tested, not the quality of its models."""
    fit = NetworkClassifier.fit

    @functools.wraps(fit)  # scikit-learn reads its signature
    def fit_briefly(self, *rows, **more):
        self.max_epochs = min(self.max_epochs, QUICK_EPOCHS)
        return fit(self, *rows, **more)

    monkeypatch.setattr(NetworkClassifier, "fit", fit_briefly)


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """Return a reader in an empty folder; what it registers is removed afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for entries in (METHODS, registry._SPECS, TASKS, REFERENCES, ATTRIBUTIONS):
        monkeypatch.setattr(entries, "data", dict(entries.data))
    known = set(sys.modules)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short training, and libraries that warn about each other
        yield Reader(tmp_path, SHORTER)
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folders left by pages that other pages continue from, by page and by `Reader.compare`."""
    return tmp_path_factory.mktemp("pages"), {}


def write_loans(folder):
    """Write the files that the README assumes: a table of loans, and new rows."""
    rng = np.random.default_rng(0)
    sex = rng.choice(["female", "male"], 900)
    income = rng.normal(30, 8, 900) + (sex == "male")
    job = rng.choice(["clerk", "farmer", "nurse"], 900)
    approved = np.where(income + rng.normal(0, 6, 900) > 32, "yes", "no")
    loans = pd.DataFrame({"id": range(900), "sex": sex, "income": income, "job": job, "approved": approved})
    loans[:800].to_csv(folder / "loans.csv", index=False)
    loans[800:].drop(columns="approved").to_csv(folder / "new.csv", index=False)


def follow(reader, name, finished):
    store, folders = finished
    if name == "README":
        write_loans(reader.folder)
    if name in AFTER:
        key = (AFTER[name], reader.compare)
        if key not in folders:
            Reader(reader.folder, SHORTER, reader.compare).follow(PAGES[AFTER[name]])
            folders[key] = shutil.copytree(reader.folder, store / str(len(folders)))
        else:
            shutil.copytree(folders[key], reader.folder, dirs_exist_ok=True)
    return reader.follow(PAGES[name])


def lines_of(name):
    return [block.line for block in blocks_of(PAGES[name])]


@pytest.mark.usefixtures("_few_epochs")
@pytest.mark.parametrize("name", sorted(PAGES.keys() - LONG))
def test_page_runs_with_little_training(reader, name, finished):
    reader.compare = False
    assert follow(reader, name, finished) == lines_of(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_page_runs_as_printed(reader, name, finished):
    assert follow(reader, name, finished) == lines_of(name)


def test_every_page_has_something_to_run():
    for name, path in PAGES.items():
        assert {"python", "console"} & languages_on(path), name


def test_commands_appear_only_in_blocks_that_are_run():
    known = {"python", "console", "shell", "bash", "sh", "yaml", "text", "toml"}
    for name, path in PAGES.items():
        for block in blocks_of(path):
            assert block.language in known, f"{name}, line {block.line}: {block.language}"
            if block.language == "text":
                assert not re.search(r"^\$? ?gcig ", block.code, re.MULTILINE), f"{name}, line {block.line}"


def test_commands_and_options_on_pages_exist():
    text = "".join(path.read_text("utf-8") for path in [*PAGES.values(), *DOCS.glob("*.rst")])
    named = set(re.findall(r"(?:``|`|\$ |^    )gcig ([a-z]+)", text, re.MULTILINE))
    assert named <= set(shell.commands), named - set(shell.commands)
    options = set(re.findall(r"``(--[a-z][a-z-]+)", text))
    offered = {
        option for command in shell.commands.values() for each in command.params for option in each.opts
    }
    load_measures()
    measures = ["", *(name.replace("_", "-") for name in MEASURES)]
    limits = {f"--{end}-{name}" for end in ("max", "min") for name in measures}
    assert options - offered <= {"--json", "--only", *limits}, options - offered


def test_make_targets_on_pages_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for path in [*PAGES.values(), *DOCS.glob("*.rst")]:
        named = set(re.findall(r"(?:``|^    )make ([a-z-]+)", path.read_text("utf-8"), re.MULTILINE))
        assert named <= targets, f"{path.name}: {named - targets}"


def test_one_way_to_install():
    """One line everywhere: ``pip install gcig``, with extras in brackets if a page needs them."""
    for path in [ROOT / "README.md", *DOCS.rglob("*.rst"), *(ROOT / "examples").iterdir()]:
        if {"_build", "api", "gallery"} & set(path.relative_to(ROOT).parts) or path.is_dir():
            continue
        for line in re.findall(r"pip install [^\n`]*", path.read_text("utf-8")):
            assert re.match(r"pip install (gcig\b(?!\[)|'gcig\[[a-z,]+\]')", line), f"{path.name}: {line}"


def test_blocks_are_parsed(tmp_path):
    page = tmp_path / "page.rst"
    page.write_text(
        "Title\n=====\n\n.. code-block:: console\n\n   $ gcig train a.csv \\\n       --out b/\n   done\n"
        "   $ echo $?\n   0\n\n.. code-block:: toml\n   :caption: a.toml\n\n   x = 1\n"
    )
    first, second = blocks_of(page)
    assert (first.language, first.line, second.caption) == ("console", 4, "a.toml")
    assert commands_of(first) == [("gcig train a.csv      --out b/", "done\n"), ("echo $?", "0\n")]
    assert second.code == "x = 1\n"


def test_reader_rejects_wrong_pages(reader, tmp_path):
    page = tmp_path / "page.rst"
    for wrong in ("$ gcig datasets nonsense", "$ rm -r /", "$ gcig datasets german\n   nothing of the kind"):
        page.write_text(f".. code-block:: console\n\n   {wrong}\n")
        with pytest.raises(AssertionError):
            Reader(tmp_path).follow(page)
    page.write_text(".. code-block:: console\n\n   $ gcig datasets nonsense\n   ...\n   $ echo $?\n   2\n")
    Reader(tmp_path).follow(page)
    assert set(ELSEWHERE) == {"make", "pip", "open"}


def test_output_matches_up_to_numbers_and_ellipses():
    assert matches("AUC 0.81\n...\ndone", "first\nAUC  0.79\nmore\ndone\n")
    assert not matches("AUC 0.81 fine", "AUC 0.81 poor")


def test_listed_pages_exist():
    assert set(AFTER) | set(AFTER.values()) | LONG <= set(PAGES)
    assert shutil.which("gcig", path=Path(sys.executable).parent), "gcig is not installed with this Python"


def test_names_on_pages_can_be_imported():
    for path in [*PAGES.values(), *DOCS.glob("*.rst")]:
        for name in re.findall(r"(?<!`)`(gcig(?:\.\w+)+)`(?!`)", path.read_text("utf-8")):
            assert pkgutil.resolve_name(name) is not None, f"{path.name}: {name}"


def test_api_page_lists_every_public_name():
    page = (DOCS / "api.rst").read_text("utf-8")
    listed = set(re.findall(r"^   (\w+)$", page, re.MULTILINE))
    public = {*gcig.__all__, *gcig.metrics.__all__, *gcig.methods.__all__} - {"__version__"}
    assert public <= listed, public - listed


def test_tables_of_contents_list_every_page_once():
    generated = {"_build", "_templates", "api", "gallery"}
    pages = {
        path.relative_to(DOCS).with_suffix("").as_posix(): path.read_text("utf-8")
        for path in DOCS.rglob("*.rst")
        if not generated & set(path.relative_to(DOCS).parts[:-1])
    }
    listed = [
        name
        for text in pages.values()
        for block in re.findall(r"^\.\. toctree::\n((?:   .*\n|\n)*)", text, re.MULTILINE)
        for name in re.findall(r"^   (?:[^:\n<]+ <)?([\w/]+)>?$", block, re.MULTILINE)
    ]
    assert sorted(listed) == sorted({*pages, "gallery/index"} - {"index"})


def test_figures_exist_and_have_a_background():
    for path in DOCS.rglob("*.rst"):
        for name in re.findall(r"\.\. (?:figure|image):: (\S+\.svg)", path.read_text("utf-8")):
            picture = (path.parent / name).read_text("utf-8")
            assert 'class="paper"' in picture or "fill: #ffffff" in picture, (
                f"{name} has no background, which dark pages need"
            )


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the documentation in a copy of the checkout, with every example run, as ``make docs`` does."""
    pytest.importorskip("sphinx")
    copy = tmp_path_factory.mktemp("docs")
    ignored = shutil.ignore_patterns("_build", "api", "gallery")
    shutil.copytree(DOCS, copy / "docs", ignore=ignored)
    for name in ("examples", "results", "pyproject.toml"):
        (copy / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-b", "html", "docs", "html"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return copy / "html"


@pytest.mark.slow
def test_documentation_builds_without_warnings(built):
    _check_links(built)


@pytest.mark.slow
def test_examples_can_be_downloaded_as_notebooks(built):
    for path in (ROOT / "examples").glob("plot_*.py"):
        page = (built / "gallery" / f"{path.stem}.html").read_text("utf-8")
        (link,) = set(re.findall(r'href="([^"]+\.ipynb)"', page))
        notebook = json.loads((built / "gallery" / link).read_text("utf-8"))
        code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert code, path
        compile("\n".join(code), path.name, "exec")
        assert "sphx-glr-script-out" in page, f"{path.name}: the page shows no output"
        (archive,) = set(re.findall(r'href="([^"]+\.zip)"', page))
        with ZipFile(built / "gallery" / archive) as packed:
            assert json.loads(packed.read(f"{path.stem}.ipynb")) == notebook
        outputs = [each for cell in notebook["cells"] for each in cell.get("outputs", ())]
        shown = {kind for each in outputs for kind in each.get("data", {each["output_type"]: ""})}
        assert {"stream", "image/png"} <= shown, f"{path.name}: the notebook has no output"
        assert not [each for each in outputs if each.get("name") == "stderr"], path.name


@pytest.mark.slow
def test_names_in_the_equation_table_are_links(built):
    page = (built / "paper_to_code.html").read_text("utf-8")
    tables = page[page.index('id="formulas"') : page.index('id="methods"')]
    for name in re.findall(r"(?<!`)`(gcig(?:\.\w+)+)`(?!`)", (DOCS / "paper_to_code.rst").read_text("utf-8")):
        if f">{name}<" in tables:
            assert re.search(rf'<a [^>]*href="[^"]+"[^>]*><code[^>]*>(<span[^>]*>)?{name}<', tables), name


@pytest.mark.slow
def test_pages_load_nothing_from_the_network(built):
    sources = r'<(?:script|img|iframe|source)[^>]+src="([^"]+)"'
    loads = re.compile(rf'{sources}|<link [^>]*href="([^"]+)"|url\(([^)]+)\)')
    for path in [*built.rglob("*.html"), *built.rglob("*.css")]:
        for found in loads.findall(path.read_text("utf-8")):
            address = "".join(found).strip("'\"")
            assert not re.match(r"(https?:)?//", address), f"{path.relative_to(built)}: {address}"


@pytest.mark.slow
@needs_browser
def test_pages_open_offline_in_a_browser(built):
    names = ("index", "guide/fairx", "paper_to_code", "api", "gallery/index", "gallery/plot_paper")
    with open_browser() as driver:
        for name, width in [(name, width) for name in names for width in (1200, 375)]:
            driver.set_window_size(width, 1000)
            driver.get((built / f"{name}.html").as_uri())
            assert driver.find_elements("css selector", "main h1, main h2"), name
            errors = [each for each in driver.get_log("browser") if each["level"] == "SEVERE"]
            assert not errors, (name, errors)
            addresses = requested_addresses(driver)
            assert addresses, name
            assert all(each.startswith(("file:", "data:", "blob:")) for each in addresses), (name, addresses)
        driver.get((built / "paper_to_code.html").as_uri())
        formula = driver.find_element("css selector", "main math msub")
        assert formula.size["width"] > 0
        assert formula.size["height"] > 0
        driver.set_window_size(500, 1000)
        driver.get((built / "theory.html").as_uri())
        cut = """const left = each => each.getBoundingClientRect().left;
            return [...document.querySelectorAll('main div.math')]
                .filter(box => left(box.querySelector('math')) < left(box) - 1).length"""
        assert driver.execute_script(cut) == 0  # no scrolling reaches what lies to the left of its box


def _check_links(built):
    """Check that every link between pages has a target, including anchors."""
    pages = {path: path.read_text("utf-8") for path in built.rglob("*.html") if "_static" not in path.parts}
    ids = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
    for path, text in pages.items():
        for link in re.findall(r'href="([^"]+)"', text):
            if re.match(r"\w+:", link):
                continue
            name, _, anchor = re.sub(r"\?\w+=\w+", "", unquote(link)).partition("#")
            target = (path.parent / name).resolve() if name else path
            assert target.exists(), f"{path.name} -> {link}"
            # Source pages link back to the name in the defining module, not to the documented one.
            if anchor and target in ids and "_modules" not in path.parts:
                assert anchor in ids[target], f"{path.name} -> {link}"


@pytest.mark.slow
def test_figures_can_be_drawn_again(tmp_path):
    drawn = runpy.run_path(str(DOCS / "figures.py"))["draw"]()
    assert {f"{name}.svg" for name in drawn} == {path.name for path in (DOCS / "_static").glob("*.svg")}
    for picture in drawn.values():
        ElementTree.fromstring(str(picture))
