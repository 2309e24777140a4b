"""The CPUs on which best effort runs: few, whole cores first, spread over sockets, no CPU of LSE pods. Pure.

    count   : max(ceil(target / 1 core), 2); it grows by at most ceil(10 % of all CPUs) a tick, and shrinks at once
    LSR     : count * lsr // (lsr + others) of these are CPUs of LSR pods, the rest are others (of the usable CPUs)
    pairs   : in each of the two sets, a pair of hyper-threads from every bucket (NUMA node, socket) in turn, largest
              bucket first, at equal size by the lowest CPU; inside a bucket by core, then CPU
    singles : single CPUs from the buckets in turn for an odd number (from the bucket after the last pair's on), or
              if no pair is left (from the first bucket on)

Source: Koordinator's koordlet, `cpusuppress`. There are two differences. Without any LSR or other CPU Koordinator
divides by zero. With fewer CPUs than wanted it chooses none, which the kernel refuses for a cgroup with processes; here
best effort gets the CPUs that there are, and `Choice.short` says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeVar

from cotenant.base.allocation.cpu_topology import Cpus, Processor
from cotenant.base.kubernetes.qos import QosClass
from cotenant.base.resource import MILLICORES_PER_CORE
from cotenant.base.text import counted
from cotenant.enforcer.contract import NodeReading, PodSpec
from cotenant.enforcer.observe.cpusets import forbidden_cpus, owned_cpus

LEAST_CPUS: Final = 2
GROWTH_SHARE: Final = 0.1
"""Share of all CPUs by which the count grows at most per tick."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Choice:
    """The CPUs for best effort; `short` says why they are fewer than wanted or not exclusively its own, else ""."""

    cpus: Cpus
    short: str = ""
    stuck: bool = False
    """True if there is no CPU for best effort at all."""


def wanted_count(millicores: int, all_cpus: int, before: int, least: int = LEAST_CPUS) -> int:
    """Return how many CPUs best effort needs for its target, growing from `before` in steps, but at least `least`."""
    target_count = max(math.ceil(millicores / MILLICORES_PER_CORE), least)
    return min(target_count, before + math.ceil(all_cpus * GROWTH_SHARE), max(all_cpus, 1))


def choose(count: int, node: NodeReading, pods: Iterable[PodSpec]) -> Choice:
    """Choose `count` of the CPUs that best effort may use; every CPU of the node if it may use none."""
    pods = tuple(pods)
    forbidden = forbidden_cpus(node, pods)
    eligible = [p for p in node.processors if p.id not in forbidden]
    if not eligible:
        text = "every CPU is reserved or belongs to LSE pods: best effort stays on all of them"
        return Choice(frozenset(p.id for p in node.processors), text, stuck=True)
    lent = owned_cpus(pods, QosClass.LSR)
    lsr = [p for p in eligible if p.id in lent]
    others = [p for p in eligible if p.id not in lent]
    from_lsr = count * len(lsr) // len(eligible)
    cpus = frozenset(take_cpus(from_lsr, lsr)) | frozenset(take_cpus(count - from_lsr, others))
    lacking = count - len(cpus)
    short = f"best effort lacks {counted(lacking, 'CPU')}: taken by LSE pods or reservations" if lacking else ""
    return Choice(cpus, short)


def take_cpus(count: int, among: Iterable[Processor]) -> list[int]:
    """Return `count` CPUs, whole cores first, from NUMA nodes and sockets in turn; all CPUs if there are fewer."""
    by_place: dict[tuple[int, int], list[Processor]] = {}
    for processor in sorted(among, key=lambda p: (p.core, p.id)):
        by_place.setdefault((processor.numa_node, processor.socket), []).append(processor)
    buckets = sorted(by_place.values(), key=lambda bucket: (-len(bucket), min(p.id for p in bucket)))
    every_pair: list[list[tuple[int, tuple[int, int]]]] = [[] for _ in buckets]
    for index, bucket in enumerate(buckets):
        for _, threads in groupby(bucket, key=lambda p: p.core):  # hyper-threads of one core, two at a time
            ids = [p.id for p in threads]
            every_pair[index] += [(index, pair) for pair in zip(ids[::2], ids[1::2], strict=False)]
    wanted_pairs = max(count, 0) // 2
    pairs = [*_in_turn(every_pair)][:wanted_pairs]
    chosen = [cpu for _, pair in pairs for cpu in pair]
    start = (pairs[-1][0] + 1) % len(buckets) if pairs and len(pairs) == wanted_pairs else 0
    used = set(chosen)
    singles = [[p.id for p in bucket if p.id not in used] for bucket in (*buckets[start:], *buckets[:start])]
    return chosen + [*_in_turn(singles)][: max(count - len(chosen), 0)]


def _in_turn(queues: list[list[_T]]) -> Iterator[_T]:
    for index in range(max(map(len, queues), default=0)):
        yield from (queue[index] for queue in queues if index < len(queue))
