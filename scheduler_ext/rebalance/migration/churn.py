"""How many pods are moved at most in any hour: a share of all of them. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from cotenant.scheduler_ext.rebalance.model.settings import DeschedulerSettings

LEAST_CHURN: Final = 10
"""...or so many pods, where the share is less. Lets small clusters move anything at all: one percent of few pods is
none."""


@dataclass(frozen=True, slots=True)
class Churn:
    """The limit on the pods moved in any hour: a share of all pods, or `least` where that is more."""

    share: float
    least: int

    @classmethod
    def of(cls, settings: DeschedulerSettings) -> Churn:
        """Return the limit that the settings give."""
        return cls(settings.churn_percent / 100, LEAST_CHURN)

    def most(self, pods: int) -> int:
        """Return how many of `pods` pods are moved in an hour at most."""
        return max(math.ceil(self.share * pods), self.least)


DEFAULT_CHURN: Final = Churn.of(DeschedulerSettings())
