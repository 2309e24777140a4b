"""EDGE: end a program properly with its terminal, and a child process with its parent.

SIGHUP, which a terminal sends when it is closed, would end a program at once: a recorder would keep its Lease, a node
agent its settings, a demo its folder. A child process does not end with its parent: it would go on for minutes next to
the parent's successor, and would fail when it writes a result that nobody reads.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from typing import IO, Final, TypeVar

import msgspec

from cotenant.base.json_documents.json_decoders import UNDECODABLE

JobT = TypeVar("JobT")
PARENT_GONE: Final = 1
"""Exit code of a child whose parent has gone."""
_POLL_SECONDS: Final = 0.5
FROM_A_TERMINAL: Final = (signal.SIGINT, signal.SIGHUP)
"""Signals that reach every process of a terminal, children too."""


def end_on_hang_up() -> None:
    """Treat SIGHUP as SIGTERM from now on, unless it is ignored, as under `nohup`; for the main thread only."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        terminals = [number for number in range(3) if os.isatty(number)]
        signal.signal(signal.SIGHUP, lambda *_: _hang_up(terminals))


def _hang_up(terminals: Sequence[int]) -> None:
    # A line that can no longer be written must not keep a program from ending in good order.
    closed = [number for number in terminals if not os.isatty(number)]
    if closed:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in closed:
            os.dup2(nowhere, number)
        os.close(nowhere)
    signal.raise_signal(signal.SIGTERM)


def follow_parent() -> None:
    """End this process soon after its parent ends, and ignore a terminal's signals, which the parent handles."""
    for number in FROM_A_TERMINAL:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_after, args=(os.getppid(),), name="parent", daemon=True).start()


def job_from(pipe: IO[bytes], kind: type[JobT], *, one_line: bool = False) -> JobT:
    """Return the job that the parent writes as JSON, in one line if `one_line`; raise SystemExit if that is cut off."""
    text = pipe.readline() if one_line else pipe.read()
    try:
        return msgspec.json.decode(text, type=kind)
    except UNDECODABLE:
        if text.rstrip().endswith(b"}"):
            raise  # it was written to its end: a fault of ours, which is to be seen
        raise SystemExit(PARENT_GONE) from None


def _end_after(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(PARENT_GONE)
