"""Every command and every block of Python in README and in the guide and how-to pages is run.

A page is followed from top to bottom in an empty folder, as a reader would: files with a caption are written,
Python is run in one session, commands go through the shell's own entry point. Fast tests cut training short;
slow ones run the pages as they are printed and compare what commands print with what the page shows.
"""

import functools
import pkgutil
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import gcig
from documented_blocks import DOCS, ELSEWHERE, ROOT, Reader, blocks_of, commands_of, matches
from gcig.cli.shell import shell
from gcig.data.datasets import registry
from gcig.methods import METHODS
from gcig.methods.base import NetworkClassifier


def languages(path):
    return {block.language for block in blocks_of(path)}


# README, the guide, the how-to pages, and any other page that has something to run.
PAGES = {
    "README": ROOT / "README.md",
    **{
        path.relative_to(DOCS).with_suffix("").as_posix(): path
        for path in sorted(DOCS.rglob("*.rst"))
        if path.parent.name in ("guide", "howto") or {"python", "console"} & languages(path)
    },
}
# Pages that go on with the files of another one.
AFTER = {
    "howto/audit_gate": "howto/own_table",
    "howto/compare": "howto/own_table",
    "howto/several_groups": "howto/own_table",
}
# Commands that take minutes, and what is added to them here: less of the same.
SHORTER = {
    "demo": ["--folds", "2", "--methods", "unconstrained,fairx", "--epochs", "2", "--jobs", "1"],
    "compare": ["--folds", "2", "--methods", "unconstrained,fairx", "--jobs", "1"],
    "reproduce": ["--datasets", "german", "--methods", "unconstrained,fairx", "--folds", "2", "--jobs", "1"],
}
QUICK_EPOCHS = 2
# Pages that take long even with little training: only the slow tests follow them.
LONG = {
    "README",
    "howto/audit_foreign_model",
    "howto/audit_gate",
    "howto/compare",
    "howto/interop",
    "howto/own_table",
    "howto/several_groups",
}
# Pages without anything to run explain; everything else has to be run.
PROSE: set[str] = set()


@pytest.fixture
def _few_epochs(monkeypatch):
    """Every method stops after a few epochs: what is tested is the page, not how good its models are."""
    fit = NetworkClassifier.fit

    @functools.wraps(fit)  # scikit-learn reads its signature
    def fit_briefly(self, *rows, **more):
        self.max_epochs = min(self.max_epochs, QUICK_EPOCHS)
        return fit(self, *rows, **more)

    monkeypatch.setattr(NetworkClassifier, "fit", fit_briefly)


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """A reader in an empty folder, whose registered methods and datasets are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(METHODS, "_methods", dict(METHODS._methods))
    monkeypatch.setattr(registry, "_SPECS", dict(registry._SPECS))
    known = set(sys.modules)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short training, and libraries that warn of each other
        yield Reader(tmp_path, SHORTER)
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folders as pages leave them that others go on from, by page and way of running."""
    return tmp_path_factory.mktemp("pages"), {}


def write_loans(folder):
    """What the README takes for granted: a table of loans, rows that were kept aside, and new ones."""
    rng = np.random.default_rng(0)
    sex = rng.choice(["female", "male"], 900)
    income = rng.normal(30, 8, 900) + (sex == "male")
    job = rng.choice(["clerk", "farmer", "nurse"], 900)
    approved = np.where(income + rng.normal(0, 6, 900) > 32, "yes", "no")
    loans = pd.DataFrame({"id": range(900), "sex": sex, "income": income, "job": job, "approved": approved})
    loans[:500].to_csv(folder / "loans.csv", index=False)
    loans[500:800].to_csv(folder / "test.csv", index=False)
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
    reader.follow(PAGES[name])


@pytest.mark.usefixtures("_few_epochs")
@pytest.mark.parametrize("name", sorted(PAGES.keys() - LONG))
def test_a_page_can_be_followed(reader, name, finished):
    reader.compare = False
    follow(reader, name, finished)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_followed_as_it_is_printed(reader, name, finished):
    follow(reader, name, finished)


def test_every_page_has_something_to_run():
    for name, path in PAGES.items():
        assert {"python", "console"} & languages(path) or name in PROSE, name


def test_what_looks_like_a_command_is_in_a_block_that_is_run():
    known = {"python", "console", "shell", "bash", "sh", "yaml", "text", "toml"}
    for name, path in PAGES.items():
        for block in blocks_of(path):
            assert block.language in known, f"{name}, line {block.line}: {block.language}"
            if block.language == "text":
                assert not re.search(r"^\$? ?gcig ", block.code, re.MULTILINE), f"{name}, line {block.line}"


def test_commands_in_running_text_and_blocks_exist():
    text = "".join(path.read_text("utf-8") for path in [*PAGES.values(), *DOCS.glob("*.rst")])
    named = set(re.findall(r"(?:``|`|\$ |^    )gcig ([a-z]+)", text, re.MULTILINE))
    assert named <= set(shell.commands), named - set(shell.commands)
    options = set(re.findall(r"``(--[a-z][a-z-]+)", text))
    offered = {
        option for command in shell.commands.values() for each in command.params for option in each.opts
    }
    assert options - offered <= {"--json", "--only", "--tune"}, options - offered


def test_targets_of_make_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for path in [*PAGES.values(), *DOCS.glob("*.rst")]:
        named = set(re.findall(r"(?:``|^    )make ([a-z-]+)", path.read_text("utf-8"), re.MULTILINE))
        assert named <= targets, f"{path.name}: {named - targets}"


