"""Sibling: a container with a longer history, on which the recommendation for a young container may be based."""

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
"""The key that siblings share: namespace, kind, workload name without versions, and container name."""


@dataclass(frozen=True, slots=True)
class Sibling:
    """One resource of a container with a sufficiently long history; amounts in the resource's unit.

    `amount` is its demand before any bound; `request` is what the scheduler counts for it now, 0 = not set; `replicas`
    is the number of running pods; `end_seconds` is the Unix time of the end of its history.
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
        """Name of the rule by which this sibling's history raises the amount of another container."""
        return f"sibling {self}"

    def __str__(self) -> str:
        """Return the sibling's name and how long it was measured."""
        return f"{self.container}, measured for {counted(round(self.days), 'day')}"


Siblings = Mapping[Family, Sequence[Sibling]]


def stem(name: str) -> str:
    """Return a workload's name without its version and roll-out words (`v2`, `green`), unless nothing is left."""
    parts = [word for word in name.split("-") if word not in _TRACKS and not _VERSION.fullmatch(word)]
    return "-".join(parts) or name


def family(container: ContainerRef) -> Family:
    """Return the key that siblings share: namespace, kind, workload name without versions, container name."""
    workload = container.workload
    return workload.namespace, workload.kind, stem(workload.name), container.container
