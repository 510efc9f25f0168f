"""The options of a measurement, declared once for Python and the shell."""

from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from gcig._arguments import check_argument, is_count, is_flag, is_number
from gcig.records.audit import SMALLEST_CELL

MISSING_GROUPS = ("refuse", "own group", "leave out")
TASKS = ("auto", "binary", "classes", "number")


def _about(kind: str, text: str, **shell: Any) -> dict[str, Any]:
    """Return what is said about an option: its kind, its text, and how the shell takes it."""
    return {"kind": kind, "text": text, **shell}


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """The options of a measurement, shared by evaluations, audits and the shell.

    Examples
    --------
    >>> MeasureOptions(measures=["auc", "reason_gap"], random_state=3).seed
    3
    """

    measures: Any = field(
        default="default",
        metadata=_about(
            '{"default", "procedural", "all"} or list of str',
            "The figures: the usual ones, with those relative to means and relatives from the literature "
            "(procedural), or all.",
            choices=("default", "procedural", "all"),
        ),
    )
    attribution: str = field(
        default="auto",
        metadata=_about(
            "str",
            "How scores are divided among columns: auto (integrated_gradients for networks, shapley for all "
            "other models), or the name of an attribution; any two models can be compared by shapley.",
            metavar="NAME",
        ),
    )
    definition: Any = field(
        default=None, metadata=_about("Definition, optional", "The choices behind ``gcig``.")
    )
    robustness: bool = field(
        default=False,
        metadata=_about(
            "bool", "Measure the reason gap by other attributions and relative to means as well."
        ),
    )
    legitimate: Any = field(
        default=None,
        metadata=_about(
            "list of str, optional",
            "A column in which every group gets the same reference, so that differences in it never count; "
            "may be repeated.",
            metavar="COLUMN",
            multiple=True,
        ),
    )
    task: str = field(
        default="auto",
        metadata=_about(
            '{"auto", "binary", "classes", "number"}',
            "What the model predicts; recognised from model and labels.",
            choices=TASKS,
        ),
    )
    threshold: float | None = field(
        default=None,
        metadata=_about(
            "float, optional",
            "Of two classes, the probability from which a decision is positive; the model's own rule by "
            "default.",
            metavar="P",
            type="share",
        ),
    )
    favourable: Any = field(
        default=None,
        metadata=_about(
            "optional",
            "The class, or the classes, that are good for a person, by default that of training or the "
            "positive one; for numbers high or low.",
            metavar="VALUE",
            multiple=True,
        ),
    )
    min_cell: int = field(
        default=SMALLEST_CELL,
        metadata=_about(
            "int",
            "Groups with fewer reference rows of a label are not compared, and figures of fewer rows are not "
            "shown.",
            metavar="N",
            type="count",
        ),
    )
    missing_groups: str = field(
        default="refuse",
        metadata=_about(
            '{"refuse", "own group", "leave out"}',
            "What happens to rows without a group; their number is reported.",
            choices=MISSING_GROUPS,
        ),
    )
    n_bootstrap: int = field(
        default=1000, metadata=_about("int", "Draws for intervals; 0 for none.", metavar="N", type="number")
    )
    max_calls: int | None = field(
        default=None,
        metadata=_about(
            "int, optional",
            "Stop if a model without gradients would be called with more points than this to explain it.",
            metavar="N",
            type="count",
        ),
    )
    random_state: Any = field(
        default=0, metadata=_about("int, Generator or None", "The seed of everything that is drawn.")
    )
    seed: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        for name in ("legitimate", "favourable"):  # nothing was named in the shell
            if isinstance(getattr(self, name), tuple) and not getattr(self, name):
                object.__setattr__(self, name, None)
        for name, (text, accepts) in _ACCEPTED.items():
            check_argument(name, getattr(self, name), text, accepts)
        state = self.random_state
        if state is None or _is_generator(state):
            import numpy as np  # only here: the shell shows its help without it

            state = np.random.default_rng(state).integers(2**62)
        object.__setattr__(self, "seed", int(state) % 2**62)


def _is_generator(value: Any) -> bool:
    return type(value).__name__ == "Generator" and hasattr(value, "integers")


_ACCEPTED: dict[str, tuple[str, Any]] = {
    "attribution": ("'auto' or the name of an attribution", lambda value: isinstance(value, str)),
    "task": (f"one of {list(TASKS)}", TASKS.__contains__),
    "threshold": (
        "None or a probability",
        lambda value: value is None or (is_number(value) and 0 <= value <= 1),
    ),
    "definition": (
        "None or a gcig.Definition",
        lambda value: value is None or type(value).__name__ == "Definition",
    ),
    "robustness": ("True or False", is_flag),
    "min_cell": ("an integer from 0 to 2**31 - 1", is_count),
    "missing_groups": (f"one of {list(MISSING_GROUPS)}", MISSING_GROUPS.__contains__),
    "max_calls": ("None or a positive integer", lambda value: value is None or is_count(value, 1, 2**63)),
    "n_bootstrap": ("an integer from 0 to 100,000", partial(is_count, below=100_001)),
    "random_state": (
        "None, an integer >= 0 or a numpy.random.Generator",
        lambda value: value is None or _is_generator(value) or is_count(value, 0, 2**128),
    ),
}


def _documented() -> str:
    """Return the docstring with every option."""
    head, examples = str(MeasureOptions.__doc__).split("    Examples\n", 1)
    lines = [
        f"    {each.name} : {each.metadata['kind']}\n        {each.metadata['text']}\n"
        for each in fields(MeasureOptions)
        if each.metadata
    ]
    return f"{head}    Parameters\n    ----------\n{''.join(lines)}\n    Examples\n{examples}"


if MeasureOptions.__doc__:  # python -OO removes it
    MeasureOptions.__doc__ = _documented()
