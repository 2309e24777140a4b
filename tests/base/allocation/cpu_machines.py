"""Machines and requests for tests of CPU allocation: equal sockets, hybrid cores, CPUs that are off or isolated."""

from __future__ import annotations

from hypothesis import strategies as st

from cotenant.base.allocation.cpu_accumulator import (
    CpuBindPolicy,
    CpuExclusivePolicy,
    CpuRequest,
    NumaPolicy,
    NumaStrategy,
)
from cotenant.base.allocation.cpu_topology import CpuCache, CpuTopology, Processor, regular_topology


def hybrid_topology(wide_cores: int, narrow_cores: int) -> CpuTopology:
    """One socket: cores of two threads, numbered 0 and 1, 2 and 3, ..., and behind them cores of one."""
    wide = [Processor(2 * core + thread, core) for core in range(wide_cores) for thread in (0, 1)]
    narrow = [Processor(2 * wide_cores + i, wide_cores + i) for i in range(narrow_cores)]
    return CpuTopology(tuple(wide + narrow))


@st.composite
def machines(draw: st.DrawFn) -> CpuTopology:
    """Up to 32 CPUs; some of them off, some isolated."""
    if draw(st.booleans()):
        return hybrid_topology(draw(st.integers(1, 6)), draw(st.integers(0, 8)))
    numa_nodes = draw(st.integers(1, 2))
    topology = regular_topology(
        draw(st.integers(1, 2)), numa_nodes * draw(st.integers(1, 4)), draw(st.integers(1, 2)), numa_nodes
    )
    off = draw(st.frozensets(st.sampled_from(sorted(topology.cpus)), max_size=len(topology.cpus) - 1))
    online = tuple(p for p in topology.processors if p.id not in off)
    isolated = draw(st.frozensets(st.sampled_from([p.id for p in online]), max_size=2))
    return CpuTopology(online, off, isolated, draw(st.sampled_from([(), caches_of(online)])))


def caches_of(processors: tuple[Processor, ...]) -> tuple[CpuCache, ...]:
    """One of level 2 a core, one of level 3 a socket."""
    cores: dict[tuple[int, int], set[int]] = {}
    for p in processors:
        for place in ((2, p.core), (3, p.socket)):
            cores.setdefault(place, set()).add(p.id)
    caches = [CpuCache(level, frozenset(cpus)) for (level, _), cpus in cores.items()]
    return tuple(sorted(caches, key=lambda cache: (cache.level, sorted(cache.cpus))))


REQUESTS = st.builds(
    CpuRequest,
    count=st.integers(1, 10),
    bind=st.sampled_from(CpuBindPolicy),
    required=st.booleans(),
    exclusive=st.sampled_from(CpuExclusivePolicy),
    numa=st.sampled_from(NumaPolicy),
    strategy=st.sampled_from(NumaStrategy),
)
