import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import gcig
from gcig.cli import ExitCode, main
from gcig.cli.frame import say
from gcig.cli.shell import shell
from gcig.training.loop import DivergenceError


@pytest.fixture
def command(monkeypatch):
    """Add a command to the shell that runs a given function, for one test."""
    commands = dict(shell.commands)
    monkeypatch.setattr(shell, "commands", commands)

    def add(function):
        shell.command("probe")(function)

    return add


def test_without_arguments_it_shows_the_help(capsys):
    assert main([]) == 0
    bare = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == bare
    assert "datasets" in bare
    assert "Exit codes" in bare


def test_version(capsys):
    assert main(["--version"]) == 0
    assert gcig.__version__ in capsys.readouterr().out


def test_datasets_lists_all(capsys):
    assert main(["datasets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["name", "rows", "columns", "target"]
    assert [line.split()[0] for line in lines[1 : 1 + len(gcig.list_datasets())]] == gcig.list_datasets()
    assert lines[1].split() == ["adult", "45,222", "14", "income", "binary", "sex,", "race"]
    assert max(map(len, lines)) <= 100


def test_datasets_lists_all_as_json(capsys):
    assert main(["datasets", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in listed] == gcig.list_datasets()
    assert listed[1]["rows"] == 1000
    assert listed[1]["columns"] == 20


def test_datasets_shows_a_card(capsys):
    assert main(["datasets", "bank"]) == 0
    assert capsys.readouterr().out.rstrip("\n") == str(gcig.load_dataset("bank").card)
    assert main(["datasets", "bank", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == gcig.load_dataset("bank").card.to_dict()


@pytest.mark.parametrize("arguments", [["--debug", "datasets", "adlt"], ["datasets", "--debug", "adlt"]])
def test_debug_shows_the_traceback_and_keeps_the_exit_code(arguments, capsys):
    assert main(arguments) == 2
    assert "Traceback" in capsys.readouterr().err


def test_internal_error_is_exit_code_4_and_quotes_no_values(command, capsys):
    command(lambda: int("Jane Doe"))
    # int() raises here, in the test's own module: not a message that gcig wrote.
    assert main(["probe"]) == 4
    line = capsys.readouterr().err
    assert line.startswith("gcig: error: internal error (ValueError)")
    assert "Jane" not in line
    assert "--debug" in line


def test_a_missing_library_is_named(command, capsys):
    command(lambda: __import__("no_such_library"))
    assert main(["probe"]) == 2
    assert "pip install no_such_library" in capsys.readouterr().err


def test_training_that_diverged_is_inconclusive(command, capsys):
    def diverge():
        raise DivergenceError("training diverged in epoch 2: the loss was not finite.")

    command(diverge)
    assert main(["probe"]) == 3
    assert capsys.readouterr().err == (
        "gcig: error: training diverged in epoch 2: the loss was not finite.\n"
    )


def test_missing_file_is_bad_input(command, capsys):
    command(lambda: Path("no/such/file.csv").read_text())
    assert main(["probe"]) == 2
    assert capsys.readouterr().err == (
        "gcig: error: no/such/file.csv: No such file or directory. Check the name and its permissions.\n"
    )


def test_a_command_returns_its_exit_code(command):
    command(lambda: ExitCode.FAILED)
    assert main(["probe"]) == 1


@pytest.mark.filterwarnings("default")
def test_only_warnings_of_gcig_become_one_line(command, capsys):
    class OwnWarning(UserWarning):
        __module__ = "gcig.somewhere"

    def warn():
        warnings.warn("two\nlines", OwnWarning, stacklevel=1)
        warnings.warn("a library's", FutureWarning, stacklevel=1)

    command(warn)
    with pytest.warns(FutureWarning, match="a library's") as seen:
        assert main(["probe"]) == 0
    assert [each.category for each in seen] == [FutureWarning]
    assert capsys.readouterr().err == "gcig: warning: two lines\n"


def test_names_from_files_do_not_control_the_terminal(command, capsys):
    command(lambda: say("a column called \x1b[2Jboo\r, Zürich"))
    assert main(["probe"]) == 0
    assert capsys.readouterr().err == "a column called ?[2Jboo?, Zürich\n"


def test_ctrl_c_is_exit_code_130(command, capsys):
    def interrupt():
        raise KeyboardInterrupt

    command(interrupt)
    assert main(["probe"]) == 130
    assert capsys.readouterr().err.strip() == "gcig: stopped"


@pytest.mark.skipif(os.name != "posix", reason="pipes break differently elsewhere")
def test_a_closed_pipe_is_not_an_error():
    code = "import sys; from gcig.cli import main; sys.exit(main(['datasets', '--json']))"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.returncode == 141
    assert done.stderr == b""
