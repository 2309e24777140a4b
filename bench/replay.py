"""Held-out replay: what the proposals of three strategies would have done in the week after they were made.

    .venv/bin/python -m bench.replay

At every origin a strategy sees the 14 days before it; its proposals, and the present values, are then judged on the 7
days after by the rules of `recommender.backtest`. Strategies: cotenant with its defaults, krr-simple, vpa. Worlds: two
synthetic clusters, and the traces bitbrains_rnd (CPU and memory of VMs, present request = limit = what was provisioned
at the origin) and azure_v1 (CPU alone; cores are not published, every VM counts as 4) from the folder in
`COTENANT_TRACES`. VMs have no QoS class to keep, so there `keep_qos_class` is off; all else is default. The synthetic
clusters are replayed twice, with the defaults and with that setting off, because neither peer keeps the class.

What was tuned where: origins were chosen before anything was measured. That limits are never lowered, and the margin of
the CPU limit, were decided after reading this replay; quantiles and thresholds of cotenant were chosen on the synthetic
cluster with seed 7. Seed 23 and the traces' CPU quantiles were not tuned on.

Container-day: one container of one pod for a day. Caused by us: more kills than under the present limits in the same
week. Minutes above the request are counted like throttled minutes, with the request in the limit's place: what depends
on the neighbours' mercy. An under-provisioned day: demand above the CPU request in more than 5 % of its samples, or the
working set above the memory request. Churn: share of proposals that moved by more than 10 % since the last origin.

Equal freed cores are had by multiplying all CPU proposals of a strategy by one factor (its margin); only containers for
which all three propose a CPU request are compared then. krr-simple removes CPU limits, so nothing is throttled there;
its price shows in the minutes above the request. Minutes weigh a container of 20 m like one of 20 cores, freed cores do
not: whoever is generous to the small ones wins minutes cheaply. Core-minutes of demand above the request do not have
that bias and stand beside them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np
import numpy.typing as npt
from msgspec import structs

from bench.record import Row, below, record, traces
from bench.traces import trace_matrix
from cotenant.model.cluster import Container, Inventory, Pod, Workload
from cotenant.model.identity import PodContainerRef, WorkloadRef
from cotenant.model.recommendation import Action, Field, Recommendation
from cotenant.model.resource import GIB, MIB, Resource
from cotenant.model.usage import DAY_SECONDS, FloatMatrix, Signal, TimeGrid, Usage
from cotenant.settings.portrait import PortraitSettings
from cotenant.settings.recommender import RecommenderSettings
from profiler import portrait
from profiler.pooling import by_container, demand
from profiler.synthetic import SyntheticSpec, generate
from recommender.backtest import Amounts, Recorded, backtest, present, proposed
from recommender.backtest import record as recorded
from recommender.base import load_strategy, recommend
from recommender.evidence import Evidence, Floats, assemble

COMMAND: Final = ".venv/bin/python -m bench.replay"
STRATEGIES: Final = ("cotenant", "krr-simple", "vpa")
HISTORY_DAYS, FOLLOWING_DAYS = 14, 7
SYNTHETIC_SEEDS, SYNTHETIC_ORIGINS = (7, 23), (14, 17, 21)
BITBRAINS_ORIGINS, AZURE_ORIGINS = (15, 30, 45, 60, 80), (14, 17, 20)
AZURE_MILLICORES: Final = 4000
FREED_SHARES: Final = (0.2, 0.4, 0.6, 0.7, 0.8)
CPU, MEMORY = Resource.CPU, Resource.MEMORY
SETTINGS: Final = RecommenderSettings()
VM_SETTINGS: Final = structs.replace(SETTINGS, cotenant=structs.replace(SETTINGS.cotenant, keep_qos_class=False))


@dataclass(frozen=True, eq=False)
class Moment:
    """One origin: what is known then, and what followed."""

    known: Evidence
    followed: Recorded
    settings: RecommenderSettings = SETTINGS

    @cached_property
    def proposals(self) -> dict[str, list[Recommendation]]:
        """Of every strategy, in the order of the evidence."""
        return {name: recommend(load_strategy(name), self.known, self.settings) for name in STRATEGIES}

    @cached_property
    def now(self) -> Amounts:
        return present(self.known)

    @cached_property
    def common(self) -> npt.NDArray[np.bool_]:
        """Containers for which all strategies propose a CPU request, (n,)."""
        made = np.array([[_set(r) for r in each] for each in self.proposals.values()])
        everybody: npt.NDArray[np.bool_] = made.sum(axis=0) == len(made)
        return everybody

    def amounts(self, name: str, factor: float = 1.0) -> Amounts:
        """A strategy's proposals, its CPU amounts times a factor where all strategies propose one."""
        made = proposed(self.known, self.proposals[name])
        scale = np.where(self.common, factor, 1.0)
        return Amounts(
            {**made.requests, CPU: made.requests[CPU] * scale}, {**made.limits, CPU: made.limits[CPU] * scale}
        )


