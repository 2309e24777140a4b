"""Hourly update of a shard: portraits and peaks exactly, forecast paths shifted.

Per shard: the new 5-minute values go into the state; percentiles, pattern and the 24-hour peak come from it, as from a
run over the whole window (to the digits of float32; portraits also still know what has left the window). A path moves
on by the half hours that passed, and what was forecast for them yesterday stands for the same time tomorrow. One shard
in 24, by the hour of the day, and every shard whose forecast is a day old, is forecast anew from the store, so that no
path is older than a day. New series stand with their portraits until then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cotenant.apps.pipeline.fleet import blocks
from cotenant.apps.pipeline.fleet.blocks import Block, Hours
from cotenant.apps.pipeline.fleet.plan import FleetShard
from cotenant.apps.pipeline.fleet.work import ShardTask, state_folder
from cotenant.core.adapters.store import Store
from cotenant.core.model.errors import NoData
from cotenant.core.model.identity import PodContainerRef
from cotenant.core.model.usage.portrait import Portraits
from cotenant.core.model.usage.usage import DAY_SECONDS, FIVE_MINUTES_SECONDS, HOUR_SECONDS, TimeGrid, Usage
from cotenant.core.settings.root import Settings
from forecasting.engine import STEP_SECONDS, forecast
from forecasting.peaks import peak_quantiles
from profiler import portrait


@dataclass(frozen=True, slots=True)
class HourTask:
    """A shard of an earlier plan, and the window whose end its blocks shall reach."""

    task: ShardTask
    window: TimeGrid


@dataclass(frozen=True, slots=True, eq=False)
class ShardState:
    """Blocks of a shard: state up to `end_seconds`, results from their own start, the last forecast's time."""

    portraits: Portraits[PodContainerRef]
    hours: Hours
    results: Block
    forecast_seconds: int

    @property
    def end_seconds(self) -> int:
        """End of the usage that the state knows."""
        return self.portraits.end_seconds


def advance(hour_task: HourTask) -> str:
    """Bring one shard's blocks to the hour; its name. NoData when the shard was never computed. Idempotent."""
    task, shard, end = hour_task.task, hour_task.task.shard, hour_task.window.end_seconds
    store, folder = Store(task.url, task.cluster), task.plan.folder
    state = _stored_state(store, task)
    if state.end_seconds >= end and _start(state.results) >= end:
        return shard.name
    first = min([state.end_seconds, *([_start(state.results)] if len(state.results["start"]) else [])])
    newer: Usage[PodContainerRef] = store.read(shard.signal, _hours(first, end), shard.between)
    fresh = store.read(shard.signal, hour_task.window, shard.between) if _due(shard, state, end) else None
    moved = updated(state, newer, task.settings)
    results = refreshed(moved, newer, task.settings) if fresh is None else anew(moved, fresh, task.settings)
    when = str(state.forecast_seconds if fresh is None else end)
    stamp = {"end": str(end), "forecast": when}
    store.write_block(state_folder(folder), shard.name, blocks.state(moved.portraits, moved.hours), stamp)
    store.write_block(folder, shard.name, results, stamp)
    return shard.name


def updated(state: ShardState, newer: Usage[PodContainerRef], settings: Settings) -> ShardState:
    """The state after newer usage, of which the part that it has already is left out. Pure."""
    skip = max(0, newer.grid.index_of(state.end_seconds))
    if skip >= newer.grid.size:
        return state
    grid = TimeGrid(state.end_seconds, FIVE_MINUTES_SECONDS, newer.grid.size - skip)
    usage = Usage(newer.refs, grid, newer.values[:, skip:], newer.resource, newer.statistic)
    portraits = portrait.update(state.portraits, usage.refs, np.arange(len(usage.refs)), usage, settings.portrait)
    row = {ref: i for i, ref in enumerate(portraits.refs)}
    values = np.full((len(row), grid.size), np.nan, dtype=np.float32)
    values[[row[ref] for ref in usage.refs]] = usage.values
    hours = state.hours.widened(len(row) - len(state.hours.maxima))
    most = (settings.forecasting.history_days + 1) * blocks.HOURS_PER_DAY
    return replace(state, portraits=portraits, hours=hours.then(Hours.of(values), most))


def refreshed(moved: ShardState, newer: Usage[PodContainerRef], settings: Settings) -> Block:
    """Results with the new portraits and peaks, paths rolled on; series that are new behind the old ones. Pure."""
    end, old = moved.end_seconds, moved.results
    count = len(old["start"])
    slots = (end - _start(old)) // STEP_SECONDS if count else 0
    results = blocks.rolled(old, slots, end)
    fresh = np.arange(count, len(moved.portraits.refs))
    if fresh.size:
        young = blocks.select(moved.portraits, fresh)
        results = blocks.chained(
            results, blocks.results(young, forecast(_of(newer, young), young, settings.forecasting, fine=False))
        )
    results = blocks.with_portraits(results, moved.portraits)
    return _with_peak(results, moved, settings)


def anew(moved: ShardState, window: Usage[PodContainerRef], settings: Settings) -> Block:
    """Results with a forecast from the whole window. Pure."""
    forecasts = forecast(_of(window, moved.portraits), moved.portraits, settings.forecasting, fine=False)
    return blocks.results(moved.portraits, forecasts)


def _with_peak(results: Block, moved: ShardState, settings: Settings) -> Block:
    maxima = moved.hours.daily(settings.forecasting.history_days + 1)
    peak = peak_quantiles(maxima, moved.portraits.maximum, settings.forecasting)
    return blocks.with_peak(results, peak)


def _of(usage: Usage[PodContainerRef], portraits: Portraits[PodContainerRef]) -> Usage[PodContainerRef]:
    """Usage of the portraits' series, in their order; gaps where there is none."""
    values = np.full((len(portraits.refs), usage.grid.size), np.nan, dtype=np.float32)
    for row, ref in enumerate(portraits.refs):
        place = usage.row_of.get(ref)
        if place is not None:
            values[row] = usage.values[place]
    return Usage(portraits.refs, usage.grid, values, usage.resource, usage.statistic)


def _stored_state(store: Store, task: ShardTask) -> ShardState:
    shard, settings = task.shard, task.settings
    state = store.read_block(state_folder(task.plan.folder), shard.name)
    results = store.read_block(task.plan.folder, shard.name)
    if state is None or results is None:
        raise NoData(f"shard {shard.name} was never computed", fix="Run cotenant run without --hour first.")
    half_life = settings.portrait.half_life_hours * HOUR_SECONDS
    portraits, hours = blocks.restored(state[0], shard.resource, int(state[1]["end"]), half_life)
    return ShardState(portraits, hours, results[0], int(results[1]["forecast"]))


def _start(results: Block) -> int:
    """Begin of the paths; of an empty shard nothing begins."""
    return int(results["start"][0]) if len(results["start"]) else 0


def _due(shard: FleetShard, state: ShardState, end: int) -> bool:
    """Whether the shard's turn has come to be forecast anew."""
    return shard.turn(end) or end - state.forecast_seconds >= DAY_SECONDS


def _hours(start: int, end: int) -> TimeGrid:
    return TimeGrid.between(start, end, FIVE_MINUTES_SECONDS)
