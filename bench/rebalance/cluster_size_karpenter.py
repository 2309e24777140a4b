"""Nodes that could leave by `cotenant size`, and those that Karpenter takes out of the same cluster.

    .venv/bin/python -m bench.rebalance.cluster_size_karpenter          # 2 seeds of 100 nodes
    .venv/bin/python -m bench.rebalance.cluster_size_karpenter 0 1 --nodes 30

The clusters of `bench.rebalance.cluster_size`, with controllers, volumes, budgets and a stock kube-scheduler. cotenant
answers first and changes nothing. Then Karpenter owns all nodes and consolidates until their number has not changed for
four minutes, fifteen at most: any number of nodes may leave at once, as soon as they could, and it may add nodes of the
same two machine types, at one price per core. Counted is the most that were away at any moment, whether or not pods
waited then, and what is away at the end.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.record import Row, above, record
from cotenant.scheduler_ext.cluster_size.cluster_bound import fewest_nodes
from cotenant.scheduler_ext.cluster_size.decide import decide_size
from tests.cluster import binaries
from tests.cluster.control_plane import ControlPlane, Options
from tests.support import karpenter
from tests.support.sized_clusters import SIZES, ZONES, SeededCluster
from tests.support.sized_plane import build_cluster, pods_left_waiting, read_as_planner

COMMAND: Final = ".venv/bin/python -m bench.rebalance.cluster_size_karpenter"
FILL: Final = 0.6
QUIET_SECONDS, MOST_SECONDS = 240.0, 900.0


@dataclass(frozen=True, slots=True)
class Compared:
    """Nodes that leave by each of the two. bound: fewest nodes; waiting: pods without a node at the end of Karpenter's.

    most_out, out_at_end: nodes that were away by Karpenter at any moment at most, and at the end.
    """

    seed: int
    nodes: int
    pods: int
    bound: int
    leaving: int
    most_out: int
    out_at_end: int
    waiting: int


def compare(seed: int, nodes: int, folder: Path) -> Compared:
    """Build a seed's cluster on a control plane of its own, and ask both."""
    seeded_cluster = SeededCluster.of(seed, nodes=nodes, fill=FILL)
    with ControlPlane(folder, Options(heartbeats=False)) as plane:
        build_cluster(plane, seeded_cluster)
        state = read_as_planner(plane)
        size, bound = decide_size(state), fewest_nodes(state)
        karpenter.install(plane)
        karpenter.adopt(plane)
        types = [karpenter.machine_type(cpu, memory, ZONES) for cpu, memory in sorted(set(SIZES))]
        with karpenter.running(plane, folder, types):
            fewest, remaining = _consolidated(plane)
            waiting = pods_left_waiting(plane, seeded_cluster)
    out = nodes - fewest, nodes - remaining
    return Compared(seed, nodes, len(state.pods), bound.nodes, len(size.leaving), *out, len(waiting))


def _consolidated(plane: ControlPlane) -> tuple[int, int]:
    """Wait until the number of nodes has come to rest; return the fewest at any moment, and those at the end."""
    api, start = plane.api(), time.monotonic()
    counts, since = [len(api.items("/api/v1/nodes"))], start
    while time.monotonic() - since < QUIET_SECONDS and time.monotonic() - start < MOST_SECONDS:
        time.sleep(2)
        now = len(api.items("/api/v1/nodes"))
        if now != counts[-1]:
            counts.append(now)
            since = time.monotonic()
            print(f"{now} nodes after {since - start:.0f} s", flush=True)
    return min(counts), counts[-1]


def rows_of(comparisons: Sequence[Compared]) -> list[Row]:
    """One row for each answer, and cotenant's beside Karpenter's."""
    case = f"{len(comparisons)} seeds of {comparisons[0].nodes} nodes, {sum(seed.pods for seed in comparisons):,} pods"
    worst = min(seed.leaving - seed.most_out for seed in comparisons)
    return [
        Row("nodes that could leave by cotenant", sum(seed.leaving for seed in comparisons), "nodes", note=case),
        Row("nodes away by Karpenter at any moment, at most", sum(seed.most_out for seed in comparisons), "nodes"),
        Row("nodes away by Karpenter at the end", sum(seed.out_at_end for seed in comparisons), "nodes"),
        Row("pods without a node at the end of Karpenter's", sum(seed.waiting for seed in comparisons), "pods"),
        Row("nodes that no placing could do without", sum(seed.bound for seed in comparisons), "nodes"),
        above("more nodes by cotenant than by Karpenter at any moment, the worst seed", worst, "nodes", 0),
    ]


def main() -> int:
    """Compare seed by seed; what was compared so far is recorded after each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("end", type=int, nargs="?", default=2, help="the seed behind the last one")
    parser.add_argument("--nodes", type=int, default=100)
    options = parser.parse_args()
    try:
        binaries.ensure((*binaries.CONTROL_PLANE, "karpenter"))
    except binaries.MissingBinaries as error:
        print(error, file=sys.stderr)
        return 1
    command, comparisons = f"{COMMAND} {options.first} {options.end} --nodes {options.nodes}", []
    for seed in range(options.first, options.end):
        with tempfile.TemporaryDirectory() as folder:
            comparisons.append(compare(seed, options.nodes, Path(folder)))
        print(comparisons[-1], flush=True)
        record("cluster_size_karpenter", command, rows_of(comparisons))
    return 0


if __name__ == "__main__":
    sys.exit(main())
