"""EDGE: notifies a supervisor (sd_notify) of readiness and of a heartbeat, so that it restarts a hung process.

systemd's protocol (sd_notify): datagrams to the socket that NOTIFY_SOCKET names. Without one nothing happens.
"""

from __future__ import annotations

import contextlib
import os
import socket

VARIABLE = "NOTIFY_SOCKET"


def notify(state: str) -> None:
    """Send a state such as "READY=1"; a supervisor that does not listen is ignored."""
    name = os.environ.get(VARIABLE, "")
    if not name:
        return
    address = f"\0{name[1:]}" if name.startswith("@") else name
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
        notifier.setblocking(False)
        notifier.sendto(state.encode(), address)
