"""EDGE: what a child process of ours owes its parent: to end with it, and without a traceback about that.

A parent that was killed ends no child by itself: the child would go on for minutes beside the parent's successor, and
would fail at its answer, which nobody reads any more.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import IO, Final, TypeVar

import msgspec

from cotenant.base.json_documents.undecodable import UNDECODABLE
from cotenant.base.process.hang_up import FROM_A_TERMINAL

JobT = TypeVar("JobT")
PARENT_GONE: Final = 1
"""Exit code of a child whose parent has gone."""
_POLL_SECONDS: Final = 0.5


def follow_parent() -> None:
    """End this process soon after the one that started it, and leave to that one what a terminal tells both."""
    for number in FROM_A_TERMINAL:
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_after, args=(os.getppid(),), name="parent", daemon=True).start()


def job_from(pipe: IO[bytes], kind: type[JobT], *, one_line: bool = False) -> JobT:
    """The job that the parent writes, as JSON, or as one line of it; SystemExit when it was gone before that."""
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
