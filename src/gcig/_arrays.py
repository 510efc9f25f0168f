"""Types of the arrays that adapters, metrics and audits exchange."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.floating[Any]]  # encoded rows or scores, in the precision of the model
Codes = NDArray[np.integer]  # positions of labels, groups or rows
