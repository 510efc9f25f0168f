"""The values from which the numbers that accompany GCIG are bad news: by themselves, and after training."""

__all__ = [
    "EFFECT_TOLERANCE",
    "FAITHFULNESS_TOLERANCE",
    "FEW_COLUMNS",
    "LARGE_OFFSET",
    "LOW_FAITHFULNESS",
    "OFFSET_TOLERANCE",
]

# Measured (docs/limits.rst): plain networks had offsets of 0.13 to 0.16 and a faithfulness of 0.88 and 0.98,
# networks that had found a shortcut 0.8 to 2.4, and 0.30 and 0.45.
LARGE_OFFSET = 0.5  # in standard deviations of the logit
LOW_FAITHFULNESS = 0.6
FEW_COLUMNS = 2.0  # effective columns under which a small GCIG means little

# How much worse than the plain network's a number may be; docs/quality.rst has the values on five datasets.
OFFSET_TOLERANCE = 0.15
FAITHFULNESS_TOLERANCE = 0.15
EFFECT_TOLERANCE = 0.005  # half a per cent of the decisions
