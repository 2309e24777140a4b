"""EDGE: the demo's history replayed at several risks while its pages are served, by a process of lower priority."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cotenant.base import measures
from cotenant.base.usage.what_if import ReplayProgress

WAYS: Final = ("koordinator", "cotenant")
"""What the page compares."""
STAGE: Final = re.compile(r" \(\d+\)$")
"""End of the line that the command writes when it begins a stage."""
FIRST_STAGES: Final = 2
"""The history is read and forecast before the first run."""
NICENESS: Final = 10


class BackgroundReplay:
    """`cotenant simulate --trace stored` on the demo's store; implements `ReplayJob`. Safe for many threads."""

    def __init__(self, config: Path, risks: int) -> None:
        """Start the process. config: the settings file of the demo; risks: number of risks that the command replays."""
        self._begun, self._stages, self._total = time.monotonic(), 0, FIRST_STAGES + 1 + risks
        program = [sys.executable, "-c", "from cotenant.cli.main import run; run()"]
        ways = [word for way in WAYS for word in ("--policy", way)]
        self._child = subprocess.Popen(  # noqa: S603
            [*program, "simulate", "--trace", "stored", *ways],
            env={**os.environ, "COTENANT_CONFIG": str(config)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        with suppress(OSError):  # it may have ended
            os.setpriority(os.PRIO_PROCESS, self._child.pid, NICENESS)
        self._reader = threading.Thread(target=self._count, name="replay", daemon=True)
        self._reader.start()

    @property
    def progress(self) -> ReplayProgress | None:
        """The progress of the replay; None once it has ended or was stopped."""
        if self._child.poll() is not None:
            return None
        done = max(self._stages - 1, 0)
        elapsed = time.monotonic() - self._begun
        left = measures.remaining_seconds(elapsed, measures.ratio_of(done, self._total))
        return ReplayProgress(done, self._total, left)

    def stop(self) -> None:
        """Stop the process, and wait for its end."""
        self._child.terminate()
        self._child.wait()
        self._reader.join()

    def _count(self) -> None:
        assert self._child.stderr is not None, "it is a pipe"
        for line in self._child.stderr:
            self._stages += bool(STAGE.search(line.rstrip()))


@contextmanager
def background_replay(config: Path) -> Iterator[BackgroundReplay]:
    """A replay of the stored history that ends with the demo, if not before."""
    from cotenant.experiment.what_if import RISKS_PERCENT

    job = BackgroundReplay(config, len(RISKS_PERCENT))
    try:
        yield job
    finally:
        job.stop()
