"""The interface by which the dashboard controls the demo's clock; only a demo passes one to the dashboard. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Stop:
    """A time to which the demo's clock may be moved, and a short text of what happens then."""

    at_seconds: float
    words: str


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """The progress of moving the demo's clock forward: the target time, the share that is done, and the remaining time.

    `left_seconds` is by the machine's clock and the speed so far; None before the first step.
    """

    to_seconds: float
    done_ratio: float
    left_seconds: float | None


class Steering(Protocol):
    """The control of the demo's clock; thread-safe."""

    def now_seconds(self) -> float:
        """Return the Unix time of the demo's clock."""

    @property
    def halted(self) -> bool:
        """True if the clock is stopped."""

    @property
    def going_to(self) -> float | None:
        """The Unix time to which the clock is being moved forward, or None if it runs at its normal speed."""

    @property
    def progress(self) -> MoveProgress | None:
        """The progress of moving the clock forward, or None if it runs at its normal speed."""

    def halt(self, halted: bool) -> None:
        """Stop the clock or let it run; a move forward in progress ends at the time that it has reached."""

    def forward(self, to_seconds: float) -> None:
        """Start to move the clock forward in steps, each simulated; UsageError for a past time or more than a day."""

    def stops(self) -> Sequence[Stop]:
        """Return the upcoming times to which the clock may be moved, the next one first."""

    def told(self) -> Sequence[str]:
        """Return the demo's messages, newest first, such as one on a harmful change."""
