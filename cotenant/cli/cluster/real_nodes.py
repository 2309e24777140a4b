"""EDGE: whether a cluster is a test cluster, so that no real workload suffers from a trial.

A cluster is taken for a test cluster when every node says so: kwok's annotation, or the label `cotenant.dev/test` or
`cotenant.dev/demo`. On any other one the caller has to insist.
"""

from __future__ import annotations

from typing import Final

import msgspec

from cotenant.base.errors import UsageError
from cotenant.base.kube import KubeClient

TEST_LABEL: Final = "cotenant.dev/test"
DEMO_LABEL: Final = "cotenant.dev/demo"
KWOK_ANNOTATION: Final = ("kwok.x-k8s.io/node", "fake")


class _NodeMeta(msgspec.Struct):
    name: str
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _Node(msgspec.Struct):
    metadata: _NodeMeta


def require_test_cluster(client: KubeClient) -> None:
    """UsageError when a node is somebody's: one that is not marked as a test's."""
    metas = (item.metadata for item in client.list("/api/v1/nodes", _Node))
    labels, (key, value) = {TEST_LABEL, DEMO_LABEL}, KWOK_ANNOTATION
    nodes = [m.name for m in metas if m.annotations.get(key) != value and labels.isdisjoint(m.labels)]
    if nodes:
        examples = ", ".join(nodes[:3]) + (", ..." if len(nodes) > 3 else "")
        raise UsageError(
            f"{client.access.server} is not a test cluster: {len(nodes)} of its nodes are real ({examples})",
            fix=f"Choose another cluster, label its nodes {TEST_LABEL}=true, or force it with --yes.",
        )
