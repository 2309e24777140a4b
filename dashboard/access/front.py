"""The request as the browser sent it, also behind a proxy: scheme, host, path and the client's address.

Pure. Forwarded headers count only if the connection itself comes from a proxy that the settings trust; from any other
peer they are ignored.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, Final
from urllib.parse import urlsplit

from cotenant.changes.access.settings import LOOPBACK_NAMES

Network = IPv4Network | IPv6Network
Headers = Mapping[str, str]

_HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{0,5})?")
"""A Host header by RFC 9110, 7.2; non-ASCII names arrive in their xn-- form."""


@dataclass(frozen=True, slots=True)
class Front:
    """A request's address as the browser sees it; `host` has the port; `by_proxy`: a trusted proxy sent the request."""

    scheme: str
    host: str
    path: str
    by_proxy: bool = False
    query: str = field(default="", repr=False)
    peer: str = ""
    """IP address of the browser: that of the connection, or the one that a trusted proxy reports."""
    listener: str = ""
    """Address of this machine to which the connection came."""

    @property
    def address(self) -> str:
        """The path with its query string."""
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def origin(self) -> str:
        """The origin as a browser writes it in the header Origin: scheme and host."""
        return f"{self.scheme}://{self.host}"

    @property
    def secure(self) -> bool:
        """True if the browser uses https."""
        return self.scheme == "https"

    @property
    def hostname(self) -> str:
        """The host without its port, in lower case; "" if the header is anything but a host and a port.

        A header that was sent twice, or one with a path or a name before an @, would be ambiguous.
        """
        match = _HOST.fullmatch(self.host)
        return match["name"].strip("[]").lower() if match else ""


def headers_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers by lower-case name; values of a repeated header are joined by commas, except Cookie's."""
    by_name: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name, text = raw.decode("latin-1").lower(), value.decode("latin-1")
        by_name[name] = f"{by_name[name]},{text}" if name in by_name and name != "cookie" else text
    return by_name


def repeated_header_names(scope: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of headers that were sent more than once, in lower case."""
    counts = Counter(raw.decode("latin-1").lower() for raw, _ in scope["headers"])
    return frozenset(name for name, count in counts.items() if count > 1)


def networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Parse CIDRs into networks."""
    return tuple(ip_network(text) for text in texts)


def trusts(peer: str, trusted: Sequence[Network]) -> bool:
    """Return whether the connection's own peer is a trusted proxy; False for an unreadable address."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in trusted)


def front_of(scope: Mapping[str, Any], headers: Headers, trusted: Sequence[Network], base: str) -> Front:
    """Return the request as the browser sent it, by the headers of a proxy in `trusted`; `base` is our base path."""
    peer = (scope.get("client") or ("", 0))[0]
    by_proxy, path = trusts(peer, trusted), scope["path"]
    scheme, host = scope.get("scheme", "http"), headers.get("host", "")
    if by_proxy:
        proto = headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
        scheme = proto if proto in ("http", "https") else scheme
        host = headers.get("x-forwarded-host", "").partition(",")[0].strip() or host
        cut = "/" + headers.get("x-forwarded-prefix", "").partition(",")[0].strip().strip("/")
        if cut != "/" and base == f"{cut}/" and not path.startswith(base):
            path = base + path.lstrip("/")
        # Each proxy appends whom it heard; what stands before the last was said by somebody else.
        peer = headers.get("x-forwarded-for", "").rpartition(",")[2].strip() or peer
    listener = str((scope.get("server") or ("", 0))[0])
    return Front(scheme, host, path, by_proxy, scope.get("query_string", b"").decode("latin-1"), peer, listener)


def expected_host(front: Front, public_url: str, own_name: str = "") -> bool:
    """Return whether the host is a loopback name, our own loopback address, `own_name` or the host of `public_url`.

    A request for any other name may come from a page that rebound its name to this address (DNS rebinding); an IP
    address cannot be rebound.
    """
    public = urlsplit(public_url).hostname if public_url else None
    name = front.hostname
    return name != "" and (name in (*LOOPBACK_NAMES, public, own_name) or _is_own_address(front, name))


def _is_own_address(front: Front, name: str) -> bool:
    """Return whether `name` is the loopback address that received the connection, such as 127.0.0.2."""
    try:
        return ip_address(name).is_loopback and ip_address(name) == ip_address(front.listener)
    except ValueError:
        return False
