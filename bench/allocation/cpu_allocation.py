"""Choosing 8 CPUs on a node of 256, half of them taken: time of one call, over all policies of cores and NUMA nodes.

Processor time of the calling thread, so that other work on the machine counts little. What is taken is drawn anew for
each call, thread by thread: few whole cores are left, and the attempts go far down their order.
"""

from __future__ import annotations

import gc
import random
import time

import numpy as np

from bench.record import Row, above, below, record
from cotenant.base.allocation.cpu_accumulator import (
    CpuBindPolicy,
    CpuExclusivePolicy,
    CpuOccupation,
    CpuRequest,
    NumaPolicy,
    allocate_cpus,
)
from cotenant.base.allocation.cpu_topology import regular_topology

CALLS, COUNT = 400, 8
SOCKETS, CORES, THREADS, NUMA_NODES = 2, 64, 2, 2


def main() -> None:
    dice = random.Random(20)
    topology = regular_topology(SOCKETS, CORES, THREADS, NUMA_NODES)
    cpus, cores = sorted(topology.cpus), sorted(topology.cores)
    milliseconds: list[float] = []
    refused = wrong = 0
    gc.disable()
    for bind in CpuBindPolicy:
        for numa in NumaPolicy:
            for exclusive in (CpuExclusivePolicy.NONE, CpuExclusivePolicy.PCPU_LEVEL):
                for _ in range(CALLS):
                    taken = frozenset(dice.sample(cpus, len(cpus) // 2))
                    occupation = CpuOccupation(taken, frozenset(dice.sample(cores, len(cores) // 4)))
                    request = CpuRequest(COUNT, bind, required=dice.random() < 0.5, exclusive=exclusive, numa=numa)
                    start_ns = time.thread_time_ns()
                    chosen = allocate_cpus(topology, occupation, request)
                    milliseconds.append((time.thread_time_ns() - start_ns) / 1e6)
                    refused += chosen is None
                    wrong += chosen is not None and (len(chosen) != COUNT or bool(chosen & taken))
    p50, p99 = (round(float(np.percentile(milliseconds, percent)), 3) for percent in (50, 99))
    record(
        "cpu_allocation",
        ".venv/bin/python -m bench.allocation.cpu_allocation",
        [
            below("8 of 256 CPUs, half taken, p99", p99, "ms", 1, f"{len(milliseconds)} calls, processor time"),
            Row("the same, p50", p50, "ms"),
            below("answers with a CPU that was taken, or too few", wrong, "answers", 0),
            above("calls that got their CPUs", len(milliseconds) - refused, "calls", 1, f"{refused} refused"),
        ],
    )


if __name__ == "__main__":
    main()
