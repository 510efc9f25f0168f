"""The tuned constants of FairX: one record. ``python -m benchmarks.tuning`` shows what each does."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Constants of the student's training; every other number is a parameter of the estimators."""

    learning_rate: float = 4e-3
    steps: int = 1000  # with max_epochs=40, in proportion ...
    passes: float = 250.0  # ... but at most so many over the training rows: few rows are learned by heart
    batch_size: int = 256
    explained: int = 8  # rows of a mini-batch that are explained ...
    members: int = 32  # ... relative to so many members of each group: few people, many references
    between: float = 1.0  # points between rows and references, relative to training rows
    exchanged: float = 0.1  # copies with other protected columns, relative to training rows
    width: float = 0.2  # of smooth decisions, in logits
    memory: float = 0.02  # share of a mini-batch in moving averages
    start: float = 0.1  # of multipliers
    rate: float = 0.02  # how far their logarithm moves in an update with an error of one
    kick: float = 1.0  # how far the error of the moment moves that of a bound on the outcome gap
    margin: float = 0.8  # of a bound on the outcome gap, at which training aims
    every: int = 5  # steps between two looks at the decisions for all training rows


TUNING = Tuning()
