"""EDGE: checks that a cluster is a test cluster, so that a trial harms no real workload.

A cluster is a test cluster if every node is marked: by kwok's annotation, or by label `cotenant.dev/test` or
`cotenant.dev/demo`. For any other cluster the caller needs --yes.
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
    """Raise UsageError if a node of the cluster is neither simulated nor labelled as a test node."""
    metas = (item.metadata for item in client.list("/api/v1/nodes", LabelledObject))
    labels, (key, value) = {TEST_LABEL, DEMO_LABEL}, KWOK_ANNOTATION
    real = (m for m in metas if (m.annotations or {}).get(key) != value and labels.isdisjoint(m.labels or {}))
    nodes = [m.name for m in real]
    if nodes:
        examples = ", ".join(nodes[:3]) + (", ..." if len(nodes) > 3 else "")
        raise UsageError(
            f"{client.access.server} is not a test cluster: {len(nodes)} of its nodes are real ({examples})",
            fix=f"Choose another cluster, label its nodes {TEST_LABEL}=true, or add --yes.",
        )
