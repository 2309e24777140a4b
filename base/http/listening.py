"""EDGE: the sockets of servers, bound so that an address in use is an error at start-up."""

from __future__ import annotations

import errno
import socket
from typing import Final

EVERYWHERE: Final = "::"
"""Every address of the machine, of IPv6 and of IPv4: a pod has one kind or both, as its cluster has."""
_NO_IPV6: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound but does not listen yet; raise OSError if the address is in use. Port 0: any free.

    On a machine without IPv6, EVERYWHERE means every IPv4 address.
    """
    try:
        return _bound(socket.AF_INET6 if ":" in host else socket.AF_INET, host, port)
    except OSError as error:
        if host != EVERYWHERE or error.errno not in _NO_IPV6:
            raise
    return _bound(socket.AF_INET, "0.0.0.0", port)  # noqa: S104 - what was asked for


def _bound(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != EVERYWHERE)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener
