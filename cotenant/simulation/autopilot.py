"""An AutopilotPolicy for the demo's cluster: it observes one namespace, until somebody lets it act. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from cotenant.autopilot.model import POLICIES
from cotenant.base.cluster import Inventory
from cotenant.base.kubernetes.protocol import OWN_GROUP
from cotenant.simulation.objects import DEMO_LABELS

Json = dict[str, Any]
MINIMUM_CONFIDENCE: Final = 0.6
"""Of the demo's ceiling: its few weeks of history are not enough for the default."""
NAME: Final = "nightly"
SPEC: Final[Json] = {
    "mode": "Observe",
    "directions": ["Down", "Up", "UpAfterOOMKill"],
    "largestCut": {"cpu": 0.2, "memory": 0.15},
    "windows": ["mon-sun 20:00-06:00 Etc/UTC"],
    "atOnce": 2,
}


def policy_objects(inventory: Inventory) -> Iterator[tuple[str, Json]]:
    """(collection path, object): one policy, in the namespace that has most Deployments with several replicas."""
    counts = Counter(
        workload.ref.namespace
        for workload in inventory.workloads
        if workload.ref.kind == "Deployment" and workload.replicas > 1
    )
    for namespace, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:1]:
        meta = {"name": NAME, "namespace": namespace, "labels": dict(DEMO_LABELS)}
        body = {"apiVersion": OWN_GROUP, "kind": "AutopilotPolicy", "metadata": meta, "spec": SPEC}
        yield f"/apis/{OWN_GROUP}/namespaces/{namespace}/{POLICIES}", body
