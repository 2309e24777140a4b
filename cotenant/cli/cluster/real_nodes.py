"""EDGE: whether a cluster is a test cluster, so that no real workload suffers from a trial.

A cluster is taken for a test cluster when every node says so: kwok's annotation, or the label `cotenant.dev/test` or
`cotenant.dev/demo`. On any other one the caller has to insist.
"""

from __future__ import annotations

from typing import Final

from cotenant.base.errors import UsageError
from cotenant.base.kube import KubeClient
from cotenant.base.kubernetes.models.metadata import LabelledObject

TEST_LABEL: Final = "cotenant.dev/test"
DEMO_LABEL: Final = "cotenant.dev/demo"
KWOK_ANNOTATION: Final = ("kwok.x-k8s.io/node", "fake")


def require_test_cluster(client: KubeClient) -> None:
    """UsageError when a node is somebody's: one that is not marked as a test's."""
    metas = (item.metadata for item in client.list("/api/v1/nodes", LabelledObject))
    labels, (key, value) = {TEST_LABEL, DEMO_LABEL}, KWOK_ANNOTATION
    real = (m for m in metas if (m.annotations or {}).get(key) != value and labels.isdisjoint(m.labels or {}))
    nodes = [m.name for m in real]
    if nodes:
        examples = ", ".join(nodes[:3]) + (", ..." if len(nodes) > 3 else "")
        raise UsageError(
            f"{client.access.server} is not a test cluster: {len(nodes)} of its nodes are real ({examples})",
            fix=f"Choose another cluster, label its nodes {TEST_LABEL}=true, or force it with --yes.",
        )
