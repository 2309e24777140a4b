"""Computes one shard: reads its series, builds portraits, forecasts, writes its blocks. Idempotent.

The state is written first and the results last: a block of results under the plan's name means that the shard is done.
A worker that dies leaves either the whole block or none.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cotenant.apps.pipeline.fleet import blocks
from cotenant.apps.pipeline.fleet.blocks import Block, Hours
from cotenant.apps.pipeline.fleet.plan import FleetPlan, FleetShard
from cotenant.core.adapters.store import Store
from cotenant.core.model.identity import PodContainerRef
from cotenant.core.model.usage.usage import Usage
from cotenant.core.settings.root import Settings
from forecasting.engine import forecast
from profiler import portrait


@dataclass(frozen=True, slots=True)
class ShardTask:
    """A shard and all that a worker needs to know; small, and the same for every executor."""

    url: str = field(repr=False)
    """Of the store; it may hold a password."""
    cluster: str
    settings: Settings = field(repr=False)
    plan: FleetPlan = field(repr=False)
    position: int

    def __str__(self) -> str:
        """Which shard it is, for a person."""
        return f"shard {self.shard.name}"

    @property
    def shard(self) -> FleetShard:
        """The shard to compute."""
        return self.plan.shards[self.position]


def state_folder(folder: str) -> str:
    """Where the state of a plan's shards lies."""
    return f"{folder}/state"


def compute(task: ShardTask) -> str:
    """Compute one shard and write its blocks; its name. StoreError when the store fails."""
    store, shard, plan = Store(task.url, task.cluster), task.shard, task.plan
    usage: Usage[PodContainerRef] = store.read(shard.signal, plan.window, shard.between)
    results, state = decide(usage, task.settings)
    stamp = {"end": str(plan.window.end_seconds), "forecast": str(plan.window.end_seconds)}
    store.write_block(state_folder(plan.folder), shard.name, state, stamp)
    store.write_block(plan.folder, shard.name, results, stamp)
    return shard.name


def decide(usage: Usage[PodContainerRef], settings: Settings) -> tuple[Block, Block]:
    """Results and state of a shard's usage. Pure."""
    portraits = portrait.build(usage.refs, np.arange(len(usage.refs)), usage, settings.portrait)
    forecasts = forecast(usage, portraits, settings.forecasting, fine=False)
    return blocks.results(portraits, forecasts), blocks.state(portraits, Hours.of(usage.values))