def _set(recommendation: Recommendation) -> bool:
    value = recommendation.value(CPU, Field.REQUEST)
    return value is not None and value.action is Action.SET


@dataclass(frozen=True, eq=False)
class World:
    """A name and its origins, grouped by cluster; those of a cluster follow each other."""

    name: str
    clusters: Sequence[Sequence[Moment]]

    @cached_property
    def moments(self) -> list[Moment]:
        return [moment for cluster in self.clusters for moment in cluster]


def moment(inventory: Inventory, usage: Mapping[Signal, Usage[Any]], origin_seconds: int) -> Moment:
    """Cut a cluster at an origin: before it is evidence, after it is what followed."""
    before = origin_seconds - HISTORY_DAYS * DAY_SECONDS, origin_seconds
    after = origin_seconds, origin_seconds + FOLLOWING_DAYS * DAY_SECONDS
    known = replace(
        inventory,
        time_seconds=origin_seconds,
        pods=tuple(_as_of(pod, origin_seconds) for pod in inventory.pods if pod.start_seconds < origin_seconds),
        events=tuple(event for event in inventory.events if event.time_seconds < origin_seconds),
    )
    history = evidence(known, {s: cut(u, *before) for s, u in usage.items()})
    future = assemble(
        inventory,
        _window({s: cut(u, *after) for s, u in usage.items()}),
        {s: cut(u, *after) for s, u in usage.items()},
        history.portraits,
    )
    return Moment(history, recorded(future, FOLLOWING_DAYS))


def _as_of(pod: Pod, seconds: int) -> Pod:
    """The pod as it was known then: its end may not have come yet."""
    return pod if pod.end_seconds is None or pod.end_seconds < seconds else replace(pod, end_seconds=None)


def cut(usage: Usage[Any], start_seconds: int, end_seconds: int) -> Usage[Any]:
    """Series with a value in [start, end)."""
    grid = usage.grid
    first, last = grid.index_of(start_seconds), grid.index_of(end_seconds)
    values = usage.values[:, first:last]
    kept = np.flatnonzero(np.isfinite(values).any(axis=1))
    refs = tuple(usage.refs[i] for i in kept)
    return Usage(
        refs, TimeGrid(start_seconds, grid.step_seconds, last - first), values[kept], usage.resource, usage.statistic
    )


def _window(usage: Mapping[Signal, Usage[Any]]) -> TimeGrid:
    return usage[Signal.CPU_USAGE_MEAN].grid


def evidence(inventory: Inventory, usage: Mapping[Signal, Usage[Any]]) -> Evidence:
    """What the corridor gives a strategy."""
    wanted = demand(usage[Signal.CPU_USAGE_MEAN], usage.get(Signal.CPU_THROTTLED_MEAN))
    of_pods = {CPU: wanted}
    if Signal.MEMORY_WORKING_SET_MAX in usage:
        of_pods[MEMORY] = usage[Signal.MEMORY_WORKING_SET_MAX]
    else:
        of_pods[MEMORY] = Usage(
            (), wanted.grid, wanted.values[:0], MEMORY, Signal.MEMORY_WORKING_SET_MAX.spec.statistic
        )
    portraits = {}
    for resource, series in of_pods.items():
        members = by_container(series.refs, inventory)
        portraits[resource] = portrait.build(
            members.refs, members.rows, series, PortraitSettings(), members.start_seconds
        )
    return assemble(inventory, _window(usage), usage, portraits)


def classes_free(world: World) -> World:
    """The same origins with `keep_qos_class` off, as the peers have no such rule."""
    clusters = [[Moment(m.known, m.followed, VM_SETTINGS) for m in each] for each in world.clusters]
    return World(f"{world.name}, classes not kept", clusters)


