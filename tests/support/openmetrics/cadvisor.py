"""The kubelet's side: container, pod, pause and root series of cAdvisor."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from cotenant.base.cluster import EventKind, Pod
from cotenant.base.identity import NodeRef, PodContainerRef
from cotenant.base.usage.usage import Signal
from tests.support.openmetrics.dress import (
    COUNTERS,
    CPU,
    MEMORY,
    OOM,
    PAUSE_BYTES,
    PAUSE_MILLICORES,
    PERIODS,
    PRESSURE,
    THROTTLED,
    THROTTLED_PERIODS,
    Dress,
    Labels,
    uid_of,
)
from tests.support.openmetrics.writer import Series, Writer


def samples(writer: Writer) -> Iterator[int]:
    """Container, pod, pause and root series of each family; yields samples written."""
    families: tuple[tuple[str, Callable[[Writer, str], Iterator[int]]], ...] = (
        (CPU, _usage_family),
        (MEMORY, _usage_family),
        (THROTTLED, _quota_family),
        (PERIODS, _quota_family),
        (THROTTLED_PERIODS, _quota_family),
        (PRESSURE, _pressure_family),
        (OOM, _oom_family),
    )
    for name, make in families:
        if writer.dress.wants(name):
            writer.family(name, "counter" if name in COUNTERS else "gauge")
            yield from make(writer, name)


def _usage_family(writer: Writer, name: str) -> Iterator[int]:
    """CPU or memory: containers, the noise around them, the nodes' root groups."""
    cluster, counter = writer.cluster, name == CPU
    signal = Signal.CPU_USAGE_MEAN if counter else Signal.MEMORY_WORKING_SET_MAX
    together: dict[tuple[str, str], list[Series]] = {}
    for pod, ref in cluster.containers():
        series = _series(writer, pod, ref, signal)
        if series is not None:
            together.setdefault((pod.namespace, pod.name), []).append(series)
            yield from _of_container(writer, name, (pod, ref), series)
    if writer.dress.noise:
        for key, members in together.items():
            yield from _pod_noise(writer, name, cluster.pods[key], members)
    roots = cluster.usage[Signal.NODE_CPU_USAGE_MEAN if counter else Signal.NODE_MEMORY_WORKING_SET_MAX]
    for node, values in zip(roots.refs, roots.values, strict=True):
        assert isinstance(node, NodeRef)
        yield writer.scraped(name, {"id": "/"}, node.name, Series(0, values, old=True))


def _series(writer: Writer, pod: Pod, ref: PodContainerRef, signal: Signal) -> Series | None:
    """A container's series over its pod's life."""
    cluster = writer.cluster
    values = cluster.row(signal, ref)
    if values is None:
        return None
    start, end = cluster.life(pod)
    top = cluster.row(Signal.CPU_USAGE_MAX, ref) if signal is Signal.CPU_USAGE_MEAN else None
    restarts = cluster.events.get((EventKind.RESTART, ref), [])
    resets = (*restarts, *_extra_resets(writer.dress, ref, start, end))
    part = None if top is None else top[start:end]
    return Series(start, values[start:end], part, resets, pod.start_seconds < cluster.grid.start_seconds)


def _extra_resets(dress: Dress, ref: PodContainerRef, start: int, end: int) -> list[int]:
    rng = np.random.default_rng([dress.seed, 2, zlib.crc32(str(ref).encode())])
    return [int(slot) for slot in rng.integers(start + 1, end, dress.resets)] if end > start + 1 else []


def _of_container(writer: Writer, name: str, who: tuple[Pod, PodContainerRef], series: Series) -> Iterator[int]:
    """A container's samples: one series, or one for each incarnation."""
    pod, ref = who
    if not writer.dress.new_ids:
        yield writer.scraped(name, _identity(pod, ref, 0), pod.node, series)
        return
    marks = [
        series.start,
        *sorted(s for s in set(series.resets) if s > series.start),
        series.start + len(series.values),
    ]
    for life, (start, end) in enumerate(pairwise(marks)):
        inside = slice(start - series.start, end - series.start)
        top = None if series.maximum is None else series.maximum[inside]
        piece = Series(start, series.values[inside], top, (), series.old and life == 0)
        yield writer.scraped(name, _identity(pod, ref, life), pod.node, piece)


