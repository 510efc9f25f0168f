"""Gates for other repositories: the GitHub Action and the pre-commit hook, run as they are written."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from example_tables import QUICK_FLAGS, ROLE_FLAGS, make_raw_loans
from gcig.cli.shell import shell
from gcig.metrics.measure import MEASURES, load_measures
from support.documented_blocks import ROOT

yaml = pytest.importorskip("yaml")

PROGRAMS = Path(sys.executable).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model and its test table in a folder of their own."""
    folder = tmp_path_factory.mktemp("repository")
    make_raw_loans().to_csv(folder / "loans.csv", index=False)
    names = [*ROLE_FLAGS, "--drop", "id,race", "--save-test", "test.csv", "--out", "model", *QUICK_FLAGS]
    run_gcig("train", "loans.csv", *names, cwd=folder, check=True)
    return folder


def run_gcig(*arguments, **how):
    return subprocess.run([PROGRAMS / "gcig", *arguments], capture_output=True, text=True, **how)


def action():
    return yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))


def run_action(folder, tmp_path, **inputs):
    """Run the audit step of the action as a runner does: inputs as variables, files for outputs."""
    declared = action()
    step = next(each for each in declared["runs"]["steps"] if each["name"] == "Audit")
    values = {name: str(each.get("default", "")) for name, each in declared["inputs"].items()} | inputs
    environment = {
        name: values[re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", text)[1]]
        for name, text in step["env"].items()
    }
    files = {"GITHUB_STEP_SUMMARY": tmp_path / "summary.md", "GITHUB_OUTPUT": tmp_path / "output"}
    for path in files.values():
        path.unlink(missing_ok=True)  # every step of a runner has files of its own
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder,
        env={
            **os.environ,
            **environment,
            **{name: str(path) for name, path in files.items()},
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
    )
    return done, *(path.read_text() if path.exists() else "" for path in files.values())


@pytest.mark.slow
def test_the_action_passes_fails_and_reports(folder, tmp_path):
    inputs = {"model": "model", "data": "test.csv", "target": "approved", "sensitive": "sex\n"}
    options = "--positive\nyes\n--min-cell=1\n"
    more = {"arguments": options, "max-reason-gap": "5", "report": "page one.html"}
    done, summary, output = run_action(folder, tmp_path, **inputs, **more)
    assert done.returncode == 0, done.stderr
    assert "passed: GCIG" in done.stdout
    assert (folder / "page one.html").stat().st_size > 10_000
    assert "GCIG" in summary
    assert output == "report=page one.html\n"
    done, summary, _ = run_action(folder, tmp_path, **inputs, **more | {"max-reason-gap": "-5"})
    assert done.returncode == 1
    assert "failed: GCIG" in done.stdout
    assert summary.startswith("**failed: GCIG")
    hostile = inputs | {"target": "approved; touch stolen"}
    assert run_action(folder, tmp_path, **hostile, **more)[0].returncode == 2
    assert not (folder / "stolen").exists()


def test_every_input_of_the_action_is_used_and_exists():
    declared = action()
    used = set(
        re.findall(r"\$\{\{ inputs\.([\w-]+) (?:\|\| .*)?\}\}", (ROOT / "action.yml").read_text("utf-8"))
    )
    assert used == set(declared["inputs"])
    script = "".join(step["run"] for step in declared["runs"]["steps"])
    assert "${{" not in script  # inputs in a script would be executed
    options = set(re.findall(r"--[a-z][a-z-]+", script))
    offered = {option for each in shell.commands["audit"].params for option in each.opts}
    load_measures()
    offered |= {f"--max-{name.replace('_', '-')}" for name in MEASURES}
    assert options <= offered


@pytest.mark.slow
def test_the_hook_runs_the_audit(folder):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert hook["language"] == "python"
    assert hook["pass_filenames"] is False
    program, *command = shlex.split(hook["entry"])
    assert program == "gcig"
    names = ["model", "test.csv", "--target", "approved", "--sensitive", "sex", "--max-gcig", "0.0000001"]
    assert run_gcig(*command, *names, cwd=folder).returncode == 1


def test_workflows_name_scripts_that_exist():
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text("utf-8"))["jobs"].values():
            for step in job["steps"]:
                for script in re.findall(r"(?:^|\s)((?:scripts|\.ci)/[\w./]+)", step.get("run", "")):
                    assert Path(ROOT, script).is_file(), f"{path.name}: {script}"
