"""Behaviour that all commands share: help with an example, completion, spelling of arguments."""

import re
import shlex

import click
import pytest

from gcig._arguments import InputError
from gcig.cli.frame import describe
from gcig.cli.shell import shell as group
from gcig.records.audit import SMALLEST_CELL
from gcig.tables.check import check_features, check_groups, check_labels, check_sample_weight
from gcig.training.runtime import resolve_device

COMMANDS = list(group.commands)


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


def test_the_list_of_commands_is_not_truncated(shell):
    assert "..." not in shell("--help")[1].partition("Commands:")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name):
    for option in group.commands[name].params:
        if isinstance(option, click.Option):
            assert option.help, option.name
            assert option.help.rstrip().endswith((".", ",", ":1."))


def test_all_commands_exist():
    wanted = {"demo", "datasets", "train", "predict", "audit", "explain", "compare", "report"}
    wanted |= {"completion"}
    assert wanted <= set(COMMANDS)


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell, kind):
    code, out, _ = shell("completion", kind)
    assert code == 0
    assert "_GCIG_COMPLETE" in out


def test_names_are_completed():
    from gcig.cli.options import DATASET, METHOD

    context, option = click.Context(group), click.Option(["--x"])
    assert [item.value for item in METHOD.shell_complete(context, option, "f")] == [
        "fairx-paper",
        "fairx",
    ]
    assert "adult" in [item.value for item in DATASET.shell_complete(context, option, "")]


def test_cells_are_suppressed_as_in_python():
    of_commands = {name: {p.name: p.default for p in group.commands[name].params} for name in group.commands}
    defaults = {params["min_cell"] for params in of_commands.values() if "min_cell" in params}
    assert defaults == {SMALLEST_CELL}


@pytest.mark.parametrize(
    ("provoke", "expected"),
    [
        (
            lambda: check_features({"age": [float("inf")]}),
            "The table contains infinity (inf) in column 'age'.",
        ),
        (lambda: check_features({"age": [1j]}), "Column 'age' of the table holds complex numbers."),
        (lambda: check_labels(["a", None]), "The target contains NaN or None in 1 of 2 rows"),
        (lambda: check_groups(["a", None], n_rows=2), "The protected attribute contains NaN or None"),
        (lambda: resolve_device("quantum"), "--device must be 'auto' or"),
        (lambda: check_sample_weight([-1], 1), "sample_weight must be finite"),
    ],
)
def test_the_shell_spells_arguments_in_its_own_way(provoke, expected):
    with pytest.raises(InputError) as caught:
        provoke()
    code, message = describe(caught.value, {"device"})
    assert code == 2
    assert message.startswith(expected)
