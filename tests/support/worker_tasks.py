"""Tasks for workers. A worker imports this module, so that it stays light: each process of a test pays for it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import structlog

from cotenant.base.errors import UsageError


def kill_once(path: str) -> str:
    """A task that ends its worker the first time it is done by one; each beginning is noted."""
    mark = Path(path)
    with mark.open("a") as noted:
        noted.write("x")
    if mark.name == "killer" and mark.read_text() == "x":
        os.kill(os.getpid(), signal.SIGKILL)
    return mark.name


def kill_always(name: str) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return name


def warned(number: int) -> int:
    """A task in which a library of ours warns."""
    structlog.get_logger("worker").warning("a worker warns", number=number)
    return number


def fail(text: str) -> str:
    raise UsageError(text)


def process_of(name: str) -> int:
    return os.getpid()


def interrupt(name: str) -> str:
    os.kill(os.getpid(), signal.SIGINT)
    return name
