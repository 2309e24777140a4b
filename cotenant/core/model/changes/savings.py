"""The smallest set of proposals that gives most of the total saving. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

SHARE: Final = 0.7
"""Of the whole saving: what is worth the effort."""


def worth_the_effort(savings: Sequence[int] | npt.NDArray[np.float64]) -> int:
    """Fewest proposals that together give SHARE of the saving; 0 when nothing is saved.

    savings: of each proposal, in one unit (millicores, bytes or money).
    """
    ordered = np.sort(np.array(savings, dtype=np.float64))[::-1]
    total = float(ordered.sum())
    return int(np.searchsorted(np.cumsum(ordered), SHARE * total) + 1) if total > 0 else 0
