"""What all commands have in common: help with an example, completion, wording, TOML."""

import re
import shlex
from pathlib import Path

import click
import pytest

import gcig
from gcig._validation import InputError, check_features, check_groups, check_labels
from gcig.cli.shell import shell as group
from gcig.cli.wording import SHELL_WORDS, in_shell_words

COMMANDS = list(group.commands)
PUT_TOGETHER = {
    "' of X ": lambda: check_features({"age": [1j]}),
    "Input X contains": lambda: check_features({"age": [float("inf")]}),
    "Input y contains": lambda: check_labels(["a", None]),
    "Input sensitive_features contains": lambda: check_groups(["a", None], n_rows=2),
    "y holds ": lambda: check_labels(["a", "c"], classes=("a", "b")),
    "sensitive_features holds ": lambda: check_groups(["a", "c"], n_rows=2, names=("a", "b")),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_has_an_example_that_it_understands(shell, name):
    code, out, err = shell(name, "--help")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 110
    example = out.partition("Example:\n")[2]
    lines = re.findall(r"gcig [^\"\n>]+", example)
    assert lines
    for line in lines:
        _, called, *arguments = shlex.split(line.partition(")")[0])
        assert called == name
        # Parsing reads no files: a name or an option that does not exist is an error here.
        group.commands[name].make_context(name, arguments, parent=click.Context(group))


def test_the_list_of_commands_is_not_cut_off(shell):
    assert "..." not in shell("--help")[1].partition("Commands:")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name):
    for option in group.commands[name].params:
        if isinstance(option, click.Option):
            assert option.help, option.name
            assert option.help.rstrip().endswith((".", ",", ":1."))


def test_the_commands_of_the_design_are_there():
    wanted = {"demo", "datasets", "train", "predict", "audit", "compare", "reproduce", "report", "completion"}
    assert wanted <= set(COMMANDS)


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell, kind):
    code, out, _ = shell("completion", kind)
    assert code == 0
    assert "_GCIG_COMPLETE" in out


def test_names_are_completed():
    from gcig.cli.types import DATASET, METHOD

    context, option = click.Context(group), click.Option(["--x"])
    assert [item.value for item in METHOD.shell_complete(context, option, "f")] == ["fairx"]
    assert "adult" in [item.value for item in DATASET.shell_complete(context, option, "")]


@pytest.mark.parametrize("python", SHELL_WORDS)
def test_what_is_put_into_shell_words_is_still_what_the_library_says(python):
    """Literals of the source run over several lines: they are joined before they are looked for."""
    root = Path(gcig.__file__).parent
    text = "".join(
        path.read_text() for path in sorted(root.rglob("*.py")) if "cli" not in path.relative_to(root).parts
    )
    joined = re.sub(r"\"\s*\n\s*f?\"", "", text)
    assert python in joined or python in PUT_TOGETHER, f"no message of the library says {python!r} any more"


@pytest.mark.parametrize(("python", "provoke"), PUT_TOGETHER.items())
def test_messages_that_are_put_together_from_parts(python, provoke):
    with pytest.raises(InputError) as error:
        provoke()
    assert python in str(error.value)


def test_other_text_is_left_alone():
    assert in_shell_words("All is well.") == "All is well."
    assert in_shell_words("Column 'age' of X holds") == "Column 'age' holds"
