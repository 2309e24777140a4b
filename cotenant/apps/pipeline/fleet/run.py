"""A run over the fleet: plans, computes missing shards, joins; or updates the last run to the present hour.

The last finished run is named by the document `fleet` in the results: from it the next hour goes on, and readers find
`results/fleet-<resource>.parquet`. Folders of other plans are removed when a run has finished, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from cotenant.apps.pipeline.fleet import plan as plans
from cotenant.apps.pipeline.fleet.executors import Executor
from cotenant.apps.pipeline.fleet.hour import HourTask, advance
from cotenant.apps.pipeline.fleet.plan import FOLDER, FleetPlan, Share
from cotenant.apps.pipeline.fleet.work import ShardTask, compute
from cotenant.core.adapters.store import Store
from cotenant.core.model.errors import NoData, UsageError
from cotenant.core.model.progress import Progress, Silent
from cotenant.core.model.resource import Resource
from cotenant.core.model.usage.usage import DAY_SECONDS, HOUR_SECONDS
from cotenant.core.settings.base import digest
from cotenant.core.settings.root import Settings

DOCUMENT: Final = "fleet"
LONGEST_GAP_SECONDS: Final = DAY_SECONDS


class Finished(msgspec.Struct, frozen=True):
    """What the last finished run was: its plan, the settings behind it, and the end of the usage that is in it."""

    plan: FleetPlan
    settings_digest: str
    end_seconds: int
    series: int


@dataclass(frozen=True, slots=True)
class FleetSummary:
    """What a run did: shards and series of the plan, shards computed now, shards still missing."""

    digest: str
    end_seconds: int
    series: int
    shards: int
    computed: int
    missing: int
    joined: bool


@dataclass(frozen=True, slots=True)
class Fleet:
    """A run's surroundings."""

    store: Store
    settings: Settings
    resources: Sequence[Resource] = (Resource.CPU,)
    size: int = plans.SERIES_PER_SHARD
    progress: Progress = field(default_factory=Silent)

    def run(self, executor: Executor, share: Share | None = None) -> FleetSummary:
        """Compute what is missing of the plan, or of a share of it, and join when it is the whole."""
        plan = self._plan()
        done = set(self.store.block_names(plan.folder))
        mine = plan.shards if share is None else share.of_shards(plan.shards)
        missing = {shard.name for shard in mine} - done
        tasks = [self._task(plan, i) for i, shard in enumerate(plan.shards) if shard.name in missing]
        self.progress.stage(f"Forecast {plan.series:,} series in shards", len(mine))
        self.progress.advance(len(mine) - len(tasks))
        self._map(executor, compute, tasks)
        if share is None:
            return self._joined(plan, len(tasks))
        return self._summary(plan, len(tasks), joined=False)

    def merge(self) -> FleetSummary:
        """Join the shards that pods of an Indexed Job have computed; NoData names what is missing."""
        plan = self._plan()
        missing = self._missing(plan)
        if missing:
            raise NoData(
                f"{len(missing)} of {len(plan.shards)} shards are not computed yet, first {missing[0]}",
                fix="Wait for the other parts, or run them again; usage must not be appended meanwhile.",
            )
        return self._joined(plan, 0)

    def hour(self, executor: Executor) -> FleetSummary:
        """Bring the last finished run to the last whole hour that the store has."""
        last = self.store.read_document(DOCUMENT, Finished)
        if last is None:
            raise NoData("there is no finished run to go on from", fix="Run cotenant run first.")
        if last.settings_digest != _digest(self.settings):
            raise UsageError("settings have changed since the last run", fix="Run cotenant run without --hour.")
        window = plans.window(self.store, self.settings)
        end = window.end_seconds
        if end - last.end_seconds > LONGEST_GAP_SECONDS:
            gap = (end - last.end_seconds) // HOUR_SECONDS
            raise UsageError(f"the last run is {gap} hours behind", fix="Run cotenant run without --hour.")
        # Those that are forecast anew take longest and so begin first: no worker is left alone with one at the end.
        order = sorted(range(len(last.plan.shards)), key=lambda i: not last.plan.shards[i].turn(end))
        tasks = [HourTask(self._task(last.plan, i), window) for i in order]
        self.progress.stage("Add the last hours to shards", len(tasks))
        self._map(executor, advance, tasks)
        return self._joined(last.plan, len(tasks), end)

    def _plan(self) -> FleetPlan:
        self.progress.stage("Look through the history", 0)
        return plans.make(self.store, self.settings, self.resources, self.size)

    def _task(self, plan: FleetPlan, position: int) -> ShardTask:
        return ShardTask(self.store.url, self.store.cluster, self.settings, plan, position)

    def _map(self, executor: Executor, work: Callable[[Any], str], tasks: Sequence[Any]) -> None:
        if tasks:
            for _ in executor.run(work, tasks):
                self.progress.advance()

    def _missing(self, plan: FleetPlan) -> list[str]:
        done = set(self.store.block_names(plan.folder))
        return [shard.name for shard in plan.shards if shard.name not in done]

    def _joined(self, plan: FleetPlan, computed: int, end_seconds: int | None = None) -> FleetSummary:
        """One table a resource, then the document, then the old plans' folders go."""
        resources = tuple(dict.fromkeys(shard.resource for shard in plan.shards))
        self.progress.stage("Join", len(resources))
        series, end = 0, plan.window.end_seconds if end_seconds is None else end_seconds
        for resource in resources:
            names = [shard.name for shard in plan.shards if shard.resource is resource]
            series += self.store.join_blocks(plan.folder, names, table_name(resource))
            self.progress.advance()
        self.store.write_document(DOCUMENT, Finished(plan, _digest(self.settings), end, series))
        for name in self.store.folders(FOLDER):
            if name != plan.digest:
                self.store.remove_result(f"{FOLDER}/{name}")
        return FleetSummary(plan.digest, end, series, len(plan.shards), computed, 0, joined=True)

    def _summary(self, plan: FleetPlan, computed: int, *, joined: bool) -> FleetSummary:
        missing = len(self._missing(plan))
        return FleetSummary(
            plan.digest, plan.window.end_seconds, plan.series, len(plan.shards), computed, missing, joined
        )


def table_name(resource: Resource) -> str:
    """Name of the joined table of a resource."""
    return f"fleet-{resource.value}"


def _digest(settings: Settings) -> str:
    return f"{digest(settings.portrait)}{digest(settings.forecasting)}"