def synthetic() -> World:
    """Two clusters of 30 nodes and 450 workloads over 28 days."""
    clusters = []
    for seed in SYNTHETIC_SEEDS:
        made = generate(SyntheticSpec(nodes=30, workloads=450, days=28, seed=seed))
        usage = {signal: series for signal, series in made.usage.items() if not signal.spec.per_node}
        start = made.spec.grid.start_seconds
        clusters.append([moment(made.inventory, usage, start + day * DAY_SECONDS) for day in SYNTHETIC_ORIGINS])
    return World("synthetic", clusters)


def bitbrains(folder: Path) -> World:
    """225 VMs with what was provisioned at each origin as request and limit."""
    columns = {
        name: trace_matrix(folder, "bitbrains_rnd", name)
        for name in ("cpu_usage_pct", "cpu_alloc_cores", "mem_usage_mib", "mem_alloc_mib")
    }
    grid = columns["cpu_usage_pct"][1]
    values = {name: matrix for name, (matrix, _) in columns.items()}
    cores = np.where(values["cpu_alloc_cores"] > 0, values["cpu_alloc_cores"] * 1000, np.nan).astype(np.float32)
    memory = np.where(values["mem_alloc_mib"] > 0, values["mem_alloc_mib"] * MIB, np.nan).astype(np.float32)
    usage = {
        Signal.CPU_USAGE_MEAN: values["cpu_usage_pct"] / 100 * cores,
        Signal.MEMORY_WORKING_SET_MAX: values["mem_usage_mib"] * np.float32(MIB),
    }
    provided = {CPU: cores, MEMORY: memory}
    return World("bitbrains_rnd", [_vms(usage, grid, provided, BITBRAINS_ORIGINS)])


def azure(folder: Path) -> World:
    """89 VMs, CPU alone, mean and peak."""
    (mean, grid), (peak, _) = (trace_matrix(folder, "azure_v1_vms", c) for c in ("cpu_avg_pct", "cpu_max_pct"))
    usage = {
        Signal.CPU_USAGE_MEAN: mean * np.float32(AZURE_MILLICORES / 100),
        Signal.CPU_USAGE_MAX: peak * np.float32(AZURE_MILLICORES / 100),
    }
    provided = {CPU: np.full(mean.shape, AZURE_MILLICORES, dtype=np.float32)}
    return World("azure_v1", [_vms(usage, grid, provided, AZURE_ORIGINS)])


