"""The definition of GCIG: the choices behind a value."""

from dataclasses import asdict, dataclass
from typing import Any

from gcig._arguments import check_argument, is_count, is_number

EPS = 1e-12
# What an argument must be, and the check.
POSITIVE = ("a positive number", lambda value: is_number(value) and value > 0)
NON_NEGATIVE = ("a number >= 0", lambda value: is_number(value) and value >= 0)
_CHOICES = {
    "norm": ("l1", "l2"),
    "rule": ("auto", "secant", "right", "midpoint", "simpson", "gauss_legendre"),
    "columns": ("original", "encoded", "raw"),
    "reference": ("mean", "members"),
    "label_weights": ("empirical", "equal", "sum"),
}


@dataclass(frozen=True)
class Definition:
    """The choices behind a GCIG value, stored with every result.

    Parameters
    ----------
    norm : {"l1", "l2"}
        The norm by which attributions are divided. The paper's text says l2, its algorithm and tables l1.
    attribution : str
        How a score is divided among columns: a name of `gcig.core.attribution.ATTRIBUTIONS`.
    rule : {"auto", "secant", "right", "midpoint", "simpson", "gauss_legendre"}
        The rule by which paths are integrated; ``rule="right", n_steps=16`` is the paper's.
    n_steps : int or "auto"
        Steps of the rule.
    columns : {"original", "encoded", "raw"}
        ``"original"`` sums the columns of each one-hot block first; ``"encoded"`` compares them one by one,
        with gradients centred within the block; ``"raw"`` compares them as they are, as in the paper. A
        constant that moves between the weights of a block and the bias changes raw values, but neither
        predictions nor the other two.
    reference : {"mean", "members"}
        The reference of a (label, group) cell: its mean, as in the paper, or its members, over which
        attributions are averaged.
    label_weights : {"empirical", "equal", "sum"}
        How the means of the two labels are combined: by their frequencies, by one half each, or added.
    eps : float
        Added to the norms.

    Examples
    --------
    >>> Definition(norm="l2").to_dict()["norm"]
    'l2'
    """

    norm: str = "l1"
    attribution: str = "integrated_gradients"
    rule: str = "auto"
    n_steps: int | str = "auto"
    columns: str = "original"
    reference: str = "mean"
    label_weights: str = "empirical"
    eps: float = EPS

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            check_argument(name, getattr(self, name), f"one of {list(choices)}", choices.__contains__)
        check_argument(
            "n_steps",
            self.n_steps,
            "a positive integer up to 10,000, or 'auto'",  # every step is a point in memory
            lambda value: value == "auto" if isinstance(value, str) else is_count(value, 1, 10_001),
        )
        check_argument("eps", self.eps, *POSITIVE)

    def to_dict(self) -> dict[str, Any]:
        """Return the choices as plain values, for JSON."""
        return asdict(self)
