"""Control of the demo's clock by the dashboard. Pure vocabulary; only a demo passes one to the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Stop:
    """A moment worth going to, and what happens then, in a few words."""

    at_seconds: float
    words: str


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """Progress of a move ahead: the moment where it ends, the share that is done, and the time that it still takes.

    left_seconds: on the machine's clock, by the speed so far; None before the first stride.
    """

    to_seconds: float
    done_ratio: float
    left_seconds: float | None


class Steering(Protocol):
    """Safe for many threads."""

    def now_seconds(self) -> float:
        """Unix time on the demo's clock."""

    @property
    def halted(self) -> bool:
        """True if the clock is halted."""

    @property
    def going_to(self) -> float | None:
        """The moment that it is being moved to; None when it goes at its own pace."""

    @property
    def progress(self) -> MoveProgress | None:
        """The progress of the move ahead; None when the clock goes at its own pace."""

    def halt(self, halted: bool) -> None:
        """Stand still, or go on; ends a move ahead where it is."""

    def forward(self, to_seconds: float) -> None:
        """Move ahead in steps, and let everything happen that happens on the way; UsageError for the past."""

    def stops(self) -> Sequence[Stop]:
        """Moments to come, the next one first."""

    def told(self) -> Sequence[str]:
        """Changes that did harm, and what the same hours would have been without a reservation; the newest first."""
