"""How fast pods are evicted: Koordinator's evictQPS and evictBurst as a bucket of tokens. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace


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
