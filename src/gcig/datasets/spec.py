"""Declaration of a dataset, which needs no rows.

This module does not import pandas, which keeps listing the declarations fast.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gcig._arguments import InputError

if TYPE_CHECKING:
    import pandas as pd

# Names become parts of file names in results, so they contain only characters that are safe in paths.
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
TASKS = ("binary", "classes", "number")


@dataclass(frozen=True)
class ProtectedAttribute:
    """A protected attribute of a dataset: its name, and how its groups are derived from the table.

    Parameters
    ----------
    name : the name that users pass as ``sensitive=``.
    description : one sentence for the card.
    columns : the columns that it is derived from, which ``include_sensitive=False`` drops from the inputs.
        Empty means the column called ``name``.
    groups : function from the table to one group name per row (a Series, or an array in the order of the
        rows). None uses the values of the only column.

    Examples
    --------
    >>> ProtectedAttribute("sex").columns
    ('sex',)
    """

    name: str
    description: str = ""
    columns: tuple[str, ...] = ()
    groups: Callable[[pd.DataFrame], Any] | None = None

    def __post_init__(self) -> None:
        if not self.columns:
            object.__setattr__(self, "columns", (self.name,))
        if self.groups is None and len(self.columns) != 1:
            raise ValueError(
                f"Protected attribute {self.name!r} has {len(self.columns)} columns: pass a function "
                "`groups` that derives the groups from them."
            )


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """The declaration of a dataset: its origin, its target, its protected attributes and its known harms.

    Only the first five parameters are required; the others complete the card.

    Parameters
    ----------
    name : lower-case letters, digits, ``.``, ``_`` and ``-``.
    load : function without arguments that returns a pandas DataFrame of inputs and target. It is called once.
    target : the column to predict. It has two values, unless ``task`` says otherwise.
    positive : the value of a target of two values that becomes 1; the other becomes 0.
    protected : the protected attributes to choose from.
    default : name of the attribute that is used if the user names none; the first one if empty.
    inputs : the columns to predict from; all but the target if None.
    rows : the declared number of rows. Loading fails if the table has a different number.
    title, positive_means, source, licence, citation : texts for the card.
    sha256 : name of a raw file -> its SHA-256.
    traps : properties of the data that mislead analysts who do not know them.
    harms : known harms of using the data.
    task : ``"binary"``; ``"classes"`` for a target of more than two values, or ``"number"``.

    Examples
    --------
    >>> import pandas as pd
    >>> spec = DatasetSpec(
    ...     name="loans",
    ...     load=lambda: pd.DataFrame({"income": [20, 40], "sex": ["f", "m"], "approved": ["no", "yes"]}),
    ...     target="approved",
    ...     positive="yes",
    ...     protected=(ProtectedAttribute("sex"),),
    ... )
    >>> spec.default
    'sex'
    """

    name: str
    load: Callable[[], pd.DataFrame] = field(repr=False)
    target: str
    positive: str | int | bool = 1
    protected: tuple[ProtectedAttribute, ...]
    default: str = ""
    inputs: tuple[str, ...] | None = None
    rows: int | None = None
    title: str = ""
    positive_means: str = ""
    source: str = "not stated"
    licence: str = "not stated"
    citation: str = "not stated"
    sha256: Mapping[str, str] = field(default_factory=dict)
    traps: tuple[str, ...] = ()
    harms: tuple[str, ...] = ()
    task: str = "binary"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"name {self.name!r} cannot be part of a file name: use lower-case letters, digits, '.', '_' "
                "and '-', such as 'loans-2024'."
            )
        names = [attribute.name for attribute in self.protected]
        if not names or len(set(names)) < len(names):
            raise ValueError(
                f"protected: dataset {self.name!r} has the protected attributes {names}. Pass at least one "
                "ProtectedAttribute, each with a unique name."
            )
        for missing, words in (("default", names[0]), ("title", self.name)):
            if not getattr(self, missing):
                object.__setattr__(self, missing, words)
        if self.task not in TASKS:
            raise ValueError(
                f"task of dataset {self.name!r} is {self.task!r}: use one of {', '.join(TASKS)}."
            )
        if not self.positive_means and self.task == "binary":
            object.__setattr__(self, "positive_means", f"{self.target} is {self.positive}")
        self.attribute(self.default)
        if self.inputs is not None and self.target in self.inputs:
            raise ValueError(
                f"inputs of dataset {self.name!r} include its target {self.target!r}: remove it."
            )

    @property
    def offered(self) -> tuple[str, ...]:
        """Return the names of the protected attributes."""
        return tuple(attribute.name for attribute in self.protected)

    def attribute(self, name: str) -> ProtectedAttribute:
        """Return the protected attribute with the given name."""
        for attribute in self.protected:
            if attribute.name == name:
                return attribute
        raise InputError(
            f"{name!r} is not a protected attribute of dataset {self.name!r}. Available: "
            f"{', '.join(self.offered)}.",
            argument="sensitive",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration as plain values for JSON."""
        texts = (
            "name",
            "title",
            "task",
            "target",
            "positive_means",
            "default",
            "source",
            "licence",
            "citation",
        )
        return {
            **{name: getattr(self, name) for name in texts},
            "rows": self.rows,
            "columns": None if self.inputs is None else len(self.inputs),
            "inputs": None if self.inputs is None else list(self.inputs),
            "protected": {attribute.name: attribute.description for attribute in self.protected},
            "sha256": dict(self.sha256),
            "traps": list(self.traps),
            "harms": list(self.harms),
        }


def two_groups(member: pd.Series[bool], inside: str, outside: str) -> pd.Series[str]:
    """Return two named groups from a condition on the rows.

    >>> import pandas as pd
    >>> two_groups(pd.Series([31, 22]) > 25, "over 25", "25 or younger").tolist()
    ['over 25', '25 or younger']
    """
    return member.map({True: inside, False: outside})
