"""How many pods are moved at most in any hour: a share of all of them. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

CHURN: Final = 0.01
"""Share of all pods that a round moves at most..."""
LEAST_CHURN: Final = 10
"""...or so many pods, where the share is less."""


@dataclass(frozen=True, slots=True)
class Churn:
    """How many pods any hour moves at most: a share of all, or `least` where that is more."""

    share: float = CHURN
    least: int = LEAST_CHURN


DEFAULT_CHURN: Final = Churn()


def churn_of(pods: int, share: float = CHURN, least: int = LEAST_CHURN) -> int:
    """How many of so many pods are moved at most."""
    return max(math.ceil(share * pods), least)
