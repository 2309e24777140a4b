"""EDGE: SIGHUP, which a terminal sends that is closed, ends a program exactly as SIGTERM does.

Else it would end it at once: a recorder would keep its Lease, an agent what it has set, a demo its folder.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Final

FROM_A_TERMINAL: Final = (signal.SIGINT, signal.SIGHUP)
"""Signals that reach every process of a terminal, children too."""


def end_on_hang_up() -> None:
    """Treat SIGHUP as SIGTERM from now on, unless it is ignored, as behind `nohup`. For the main thread."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        terminals = [number for number in range(3) if os.isatty(number)]
        signal.signal(signal.SIGHUP, lambda *_: _hang_up(terminals))


def _hang_up(terminals: Sequence[int]) -> None:
    # A line that can no longer be written must not keep a program from ending in good order.
    gone = [number for number in terminals if not os.isatty(number)]
    if gone:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in gone:
            os.dup2(nowhere, number)
        os.close(nowhere)
    signal.raise_signal(signal.SIGTERM)
