"""Sibling: a longer measured container, on whose history the recommendation for a young one may rest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cotenant.base.identity import ContainerRef
from cotenant.base.resource import Resource
from cotenant.base.text import counted

SIBLING_INPUT: Final = "sibling"
"""Name of the input of a value that says on whose history it rests."""

_TRACKS: Final = frozenset({"blue", "green", "canary", "stable", "primary", "preview", "old", "new"})
_VERSION: Final = re.compile(r"v[0-9.]*|[0-9.]+")
Family = tuple[str, str, str, str]
"""What siblings have in common: namespace, kind, stem of the workload's name, and name of the container."""


@dataclass(frozen=True, slots=True)
class Sibling:
    """One resource of a container that was measured for long enough; amounts in the resource's unit.

    amount: what its demand asks for, before any bound. request: what the scheduler counts now, 0 = not set. replicas:
    that run, 0 = none. end_seconds: of the history behind it.
    """

    container: ContainerRef
    resource: Resource
    amount: int
    days: float
    request: int
    replicas: int
    end_seconds: int

    @property
    def rule(self) -> str:
        """The name of the rule by which it raises an amount."""
        return f"sibling {self}"

    def __str__(self) -> str:
        """Return its name and how long it was measured."""
        return f"{self.container}, measured for {counted(round(self.days), 'day')}"


Siblings = Mapping[Family, Sequence[Sibling]]


def stem(name: str) -> str:
    """Return a workload's name without versions and tracks of a roll-out; the name where nothing is left."""
    words = [word for word in name.split("-") if word not in _TRACKS and not _VERSION.fullmatch(word)]
    return "-".join(words) or name


def family(container: ContainerRef) -> Family:
    """Return what a container has in common with its siblings."""
    workload = container.workload
    return workload.namespace, workload.kind, stem(workload.name), container.container
