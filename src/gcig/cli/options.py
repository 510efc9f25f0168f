"""Options shared by several commands, the types of their values, and the TOML file that can hold them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gcig.cli.frame import did_you_mean
from gcig.records.options import MeasureOptions

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Name(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """A name from a list that is looked up when needed, because other packages can register names."""

    def __init__(self, kind: str, known: Callable[[], Iterable[str]]) -> None:
        self.name = kind
        self.known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or fail with a suggestion."""
        known = list(self.known())
        if value in known:
            return str(value)
        guess = did_you_mean(str(value), known)
        return self.fail(f"no {self.name} is called '{value}'. {guess}", param, ctx)

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the names that start with the incomplete one."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(each) for each in self.known() if each.startswith(incomplete)]


class _Threshold(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    name = "probability or f1"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        """Return a probability, or "f1" for the threshold with the best F1 on validation rows."""
        if value == "f1":
            return "f1"
        return _SHARE.convert(value, param, ctx)


def _datasets() -> Iterable[str]:
    from gcig.datasets.registry import list_datasets

    return list_datasets()


def _methods() -> Iterable[str]:
    from gcig.methods.registry import METHODS

    return METHODS


DATASET = Name("dataset", _datasets)
METHOD = Name("method", _methods)
_SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


def split_names(text: str) -> list[str]:
    """Split names at commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_columns(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> list[str]:  # noqa: ARG001 - click's signature
    """Parse an option that may be repeated and names several columns, such as ``--drop id,name``."""
    return [name for text in texts for name in split_names(text)]


def parse_numbers(ctx: click.Context, param: click.Parameter, text: str) -> list[int]:
    """Parse an option with several whole numbers, such as ``--seeds 0,1,2``."""
    parts = split_names(str(text))
    if not parts or not all(part.isdecimal() and int(part) < 2**32 for part in parts):
        raise click.BadParameter(f"'{text}' is not a list of whole numbers such as 0,1,2.", ctx, param)
    return list(dict.fromkeys(map(int, parts)))


def parse_shard(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[int, int] | None:
    """Parse ``--shard i/n``."""
    if text is None:
        return None
    first, _, last = text.partition("/")
    if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        raise click.BadParameter(f"'{text}' is not a part such as 1/4, the first of four.", ctx, param)
    return int(first), int(last)


F = TypeVar("F", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)
COUNT = click.IntRange(min=1)
_COMMAND_LINE_ONLY = ("trust_pickle",)
_MAX_CONFIG_BYTES = 2**20  # a file of options is never close to this size


def option(name: str, metavar: str | None, text: str, **more: Any) -> Callable[[F], F]:
    """Return an option with a value; ``more`` is passed to click."""
    return click.option(*name.split(), metavar=metavar, help=text, show_default=True, **more)


def flag(name: str, text: str) -> Callable[[F], F]:
    """Return an option without a value."""
    return click.option(name, is_flag=True, help=text)


def names_option(name: str, kind: Name, text: str) -> Callable[[F], F]:
    """Return an option that takes several names, such as ``--methods fairx,dir``."""

    def parse(ctx: click.Context, param: click.Parameter, given: str | None) -> list[str] | None:
        if given is None:
            return None
        parts = split_names(given)
        if not parts:
            kind.fail(f"no {kind.name} is named. There are: {', '.join(kind.known())}.", param, ctx)
        return list(dict.fromkeys(kind.convert(part, param, ctx) for part in parts))

    return option(name, "NAMES", text, callback=parse)


def _load_config(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    """Use the values of a file as defaults of the command, so that the command line takes precedence."""
    if path is None:
        return
    options = {name: each for each in ctx.command.params if each is not param for name in _config_names(each)}
    values: dict[str, Any] = {}
    for name, value in _read_toml(path).items():
        option = options.get(name.replace("_", "-"))
        if option is None:
            raise click.ClickException(f"{path}: there is no option '{name}'. {did_you_mean(name, options)}")
        if option.name in _COMMAND_LINE_ONLY:
            raise click.ClickException(
                f"{path}: '{name}' can only be given on the command line, because it grants trust, and the "
                "file may come from someone else. Remove it from the file."
            )
        values[option.name or name] = _as_typed(option, value, f"{path}: {name}")
    ctx.default_map = {**(ctx.default_map or {}), **values}


def _config_names(option: click.Parameter) -> list[str]:
    """Return the names of an option in a file: the long ones, without dashes."""
    if isinstance(option, click.Argument):
        return [str(option.name)]
    return [name[2:] for name in option.opts if name.startswith("--") and name not in ("--help", "--debug")]


def _read_toml(path: Path) -> Mapping[str, Any]:
    import tomllib

    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise click.ClickException(f"--config {path} {what}: name a TOML file.")
    if path.stat().st_size > _MAX_CONFIG_BYTES:
        raise click.ClickException(f"--config {path} is larger than a megabyte: it is not a file of options.")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise click.ClickException(f"--config {path} is not UTF-8 text: save it in that encoding.") from None
    except tomllib.TOMLDecodeError as error:
        raise click.ClickException(f"--config {path} is not valid TOML: {error}.") from None
    except RecursionError:
        raise click.ClickException(f"--config {path} nests lists or tables too deeply.") from None


def _as_typed(option: click.Parameter, value: Any, where: str) -> Any:
    """Convert a value of a TOML file to a default that click accepts."""
    if isinstance(value, Mapping):
        raise click.ClickException(f"{where} is a section: write options as plain lines, name = value.")
    flag = isinstance(option, click.Option) and option.is_flag
    if flag != isinstance(value, bool):
        expected = "true or false" if flag else "a value, not true or false"
        raise click.ClickException(f"{where} must be {expected}.")
    if option.multiple if isinstance(option, click.Option) else False:
        return tuple(map(str, value)) if isinstance(value, list) else (str(value),)
    if isinstance(value, list):
        return ",".join(map(str, value))
    return value


trust_option = flag(
    "--trust-pickle",
    "Open a pickle, joblib file or torch program, which runs the code in it. Only use files you trust.",
)
favourable_option = option(
    "--favourable",
    "VALUE",
    "The value of the target that is good for a person; by default that of training, or the positive one.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
seed_option = option(
    "--seed", "N", "Seed of all random numbers.", default=0, type=click.IntRange(0, 2**32 - 1)
)
config_option = option(
    "--config",
    "FILE.toml",
    "Read options from a TOML file, under the same names. The command line takes precedence.",
    type=PATH,
    is_eager=True,
    expose_value=False,
    callback=_load_config,
)


def _jobs(ctx: click.Context, param: click.Parameter, value: int | None) -> int:  # noqa: ARG001 - click's signature
    """Return the number of jobs, by default the number of processors that this process may use."""
    import os

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return value or cores or 1


jobs_option = option(
    "--jobs",
    "N",
    "Number of processes; one per core by default. On a CPU, results do not depend on it.",
    type=COUNT,
    callback=_jobs,
)
epochs_option = option("--epochs", "N", "Maximum number of epochs.", type=COUNT)


def _stack(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


_file = click.argument("file", metavar="FILE", type=PATH)
model_and_file = _stack(click.argument("model", metavar="MODEL", type=PATH), _file)
output_options = _stack(
    click.option("-q", "--quiet", is_flag=True, help="Print no progress and no remarks, only the result."),
    json_option,
)


def parse_group_names(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Parse ``--group-names 1=male,2=female``."""
    names: dict[str, str] = {}
    for pair in parse_columns(ctx, param, values):
        value, equals, name = (part.strip() for part in pair.partition("="))
        if not (value and equals and name) or value in names:
            raise click.BadParameter(
                f"'{pair}' is not a new name for a value, such as 1=male (or sex.1=male).", ctx, param
            )
        names[value] = name
    return names


class _Kinds(click.Option):
    """An option that sets the kind of columns; all such options are collected in the parameter ``kinds``."""

    def __init__(self, *args: Any, kind: str, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "multiple": True, "callback": self._collect})
        self.kind = kind

    @classmethod
    def option(cls, name: str, kind: str, text: str) -> Callable[[F], F]:
        """Return the option for one kind."""
        return option(name, "COLUMNS", text, cls=cls, kind=kind, expose_value=False)

    def _collect(self, ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> None:
        kinds: dict[str, str] = ctx.params.setdefault("kinds", {})
        for name in parse_columns(ctx, param, values):
            kind = self.kind
            if kind == "date" and name.endswith(("=dmy", "=mdy")):
                name, kind = name[:-4], f"date {name[-3:]}"
            elif kind == "date" and re.search(r"=[dmyDMY%/.-]+$", name):
                raise click.BadParameter(f"'{name}' must end in =dmy or =mdy.", ctx, param)
            if kinds.setdefault(name, kind) != kind:
                raise click.BadParameter(f"column '{name}' also has another kind.", ctx, param)


reading_options = _stack(
    option(
        "--group-names",
        "VALUE=NAME,...",
        "Names for the values of the protected attribute, such as 1=male,2=female; stored with a model.",
        multiple=True,
        callback=parse_group_names,
    ),
    _Kinds.option("--categorical", "category", "Columns of digits that are categories, such as codes."),
    _Kinds.option(
        "--numeric", "number", "Columns of numbers, also with $ or %; other entries count as missing."
    ),
    _Kinds.option(
        "--date", "date", "Columns of dates; COLUMN=dmy or COLUMN=mdy for dates such as 01/02/2024."
    ),
    option("--sep", "CHAR", "Separator of a CSV file; that of training, or guessed, by default."),
    option("--decimal", "CHAR", "Decimal mark of a CSV file, . or , (that of training, or . by default)."),
    option("--encoding", "NAME", "Encoding of a CSV file, such as latin-1; UTF-8 by default."),
)
file_options = _stack(reading_options, config_option, output_options)


def _drop_option(text: str) -> Callable[[F], F]:
    return option("--drop", "COLUMNS", text, multiple=True, callback=parse_columns)


keep_sensitive_option = flag("--keep-sensitive", "Keep the protected attribute among the inputs.")
_drop_options = _stack(
    _drop_option("Columns to exclude, such as identifiers."),
    flag("--text-drop", "Exclude all columns of free text or text identifiers as well."),
)
model_columns_options = _stack(
    _drop_option("Columns that are not inputs, for models that do not record their columns."),
    flag("--keep-sensitive", "The protected attribute is an input; for the same models."),
)


def options_of(declared: type, *names: str) -> Callable[[F], F]:
    """Return the options for fields of a dataclass that declares them for Python as well."""
    known: dict[str, Any] = {each.name: each for each in fields(declared)}
    types = {"share": _SHARE, "count": COUNT, "number": click.IntRange(min=0)}

    def of(name: str) -> Callable[[F], F]:
        about, flag_name = known[name].metadata, f"--{name.replace('_', '-')}"
        if isinstance(known[name].default, bool):
            return flag(flag_name, about["text"])
        more: dict[str, Any] = {"multiple": True} if "multiple" in about else {"default": known[name].default}
        if "choices" in about:
            more["type"] = click.Choice(about["choices"])
        elif "type" in about:
            more["type"] = types[about["type"]]
        return option(flag_name, about.get("metavar"), about["text"], **more)

    return _stack(*map(of, names))


measure_option = partial(options_of, MeasureOptions)
held_out_options = _stack(
    keep_sensitive_option,
    option(
        "--test-size", "SHARE", "Share of the rows that is held out to measure on.", default=0.25, type=_SHARE
    ),
)
training_options = _stack(
    option(
        "--threshold",
        "P",
        "Probability from which a decision is positive, or f1 for the best F1.",
        type=_Threshold(),
    ),
    epochs_option,
    seed_option,
    option("--device", None, "auto, cpu, cuda or cuda:1.", default="auto"),
)
overwrite_option = flag("--overwrite", "Replace --out if it exists.")
target_options = _stack(
    option("--target", "COLUMN", "The column to predict.", required=True),
    option(
        "--positive",
        "VALUE",
        "The value of the target that counts as 1; not needed if the values are 0 and 1, or true and false.",
    ),
    option(
        "--sensitive",
        "COLUMN",
        "The protected attribute. Repeat the option to cross several, such as sex and race.",
        required=True,
        multiple=True,
    ),
)
task_option = option(
    "--task",
    None,
    "What is predicted; recognised from the target by default, and said.",
    type=click.Choice(["auto", "binary", "classes", "number"]),
    default="auto",
)
labelled_file = _stack(
    _file,
    target_options,
    flag("--rest", "All values of the target but that of --positive count as 0."),
    task_option,
    _drop_options,
)
REPEAT_FAILED = (
    "The same command repeats those whose worker was killed, for example because memory ran out (fewer "
    "--jobs need less); --retry-failed repeats all of them."
)
run_options = _stack(
    names_option("--methods", METHOD, "Methods, such as fairx,unconstrained; all by default."),
    option("--folds", "N", "Number of folds.", default=5, type=click.IntRange(2, 100)),
    option(
        "--seeds",
        "NUMBERS",
        "Seeds, such as 0,1,2: one partition into folds per seed.",
        default="0",
        callback=parse_numbers,
    ),
    jobs_option,
    option(
        "--backend",
        None,
        "The backend of joblib: --jobs processes of this machine (loky), or all workers of a running Dask or "
        "Ray cluster.",
        type=click.Choice(["loky", "dask", "ray"]),
        default="loky",
    ),
    option("--address", "ADDRESS", "The cluster, such as tcp://10.0.0.5:8786."),
    option(
        "--device",
        None,
        "Where networks are trained: cpu, cuda or cuda:1. The --jobs processes share a GPU; without "
        "NVIDIA's MPS (nvidia-cuda-mps-control -d), they take turns.",
        default="cpu",
    ),
    flag("--retry-failed", "Repeat the folds that failed before."),
)


tuning_option = option(
    "--tuning",
    None,
    "Choose parameters by grid search inside every fold (nested), on one split of the rows as in the "
    "paper (split), or take the defaults (none).",
    type=click.Choice(("none", "split", "nested")),
    default="none",
)
shard_option = option(
    "--shard",
    "I/N",
    "Run only part I of N. The parts can share a folder, or be copied together for `gcig report`.",
    callback=parse_shard,
)
