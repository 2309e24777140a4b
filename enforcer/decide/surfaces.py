"""What wants beyond cgroups say: the values of `SurfaceWant` as structs and back. Pure.

A value is JSON, so that dry runs, recordings and people read the same thing. Made by `strategies.resctrl` and
`strategies.network`, read by the edges that keep these surfaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from cotenant.enforcer.contract import Surface, SurfaceWant


class ResctrlGroup(msgspec.Struct, frozen=True):
    """A group of the processor's resource control: lines of its schemata, cgroups whose tasks belong there."""

    schemata: tuple[str, ...]
    cgroups: tuple[str, ...] = ()


class TrafficClass(msgspec.Struct, frozen=True):
    """A class of outgoing traffic. number: of the class below the root, 1..65535.

    least, most: the rate that it is guaranteed, and the ceiling up to which it may borrow, in bits per second.
    """

    name: str
    number: int
    least: int
    most: int
    priority: int
    """0 is served first when there is bandwidth beyond everybody's least."""
    addresses: tuple[str, ...] = ()
    """Of the pods whose packets these are, IPv4 and IPv6."""


class Traffic(msgspec.Struct, frozen=True):
    """Classes of one network device; total: bits per second of the link."""

    total: int
    classes: tuple[TrafficClass, ...]


ValueT = TypeVar("ValueT", ResctrlGroup, Traffic)


def text_of(value: ResctrlGroup | Traffic) -> str:
    """Return the value as the text of `SurfaceWant.value`."""
    return msgspec.json.encode(value).decode()


def values_of(wants: Iterable[SurfaceWant], surface: Surface, kind: type[ValueT]) -> Iterator[tuple[str, ValueT]]:
    """(key, value) of the wants of a surface."""
    return ((w.key, msgspec.json.decode(w.value, type=kind)) for w in wants if w.surface is surface)
