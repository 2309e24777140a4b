"""Which nodes could leave, tried on a real API server with a stock kube-scheduler.

    .venv/bin/python -m bench.rebalance.cluster_size          # 20 seeds of 200 nodes, each with its own control plane
    .venv/bin/python -m bench.rebalance.cluster_size 4 7      # seeds 4, 5 and 6

A seed's cluster has 3 zones, topology spread, anti-affinity, volumes of one zone, disruption budgets, a DaemonSet,
native sidecars and host ports. The nodes that could leave are cordoned and deleted in their turns, each once the pods
of the one before have a node: controllers create the pods again, and the scheduler places them. Then as many further
nodes go, for which there must be no place.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from bench.record import Row, below, record
from cotenant.scheduler_ext.cluster_size.cluster_bound import fewest_nodes
from cotenant.scheduler_ext.cluster_size.decide import decide_size
from tests.cluster import binaries
from tests.cluster.control_plane import ControlPlane, Options
from tests.support.sized_clusters import SeededCluster
from tests.support.sized_plane import build_cluster, pods_left_waiting, read_as_planner, take_out, take_out_in_turn

COMMAND: Final = ".venv/bin/python -m bench.rebalance.cluster_size"
NODES, FILL = 200, 0.6
SEEDS: Final = 20


@dataclass(frozen=True, slots=True)
class Tried:
    """A seed's outcome. bound: fewest nodes; waiting: pods without a node after the nodes left, and after twice."""

    seed: int
    pods: int
    nodes: int
    leaving: int
    bound: int
    waiting: int
    waiting_after_twice: int

    @property
    def kept_by_bound(self) -> float:
        """Nodes kept, as a multiple of the bound."""
        return (self.nodes - self.leaving) / self.bound


def try_seed(seed: int, folder: Path, nodes: int = NODES) -> Tried:
    """Build a seed's cluster on a control plane of its own, and take out what could leave, then as many again."""
    seeded_cluster = SeededCluster.of(seed, nodes=nodes, fill=FILL)
    with ControlPlane(folder, Options(heartbeats=False)) as plane:
        build_cluster(plane, seeded_cluster)
        state = read_as_planner(plane)
        size, bound = decide_size(state), fewest_nodes(state)
        names = [node.name for node in size.leaving]
        waiting = take_out_in_turn(plane, seeded_cluster, names)
        take_out(plane, seeded_cluster, [node.name for node in size.staying][: len(names)])
        twice = pods_left_waiting(plane, seeded_cluster, seconds=20)
    return Tried(seed, len(state.pods), nodes, len(names), bound.nodes, len(waiting), len(twice))


def seed_rows(tried: Sequence[Tried]) -> list[Row]:
    """What the seeds gave."""
    shares = [tried_seed.kept_by_bound for tried_seed in tried]
    seeds = f"{len(tried)} seeds of {tried[0].nodes} nodes, {sum(tried_seed.pods for tried_seed in tried):,} pods"
    placed = sum(not tried_seed.waiting_after_twice for tried_seed in tried)
    return [
        below(
            "pods pending after the nodes left, all seeds",
            sum(tried_seed.waiting for tried_seed in tried),
            "pods",
            0,
            seeds,
        ),
        below("seeds in which twice as many nodes could leave too", placed, "seeds", 0),
        Row("nodes that left", sum(tried_seed.leaving for tried_seed in tried), "nodes"),
        below("nodes kept by the lower bound, median", round(median(shares), 3), "x", 1.05),
        below("nodes kept by the lower bound, worst", round(max(shares), 3), "x", 1.15),
    ]


def main() -> int:
    """Try the seeds; what was tried so far is recorded after each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("end", type=int, nargs="?", default=SEEDS, help="the seed behind the last one")
    options = parser.parse_args()
    try:
        binaries.ensure()
    except binaries.MissingBinaries as error:
        print(error, file=sys.stderr)
        return 1
    command, tried = f"{COMMAND} {options.first} {options.end}", []
    for seed in range(options.first, options.end):
        with tempfile.TemporaryDirectory() as folder:
            tried.append(try_seed(seed, Path(folder)))
        print(tried[-1], flush=True)
        record("cluster_size", command, seed_rows(tried))
    return 0


if __name__ == "__main__":
    sys.exit(main())
