"""Types of the arrays in scheduler_ext; the shape and unit of each array are documented where it is defined."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]  # numbers of rows, or places in a list
Codes = npt.NDArray[np.int8]
