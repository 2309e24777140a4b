"""Worlds of a few nodes that are simulated within a second."""

from __future__ import annotations

from typing import Any

import numpy as np

from cotenant.backtesting.policies import NodesPast, decision_slots
from cotenant.base.resource import GIB, Resource
from cotenant.base.usage.usage import TimeGrid
from cotenant.experiment.outcome import Incident, SharingScenario
from cotenant.experiment.world import HISTORY_DAYS, SLOTS_PER_DAY, World, world_of

CORES, MEMORY_GIB = 32, 128


def past(resource: Resource, used_share: np.ndarray[Any, Any]) -> NodesPast:
    """Nodes of 32 cores and 128 GiB whose pods use these shares of them, (n, slots); the system uses nothing."""
    size = CORES * 1000.0 if resource is Resource.CPU else float(MEMORY_GIB * GIB)
    nodes, slots = used_share.shape
    grid, older = TimeGrid(0, 300, slots), np.zeros((nodes, 0))
    used, zeros = used_share * size, np.zeros((nodes, len(decision_slots(grid, older))))
    return NodesPast(
        tuple(f"n{i}" for i in range(nodes)), resource, grid, np.full(nodes, size), np.zeros(nodes), used, used,
        np.zeros_like(used), zeros, older,
    )  # fmt: skip


def daily(nodes: int, days: int, seed: int, level: float = 0.3, memory: float = 0.4) -> dict[Resource, NodesPast]:
    """A daily rhythm around a level of CPU, with noise, beside a constant share of memory."""
    slots = np.arange((HISTORY_DAYS + days) * SLOTS_PER_DAY)
    noise = 0.03 * np.random.default_rng(seed).standard_normal((nodes, len(slots)))
    cpu = np.clip(level * (1 + 0.5 * np.sin(2 * np.pi * slots / SLOTS_PER_DAY)) + noise, 0, 1)
    return {Resource.CPU: past(Resource.CPU, cpu), Resource.MEMORY: past(Resource.MEMORY, np.full(cpu.shape, memory))}


def small_world(
    nodes: int = 2, days: int = 1, seed: int = 1, incident: Incident | None = None, **shares: float
) -> World:
    """See `daily`."""
    scenario = SharingScenario("hand-made", nodes, nodes, days, seed, incident)
    return world_of(scenario, daily(nodes, days, seed, **shares))
