"""Test vectors of the specification (`docs/specification`): inputs and values, for other implementations."""

import json
from importlib.resources import files
from typing import Any

DEFINITIONS = ("gcig", "references", "members", "reason_gap", "chance", "outcome_gaps")


def load_vectors(definition: str) -> list[dict[str, Any]]:
    """Return the cases of one definition: a name, inputs and values.

    Examples
    --------
    >>> [case["name"] for case in load_vectors("gcig")][-1]
    'GCIG, 3 groups'
    """
    if definition not in DEFINITIONS:
        raise ValueError(f"there is no definition {definition!r}: choose one of {', '.join(DEFINITIONS)}")
    text = files("gcig.validity").joinpath("vectors", f"{definition}.json").read_text("utf-8")
    cases: list[dict[str, Any]] = json.loads(text)["cases"]
    return cases
