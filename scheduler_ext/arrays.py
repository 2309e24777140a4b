"""Types of the arrays that the scheduler's helpers compute with; an array's shape and unit stand where it is named."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]  # numbers of rows, or places in a list
Codes = npt.NDArray[np.int8]
