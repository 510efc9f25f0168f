"""Contents of a release: the sdist and the wheel, built for real, and the files around them."""

import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from contextlib import nullcontext
from email.parser import Parser
from types import SimpleNamespace

import pytest

from support.documented_blocks import ROOT

RELEASE = SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "release.py")))
# Packages of the extras, which a plain installation does not have.
EXTRAS = ("tqdm", "onnx", "onnxruntime", "dask", "ray", "mlflow", "skops", "polars")

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout: files cannot be listed")


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    sdist, wheel = sorted(RELEASE.build_twice(out), key=lambda path: path.suffix == ".whl")
    return sdist, wheel


@pytest.mark.slow
def test_two_builds_are_the_same_bytes_and_contain_the_repository(archives):
    RELEASE.check_contents(*archives)
    sdist, wheel = map(RELEASE.files_in, archives)
    assert {
        "gcig/py.typed",
        "gcig/datasets/files/adult.csv.gz",
        "gcig/report/templates/page.html",
    } <= wheel
    assert not any(name.startswith(("tests/", "docs/", "scripts/")) for name in wheel)
    assert {
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "docs/conf.py",
        "tests/example_tables.py",
        "action.yml",
    } <= sdist
    assert not any(name.startswith((".github/", ".ci/", "docs/_build/", "docs/api/")) for name in sdist)


@pytest.mark.slow
def test_the_metadata_name_what_the_project_declares(archives):
    with zipfile.ZipFile(archives[1]) as wheel:
        name = next(each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))
        found = Parser().parsestr(wheel.read(name).decode())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (found["Name"], found["Version"]) == ("gcig", RELEASE.read_version())
    assert found["License-Expression"] == "BSD-3-Clause"
    assert found["Description-Content-Type"] == "text/markdown"
    home = f"{project['urls']['Repository']}/{{}}/v{found['Version']}/"
    assert f"]({home.format('raw')}docs/_static/audit_page.png)" in found.get_payload()
    assert f"]({home.format('blob')}docs/limits.rst)" in found.get_payload()
    assert not re.search(r"\]\((?!https:)", found.get_payload())
    assert set(found.get_all("Classifier")) == set(project["classifiers"])
    assert set(found.get_all("Provides-Extra")) == set(project["optional-dependencies"])
    plain = {line for line in found.get_all("Requires-Dist") if "extra ==" not in line}
    assert {re.split(r"[<>=]", each)[0] for each in plain} == {
        re.split(r"[<>=]", each)[0] for each in project["dependencies"]
    }


@pytest.mark.slow
def test_the_wheel_runs_the_readme_without_extras(archives, tmp_path):
    site = tmp_path / "site"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(site),
    ]
    subprocess.run([*pip, str(archives[1])], check=True)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    lines = [
        "import sys",
        f"sys.modules.update(dict.fromkeys({EXTRAS!r}))",
        f"sys.path.insert(0, {str(site)!r})",
        *blocks,
        f"assert gcig.__file__.startswith({str(site)!r})",
    ]
    (tmp_path / "blocks.py").write_text("\n".join(lines))
    command = [sys.executable, "-I", "blocks.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "audit.html").is_file()
    assert (tmp_path / "model" / "model.json").is_file()


def test_versions_agree_and_the_check_says_what_is_missing(monkeypatch):
    version = RELEASE.read_version()
    check = RELEASE.check_version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    with pytest.raises(SystemExit, match=r"The tag is v9\.9\.9, but"):
        check("v9.9.9")
    monkeypatch.setitem(check.__globals__, "_changelog", lambda: "## [Unreleased]\n")
    with pytest.raises(SystemExit, match="rename 'Unreleased', and add the date"):
        check(f"v{version}")
    monkeypatch.setitem(check.__globals__, "_changelog", lambda: f"# C\n\n## [{version}] - 2026-11-16\n")
    for home, refused in (("https://github.com/OWNER/gcig", True), ("https://example.org/gcig", False)):
        monkeypatch.setitem(check.__globals__, "_project", lambda home=home: {"urls": {"Repository": home}})
        with pytest.raises(SystemExit, match="placeholder OWNER") if refused else nullcontext():
            check(f"v{version}")


def test_one_place_names_the_home_of_the_repository():
    command = ["git", "-C", str(ROOT), "grep", "-n", "-E", "OWNER/gcig|OWNER\\.github"]
    found = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    assert [line.split(":")[0] for line in found if not line.startswith("tests/")] == ["pyproject.toml"]


def test_files_that_a_first_release_needs_exist():
    for name in (
        "README.md",
        "SECURITY.md",
        "LICENSE",
        "CHANGELOG.md",
        "CITATION.cff",
        "CONTRIBUTING.md",
        "CODE_OF_CONDUCT.md",
    ):
        assert (ROOT / name).stat().st_size > 300, name
    github = ROOT / ".github"
    assert {path.stem for path in (github / "ISSUE_TEMPLATE").glob("*.yml")} == {"bug", "question", "idea"}
    release = (github / "workflows" / "release.yml").read_text("utf-8")
    assert "id-token: write" in release
    assert not re.search(r"password:|secrets\.", release)
