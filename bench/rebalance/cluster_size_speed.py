"""Time and memory of which nodes could leave, of 1,000 nodes and 20,000 pods; nothing of Kubernetes runs.

.venv/bin/python -m bench.rebalance.cluster_size_speed
"""

from __future__ import annotations

import resource
import sys
import time
from typing import Final

from bench.record import Row, below, record
from cotenant.base.commands.progress import bars
from cotenant.scheduler_ext.cluster_size.decide import decide_size
from cotenant.scheduler_ext.cluster_size.model import SizedCluster, SizeOptions
from tests.support.sized_clusters import SeededCluster, state_of

NODES, FILL, SEED = 1_000, 0.74, 3
MEBIBYTE: Final = 1 << 20


def speed_rows(state: SizedCluster, reserve: int) -> list[Row]:
    """Time and memory of one answer; the memory of the generated cluster is in it."""
    start, worked = time.monotonic(), time.process_time()
    with bars() as progress:
        size = decide_size(state, SizeOptions(reserve), progress)
    took, work = time.monotonic() - start, time.process_time() - worked
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEBIBYTE
    case = f"{len(state.nodes):,} nodes, {len(state.pods):,} pods, reserve of {reserve}"
    leaving_note = f"{len(size.leaving)} nodes could leave"
    return [
        below(f"processor time, {case}", round(work, 1), "s", 30, leaving_note),
        Row(f"elapsed, {case}", round(took, 1), "s", note="of a machine that others may use too"),
        below(f"peak memory, {case}", round(peak), "MiB", 600),
    ]


def main() -> int:
    """Without a reserve, and with one node in reserve."""
    state = state_of(SeededCluster.of(SEED, nodes=NODES, fill=FILL))
    rows = [row for reserve in (0, 1) for row in speed_rows(state, reserve)]
    record("cluster_size_speed", ".venv/bin/python -m bench.rebalance.cluster_size_speed", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
