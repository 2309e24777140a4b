"""GPUs of containers: their requests and usage, evaluated by the recommender, and the cluster's total usage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cotenant.base.identity import ClusterRef, ContainerRef, PodContainerRef
from cotenant.base.usage.lives import Lives, SourceSilence
from cotenant.base.usage.portrait import Portraits
from cotenant.base.usage.samples import measured
from cotenant.base.usage.usage import HOUR_SECONDS, Signal, Usage
from cotenant.pipeline.analysis import History
from cotenant.profiler import portrait
from cotenant.profiler.pool import by_cluster, by_container, total
from cotenant.recommender.gpus import CORE_FRACTION, GpuContainer, find
from cotenant.recommender.model.finding import ClusterFinding
from cotenant.recommender.money import prices
from cotenant.settings import Settings

_REQUESTS = (Signal.GPU_CORE_REQUEST, Signal.GPU_MEMORY_REQUEST, Signal.GPU_INSTANCE_REQUEST)
_LISTINGS = (Signal.GPU_CORE_REQUEST, Signal.GPU_INSTANCE_REQUEST)


def findings(history: History, settings: Settings) -> Iterator[ClusterFinding]:
    """Yield the findings about GPUs that running pods request."""
    requested = {signal: _gpu_requests(history, signal) for signal in _REQUESTS}
    refs = sorted(set().union(*requested.values()))
    if not refs:
        return
    built = []
    for signal in (Signal.GPU_CORE_MEAN, Signal.GPU_MEMORY_MAX):
        usage: Usage[PodContainerRef] = history.usage[signal].dense()
        members = by_container(usage.refs, history.inventory)
        built.append(portrait.build(members.refs, members.rows, usage, settings.portrait, members.start_seconds))
    cores, memory = built
    core_quantile = _by_ref(cores, cores.percentile(CORE_FRACTION))
    core_maximum, memory_maximum = (_by_ref(p, np.fmax(p.maximum, p.startup_max)) for p in (cores, memory))
    days, coverage = _by_ref(cores, cores.span_days), _time_measured(history, cores)
    workloads = {workload.ref: workload for workload in history.inventory.workloads}
    with_usage = [ref for ref in refs if ref.workload in workloads]
    price = prices([workloads[ref.workload] for ref in with_usage], history.inventory, settings.recommender.prices)
    containers = []
    for ref, paid in zip(with_usage, price, strict=True):
        amounts = [requested[signal].get(ref, (0.0, 0, 0.0)) for signal in _REQUESTS]
        of_core, of_memory_share, of_instances = (amount for amount, _, _ in amounts)
        containers.append(
            GpuContainer(
                ref,
                max(pods for _, pods, _ in amounts),
                requested_core=of_core,
                requested_memory=of_memory_share,
                instances=of_instances,
                core_quantile=core_quantile.get(ref, np.nan),
                core_maximum=core_maximum.get(ref, np.nan),
                memory_maximum=memory_maximum.get(ref, np.nan),
                days=days.get(ref, 0.0),
                coverage=coverage.get(ref, 0.0),
                requested_hours=max(hours for _, _, hours in amounts),
                hourly_price=paid.gpu,
            )
        )
    yield from find(containers, settings.recommender.findings, settings.recommender.gpus)


def cluster_total(history: History) -> Usage[ClusterRef] | None:
    """Return the usage of full GPUs by all containers, in percent of one device; None without GPU metrics.

    Containers with MIG instances are left out: their percent are of an instance, whose share of a GPU is not stored.
    """
    usage = history.usage[Signal.GPU_CORE_MEAN]
    partitioned = set(history.usage[Signal.GPU_INSTANCE_REQUEST].refs)
    usage = usage.select(np.array([ref not in partitioned for ref in usage.refs], dtype=bool))
    return total(usage, by_cluster(usage.refs, history.inventory)) if usage.refs else None


def _time_measured(history: History, cores: Portraits[ContainerRef]) -> dict[ContainerRef, float]:
    """Return the share of time in which each container's GPU usage is known; `requests` lists the containers."""
    usage, owners = history.usage[Signal.GPU_CORE_MEAN], history.inventory.owners()
    hours = history.usage[Signal.GPU_CORE_REQUEST].grid
    silence = history.silence or SourceSilence.of_no_node(history.window, hours)
    listed_by = tuple(s for s in _LISTINGS if history.usage[s].refs)
    lives = Lives.of(replace(silence, listed_by=listed_by), history.inventory, history.usage)
    place = {ref: row for row, ref in enumerate(cores.refs)}

    def row_of(series: PodContainerRef) -> int:
        ref = history.inventory.container_of(series, owners)
        return -1 if ref is None else place.get(ref, -1)

    rows = np.array([row_of(ref) for ref in usage.refs], dtype=np.int64)
    return _by_ref(cores, measured(lives, usage, rows, row_of, len(place)).shares)


def _by_ref(portraits: Portraits[ContainerRef], values: npt.NDArray[np.floating]) -> dict[ContainerRef, float]:
    return dict(zip(portraits.refs, values.tolist(), strict=True))


def _gpu_requests(history: History, signal: Signal) -> Mapping[ContainerRef, tuple[float, int, float]]:
    """Return the GPU requests of running pods by container.

    Each is the largest newest request, the number of pods that have a request, and for how many hours at most.
    """
    running = {(p.namespace, p.name): p.workload for p in history.inventory.pods if p.running}
    usage = history.usage[signal].dense()
    newest: dict[ContainerRef, list[tuple[float, int]]] = defaultdict(list)
    for ref, values in zip(usage.refs, usage.values, strict=True):
        workload, present = running.get((ref.namespace, ref.pod)), np.flatnonzero(np.isfinite(values))
        if workload is not None and present.size:
            newest[ContainerRef(workload, ref.container)].append((float(values[present[-1]]), int(present.size)))
    hours = usage.grid.step_seconds / HOUR_SECONDS
    return {ref: (max(a for a, _ in pods), len(pods), hours * max(n for _, n in pods)) for ref, pods in newest.items()}
