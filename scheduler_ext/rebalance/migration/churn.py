"""How many pods are moved at most: in any hour, at once of one workload, and how fast they are evicted. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class EvictionRate:
    """per_second: tokens that come back in a second; burst: the most there are; at_seconds: when they were counted."""

    per_second: float
    burst: int
    tokens: float
    at_seconds: float = 0.0

    def at(self, now_seconds: float) -> EvictionRate:
        """The bucket at a later moment; a clock that went back brings nothing."""
        passed = max(now_seconds - self.at_seconds, 0.0)
        return replace(self, tokens=min(self.burst, self.tokens + passed * self.per_second), at_seconds=now_seconds)

    def less(self, evictions: int) -> EvictionRate:
        """Return the rate that is left after so many evictions."""
        return replace(self, tokens=self.tokens - evictions)

    @property
    def permitted(self) -> int:
        """Whole evictions that may be sent now."""
        return max(int(self.tokens), 0)

    @property
    def wait_seconds(self) -> float:
        """Until the next one is permitted; 0 when one is."""
        return max(1.0 - self.tokens, 0.0) / self.per_second


def limit_of(limit: int | str | None, replicas: int) -> int | None:
    """Pods of a workload that may be away at once; None for a limit that cannot be read.

    Unset: 10 % above 10 replicas, 2 from 4 to 10, else 1. A percentage that truncates to 0 becomes 1; never more than
    the replicas. Source: Koordinator's MigrationController (`GetMaxMigrating`).
    """
    if limit is None:
        number = replicas // 10 if replicas > 10 else 2 if replicas >= 4 else 1
    elif isinstance(limit, int):
        number = limit
    elif limit.removesuffix("%").isdecimal():  # a superscript is a digit that `int` refuses
        share = int(limit.removesuffix("%"))
        number = max(replicas * share // 100, 1) if limit.endswith("%") else share
    else:
        return None
    return min(max(number, 0), replicas)
