"""What the pods of a workload can use at most: their limits, else the largest node, as often as pods can run."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cotenant.base.cluster import Autoscaler, Container, Inventory, Node, Workload
from cotenant.base.identity import WorkloadRef
from cotenant.base.resource import Resource
from cotenant.base.usage.usage import Statistic, TimeGrid, Usage
from cotenant.pipeline.shards.work import ceilings

LIMITED = Container("main", limits={Resource.CPU: 1_000})
FREE = Container("side")
NODES = tuple(
    Node(name, {Resource.CPU: cores}, {Resource.CPU: cores}) for name, cores in (("a", 16_000), ("b", 64_000))
)


@pytest.mark.parametrize(
    ("containers", "replicas", "most_replicas", "nodes", "most"),
    [
        ((LIMITED,), 4, 0, NODES, 4_000),  # four pods of one core each
        ((LIMITED, LIMITED), 4, 0, NODES, 8_000),
        ((LIMITED,), 2, 6, NODES, 6_000),  # its autoscaler may make six
        ((LIMITED,), 0, 0, NODES, 1_000),  # a Job that does not run now
        ((LIMITED, FREE), 2, 0, NODES, 128_000),  # a container without a limit: two of the largest node
        ((FREE,), 2, 0, (), math.nan),  # nothing is known
    ],
)
def test_a_pod_can_use_its_limits_or_else_the_largest_node(
    containers: tuple[Container, ...], replicas: int, most_replicas: int, nodes: tuple[Node, ...], most: float
) -> None:
    ref, other = WorkloadRef("shop", "Deployment", "web"), WorkloadRef("shop", "Deployment", "gone")
    scaler = Autoscaler("web", 1, most_replicas) if most_replicas else None
    inventory = Inventory("prod", 0, nodes, (Workload(ref, replicas, containers, autoscaler=scaler),), ())
    usage = Usage((ref, other), TimeGrid(0, 300, 1), np.zeros((2, 1), np.float32), Resource.CPU, Statistic.MEAN)
    assert ceilings(inventory, usage) == pytest.approx([most, math.nan], nan_ok=True)
