"""A release in three steps: check the version, build the files reproducibly, try the wheel on its own.

python scripts/release.py check v0.1.0
python scripts/release.py build
python scripts/release.py try dist/gcig-0.1.0-py3-none-any.whl
"""

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_NOT_RELEASED = (".ci/", ".github/")


def read_version() -> str:
    """Return the version of the package without importing it."""
    text = (ROOT / "src" / "gcig" / "_version.py").read_text("utf-8")
    return re.search(r'__version__ = "([^"]+)"', text)[1]


def check_version(tag: str) -> None:
    """Raise an error unless all files name the version of the tag, and one the home of the repository."""
    version = read_version()
    if tag != f"v{version}":
        raise SystemExit(f"The tag is {tag}, but the package has version {version}: correct one of them.")
    if f"\nversion: {version}\n" not in (ROOT / "CITATION.cff").read_text("utf-8"):
        raise SystemExit(f"CITATION.cff does not name version {version}: correct it.")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", _changelog(), re.MULTILINE):
        raise SystemExit(
            f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD': rename 'Unreleased', and add the "
            "date."
        )
    if "OWNER" in _project()["urls"]["Repository"]:
        raise SystemExit(
            "pyproject.toml still has the placeholder OWNER under [project.urls]: replace it with the "
            "owner of the repository."
        )


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def _changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text("utf-8")


def build(out: Path) -> list[Path]:
    """Build the sdist, and the wheel from it, and return their paths."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    # One time for all files in the archives, so equal sources give equal bytes.
    done = subprocess.run(
        command, env={**os.environ, "SOURCE_DATE_EPOCH": _commit_time()}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"The build failed:\n{done.stdout}{done.stderr}")
    return sorted(out.iterdir())


def _commit_time() -> str:
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "1577836800"  # outside of a repository: 2020-01-01


def build_twice(out: Path) -> list[Path]:
    """Build twice, and keep the files only if both builds are the same bytes."""
    with tempfile.TemporaryDirectory() as other:
        again = {path.name: path.read_bytes() for path in build(Path(other))}
        files = build(out)
        for path in files:
            if path.read_bytes() != again.get(path.name):
                raise SystemExit(f"{path.name} differs between two builds: find what varies, such as a date.")
    return files


def files_in(archive: Path) -> set[str]:
    """Return the names of the files in an sdist, without its top folder, or in a wheel."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return set(wheel.namelist())
    with tarfile.open(archive) as sdist:
        return {each.name.partition("/")[2] for each in sdist.getmembers() if each.isfile()}


def tracked_files() -> set[str]:
    """Return the files of the repository that a release contains."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.splitlines() if not name.startswith(_NOT_RELEASED)}


def check_contents(sdist: Path, wheel: Path) -> None:
    """Raise an error unless the archives contain what they should and nothing else."""
    expected = tracked_files()
    _compare(sdist, files_in(sdist), expected | {"PKG-INFO"})
    package = {name.removeprefix("src/") for name in expected if name.startswith("src/gcig/")}
    info = f"gcig-{read_version()}.dist-info"
    described = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    _compare(wheel, files_in(wheel), package | {f"{info}/{name}" for name in described})


def _compare(archive: Path, found: set[str], expected: set[str]) -> None:
    for problem, names in (("lacks", expected - found), ("should not contain", found - expected)):
        if names:
            raise SystemExit(f"{archive.name} {problem} {len(names)} files: {', '.join(sorted(names)[:10])}")


def try_wheel(wheel: Path, options: list[str]) -> None:
    """Install a wheel without extras into an empty environment, and run the README's Python blocks there."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "env", with_pip=True)
        python = folder / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
        install = [python, "-m", "pip", "install", "--quiet", *options, str(wheel.resolve())]
        subprocess.run(install, check=True)
        for number, block in enumerate(blocks):
            script = folder / f"block{number}.py"
            script.write_text(block, encoding="utf-8")
            subprocess.run([python, "-I", script.name], check=True, cwd=folder)
        subprocess.run([python.with_name("gcig"), "--version"], check=True, cwd=folder)
    print(f"{wheel.name}: {len(blocks)} blocks of the README run without extras")


def main() -> None:
    """Run one step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("check").add_argument("tag")
    steps.add_parser("build").add_argument("--out", type=Path, default=ROOT / "dist")
    trying = steps.add_parser("try")
    trying.add_argument("wheel", type=Path)
    trying.add_argument("options", nargs="*", help="options of pip install, after --")
    given = parser.parse_args()
    if given.step == "check":
        check_version(given.tag)
    elif given.step == "build":
        sdist, wheel = sorted(build_twice(given.out), key=lambda path: path.suffix == ".whl")
        check_contents(sdist, wheel)
        print(f"{sdist}\n{wheel}")
    else:
        try_wheel(given.wheel, given.options)


if __name__ == "__main__":
    main()