def test_a_block_knows_its_language_its_caption_and_its_commands(tmp_path):
    page = tmp_path / "page.rst"
    page.write_text(
        "Title\n=====\n\n.. code-block:: console\n\n   $ gcig train a.csv \\\n       --out b/\n   done\n"
        "   $ echo $?\n   0\n\n.. code-block:: toml\n   :caption: a.toml\n\n   x = 1\n"
    )
    first, second = blocks_of(page)
    assert (first.language, first.line, second.caption) == ("console", 4, "a.toml")
    assert commands_of(first) == [("gcig train a.csv      --out b/", "done\n"), ("echo $?", "0\n")]
    assert second.code == "x = 1\n"


def test_a_reader_notices_what_is_wrong(reader, tmp_path):
    page = tmp_path / "page.rst"
    for wrong in ("$ gcig datasets nonsense", "$ rm -r /", "$ gcig datasets german\n   nothing of the kind"):
        page.write_text(f".. code-block:: console\n\n   {wrong}\n")
        with pytest.raises(AssertionError):
            Reader(tmp_path).follow(page)
    page.write_text(".. code-block:: console\n\n   $ gcig datasets nonsense\n   ...\n   $ echo $?\n   2\n")
    Reader(tmp_path).follow(page)
    assert set(ELSEWHERE) == {"make", "pip", "open"}


def test_numbers_and_what_is_left_out_do_not_matter_but_words_do():
    assert matches("AUC 0.81\n...\ndone", "first\nAUC  0.79\nmore\ndone\n")
    assert not matches("AUC 0.81 fine", "AUC 0.81 poor")


def test_pages_go_on_with_files_of_pages_that_exist():
    assert set(AFTER) | set(AFTER.values()) | LONG | PROSE <= set(PAGES)
    assert shutil.which("gcig", path=Path(sys.executable).parent), "not installed beside this Python"


def test_names_on_pages_can_be_imported():
    for path in [*PAGES.values(), *DOCS.glob("*.rst")]:
        for name in re.findall(r"(?<!`)`(gcig(?:\.\w+)+)`(?!`)", path.read_text("utf-8")):
            assert pkgutil.resolve_name(name) is not None, f"{path.name}: {name}"


def test_the_reference_lists_every_public_name():
    page = (DOCS / "api.rst").read_text("utf-8")
    listed = set(re.findall(r"^   (\w+)$", page, re.MULTILINE))
    public = {*gcig.__all__, *gcig.metrics.__all__, *gcig.methods.__all__} - {"__version__"}
    assert public <= listed, public - listed


def test_the_index_names_every_page():
    index = (DOCS / "index.rst").read_text("utf-8")
    there = {
        path.relative_to(DOCS).with_suffix("").as_posix()
        for path in DOCS.rglob("*.rst")
        if not {"_build", "_templates", "api"} & set(path.relative_to(DOCS).parts[:-1])
    } - {"index"}
    assert set(re.findall(r"^   ([\w/]+)$", index, re.MULTILINE)) == there


def test_figures_on_pages_exist_and_are_safe_on_dark_pages():
    for path in DOCS.rglob("*.rst"):
        for name in re.findall(r"\.\. (?:figure|image):: (\S+\.svg)", path.read_text("utf-8")):
            picture = (path.parent / name).read_text("utf-8")
            assert 'class="paper"' in picture or "fill: #ffffff" in picture, (
                f"{name} has no ground of its own"
            )


@pytest.mark.slow
def test_the_documentation_builds_without_warnings(tmp_path):
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-b", "html", "docs"]
    done = subprocess.run([*command, tmp_path / "html"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    _check_links(tmp_path / "html")


def _check_links(built):
    """Every link from one page to another leads somewhere, anchors included."""
    pages = {path: path.read_text("utf-8") for path in built.rglob("*.html")}
    ids = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
    for path, text in pages.items():
        for link in re.findall(r'href="([^"]+)"', text):
            if re.match(r"\w+:", link):
                continue
            name, _, anchor = re.sub(r"\?v=\w+", "", unquote(link)).partition("#")
            target = (path.parent / name).resolve() if name else path
            assert target.exists(), f"{path.name} -> {link}"
            # Sphinx links sources back by the name that a function has at home, not where it is documented.
            if anchor and target in ids and "_modules" not in path.parts:
                assert anchor in ids[target], f"{path.name} -> {link}"


@pytest.mark.slow
def test_the_figures_can_be_drawn_again(tmp_path):
    drawn = runpy.run_path(str(DOCS / "figures.py"))["draw"]()
    assert {f"{name}.svg" for name in drawn} == {path.name for path in (DOCS / "_static").glob("*.svg")}
    for picture in drawn.values():
        ElementTree.fromstring(str(picture))


def test_the_map_of_the_code_names_what_is_there():
    """Every package, every module of the left column, and the layers as import-linter has them."""
    package = ROOT / "src" / "gcig"
    page = (DOCS / "architecture.rst").read_text("utf-8")
    mapped, layers = re.findall(r"code-block:: text\n\n((?:   .*\n|\n)+)", page)
    folder, named = package, set()
    for line in mapped.rstrip().splitlines():
        indent = len(line) - len(line.lstrip()) - 3
        left = re.split(r"  +", line.strip())[0].rstrip(",")
        for name in left.split(", "):
            assert re.fullmatch(r"\w+/?", name), line
            place = (package if indent == 0 else folder) / name.rstrip("/")
            assert place.is_dir() or place.with_suffix(".py").is_file(), f"{name} in {folder.name}"
            if indent == 0:
                folder, named = place, named | {place.name}
    packages = {path.parent.name for path in package.glob("*/__init__.py")}
    assert packages <= named, packages - named
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ][0]
    stated = [layer.replace("(", "").replace(")", "") for layer in contract["layers"]]
    assert [layer.strip() for layer in layers.strip().splitlines()] == stated[:-1]  # the last one is private
