"""Stores what older containers need, from which the next analysis starts recommendations for similar young containers.

A shard only knows its own workloads, but a sibling (the same workload in another version) may be in another shard or,
under an earlier name, no longer in the cluster. Each analysis therefore stores what its recommendations are based on,
and the next one reads it, unless the settings of the recommender or the strategy differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from cotenant.base.cluster import Inventory
from cotenant.base.identity import ContainerRef, WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.settings.base import digest
from cotenant.base.store import Store
from cotenant.base.usage.usage import DAY_SECONDS
from cotenant.recommender import siblings
from cotenant.recommender.incomplete import gone_workloads
from cotenant.recommender.model.recommendation import Recommendation
from cotenant.recommender.model.sibling import Family, Sibling
from cotenant.recommender.strategies.cotenant import Cotenant
from cotenant.settings import Settings

_FOLDER: Final = "siblings"
_BLOCK: Final = "containers"
_TEXTS: Final = ("namespace", "kind", "name", "container", "resource")
_NUMBERS: Final[Mapping[str, Any]] = {
    "amount": np.int64,
    "days": np.float64,
    "request": np.int64,
    "replicas": np.int64,
    "end_seconds": np.int64,
}
_GONE_DAYS: Final = 14
"""Days for which the history of a workload that is gone still counts. The window of a scan by default."""


def read(store: Store, settings: Settings, inventory: Inventory) -> dict[Family, list[Sibling]]:
    """Return the stored containers that may be siblings of the inventory's, by family; none if settings differ."""
    containers = (ContainerRef(w.ref, c.name) for w in inventory.workloads for c in w.containers)
    return siblings.related_families(_read(store, settings), containers)


def write(store: Store, settings: Settings, recommendations: Iterable[Recommendation], inventory: Inventory) -> None:
    """Store what each container needs, for its siblings in the next analysis; nothing if the strategy uses none."""
    if not _gives_priors(settings):
        return
    ended = gone_workloads(inventory)
    present = (workload.ref for workload in inventory.workloads if workload.ref not in ended)
    since_seconds = inventory.time_seconds - _GONE_DAYS * DAY_SECONDS
    fresh, before = siblings.siblings_of(recommendations), _read(store, settings)
    columns: dict[str, list[Any]] = {name: [] for name in (*_TEXTS, *_NUMBERS)}
    for sibling in siblings.for_next_analysis(fresh, before, present, since_seconds):  # one at a time: there are many
        workload = sibling.container.workload
        names = (workload.namespace, workload.kind, workload.name, sibling.container.container, sibling.resource.value)
        cells = (*names, *(getattr(sibling, name) for name in _NUMBERS))
        for name, cell in zip(columns, cells, strict=True):
            columns[name].append(cell)
    block = {name: np.array(column, dtype=_NUMBERS.get(name, object)) for name, column in columns.items()}
    store.write_block(_FOLDER, _BLOCK, block, {"settings": digest(settings.recommender)})


def _read(store: Store, settings: Settings) -> Iterator[Sibling]:
    stored = store.read_block(_FOLDER, _BLOCK) if _gives_priors(settings) else None
    if stored is None or stored[1].get("settings") != digest(settings.recommender):
        return
    if not {*_TEXTS, *_NUMBERS} <= stored[0].keys():  # of a version with other columns
        return
    columns = [stored[0][name].tolist() for name in (*_TEXTS, *_NUMBERS)]
    for namespace, kind, name, container, resource, *numbers in zip(*columns, strict=True):
        yield Sibling(ContainerRef(WorkloadRef(namespace, kind, name), container), Resource(resource), *numbers)


def _gives_priors(settings: Settings) -> bool:
    return settings.recommender.strategy == Cotenant.name