def _vms(
    usage: Mapping[Signal, FloatMatrix],
    grid: TimeGrid,
    provided: Mapping[Resource, FloatMatrix],
    origins: Sequence[int],
) -> list[Moment]:
    """Each VM as a workload of one pod; origins in days after the first whole day of the trace."""
    start = -(-grid.start_seconds // DAY_SECONDS) * DAY_SECONDS
    count = len(usage[Signal.CPU_USAGE_MEAN])
    refs = tuple(PodContainerRef("trace", f"vm-{i:04d}", "app") for i in range(count))
    series = {
        s: Usage(refs, grid, np.ascontiguousarray(v, dtype=np.float32), s.spec.resource, s.spec.statistic)
        for s, v in usage.items()
    }
    moments = []
    for day in origins:
        origin = start + day * DAY_SECONDS
        amounts = {r: _last_known(m[:, : grid.index_of(origin)]) for r, m in provided.items()}
        moments.append(replace(moment(_inventory(refs, amounts, origin), series, origin), settings=VM_SETTINGS))
    return moments


def _inventory(refs: Sequence[PodContainerRef], amounts: Mapping[Resource, Floats], origin: int) -> Inventory:
    workloads, pods = [], []
    for row, ref in enumerate(refs):
        owner = WorkloadRef(ref.namespace, "Deployment", ref.pod)
        known = {r: int(column[row]) for r, column in amounts.items() if np.isfinite(column[row])}
        workloads.append(Workload(owner, 1, (Container(ref.container, known, known),)))
        pods.append(Pod(ref.namespace, ref.pod, owner, "node", 0))
    return Inventory("trace", origin, (), tuple(workloads), tuple(pods))


def _last_known(values: FloatMatrix) -> Floats:
    """Newest value of each row, NaN without one."""
    there = np.isfinite(values)
    newest = values.shape[1] - 1 - there[:, ::-1].argmax(axis=1)
    return np.where(there.any(axis=1), values[np.arange(len(values)), newest], np.nan).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Score:
    """One strategy in one world, over all origins."""

    caused_kills: int
    present_kills: int
    evictions: int
    throttled: float
    above_request: float
    unrequested: float
    short_cpu_days: float
    short_memory_days: float
    freed_cores: float
    freed_gib: float
    churn: float


def score(world: World, name: str) -> Score:
    """Sums over the origins; minutes per container-day, shares of container-days, amounts as mean over the origins."""
    caused = kills = evictions = 0
    throttled = above = unrequested = days = cores = gib = short_cpu = short_memory = 0.0
    for at in world.moments:
        then = at.amounts(name)
        found = backtest(at.followed, at.now, then)
        caused += int(np.maximum(found.oom_kills - found.now_oom_kills, 0).sum())
        kills += int(found.now_oom_kills.sum())
        evictions += int(found.evictions.sum())
        throttled += float(found.throttled_minutes.sum())
        above += float(at.followed.minutes_above(then.effective_request(CPU)).sum())
        unrequested += float(core_minutes_above(at.followed, then.effective_request(CPU)).sum())
        days += float(found.pod_minutes.sum()) / 1440
        cores += float(found.freed[CPU].sum()) / 1000
        gib += float(found.freed[MEMORY].sum()) / GIB
        short_cpu += short_of_cpu(at.followed, then.effective_request(CPU))
        short_memory += int(at.followed.evictions(np.full(len(at.known), np.inf), then.effective_request(MEMORY)).sum())
    count = len(world.moments)
    return Score(
        caused_kills=caused,
        present_kills=kills,
        evictions=evictions,
        throttled=throttled / days,
        above_request=above / days,
        unrequested=unrequested / days,
        short_cpu_days=short_cpu / days,
        short_memory_days=short_memory / days,
        freed_cores=cores / count,
        freed_gib=gib / count,
        churn=churn(world, name),
    )


def core_minutes_above(followed: Recorded, requests: Floats) -> Floats:
    """Core-minutes of mean CPU demand above the requests, (n,)."""
    request = np.append(requests, np.inf)[followed.cpu_rows][:, None]
    mean, _ = followed.demand(np.arange(len(followed.cpu_rows)))
    excess = np.where(mean > request, mean - request, 0).sum(axis=1) * followed.window.step_seconds / 60 / 1000
    found = np.zeros(followed.size + 1)
    np.add.at(found, followed.cpu_rows, excess)
    return found[:-1]


def short_of_cpu(followed: Recorded, requests: Floats) -> int:
    """Container-days with mean demand above the request in more than 5 % of the samples."""
    request, per_day = np.append(requests, np.inf)[followed.cpu_rows][:, None], followed.window.slots_per_day
    mean, _ = followed.demand(np.arange(len(followed.cpu_rows)))
    over = (mean > request).reshape(len(mean), -1, per_day).sum(axis=2)
    samples = np.isfinite(mean).reshape(len(mean), -1, per_day).sum(axis=2)
    return int(((over > 0.05 * samples) & (samples > 0)).sum())


def churn(world: World, name: str) -> float:
    """Share of containers whose CPU or memory request moved by more than 10 % from one origin to the next."""
    moved = pairs = 0
    for cluster in world.clusters:
        for earlier, later in pairwise(cluster):
            before, after = (m.amounts(name).requests for m in (earlier, later))
            changed = [np.abs(after[r] - before[r]) > 0.1 * before[r] for r in Resource]
            moved += int(np.logical_or(*changed).sum())
            pairs += len(changed[0])
    return moved / pairs


class Harm(NamedTuple):
    """Minutes throttled, minutes above the CPU request, core-minutes above it."""

    throttled: float
    above_request: float
    unrequested: float


class Frontier:
    """Every strategy at a chosen amount of freed cores, on the containers for which all of them propose."""

    def __init__(self, world: World) -> None:
        self.moments = world.moments
        self.days = sum(float(self._running(m)[m.common].sum()) * m.followed.days for m in self.moments)
        self.present = sum(self._requested(m, m.now) for m in self.moments)
        self.proposed = {n: sum(self._requested(m, m.amounts(n)) for m in self.moments) for n in STRATEGIES}

    def freed_share(self, name: str) -> float:
        """Share of the requested cores that a strategy frees by itself."""
        return 1 - self.proposed[name] / self.present

    def at(self, name: str, share: float) -> Harm:
        """What a strategy does when `share` of the requested cores is freed, per container-day."""
        factor = (1 - share) * self.present / self.proposed[name]
        throttled = above = unrequested = 0.0
        for at in self.moments:
            then = at.amounts(name, factor)
            unrequested += float(core_minutes_above(at.followed, then.effective_request(CPU))[at.common].sum())
            throttled += float(at.followed.minutes_above(then.effective_limit(CPU))[at.common].sum())
            above += float(at.followed.minutes_above(then.effective_request(CPU))[at.common].sum())
        return Harm(throttled / self.days, above / self.days, unrequested / self.days)

    def _requested(self, at: Moment, amounts: Amounts) -> float:
        return float((amounts.effective_request(CPU) * self._running(at))[at.common].sum())

    def _running(self, at: Moment) -> Floats:
        return at.followed.running[CPU]


def rows(world: World) -> list[Row]:
    """All that is told of one world; the value is cotenant's, the others stand in the note."""
    scores = {name: score(world, name) for name in STRATEGIES}
    ours, peers = scores["cotenant"], [scores["krr-simple"], scores["vpa"]]

    def told(what: str, unit: str, field: str) -> Row:
        note = "; ".join(f"{n} {getattr(s, field):.4g}" for n, s in scores.items() if n != "cotenant")
        return Row(f"{world.name}: {what}", float(getattr(ours, field)), unit, note=note)

    kills = told("OOM kills caused by us", "kills", "caused_kills")
    if world.name == "synthetic":
        kills = below(kills.metric, kills.value, kills.unit, 0, kills.note)
    throttled = told("throttled minutes per container-day", "min", "throttled")
    throttled = below(
        throttled.metric, throttled.value, "min", round(min(p.throttled for p in peers), 4), throttled.note
    )
    note = f"{len(world.moments)} origins"
    return [
        kills,
        Row(f"{world.name}: OOM kills under the present limits", ours.present_kills, "kills", note=note),
        throttled,
        told("freed cores", "cores", "freed_cores"),
        told("freed memory", "GiB", "freed_gib"),
        told("minutes above the CPU request per container-day", "min", "above_request"),
        told("CPU demand above the request per container-day", "core-min", "unrequested"),
        told("container-days short of CPU", "ratio", "short_cpu_days"),
        told("container-days above the memory request", "ratio", "short_memory_days"),
        told("days above the proposed memory request alone", "days", "evictions"),
        told("proposals that move by more than 10 % to the next origin", "ratio", "churn"),
        *_frontier_rows(world),
    ]


def _frontier_rows(world: World) -> list[Row]:
    """Equal freed cores: where the peers stand by themselves, and at fixed shares."""
    frontier = Frontier(world)
    made = [Row(f"{world.name}: cores freed by itself", 100 * frontier.freed_share("cotenant"), "%")]
    for peer in ("krr-simple", "vpa"):
        share = frontier.freed_share(peer)
        ours, theirs = (frontier.at(name, share) for name in ("cotenant", peer))
        at, note = f"{world.name}: at the {100 * share:.1f} % of cores that {peer} frees", "a container-day"
        made.append(
            below(
                f"{at}, minutes above the CPU request", ours.above_request, "min", round(theirs.above_request, 4), note
            )
        )
        made.append(
            below(
                f"{at}, CPU demand above the request", ours.unrequested, "core-min", round(theirs.unrequested, 4), note
            )
        )
        if peer == "vpa":
            made.append(below(f"{at}, throttled minutes", ours.throttled, "min", round(theirs.throttled, 4), note))
    for share in FREED_SHARES:
        each = {name: frontier.at(name, share) for name in STRATEGIES}
        note = "; ".join(f"{n} {h.above_request:.4g} min, {h.unrequested:.4g} core-min" for n, h in each.items())
        metric = f"{world.name}: at {100 * share:g} % freed, minutes above the CPU request"
        made.append(Row(metric, each["cotenant"].above_request, "min", note=note))
    return made


def main() -> None:
    folder = traces()
    if folder is None:
        sys.exit("no traces: set COTENANT_TRACES to a folder with bitbrains_rnd.parquet and azure_v1_vms.parquet")
    found: list[Row] = []
    made = synthetic()
    for world in (made, classes_free(made), bitbrains(folder), azure(folder)):
        found += rows(world)
    record("replay", COMMAND, found)


if __name__ == "__main__":
    main()
