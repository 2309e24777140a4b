"""What accepting refused before anything was written: until when it is not tried again, and why. Pure.

Such a refusal (a missing right, a running roll-out, no room on the nodes, a webhook that is away) leaves no row in the
ledger; without a rest the same workloads would be chosen in every round and hold the others up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

FIRST_REST_SECONDS: Final = 900.0
LONGEST_REST_SECONDS: Final = 86_400.0
REST_FACTOR: Final = 4.0
FIRST_WRITE_REST_SECONDS: Final = 10.0
LONGEST_WRITE_REST_SECONDS: Final = 600.0
"""An object that the server does not let us write costs a request in ten minutes, not in each round."""


@dataclass(frozen=True, slots=True)
class AcceptRefusal:
    """The last refusal of a workload: under which policy, why, when (Unix time), and how many there were in a row.

    is_forbidden: a right of the manager is missing, as it is for all that the policy selects.
    """

    policy: str
    words: str
    seconds: float
    times: int = 1
    is_forbidden: bool = False

    @property
    def rest_seconds(self) -> float:
        """Time until it is tried again: four times as long after each, up to a day."""
        return min(FIRST_REST_SECONDS * REST_FACTOR ** min(self.times - 1, 8), LONGEST_REST_SECONDS)

    def left_seconds(self, now_seconds: float, cleared_seconds: float = 0.0) -> float:
        """Rest that is left; none once a person has resumed the workload, or while the clock is before the refusal."""
        if cleared_seconds >= self.seconds or now_seconds < self.seconds:
            return 0.0
        return max(self.seconds + self.rest_seconds - now_seconds, 0.0)


@dataclass(frozen=True, slots=True)
class WriteRefusal:
    """The server refused to lend to an object, or to take back: when last (Unix time), and how many times in a row."""

    seconds: float
    times: int = 1

    def rests(self, now_seconds: float) -> bool:
        """Return whether the object is not yet to be tried again: the rest doubles; a clock that went back ends it."""
        rest_seconds = min(FIRST_WRITE_REST_SECONDS * 2.0 ** min(self.times - 1, 8), LONGEST_WRITE_REST_SECONDS)
        return 0.0 <= now_seconds - self.seconds < rest_seconds


class WriteRefusals:
    """The writes that the server refused, by the object's uid. For one thread."""

    def __init__(self) -> None:
        self._by_uid: dict[str, WriteRefusal] = {}

    def rests(self, uid: str, now_seconds: float) -> bool:
        """Return whether the object is not yet to be tried again."""
        refusal = self._by_uid.get(uid)
        return refusal is not None and refusal.rests(now_seconds)

    def refused(self, uid: str, now_seconds: float) -> None:
        """Count one more refusal of a write to the object with this uid, in a row."""
        earlier = self._by_uid.get(uid)
        self._by_uid[uid] = WriteRefusal(now_seconds, earlier.times + 1 if earlier else 1)

    def written(self, uid: str) -> None:
        """Forget the refusals of an object that could be written."""
        self._by_uid.pop(uid, None)


def gap_of(policy: str, refusals: Iterable[AcceptRefusal]) -> str:
    """Return a missing right that blocks a whole policy (NAMESPACE/NAME), as text; "" when none is missing."""
    return next((refusal.words for refusal in refusals if refusal.policy == policy and refusal.is_forbidden), "")
