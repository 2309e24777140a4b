"""The host in a scraped target's label `instance`: a name or an address, with a port or without. Pure."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final

_IN_BRACKETS: Final = re.compile(r"\[(?P<host>[^\]]*)\](?::\d*)?")
_WITH_PORT: Final = re.compile(r"(?P<host>[^:]*):\d*")


def host_of(instance: str) -> str:
    """The host without brackets and port; an IP address in the one form in which `address` writes it.

    `[fd00::1]:10250`, `fd00::1`, `10.0.0.1:10250` and `node-1:9100` give fd00::1, fd00::1, 10.0.0.1 and node-1: the
    last colon of a bare IPv6 address begins no port.
    """
    match = _IN_BRACKETS.fullmatch(instance) or _WITH_PORT.fullmatch(instance)
    return address(match["host"] if match else instance)


def address(text: str) -> str:
    """An IP address in one form (lower case, zeros left out, IPv4 in IPv6 as IPv4); any other text as it is."""
    try:
        parsed = ip_address(text)
    except ValueError:
        return text
    mapped = getattr(parsed, "ipv4_mapped", None)
    return str(mapped or parsed)
