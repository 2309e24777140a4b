"""A clock that runs faster than the machine's and may be set while processes read it: a file says how.

    clock = FastClock.create(folder / "clock", start=1_795_000_000, speed=30)
    clock.set_ahead(3600)                                   # everybody who reads the file is an hour further on

The file has the Unix time at a moment of the monotonic clock, which all processes of a machine share, and the speed.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Self


class FastClock:
    """The time by such a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @classmethod
    def create(cls, file: Path, start: float, speed: float) -> Self:
        """A clock that has `start` now."""
        clock = cls(file)
        clock._write(start, time.monotonic(), speed)
        return clock

    def now_seconds(self) -> float:
        start, moment, speed = self._read()
        return start + (time.monotonic() - moment) * speed

    def set_ahead(self, seconds: float) -> None:
        """Set it on by so many seconds, or back."""
        start, moment, speed = self._read()
        self._write(start + seconds, moment, speed)

    def _read(self) -> tuple[float, float, float]:
        start, moment, speed = map(float, self.file.read_text().split())
        return start, moment, speed

    def _write(self, *values: float) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(" ".join(map(repr, values)))
        new.replace(self.file)
