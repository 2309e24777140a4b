"""Limits how many pods are moved in any hour and of one workload at once, and the rate of evictions. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from cotenant.scheduler_ext.rebalance.model.settings import DeschedulerSettings

LEAST_CHURN: Final = 10
"""Number of pods that may move even if the share of all pods is less. Lets small clusters move anything at all: one
percent of few pods is none."""


@dataclass(frozen=True, slots=True)
class Churn:
    """The limit on pods moved in any hour: a share (0..1) of all pods, but at least `least`."""

    share: float
    least: int

    @classmethod
    def of(cls, settings: DeschedulerSettings) -> Churn:
        """Return the limit of the settings."""
        return cls(settings.churn_percent / 100, LEAST_CHURN)

    def most(self, pods: int) -> int:
        """Return how many of `pods` pods may be moved in an hour."""
        return max(math.ceil(self.share * pods), self.least)


DEFAULT_CHURN: Final = Churn.of(DeschedulerSettings())


@dataclass(frozen=True, slots=True)
class EvictionRate:
    """A token bucket that limits evictions: `tokens` at `at_seconds`, `per_second` more a second, at most `burst`."""

    per_second: float
    burst: int
    tokens: float
    at_seconds: float = 0.0

    def at(self, now_seconds: float) -> EvictionRate:
        """Return the bucket at a later Unix time; a clock that went back adds no tokens."""
        passed = max(now_seconds - self.at_seconds, 0.0)
        return replace(self, tokens=min(self.burst, self.tokens + passed * self.per_second), at_seconds=now_seconds)

    def less(self, evictions: int) -> EvictionRate:
        """Return the bucket after this number of evictions."""
        return replace(self, tokens=self.tokens - evictions)

    @property
    def permitted(self) -> int:
        """Number of evictions that may be sent now."""
        return max(int(self.tokens), 0)

    @property
    def wait_seconds(self) -> float:
        """Seconds until the next eviction may be sent; 0 if one may be sent now."""
        return max(1.0 - self.tokens, 0.0) / self.per_second


def limit_of(limit: int | str | None, replicas: int) -> int | None:
    """Return how many pods of a workload may be unavailable at once; None if the limit is invalid.

    Without a limit: 10 % above 10 replicas, 2 from 4 to 10, else 1. A percentage that truncates to 0 becomes 1; the
    result is never more than the replicas. Source: Koordinator's MigrationController (`GetMaxMigrating`).
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
