"""Types of the arrays that modules exchange."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Encoded = NDArray[np.float32]  # rows as a network of this package sees them, (n, p)
Rows = NDArray[np.floating[Any]]  # encoded rows or scores, in the precision of the model
Codes = NDArray[np.integer]  # positions of labels, groups or rows
Positions = NDArray[np.int64]  # of rows in a table
