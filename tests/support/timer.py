"""A timer whose pauses cost nothing: its time leaps by them."""

from __future__ import annotations

import threading
import time


class LeapingTimer:
    """Monotonic time that goes with the machine's and leaps over every pause; keeps the pauses."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self._leapt_seconds = 0.0
        self._lock = threading.Lock()

    def monotonic_seconds(self) -> float:
        """The machine's monotonic time and all leaps."""
        return time.monotonic() + self._leapt_seconds

    def pause(self, seconds: float) -> None:
        """Leap."""
        with self._lock:
            self.pauses.append(seconds)
            self._leapt_seconds += seconds

    def leap(self, seconds: float) -> None:
        """Let time pass without a pause of anybody."""
        self._leapt_seconds += seconds

    def stop(self) -> None:
        """Nothing waits here."""
