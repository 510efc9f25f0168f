"""The tuned constants of FairX: one record. ``python -m benchmarks.tuning`` shows what each does."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Constants of the student's training; every other number is a parameter of the estimators."""

    learning_rate: float = 4e-3
    passes: float = 8.0  # over the training rows ...
    min_steps: int = 1500  # ... but at least and at most so many steps, with max_epochs=40
    max_steps: int = 4000
    explained: int = 8  # rows of a mini-batch that are explained
    members: int = 32  # of each group that a row is explained relative to
    floor: float = 1e-3  # of squared gaps: below it, their root is linear
    between: float = 1.0  # points between rows and references, relative to training rows
    exchanged: float = 0.1  # copies with other protected columns, relative to training rows
    attribute: float = 4.0  # weight of a larger use of the protected columns than the teacher's
    width: float = 0.2  # of smooth decisions, in logits
    smoothness: float = 0.05  # differences of rates below it are squared
    memory: float = 0.02  # share of a mini-batch in moving averages
    rate: float = 0.02  # of multipliers
    margin: float = 0.8  # of a bound on the outcome gap at which training aims


TUNING = Tuning()
