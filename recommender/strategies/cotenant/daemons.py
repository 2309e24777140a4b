"""DaemonSets by node group: the same daemon needs more on larger nodes. Pure.

A DaemonSet has one template for all nodes, so its value is that of the node group with the largest need. The figures of
each group are shown with it, and tell whether one DaemonSet per group would pay off. A node's group is its label
`cotenant.dev/node-group`, else its instance type, else its capacity.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from cotenant.base.cluster import Node
from cotenant.base.resource import GIB, MILLICORES_PER_CORE, Resource
from cotenant.base.usage.usage import Signal
from cotenant.recommender.evidence import Evidence
from cotenant.recommender.strategies.cotenant.pods import demand_of, throttled_rows

LABELS: Final = ("cotenant.dev/node-group", "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
SOURCE: Final = {Resource.CPU: Signal.CPU_USAGE_MEAN, Resource.MEMORY: Signal.MEMORY_WORKING_SET_MAX}


def group_of(node: Node) -> str:
    """Return the name of the node's group: its first label of LABELS (such as the instance type), else its size."""
    for label in LABELS:
        if name := node.labels.get(label):
            return name
    cores = node.capacity.get(Resource.CPU, 0) / MILLICORES_PER_CORE
    return f"{cores:g} cores, {node.capacity.get(Resource.MEMORY, 0) / GIB:.0f} GiB"


def by_group(evidence: Evidence, resource: Resource, fractions: Sequence[float]) -> Mapping[int, Mapping[str, float]]:
    """Return {container index: {node group: need}} of DaemonSets' containers, per pod in the unit, without margin.

    The need is the quantile `fractions[container]` of the CPU demand of all pods in the group, or their highest memory
    usage. Containers with samples in fewer than two groups are left out.
    """
    group = {node.name: group_of(node) for node in evidence.inventory.nodes}
    daemons = [i for i, w in enumerate(evidence.workloads) if w.ref.kind == "DaemonSet"]
    if SOURCE[resource] not in evidence.usage or len(set(group.values())) < 2 or not daemons:
        return {}
    node_of = {(p.namespace, p.name): p.node for p in evidence.inventory.pods if p.workload.kind == "DaemonSet"}
    usage, owners = evidence.usage[SOURCE[resource]], evidence.usage_rows[SOURCE[resource]]
    members: dict[tuple[int, str], list[int]] = defaultdict(list)
    for row in np.flatnonzero(np.isin(owners, daemons)).tolist():
        ref = usage.refs[row]
        if name := group.get(node_of.get((ref.namespace, ref.pod), "")):
            members[int(owners[row]), name].append(row)
    needs: dict[int, dict[str, float]] = defaultdict(dict)
    for (container, name), rows in sorted(members.items()):
        if resource is Resource.CPU:
            of_rows, fraction = np.array(rows), fractions[container]
            _, values, _ = demand_of(evidence, of_rows, throttled_rows(evidence), np.zeros_like(of_rows))
        else:  # a container that is short of memory is killed
            values, fraction = usage.values[rows], 1.0
        samples = values[np.isfinite(values)]
        if samples.size:
            needs[container][name] = float(np.quantile(samples, fraction))
    return {container: amounts for container, amounts in needs.items() if len(amounts) > 1}
