"""EDGE: the socket of the pages, bound before anything else is loaded, so that a used port is reported at once."""

from __future__ import annotations

import socket

from cotenant.base.errors import CotenantError
from cotenant.base.http.listening import bind


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a bound socket that does not listen yet; raise CotenantError if binding fails, as for a taken port."""
    try:
        return bind(host, port)
    except OSError as error:
        raise CotenantError(
            f"cannot listen on {host}:{port}: {error.strerror}", fix="Choose another --port, or 0 for any."
        ) from error
