"""EDGE: the socket of the pages, bound before anything else is loaded, so that an address in use is said at once."""

from __future__ import annotations

import socket

from cotenant.base.errors import CotenantError
from cotenant.base.http.listening import bind


def bind_socket(host: str, port: int) -> socket.socket:
    """A socket that has the address and does not listen yet; CotenantError when somebody else has it."""
    try:
        return bind(host, port)
    except OSError as error:
        raise CotenantError(
            f"cannot listen on {host}:{port}: {error.strerror}", fix="Choose another with --port, or 0 for any."
        ) from error