def _identity(pod: Pod, ref: PodContainerRef, life: int) -> Labels:
    """cAdvisor's labels of a container."""
    uid, own = uid_of(pod.namespace, pod.name), uid_of(str(ref), str(life))
    return {
        "namespace": pod.namespace,
        "pod": pod.name,
        "container": ref.container,
        "image": f"registry.local/{pod.namespace}/{pod.workload.name}:v1",
        "id": f"/kubepods/pod{uid}/{own}",
        "name": own,
    }


def _pod_noise(writer: Writer, name: str, pod: Pod, members: Sequence[Series]) -> Iterator[int]:
    """The pod's own group (no container label) and its pause container."""
    idle = PAUSE_MILLICORES if name == CPU else PAUSE_BYTES
    total = np.stack([m.values for m in members]).sum(axis=0) + np.float32(idle)
    uid = uid_of(pod.namespace, pod.name)
    group = {"namespace": pod.namespace, "pod": pod.name, "id": f"/kubepods/pod{uid}"}
    pause = group | {
        "id": f"/kubepods/pod{uid}/pause",
        "name": "pause",
        "container": "POD",
        "image": "registry.k8s.io/pause:3.10",
    }
    yield writer.scraped(name, group, pod.node, Series(members[0].start, total, old=members[0].old))
    still = np.where(np.isnan(total), np.nan, idle).astype(np.float32)
    yield writer.scraped(name, pause, pod.node, Series(members[0].start, still, old=members[0].old))


def _quota_family(writer: Writer, name: str) -> Iterator[int]:
    """Throttling, only of containers with a CPU limit: time refused, periods, periods in which some was refused."""
    cluster = writer.cluster
    for pod, ref in cluster.containers():
        series = _series(writer, pod, ref, Signal.CPU_THROTTLED_MEAN)
        if series is None:
            continue
        used = cluster.row(Signal.CPU_USAGE_MEAN, ref)
        assert used is not None
        shown = used[series.start : series.start + len(series.values)]
        # Ten periods a second; a counter's unit here is "per second in thousandths", as millicores are.
        periods = np.where(np.isnan(series.values), np.nan, 10_000.0)
        share = series.values / np.maximum(series.values + shown, 1e-6)
        chosen = {THROTTLED: series.values, PERIODS: periods, THROTTLED_PERIODS: periods * share}[name]
        counted = Series(series.start, chosen.astype(np.float32), None, series.resets, series.old)
        yield from _of_container(writer, name, (pod, ref), counted)


def _pressure_family(writer: Writer, name: str) -> Iterator[int]:
    """Seconds of waiting for CPU, where the usage knows of any."""
    for pod, ref in writer.cluster.containers():
        series = _series(writer, pod, ref, Signal.CPU_PRESSURE_MEAN)
        if series is not None:
            waiting = Series(series.start, series.values * 1000, None, series.resets, series.old)
            yield from _of_container(writer, name, (pod, ref), waiting)


def _oom_family(writer: Writer, name: str) -> Iterator[int]:
    """Kills counted by cAdvisor: up by one at each kill."""
    step = writer.cluster.grid.step_seconds
    for pod, ref in writer.cluster.containers():
        start, end = writer.cluster.life(pod)
        rates = np.zeros(end - start, dtype=np.float32)
        for slot in writer.cluster.events.get((EventKind.OOM_KILL, ref), []):
            rates[slot - start] += 1000.0 / step
        yield writer.scraped(name, _identity(pod, ref, 0), pod.node, Series(start, rates, whole=True))
